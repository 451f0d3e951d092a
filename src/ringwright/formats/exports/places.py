"""Where the slots of a program lie in the input, output and scratch buffers of each rank, as runtimes name them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringwright.ground.errors import ProgramError
from ringwright.model.program import ADDING, Op
from ringwright.model.validity import placed, unfold

if TYPE_CHECKING:
    from ringwright.model.program import Program

Place = tuple[int, int]  # buffer (0 input, 1 output, 2 scratch), chunk
INPUT, OUTPUT, SCRATCH = range(3)
CARRIED = ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce", "all-to-all")
MOST_MOVES = 2_000_000


@dataclass
class Homes:
    """One rank: the place of each slot, what is copied before the first step and after the last, scratch chunks used.

    ``held`` are the places that hold something before the first step.
    """

    of: dict[int, Place] = field(default_factory=dict)
    first: list[tuple[Place, Place]] = field(default_factory=list)
    last: list[tuple[Place, Place]] = field(default_factory=list)
    scratch: int = 0
    held: set[Place] = field(default_factory=set)

    def home(self, slot: int) -> Place:
        """Return the place of a slot; one that the collective does not name gets a place in scratch."""
        if slot not in self.of:
            self.of[slot] = (SCRATCH, self.scratch)
            self.scratch += 1
        return self.of[slot]


def check_carried(program: Program) -> None:
    """Raise ProgramError where thread blocks cannot carry a program."""
    collective, name = program.collective, program.name
    if collective.op not in CARRIED:
        raise ProgramError(f"{name}: no runtime format has a {collective.op}", remedy=f"one of: {', '.join(CARRIED)}")
    if program.aggregators:
        raise ProgramError(f"{name} aggregates in the network, which thread blocks of this format cannot ask for")
    moves = 0
    for number, step in enumerate(program.steps()):
        moves += sum(block.count * block.span for block in step.blocks)
        if moves > MOST_MOVES:
            raise ProgramError(f"{name} has more than {MOST_MOVES:,} moves", remedy="export it for fewer ranks")
        if any(block.op not in (Op.SEND, Op.REDUCE, Op.COPY) for block in step.blocks):
            raise ProgramError(f"{name} aggregates in the network", where=f"step {number}")
    sizes = program.layout.chunk_bytes
    uneven = len(sizes) > 0 and int(sizes.max()) - int(sizes.min()) > collective.unit_bytes
    if uneven or collective.counts is not None:
        raise ProgramError(f"{name} cuts its data into unequal chunks", remedy="choose an even cut")


def loop_chunks(program: Program) -> int:
    """Return into how many chunks the longer of input and output is cut."""
    chunks = program.layout.n_chunks
    return chunks // program.p if program.collective.op == "all-to-all" else chunks


def find_homes(program: Program, *, in_place: bool) -> list[Homes]:
    """Return the places of all slots, rank by rank."""
    written: list[set[int]] = [set() for _ in range(program.n_nodes)]
    for step in program.steps():
        for block in step.blocks:
            _, dst, _, to = (column.tolist() for column in unfold(block))
            for rank, slot in zip(dst, to, strict=True):
                written[rank].add(slot)
    return [_rank_homes(program, rank, written[rank], in_place=in_place) for rank in range(program.p)]


def _rank_homes(program: Program, rank: int, written: set[int], *, in_place: bool) -> Homes:
    homes = Homes()
    before, after = (
        dict(zip(*(column.tolist() for column in placed(program, rank, after=late)), strict=True))
        for late in (False, True)
    )
    source = {slot: _source(program, rank, chunk, in_place=in_place) for slot, chunk in before.items()}
    target = {slot: _target(program, rank, chunk, in_place=in_place) for slot, chunk in after.items()}
    taken: set[Place] = set(source.values())
    for slot, home in source.items():
        if target.get(slot) == home or (slot not in target and (in_place or slot not in written)):
            homes.of[slot] = home
    for slot, home in target.items():
        if slot not in homes.of and home not in taken:
            homes.of[slot] = home
    homes.first = [(home, homes.home(slot)) for slot, home in source.items() if homes.home(slot) != home]
    homes.held = {homes.home(slot) for slot in source} | set(source.values())
    homes.last = [(homes.home(slot), home) for slot, home in target.items() if homes.home(slot) != home]
    return homes


def _source(program: Program, rank: int, chunk: int, *, in_place: bool) -> Place:
    """Return where a rank's own data lie before."""
    op, p, chunks = program.collective.op, program.p, loop_chunks(program)
    if op == "all-gather":
        return (OUTPUT, chunk) if in_place else (INPUT, chunk - rank * (chunks // p))
    if op == "all-to-all":
        return INPUT, chunk - rank * chunks
    return INPUT, chunk


def _target(program: Program, rank: int, chunk: int, *, in_place: bool) -> Place:
    """Return where a result must lie afterwards; in place, what aliases the input is called by its name there."""
    op, p, chunks = program.collective.op, program.p, loop_chunks(program)
    if op == "all-to-all":
        own = chunks // p
        return OUTPUT, chunk // own // p * own + chunk % own
    if op == "all-gather":
        return OUTPUT, chunk
    if in_place:
        return INPUT, chunk
    return (OUTPUT, chunk - rank * (chunks // p)) if op == "reduce-scatter" else (OUTPUT, chunk)


def buffer_sizes(program: Program, homes: list[Homes], *, in_place: bool) -> list[list[int]]:
    """Return the chunks of each rank's three buffers; an aliased side that nobody names counts as 0."""
    op, p, chunks = program.collective.op, program.p, loop_chunks(program)
    sides = {"all-gather": (chunks // p, chunks), "reduce-scatter": (chunks, chunks // p)}.get(op, (chunks, chunks))
    if in_place:
        sides = (0, sides[1]) if op == "all-gather" else (sides[0], 0)
    return [[*sides, each.scratch] for each in homes]


def is_adding(op: Op) -> bool:
    """Return whether a move adds to its target."""
    return op in ADDING
