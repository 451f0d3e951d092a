"""A declared order as edges between messages, for engines that time messages.

For each instruction there is a *join* that stands for its start. It waits for the start of the instruction before it in its
thread block, for that one's local work, for its dependencies, for the message it receives and for room in the FIFO it
sends to; its own messages wait for it. A send is done when it has been handed over, so the next one does not wait for
its arrival; a signal is seen when what was put before it has arrived. Left out: the latency of a signal by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringwright.model.program import Op
from ringwright.model.threadblocks.order import STUCK
from ringwright.model.threadblocks.table import SENDS, Opcode, one_of

if TYPE_CHECKING:
    from ringwright.model.threadblocks.moves import Moves
    from ringwright.model.threadblocks.order import InstructionOrder
    from ringwright.model.threadblocks.table import ThreadBlockTables

Pairs = tuple[np.ndarray, np.ndarray]


def message_numbers(moves: Moves, n_nodes: int) -> tuple[np.ndarray, int]:
    """Return the message each move belongs to, numbered as an engine that gathers the steps numbers them, and how many.

    int64 of shape (moves,).
    """
    channel = np.where(moves.op == Op.COPY, -1 - moves.channel, moves.channel)
    channel = channel - channel.min(initial=0)
    key = ((moves.step * (channel.max(initial=0) + 1) + channel) * n_nodes + moves.src) * n_nodes + moves.dst
    _, first, owner = np.unique(key, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[owner], len(first)


def message_edges(
    schedule: ThreadBlockTables, order: InstructionOrder, moves: Moves
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return (before, after, joins); joins are numbered behind the messages.

    Both arrays are int64 of shape (edges,).
    """
    message, n = message_numbers(moves, schedule.p + bool(schedule.groups))
    starts = n + np.arange(len(schedule.code))
    arrivals = n + len(
        schedule.code
    )  # one more join per instruction: all that its thread block has put so far is there
    pairs = [
        *_own(moves, message, starts),
        *_followed(schedule, order, moves, message, starts),
        *_arrived(schedule, order, moves, message, starts, arrivals),
    ]
    before, after = (np.concatenate(column) for column in zip(*pairs, strict=True))
    keep = before != after
    return before[keep], after[keep], 2 * len(schedule.code)


def _own(moves: Moves, message: np.ndarray, starts: np.ndarray) -> list[Pairs]:
    """Return each instruction's start before its messages, and its first half before its second."""
    early = np.flatnonzero(moves.half == 0)
    late = np.flatnonzero(moves.half == 1)
    left, right = _joined(moves.instruction[early], moves.instruction[late])
    return [(starts[moves.instruction], message), (message[early[left]], message[late[right]])]


def _followed(
    schedule: ThreadBlockTables, order: InstructionOrder, moves: Moves, message: np.ndarray, starts: np.ndarray
) -> list[Pairs]:
    """Return what waits for an instruction to be over: its successor, its dependants, the sender it makes room for."""
    kind = schedule.code.kind
    pairs = (
        order.block,
        order.dep,
        order.marks,
        order.packets,
        order.room(schedule.depth),
        _counted(order, moves.wave),
    )
    before, after = (np.concatenate(column) for column in zip(*pairs, strict=True))
    remote = (one_of(kind, SENDS) | (kind == Opcode.PUT))[moves.instruction] & (moves.src != moves.dst)
    local = np.flatnonzero(~remote)
    left, right = _joined(moves.instruction[local], before)
    return [(starts[before], starts[after]), (message[local[left]], starts[after[right]])]


def _counted(order: InstructionOrder, wave: np.ndarray) -> Pairs:
    """Return, for waits that any of several signals can end, those that come first."""
    before: list[int] = []
    after: list[int] = []
    for counted in order.counted:
        done = counted.posts[wave[counted.posts] != STUCK]
        chosen = done[np.argsort(wave[done], kind="stable")][: counted.least].tolist()
        before += chosen
        after += [counted.instruction] * len(chosen)
    return np.array(before, np.int64), np.array(after, np.int64)


def _arrived(
    schedule: ThreadBlockTables,
    order: InstructionOrder,
    moves: Moves,
    message: np.ndarray,
    starts: np.ndarray,
    arrivals: int,
) -> list[Pairs]:
    """Return what waits for the arrival of data: the receiver, readers of packets, and who sees a later signal."""
    code = schedule.code
    sent = np.flatnonzero((moves.op == Op.SEND) & one_of(code.kind, SENDS)[moves.instruction])
    by = np.argsort(order.sends, kind="stable")
    sender = by[np.searchsorted(order.sends[by], moves.instruction[sent])] if len(sent) else sent
    put = np.flatnonzero(code.kind[moves.instruction] == Opcode.PUT)
    left, right = _joined(moves.instruction[put], order.packets[0])
    block_before, block_after = order.block
    signals = np.concatenate((order.marks[0], _counted(order, moves.wave)[0]))
    waits = np.concatenate((order.marks[1], _counted(order, moves.wave)[1]))
    return [
        (message[sent], starts[order.receives[sender]]),
        (message[put[left]], starts[order.packets[1][right]]),
        (message[put], arrivals + moves.instruction[put]),
        (arrivals + block_before, arrivals + block_after),
        (arrivals + signals, starts[waits]),
    ]


def _joined(left: np.ndarray, right: np.ndarray) -> Pairs:
    """Return all pairs of places where ``left`` and ``right`` hold the same number."""
    by = np.argsort(left, kind="stable")
    begin, end = np.searchsorted(left[by], right, "left"), np.searchsorted(left[by], right, "right")
    lengths = end - begin
    inner = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return by[np.repeat(begin, lengths) + inner], np.repeat(np.arange(len(right)), lengths)


def longest_path(order: InstructionOrder, moves: Moves, n_nodes: int, move_bytes: np.ndarray) -> tuple[int, int]:
    """Return messages and bytes on the longest chains of the declared order (each its own longest).

    An instruction that sends weighs one message and its bytes; it is followed in its thread block when those have left.
    """
    n = len(moves.wave)
    far = moves.src != moves.dst
    weight = np.zeros((2, n), np.int64)
    np.maximum.at(weight[0], moves.instruction[far], 1)
    np.add.at(weight[1], moves.instruction[far], move_bytes[far])
    total = weight.copy()
    before, after = order.certain()
    wave = moves.wave
    run = np.flatnonzero((wave[before] != STUCK) & (wave[after] != STUCK))
    run = run[np.argsort(wave[after[run]], kind="stable")]
    bounds = np.searchsorted(wave[after[run]], np.arange(wave.max(initial=0) + 2))
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        part = run[begin:end]
        for row in (0, 1):
            np.maximum.at(total[row], after[part], total[row, before[part]] + weight[row, after[part]])
    return int(total[0].max(initial=0)), int(total[1].max(initial=0))
