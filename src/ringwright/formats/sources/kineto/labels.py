"""What labels of the host say: tensors of a call, and which call of PyTorch the work of a library of the host belongs to.

Work on the host has a label from its beginning to its end, on any thread, so those of one thread overlap; the call that
asked for it lies before. A reduce-scatter of gloo is carried out, and labelled, as all-reduces of what goes in. Source:
``c10d/Ops.cpp`` for the order of arguments, ``ProcessGroupGloo.cpp`` for the tensors of a label.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from ringwright.formats.sources.datatypes import datatype
from ringwright.formats.sources.kineto.columns import RankFile, whole
from ringwright.formats.sources.kineto.names import operation
from ringwright.formats.sources.kineto.records import CommArgs, LabelArgs
from ringwright.formats.sources.kineto.spans import Spans

HOST_RUN = ("gloo:", "mpi:", "ucc:")  # labels that last as long as the operation, which runs on the host
_CALL = "c10d::"
_TWO_SIDED = ("all-gather", "reduce-scatter", "gather", "scatter", "all-to-all")  # what goes in is the second argument
# the argument that names the root, or the other rank; one that names none has fewer arguments
_RANK_AT = {"send": 2, "recv": 2, "broadcast": 2, "reduce": 3, "gather": 3, "scatter": 3}
_MOST_OPEN = 1024  # calls whose work has not begun


@dataclass
class HostCall:
    """An operation on the host: the numbers of its labels, and of the call that asked for it where the file holds it."""

    op: str
    labels: list[int] = field(default_factory=list)
    call: int | None = None
    elements: int | None = None  # of one label
    has_parts: bool = False  # carried out by one label for each rank

    @property
    def asked(self) -> int:
        """The label of when it was asked for: of the call, else of the work itself."""
        return self.labels[0] if self.call is None else self.call


def label_facts(name: str, said: LabelArgs) -> CommArgs | None:
    """Return what a label says of its tensors, None where it says nothing."""
    dims, types = said.dims, said.types
    if not isinstance(dims, list) or not isinstance(types, list) or len(dims) != len(types) or not dims:
        return None
    if name.startswith(_CALL):
        op = operation(name)
        return None if op in (None, "barrier") else _asked(op, dims, types, said.inputs)
    counts = [_elements(*each) for each in zip(dims, types, strict=True)]
    known = [count for count in counts if count is not None]
    kinds = {datatype(each) for each in types}
    return CommArgs(dtype=types[0], in_count=sum(known)) if len(known) == len(dims) and len(kinds) == 1 else None


def _asked(op: str | None, dims: list[Any], types: list[Any], inputs: Any) -> CommArgs:
    first, *rest = (_elements(*each) for each in zip(dims[:2], types[:2], strict=True))
    side = (rest[0] if rest else None) if op in _TWO_SIDED else first
    kind = next((each for each in types[:2] if datatype(each)), None)
    place = _RANK_AT.get(op or "")
    rank = inputs[place] if place and isinstance(inputs, list) and len(inputs) > place + 1 else None
    if op == "send":
        return CommArgs(in_count=first, dst_rank=rank)
    if op == "recv":
        return CommArgs(out_count=first, src_rank=rank)
    size = None
    if op in ("all-gather", "reduce-scatter") and side and first:
        least, most = sorted((side, first))
        size = None if most % least else most // least
    return CommArgs(dtype=kind, in_count=side, out_count=first, root=rank, group_size=size)


def _elements(dims: Any, kind: Any) -> int | None:
    """Return the elements of a tensor, or of a list of tensors; a tensor without dimensions has one."""
    if not isinstance(dims, list):
        return None
    if kind == "TensorList":
        parts = [_elements(each, "float") for each in dims]
        return None if None in parts else sum(part for part in parts if part is not None)
    counts = [whole(size) for size in dims]
    if datatype(kind) is None or any(count is None or count < 0 for count in counts):
        return None
    return math.prod(count for count in counts if count is not None)


def host_calls(rank_file: RankFile, records: Spans) -> list[HostCall]:
    """Return the operations of libraries of the host, in order of their labels; those inside a record are not among them."""
    table = rank_file.labels
    ops = [operation(name) if name.startswith((_CALL, *HOST_RUN)) else None for name in rank_file.names]
    waiting: dict[str, list[HostCall]] = defaultdict(list)
    made: list[HostCall] = []
    for number in sorted(range(len(table)), key=lambda each: (table.ts[each], -table.dur[each])):
        op, thread, start = ops[table.name[number]], table.thread[number], table.ts[number]
        if op is None or records.around(thread, start):
            continue
        args = rank_file.label_args.get(number, CommArgs())
        queue = waiting["all-reduce" if op == "reduce-scatter" else op]
        if not rank_file.names[table.name[number]].startswith(_CALL):
            mine = _waiting(queue, op, args.in_count) or HostCall(op)
            if not mine.labels:
                made.append(mine)
            mine.labels.append(number)
        elif not records.within(thread, start, start + table.dur[number]):
            queue.append(_waited(op, number, args))
            del queue[:-_MOST_OPEN]
    return made


def _waited(op: str, number: int, args: CommArgs) -> HostCall:
    """Return a call whose work has not begun; what a gather or scatter hands to its label differs from rank to rank."""
    has_parts = op == "reduce-scatter" and args.in_count is None and args.out_count is not None
    elements = args.out_count if has_parts or op == "recv" else args.in_count
    return HostCall(op, [], number, None if op in ("gather", "scatter") else elements, has_parts)


def _waiting(queue: list[HostCall], op: str, elements: int | None) -> HostCall | None:
    """Take the earliest call that waits for such work; one of many parts waits until the next such call is there."""
    fitting = [
        position
        for position, call in enumerate(queue)
        if op in (call.op, "all-reduce") and (None in (call.elements, elements) or call.elements == elements)
    ]
    if not fitting:
        return None
    if queue[fitting[0]].has_parts:
        if not queue[fitting[0]].labels or len(fitting) == 1:
            return queue[fitting[0]]
        del queue[fitting[0]]
        return queue[fitting[1] - 1] if queue[fitting[1] - 1].has_parts else queue.pop(fitting[1] - 1)
    return queue.pop(fitting[0])
