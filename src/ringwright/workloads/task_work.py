"""What the tasks of a segment compute: operations, bytes read and written when nothing stays in a cache, and where to cut them.

Operations are those of matrix products and attention. Cut in two, a segment takes longer by what its smaller products leave of
the device's units unused and by the kernels that are launched once more: that is what each further part costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ringwright.model.values import Work
from ringwright.workloads import recomputed
from ringwright.workloads.flops import attention_widths
from ringwright.workloads.layer_work import LayerWork
from ringwright.workloads.segments import Cutter
from ringwright.workloads.task_parts import KernelLayers, grouped, products
from ringwright.workloads.times import UPDATE_READ, UPDATE_WRITTEN, Seconds

BACKWARD_ATTENTION = 2.5  # products of the backward pass of attention, over those of forward


@dataclass(frozen=True)
class SegmentWork:
    """Work of a segment's forward task, of what makes gradients of inputs, and of what makes those of weights."""

    forward: Work
    inputs: Work
    weights: Work


def segment_work(cutter: Cutter, works: Sequence[LayerWork], share: float = 1.0) -> SegmentWork:
    """Return the work of layers, or of a ``share`` of it (one turn of a ring)."""
    parts = [_layer(cutter, work) for work in works]
    again = recomputed.again(works) if cutter.step.recompute == recomputed.OPERATIONS else []
    parts += [SegmentWork(Work(), _layer(cutter, work).forward, Work()) for work in again]
    dims, cost = _cuts(cutter, works)

    def added(which: Callable[[SegmentWork], Work], each: Callable[[Seconds], float], phase: str) -> Work:
        mine = [which(part) for part in parts]
        cuts = dict.fromkeys(dims, max(0.0, each(cost) * share))
        return Work(
            sum(work.flops for work in mine) * share,
            round(sum(work.read_bytes for work in mine) * share),
            round(sum(work.written_bytes for work in mine) * share),
            cuts=cuts,
            products=products(works, phase) if share == 1.0 else (),
        )

    return SegmentWork(
        added(lambda part: part.forward, lambda cost: cost.forward, "forward"),
        added(lambda part: part.inputs, lambda cost: cost.inputs, "inputs"),
        added(lambda part: part.weights, lambda cost: cost.weights, "weights"),
    )


def layers_of(cutter: Cutter, works: Sequence[LayerWork]) -> tuple[KernelLayers, ...]:
    """Return the parts of a segment, with the time and the work of each; none where it is one."""
    made = []
    for kind, group in grouped(works) if cutter.step.parallel.tp > 1 else ():
        each = segment_work(cutter, group)
        computed = {"forward": each.forward, "inputs": each.inputs}
        made.append(KernelLayers(kind, tuple(group), cutter.seconds(group), computed))
    return tuple(made)


def update_work(elements: float) -> Work:
    """Return the work of one step of Adam; its few operations an element are not counted."""
    return Work(0.0, round(UPDATE_READ * elements), round(UPDATE_WRITTEN * elements))


def _layer(cutter: Cutter, work: LayerWork) -> SegmentWork:
    width = cutter.step.width_bytes
    if work.kind == "attention":
        written = round(work.moved_bytes * _written(cutter, work))
        again = 1.0 if cutter.step.recompute == "selective" else 0.0
        forward = Work(work.flops, work.moved_bytes - written, written)
        flops = (BACKWARD_ATTENTION + again) * work.flops
        return SegmentWork(forward, Work(flops, 2 * work.moved_bytes, work.moved_bytes), Work())
    if not work.gemms:
        half = work.moved_bytes // 2
        if work.kind == "lookup":
            return SegmentWork(Work(0.0, half, half), Work(), Work(0.0, half, half))
        return SegmentWork(Work(0.0, half, half), Work(0.0, 2 * half, half), Work())
    left = right = out = 0
    for gemm in work.gemms:
        left += width * gemm.m * gemm.k * gemm.times
        right += width * gemm.k * gemm.n * gemm.times
        out += width * gemm.m * gemm.n * gemm.times
    return SegmentWork(
        Work(work.flops, left + right, out), Work(work.flops, out + right, left), Work(work.flops, out + left, right)
    )


def _written(cutter: Cutter, work: LayerWork) -> float:
    """Return the share of what attention moves that it writes."""
    if cutter.card.takes_samples and work.scores is not None:
        return work.scores.m / (2 * (work.scores.m + work.scores.n))
    queries, values, exchanged = attention_widths(cutter.card.dims)
    return values / (queries + values + exchanged)


def _cuts(cutter: Cutter, works: Sequence[LayerWork]) -> tuple[tuple[str, ...], Seconds]:
    """Return the dimensions along which layers may be cut, and the seconds that each part more costs.

    Attention looks along the sequence, so only whole sequences can be cut off it.
    """
    step = cutter.step
    if cutter.card.takes_samples:
        dims = ["batch"] if step.micro_batch_size > 1 else []
    elif any(work.expert for work in works):
        dims = ["tokens"]
    else:
        dims = ["batch"] if step.micro_batch_size > 1 else []
        dims += ["sequence"] if all(work.kind != "attention" for work in works) and step.mode != "decode" else []
    if not dims or not works:
        return (), Seconds()
    whole, half = cutter.seconds(works), cutter.seconds([_halved(work) for work in works])
    return tuple(dims), half * 2 + whole * -1


def _halved(work: LayerWork) -> LayerWork:
    """Return a layer's work on half of the rows; weights are read whole."""
    gemms = tuple(replace(gemm, m=-(-gemm.m // 2)) for gemm in work.gemms)
    scores = work.scores and replace(work.scores, times=-(-work.scores.times // 2))
    flops = work.attention_flops // 2
    return replace(work, gemms=gemms, attention_flops=flops, moved_bytes=work.moved_bytes // 2, scores=scores)
