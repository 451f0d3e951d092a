"""A model's blocks as a chain of segments with exchanges between them, as tensor, context and expert parallelism cut it.

Sequence of one block (Megatron-LM): what is cut by columns is entered, what is cut by rows is left. With sequence parallelism
entering gathers and leaving scatters; without, leaving sums forward and entering sums backward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ringwright.workloads import recomputed
from ringwright.workloads.collectives import LOSS_BYTES
from ringwright.workloads.flops import attention_widths, padded_vocabulary
from ringwright.workloads.layer_work import LayerWork, Load
from ringwright.workloads.model_cards import ModelCard
from ringwright.workloads.parts import ModelBlock
from ringwright.workloads.step import StepSpec
from ringwright.workloads.tables import CUT, ROLE, exchanged_bytes
from ringwright.workloads.times import Roofline, Seconds


@dataclass(frozen=True)
class Segment:
    """What is computed between two exchanges: seconds, and parameters whose gradients it makes (name, elements, expert).

    ``works`` are its layers. Attention that goes round a ring of ranks has ``turns``, of which this is ``turn`` (-1: what is
    computed before them).
    """

    name: str
    block: str
    seconds: Seconds
    parameters: tuple[tuple[str, int, bool], ...] = ()
    tag: str = ""
    factors: dict[str, tuple[int, int]] = field(default_factory=dict)
    works: tuple[LayerWork, ...] = ()
    turn: int = -1
    turns: int = 0


@dataclass(frozen=True)
class Exchange:
    """What is sent between two segments: (op, bytes) forward, backward, and, to make weight gradients, once more backward.

    An empty op: nothing is sent that way. ``times`` how many in a row (the steps of a ring).
    """

    name: str
    role: str
    forward: tuple[str, int] = ("", 0)
    backward: tuple[str, int] = ("", 0)
    again: tuple[str, int] = ("", 0)
    beside: bool = False  # runs beside the segment that follows instead of before it
    backward_times: int = 1


Item = Segment | Exchange
POOLED = "vectors"  # of tables, one of each for every sample
TAKEN, HANDED = "gather", "scatter"  # of what stages send in parts


@dataclass(frozen=True)
class Cutter:
    """What cutting a block needs to know."""

    card: ModelCard
    step: StepSpec
    roofline: Roofline
    timed: dict[tuple[LayerWork, ...], Seconds] = field(default_factory=dict, repr=False, compare=False)

    @property
    def load(self) -> Load:
        """What goes through a layer for one micro-batch."""
        return self.step.load

    @property
    def activations(self) -> int:
        """Bytes of the whole activations of a tensor parallel group."""
        return self.step.width_bytes * self.load.tokens * self.card.dims.get("hidden", 0)

    def items(self, block: ModelBlock, works: tuple[LayerWork, ...]) -> list[Item]:
        """Return a block's segments and exchanges in order of use."""
        items: list[Item] = []
        for at, (kind, group) in enumerate(self._grouped(block, works)):
            if isinstance(group, Exchange):
                items.append(replace(group, name=f"{block.name}.{group.name}.{at}"))
            else:
                items += self._segments(block, f"{block.name}.{kind}.{at}", kind, group)
        return items

    def _grouped(
        self, block: ModelBlock, works: tuple[LayerWork, ...]
    ) -> Iterator[tuple[str, list[LayerWork] | Exchange]]:
        """Yield lists of layers and the exchanges between them."""
        parallel, inside, held = self.step.parallel, False, list[LayerWork]()
        cuts = parallel.tp > 1 and block.unit == "block"

        def flushed(kind: str) -> Iterator[tuple[str, list[LayerWork] | Exchange]]:
            if held:
                yield kind, list(held)
                held.clear()

        begins, ends = _expert_runs(works)
        for at, work in enumerate(works):
            if at in begins:
                yield from flushed("dense")
                yield from (("exchange", each) for each in self._to_experts())
            elif cuts and work.cut == "columns" and not work.expert and (not inside or work.name == "cross_k"):
                yield from flushed("dense")
                yield "exchange", self._enter()
                inside = True
            held.append(work)
            if at in ends:
                yield from flushed("experts")
                yield from (("exchange", each) for each in self._from_experts())
            elif cuts and work.cut == "rows" and not work.expert:
                yield from flushed("dense")
                yield "exchange", self._leave()
                inside = False
            elif work.cut == CUT and at == len(works) - 1:
                yield from flushed("tables")
                yield "exchange", self._vectors()
        yield from flushed("dense")

    def _enter(self) -> Exchange:
        if self.step.parallel.sp:
            gather, scatter = ("all-gather", self.activations), ("reduce-scatter", self.activations)
            return Exchange("enter", "tp", gather, scatter, again=gather)
        return Exchange("enter", "tp", backward=("all-reduce", self.activations))

    def _leave(self) -> Exchange:
        if self.step.parallel.sp:
            return Exchange("leave", "tp", ("reduce-scatter", self.activations), ("all-gather", self.activations))
        return Exchange("leave", "tp", forward=("all-reduce", self.activations))

    def _vectors(self) -> Exchange:
        """Return the exchange of what was looked up, beside the MLP that does not need it."""
        vectors = ("all-to-all", exchanged_bytes(self.card, self.load))
        return Exchange(POOLED, ROLE, vectors, vectors, beside=True)

    def _to_experts(self) -> Iterator[Exchange]:
        parallel = self.step.parallel
        if parallel.ep > 1:
            yield Exchange("dispatch", "ep", ("all-to-all", self._routed()), ("all-to-all", self._routed()))
        elif parallel.etp > 1:
            if parallel.sp:
                size = self.activations * self.card.dims["active"]
                yield Exchange("dispatch", "tp", ("all-gather", size), ("reduce-scatter", size))
            else:
                yield Exchange("dispatch", "tp", backward=("all-reduce", self.activations))

    def _from_experts(self) -> Iterator[Exchange]:
        parallel = self.step.parallel
        if parallel.ep > 1:
            yield Exchange("combine", "ep", ("all-to-all", self._routed()), ("all-to-all", self._routed()))
        elif parallel.etp > 1:
            if parallel.sp:
                size = self.activations * self.card.dims["active"]
                yield Exchange("combine", "tp", ("reduce-scatter", size), ("all-gather", size))
            else:
                yield Exchange("combine", "tp", forward=("all-reduce", self.activations))

    def _routed(self) -> int:
        return self.load.own_tokens * self.card.dims["active"] * self.card.dims["hidden"] * self.step.width_bytes

    def _segments(self, block: ModelBlock, name: str, kind: str, works: list[LayerWork]) -> Iterator[Item]:
        """Yield the layers as one segment, or, where attention goes round a ring of ranks, as one a turn."""
        ring = self.step.parallel.cp - 1 if block.unit == "block" else 0
        at = next((at for at, work in enumerate(works) if work.kind == "attention"), None)
        if not ring or at is None:
            yield self.segment(block.name, name, kind, works)
            return
        size = self.step.width_bytes * self.load.tokens * attention_widths(self.card.dims)[2] // self.step.parallel.tp
        yield replace(self.segment(block.name, f"{name}.before", kind, works[:at]), turns=ring + 1)
        part = self.seconds([works[at]])
        turn = Seconds(part.forward / (ring + 1), part.inputs / (ring + 1), part.weights / (ring + 1))
        for number in range(ring + 1):
            if number < ring:
                shift = ("shift", size)
                yield Exchange(f"{name}.ring{number}", "cp", shift, shift, beside=True, backward_times=2)
            yield Segment(f"{name}.turn{number}", block.name, turn, works=(works[at],), turn=number, turns=ring + 1)
        yield self.segment(block.name, f"{name}.after", kind, works[at + 1 :])

    def segment(
        self,
        block: str,
        name: str,
        kind: str,
        works: list[LayerWork],
        parameters: tuple[tuple[str, int, bool], ...] = (),
    ) -> Segment:
        """Return layers as one segment; ``parameters`` come to those that the layers hold."""
        held = tuple((work.name, work.parameters, work.expert) for work in works if work.parameters)
        factors = {
            work.name: (work.gemms[0].n, work.gemms[0].k)
            for work in works
            if self.card.takes_samples and work.kind == "matrix" and work.gemms[0].m == self.step.micro_batch_size
        }
        tag = "experts" if kind == "experts" else ""
        return Segment(name, block, self.seconds(works), (*held, *parameters), tag, factors, tuple(works))

    def seconds(self, works: Sequence[LayerWork]) -> Seconds:
        """Return the seconds of layers one after another; blocks are alike, so they are worked out once for all of them."""
        key = tuple(works)
        if key not in self.timed:
            self.timed[key] = self._seconds(works)
        return self.timed[key]

    def _seconds(self, works: Sequence[LayerWork]) -> Seconds:
        total, issuing = Seconds(), Seconds()
        again = recomputed.again(works) if self.step.recompute == recomputed.OPERATIONS else []
        for work in works:
            made, issued = self.roofline.seconds(work, self.load), self.roofline.issuing(work, self.load)
            if work.kind == "attention" and self.step.recompute == "selective":
                made = replace(made, inputs=made.inputs + made.forward)
                issued = replace(issued, inputs=issued.inputs + issued.forward)
            if work in again:
                made, issued = (replace(each, inputs=each.inputs + each.forward) for each in (made, issued))
            total, issuing = total + made, issuing + issued
        return total.at_least(issuing)

    def gathered(
        self, chunk: int, groups: list[tuple[str, bool, list[Item]]], *, opens: bool, ends: bool
    ) -> list[tuple[str, bool, list[Item]]]:
        """Return a chunk's groups with what gathers the parts that come from other stages, where each rank sends one.

        Forward where the chunk does not open the model, backward where it does not end it; neither is run once more.
        """
        if not self.step.parallel.sg:
            return groups
        whole = ("all-gather", self.activations)
        block = next(item.block for _, _, items in groups for item in items if isinstance(item, Segment))
        taken: list[Item] = [
            Segment(f"chunk{chunk}.taken", block, Seconds()),
            Exchange(f"chunk{chunk}.{TAKEN}.0", "tp", whole),
        ]
        block = next(item.block for _, _, items in groups[::-1] for item in items[::-1] if isinstance(item, Segment))
        handed: list[Item] = [
            Exchange(f"chunk{chunk}.{HANDED}.0", "tp", backward=whole),
            Segment(f"chunk{chunk}.handed", block, Seconds()),
        ]
        before = [] if opens else [(f"chunk{chunk}.taken", False, taken)]
        return [*before, *groups, *([] if ends else [(f"chunk{chunk}.handed", False, handed)])]

    def first(self, name: str) -> list[Item]:
        """Return what follows a lookup where the vocabulary is cut."""
        if self.step.parallel.tp == 1 or not self.card.cuts_words:
            return []
        if self.step.parallel.sp:
            return [Exchange(name, "tp", ("reduce-scatter", self.activations), ("all-gather", self.activations))]
        return [Exchange(name, "tp", ("all-reduce", self.activations))]

    def last(self, logits: Segment) -> list[Item]:
        """Return the logits with what is exchanged before and, for the loss, behind them."""
        step = self.step
        if step.parallel.tp == 1 or not self.card.cuts_words or self.card.dims.get("pooler"):
            return [logits]
        enter = replace(self._enter(), name="logits", again=("", 0))
        if not step.trains:
            words = (
                step.width_bytes
                * step.micro_batch_size
                * padded_vocabulary(self.card.dims["vocabulary"], step.parallel.tp)
            )
            return [
                enter,
                logits,
                Exchange("answers", "tp", ("all-gather", words)),
                Segment("answered", "loss", Seconds()),
            ]
        sums: list[Item] = []
        for number in range(3):
            sums.append(Exchange(f"loss{number}", "tp", ("all-reduce", LOSS_BYTES * self.load.tokens)))
            sums.append(Segment(f"loss{number}", "loss", Seconds()))
        return [enter, logits, *sums]


def _expert_runs(works: Sequence[LayerWork]) -> tuple[set[int], set[int]]:
    """Return with which layers a run of experts begins, and with which one ends."""
    experts = [False, *(bool(work.expert) for work in works), False]
    begins = {at for at in range(len(works)) if experts[at + 1] and not experts[at]}
    return begins, {at for at in range(len(works)) if experts[at + 1] and not experts[at + 2]}
