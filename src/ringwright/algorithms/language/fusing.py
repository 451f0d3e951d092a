"""Fusion: a receive and a send of what was received become one instruction, which saves a round trip through memory.

A receive and a send make ``rcs``; a receive that adds and a send make ``rrcs``, or ``rrs`` where nobody reads the sum here before
something else is received over it.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ringwright.algorithms.language.tape import SCRATCH, Tape
from ringwright.model.threadblocks.table import Opcode

_FUSED = {int(Opcode.R): int(Opcode.RCS), int(Opcode.RRC): int(Opcode.RRCS)}


def fusable(tape: Tape) -> tuple[np.ndarray, np.ndarray]:
    """Return (receive, send): each receive with the first send of exactly what it stored, hints alike.

    Both int64 of shape (pairs,), in the order of the receives.
    """
    writer = _writers(tape)  # where its range is the same, it wrote all of what is read
    sends = np.flatnonzero((tape.kind == Opcode.S) & (writer >= 0))
    receives = writer[sends]
    same = np.isin(tape.kind[receives], list(_FUSED))
    for ours, theirs in (
        (tape.src, tape.dst),
        (tape.count, tape.count),
        (tape.channel, tape.channel),
        (tape.tb, tape.tb),
    ):
        same &= ours[sends] == theirs[receives]
    sends, receives = sends[same], receives[same]
    receives, first = np.unique(receives, return_index=True)  # the lowest, where several send it
    return receives, sends[first]


def _writers(tape: Tape) -> np.ndarray:
    """Return for each instruction the one that last wrote any of what it reads, or -1."""
    slot, owner, writes = tape.accesses
    here = np.arange(len(slot))
    last = np.concatenate(([-1], np.maximum.accumulate(np.where(writes, here, -1))))[:-1].astype(np.int64)
    wrote = np.where((last >= 0) & (slot[last] == slot), owner[last], -1)
    writer = np.full(len(tape), -1, np.int64)
    np.maximum.at(writer, owner[~writes], wrote[~writes])
    return writer


def fused(tape: Tape, receives: np.ndarray, sends: np.ndarray) -> Tape:
    """Return the tape in which each of the pairs is one instruction, where the receive stands."""
    kind, send, then = tape.kind.copy(), tape.send.copy(), tape.then.copy()
    kind[receives] = np.where(kind[receives] == Opcode.R, int(Opcode.RCS), int(Opcode.RRCS))
    kind[receives[_is_passed_on(tape, receives, sends)]] = int(Opcode.RRS)
    send[receives], then[receives] = tape.send[sends], tape.then[sends]
    stays = np.ones(len(tape), bool)
    stays[sends] = False
    return dataclasses.replace(tape, kind=kind, send=send, then=then).kept(stays)


def _is_passed_on(tape: Tape, receives: np.ndarray, sends: np.ndarray) -> np.ndarray:
    """Return which of the pairs add to something that nobody but the send reads before it is overwritten, or ever.

    bool of the shape of ``receives``.
    """
    slot, owner, writes = tape.accesses
    partner = np.full(len(tape) + 1, -1, np.int64)
    partner[receives] = sends
    n = len(slot)
    none = np.full(2, -1, np.int64)
    slot_then, owner_then = np.append(slot, none), np.append(owner, none)
    writes_then = np.append(writes, [False, False])
    at = np.flatnonzero(writes & (partner[owner] >= 0))
    is_next = (owner_then[at + 1] == partner[owner[at]]) & (slot_then[at + 1] == slot[at])
    again = slot_then[np.minimum(at + 2, n)] == slot[at]
    over = again & writes_then[at + 2] & (np.isin(tape.kind[owner_then[at + 2]], (int(Opcode.R), int(Opcode.CPY))))
    scratch = ~again & (tape.dst_buffer[owner[at]] == SCRATCH)
    lost = np.ones(len(tape) + 1, bool)
    lost[owner[at[~(is_next & (over | scratch))]]] = False
    passed: np.ndarray = lost[receives] & (tape.kind[receives] == Opcode.RRC)
    return passed
