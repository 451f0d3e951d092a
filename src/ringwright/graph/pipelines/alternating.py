"""Orders whose backward passes are whole: forward and backward in turns, breadth first, and all in before any goes out.

Groups of micro-batches take turns through the chunks of a device: groups of p are Megatron-LM's interleaved schedule (Narayanan
et al., SC 2021, arXiv 2104.04473), one group of all is breadth first (Lamy-Poirier, MLSys 2023, arXiv 2211.05953), and between
them lies what Llama 3 trains with (arXiv 2407.21783, section 3.3.2; Megatron-LM: microbatch_group_size_per_vp_stage).
"""

from __future__ import annotations

from ringwright.graph.pipelines.shape import BACKWARD, FORWARD, Order, PipelineSchedule, Shape, Slot


def in_turns(shape: Shape, device: int, group: int = 0) -> Order:
    """Return one forward, one backward after a warm-up, in groups of ``group`` micro-batches (0: as many as devices)."""
    group = group or shape.devices
    forward = _forward(shape, group)
    ahead = min(len(forward), _warm_up(shape, device, group))
    return _joined(forward, _backward(shape, forward), ahead)


def without_flush(shape: Shape, device: int) -> Order:
    """Return one forward and one backward in turns without an end: the first backward passes are of the step before.

    A step needs parameters that are one version older than those that it updates (PipeDream-2BW, Narayanan et al., ICML 2021,
    arXiv 2006.09503), for its first forward passes run before the last backward ones of the step before.
    """
    ahead = shape.devices - device - 1
    passes = (
        (FORWARD, 0, at) if not half else (BACKWARD, 0, at - ahead)
        for at in range(shape.micro_batches)
        for half in (0, 1)
    )
    return tuple(passes)


def forward_first(shape: Shape, device: int) -> Order:
    """Return all forward passes, then all backward ones, in groups of as many micro-batches as devices."""
    forward = _forward(shape, shape.devices)
    return _joined(forward, _backward(shape, forward), len(forward))


def breadth_first(shape: Shape, device: int, group: int = 0) -> Order:
    """Return one chunk for a whole group before the next; of one group (0: of all) all forward passes go first."""
    if group and group < shape.micro_batches:
        return in_turns(shape, device, group)
    forward = _forward(shape, shape.micro_batches)
    return _joined(forward, _backward(shape, forward), len(forward))


def all_in_all_out(shape: Shape, device: int) -> Order:
    """Return breadth first with backward passes in reverse: what went in last comes out first (Fold3D)."""
    forward = _forward(shape, shape.micro_batches)
    return (*forward, *((BACKWARD, chunk, batch) for _, chunk, batch in reversed(forward)))


def forward_only(shape: Shape, group: int = 0) -> Order:
    """Return the forward passes of a step without backward ones."""
    return tuple(_forward(shape, group or shape.devices))


def _forward(shape: Shape, group: int) -> list[Slot]:
    """Return forward passes: a group goes through all chunks before the next group."""
    if shape.chunks == 1:
        return [(FORWARD, 0, at) for at in range(shape.micro_batches)]
    starts = range(0, shape.micro_batches, group)
    return [
        (FORWARD, chunk, batch)
        for start in starts
        for chunk in range(shape.chunks)
        for batch in range(start, min(start + group, shape.micro_batches))
    ]


def _backward(shape: Shape, forward: list[Slot]) -> list[Slot]:
    return [(BACKWARD, shape.chunks - 1 - chunk, batch) for _, chunk, batch in forward]


def _warm_up(shape: Shape, device: int, group: int) -> int:
    """Return how many forward passes go before the first backward one."""
    if shape.chunks == 1:
        return shape.devices - device - 1
    return 2 * (shape.devices - device - 1) + (shape.chunks - 1) * group


def _joined(forward: list[Slot], backward: list[Slot], ahead: int) -> Order:
    """Return ``ahead`` forward passes, then one forward and one backward in turns, then what is left of backward."""
    turns = forward[:ahead]
    for one, other in zip(forward[ahead:], backward, strict=False):
        turns += [one, other]
    return tuple(turns + backward[len(forward) - ahead :])


def _held_in_turns(shape: Shape, group: int) -> int:
    ahead = (shape.chunks - 1) * (group or shape.devices) + shape.devices - 1 if shape.chunks > 1 else 0
    return min(_held_whole(shape, 0), ahead + shape.devices)


def _held_whole(shape: Shape, group: int) -> int:
    """Return the micro-batches of all chunks, or what turns of groups hold of them."""
    return _held_in_turns(shape, group) if 0 < group < shape.micro_batches else shape.micro_batches * shape.chunks


SCHEDULES = (
    PipelineSchedule("1f1b", in_turns, held=_held_in_turns),
    PipelineSchedule("gpipe", forward_first, held=_held_whole),
    PipelineSchedule("breadth-first", breadth_first, grouped=True, held=_held_whole),
    PipelineSchedule("aiao", all_in_all_out, held=_held_whole),
    PipelineSchedule("2bw", without_flush, 1, least=1, versions=2, held=_held_in_turns),
)
