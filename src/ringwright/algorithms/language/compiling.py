"""From a script to a declared program: instructions, fusion, channels, an order, thread blocks, instances.

What it makes cannot lock up, for its order is one in which everything can run; where fusion leaves no such order, the messages
that are in each other's way get another channel, and where that does not help nothing is fused.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.language.blocks import Threads
from ringwright.algorithms.language.flows import channels_of, flows_of
from ringwright.algorithms.language.fusing import fusable, fused
from ringwright.algorithms.language.instances import Replication
from ringwright.algorithms.language.ordering import by_turn
from ringwright.algorithms.language.script import ChunkScript
from ringwright.algorithms.language.tape import Tape, WrittenLines, lowered
from ringwright.ground.errors import UsageError
from ringwright.model.program import Program
from ringwright.model.threadblocks import Blocks, Opcode, Schedule, declared
from ringwright.model.threadblocks.buffers import PER_RANK, arrange_for
from ringwright.model.threadblocks.laying import Assigned
from ringwright.model.threadblocks.msccl import DEPTH, MOST_AWAITED, MOST_CHANNELS
from ringwright.model.validity import require

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ringwright.model.collective import Collective

MOST_REPAIRS = 8


def compiled(
    write: Callable[[ChunkScript], object],
    collective: Collective,
    *,
    name: str = "",
    chunks: int | None = None,
    in_place: bool | None = None,
    **options: object,
) -> Program:
    """Return the program that ``write`` writes into a script for this collective; ``options`` are those of ``compile_script``."""
    script = ChunkScript(collective, chunks=chunks, in_place=in_place)
    write(script)
    return compile_script(script, name=name or getattr(write, "__name__", "script"), **options)  # type: ignore[arg-type]


def compile_script(
    script: ChunkScript,
    *,
    name: str = "script",
    instances: int = 1,
    interleaved: bool = False,
    protocol: str = "Simple",
    fuse: bool = True,
    checked: bool = True,
    knobs: Mapping[str, object] | None = None,
) -> Program:
    """Return the program of a script, of ``instances`` side by side.

    ``protocol`` (Simple, LL, LL128) says how many messages a connection holds. Raises ProgramError where the script does not do
    what its collective asks for, or its hints contradict each other. ``checked=False`` leaves the proof to ``validity``.
    """
    if protocol not in DEPTH:
        raise UsageError(f"'{protocol}' is no protocol", remedy=f"one of: {', '.join(DEPTH)}")
    if instances not in range(1, MOST_CHANNELS + 1):
        raise UsageError(f"{instances} instances", remedy=f"1 to {MOST_CHANNELS}: each has channels of its own")
    schedule = scheduled_script(script, instances=instances, interleaved=interleaved, depth=DEPTH[protocol], fuse=fuse)
    chunks = script.chunks * instances
    arranged = arrange_for(script.collective, schedule.sizes, chunks, in_place=script.in_place)
    schedule = dataclasses.replace(schedule, bases=arranged.bases)
    both = int(np.isin(schedule.code.kind, (Opcode.RCS, Opcode.RRS, Opcode.RRCS)).sum())
    told = {**(knobs or {}), "in_place": script.in_place, "instances": instances, "fused": both}
    program = declared(name, arranged, schedule, protocol=protocol, knobs=told)
    return require(program) if checked else program


def scheduled_script(script: ChunkScript, *, instances: int, interleaved: bool, depth: int, fuse: bool) -> Schedule:
    """Return the thread blocks of a script; where their buffers begin is left open (``bases`` are all 0)."""
    operations = WrittenLines.of(script)
    owners = script.ranks if script.collective.op in PER_RANK else 1
    shared = Replication.of(instances, script.chunks // owners, operations, interleaved=interleaved)
    tape, order = _ordered(lowered(shared.cut(operations)), depth, MOST_CHANNELS // instances, fuse=fuse)
    threads = Threads(script, tape, tape.channel)
    tape = dataclasses.replace(tape, tb=threads.assigned(order))
    return dataclasses.replace(_laid(shared, tape, threads, order), depth=depth)


def _ordered(plain: Tape, depth: int, most: int, *, fuse: bool) -> tuple[Tape, np.ndarray]:
    """Return the instructions with their channels, fused where that goes well, and the order in which they can run."""
    none = np.zeros(0, np.int64)
    pairs = fusable(plain) if fuse else (none, none)
    flow = flows_of(plain, pairs)
    barred: dict[int, int] = {}
    for _ in range(MOST_REPAIRS):
        channel, kept = channels_of(plain, pairs, max(most, 1), barred)
        tape = fused(dataclasses.replace(plain, channel=channel), *kept)
        order, late = by_turn(tape, tape.channel, depth)
        if len(order) == len(tape):
            return tape, order
        stays = np.ones(len(plain), bool)
        stays[kept[1]] = False
        movable = [int(flow[number]) for number in np.flatnonzero(stays)[late].tolist() if plain.channel[number] < 0]
        further = int(channel.max()) + 1
        if not movable or further >= most:
            break
        barred |= dict.fromkeys(movable, further)
    channel, _ = channels_of(plain, (none, none), 1, {})
    # Unfused and as it was written: what is sent is received before anything else is done.
    return dataclasses.replace(plain, channel=channel), np.arange(len(plain))


def _laid(shared: Replication, tape: Tape, threads: Threads, order: np.ndarray) -> Schedule:
    """Return the thread blocks of all instances, numbered at each rank, with their instructions in order."""
    number = np.empty(len(tape), np.int64)
    number[order] = np.arange(len(tape))
    whole = shared.replicated(tape)
    n, times = len(tape), np.arange(shared.count)
    order = (times[:, None] * n + order).reshape(-1)
    before, after = ((times[:, None] * n + number[each]).reshape(-1) for each in tape.needs)
    operands = (whole.kind, whole.src_buffer, whole.src, whole.dst_buffer, whole.dst, whole.count)
    table = np.array([(each.rank, each.send, each.recv, max(each.channel, 0)) for each in threads.threads], np.int64)
    table = np.tile(table.reshape(-1, 4), (shared.count, 1))
    channels = int(tape.channel.max(initial=0)) + 1
    table[:, 3] += np.repeat(times, len(threads.threads)) * channels
    block = whole.tb[order]
    first = Assigned(block, np.stack(operands, axis=1)[order], before, after)
    by = np.argsort(table[:, 0], kind="stable")
    if len(table) and np.bincount(table[:, 0]).max() > MOST_AWAITED:  # those that others wait for have low numbers
        by = np.lexsort((~np.isin(np.arange(len(table)), first.awaited()), table[:, 0]))
    row = np.empty(len(table), np.int64)
    row[by] = np.arange(len(table))
    rank, send, recv, channel = (np.ascontiguousarray(column) for column in table[by].T)
    at_rank = np.arange(len(rank)) - np.searchsorted(rank, rank)
    code = dataclasses.replace(first, block=row[block]).code(np.arange(len(table)))
    blocks = Blocks(rank, at_rank, send, recv, channel)
    return Schedule(blocks, code, np.zeros_like(whole.sizes), whole.sizes, 1)
