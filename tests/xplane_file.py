"""Small XSpace files as XLA's profiler writes them, for what no machine here records: GPU streams, start and done, odd groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from written import block, number, varint

F32, BF16, TUPLE = 11, 16, 13
Stats = dict[str, int | str | bytes]


@dataclass
class PlaneMaker:
    """A plane under construction: names get their numbers as they come."""

    name: str
    own: Stats = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    stat_names: dict[str, int] = field(default_factory=dict)
    shared: dict[str, Stats] = field(default_factory=dict)  # values that stand with an event's name
    lines: list[bytes] = field(default_factory=list)

    def stat(self, name: str, value: int | str | bytes) -> bytes:
        key = number(1, self.stat_names.setdefault(name, len(self.stat_names) + 1))
        if isinstance(value, bytes):
            return key + block(6, value)
        if isinstance(value, int):
            return key + number(4, value)
        return key + number(7, self.stat_names.setdefault(value, len(self.stat_names) + 1))

    def event(self, name: str, start_ps: int, duration_ps: int, /, **stats: int | str) -> bytes:
        key = self.names.setdefault(name, len(self.names) + 1)
        held = b"".join(block(4, self.stat(each, value)) for each, value in stats.items())
        return number(1, key) + number(2, start_ps) + number(3, duration_ps) + held

    def line(self, name: str, events: Sequence[bytes], start_ns: int = 1000) -> None:
        head = number(1, len(self.lines) + 1) + block(2, name) + number(3, start_ns)
        self.lines.append(head + b"".join(b"\x22" + varint(len(each)) + each for each in events))

    def message(self) -> bytes:
        own = b"".join(block(6, self.stat(name, value)) for name, value in self.own.items())
        names = b""
        for name, key in self.names.items():
            stats = b"".join(block(5, self.stat(each, value)) for each, value in self.shared.get(name, {}).items())
            names += block(4, number(1, key) + block(2, number(1, key) + block(2, name) + stats))
        stat_names = b"".join(
            block(5, number(1, key) + block(2, number(1, key) + block(2, name)))
            for name, key in self.stat_names.items()
        )
        lines = b"".join(block(3, line) for line in self.lines)
        return number(1, 1) + block(2, self.name) + lines + names + stat_names + own


def space(*planes: PlaneMaker, host: str = "n1") -> bytes:
    """Return an XSpace."""
    return b"".join(block(1, plane.message()) for plane in planes) + block(4, host)


def shape(*dims: int, kind: int = F32) -> bytes:
    return number(2, kind) + (block(3, b"".join(varint(each) for each in dims)) if dims else b"")


def shapes(*parts: bytes) -> bytes:
    return number(2, TUPLE) + b"".join(block(4, each) for each in parts)


def groups(*lists: Sequence[int]) -> bytes:
    """Return the field with groups written one by one."""
    return block(87, b"".join(block(1, block(1, b"".join(varint(each) for each in held))) for held in lists))


def instruction(
    key: int,
    name: str,
    opcode: str,
    form: bytes,
    operands: Sequence[int] = (),
    called: Sequence[int] = (),
    more: bytes = b"",
) -> bytes:
    held = block(1, name) + block(2, opcode) + block(3, form) + number(35, key)
    held += block(36, b"".join(varint(each) for each in operands)) if operands else b""
    return held + (block(38, b"".join(varint(each) for each in called)) if called else b"") + more


def computation(key: int, root: int, *instructions: bytes) -> bytes:
    return block(1, f"c{key}") + b"".join(block(2, each) for each in instructions) + number(5, key) + number(6, root)


def summing(key: int, opcode: str = "add") -> bytes:
    return computation(key, key * 100 + 1, instruction(key * 100 + 1, f"op.{key}", opcode, shape()))


def hlo(name: str, *computations: bytes, devices: Sequence[Sequence[int]] = ((0,), (1,), (2,), (3,))) -> bytes:
    """Return an HloProto; ``devices[partition][replica]``."""
    assigned = number(1, len(devices[0])) + number(2, len(devices))
    assigned += b"".join(block(3, block(1, b"".join(varint(each) for each in held))) for held in devices)
    module = block(1, name) + b"".join(block(3, each) for each in computations) + block(15, assigned)
    return block(1, module)


def programs(*modules: tuple[int, str, bytes]) -> PlaneMaker:
    """Return the plane that carries compiled programs: (number, name, HloProto)."""
    plane = PlaneMaker("/host:metadata")
    for key, name, proto in modules:
        plane.names[f"{name}({key})"] = key
        plane.shared[f"{name}({key})"] = {"Hlo Proto": proto, "program_id": key}
    return plane
