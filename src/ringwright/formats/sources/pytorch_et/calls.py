"""``record_param_comms`` nodes: which call, in which group, of which size."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from ringwright.formats.sources.c10d import operation
from ringwright.formats.sources.datatypes import BYTES, datatype
from ringwright.formats.sources.pytorch_et.document import attributes, types, values
from ringwright.formats.sources.reader_rows import whole_number

MOST_DEPTH = 8
_I48 = 1 << 48


@dataclass(slots=True)
class CommsNode:
    """One node, read; numbers that it does not give are None."""

    node: int
    op: str | None  # None: a wait or an init
    spelled: str
    sequence: int | None = None
    group: str = ""  # name, or the address of the backend in old schemas
    description: str = ""
    rank: int | None = None  # in the group; the root's or the peer's for rooted and point-to-point operations
    inside: int | None = None  # bytes of the input
    outside: int | None = None
    count: int | None = None
    datatype: str | None = None
    width: int | None = None
    in_split: list[int] = field(default_factory=list)
    out_split: list[int] = field(default_factory=list)
    size: int | None = None  # of the group
    start: int | None = None  # global ranks of the group: start, start + stride, ...
    stride: int | None = None


def call_of(node: dict[str, Any]) -> CommsNode | None:
    """Return the call of a ``record_param_comms`` node, None where its arguments are not those known.

    Arguments: the tensor (absent for wait, barrier), sequence, group, rank, name, two split lists, then from schema
    1.0.2 the group's size, from 1.0.3 start and stride of its ranks before it.
    """
    said, kinds, held = values(node, "inputs"), types(node, "inputs"), attributes(node)
    at_name = next((at for at, item in enumerate(said) if at >= 3 and isinstance(item, str)), None)
    number = whole_number(node.get("id"))
    if at_name is None or number is None:
        return None
    spelled = said[at_name]
    said_call = CommsNode(number, operation(spelled), spelled, whole_number(said[at_name - 3], _I48))
    group = said[at_name - 2]
    if isinstance(group, list):
        names = [str(item) for item in group[:2]] + ["", ""]
        said_call.group, said_call.description = names[0], names[1]
    else:
        said_call.group = str(group)
    said_call.rank = whole_number(said[at_name - 1], 1 << 24)
    said_call.in_split, said_call.out_split = (
        _whole_list(item) for item in [*said[at_name + 1 : at_name + 3], [], []][:2]
    )
    rest = [whole_number(item, 1 << 24) for item in said[at_name + 3 :]]
    said_call.size = rest[-1] if rest else None
    if len(rest) >= 3:
        said_call.start, said_call.stride = rest[-3], rest[-2]
    _sizes(said_call, said[: at_name - 3], kinds, values(node, "outputs"))
    _attributes(said_call, held)
    return said_call


def label_of(node: dict[str, Any], name: str) -> CommsNode | None:
    """Return the call of a ``gloo:op`` node, which holds its tensor and neither group nor sequence."""
    number = whole_number(node.get("id"))
    if number is None:
        return None
    label = CommsNode(number, operation(name), name)
    _sizes(label, values(node, "inputs"), types(node, "inputs"), values(node, "outputs"))
    return label


def _whole_list(value: Any) -> list[int]:
    """Return a list of counts; also one that is printed as text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return []
    numbers = [whole_number(item, _I48) for item in value] if isinstance(value, list) else []
    return [item for item in numbers if item is not None] if None not in numbers else []


def _sizes(call: CommsNode, inputs: list[Any], kinds: list[Any], outputs: list[Any]) -> None:
    inside, outside = list(tensors(inputs)), list(tensors(outputs))
    call.inside = sum(count * width for count, width in inside) if inside else None
    call.outside = sum(count * width for count, width in outside) if outside else None
    call.count = sum(count for count, _ in inside) if inside else None
    call.width = inside[0][1] if inside else outside[0][1] if outside else None
    if kinds and isinstance(kinds[0], str):
        call.datatype = datatype(
            kinds[0].replace("GenericList[", "").split(",")[0].removeprefix("Tensor(").rstrip(")]")
        )


def tensors(value: Any, depth: int = 0) -> list[tuple[int, int]]:
    """Return (elements, bytes of one) of all tensors in nested lists: [id, storage, offset, elements, bytes, device]."""
    if not isinstance(value, list) or depth > MOST_DEPTH:
        return []
    if len(value) >= 5 and all(isinstance(item, int) for item in value[:5]) and isinstance(value[-1], str):
        count, width = whole_number(value[3], _I48), whole_number(value[4], 1 << 10)
        return [(count, width)] if count is not None and width is not None and count >= 0 and width >= 0 else []
    return [each for item in value for each in tensors(item, depth + 1)]


# branches: each attribute only fills what the arguments left open
def _attributes(call: CommsNode, held: dict[str, Any]) -> None:
    """Take what schema 1.1.0 says in attributes; what the arguments gave stays where both speak."""
    if "collective_name" in held and call.op == "unknown":
        call.op = operation(str(held["collective_name"]))
    name = datatype(str(held["dtype"])) if "dtype" in held else None
    call.datatype = call.datatype or name
    width = call.width or (BYTES[name] if name else None)
    elements = [whole_number(held.get(key), _I48) for key in ("in_msg_nelems", "out_msg_nelems")]
    if width and call.inside is None and elements[0] is not None:
        call.inside, call.count, call.width = elements[0] * width, elements[0], width
    if width and call.outside is None and elements[1] is not None:
        call.outside = elements[1] * width
    call.group = call.group or str(held.get("pg_name", ""))
    call.description = call.description or str(held.get("pg_desc", ""))
    call.size = call.size or whole_number(held.get("pg_size"), 1 << 24)
    call.in_split = call.in_split or _whole_list(held.get("in_split_size"))
    call.out_split = call.out_split or _whole_list(held.get("out_split_size"))


@dataclass(frozen=True, slots=True)
class InitGroup:
    """A process group as the init node tells it."""

    name: str
    description: str
    backend: str  # address by which schema 1.0.2 names it
    ranks: tuple[int, ...]
    size: int | None


def groups_of(node: dict[str, Any]) -> list[InitGroup]:
    """Return the groups of a ``## process_group:init ##`` node; an empty list of ranks means all of them."""
    said = values(node, "inputs")
    printed = said[0] if said and isinstance(said[0], str) else str(node.get("name", ""))
    start, end = printed.find("["), printed.rfind("]")
    try:
        entries = json.loads(printed[start : end + 1])
    except (ValueError, RecursionError):
        return []
    return [_group(entry) for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _group(entry: dict[str, Any]) -> InitGroup:
    held = entry.get("ranks")
    listed = list(held) if isinstance(held, list | dict) else []  # a mapping of global to group rank in some
    numbers = [whole_number(rank, 1 << 24) for rank in listed]
    ranks = tuple(rank for rank in numbers if rank is not None)
    size = whole_number(entry.get("group_size"), 1 << 24)
    if not ranks and size is not None and 0 < size <= 1 << 20:
        ranks = tuple(range(size))
    backend = str(entry.get("backend_id", entry.get("uid", "")))
    return InitGroup(str(entry.get("pg_name", "")), str(entry.get("pg_desc", "")), backend, ranks, size)
