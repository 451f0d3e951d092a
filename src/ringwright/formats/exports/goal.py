"""GOAL schedules, as text and as the binary that LogGOPSim maps.

Sums become calculations where a rate is given, in nanoseconds; what waits only to gather others is a calculation of 0.
Left behind: where data lie, channels, the order of thread blocks, multicast (one send for each receiver).
Source: spcl/LogGOPSim (src/LogGOPSim/txt2bin.re, Parser.hpp).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ringwright.formats.exports.operations import CALC, SEND, Operations, operations
from ringwright.ground.errors import ProgramError

if TYPE_CHECKING:
    from ringwright.model.program import Program

EXPORTS = {"goal": "goal", "goal-binary": "goal_binary"}
COOKIE = 4223
MOST_BYTES = 1 << 32  # the simulator's matching queue counts a message's bytes with 32 bits
_NODE = struct.Struct("<IbIQIBBIIII")


def goal(program: Program, *, reduce_rate: float = float("inf")) -> bytes:
    """Return a schedule as text; sums take bytes / ``reduce_rate`` (B/s). A message of 0 B is sent as 1 B.

    Raises ProgramError for messages of 4 GiB and more, which the simulator cannot count.
    """
    return "\n".join(_lines(_checked(program, reduce_rate))).encode() + b"\n"


def goal_binary(program: Program, *, reduce_rate: float = float("inf")) -> bytes:
    """Return the same schedule in binary (little endian, unaligned)."""
    ops = _checked(program, reduce_rate)
    parts = [_rank_binary(ops, rank) for rank in range(ops.n_ranks)]
    head = struct.pack("<IBB", ops.n_ranks, 0, 0)
    ends = len(head) + 16 * ops.n_ranks + np.cumsum([0, *map(len, parts)])
    table = b"".join(
        struct.pack("<QQ", begin, end) for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    )
    return struct.pack("<Q", COOKIE) + head + table + b"".join(parts)


def _checked(program: Program, reduce_rate: float) -> Operations:
    ops = operations(program, reduce_rate=reduce_rate)
    if int(ops.size_bytes.max(initial=0)) >= MOST_BYTES:
        raise ProgramError(
            f"{program.name} has messages of 4 GiB and more, which GOAL's simulator cannot count", remedy="more parts"
        )
    return ops


def _amount(ops: Operations) -> np.ndarray:
    """Return bytes of messages (at least one) and nanoseconds of calculations."""
    return np.where(ops.kind == CALC, np.rint(ops.time_s * 1e9).astype(np.int64), np.maximum(ops.size_bytes, 1))


def _lines(ops: Operations) -> Iterator[str]:
    starts, amount = ops.starts, _amount(ops)
    cuts = np.searchsorted(ops.after, starts)
    yield f"num_ranks {ops.n_ranks}"
    for rank in range(ops.n_ranks):
        begin, end = int(starts[rank]), int(starts[rank + 1])
        yield f"\nrank {rank} {{"
        for op in range(begin, end):
            if ops.kind[op] == CALC:
                yield f"l{op - begin}: calc {amount[op]}"
            else:
                verb, direction = ("send", "to") if ops.kind[op] == SEND else ("recv", "from")
                yield f"l{op - begin}: {verb} {amount[op]}b {direction} {ops.peer[op]} tag {ops.tag[op]}"
        for wait in range(int(cuts[rank]), int(cuts[rank + 1])):
            yield f"l{ops.after[wait] - begin} requires l{ops.before[wait] - begin}"
        yield "}"


def _rank_binary(ops: Operations, rank: int) -> bytes:
    begin, end = ops.starts[rank : rank + 2].tolist()
    amount = _amount(ops)
    mine = slice(*np.searchsorted(ops.after, [begin, end]).tolist())
    before, after = ops.before[mine] - begin, ops.after[mine] - begin
    waits = np.bincount(after, minlength=end - begin)
    order = np.argsort(before, kind="stable")
    followers = np.bincount(before, minlength=end - begin)
    first = np.cumsum(followers) - followers
    roots = np.flatnonzero(waits == 0)
    nodes = []
    for op in range(begin, end):
        at = op - begin
        peer, tag = (0, 0) if ops.kind[op] == CALC else (int(ops.peer[op]), int(ops.tag[op]))
        follow, index = int(followers[at]), int(first[at])
        nodes.append(
            _NODE.pack(
                int(waits[at]), int(ops.kind[op]), peer, int(amount[op]), tag, 0, 0, follow, index, 0, index + follow
            )
        )
    counts = struct.pack(f"<II{len(roots)}I", end - begin, len(roots), *roots.tolist())
    return b"".join((counts, *nodes, after[order].astype("<u4").tobytes()))
