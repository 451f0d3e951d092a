"""Chakra execution traces (protobuf, one file a rank), as ASTRA-sim reads them.

``chakra_collective`` writes one collective node a rank, for the simulator to do its own way; ``chakra_program`` the sends,
receives and sums of a program, for a simulator's custom collectives. Written field by field, without a protobuf library.
Source: mlcommons/chakra (schema/protobuf/et_def.proto); the values that ASTRA-sim's own microbenchmarks use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ringwright.formats.exports.operations import CALC, SEND, operations
from ringwright.ground.errors import ProgramError

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program

EXPORTS = {"chakra": "chakra_program", "chakra-collective": "chakra_collective"}
VERSION = "0.0.4"
METADATA, COMP, COMM_SEND, COMM_RECV, COMM_COLL = 1, 4, 5, 6, 7  # node types
COMM_TYPES = {
    "all-reduce": 0,
    "reduce": 1,
    "all-gather": 2,
    "gather": 3,
    "scatter": 4,
    "broadcast": 5,
    "all-to-all": 6,
    "reduce-scatter": 7,
    "barrier": 9,
}
ONE_BLOCK = ("all-gather", "gather")
GROUPS_FILE = "comm_group.json"  # as ASTRA-sim takes it: numbers of groups, and the ranks in each
_INT32, _INT64, _UINT64, _BOOL, _STRING = 7, 9, 13, 27, 29  # fields of an attribute, by type of its value


def chakra_collective(collective: Collective, *, name: str = "", group: str = "") -> list[bytes]:
    """Return one file per rank with one node. ``comm_size`` is what a rank hands in: for all-gather and gather its own block.

    ASTRA-sim's ring multiplies an all-gather's size by the ranks (``RingAllGather`` ends with size x ranks).
    ``group`` names the process group (``pg_name``) where it is not all ranks. Raises ProgramError for send-recv.
    """
    if collective.op not in COMM_TYPES:
        raise ProgramError(f"Chakra has no collective type for {collective.op}")
    label = name or f"{collective.op.replace('-', '_')}_{collective.p}npus_{collective.size_bytes}B"
    attributes = [
        _attribute("is_cpu_op", _BOOL, 0),
        _attribute("comm_type", _INT64, COMM_TYPES[collective.op]),
        _attribute("comm_size", _INT64, collective.size_bytes // (collective.p if collective.op in ONE_BLOCK else 1)),
    ]
    if group:
        attributes.append(_attribute("pg_name", _STRING, group))
    file = framed(metadata()) + framed(node(0, label, COMM_COLL, attributes))
    return [file] * collective.p


def chakra_program(program: Program, *, reduce_rate: float = float("inf")) -> list[bytes]:
    """Return one file per rank with the sends, receives and sums of a program; sums take bytes / ``reduce_rate`` (B/s)."""
    ops = operations(program, reduce_rate=reduce_rate)
    starts = ops.starts
    cuts = np.searchsorted(ops.after, starts)
    files = []
    for rank in range(ops.n_ranks):
        begin, end = int(starts[rank]), int(starts[rank + 1])
        waits: list[list[int]] = [[] for _ in range(begin, end)]
        for index in range(int(cuts[rank]), int(cuts[rank + 1])):
            waits[int(ops.after[index]) - begin].append(int(ops.before[index]) - begin)
        out = [framed(metadata())]
        for op in range(begin, end):
            kind, peer, size = int(ops.kind[op]), int(ops.peer[op]), int(ops.size_bytes[op])
            if kind == CALC:
                duration = round(float(ops.time_s[op]) * 1e6)
                attributes = [_attribute("is_cpu_op", _BOOL, 0)]
                out.append(framed(node(op - begin, "calc", COMP, attributes, waits[op - begin], duration)))
                continue
            ends = (rank, peer) if kind == SEND else (peer, rank)
            attributes = [
                _attribute("is_cpu_op", _BOOL, 0),
                _attribute("comm_size", _INT64, size),
                _attribute("comm_src", _INT32, ends[0]),
                _attribute("comm_dst", _INT32, ends[1]),
                _attribute("comm_tag", _INT32, int(ops.tag[op])),
            ]
            label, type_ = ("send", COMM_SEND) if kind == SEND else ("recv", COMM_RECV)
            out.append(framed(node(op - begin, label, type_, attributes, waits[op - begin])))
        files.append(b"".join(out))
    return files


# ------------------------------------------------------------------------------------------------------------ groups
class ChakraGroup(NamedTuple):
    """A group as the files name it, by a number above 0; its members are global ranks, none where they are unknown."""

    number: int
    members: tuple[int, ...]
    text: str = ""

    def metadata(self) -> dict[str, object]:
        """Return what a node of metadata says of it."""
        plain = re.sub(r"[^\w./@,: -]", "_", self.text[:100])
        return {"pg_name": str(self.number), "pg_desc": plain, "ranks": list(self.members)}


def groups_file(groups: Iterable[ChakraGroup]) -> bytes:
    """Return the file that tells ASTRA-sim who is in which group; those whose members are unknown are not in it."""
    listed = {str(group.number): list(group.members) for group in groups if group.members}
    return (json.dumps(listed) + "\n").encode()


def members_node(number: int, groups: Sequence[ChakraGroup]) -> bytes:
    """Return the node that says who is in which group, printed as PyTorch's traces have it."""
    entries = json.dumps([group.metadata() for group in groups], separators=(",", ":"))
    return described(number, "process_group", METADATA, f"['{entries}']")


# ------------------------------------------------------------------------------------------------------ wire format
def _varint(value: int) -> bytes:
    """Return an unsigned number in base 128, the lowest seven bits first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def framed(message: bytes) -> bytes:
    """Return a message with its length before it."""
    return _varint(len(message)) + message


def metadata() -> bytes:
    """Return the first message of a file."""
    return _text(1, VERSION.encode())


def flag(name: str, *, value: bool) -> bytes:
    """Return an attribute that is true or false."""
    return _attribute(name, _BOOL, int(value))


def number(name: str, value: int) -> bytes:
    """Return an attribute of a whole number, at least 0."""
    return _attribute(name, _INT64, value)


def small(name: str, value: int) -> bytes:
    """Return an attribute of a whole number below 2**31, at least 0."""
    return _attribute(name, _INT32, value)


def words(name: str, value: str) -> bytes:
    """Return an attribute of text."""
    return _attribute(name, _STRING, value)


def described(number_: int, name: str, kind: int, values: str) -> bytes:
    """Return a node with printed inputs and nothing else."""
    return _number(1, number_) + _text(2, name.encode()) + _number(3, kind) + _text(8, _text(1, values.encode()))


def _attribute(name: str, field: int, value: int | str) -> bytes:
    coded = _text(field, value.encode()) if isinstance(value, str) else _number(field, value)
    return _text(10, _text(1, name.encode()) + coded)


def node(
    number: int,
    name: str,
    kind: int,
    attributes: Iterable[bytes],
    waits: Iterable[int] = (),
    duration_us: int = 0,
    start_us: int = 0,
) -> bytes:
    """Return a node; fields of value 0 are left out, as proto3 does."""
    packed = b"".join(map(_varint, waits))
    return b"".join(
        (
            _number(1, number) if number else b"",
            _text(2, name.encode()),
            _number(3, kind),
            _text(5, packed) if packed else b"",
            _number(6, start_us) if start_us else b"",
            _number(7, duration_us) if duration_us else b"",
            *attributes,
        )
    )
