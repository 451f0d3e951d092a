"""Whether a declared order can run without deadlock, and whether it orders every data hazard.

Two thread blocks that touch the same slot, one of them writing, must be ordered by a chain of instructions: thread block
order, dependencies, messages, signals. That a FIFO was full does not count as an order, for its depth is the runtime's.
A race is an error where ranks exchange messages. In one-sided plans it is a warning: published plans have them (thread-block
groups whose members signal for each other), and what runs behind an executor's barriers is not all said in the plan.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ringwright.model.threadblocks.accesses import hazards_between
from ringwright.model.threadblocks.order import STUCK, puts_back, waves
from ringwright.model.threadblocks.table import LETTERS, READS_SRC, SWITCHED, WRITES_DST, Opcode, one_of
from ringwright.model.validity.rules import Violation

if TYPE_CHECKING:
    from ringwright.model.threadblocks import Schedule

MOST_HEADS = 20  # thread blocks told of when all are stuck
MOST_CLOCKS = 1 << 26  # entries in memory at a time


def check_order(schedule: Schedule, most: int = 20) -> list[Violation]:
    """Return the errors and warnings of a declared order: sends without receives first, then deadlocks, then races."""
    violations = [
        _violation(schedule, rule, text, row, severity) for rule, text, row, severity in schedule.order.faults
    ]
    if any(each.severity == "error" for each in violations):
        return violations[:most]
    wave = waves(schedule, schedule.order, schedule.depth)
    violations += [_violation(schedule, "deadlock", text, row) for row, text in _stuck(schedule, wave, schedule.depth)]
    if (wave == STUCK).any():
        return violations[:most]
    if schedule.depth > 1:
        narrow = waves(schedule, schedule.order, 1)
        for row, why in _stuck(schedule, narrow, 1)[:1]:
            text = f"needs more than one message under way on a connection: {why}"
            violations.append(_violation(schedule, "deadlock", text, row, "warning"))
    return [*violations, *races(schedule, wave, most)][:most]


def _violation(schedule: Schedule, rule: str, text: str, row: int, severity: str = "error") -> Violation:
    rank, threadblock, step = schedule.place(row)
    code = schedule.code
    chunk = code.src[row] if one_of(code.kind[row : row + 1], READS_SRC)[0] else code.dst[row]
    return Violation(rule, f"thread block {threadblock}: {text}", rank, step, int(chunk), severity)


def _stuck(schedule: Schedule, wave: np.ndarray, depth: int) -> list[tuple[int, str]]:
    """Return the instructions that are the first of their thread block that never run, and what each waits for."""
    order = schedule.order
    ahead = np.zeros(len(wave), bool)
    ahead[order.block[1]] = wave[order.block[0]] == STUCK
    heads = np.flatnonzero((wave == STUCK) & ~ahead)
    room = order.room(depth)
    why = (
        (order.dep, "waits for {}"),
        ((order.sends, order.receives), "waits for the message of {}"),
        (order.marks, "waits for the signal of {}"),
        (order.packets, "waits for the packets of {}"),
        (room, f"waits for room for message {depth + 1}, which {{}} would make"),
    )
    stuck = []
    for head in heads[:MOST_HEADS].tolist():
        text = "waits for a signal that never comes"
        for (before, after), words in why:
            culprits = before[(after == head) & (wave[before] == STUCK)]
            if len(culprits):
                text = words.format(schedule.where(int(culprits[0])))
                break
        stuck.append((head, text))
    return stuck


# ---------------------------------------------------------------------------------------------------------------- races
def races(schedule: Schedule, wave: np.ndarray, most: int = 20) -> list[Violation]:
    """Return pairs of accesses to one slot, one of them a write, that no chain of instructions orders."""
    before, after = _hazards(schedule, wave)
    differ = schedule.code.block[before] != schedule.code.block[after]
    before, after = before[differ], after[differ]
    one_sided = bool((schedule.code.kind > Opcode.RE).any())
    violations: list[Violation] = []
    for row, other in _unordered(schedule, wave, before, after)[:most]:
        text = f"no order between this and {schedule.where(other)}, which touch the same chunk"
        violations.append(_violation(schedule, "race", text, row, "warning" if one_sided else "error"))
    return violations


def _accesses(schedule: Schedule) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return place (node * slots + slot), instruction and whether it writes, for each slot that an instruction touches."""
    code = schedule.code
    src, dst = schedule.slots
    here, far = schedule.rank, code.peer
    rows: list[tuple[np.ndarray, np.ndarray, np.ndarray, bool]] = []
    at = np.flatnonzero(one_of(code.kind, READS_SRC))
    remote = one_of(code.kind[at], (Opcode.GET, Opcode.READ_REDUCE))
    rows.append((at, np.where(remote, far[at], here[at]), src[at], False))
    at = np.flatnonzero(one_of(code.kind, WRITES_DST))
    rows.append((at, np.where(code.kind[at] == Opcode.PUT, far[at], here[at]), dst[at], True))
    for i in np.flatnonzero(one_of(code.kind, SWITCHED)).tolist():
        members, buffer = schedule.groups[code.peer[i]]
        nodes = np.array(members, np.int64)
        every = np.full(len(nodes), i)
        if code.kind[i] != Opcode.STORE:
            rows.append((every, nodes, schedule.bases[nodes, buffer] + code.src[i], False))
        if code.kind[i] != Opcode.LOAD:
            changed = nodes != here[i] if puts_back(schedule, i) else np.ones(len(nodes), bool)
            rows.append((every[changed], nodes[changed], schedule.bases[nodes[changed], buffer] + code.dst[i], True))
    slots = schedule.moves.slots
    places, owners, writes = [], [], []
    for instruction, node, slot, is_write in rows:
        span = code.count[instruction]
        inner = np.arange(span.sum()) - np.repeat(np.cumsum(span) - span, span)
        places.append(np.repeat(node * slots + slot, span) + inner)
        owners.append(np.repeat(instruction, span))
        writes.append(np.full(len(inner), is_write))
    return np.concatenate(places), np.concatenate(owners), np.concatenate(writes)


def _hazards(schedule: Schedule, wave: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of instructions that must be ordered: last write before each access, reads before each write."""
    slot, owner, writes = _accesses(schedule)
    order = np.lexsort((writes, wave[owner], slot))
    return hazards_between(slot[order], owner[order], writes[order])


def _unordered(schedule: Schedule, wave: np.ndarray, before: np.ndarray, after: np.ndarray) -> list[tuple[int, int]]:
    """Return the pairs (later, earlier) between which there is no chain, by a clock per thread block."""
    watched = np.unique(schedule.code.block[before])
    per_round = max(int(MOST_CLOCKS // max(len(schedule.code), 1)), 1)
    pairs: list[tuple[int, int]] = []
    for begin in range(0, len(watched), per_round):
        chosen = watched[begin : begin + per_round]
        column = np.full(len(schedule.blocks), -1)
        column[chosen] = np.arange(len(chosen))
        clocks = _clocks(schedule, wave, column, len(chosen))
        mine = np.flatnonzero(column[schedule.code.block[before]] >= 0)
        seen = clocks[after[mine], column[schedule.code.block[before[mine]]]]
        late = mine[seen < before[mine]]
        pairs += zip(after[late].tolist(), before[late].tolist(), strict=True)
    return sorted(pairs)


def _clocks(schedule: Schedule, wave: np.ndarray, column: np.ndarray, width: int) -> np.ndarray:
    """Return, per instruction, the last instruction of each watched thread block that surely comes before it (or is it)."""
    n = len(schedule.code)
    clocks = np.full((n, width), -1, np.int32)
    own = column[schedule.code.block]
    mine = np.flatnonzero(own >= 0)
    clocks[mine, own[mine]] = mine
    before, after = schedule.order.certain()
    by = np.argsort(wave[after], kind="stable")
    before, after = before[by], after[by]
    bounds = np.searchsorted(wave[after], np.arange(wave.max(initial=0) + 2))
    for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        np.maximum.at(clocks, after[start:stop], clocks[before[start:stop]])
    return clocks


# ------------------------------------------------------------------------------------------------------------- places
def located(schedule: Schedule, violation: Violation) -> Violation:
    """Return a violation found in the steps, at the instruction of the file that does it."""
    moves, rank, slot = schedule.moves, violation.rank, violation.chunk
    here = np.flatnonzero(moves.step == violation.step)
    if not len(here):
        return violation
    reads = (moves.src[here] == rank) & (moves.chunk[here] <= slot) & (slot < moves.chunk[here] + moves.span[here])
    writes = (moves.dst[here] == rank) & (moves.to[here] <= slot) & (slot < moves.to[here] + moves.span[here])
    for match in (reads if violation.rule == "undefined" else writes, moves.dst[here] == rank):
        if match.any():
            row = int(moves.instruction[here[np.flatnonzero(match)[0]]])
            _, threadblock, step = schedule.place(row)
            text = f"thread block {threadblock}: {violation.message}"
            chunk, letter = slot, ""
            if violation.rule in ("undefined", "conflict"):
                chunk, letter = _in_buffer(schedule, rank, slot)
            text += f" (buffer {letter})" if letter else ""
            return dataclasses.replace(violation, message=text, step=step, chunk=chunk)
    return violation


def _in_buffer(schedule: Schedule, rank: int, slot: int) -> tuple[int, str]:
    """Return the chunk and buffer that a slot is; -1 for a FIFO."""
    for letter, base, size in zip(LETTERS, schedule.bases[rank].tolist(), schedule.sizes[rank].tolist(), strict=True):
        if base <= slot < base + size:
            return slot - base, letter
    return -1, ""
