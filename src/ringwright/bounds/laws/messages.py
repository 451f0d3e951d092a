"""The law of messages: what one rank sends another receives, so where both ends are read the two sides are equal.

Nothing is refused: a profile may begin on one rank before it begins on another. But then counts and bytes of the two sides are
not those of the same calls, and that must be said.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringwright.bounds.laws.law import Law


@dataclass(frozen=True, slots=True)
class Messages:
    """One side's messages: calls, and their bytes, None where the size of one is unknown."""

    calls: int
    size_bytes: int | None


def unlike(sent: Messages, received: Messages) -> str:
    """Return by how much two sides differ; empty where they do not, or where it cannot be told: some write down one side."""
    if not sent.calls or not received.calls:
        return ""
    if sent.calls != received.calls:
        return f"{sent.calls:,} sends and {received.calls:,} receives between the same ranks"
    if None not in (sent.size_bytes, received.size_bytes) and sent.size_bytes != received.size_bytes:
        return f"{sent.size_bytes:,} B sent and {received.size_bytes:,} B received by {sent.calls:,} messages"
    return ""


def _judge(*sides: tuple[int, int | None]) -> str:
    sent, received = (Messages(*side) for side in sides)
    return unlike(sent, received)


LAWS = (
    Law(
        "messages",
        "what is sent is received: as many calls and as many bytes, where both ends are read",
        "MPI 4.1, 3.2: a receive takes the message of one send; PyTorch and NCCL pair them in the same way",
        _judge,
        kept=(((3, 12), (3, 12)), ((3, None), (3, 12)), ((3, 12), (0, 0))),
        broken=(((3, 12), (2, 8)), ((3, 12), (3, 0))),
    ),
)
