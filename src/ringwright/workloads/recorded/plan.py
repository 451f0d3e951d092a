"""What is known of one rank's step: its calls and its work as recorded, and as pieces of work with what they exchange."""

from __future__ import annotations

from dataclasses import dataclass, field

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
SUMMED = ("all-reduce", "reduce-scatter")
PAIRS = ("send", "recv", "send-recv")


@dataclass
class RecordedCall:
    """One call of a collective, or a send or receive; times in s of one clock, None where they were not recorded."""

    event: int
    op: str
    size_bytes: int
    communicator: int
    enqueue_s: float | None = None
    start_s: float | None = None
    duration_s: float | None = None
    phase: str = ""
    layer: str = ""
    peer: int = -1  # global rank, -1: not known
    root: int = 0
    dtype: str = "float32"
    elements: int = 0
    turn: int = 0  # of its communicator (and peer and direction) within the step
    is_sized: bool = True  # whether the size was recorded
    waits_inside: bool = (
        True  # whether it begins without the ranks that are late, or when the last one has handed it in
    )
    own_s: float | None = None  # without the time in which calls before it in its queue were under way

    @property
    def issued_s(self) -> float | None:
        """When the host called."""
        return self.enqueue_s if self.enqueue_s is not None else self.start_s

    @property
    def ready_s(self) -> float:
        """When the rank was ready for it: when it began, or was handed in where nobody waits within it."""
        handed_in = self.start_s if self.waits_inside else self.enqueue_s
        return (handed_in if handed_in is not None else self.start_s) or 0.0

    @property
    def end_s(self) -> float | None:
        """When it was over."""
        return None if self.start_s is None or self.duration_s is None else self.start_s + self.duration_s


@dataclass
class RecordedWork:
    """A kernel, or time of the host between calls."""

    start_s: float
    duration_s: float
    enqueue_s: float | None = None
    phase: str = ""
    stream: str = ""
    event: int = -1
    name: str = ""


@dataclass
class Line:
    """One rank's step as it was recorded."""

    rank: int
    calls: list[RecordedCall] = field(default_factory=list)
    works: list[RecordedWork] = field(default_factory=list)
    begin_s: float | None = None
    end_s: float | None = None
    is_closed: bool = False  # the next step was recorded too: it lasted from one begin to the next
    arriving: list[float] = field(
        default_factory=list
    )  # when calls of the step before ended, of those that reached into it


@dataclass
class Piece:
    """Work between two points at which a rank communicates."""

    seconds: float
    phase: str = ""
    stream: str = "compute"
    name: str = ""


@dataclass
class CommEvent:
    """A call with the pieces that make and use what it carries. A gradient is used by the update of the parameters.

    ``later``: pieces of the next step that use it.
    ``earliest``: the first piece of the next step that can have waited for it, -1 where it ended within its own.
    """

    call: RecordedCall
    producers: tuple[int, ...] = ()
    consumers: tuple[int, ...] = ()
    is_gradient: bool = False
    earliest: int = -1
    later: tuple[int, ...] = ()


@dataclass
class RankStep:
    """One rank's step as pieces: those of a stream run one after another; ``edges`` are (piece before, piece after).

    ``later`` are those whose second piece is one of the next step. ``updates_late``: updates ran between the work of the next
    step, each when what it waited for was there.
    """

    rank: int
    pieces: list[Piece] = field(default_factory=list)
    sent: list[CommEvent] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    later: list[tuple[int, int]] = field(default_factory=list)
    chained: list[tuple[int, int, int]] = field(
        default_factory=list
    )  # (sent before, sent after, steps later), no work between
    tail: int | None = None  # the first piece of the update
    measured_s: float | None = None
    updates_late: bool = False

    @property
    def reaches_on(self) -> bool:
        """Whether a sum of gradients ended within the next step."""
        return any(each.earliest >= 0 for each in self.sent)

    def cut(self, at: int, seconds: float) -> None:
        """Cut piece ``at`` in two, the first of them ``seconds`` long; what it produced its second part produces."""
        first = self.pieces[at]
        second = Piece(first.seconds - seconds, first.phase, first.stream, first.name)
        self.pieces[at] = Piece(seconds, first.phase, first.stream, first.name)
        self.pieces.insert(at + 1, second)
        for each in self.sent:
            each.producers = tuple(one + (one >= at) for one in each.producers)
            each.consumers = tuple(one + (one > at) for one in each.consumers)
            each.earliest += each.earliest > at
        self.edges = [(src + (src >= at), dst + (dst > at)) for src, dst in self.edges]
        if self.tail is not None and self.tail > at:
            self.tail += 1
