"""What each c10d operation hands in and gets: where its tensors, group, root and peer stand among the arguments.

The reduction of a dispatched call is an opaque object, so that only functional forms, which have it as text, tell it.

Source: the schemas of the ``c10d`` and ``_c10d_functional`` libraries (torch/csrc/distributed/c10d/Ops.cpp and Functional.cpp),
as ``torch._C._dispatch_dump`` prints them.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class CallSignature(NamedTuple):
    """Places of arguments; ``inside`` and ``outside`` are buffers."""

    op: str
    group: int
    inside: int | None
    outside: int | None
    root: int | None = None
    peer: int | None = None


SHAPES = {
    "allreduce_": CallSignature("all-reduce", 1, 0, 0),
    "allreduce_coalesced_": CallSignature("all-reduce", 1, 0, 0),
    "allgather_": CallSignature("all-gather", 2, 1, 0),
    "_allgather_base_": CallSignature("all-gather", 2, 1, 0),
    "allgather_coalesced_": CallSignature("all-gather", 2, 1, 0),
    "allgather_into_tensor_coalesced_": CallSignature("all-gather", 2, 1, 0),
    "reduce_scatter_": CallSignature("reduce-scatter", 2, 1, 0),
    "_reduce_scatter_base_": CallSignature("reduce-scatter", 2, 1, 0),
    "reduce_scatter_tensor_coalesced_": CallSignature("reduce-scatter", 2, 1, 0),
    "alltoall_": CallSignature("all-to-all", 2, 1, 0),
    "alltoall_base_": CallSignature("all-to-all", 2, 1, 0),
    "broadcast_": CallSignature("broadcast", 1, 0, 0, root=2),
    "reduce_": CallSignature("reduce", 1, 0, 0, root=3),
    "gather_": CallSignature("gather", 2, 1, 0, root=3),
    "scatter_": CallSignature("scatter", 2, 1, 0, root=3),
    "barrier": CallSignature("barrier", 1, None, None),
    "monitored_barrier_": CallSignature("barrier", 1, None, None),
    "send": CallSignature("send", 1, 0, None, peer=2),
    "recv_": CallSignature("recv", 1, None, 0, peer=2),
    "recv_any_source_": CallSignature("recv", 1, None, 0),
}
# Functional forms return what they get, and name the group by its name: (op, place of the group, of the reduction, of the root).
FUNCTIONAL = {
    "all_reduce": ("all-reduce", 2, 1, None),
    "all_reduce_": ("all-reduce", 2, 1, None),
    "all_reduce_coalesced": ("all-reduce", 2, 1, None),
    "all_reduce_coalesced_": ("all-reduce", 2, 1, None),
    "all_gather_into_tensor": ("all-gather", 2, None, None),
    "all_gather_into_tensor_out": ("all-gather", 2, None, None),
    "all_gather_into_tensor_coalesced": ("all-gather", 2, None, None),
    "reduce_scatter_tensor": ("reduce-scatter", 3, 1, None),
    "reduce_scatter_tensor_out": ("reduce-scatter", 3, 1, None),
    "reduce_scatter_tensor_coalesced": ("reduce-scatter", 3, 1, None),
    "all_to_all_single": ("all-to-all", 3, None, None),
    "broadcast": ("broadcast", 2, None, 1),
    "broadcast_": ("broadcast", 2, None, 1),
}

_TYPES: dict[Any, tuple[str, int]] = {}


def measure(value: Any) -> tuple[int, int, str]:
    """Return (elements, bytes, element type) of a tensor, or of lists of them."""
    if isinstance(value, (list, tuple)):
        count, size, kind = 0, 0, ""
        for each in value:
            more, bytes_, kind = measure(each)
            count += more
            size += bytes_
        return count, size, kind
    dtype = value.dtype
    known = _TYPES.get(dtype)
    if known is None:
        known = _TYPES[dtype] = (str(dtype)[6:], value.element_size())
    count = value.numel()
    return count, count * known[1], known[0]
