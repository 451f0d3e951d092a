"""Programs that add up and copy in one switch, as plans with switch channels.

What all ranks contribute and one takes is a load through the switch (``glres`` into a local buffer); what one contributes
and all take is a store through it (``gstore``); both at once is one ``glres``. All ranks meet before the first and after
the last of these. Segments that overlap become one operation after the other.
Source: microsoft/mscclpp (test/executor-tests/execution-plans/reduce_nvls.json).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringwright.formats.exports.places import Place, find_homes
from ringwright.ground.errors import ProgramError
from ringwright.model.program import Op
from ringwright.model.threadblocks.table import LETTERS
from ringwright.model.validity import unfold

if TYPE_CHECKING:
    from ringwright.model.program import Program

Taken = dict[tuple[int, int], dict[int, Place]]  # node, slot -> rank -> place


@dataclass(frozen=True)
class SwitchOperation:
    """A switch operation that ``rank`` asks for: from all, or from itself; to all, or to itself."""

    rank: int
    name: str
    src: Place
    dst: Place
    gathers: bool
    spreads: bool


def switch_operations(program: Program, *, in_place: bool) -> list[SwitchOperation]:
    """Return the operations in order; raise ProgramError where a plan has none that does the same."""
    homes = find_homes(program, in_place=in_place)
    if any(each.first or each.last for each in homes):
        raise ProgramError(f"{program.name} would have to copy before or after the switch", remedy="export it in place")
    switch_ops: list[SwitchOperation] = []
    given: Taken = {}
    for number, step in enumerate(program.steps()):
        took: Taken = {}
        for block in step.blocks:
            if block.op not in (Op.CONTRIBUTE, Op.EMIT):
                raise ProgramError(f"{program.name} does more than the switch can", where=f"step {number}")
            gives = block.op is Op.CONTRIBUTE
            for src, dst, chunk, to in zip(*(column.tolist() for column in unfold(block)), strict=True):
                rank, slot, at_switch = (src, chunk, (dst, to)) if gives else (dst, to, (src, chunk))
                (given if gives else took).setdefault(at_switch, {})[rank] = homes[rank].home(slot)
        for switch_slot, takers in took.items():
            switch_ops.append(_operation(program, given.pop(switch_slot, {}), takers, number))
    _check_order(program, switch_ops)
    return switch_ops


def _operation(program: Program, givers: dict[int, Place], takers: dict[int, Place], step: int) -> SwitchOperation:
    every = program.p
    gathers, spreads = len(givers) == every, len(takers) == every
    sources, targets = set(givers.values()), set(takers.values())
    alone = next(iter(takers)) if not spreads else next(iter(givers), 0)
    fits = len(sources) == len(targets) == 1 and (gathers or len(givers) == 1) and (spreads or len(takers) == 1)
    if not fits or not (gathers or spreads):
        what = f"{len(givers)} of {every} ranks give and {len(takers)} take"
        raise ProgramError(f"{program.name}: {what}, which is no operation of a plan", where=f"step {step}")
    source, target = sources.pop(), targets.pop()
    if gathers and spreads:
        alone = source[1] % every
    name = "glres" if gathers else "gstore"
    return SwitchOperation(alone, name, source, target, gathers, spreads)


def _check_order(program: Program, operations: list[SwitchOperation]) -> None:
    """Raise ProgramError where an operation needs what another rank asked for: there is nothing between them."""
    writer: dict[Place, int] = {}
    for each in operations:
        if writer.setdefault(each.src, each.rank) != each.rank or writer.setdefault(each.dst, each.rank) != each.rank:
            raise ProgramError(f"{program.name}: two ranks ask the switch for the same chunk")


def switch_gpu(rank: int, p: int, operations: list[SwitchOperation]) -> dict[str, Any]:
    """Return the channels and the one thread block of a rank."""
    peers = [peer for peer in range(p) if peer != rank]
    letters = sorted({LETTERS[slot[0]] for each in operations for slot in _switched(each)})
    every = list(range(len(peers)))
    meet = [_mark("signal", every), {"name": "nop"}, _mark("wait", every), {"name": "nop"}]
    mine = [_plan_operation(each, letters) for each in operations if each.rank == rank]
    spaced = [each for operation in mine for each in (operation, {"name": "nop"})]
    return {
        "threadblocks": [
            {
                "id": 0,
                "ops": [*meet, *spaced, *meet[:3]],
                "channels": [
                    {"channel_type": "memory", "channel_ids": every},
                    {"channel_type": "switch", "channel_ids": list(range(len(letters)))},
                ],
                "remote_buffer_refs": [],
            }
        ],
        "channels": [
            {"channel_type": "memory", "connected_to": peers},
            *(
                {"channel_type": "switch", "buffer_type": letter, "rank_groups": [{"size": 1, "ranks": list(range(p))}]}
                for letter in letters
            ),
        ],
        "remote_buffers": [],
        "semaphores": [],
    }


def _switched(operation: SwitchOperation) -> list[Place]:
    """Return the places that lie behind the switch."""
    return [slot for slot, used in ((operation.src, operation.gathers), (operation.dst, operation.spreads)) if used]


def _plan_operation(operation: SwitchOperation, letters: list[str]) -> dict[str, Any]:
    operands = []
    for (buffer, index), switched in ((operation.src, operation.gathers), (operation.dst, operation.spreads)):
        letter = LETTERS[buffer]
        where: dict[str, Any] = {"switch_channel_id": letters.index(letter)} if switched else {"type": letter}
        operands.append({**where, "index": index, "size": 1})
    made: dict[str, Any] = {"name": operation.name, "src_buff": operands[:1], "dst_buff": operands[1:]}
    return {**made, "channel_type": "switch", **({"reduce_op": "sum"} if operation.gathers else {})}


def _mark(name: str, channels: list[int]) -> dict[str, Any]:
    return {"name": name, "channel_ids": channels, "channel_type": "memory"}
