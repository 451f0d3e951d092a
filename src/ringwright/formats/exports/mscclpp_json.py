"""MSCCL++ execution plans (JSON).

An imported plan is written as it is, in its own dialect. Any other program is scheduled into thread blocks (see
``threadblocks``) and its messages made one-sided: a put into the receiver's scratch and a signal; a wait, and what the
receiver does with it. Each message has its own scratch, each connection a channel of its own over which the receiver
first says that it has begun, so that no call writes into what the one before still reads. Programs that add up in one
switch become switch channels (see ``mscclpp_switch``).
Source: microsoft/mscclpp (src/core/executor/execution_plan.cc).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ringwright.formats.exports.mscclpp_switch import switch_gpu, switch_operations
from ringwright.formats.exports.threadblocks import scheduled
from ringwright.ground.errors import ProgramError
from ringwright.model.threadblocks import Schedule
from ringwright.model.threadblocks.mscclpp import DIALECT
from ringwright.model.threadblocks.table import ADDS_TO_RECEIVED, KEEPS_RECEIVED, LETTERS, RECEIVES, SENDS, Opcode

if TYPE_CHECKING:
    from ringwright.model.program import Program

EXPORTS = {"mscclpp-json": "mscclpp_json"}
READER, LOSS = "ringwright.formats.sources.programs.program_files:read_program", ("cost", "root")  # a file says neither
_COLLECTIVES = {
    "all-reduce": "allreduce",
    "all-gather": "allgather",
    "reduce-scatter": "reducescatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "all-to-all": "alltoall",
}
_TYPE = "memory"
_SCRATCH = 2
Operation = dict[str, Any]
Connection = tuple[int, int, int]  # source, target, channel


def mscclpp_json(program: Program, *, window: tuple[int, int] = (0, 2**64 - 1), in_place: bool | None = None) -> bytes:
    """Return the plan; raise ProgramError where thread blocks cannot carry the program.

    ``window`` holds the least and the largest size of a call in bytes, both included.
    """
    schedule = program.schedule
    if isinstance(schedule, Schedule) and schedule.dialect == DIALECT:
        return _text(schedule.attributes["plan"])
    declared = isinstance(schedule, Schedule)
    if not declared and program.aggregators and program.collective.op in _COLLECTIVES:
        return _text(_switched(program, window, in_place=in_place is not False))
    if not declared:
        program = scheduled(program, in_place=in_place)
        schedule = program.schedule
    known = program.knobs.get("coll", "allreduce") in (*_COLLECTIVES.values(), "reduce_scatter")
    if not isinstance(schedule, Schedule) or schedule.groups or not known or program.collective.op not in _COLLECTIVES:
        raise ProgramError(f"{program.name} is no collective of thread blocks that an MSCCL++ plan can hold")
    return _text(_Writer(program, schedule).plan(window))


def _text(plan: object) -> bytes:
    return json.dumps(plan, indent=2).encode() + b"\n"


def _switched(program: Program, window: tuple[int, int], *, in_place: bool) -> dict[str, Any]:
    """Return the plan of a program that adds up and copies in a switch."""
    operations = switch_operations(program, in_place=in_place)
    chunks = _chunks(program)
    gpus = [
        {"id": rank, **chunks, "scratch_chunks": 0, **switch_gpu(rank, program.p, operations)}
        for rank in range(program.p)
    ]
    return _plan(program, gpus, window, in_place=in_place)


def _chunks(program: Program) -> dict[str, int]:
    """Return the chunks of input and output, neither of which may be 0."""
    op, p = program.collective.op, program.p
    chunks = program.layout.n_chunks // (p if op == "all-to-all" else 1)
    return {
        "input_chunks": chunks // p if op == "all-gather" else chunks,
        "output_chunks": chunks // p if op == "reduce-scatter" else chunks,
    }


def _plan(program: Program, gpus: list[dict[str, Any]], window: tuple[int, int], *, in_place: bool) -> dict[str, Any]:
    return {
        "name": program.name,
        "collective": _COLLECTIVES[program.collective.op],
        "protocol": "Simple",
        "inplace": in_place,
        "reuse_resources": False,
        "gpus": gpus,
        "num_threads_per_block": 1024,
        "use_double_scratch_buffer": False,
        "buffer_alignment": 16,
        "min_message_size": window[0],
        "max_message_size": window[1],
    }


class _Writer:
    """Scratch, channels and semaphores of a program, then the operations of each thread block."""

    def __init__(self, program: Program, schedule: Schedule) -> None:
        self.program, self.schedule = program, schedule
        self.scratch = schedule.sizes[:, _SCRATCH].copy()
        self.received, self.sent = self._regions()
        self.channels = self._channels()
        self.releases, self.acquires, self.semaphores = self._semaphores()

    def plan(self, window: tuple[int, int]) -> dict[str, Any]:
        """Return the whole file."""
        program = self.program
        gpus = [self._gpu(rank) for rank in range(program.p)]
        return _plan(program, gpus, window, in_place=bool(program.knobs.get("in_place")))

    # ------------------------------------------------------------------------------------------------------ resources
    def _regions(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the receiver's scratch chunk of each message, by its receive and by its send."""
        received: dict[int, int] = {}
        sent: dict[int, int] = {}
        order = self.schedule.order
        for send, receive in zip(order.sends.tolist(), order.receives.tolist(), strict=True):
            rank = int(self.schedule.rank[receive])
            received[receive] = sent[send] = int(self.scratch[rank])
            self.scratch[rank] += int(self.schedule.code.count[send])
        return received, sent

    def _channels(self) -> dict[Connection, tuple[int, int]]:
        """Return the place of each connection's channel in the lists of its source and of its target."""
        code, blocks = self.schedule.code, self.schedule.blocks
        used: dict[Connection, None] = {}
        for block, kind in zip(code.block.tolist(), code.kind.tolist(), strict=True):
            rank, channel = int(blocks.rank[block]), int(blocks.channel[block])
            if kind in SENDS:
                used[rank, int(blocks.send[block]), channel] = None
        self.peers: list[list[int]] = [[] for _ in range(self.schedule.p)]
        channels: dict[Connection, tuple[int, int]] = {}
        for source, target, channel in sorted(used):
            channels[source, target, channel] = (len(self.peers[source]), len(self.peers[target]))
            self.peers[source].append(target)
            self.peers[target].append(source)
        return channels

    def _semaphores(self) -> tuple[dict[int, list[int]], dict[int, list[int]], list[int]]:
        """Return, per instruction, the semaphores it releases and acquires, and how many each rank has: one a dependency."""
        releases: dict[int, list[int]] = {}
        acquires: dict[int, list[int]] = {}
        counts = [0] * self.schedule.p
        for row in np.flatnonzero(self.schedule.code.dep >= 0).tolist():
            rank = int(self.schedule.rank[row])
            releases.setdefault(int(self.schedule.code.dep[row]), []).append(counts[rank])
            acquires.setdefault(row, []).append(counts[rank])
            counts[rank] += 1
        return releases, acquires, counts

    # ------------------------------------------------------------------------------------------------------ operations
    def _gpu(self, rank: int) -> dict[str, Any]:
        peers = sorted(set(self.peers[rank]))
        schedule = np.flatnonzero(self.schedule.blocks.rank == rank).tolist()
        return {
            "id": rank,
            **_chunks(self.program),
            "scratch_chunks": int(self.scratch[rank]),
            "threadblocks": [self._block(block, peers) for block in schedule],
            "channels": [{"channel_type": _TYPE, "connected_to": self.peers[rank]}] if peers else [],
            "remote_buffers": [{"rank": peer, "type": "s", "access_channel_types": [_TYPE]} for peer in peers],
            "semaphores": [{"init_value": 0}] * self.semaphores[rank],
        }

    def _block(self, block: int, peers: list[int]) -> dict[str, Any]:
        blocks, code = self.schedule.blocks, self.schedule.code
        rank, send, recv, channel = (int(c[block]) for c in (blocks.rank, blocks.send, blocks.recv, blocks.channel))
        rows = np.flatnonzero(code.block == block).tolist()
        kinds = {int(code.kind[row]) for row in rows}
        out = self.channels.get((rank, send, channel)) if kinds & set(SENDS) else None
        into = self.channels.get((recv, rank, channel)) if kinds & set(RECEIVES) else None
        ids = [slot for slot in (out and out[0], into and into[1]) if slot is not None]
        operations: list[Operation] = []
        if into is not None:
            operations.append(_mark("signal", len(ids) - 1))
        if out is not None:
            operations.append(_mark("wait", 0))
        for row in rows:
            operations += self._instruction(row, len(ids) - 1)
        spaced = [each for operation in operations for each in (operation, {"name": "nop"})][:-1]
        return {
            "id": int(blocks.threadblock[block]),
            "ops": spaced,
            "channels": [{"channel_type": _TYPE, "channel_ids": ids}] if ids else [],
            "remote_buffer_refs": [{"access_channel_type": _TYPE, "remote_buffer_ids": [peers.index(send)]}]
            if out
            else [],
        }

    def _instruction(self, row: int, incoming: int) -> Iterator[Operation]:
        """Yield the operations of one instruction; the channel to the receiver, if any, is the block's first."""
        code = self.schedule.code
        kind, count = Opcode(int(code.kind[row])), int(code.count[row])
        src = _local(int(code.src_buffer[row]), int(code.src[row]), count)
        dst = _local(int(code.dst_buffer[row]), int(code.dst[row]), count)
        for semaphore in self.acquires.get(row, ()):
            yield {"name": "sem_acquire", "semaphore_ids": [semaphore]}
        held = src
        if kind in RECEIVES:
            yield _mark("wait", incoming)
            held = arrived = _local(_SCRATCH, self.received[row], count)
            if kind in ADDS_TO_RECEIVED:
                held = dst if kind in KEEPS_RECEIVED else arrived
                yield {"name": "re", "src_buff": [src, arrived], "dst_buff": [held], "reduce_op": "sum"}
            elif kind in KEEPS_RECEIVED:
                yield {"name": "copy", "src_buff": [arrived], "dst_buff": [dst]}
        if kind in SENDS:
            away = {"buffer_id": 0, "index": self.sent[row], "size": count}
            yield {"name": "put", "src_buff": [held], "dst_buff": [away], "channel_ids": [0], "channel_type": _TYPE}
            yield _mark("signal", 0)
        if kind is Opcode.CPY:
            yield {"name": "copy", "src_buff": [src], "dst_buff": [dst]}
        if kind is Opcode.RE:
            yield {"name": "re", "src_buff": [dst, src], "dst_buff": [dst], "reduce_op": "sum"}
        for semaphore in self.releases.get(row, ()):
            yield {"name": "sem_release", "semaphore_ids": [semaphore]}


def _mark(name: str, channel: int) -> Operation:
    return {"name": name, "channel_ids": [channel], "channel_type": _TYPE}


def _local(buffer: int, index: int, size: int) -> dict[str, Any]:
    return {"type": LETTERS[buffer], "index": index, "size": size}
