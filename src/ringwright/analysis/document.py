"""The summary as a typed structure: schema ``ringwright.summary/1``, keys in the order in which they are written.

A key that a section does not have is an error of the type checker, here and in every report that reads it.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from ringwright.analysis.adders import InNetworkSaid
from ringwright.analysis.answer_document import FirstAnswer
from ringwright.analysis.machine.topology_document import ReadTopology
from ringwright.analysis.normal_document import NormalRow
from ringwright.analysis.traffic.burst_document import ToldBursts

Row = dict[str, Any]  # a row of a frame, as its analysis names the columns


class Origin(TypedDict):
    """What was read, and with which library."""

    schema: str
    source: str
    kind: str
    inputs: list[str]
    nccl_versions: list[str]
    library: str | None
    folded: bool
    asked: dict[str, Any] | None  # of a simulation, what was asked


class SizeCount(TypedDict):
    """How many communicators have a size."""

    size: int
    count: int


class Iteration(TypedDict):
    """A step, and how long it took on the slowest rank."""

    iteration: int | None
    time_s: float


class OperationSeries(TypedDict):
    """The bytes of one operation in each bin."""

    op: str
    bytes: list[float]


class Burst(TypedDict):
    """Calls that follow each other closely, of all ranks together."""

    start_s: float
    duration_s: float
    bytes: float
    count: int


class LargestBurst(TypedDict):
    """The largest burst, and of which rank it is."""

    bytes: float
    start_s: float
    of: str


class Timeline(TypedDict):
    """Bytes over time in bins of ``bin_s`` seconds from ``start_s`` on, and bursts."""

    bin_s: float
    start_s: float
    series: list[OperationSeries]
    bursts: list[Burst]
    largest_burst: LargestBurst
    clock: str


class Overlap(TypedDict):
    """Two communicators of a rank, and in how many seconds both have requests."""

    communicator_a: int
    communicator_b: int
    overlaps: int


class Calls(TypedDict):
    """The ranks and communicators, and what they called."""

    hosts: int
    ranks_seen: int
    ranks_expected: int | None
    communicators: list[SizeCount]
    operations: list[Row]
    roles: dict[str, int | None]
    ledger: dict[str, int]
    errors: list[Row]
    errors_total: int
    iterations: list[Iteration]
    timeline: Timeline | None
    concurrency: list[Overlap]
    algorithms: list[Row]
    by_role: list[Row]
    by_phase: list[Row]
    communicator_list: list[Row]
    ranks: list[Row]


class Culprit(TypedDict):
    """Who is to blame, how sure that is, 0 to 1, and on what evidence; its keys in any order.

    ``command`` is what to type next, in every culprit of a summary, empty where no file is known. ``begin_step`` and
    ``steps_share`` are told of ranks that died or were late: from which step on, and in which share of the steps.
    """

    kind: str
    ranks: list[int]
    hosts: list[str]
    confidence: float
    evidence: list[str]
    command: NotRequired[str]
    begin_step: NotRequired[int | None]
    steps_share: NotRequired[float]


class Times(TypedDict):
    """What only recordings with times, states, metrics or measurements hold."""

    verdict: Culprit | None
    culprits: list[Culprit]
    waits: list[Row]
    arrivals: Row | None
    steps_us: dict[str, list[float]]
    kernels: list[Row]
    overlap: Row
    exposed_us: float | None
    overlapped_us: float | None
    bandwidth: list[Row]
    bars: Row | None
    bursts: ToldBursts | None
    bursts_unknown: str
    not_examined: list[str]
    passed_over: list[str]
    told_limits: list[str]


class PairBytes(TypedDict):
    """Bytes from one rank to another."""

    src: int
    dst: int
    bytes: int


class Traffic(TypedDict):
    """Bytes by size class, pair of ranks, pair of hosts and NIC, and the topology that carried them."""

    size_classes: list[Row]
    pair_bytes: list[PairBytes]
    truncated: bool
    host_pair_bytes: list[Row]
    nic_bytes: list[Row]
    pair_ground: Row
    topology: ReadTopology
    in_network: InNetworkSaid | None


class Facts(Origin, Calls, Times, Traffic):
    """What was read or counted, before any conclusion."""


class OperationShare(TypedDict):
    """The share of all bytes that an operation has."""

    op: str
    share: float


class Provision(TypedDict):
    """What the network must carry, None where the source cannot tell; ``note`` says what the figures rest on."""

    bytes_per_step_per_nic: int | None
    busiest_nic_bytes: float | None
    between_hosts_bytes: float
    largest_burst_bytes: int | None
    largest_burst_of: str | None
    share_per_op: list[OperationShare]
    steps: int | None
    note: str


class Judgements(TypedDict):
    """What the network must carry for it, None in a summary that was kept without it, and which laws the numbers broke."""

    provision: Provision | None
    losses: list[str]
    laws: list[Row]
    ledger_detail: list[Row]


class Judged(Facts, Judgements):
    """The inputs of the rules that make findings."""


class JobFinding(TypedDict):
    """What deserves attention: error, warning or info, on what evidence, and the next command to type."""

    severity: str
    title: str
    detail: str
    evidence: list[str]
    command: str


class CliffFinding(JobFinding):
    """A fall of bandwidth from one size to the next: the share that is lost, and what NCCL's model changes there."""

    op: str
    table: str
    from_bytes: int
    to_bytes: int
    fall: float
    model: str
    is_spike: bool  # one size alone, and not all from there on


class Conclusions(TypedDict):
    """What follows from all the other parts; ``answer`` is None in a summary that was kept without it."""

    answer: FirstAnswer | None
    findings: list[JobFinding]
    warnings: list[str]
    normal: list[NormalRow]
    normal_unknown: list[str]
    claims: list[Row]
    limits: list[str]
    coverage: str


class Summary(Judged, Conclusions):
    """The whole of ``ringwright summary --json``."""
