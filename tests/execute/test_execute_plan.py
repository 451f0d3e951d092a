"""Plans under any interleaving: the result is the interpreter's, nobody waits for ever, and both ends see the same messages."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections import defaultdict
from typing import Any

import pytest

from declared_programs import MSCCL, MSCCLPP
from plan_oracle import Stuck, verify
from ringwright.algorithms.blocks.ring import ring
from ringwright.execute import arithmetic
from ringwright.execute.backends import ordinary
from ringwright.execute.plan import Do, Extent, Message, NodePlan, plans
from ringwright.execute.push import PIECE_BYTES, WINDOW, Pushed, cut, packed
from ringwright.fabrics import fabric
from ringwright.formats.sources.programs.program_files import read_program
from ringwright.ground.errors import ProgramError, UsageError
from ringwright.model.collective import PER_RANK, REDUCE_OPS, ROOTED, Collective
from ringwright.model.program import Op, Program, Step, explicit
from ringwright.model.registry import System, systems
from ringwright_lab.contracts import real_ranks
from shared_data import needs_shared_data, real

pytestmark = pytest.mark.once

DTYPES = tuple(arithmetic.STORED)
NETWORK = ("collnet-direct", "collnet-chain", "nvls", "nvls-tree", "nvls-collnet")


def drawn(system: System, op: str, chance: random.Random) -> Program | None:
    """Return a program of a drawn size, group, element type and cut; None where the algorithm openly declines it."""
    named = system.fabrics[0] if system.fabrics else "switch"
    p = chance.choice((2, 3, 4, 5, 6, 8))
    topology = fabric(named if ":" in named else f"{named}:{p}")
    p = min(p, topology.n_ranks)
    counts: Any = None
    size = chance.choice((0, 8, 8 * p, 8 * (p + 3), 1000))
    if op in PER_RANK and chance.random() < 0.5:
        counts = tuple(8 * chance.randrange(4) for _ in range(p))
        size = sum(counts)
    if op == "all-to-all" and chance.random() < 0.5:
        counts = tuple(tuple(8 * chance.randrange(4) for _ in range(p)) for _ in range(p))
    group = tuple(chance.sample(range(topology.n_ranks), p))
    root = chance.randrange(p) if op in ROOTED else 0
    size = 0 if op == "barrier" else size
    try:
        return system.load()(
            Collective(op, group, size, chance.choice(DTYPES), chance.choice(REDUCE_OPS), root, counts=counts), topology
        )
    except UsageError:
        return None


@pytest.mark.sampled(8)
@pytest.mark.parametrize("system", systems(), ids=lambda system: system.slug)
def test_any_interleaving_gives_the_interpreters_result(system: System) -> None:
    """Any cut, group and element type; as messages and as groups of messages."""
    chance = random.Random(system.slug)
    for op in system.ops:
        tried = 0
        for at in range(400):  # a node of the network adds few types by few operations: until one is drawn
            if at >= 12 and tried:
                break
            program = drawn(system, op, chance)
            if program is not None and program.n_nodes <= 20:
                verify(program, seed=chance.randrange(1000), groups=chance.random() < 0.4)
                tried += 1
        assert tried, f"nothing of {op} was tried"


@pytest.mark.parametrize("slug", NETWORK)
def test_programs_with_nodes_behind_the_ranks(slug: str) -> None:
    found = [program for case in real_ranks.chosen(slugs=[slug]) if (program := real_ranks.program(case))]
    with_aggregators = [program for program in found if program.aggregators]
    assert with_aggregators
    for seed, program in enumerate(found):
        verify(program, seed=seed)
        verify(program, seed=seed, groups=True)


@needs_shared_data
@pytest.mark.sampled(6, "*")
@pytest.mark.parametrize("name", [*MSCCL[:9], *MSCCL[10:15], *MSCCLPP])
def test_imported_programs(name: str) -> None:
    """Their slots follow no pattern, and some chunks lie in several places."""
    where = f"msccl-xml/{name}.xml" if name in MSCCL else f"mscclpp-json/{name}.json"
    program = read_program(real(f"real/{where}"))
    attributes = program.schedule.attributes  # type: ignore[union-attr]
    if "nchunksperloop" in attributes:
        program = read_program(real(f"real/{where}"), size_bytes=int(attributes["nchunksperloop"]) * 8)
    verify(program, seed=3)
    verify(program, seed=4, groups=True)


def many() -> list[Program]:
    return [program for case in real_ranks.chosen((3,), ("ragged",))[::3] if (program := real_ranks.program(case))]


def test_both_ends_number_and_cut_alike() -> None:
    for program in many():
        made = plans(program)
        ours: dict[tuple[int, int], list[Message]] = defaultdict(list)
        theirs: dict[tuple[int, int], list[Message]] = defaultdict(list)
        for plan in made:
            for message in plan.sends:
                ours[plan.node, message.peer].append(message)
            for message in plan.receives:
                theirs[message.peer, plan.node].append(message)
        assert ours.keys() == theirs.keys()
        for pair, sent in ours.items():
            assert [each.turn for each in sent] == list(range(len(sent))) == [each.turn for each in theirs[pair]]
            for one, other in zip(sent, theirs[pair], strict=True):
                assert (one.step, one.number, one.size) == (other.step, other.number, other.size)
                assert packed(one.runs) == packed(other.runs)
                assert [cut(run, 64) for run in one.runs] == [cut(run, 64) for run in other.runs]


def test_pieces_cover_a_run() -> None:
    for size, piece in itertools.product((1, 63, 64, 65, 1000, PIECE_BYTES + 1), (64, PIECE_BYTES)):
        pieces = cut(Extent(0, 0, size, False, True), piece)
        assert [begin for begin, _ in pieces] == [sum(size for _, size in pieces[:k]) for k in range(len(pieces))]
        assert sum(size for _, size in pieces) == size
        assert all(0 < size <= piece for _, size in pieces)


# ------------------------------------------------------------------------------------------------ wrong plans and programs
def changed(made: list[NodePlan], node: int, **fields: Any) -> list[NodePlan]:
    import msgspec

    return [msgspec.structs.replace(plan, **fields) if plan.node == node else plan for plan in made]


def without(plan: NodePlan, *kinds: Do) -> list[tuple[int, int]]:
    return [each for each in plan.order if each[0] not in kinds]


def moved(*blocks: Any, p: int = 2, size: int = 48, copies: int = 1) -> Program:
    """An all-gather of explicit steps."""
    base = ring(Collective("all-gather", range(p), size))
    layout = dataclasses.replace(base.layout, n_slots=copies * base.layout.n_chunks)
    steps = [Step((block,)) for block in blocks]
    return dataclasses.replace(base, layout=layout, make_steps=lambda: steps, n_steps=len(steps))


def test_the_oracle_sees_a_source_overwritten_too_early() -> None:
    everyone = explicit(Op.SEND, [0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1], [0, 0, 1, 1, 2, 2])
    aside = explicit(Op.SEND, [0], [1], [0], [3])
    over, restored = explicit(Op.SEND, [2], [0], [2], [0]), explicit(Op.SEND, [2], [0], [0])
    program = moved(everyone, aside, over, restored, p=3, copies=2)
    for seed in range(20):
        verify(program, seed=seed)
    made = plans(program)
    late = [*without(made[0], Do.SENT), *(each for each in made[0].order if each[0] == Do.SENT)]
    wrong = changed(made, 0, order=late)
    with pytest.raises(AssertionError, match="overwritten before it had left"):
        any(verify(program, made=wrong, seed=seed) for seed in range(20))


def test_the_oracle_sees_a_deadlock() -> None:
    program = ring(Collective("all-reduce", range(3), 48))
    made = plans(program)
    first = made[1].order
    send = next(number for number, each in enumerate(first) if each[0] == Do.SEND)
    take = next(number for number, each in enumerate(first) if each[0] in (Do.TAKE, Do.GRAB))
    order = [*first[:send], *first[send + 1 : take + 1]]
    with pytest.raises(Stuck, match="2 TAKE 1 step 0"):
        verify(program, made=changed(made, 1, order=order))


def test_a_swap_within_a_step_goes_through_scratch() -> None:
    swap = explicit(Op.SEND, [0, 1], [1, 0], [0, 1], [1, 0])
    program = moved(swap, swap, explicit(Op.SEND, [0, 1], [1, 0], [0, 1]))
    assert sum(what == Do.GRAB for what, _ in plans(program)[0].order) == 2
    for seed in range(30):
        verify(program, seed=seed)


def test_too_small_a_slot_is_refused() -> None:
    """A chunk of 8 B in a scratch slot of 4 B would run over into the next one."""
    away = explicit(Op.SEND, [0], [1], [0], [3])
    with pytest.raises(ProgramError, match="puts 8 B where there is room for 4") as raised:
        plans(moved(away, size=12, copies=2))
    assert raised.value.where == "rank 1, step 0, slot 3"


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(ProgramError, match="sends what is not there"):
        plans(moved(explicit(Op.SEND, [0], [1], [1])))
    with pytest.raises(ProgramError, match="rank 0 ends without chunk 1"):
        plans(moved(explicit(Op.SEND, [0], [1], [0])))


# ----------------------------------------------------------------------------------------------------------- what is posted
class Noted:
    """A wire that only notes what was started."""

    def __init__(self, at_once: bool) -> None:
        self.at_once, self.started = at_once, 0

    def session(self) -> Noted:
        return self

    def send(self, peer: int, turn: int, piece: int, buffer: Any) -> Noted:
        return self

    receive = send

    def start(self) -> None:
        self.started += 1

    def wait(self) -> None:
        """Everything has come."""

    def finish(self) -> None:
        """Nothing to add up."""


@pytest.mark.parametrize(("at_once", "posted"), [(True, 7), (False, WINDOW)])
def test_what_is_added_is_posted_as_the_wire_wants_it(at_once: bool, posted: int) -> None:
    """Seven runs that do not lie together: few at a time, but all together where a step must go as one group."""
    runs = [Extent(at * 16384, at * 8192, 8192, True, False) for at in range(7)]
    plan = NodePlan(
        "x", 1, 2, 1 << 17, [1 << 17] * 2, [(Do.RECV, 0), (Do.TAKE, 0)], [], [Message(0, 0, 0, 0, 0, runs)], [], [], []
    )
    wire = Noted(at_once)
    collective = Collective("all-reduce", range(2), 1 << 17)
    receive, take = Pushed(plan, ordinary(plan.arena_bytes, collective), wire).code
    receive()
    assert wire.started == posted
    take()
    assert wire.started == 7
