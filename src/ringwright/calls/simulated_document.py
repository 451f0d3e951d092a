"""The object of schema ``ringwright.simulate/1``: a row of each algorithm and size, and what they rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ringwright.calls.asked import AskedOf
from ringwright.calls.in_switches import StreamAsUsed
from ringwright.calls.job_ends import JobEnd
from ringwright.calls.sums import SumsOf
from ringwright.calls.unaffected import Unaffected
from ringwright.calls.without_faults import HealthyTime
from ringwright.ground.documents import as_json

SCHEMA = "ringwright.simulate/1"


@dataclass(frozen=True, slots=True)
class SimulatedRow:
    """One simulated time; bandwidths as nccl-tests defines them, in decimal GB/s.

    ``time_us`` is the most probable time where no engine is asked for, else that engine's; ``witnesses`` holds what each model
    says, ``outside`` what nothing was learnt of. ``bound_us`` holds for this program, ``bound_kind`` says which bound it is.
    """

    algorithm: str
    engine: str
    ranks: int
    size_bytes: int
    time_us: float
    algbw_gbs: float
    busbw_gbs: float
    bound_us: float
    bound_kind: str
    bound_at_ranks_us: float
    bound_in_network_us: float | None
    events: int
    messages: float
    choice: str
    bottleneck: str
    utilisation: float
    waited: float
    folded: bool
    why: str  # what the critical path spent its time on
    worst_us: float | None = None  # started at the worst of the moments at which a fault changes something
    worst_start_s: float | None = None
    worst_ends: str = ""  # started at that moment the job ends: how, in the library's words where packets were followed
    lowest_bound_us: float = 0.0  # of any program: where switches can add, they may
    after_last_us: float | None = None  # from the arrival of the last rank to the end, where arrivals are given
    time_us_p05: float | None = None
    time_us_p50: float | None = None
    time_us_p95: float | None = None
    mean_us: float | None = None  # over draws of what is lost; None where nothing is drawn
    calibration: str = ""  # its name, or prior
    software: str = ""  # that is in the time: library (start, protocol, messages), messages alone, or none
    own_software: bool = False  # whether a corrected time is that of an engine with the library's own software
    outside: tuple[str, ...] = ()
    witnesses: Mapping[str, float] = field(default_factory=dict)  # us by model
    alone_us: float | None = None  # without the other jobs on the fabric, where there are any
    healthy_us: float | None = None  # without the faults, where lines of faults were given, by the same models
    unaffected: tuple[Unaffected, ...] = ()  # faults that cost less than a per mille, each with the reason
    transport: Mapping[str, str] = field(default_factory=dict)  # how packets are sent, by class of links
    retransmitted_bytes: int | None = None  # this and what follows: where packets were followed
    drops: int | None = None  # packets that queues had no room for
    lost: int | None = None  # packets lost on links
    pauses: int | None = None
    queue_bytes_p99: int | None = None  # 99 of 100 packets found no more in front of them at a switch
    stream: StreamAsUsed | None = None  # how packets go through switches that add; this and what follows: where they do
    switch_memory_bytes: int | None = None  # leased of the switch that lends the most
    healthy: HealthyTime | None = None  # as ``healthy_us``, with its interval
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
        blank = dict.fromkeys(each.name for each in fields(SimulatedRow))
        rows = [as_json(row) if isinstance(row, SimulatedRow) else {**blank, **as_json(row)} for row in self.rows]
        return {**as_json(replace(self, rows=[])), "rows": rows}
