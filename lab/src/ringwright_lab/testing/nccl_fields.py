"""What stands in NCCL's lines: releases, datatypes, printed names, and the fields of an Init and a COLL line."""

from __future__ import annotations

from dataclasses import dataclass

# One widely used patch level per minor release.
RELEASES: dict[str, tuple[int, int, int]] = {
    f"2.{minor}": (2, minor, patch)
    for minor, patch in (
        (3, 7),
        (4, 8),
        (5, 7),
        (6, 4),
        (7, 8),
        (8, 4),
        (9, 9),
        (10, 3),
        (11, 4),
        (12, 12),
        (13, 4),
        (14, 3),
        (15, 5),
        (16, 5),
        (17, 1),
        (18, 6),
        (19, 4),
        (20, 5),
        (21, 5),
        (22, 3),
        (23, 4),
        (24, 3),
        (25, 1),
        (26, 5),
        (27, 7),
        (28, 9),
        (29, 7),
        (30, 7),
    )
}

# Bytes of one element by NCCL datatype number.
ELEMENT_BYTES = {0: 1, 1: 1, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2, 10: 1, 11: 1}

PRINTED_NAME = {
    "all-reduce": "AllReduce",
    "all-gather": "AllGather",
    "reduce-scatter": "ReduceScatter",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "all-to-all": "AlltoAll",
    "gather": "Gather",
    "scatter": "Scatter",
    "send": "Send",
    "recv": "Recv",
}


@dataclass(frozen=True)
class CommunicatorRank:
    """One rank inside one communicator, as an Init line names it."""

    pointer: int
    rank: int
    nranks: int
    device: int
    bus_id: int
    comm_id: int
    parent: int = 0  # pointer of the communicator it was split from; 0 when it was not
    color: int = 0
    split_number: int = 1


@dataclass(frozen=True)
class CollText:
    """The fields of one COLL line, already in the printed convention (see ``Dialect.printed_count``)."""

    name: str
    op_count: int
    send_buffer: int
    receive_buffer: int
    count: int
    datatype: int
    root: int
    pointer: int
    nranks: int
    stream: int
    reduction: int = 0
    global_rank: int = 0  # printed by RCCL alone
    task: int = 0


def pointer_text(value: int) -> str:
    """Return a pointer as C prints it: ``0x7f..`` or ``(nil)``."""
    return f"0x{value:x}" if value else "(nil)"
