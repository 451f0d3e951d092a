"""The communication of a compiled program: each instruction's operation, bytes, type, devices and reduction.

Source: HloProto of openxla/xla; the opcodes are those of its HLO operations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ringwright.formats.sources.wire import fields, numbers, string
from ringwright.formats.sources.xplane import device_groups
from ringwright.formats.sources.xplane.device_groups import Assignment, Groups

# opcode -> operation; an all-to-all whose sizes depend on data has none of its own
OPCODES = {
    "all-reduce": "all-reduce",
    "all-gather": "all-gather",
    "reduce-scatter": "reduce-scatter",
    "all-to-all": "all-to-all",
    "ragged-all-to-all": "all-to-all",
    "collective-broadcast": "broadcast",
    "collective-permute": "send-recv",
    "send": "send",
    "recv": "recv",
}
# they hold other operations that have events of their own
CONTAINERS = ("while", "call", "conditional", "async-update")
_BY_PARTITION = ("all-to-all", "ragged-all-to-all", "collective-broadcast", "collective-permute")
# element type -> name, bytes; what is of half a byte counts by its bits and has no name here
_TYPES = {
    1: ("bool", 8),
    2: ("int8", 8),
    3: ("int16", 16),
    4: ("int32", 32),
    5: ("int64", 64),
    6: ("uint8", 8),
    7: ("uint16", 16),
    8: ("uint32", 32),
    9: ("uint64", 64),
    10: ("float16", 16),
    11: ("float32", 32),
    12: ("float64", 64),
    15: ("complex64", 64),
    16: ("bfloat16", 16),
    18: ("complex128", 128),
    19: ("float8e5m2", 8),
    20: ("float8e4m3", 8),
    21: ("", 4),
    22: ("", 4),
    23: ("", 8),
    24: ("", 8),
    25: ("", 8),
    28: ("float8e4m3", 8),
    29: ("", 8),
    32: ("", 4),
    33: ("", 8),
}
_TUPLE = 13
_REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}
MOST_BYTES = 1 << 60
MOST_DEPTH = 8


@dataclass(slots=True)
class HloShape:
    """The bytes of a value with all its parts, and the type of its elements where they are of one."""

    size_bytes: int | None = 0
    elements: int = 0
    datatype: str | None = None


@dataclass(slots=True)
class HloInstruction:
    """One instruction, as far as communication needs it."""

    name: str = ""
    opcode: str = ""
    number: int = 0
    shape: bytes = b""
    operands: list[int] = field(default_factory=list)
    called: list[int] = field(default_factory=list)
    groups: Groups = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)
    channel: int = 0
    is_global: bool = False  # the groups hold flattened numbers
    is_host: bool = False  # a transfer to the host
    is_sliced: bool = False  # parts of its operands move, where they begin is told at run time
    framework_name: str = ""


@dataclass
class Communication:
    """What one instruction communicates: ``size_bytes`` is what a rank hands in, None where the program does not tell."""

    name: str
    op: str
    opcode: str
    size_bytes: int | None
    elements: int | None
    datatype: str | None
    reduce_op: str | None
    groups: Groups | None  # of global device numbers; None where the program does not tell
    pairs: list[tuple[int, int]]  # source and target devices of a permutation
    framework_name: str


@dataclass
class HloProgram:
    """One compiled program: its name, devices, and what communicates in it, by the name of the instruction."""

    name: str = ""
    assignment: Assignment = field(default_factory=Assignment)
    communications: dict[str, Communication] = field(default_factory=dict)
    opcodes: dict[str, str] = field(default_factory=dict)
    begins: dict[str, str] = field(default_factory=dict)  # instruction that ends an operation -> that which begins it


def program(message: bytes) -> HloProgram:
    """Return what an HloProto says; WireError where it is none."""
    made = HloProgram()
    computations: dict[int, tuple[dict[int, HloInstruction], int]] = {}
    for module in (value for number, _, value in fields(message) if number == 1 and isinstance(value, bytes)):
        for number, _, value in fields(module):
            if not isinstance(value, bytes):
                continue
            if number == 1:
                made.name = string(value)
            elif number == 3:
                key, held, root = _computation(value)
                computations[key] = held, root
            elif number == 15:
                made.assignment = device_groups.assignment(value)
    for held, _ in computations.values():
        for instruction in held.values():
            made.opcodes[instruction.name] = instruction.opcode
    for held, _ in computations.values():
        _communicating(made, held, computations)
    return made


_Computations = dict[int, tuple[dict[int, HloInstruction], int]]


def _computation(message: bytes) -> tuple[int, dict[int, HloInstruction], int]:
    """Return number, instructions by number, and the number of the root of one computation."""
    held: dict[int, HloInstruction] = {}
    key = root = 0
    for number, _, value in fields(message):
        if number == 2 and isinstance(value, bytes):
            instruction = _instruction(value)
            held[instruction.number] = instruction
        elif number == 5 and isinstance(value, int):
            key = value
        elif number == 6 and isinstance(value, int):
            root = value
    return key, held, root


# branches: a case for each field of the message, by its number
def _instruction(message: bytes) -> HloInstruction:
    made = HloInstruction()
    for number, kind, value in fields(message):
        if isinstance(value, int):
            if number == 35:
                made.number = value
            elif number == 26:
                made.channel = value if value < 1 << 62 else 0
            elif number == 71:
                made.is_global = bool(value)
            elif number == 47:
                made.is_host = bool(value)
            elif number in (36, 38):
                (made.operands if number == 36 else made.called).append(value)
        elif number in (1, 2):
            made.name, made.opcode = (string(value), made.opcode) if number == 1 else (made.name, string(value))
        elif number in (36, 38):
            (made.operands if number == 36 else made.called).extend(numbers(kind, value))
        elif number == 3:
            made.shape = value
        elif number == 7:
            made.framework_name = next((string(held) for at, _, held in fields(value) if at == 2), "")
        else:
            _groups(made, number, value)
    return made


def _groups(made: HloInstruction, number: int, value: bytes) -> None:
    """Take who communicates with whom."""
    if number == 49:
        made.groups += device_groups.listed(value)
    elif number == 87:
        made.groups += device_groups.device_list(value)
    elif number == 92:
        made.groups += device_groups.iota(value)
    elif number == 93:
        made.groups += device_groups.mesh_axes(value)
    elif number == 52:
        held = {at: each for at, _, each in fields(value) if isinstance(each, int)}
        made.pairs.append((held.get(1, 0), held.get(2, 0)))
    elif number == 20:
        made.is_sliced = True


def _communicating(made: HloProgram, held: dict[int, HloInstruction], computations: _Computations) -> None:
    """Note every instruction of a computation that communicates, and which one ends it."""
    for instruction in held.values():
        if _op(instruction) is not None:
            made.communications[instruction.name] = _communication(made, instruction, instruction, held, computations)
        elif instruction.opcode == "async-start":
            for beside in (computations[key][0] for key in instruction.called[:MOST_DEPTH] if key in computations):
                inner = next((each for each in beside.values() if _op(each) is not None), None)
                if inner is not None:
                    whole = _communication(made, instruction, inner, beside, computations)
                    made.communications[instruction.name] = whole
    for instruction in held.values():
        if instruction.opcode.endswith("-done"):
            begun = next((held[each].name for each in instruction.operands if each in held), "")
            if begun in made.communications:
                made.begins[instruction.name] = begun


def _op(instruction: HloInstruction) -> str | None:
    """Return the operation of an opcode, with or without the ending of a start; None where ranks do not communicate."""
    if instruction.is_host:
        return None
    return OPCODES.get(instruction.opcode.removesuffix("-start"))


def _communication(
    made: HloProgram,
    outer: HloInstruction,
    inner: HloInstruction,
    beside: dict[int, HloInstruction],
    computations: _Computations,
) -> Communication:
    opcode = inner.opcode.removesuffix("-start")
    wanted = inner.operands[:1] if opcode in ("send", "recv", "ragged-all-to-all") else inner.operands
    shapes = [shape(beside[each].shape) for each in wanted if each in beside]
    sizes = [each.size_bytes for each in shapes if each.size_bytes is not None]
    types = {each.datatype for each in shapes if each.elements}
    # a receive has no operand of its size, a ragged exchange tells it at run time, as does a slice that is passed on
    is_told = opcode not in ("ragged-all-to-all", "recv") and not (inner.is_sliced and opcode == "collective-permute")
    is_told = is_told and len(sizes) == len(wanted) > 0 and sum(sizes) <= MOST_BYTES
    return Communication(
        outer.name,
        OPCODES[opcode],
        opcode,
        sum(sizes) if is_told else None,
        sum(each.elements for each in shapes) if is_told else None,
        types.pop() if len(types) == 1 else None,
        _reduction(inner, computations) if opcode in ("all-reduce", "reduce-scatter") else None,
        _members(made.assignment, inner, opcode),
        _partners(made.assignment, inner),
        outer.framework_name or inner.framework_name,
    )


def _reduction(inner: HloInstruction, computations: _Computations) -> str | None:
    """Return what the called computation does with two numbers, None where it is more than one of the usual."""
    held, root = computations.get(inner.called[0], ({}, 0)) if inner.called else ({}, 0)
    if root in held and held[root].opcode in _REDUCTIONS:
        return _REDUCTIONS[held[root].opcode]
    said = {_REDUCTIONS[each.opcode] for each in held.values() if each.opcode in _REDUCTIONS}
    return said.pop() if len(said) == 1 else None


def _members(by: Assignment, inner: HloInstruction, opcode: str) -> Groups | None:
    if not by.is_known:
        return None
    if opcode in ("collective-permute", "send", "recv"):
        return [by.every()] if inner.channel > 0 else device_groups.of_devices([], by, "replica")
    if inner.is_global:
        mode = "flattened"
    elif inner.channel <= 0:
        mode = "replica"
    else:
        mode = "partition" if opcode in _BY_PARTITION else "replica of all"
    return device_groups.of_devices(inner.groups, by, mode)


def _partners(by: Assignment, inner: HloInstruction) -> list[tuple[int, int]]:
    """Return source and target devices: pairs of partitions where there is a channel, else of replicas."""
    if not by.is_known:
        return []
    made = []
    for source, target in inner.pairs:
        ends = ([by.devices[p][r] for p, r in _ends(by, inner, each)] for each in (source, target))
        made += [*zip(*ends, strict=True)]
    return made


def _ends(by: Assignment, inner: HloInstruction, number: int) -> list[tuple[int, int]]:
    """Return (partition, replica) of one end, in every replica or partition."""
    if inner.is_global:
        replica, partition = divmod(number, by.partitions)
        return [(partition, replica)] if replica < by.replicas else []
    if inner.channel > 0:
        return [(number, replica) for replica in range(by.replicas)] if number < by.partitions else []
    return [(partition, number) for partition in range(by.partitions)] if number < by.replicas else []


def shape(message: bytes, depth: int = 0) -> HloShape:
    """Return bytes, elements and type of a ShapeProto; the bytes are None where a type is not known.

    A dimension that may shrink at run time counts with its bound.
    """
    kind = 0
    dims: list[int] = []
    parts: list[HloShape] = []
    for number, form, value in fields(message):
        if number == 2 and isinstance(value, int):
            kind = value
        elif number == 3:
            dims += numbers(form, value)
        elif number == 4 and isinstance(value, bytes) and depth < MOST_DEPTH:
            parts.append(shape(value, depth + 1))
    if kind == _TUPLE:
        return _tuple_of(parts)
    elements = math.prod(dims)
    if kind not in _TYPES or elements > MOST_BYTES:
        return HloShape(None, 0, None)
    name, bits = _TYPES[kind]
    return HloShape((elements * bits + 7) // 8, elements, name or None)


def _tuple_of(parts: list[HloShape]) -> HloShape:
    sizes = [each.size_bytes for each in parts if each.size_bytes is not None]
    types = {each.datatype for each in parts if each.elements}
    whole = sum(sizes) if len(sizes) == len(parts) else None
    return HloShape(whole, sum(each.elements for each in parts), types.pop() if len(types) == 1 else None)
