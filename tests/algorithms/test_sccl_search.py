"""SCCL's search against one that tries everything; symmetry, batches, budgets, Ctrl-C, the same program twice."""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from fractions import Fraction

import pytest

from ringwright.algorithms.searching import Deadline
from ringwright.algorithms.synthesis.sccl import _automorphisms, answers, sccl
from ringwright.algorithms.synthesis.sccl.model import AskedSearch, Model, RoundsSchedule
from ringwright.algorithms.synthesis.sccl.pipelined import batches
from ringwright.algorithms.synthesis.sccl.question import RoundsQuestion, question_of
from ringwright.bounds.round_limits import RoundLimit, UnitLinks, wires_of
from ringwright.fabrics import fabric
from ringwright.ground.errors import InfeasibleError
from ringwright.model.collective import Collective
from small_fabrics import wrong

pytestmark = pytest.mark.once  # nothing here is compiled
NEVER = Deadline(None)


def question(on: str, op: str, root: int = 0) -> RoundsQuestion:
    top = fabric(on)
    collective = Collective(op, range(top.n_ranks), 1 << 20, root=root)
    return question_of(collective, wires_of(top, collective.group), op)


def keeps(asked: RoundsQuestion, schedule: RoundsSchedule) -> None:
    """Hold a schedule against the rules: causal, complete, within all limits; no solver's word is taken."""
    held = {(flow, chunk, src) for flow, (src, _) in enumerate(asked.flows) for chunk in range(schedule.asked.chunks)}
    assert len(schedule.lasts) == schedule.asked.steps
    assert sum(schedule.lasts) == schedule.asked.rounds
    for step, lasts in enumerate(schedule.lasts):
        sends = [each for each in schedule.sends if each[0] == step]
        arrived = set()
        for _, edge, flow, chunk in sends:
            here, there = asked.wires.edges[edge]
            assert (flow, chunk, here) in held
            assert (flow, chunk, there) not in held | arrived
            arrived.add((flow, chunk, there))
        for limit in asked.wires.limits:
            assert sum(limit.edges.count(edge) for _, edge, _, _ in sends) <= limit.chunks * lasts
        held |= arrived
    assert all(
        (flow, chunk, end) in held
        for flow, (_, ends) in enumerate(asked.flows)
        for end in ends
        for chunk in range(schedule.asked.chunks)
    )


# ------------------------------------------------------------------------------------------------- tried in every way
def reachable(asked: RoundsQuestion, chunks: int, steps: int, rounds: int) -> bool:
    """Try all ways to send, step by step: what ranks may hold afterwards."""
    every = [(flow, chunk) for flow in range(len(asked.flows)) for chunk in range(chunks)]
    start = frozenset((flow, chunk, asked.flows[flow][0]) for flow, chunk in every)
    goal = {(flow, chunk, end) for flow, chunk in every for end in asked.flows[flow][1]}
    for lasts in itertools.product(range(1, rounds + 1), repeat=steps):
        if sum(lasts) != rounds:
            continue
        states = {start}
        for each in lasts:
            states = {after for state in states for after in _after(asked.wires, state, each)}
        if any(goal <= state for state in states):
            return True
    return False


def _after(
    wires: UnitLinks, state: frozenset[tuple[int, int, int]], lasts: int
) -> Iterator[frozenset[tuple[int, int, int]]]:
    """Yield what may be held after a step in which every edge carries as much as it can; one limit an edge."""
    options = []
    for edge, (here, there) in enumerate(wires.edges):
        useful = [(f, c, there) for f, c, rank in sorted(state) if rank == here and (f, c, there) not in state]
        options.append(list(itertools.combinations(useful, min(len(useful), wires.limits[edge].chunks * lasts))))
    for chosen in itertools.product(*options):
        yield state.union(*chosen)


def small(draw: random.Random) -> UnitLinks:
    """Return a machine of 3 or 4 ranks that is strongly connected, each edge with a limit of its own."""
    p = draw.choice((3, 3, 4))
    edges = {(rank, (rank + 1) % p) for rank in range(p)}
    edges |= {(a, b) for a, b in itertools.permutations(range(p), 2) if draw.random() < 0.3}
    limits = tuple(RoundLimit((edge,), draw.choice((1, 1, 2))) for edge in range(len(edges)))
    return UnitLinks(p, tuple(sorted(edges)), limits)


@pytest.mark.parametrize("seed", range(12))
def test_the_search_says_what_trying_everything_says(seed: int) -> None:
    draw = random.Random(seed)
    wires = small(draw)
    op = draw.choice(("all-gather", "broadcast", "gather", "all-to-all") if wires.p == 3 else ("broadcast", "gather"))
    asked = question_of(Collective(op, range(wires.p), 96), wires, op)
    told = set()
    for chunks, steps in itertools.product((1, 2) if op == "broadcast" else (1,), (1, 2, 3)):
        for rounds in range(steps, 5):
            made = answers.answer(asked, AskedSearch(chunks, steps, rounds), 0, NEVER)
            assert (made.schedule is not None) == reachable(asked, chunks, steps, rounds), (op, wires, made)
            assert (made.schedule is None) == bool(made.proof)
            told.add(made.schedule is not None)
            if made.schedule:
                keeps(asked, made.schedule)
    assert told == {True, False}


# ---------------------------------------------------------------------------------------------------------- symmetries
@pytest.mark.parametrize(
    ("on", "order"),
    [("torus:4x4", 16), ("dgx-1:1", 4), ("hypercube:8", 8), ("ring:7", 7), ("mesh:3x2", 2), ("switch:6", 6)],
)
def test_permutations_map_the_machine_onto_itself_and_fix_no_rank(on: str, order: int) -> None:
    top = fabric(on)
    wires = wires_of(top, range(top.n_ranks))
    group = _automorphisms.closed(wires.p, _automorphisms.free_group(wires))
    assert len(group) == order
    limits = {(limit.edges, limit.chunks) for limit in wires.limits}
    for made in group:
        images = _automorphisms.edge_images(wires, made)
        assert {(tuple(sorted(images[e] for e in edges)), chunks) for edges, chunks in limits} == limits
        assert made == tuple(range(wires.p)) or all(made[rank] != rank for rank in range(wires.p))


def test_a_broken_link_leaves_fewer_permutations() -> None:
    """With one edge at half rate nothing takes that edge to another one."""
    wires = wires_of(fabric("ring:6"), range(6))
    limits = tuple(RoundLimit(each.edges, 2 - (number == 0)) for number, each in enumerate(wires.limits))
    assert _automorphisms.free_group(UnitLinks(6, wires.edges, limits)) == ()


def test_permutations_keep_what_links_share() -> None:
    """All edges of a ring that turns one way look alike; two and two share a limit, and a turn by one would part them."""
    edges = ((0, 1), (1, 2), (2, 3), (3, 0))
    apart = tuple(RoundLimit((edge,), 1) for edge in range(4))
    shared = (RoundLimit((0, 1), 1), RoundLimit((2, 3), 1))
    orders = [
        len(_automorphisms.closed(4, _automorphisms.free_group(UnitLinks(4, edges, each)))) for each in (apart, shared)
    ]
    assert orders == [4, 2]


@pytest.mark.parametrize(
    ("on", "op", "asked"),
    [
        ("dgx-1:1", "all-gather", (6, 3, 7)),
        ("torus:4x4", "all-gather", (4, 4, 15)),
        ("dgx-1:1", "all-to-all", (3, 8, 8)),
        ("dgx-a100:2", "all-gather", (2, 3, 3)),
        ("dgx-1:1", "broadcast", (18, 5, 5)),
        ("switch:6", "all-to-all", (1, 1, 5)),
    ],
)
def test_schedules_keep_the_rules(on: str, op: str, asked: tuple[int, int, int]) -> None:
    wanted = question(on, op)
    made = answers.answer(wanted, AskedSearch(*asked), 0, NEVER)
    assert made.schedule is not None
    keeps(wanted, made.schedule)


def test_batches_follow_each_other() -> None:
    """As many chunks as one likes, h - 1 steps more than the bound; fewer in the last batch, idle steps behind it."""
    wanted = question("dgx-1:1", "broadcast", root=3)
    each = batches(wanted, 0, NEVER)[0]
    size, height = each.schedule.asked.chunks, each.schedule.asked.steps
    assert (size, each.period) == (6, 1)
    for chunks, more in ((1, 0), (6, 0), (13, 2), (24, 5)):
        steps = each.steps(chunks)
        assert steps == height + -(-chunks // 6) - 1
        schedule = each.repeated(AskedSearch(chunks, steps + more, steps + 2 * more))
        assert schedule is not None
        keeps(wanted, schedule)
    assert each.repeated(AskedSearch(13, each.steps(13) - 1, 99)) is None
    assert batches(question("dgx-1:1", "gather"), 0, NEVER) == ()


def test_batches_further_apart_are_shorter() -> None:
    """Below a switch a chain takes 7 steps; two chunks every two steps take fewer, and fit between each other."""
    wanted = question("switch:8", "broadcast", root=1)
    chain, pair = batches(wanted, 0, NEVER)
    assert (chain.period, pair.period) == (1, 2)
    assert pair.schedule.asked.steps < chain.schedule.asked.steps == 7
    for chunks in (2, 7, 16):
        schedule = pair.repeated(AskedSearch(chunks, pair.steps(chunks), pair.steps(chunks)))
        assert schedule is not None
        keeps(wanted, schedule)


def test_the_fewest_rounds_of_a_model_are_the_fewest() -> None:
    wanted = question("ring:5", "all-gather")
    made, _ = Model(wanted, AskedSearch(1, 2, 30), fewest=True).solve(5.0, 0, NEVER)
    assert isinstance(made, RoundsSchedule)
    keeps(wanted, made)
    assert made.asked.rounds == 2
    assert not answers.answer(wanted, AskedSearch(1, 2, 1), 0, NEVER).schedule


# ------------------------------------------------------------------------------------------------ budgets, Ctrl-C, again
def test_a_budget_ends_the_search_with_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best so far, told as stopped, and not kept for those who ask again without a budget."""
    top = fabric("dgx-1:1")
    gather = Collective("all-gather", range(8), 4096)
    monkeypatch.setattr(answers, "_KNOWN", {})
    stop_after(monkeypatch, 2)
    cut_short = sccl(gather, top)
    assert cut_short.knobs["stopped"] is True
    assert wrong(cut_short) == ""
    monkeypatch.undo()
    assert sccl(gather, top).knobs["frontier"] == "(2,2,3) (6,3,7)"


def stop_after(monkeypatch: pytest.MonkeyPatch, searches: int) -> None:
    """Let the deadline pass once so many searches were made."""
    solve, made = Model.solve, []

    def counted(model: Model, work: float, seed: int, deadline: Deadline) -> tuple[RoundsSchedule | bool | None, float]:
        made.append(1)
        answered = solve(model, work, seed, deadline)
        if len(made) >= searches:
            deadline.interrupted()
        return answered

    monkeypatch.setattr(Model, "solve", counted)


def test_nothing_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_KNOWN", {})
    monkeypatch.setattr(Deadline, "left_s", property(lambda _: 0.0))
    with pytest.raises(InfeasibleError, match="sccl found no algorithm within its budget") as error:
        sccl(Collective("all-gather", range(8), 4096), fabric("dgx-1:1"), budget=0.001)
    assert "--budget" in error.value.remedy


def test_ctrl_c_ends_a_search_in_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that CP-SAT needs long for; the interrupt reaches the thread that waits, which stops the solver."""
    import _thread

    from ringwright.algorithms import solving

    wanted, deadline = question("mesh:4x4", "all-to-all"), Deadline(None)
    model = Model(wanted, AskedSearch(1, 6, 16), detour=0)
    monkeypatch.setattr(solving, "LISTENS_S", 0.01)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins with it ignored
    try:
        timer = threading.Timer(0.5, _thread.interrupt_main)
        timer.start()
        made, spent = model.solve(200.0, 0, deadline)
    finally:
        signal.signal(signal.SIGINT, before)
    assert made is None
    assert deadline.stopped
    assert spent < 200


def test_two_processes_make_the_same_program() -> None:
    """With other hash seeds, as sets and dictionaries of names would show."""
    text = (
        "import json;from ringwright.fabrics import fabric;from ringwright.model.collective import Collective;"
        "from ringwright.algorithms.synthesis.sccl import sccl;t=fabric('hypercube:8');"
        "p=sccl(Collective('all-gather',range(8),4096),t);"
        "print(json.dumps([[a.tolist() for a in b.arrays()] for s in p.steps() for b in s.blocks]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", text], env={"PYTHONHASHSEED": "1"}, capture_output=True, check=True, text=True
    )
    told = json.loads(ran.stdout)
    here = sccl(Collective("all-gather", range(8), 4096), fabric("hypercube:8"))
    assert told == [[each.tolist() for each in block.arrays()] for step in here.steps() for block in step.blocks]
    assert len(told) == 3


def test_the_seed_changes_the_search_and_not_the_frontier() -> None:
    top = fabric("hypercube:8")
    gather = Collective("all-gather", range(8), 4096)
    frontiers = {sccl(gather, top, seed=seed).knobs["frontier"] for seed in (0, 1, 2)}
    assert frontiers == {"(3,3,7)"}


def test_asked_for_more_than_is_weighed() -> None:
    """A model too large is not made; what smaller ones say stands."""
    wanted = question("dgx-1:1", "all-to-all")
    assert answers.size(wanted, AskedSearch(100, 50, 300)) > answers.MOST_VARIABLES
    made = answers.answer(wanted, AskedSearch(100, 50, 300), 0, NEVER, 0.01)
    assert made.schedule is None
    assert not made.proof
    assert "weighs at most" in made.why
    assert Fraction(300, 100) > wanted.rounds.per_chunk
