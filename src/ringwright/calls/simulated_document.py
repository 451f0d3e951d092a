"""The object of schema ``ringwright.simulate/1``: a row of each algorithm and size, and what they rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ringwright.calls.job_ends import JobEnd
from ringwright.calls.provenance import AskedOf
from ringwright.calls.sums import SumsOf
from ringwright.calls.switch_leases import StreamAsUsed
from ringwright.calls.unaffected import Unaffected
from ringwright.calls.without_faults import HealthyTime
from ringwright.executors.fan_out import ExecutorAccount
from ringwright.ground.documents import MERGED, as_json, keys

SCHEMA = "ringwright.simulate/1"


@dataclass(frozen=True, slots=True)
class CallBounds:
    """What no time is below: for this program, and of which kind that is; of any at its ranks; of any where switches add."""

    bound_us: float = 0.0
    bound_kind: str = ""
    bound_at_ranks_us: float = 0.0
    bound_in_network_us: float | None = None


@dataclass(frozen=True, slots=True)
class EngineRun:
    """What an engine's run of the program was: its size, the busiest link, and what the critical path spent its time on."""

    events: int = 0
    messages: float = 0.0
    choice: str = ""
    bottleneck: str = ""
    utilisation: float = 0.0
    waited: float = 0.0
    folded: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class WorstStart:
    """Started at the worst of the moments at which a fault changes something; where the job ends then, how, and no time."""

    worst_us: float | None = None
    worst_start_s: float | None = None
    worst_ends: str = ""

    def moved(self, more_us: float) -> WorstStart:
        """Return it with so much more time."""
        return self if self.worst_us is None else replace(self, worst_us=self.worst_us + more_us)

    def at_least(self, least_us: float) -> WorstStart:
        """Return it with no time below this one."""
        return self if self.worst_us is None else replace(self, worst_us=max(self.worst_us, least_us))


@dataclass(frozen=True, slots=True)
class LikelyTime:
    """The most probable time and its interval; the mean over draws of what is lost, None where nothing is drawn."""

    time_us_p05: float | None = None
    time_us_p50: float | None = None
    time_us_p95: float | None = None
    mean_us: float | None = None

    def at_least(self, least_us: float) -> LikelyTime:
        """Return it with no time below this one but the lower end of its interval."""
        later = (self.time_us_p50, self.time_us_p95, self.mean_us)
        return LikelyTime(self.time_us_p05, *(None if each is None else max(each, least_us) for each in later))


@dataclass(frozen=True, slots=True)
class TimeGround:
    """What a time rests on: the calibration by name, the software in it (library, messages or none), each model's time in us.

    ``own_software``: a corrected time is that of an engine with the library's own; ``outside``: what nothing was learnt of.
    """

    calibration: str = ""
    software: str = ""
    own_software: bool = False
    outside: tuple[str, ...] = ()
    witnesses: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PacketCounts:
    """How packets are sent by class of links, and, where they were followed, what they met; of queues what 99 of 100 found."""

    transport: Mapping[str, str] = field(default_factory=dict)
    retransmitted_bytes: int | None = None
    drops: int | None = None
    lost: int | None = None
    pauses: int | None = None
    queue_bytes_p99: int | None = None


@dataclass(frozen=True, slots=True)
class SwitchLease:
    """How packets go through switches that add, where they do, and the memory that is leased of the one that lends the most."""

    stream: StreamAsUsed | None = None
    switch_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SimulatedRow:
    """One simulated time; bandwidths as nccl-tests defines them, in decimal GB/s.

    ``time_us`` is the most probable time where no engine is asked for, else that engine's. ``lowest_bound_us`` is of any program:
    where switches can add, they may. ``after_last_us`` is from the arrival of the last rank to the end, ``alone_us`` without the
    other jobs on the fabric, ``healthy_us`` without the faults by the same models, ``unaffected`` the faults that cost nothing.
    """

    algorithm: str
    engine: str
    ranks: int
    size_bytes: int
    time_us: float
    algbw_gbs: float
    busbw_gbs: float
    bounds: CallBounds = field(default_factory=CallBounds, metadata={MERGED: CallBounds})
    run: EngineRun = field(default_factory=EngineRun, metadata={MERGED: EngineRun})
    worst: WorstStart = field(default_factory=WorstStart, metadata={MERGED: WorstStart})
    lowest_bound_us: float = 0.0
    after_last_us: float | None = None
    likely: LikelyTime = field(default_factory=LikelyTime, metadata={MERGED: LikelyTime})
    ground: TimeGround = field(default_factory=TimeGround, metadata={MERGED: TimeGround})
    alone_us: float | None = None
    healthy_us: float | None = None
    unaffected: tuple[Unaffected, ...] = ()
    met: PacketCounts = field(default_factory=PacketCounts, metadata={MERGED: PacketCounts})
    leased: SwitchLease = field(default_factory=SwitchLease, metadata={MERGED: SwitchLease})
    healthy: HealthyTime | None = None
    ends: None = None  # this and what follows: of DeclinedCall
    declined: None = None


@dataclass(frozen=True, slots=True)
class DeclinedCall:
    """A row without times: why this algorithm has none here, or how the job ends, beside its time without the faults."""

    algorithm: str
    ranks: int
    size_bytes: int
    healthy_us: float | None
    ends: JobEnd | None
    declined: str


@dataclass(frozen=True, slots=True)
class UnlikeSize:
    """A size whose times have unlike kinds of software in them, and how much that may be at most."""

    size_bytes: int
    most_us: float


@dataclass(frozen=True, slots=True)
class FastestCall:
    """Which algorithm is the fastest at a size, which the next, and the chance that they come in this order."""

    size_bytes: int
    algorithm: str
    next: str
    chance: float | None


@dataclass(frozen=True, slots=True)
class Disagreement:
    """How far models of one algorithm are apart: at how many sizes ``of`` all, and the times in us where they are most so."""

    algorithm: str
    sizes: int
    of: int
    ratio: float
    size_bytes: int
    witnesses: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class UsualTransport:
    """What carries messages between nodes and the numbers that it usually has, with their source."""

    name: str
    hop_us: float
    message_us: float
    share: float
    source: str


@dataclass(frozen=True, slots=True)
class SimulatedCalls:
    """A row of each algorithm and size, and what they rest on; ``last_arrival_us`` is None where all begin together."""

    schema: str
    asked: AskedOf
    collective: str
    fabric: str
    ranks: int
    latency_model: str
    link_model: str
    faults: int
    provenance: str
    transport: UsualTransport
    bound_ground: str
    arrivals: str | None
    beside: list[str]
    last_arrival_us: float | None
    rows: list[SimulatedRow | DeclinedCall]
    notes: list[str]
    unlike: list[UnlikeSize]
    sums: list[SumsOf]
    fastest: list[FastestCall]
    disagreements: list[Disagreement]
    left_out: list[str]
    executor: ExecutorAccount

    @property
    def answered(self) -> list[SimulatedRow]:
        """The rows that have times."""
        return [row for row in self.rows if isinstance(row, SimulatedRow)]

    @property
    def refused(self) -> list[DeclinedCall]:
        """The rows that have none."""
        return [row for row in self.rows if isinstance(row, DeclinedCall)]

    def document(self) -> dict[str, Any]:
        """Return the JSON object; a row without times is null in all that was measured."""
        blank = dict.fromkeys(keys(SimulatedRow))
        rows = [as_json(row) if isinstance(row, SimulatedRow) else {**blank, **as_json(row)} for row in self.rows]
        return {**as_json(replace(self, rows=[])), "rows": rows}
