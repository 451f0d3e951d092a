"""A pass along a chain of segments as a flow of tensors: who reads and writes what, and what backward needs of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ringwright.model.values import Value
from ringwright.workloads.segments import Exchange, Segment
from ringwright.workloads.task_parts import Makers
from ringwright.workloads.tensors import OWN, Tensors

DROPS = ("gpt2", "bert", "transformer")  # families that were trained with dropout
MASK_BYTES = 1


@dataclass
class SegmentFlow:
    """One segment's part: what it reads of others, what it writes, and of both what backward needs.

    ``inputs`` are needed for gradients of weights, ``inner`` for those of inputs. ``added`` are read to be added up to ``sums``,
    and have its gradient, which gets more within the segment where it is ``normed``. ``plain`` are read and have no gradient.
    ``results`` are outputs of matrices within the segment, whose gradients its weights' need. ``makers``: which layer did what.
    """

    item: Segment
    reads: list[str] = field(default_factory=list)
    writes: list[Value] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    inner: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    sums: str = ""
    normed: bool = False
    plain: set[str] = field(default_factory=set)
    results: list[Value] = field(default_factory=list)
    makers: Makers = field(default_factory=Makers)

    @property
    def made(self) -> set[str]:
        """Names of what it writes."""
        return {value.name for value in self.writes}

    def read(self, *names: str) -> None:
        """Note what comes from other segments."""
        own = self.made
        self.reads += [name for name in names if name and name not in own and name not in self.reads]

    def noted(self, layer: str) -> None:
        """Note that what is read and written by now, and was not before, is this layer's."""
        for name in self.reads:
            self.makers.reads.setdefault(name, layer)
        for value in self.writes:
            self.makers.writes.setdefault(value.name, layer)


@dataclass(frozen=True)
class Exchanged:
    """An exchange, and the tensors before and after it: the same one where nothing is sent that way."""

    item: Exchange
    before: str
    after: str


@dataclass
class Pass:
    """Where a pass is: ``stream`` is the hidden state, ``current`` what the next matrix reads, ``pending`` branches to be added.

    ``branch`` is what the norm before a branch gave, ``middle`` what goes into an activation function, ``routed`` tokens on
    their way to experts, ``ring`` queries and what was received of keys and values, ``encoded`` and ``targets`` are of an
    encoder-decoder, ``scalar`` is of the loss. ``phase`` is F, or R for a pass that is run once more; ``sent`` are the names
    of all payloads.
    """

    tensors: Tensors
    of: str
    phase: str
    sent: frozenset[str]
    is_flash: bool = True
    stream: str = ""
    current: str = ""
    pending: list[str] = field(default_factory=list)
    branch: str = ""
    middle: list[str] = field(default_factory=list)
    routed: str = ""
    ring: list[str] = field(default_factory=list)
    turned: str = ""
    encoded: str = ""
    targets: str = ""
    scalar: str = ""
    made: dict[str, Value] = field(default_factory=dict)

    @property
    def hidden(self) -> int:
        """Width of the hidden state."""
        return self.tensors.model.dims["hidden"]

    @property
    def drops(self) -> bool:
        """Whether branches go through dropout before they are added."""
        return self.tensors.model.family in DROPS and self.tensors.step.trains

    def name(self, item: str, label: str) -> str:
        """Return the name of a tensor of a segment or exchange."""
        again = "R." if self.phase == "R" else ""
        return f"{self.of}.{again}{item}.{label}"

    def new(self, flow: SegmentFlow, label: str, rows: str, feature: str, width: int, **more: Any) -> str:
        """Write a tensor of a segment and return its name."""
        name = self.name(flow.item.name, label)
        while name in self.made:  # the second attention of a decoder's block
            name += "2"
        made = self.tensors.tensor(name, self.of, rows, feature, width, **more)
        flow.writes.append(made)
        self.made[name] = made
        return name

    def result(self, flow: SegmentFlow, rows: str, width: int, cut: tuple[str, ...]) -> None:
        """Note the output of a matrix that stays within its segment."""
        name = self.name(flow.item.name, f"result{len(flow.results)}")
        flow.results.append(self.tensors.tensor(name, self.of, rows, "middle", width, cut=cut))

    def add(self, flow: SegmentFlow) -> None:
        """Add the branches to the stream; a first one alone is the stream, behind its dropout if there is one."""
        parts = [*([self.stream] if self.stream else []), *self.pending]
        flow.read(*parts)
        if self.drops:
            flow.inner.append(self.new(flow, "dropout_mask", OWN, "hidden", self.hidden, each=MASK_BYTES))
        own = flow.made
        flow.added += [name for name in parts if name not in own and name not in flow.added]
        if len(parts) > 1 or self.drops:
            self.stream = self.new(flow, "stream", OWN, "hidden", self.hidden)
        else:
            self.stream = parts[0]
        flow.sums, self.current, self.pending = self.stream, self.stream, []
