"""Gradients of a backward pass as tensors: from segment to segment in reverse, exchanges in the other direction.

The gradient of what is added up is that of the sum, so the stream and its branches share one. What makes the gradient of weights
reads the input of the matrix and the gradient of its output, which stays until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ringwright.model.values import PARTIAL, Placement, Value
from ringwright.workloads.dataflow import Exchanged, Pass, SegmentFlow
from ringwright.workloads.forward_values import Part
from ringwright.workloads.stage import RankClassBuilder

SUMS = ("all-reduce", "reduce-scatter")


@dataclass
class Backward:
    """Gradients so far: ``gradients`` of tensors, the ``values`` that were made, and what was ``kept`` of the forward pass."""

    stage: RankClassBuilder
    line: Pass
    gradients: dict[str, str] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)

    def walk(self, parts: Sequence[Part], tasks: frozenset[str]) -> None:
        """Add the gradients of a chain in reverse; ``tasks`` are the names of all that there are."""
        behind = {part.after: part for part in parts if isinstance(part, Exchanged)}
        entered: Exchanged | None = None  # right before a segment
        for at in range(len(parts) - 1, -1, -1):
            part = parts[at]
            if isinstance(part, Exchanged):
                self._sent(part)
                continue
            entered = parts[at - 1] if at and isinstance(parts[at - 1], Exchanged) else None  # type: ignore[assignment]
            self._segment(part, behind, entered, tasks)

    # ---------------------------------------------------------------------------------------------------------- segments
    def _segment(
        self, flow: SegmentFlow, behind: dict[str, Exchanged], entered: Exchanged | None, tasks: frozenset[str]
    ) -> None:
        of, name = self.stage.name, flow.item.name
        inputs, weights = f"{of}.dO.{name}", f"{of}.dW.{name}"
        has_weights = weights in tasks
        coming = [self.gradients[value.name] for value in flow.writes if value.name in self.gradients]
        coming += [self.gradients[each] for each in flow.reads if each in self.gradients]
        coming = list(dict.fromkeys(coming))
        again = self._again(entered) if has_weights else ""
        sent = entered if again else None
        needed = [each for each in flow.inputs if not (sent and each == sent.after)]
        kept = (*flow.inner, *needed, *((sent.before,) if sent else ()))
        self.kept.update(name for name in kept if name)  # a family may not say how wide what flows is
        self.stage.reads(inputs, *coming, *flow.inner, *(() if has_weights else needed))
        if has_weights:
            results = [self._keep(replace(each, name=f"{each.name}.gradient")) for each in flow.results]
            self.stage.writes(inputs, *results)
            self.stage.reads(weights, *coming, *results, *needed, *([again] if again else []))
        self._added(flow, behind, inputs)
        for each in flow.reads:
            if each not in flow.plain and each not in flow.added:
                self._own(each, behind, inputs)

    def _added(self, flow: SegmentFlow, behind: dict[str, Exchanged], task: str) -> None:
        """Give what was added up the gradient of its sum, with what comes to it within the segment."""
        if not flow.added:
            return
        made = self.gradients.get(flow.sums, "")
        reduced = next((each for each in flow.added if self._op(behind.get(each)) in SUMS), "")
        if flow.normed or reduced or not made:
            plain = (each for each in flow.added if not self._is_routed(each))
            made = self._new(reduced or next(plain), behind, task)
        self.share(flow.added, made, task)

    def share(self, added: Sequence[str], gradient: str, task: str) -> None:
        """Give tensors the gradient of their sum; for tokens in the order of their experts a task writes it in that order."""
        for each in added:
            self.gradients[each] = self._new(each, {}, task) if self._is_routed(each) else gradient

    def _is_routed(self, tensor: str) -> bool:
        return self.line.made[tensor].dims[0][0] == "experts"

    def _own(self, tensor: str, behind: dict[str, Exchanged], task: str) -> None:
        self.gradients[tensor] = self._new(tensor, behind, task)

    def _new(self, tensor: str, behind: dict[str, Exchanged], task: str) -> str:
        """Write the gradient of a tensor as a task makes it: still to be summed where an exchange will do that."""
        like, op = self.line.made[tensor], self._op(behind.get(tensor))
        layout = tuple(each for each in like.layout if each.how != PARTIAL)
        if op in SUMS:
            layout += tuple(Placement(axis, PARTIAL) for axis in self.line.tensors.tp)
        name = f"{tensor}.gradient"
        while name in self.values:
            name += "2"
        value = Value(name, like.of, like.size_bytes, like.dims, layout, "buffer", dtype=like.dtype)
        self.stage.writes(task, self._keep(value))
        return name

    def _again(self, entered: Exchanged | None) -> str:
        """Return the input of a matrix that is gathered once more for the gradient of its weights."""
        label = f"{self.stage.name}.B.{entered.item.name}.again" if entered else ""
        if entered is None or label not in self.stage.payloads:
            return ""
        value = replace(self.line.made[entered.after], name=f"{entered.after}.again", kind="buffer")
        self.stage.carries(label, entered.before, self._keep(value))
        return value.name

    # --------------------------------------------------------------------------------------------------------- exchanges
    def _op(self, sent: Exchanged | None) -> str:
        """Return what is done to the gradient behind an exchange, where it is a payload."""
        if sent is None or f"{self.stage.name}.B.{sent.item.name}" not in self.stage.payloads:
            return ""
        return sent.item.backward[0]

    def _sent(self, sent: Exchanged) -> None:
        """Let a gradient go back through an exchange; it is that of all that was added up, too."""
        coming, op = self.gradients.get(sent.after, ""), self._op(sent)
        if sent.item.beside and sent.item.role == "cp":
            self._ring(sent)
            return
        if not coming:
            return
        if not op:
            self.gradients[sent.before] = coming
            return
        like = self.line.made[sent.before]
        layout = tuple(each for each in like.layout if each.how != PARTIAL)
        name = f"{self.stage.name}.B.{sent.item.name}.{op}"
        value = Value(name, like.of, like.size_bytes, like.dims, layout, "buffer", dtype=like.dtype)
        self.stage.carries(f"{self.stage.name}.B.{sent.item.name}", coming, self._keep(value))
        for tensor, gradient in self.gradients.items() if op in SUMS else ():
            if gradient == coming:
                self.gradients[tensor] = name
        self.gradients[sent.before] = name

    def _ring(self, sent: Exchanged) -> None:
        """Keys and values go round once more, and their gradients with them."""
        label = f"{self.stage.name}.B.{sent.item.name}"
        for turn, what in (("", "keys_values"), (".1", "gradient")):
            if f"{label}{turn}" in self.stage.payloads:
                value = replace(self.line.made[sent.before], name=f"{label}.{what}", kind="buffer")
                self.stage.carries(f"{label}{turn}", "", self._keep(value))

    def _keep(self, value: Value) -> str:
        self.values[value.name] = value
        return value.name
