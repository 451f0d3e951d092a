"""Nodes of a Chakra execution trace, from every schema in the wild.

Three shapes: the schema of today (0.0.1 to 0.0.4: GlobalMetadata, then nodes whose facts are typed attributes), its first
version (GlobalMetadata without a version string), and the execution graph of 2022 (no metadata, facts as fields of their
own, node and collective types counted otherwise). The JSON twin carries the same facts under other keys.
Source: ``schema/protobuf/et_def.proto`` and ``eg_def/eg_def.proto`` of mlcommons/chakra, its feeder's ``json_node``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ringwright.formats.sources import wire

LONGEST_INPUTS = 1 << 16  # of printed inputs: the members of a large group are there
METADATA, LOAD, STORE, COMP, SEND, RECV, COLL = 1, 2, 3, 4, 5, 6, 7
OPS = (
    *"all-reduce reduce all-gather gather scatter broadcast all-to-all reduce-scatter reduce-scatter barrier".split(),
)
_GRAPH_TYPES = {0: 0, 1: LOAD, 2: STORE, 3: COMP, 4: SEND, 5: RECV, 6: COLL}
_GRAPH_OPS = {1: 0, 2: 6, 3: 2, 4: 7}  # the collective types of 2022 in today's numbers
_GRAPH_FIELDS = {5: "tensor_loc", 6: "tensor_size", 12: "num_ops", 15: "pg_name"}
_GRAPH_FIELDS |= {16: "comm_src", 17: "comm_dst", 18: "comm_size", 19: "comm_tag", 20: "comm_priority"}
_JSON_TYPES = {
    f"{name}_NODE": number + 1
    for number, name in enumerate("METADATA MEM_LOAD MEM_STORE COMP COMM_SEND COMM_RECV COMM_COLL".split())
}
_JSON_ATTRIBUTES = (
    "is_cpu_op comm_type comm_size comm_src comm_dst comm_tag pg_name involved_dim tensor_size num_ops stream".split()
)
_REAL, _SINT, _STRING, _BYTES, _BOOL = {3, 5}, {15, 17}, 29, 31, 27


@dataclass(slots=True)
class Node:
    """One node; times in microseconds, 0 where the file says nothing."""

    id: int = 0
    name: str = ""
    type: int = 0
    ctrl: list[int] = field(default_factory=list)
    data: list[int] = field(default_factory=list)
    start_us: float = 0.0
    duration_us: float = 0.0
    attributes: dict[str, Any] = field(default_factory=dict)
    types: str = ""  # of the inputs, as printed
    values: str = ""
    is_graph: bool = False  # has fields that only the schema of 2022 knows

    def number(self, name: str) -> int | None:
        """Return an attribute as a number, whatever numeric type the writer chose."""
        value = self.attributes.get(name)
        if isinstance(value, bool) or value is None:
            return None
        if isinstance(value, str):
            return int(value) if len(value) < 20 and value.strip().removeprefix("-").isdecimal() else None
        if isinstance(value, float):
            return int(value) if math.isfinite(value) else None
        return value if isinstance(value, int) else None

    @property
    def is_cpu(self) -> bool:
        """Whether this is a host operator (missing means no, as in the feeder)."""
        return bool(self.attributes.get("is_cpu_op"))

    @property
    def op(self) -> str | None:
        """The collective, None where the node does not say."""
        kind = self.number("comm_type")
        return OPS[kind] if kind is not None and 0 <= kind < len(OPS) else None


@dataclass
class Head:
    """What the first message says: the version ("" where it says none) and attributes."""

    version: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)


def head_of(message: bytes) -> Head | None:
    """Return the GlobalMetadata of a message, None where the message is a node."""
    head = Head()
    for number, kind, value in wire.fields(message):
        if kind != wire.LENGTH or number not in (1, 2) or isinstance(value, int):
            return None
        if number == 1 and not value.startswith(b"\x0a"):
            head.version = wire.string(value)
            continue
        name, held = _attribute(value)
        if not name:
            return None
        head.attributes[name] = held
    return head


def node_of(message: bytes) -> Node:
    """Return a node; wire.WireError where the message is none."""
    node = Node()
    for number, kind, value in wire.fields(message):
        if number == 2:
            node.name = wire.string(value)
        elif number in (1, 3, 7) and isinstance(value, int):
            setattr(node, {1: "id", 3: "type", 7: "duration_us"}[number], value)
        elif number == 4:
            node.ctrl.extend(wire.numbers(kind, value))
        elif number == 5 and kind == wire.LENGTH:
            node.data.extend(wire.numbers(kind, value))
        elif number == 10 and not isinstance(value, int):
            name, held = _attribute(value)
            node.attributes[name] = held
        elif number == 8 and not isinstance(value, int):
            node.values, node.types = _inputs(value)
        elif number in (5, 6) and isinstance(value, int):
            # today: an unpacked dependency and the start; in 2022: where a tensor is and its size
            node.attributes.setdefault(f"#{number}", []).append(value)
        else:
            _graph_field(node, number, kind, value)
    if not node.is_graph:
        node.start_us = float(node.attributes.pop("#6", [0])[-1])
        node.data.extend(node.attributes.pop("#5", []))
    return node


def _graph_field(node: Node, number: int, kind: int, value: int | bytes) -> None:
    if number in (8, 9) and kind == wire.LENGTH:
        return
    if kind != wire.VARINT or number > 20 or not isinstance(value, int):
        raise wire.WireError(f"a node has no field {number} of wire type {kind}")
    node.is_graph = node.is_graph or number > 10
    if number == 13:
        node.attributes["#13"] = value
    elif number == 14:
        node.attributes.setdefault("involved_dim", []).append(bool(value))
    elif number in _GRAPH_FIELDS:
        node.attributes[_GRAPH_FIELDS[number]] = value


def from_graph(node: Node) -> Node:
    """Return a node of the schema of 2022 in today's numbers."""
    node.type = _GRAPH_TYPES.get(node.type, 0)
    kind = _GRAPH_OPS.get(node.attributes.pop("#13", 0))
    if kind is not None:
        node.attributes["comm_type"] = kind
    for key, name in (("#5", "tensor_loc"), ("#6", "tensor_size")):
        if key in node.attributes:
            node.attributes[name] = node.attributes.pop(key)[-1]
    node.start_us = 0.0
    return node


def _inputs(value: bytes) -> tuple[str, str]:
    texts = {1: "", 3: ""}
    for number, kind, text in wire.fields(value):
        if number in texts and kind == wire.LENGTH:
            texts[number] = wire.string(text)[:LONGEST_INPUTS]
    return texts[1], texts[3]


def _attribute(value: bytes) -> tuple[str, Any]:
    """Return an attribute's name and value; odd fields hold one value, the even ones behind them a list."""
    name, held = "", None
    for number, kind, part in wire.fields(value):
        if number == 1:
            name = wire.string(part)
        elif number == 2:
            continue
        elif 3 <= number <= 32 and number % 2:
            held = _value(number, kind, part)
        elif 3 <= number <= 32 and not isinstance(part, int):
            held = [item for _, kind_, inner in wire.fields(part) for item in _several(number - 1, kind_, inner)]
    return name, held


def _several(number: int, kind: int, part: int | bytes) -> list[Any]:
    if kind != wire.LENGTH or isinstance(part, int) or number in (_STRING, _BYTES):
        return [_value(number, kind, part)]
    width = {3: 8, 5: 4, 19: 4, 21: 8, 23: 4, 25: 8}.get(number)
    if width is None:
        return [_value(number, wire.VARINT, item) for item in wire.numbers(kind, part)]
    fixed = wire.FIXED64 if width == 8 else wire.FIXED32
    return [_value(number, fixed, part[at : at + width]) for at in range(0, len(part) - width + 1, width)]


def _value(number: int, kind: int, part: int | bytes) -> Any:
    """Return a value by the attribute field that holds it."""
    if number == _STRING:
        return wire.string(part)
    if number in _REAL:
        return wire.real(part)
    if not isinstance(part, int):
        if number == _BYTES or kind == wire.LENGTH:
            return None
        return int.from_bytes(part, "little", signed=number in (23, 25))
    if number == _BOOL:
        return bool(part)
    return wire.zigzag(part) if number in _SINT else wire.signed(part)


def from_json(entry: Any) -> Node | None:
    """Return a node of the JSON twin, None where the entry is none."""
    if not isinstance(entry, dict):
        return None
    lower = {str(key).lower().replace("_", ""): value for key, value in entry.items()}
    kind = lower.get("nodetype", lower.get("type"))
    kind = _JSON_TYPES.get(kind, 0) if isinstance(kind, str) else kind
    number = lower.get("id")
    if not isinstance(kind, int) or not isinstance(number, int) or not _is_count(kind) or not _is_count(number):
        return None
    node = Node(number, str(lower.get("name", ""))[:4096], kind)
    node.ctrl, node.data = (_ids(lower.get(key)) for key in ("ctrldeps", "datadeps"))
    times = [lower.get(key) for key in ("runtime", "durationmicros", "duration")]
    node.duration_us = next((microseconds for time in times if (microseconds := _time(time))), 0.0)
    node.start_us = _time(lower.get("starttimemicros", lower.get("starttime")))
    for name in _JSON_ATTRIBUTES:
        value = lower.get(name.replace("_", ""))
        if value is not None:
            node.attributes[name] = value
    if isinstance(node.attributes.get("comm_type"), str):
        spelled = node.attributes["comm_type"].lower().replace("_", "-")
        node.attributes["comm_type"] = OPS.index(spelled) if spelled in OPS else None
    return node


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _time(value: Any) -> float:
    """Return microseconds, 0 for what is no time."""
    is_time = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e18
    return float(value) if is_time else 0.0


def _ids(value: Any) -> list[int]:
    return [item for item in value if _is_count(item)] if isinstance(value, list) else []
