"""One communication operation of a step: what it carries, and in what pieces it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ringwright.model.workload import SHIFTS, Payload, asked_on


@dataclass(frozen=True)
class Operation:
    """One communication operation: the payloads it carries, in order, and the size of the pieces it is sent in.

    ``piece_bytes`` 0 means in one piece. ``key`` is its urgency, small first, None for first come first served.
    ``size_bytes`` is what travels, which select and substitute make smaller than what the payloads hold.
    """

    name: str
    of: str
    op: str
    axes: tuple[str, ...]
    role: str
    per: str
    payloads: tuple[Payload, ...]
    size_bytes: int
    piece_bytes: int = 0
    key: int | None = None

    @property
    def asked(self) -> str:
        """The operation as cost models are asked for it: a shift from further on says from where, a named network which."""
        hops = self.payloads[0].hops
        op = self.op if self.op not in SHIFTS or hops == 1 else f"{self.op}@{hops}"
        return asked_on(op, self.network)

    @property
    def network(self) -> str:
        """The network that carries it; empty where ranks have one."""
        return self.payloads[0].network

    @property
    def disturbed(self) -> float:
        """How many times as long as its like it takes, as its payloads did where they were recorded: their mean, by bytes."""
        if len(self.payloads) == 1:
            return self.payloads[0].disturbed
        whole = sum(each.size_bytes for each in self.payloads)
        return sum(each.disturbed * each.size_bytes for each in self.payloads) / whole if whole else 1.0

    @property
    def pieces(self) -> int:
        """How many pieces it is sent in."""
        return max(1, -(-self.size_bytes // self.piece_bytes)) if self.piece_bytes else 1

    def sizes(self) -> tuple[int, int]:
        """Return the bytes of a full piece and of the last one."""
        whole = self.piece_bytes if self.pieces > 1 else self.size_bytes
        return whole, self.size_bytes - whole * (self.pieces - 1)

    def carried(self, piece: int) -> list[Payload]:
        """Return the payloads with a byte in a piece, all of them where what travels is not the payloads' own bytes."""
        if self.pieces == 1 or len(self.payloads) == 1 or self.size_bytes != sum(p.size_bytes for p in self.payloads):
            return list(self.payloads)
        begin, end = piece * self.piece_bytes, (piece + 1) * self.piece_bytes
        carried, offset = [], 0
        for payload in self.payloads:
            if offset < end and offset + payload.size_bytes > begin:
                carried.append(payload)
            offset += payload.size_bytes
        return carried

    def spans(self) -> list[tuple[int, int]]:
        """Return, per payload, the first piece that carries a byte of it and the one behind the last; see ``carried``."""
        pieces = self.pieces
        if pieces == 1 or len(self.payloads) == 1 or self.size_bytes != sum(p.size_bytes for p in self.payloads):
            return [(0, pieces)] * len(self.payloads)
        spans, offset = [], 0
        for payload in self.payloads:
            first, offset = offset // self.piece_bytes, offset + payload.size_bytes
            spans.append((first, -(-offset // self.piece_bytes)))
        return spans


def alone(payload: Payload) -> Operation:
    """Return the operation that carries one payload and nothing else."""
    return Operation(
        payload.name, payload.of, payload.op, payload.axes, payload.role, payload.per, (payload,), payload.size_bytes
    )


def merged(group: Sequence[Operation]) -> Operation:
    """Return one operation for several: their payloads one after another, in one piece."""
    if len(group) == 1:
        return group[0]
    first = group[0]
    payloads = tuple(payload for each in group for payload in each.payloads)
    name = f"{first.name}..{group[-1].name}"
    return replace(
        first, name=name, payloads=payloads, size_bytes=sum(each.size_bytes for each in group), piece_bytes=0
    )
