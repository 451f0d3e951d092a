"""What operations move: what the ranks of a group hold of a payload's result, from what they held of its source."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ringwright.graph.algebra.computation import Array
from ringwright.ground.errors import UsageError
from ringwright.model.values import SLICED, Value
from ringwright.model.workload import Payload, Workload

Held = dict[int, Array]  # what each rank holds of a value: int64, in the order of the value's dimensions


def carried(payload: Payload, held: Held, workload: Workload) -> Held:
    """Return what the ranks hold after an operation on what they hold before it."""
    mesh, source, result = workload.mesh, workload.value[payload.source], workload.value[payload.result]
    if payload.op == "send-recv":
        peer = next(each for each in workload.classes if each.name == payload.peer)
        return {mesh.rank({**mesh.place(rank), **peer.at}): array for rank, array in held.items()}
    operation = _OPERATIONS.get(payload.op)
    if operation is None:
        raise UsageError(f"what {payload.op} does to values is not known", where=payload.name)
    made: Held = {}
    for rank in held:
        if rank not in made:
            group = mesh.group(payload.axes, rank)
            arrays = operation(payload, [held[each] for each in group], source, result)
            made |= dict(zip(group, arrays, strict=True))
    return made


def dim_of(value: Value, axes: Sequence[str]) -> int:
    """Return which dimension of a value is sliced along these axes."""
    dims = {each.dim for each in value.layout if each.how == SLICED and each.axis in axes}
    if len(dims) != 1:
        raise UsageError(f"{value.name} is sliced along {', '.join(axes)} by {len(dims)} dimensions, one is needed")
    return [name for name, _ in value.dims].index(dims.pop())


def _all_reduce(payload: Payload, arrays: list[Array], source: Value, result: Value) -> list[Array]:
    return [sum(arrays[1:], arrays[0])] * len(arrays)


def _reduce_scatter(payload: Payload, arrays: list[Array], source: Value, result: Value) -> list[Array]:
    return list(np.split(sum(arrays[1:], arrays[0]), len(arrays), axis=dim_of(result, payload.axes)))


def _all_gather(payload: Payload, arrays: list[Array], source: Value, result: Value) -> list[Array]:
    return [np.concatenate(arrays, axis=dim_of(source, payload.axes))] * len(arrays)


def _all_to_all(payload: Payload, arrays: list[Array], source: Value, result: Value) -> list[Array]:
    old, new = dim_of(source, payload.axes), dim_of(result, payload.axes)
    blocks = [np.split(array, len(arrays), axis=new) for array in arrays]
    return [np.concatenate([row[at] for row in blocks], axis=old) for at in range(len(arrays))]


def _broadcast(payload: Payload, arrays: list[Array], source: Value, result: Value) -> list[Array]:
    return [arrays[payload.root]] * len(arrays)


def _reduce(payload: Payload, arrays: list[Array], source: Value, result: Value) -> list[Array]:
    total = sum(arrays[1:], arrays[0])
    return [total if at == payload.root else np.zeros_like(total) for at in range(len(arrays))]


def _shift(payload: Payload, arrays: list[Array], source: Value, result: Value) -> list[Array]:
    return [arrays[(at + payload.hops) % len(arrays)] for at in range(len(arrays))]


_OPERATIONS: dict[str, Callable[[Payload, list[Array], Value, Value], list[Array]]] = {
    "all-reduce": _all_reduce,
    "push-pull": _all_reduce,
    "reduce-scatter": _reduce_scatter,
    "all-gather": _all_gather,
    "all-to-all": _all_to_all,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "shift": _shift,
    "copy": _shift,
}
