"""A summary as reports read it: schema ``ringwright.summary/1``, kept by whatever release, with every part there.

What an older summary lacks has the default of its field; the keys themselves are in `document`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ringwright.analysis.document import Row
from ringwright.analysis.topology_view import InNetworkView, TopologyView
from ringwright.ground.documents import keyed


@dataclass(frozen=True, slots=True)
class SeenSize:
    """How many calls of an operation have a size (None: not known), and their bytes."""

    size_bytes: int | None
    count: int
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SeenOperation:
    """The calls of an operation."""

    op: str
    count: int | None = None
    records: int | None = None
    bytes: int | None = None
    size_histogram: list[SeenSize] | None = None


@dataclass(frozen=True, slots=True)
class SeenClass:
    """Calls of an operation whose size is from the low bound up to, not including, twice that."""

    op: str
    log2_low_bytes: int
    count: int
    bytes: float


@dataclass(frozen=True, slots=True)
class SeenPart:
    """Calls of an operation in a role, or in a phase."""

    op: str
    role: str | None = None
    phase: str | None = None
    count: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SeenAlgorithm:
    """By which algorithm calls of a size went, as the source states it."""

    op: str
    size_bytes: int | None = None
    count: int | None = None
    algorithm: str | None = None
    protocol: str | None = None
    channels: int | None = None


@dataclass(frozen=True, slots=True)
class ListedCommunicator:
    """A communicator, its members (negative: not known) and what was called on it."""

    communicator: int
    size: int | None = None
    members: list[int] | None = None
    ranks_seen: int | None = None
    nnodes: int | None = None
    ground: str | None = None
    role: str | None = None
    role_evidence: str | None = None
    operations: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SeenSizes:
    """How many communicators have a size."""

    size: int
    count: int


@dataclass(frozen=True, slots=True)
class SeenConcurrency:
    """How often two communicators of a rank have requests at the same time."""

    communicator_a: int
    communicator_b: int
    overlaps: int


@dataclass(frozen=True, slots=True)
class SeenRank:
    """Where a rank ran."""

    rank: int | None = None
    host: str | None = None
    pid: int | None = None
    device: int | None = None
    bus_id: str | None = None
    records: int | None = None


@dataclass(frozen=True, slots=True)
class SeenError:
    """A line of an error, and whether it is the first."""

    rank: int | None = None
    host: str | None = None
    text: str | None = None
    file: str | None = None
    line: int | None = None
    code: int | None = None
    first: bool | None = None


@dataclass(frozen=True, slots=True)
class SeenPair:
    """Bytes from one rank to another."""

    src: int
    dst: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SeenHosts:
    """Bytes from one host to another."""

    src: str
    dst: str
    bytes: float


@dataclass(frozen=True, slots=True)
class SeenNic:
    """Bytes through a NIC."""

    host: str | None
    nic: str
    sent_bytes: float | None = None
    received_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class PairGround:
    """What the bytes of pairs rest on, and between which sums they lie."""

    algorithm: str | None = None
    ground: str = "assumed"
    low_bytes: float | None = None
    high_bytes: float | None = None
    conserved: bool = True


@dataclass(frozen=True, slots=True)
class SeenSeries:
    """The bytes of one operation in each bin."""

    op: str
    bytes: list[float]


@dataclass(frozen=True, slots=True)
class SeenBurst:
    """Calls that follow each other closely, of all ranks together."""

    start_s: float
    duration_s: float
    bytes: float
    count: int | None = None


@dataclass(frozen=True, slots=True)
class SeenCourse:
    """Bytes over time in bins of ``bin_s`` seconds."""

    bin_s: float
    series: list[SeenSeries]
    start_s: float = 0.0
    bursts: list[SeenBurst] = field(default_factory=list)
    clock: str = ""


@dataclass(frozen=True, slots=True)
class SeenShare:
    """The share of all bytes that an operation has."""

    op: str
    share: float


@dataclass(frozen=True, slots=True)
class SeenProvision:
    """What the network must carry, None where the source cannot tell."""

    bytes_per_step_per_nic: int | None = None
    largest_burst_bytes: int | None = None
    largest_burst_of: str | None = None
    share_per_op: list[SeenShare] | None = None
    steps: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class SeenFigure:
    """A figure behind the answer."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class SeenAnswer:
    """What a report says first."""

    kind: str
    sentence: str
    figures: list[SeenFigure]
    command: str


@dataclass(frozen=True, slots=True)
class SeenFinding:
    """What deserves attention, on what evidence, and the next command to type."""

    title: str
    severity: str | None = None
    detail: str | None = None
    evidence: list[str] = field(default_factory=list)
    command: str = ""


@dataclass(frozen=True, slots=True)
class SeenIteration:
    """A step, and how long it took on the slowest rank."""

    iteration: int | None = None
    time_s: float | None = None


@dataclass(frozen=True, slots=True)
class SeenClaim:
    """What a source states, or what follows from it."""

    field: str | None = None
    value: str | None = None
    ground: str | None = None
    confidence: float | None = None
    source: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class SeenLines:
    """What became of so many lines, and the first of them."""

    outcome: str | None = None
    reason: str | None = None
    lines: int | None = None
    file: str | None = None
    example_line: int | None = None
    example: str | None = None


@dataclass(frozen=True, slots=True)
class SeenCulprit:
    """Who is to blame, how sure that is, and on what evidence."""

    kind: str
    ranks: list[int]
    hosts: list[str]
    confidence: float
    evidence: list[str]


@dataclass(frozen=True, slots=True)
class SeenWait:
    """How long a rank waited for others, and others for it."""

    rank: int
    wait_us: float
    transfer_us: float
    calls: int
    last_count: int
    caused_us: float


@dataclass(frozen=True, slots=True)
class SeenKernel:
    """The kernels of a name, summed and as a union."""

    name: str
    count: int
    sum_us: float
    union_us: float
    kind: str = keyed("class")


@dataclass(frozen=True, slots=True)
class SeenBandwidth:
    """Bandwidths of calls of a size; ``law``: which law they break, and are refused for."""

    op: str
    size_bytes: int | None
    time_us: float | None
    algbw_gbs: float | None
    busbw_gbs: float | None
    nranks: int | None = None
    table: str | None = None
    kind: str | None = None
    law: str | None = None


@dataclass(frozen=True, slots=True)
class SeenNormal:
    """A bandwidth beside what such systems reach: 5, 50 and 95 % of them."""

    op: str
    size_bytes: int
    busbw_gbs: float
    p05: float
    p50: float
    p95: float
    percentile: float
    n_systems: int
    assumed: list[str]
    outside: list[str]
    table: str


@dataclass(frozen=True, slots=True)
class RankOverlap:
    """How much of a rank's communication is exposed."""

    rank: int
    comm_us: float
    exposed_us: float
    compute_us: float
    idle_us: float


@dataclass(frozen=True, slots=True)
class AuditReason:
    """Why communication is exposed, and what helps."""

    reason: str
    exposed_us: float
    advice: str


@dataclass(frozen=True, slots=True)
class KeptApart:
    """What keeps communication and compute apart."""

    what: str
    exposed_us: float
    cause: str
    count: int


@dataclass(frozen=True, slots=True)
class SeenRemedy:
    """What would hide communication: a rewrite, by which system, how it is switched on, the least and most that it gains."""

    system: str | None = None
    switch: str | None = None
    rewrite: str | None = None
    memory: str | None = None
    gain_us: list[float] | None = None


@dataclass(frozen=True, slots=True)
class SeenExposed(SeenRemedy):
    """Exposed communication of one cause."""

    group: str | None = None
    op: str = ""
    phase: str | None = None
    layer: str | None = None
    cause: str = ""
    exposed_us: float | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class SeenFusion(SeenRemedy):
    """A pattern of fusions that was expected, and how often it fired; see ``overlap_account.patterns``."""

    pattern: str = ""
    groups: list[str] = field(default_factory=list)
    group: str | None = None
    expected: int = field(kw_only=True)
    fired: int = field(kw_only=True)
    missed: int = field(kw_only=True)
    layers: list[str] = field(default_factory=list)
    why: str = ""


@dataclass(frozen=True, slots=True)
class SeenVariable:
    """A variable of the environment that matters here."""

    name: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class SeenOverlap:
    """The account of overlap; ``fusions`` are rows as their analysis names the columns."""

    ranks: list[RankOverlap] = field(default_factory=list)
    audit: list[AuditReason] = field(default_factory=list)
    fusions: list[Row] = field(default_factory=list)
    apart: list[KeptApart] = field(default_factory=list)
    exposed: list[SeenExposed] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    environment: list[SeenVariable] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SeenBar:
    """A call or kernel of a rank on the timeline."""

    rank: int
    op: str | None
    start_us: float
    duration_us: float
    wait_us: float | None = None
    track: str = keyed("lane")


@dataclass(frozen=True, slots=True)
class SeenBars:
    """The bars of a timeline, or why there are none; ``shown`` of all."""

    refused: str
    bars: list[SeenBar] = field(default_factory=list)
    shown: int = 0
    of: int = 0
    ranks: int = 0
    end_us: float = 0.0
    clock: str = ""


@dataclass(frozen=True, slots=True)
class BurstView:
    """Figures of some bursts: see ``burst_document.BurstFigures``; of which NIC, phase or step, where it is of one."""

    count: int
    bytes: float | None
    size_bytes_p50: float | None
    size_bytes_p95: float | None
    size_bytes_p99: float | None
    gap_us_p50: float | None
    gap_us_p95: float | None
    gap_us_p99: float | None
    duration_us_p50: float | None
    duration_us_p95: float | None
    duration_us_p99: float | None
    duty: float | None
    incast_p50: int | None
    incast_p95: int | None
    incast_p99: int | None
    incast_max: int | None
    nic: str = ""
    phase: str = ""
    step: int = 0


@dataclass(frozen=True, slots=True)
class BurstSizeView:
    """How many bursts are of a size from the low bound up to twice that."""

    log2_low_bytes: int
    count: int


@dataclass(frozen=True, slots=True)
class BurstGapView:
    """How many pauses last from the low bound up to twice that."""

    log2_low_us: int
    count: int


@dataclass(frozen=True, slots=True)
class BurstsView(BurstView):
    """Bursts of all NICs, and by NIC, phase and step."""

    gap_rule: str = ""
    size_classes: list[BurstSizeView] = field(default_factory=list)
    gap_classes: list[BurstGapView] = field(default_factory=list)
    nics: list[BurstView] = field(default_factory=list)
    phases: list[BurstView] = field(default_factory=list)
    steps: list[BurstView] = field(default_factory=list)
    nics_total: int = 0
    steps_total: int = 0
    of: str = ""
    ground: str = ""
    limits: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SeenSummary:
    """The parts of a summary that reports show."""

    hosts: int
    ranks_seen: int
    kind: str = ""
    inputs: list[str] = field(default_factory=list)
    nccl_versions: list[str] = field(default_factory=list)
    ranks_expected: int | None = None
    communicators: list[SeenSizes] = field(default_factory=list)
    operations: list[SeenOperation] = field(default_factory=list)
    roles: dict[str, int | None] = field(default_factory=dict)
    ledger: dict[str, int] = field(default_factory=dict)
    errors: list[SeenError] = field(default_factory=list)
    timeline: SeenCourse | None = None
    concurrency: list[SeenConcurrency] = field(default_factory=list)
    algorithms: list[SeenAlgorithm] = field(default_factory=list)
    by_role: list[SeenPart] = field(default_factory=list)
    by_phase: list[SeenPart] = field(default_factory=list)
    communicator_list: list[ListedCommunicator] = field(default_factory=list)
    ranks: list[SeenRank] = field(default_factory=list)
    verdict: SeenCulprit | None = None
    culprits: list[SeenCulprit] = field(default_factory=list)
    waits: list[SeenWait] = field(default_factory=list)
    kernels: list[SeenKernel] = field(default_factory=list)
    overlap: SeenOverlap = field(default_factory=SeenOverlap)
    exposed_us: float | None = None
    overlapped_us: float | None = None
    bandwidth: list[SeenBandwidth] = field(default_factory=list)
    bars: SeenBars | None = None
    bursts: BurstsView | None = None
    bursts_unknown: str = ""
    size_classes: list[SeenClass] = field(default_factory=list)
    pair_bytes: list[SeenPair] = field(default_factory=list)
    host_pair_bytes: list[SeenHosts] = field(default_factory=list)
    nic_bytes: list[SeenNic] = field(default_factory=list)
    pair_ground: PairGround | None = None
    topology: TopologyView | None = None
    in_network: InNetworkView | None = None
    provision: SeenProvision | None = None
    losses: list[str] = field(default_factory=list)
    ledger_detail: list[SeenLines] = field(default_factory=list)
    answer: SeenAnswer | None = None
    findings: list[SeenFinding] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    normal: list[SeenNormal] = field(default_factory=list)
    normal_unknown: list[str] = field(default_factory=list)
    iterations: list[SeenIteration] = field(default_factory=list)
    claims: list[SeenClaim] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    coverage: str = ""
