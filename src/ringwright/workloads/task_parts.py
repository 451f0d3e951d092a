"""What the task of a segment does one after another: the products that enter it, what is between, the products that leave it.

A tensor parallel segment begins with products of a gathered value and ends with one whose result is scattered or summed. Which of
its values each part reads and writes follows from the layers that made them; what a part hands to the next besides is as wide as
the outputs of its products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ringwright.model.values import MatrixProduct, Work, WorkPart
from ringwright.workloads.layer_work import LayerWork
from ringwright.workloads.tensors import ALL, Tensors
from ringwright.workloads.times import Seconds

ENTERING, BETWEEN, LEAVING = "columns", "", "rows"
CUT = {"forward": "m", "inputs": "m", "weights": "k"}  # which side of a product tokens are on


@dataclass(frozen=True)
class KernelLayers:
    """Layers of one part of a segment: what kind of part, how long each pass takes, and what it computes, by pass."""

    kind: str
    works: tuple[LayerWork, ...]
    seconds: Seconds
    computed: Mapping[str, Work]

    @property
    def names(self) -> set[str]:
        """Names of its layers."""
        return {work.name for work in self.works}

    @property
    def outputs(self) -> int:
        """Width of what its products make, on a rank."""
        return sum(gemm.n for work in self.works for gemm in work.gemms)

    @property
    def inputs(self) -> int:
        """Width of what its last product reads, on a rank."""
        return next((gemm.k for work in reversed(self.works) for gemm in reversed(work.gemms)), 0)


@dataclass
class Makers:
    """Which layer of a segment reads and writes a value in the forward pass, by the value's name."""

    reads: dict[str, str] = field(default_factory=dict)
    writes: dict[str, str] = field(default_factory=dict)


def grouped(works: Sequence[LayerWork]) -> list[tuple[str, list[LayerWork]]]:
    """Return neighbouring layers of one kind; none for a segment that is one part, or has experts."""
    groups: list[tuple[str, list[LayerWork]]] = []
    for work in works:
        kind = work.cut if work.gemms and work.kind == "matrix" and work.cut in (ENTERING, LEAVING) else BETWEEN
        if groups and groups[-1][0] == kind:
            groups[-1][1].append(work)
        else:
            groups.append((kind, [work]))
    kinds = [kind for kind, _ in groups]
    apart = len(groups) > 1 and (kinds[0] == ENTERING or kinds[-1] == LEAVING) and not any(w.expert for w in works)
    return groups if apart and kinds.count(ENTERING) < 2 and kinds.count(LEAVING) < 2 else []


def products(works: Sequence[LayerWork], phase: str) -> tuple[MatrixProduct, ...]:
    """Return the matrix products of layers in a pass: forward, inputs (gradients of them) or weights."""
    gemms = [gemm for work in works if not work.expert for gemm in work.gemms]
    made = {"forward": lambda g: g, "inputs": lambda g: g.for_inputs(), "weights": lambda g: g.for_weights()}[phase]
    return tuple(MatrixProduct(g.m, g.n, g.k, g.times, CUT[phase]) for g in map(made, gemms))


def parts(
    layers: Sequence[KernelLayers],
    phase: str,
    ends: tuple[Sequence[str], Sequence[str]],
    makers: Makers,
    sent: tuple[set[str], set[str]],
    tensors: Tensors,
) -> tuple[WorkPart, ...]:
    """Return the parts of a task of a pass (forward or inputs) that reads and writes ``ends``; none where nothing takes time.

    ``sent``: the values that operations bring, and those that they take.
    """
    order = list(layers) if phase == "forward" else list(layers)[::-1]
    spans = [getattr(each.seconds, phase) for each in order]
    if not all(spans):
        return ()
    reads: list[list[int]] = [[] for _ in order]
    writes: list[list[int]] = [[] for _ in order]
    for at, name in enumerate(ends[0]):
        for number in _readers(name, order, phase, makers, sent[0]):
            reads[number].append(at)
    for at, name in enumerate(ends[1]):
        writes[_writer(name, order, phase, makers, sent[1])].append(at)
    made = []
    for at, each in enumerate(order):
        part = WorkPart(spans[at] / sum(spans), each.computed[phase], tuple(reads[at]), tuple(writes[at]))
        if at + 1 < len(order):
            width = _handed(each, order[at + 1], phase)
            value = tensors.tensor("", "", ALL, "columns", width, cut=tensors.tp)
            part = replace(part, dims=value.dims, layout=value.layout, size_bytes=value.size_bytes)
        made.append(part)
    return tuple(made)


def _handed(one: KernelLayers, following: KernelLayers, phase: str) -> int:
    if phase == "forward":
        return one.outputs if one.kind == ENTERING else following.inputs
    return one.inputs if one.kind == LEAVING else following.outputs


def _readers(name: str, order: Sequence[KernelLayers], phase: str, makers: Makers, brought: set[str]) -> list[int]:
    """Return which parts read a value: the first one what was sent, one what its layers hold or made, all what nobody knows."""
    if name in brought:
        return [0]
    if name.endswith(".parameters"):
        layer = name.rsplit(".", 2)[1]
    else:
        layer = (makers.reads if phase == "forward" else makers.writes).get(name, "")
    mine = [at for at, each in enumerate(order) if layer in each.names]
    return mine or list(range(len(order)))


def _writer(name: str, order: Sequence[KernelLayers], phase: str, makers: Makers, taken: set[str]) -> int:
    """Return which part writes a value: the last one what is sent, else the one whose layer makes it.

    The gradient of what an entering product made is written by the part before it.
    """
    if name in taken:
        return len(order) - 1
    layer = makers.writes.get(name, "")
    mine = [at for at, each in enumerate(order) if layer in each.names]
    if phase == "forward":
        return mine[0] if mine else len(order) - 1
    return max(len(order) - 2, 0)
