"""Every classic building block: legal, right on real data, exact in bytes, and as many rounds as its closed form says."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from ringwright.ground.errors import UsageError
from ringwright.model import interpreter
from ringwright.model.collective import REDUCING, ROOTED, Collective
from ringwright.model.program import Op, Program
from ringwright.model.validity import check

pytestmark = pytest.mark.once

RANKS = [*range(1, 10), 12, 16, 17]
BLOCKS = """allgather_reduce binary_tree binomial bruck butterfly chain direct double_ring in_order_binary knomial linear
neighbor_exchange nonoverlapping pairwise pipeline rabenseifner recursive_doubling recursive_halving recursive_multiplying ring
scatter_allgather segmented_ring sparbit split_binary_tree two_level""".split()
KNOBS: dict[str, list[dict[str, Any]]] = {
    "bruck": [{}, {"radix": 3}, {"radix": 4}],
    "knomial": [{}, {"radix": 2, "segment_bytes": 12}, {"radix": 3}],
    "chain": [{}, {"fanout": 1}, {"fanout": 3, "segment_bytes": 16}],
    "pipeline": [{}, {"segment_bytes": 16}],
    "binary_tree": [{}, {"fanout": 3, "segment_bytes": 16}],
    "binomial": [{}, {"segment_bytes": 16}],
    "in_order_binary": [{}, {"segment_bytes": 16}],
    "split_binary_tree": [{}, {"segment_bytes": 16}],
    "recursive_multiplying": [{}, {"radix": 3}, {"radix": 4}],
    "direct": [{}, {"window": 3}],
    "pairwise": [{}, {"xor": True}],
    "scatter_allgather": [{}, {"gather": "ring"}],
    "segmented_ring": [{"segment_bytes": 0}, {"segment_bytes": 8}],
    "ring": [{}, {"channels": 2}],
    "rabenseifner": [{}, {"radix": 3}, {"radix": 4}],
}


def block(name: str) -> Any:
    return getattr(importlib.import_module(f"ringwright.algorithms.blocks.{name}"), name)


def offered(name: str) -> tuple[str, ...]:
    ops: tuple[str, ...] = importlib.import_module(f"ringwright.algorithms.blocks.{name}").OPS
    return ops


def build(name: str, collective: Collective, knobs: dict[str, Any]) -> Program | None:
    """Return the program, or None where the block declines this number of ranks."""
    try:
        program: Program = block(name)(collective, **knobs)
    except UsageError:
        return None
    return program


def counts(p: int) -> list[int]:
    return sorted({0, 1, p - 1, p, p + 1, 7 * p + 3})


def sent_bytes(program: Program) -> int:
    sent = 0
    for step in program.steps():
        for moves in step.blocks:
            if moves.op is not Op.COPY:
                src, dst, chunk, _ = moves.arrays()
                chunk = chunk[src != dst]  # what is added up in place travels nowhere
                sent += int(program.layout.message_bytes(chunk, moves.span).sum())
    return sent


def assert_right(program: Program, *, data: bool = True) -> None:
    """Legal and exact in bytes; with ``data`` also run, against NumPy."""
    collective = program.collective
    assert not check(program), (program.name, program.knobs, collective)
    assert sent_bytes(program) == pytest.approx(program.cost.sent_bytes, abs=1e-6), (program.name, collective)
    if not data:
        return
    given = interpreter.inputs(collective, seed=7)
    found, wanted = interpreter.run(program, given), interpreter.expected(collective, given)
    for rank in range(collective.p):
        for which, values in wanted[rank].items():
            assert np.array_equal(found[rank][which], values), (program.name, collective, rank, which)


CASES = [
    pytest.param(name, op, knobs, id=f"{name}-{op}-{number}")
    for name in BLOCKS
    for op in offered(name)
    for number, knobs in enumerate(KNOBS.get(name, [{}]))
]


@pytest.mark.sampled(40, "knobs")
@pytest.mark.parametrize(("name", "op", "knobs"), CASES)
def test_blocks_do_what_the_collective_says(name: str, op: str, knobs: dict[str, Any]) -> None:
    built = 0
    for p in RANKS:
        sizes = [0] if op == "barrier" else counts(p) if p <= 9 else [1, p + 1] if p <= 17 else [p + 1]
        for count in sizes:
            roots = {0, p // 2, p - 1} if op in ROOTED and count == p + 1 else {p // 3 if op in ROOTED else 0}
            for root in roots:
                program = build(name, Collective(op, range(p), 4 * count, root=root), knobs)
                if program is not None:
                    built += 1
                    assert_right(program, data=count in (1, p + 1) and p <= 12)
    assert built >= 6 or (name, op) == ("rabenseifner", "reduce")


# -------------------------------------------------------------------------------------------------------- order, counts
@pytest.mark.sampled(20)
@pytest.mark.parametrize(
    ("name", "op", "knobs"), [case for case in CASES if case.values[1] in REDUCING and case.values[1] != "barrier"]
)
def test_blocks_keep_the_order_or_refuse(name: str, op: str, knobs: dict[str, Any]) -> None:
    for p in RANKS:
        for root in {0, p // 2, p - 1} if op == "reduce" else {0}:
            collective = Collective(op, range(p), 4 * (p + 1), root=root, commutative=False)
            program = build(name, collective, knobs)
            if program is not None and p > 1 and name != "ring":
                assert not check(program), (name, knobs, p, root)


IN_ORDER = {
    "linear",
    "binomial",
    "knomial",
    "pipeline",
    "in_order_binary",
    "recursive_doubling",
    "recursive_multiplying",
    "rabenseifner",
    "butterfly",
    "allgather_reduce",
    "nonoverlapping",
    "two_level",
}


@pytest.mark.parametrize("name", sorted(IN_ORDER))
def test_blocks_that_claim_order_offer_it(name: str) -> None:
    op = next(op for op in offered(name) if op in ("all-reduce", "reduce", "reduce-scatter"))
    assert build(name, Collective(op, range(7), 28, commutative=False), {}) is not None


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in BLOCKS
        if set(offered(name)) & {"all-gather", "reduce-scatter", "gather", "scatter", "all-to-all"}
    ],
)
def test_blocks_carry_uneven_counts(name: str) -> None:
    rng = np.random.default_rng(3)
    for op in set(offered(name)) & {"all-gather", "reduce-scatter", "gather", "scatter", "all-to-all"}:
        for p in (1, 2, 3, 4, 5, 8, 9, 12):
            if op == "all-to-all":
                rows = tuple(tuple(4 * int(count) for count in row) for row in rng.integers(0, 4, (p, p)))
                collective = Collective(op, range(p), max(sum(row) for row in rows), counts=rows)
            else:
                sizes = tuple(4 * int(count) for count in rng.integers(0, 4, p))
                collective = Collective(op, range(p), sum(sizes), counts=sizes)
            program = build(name, collective, {})
            if program is not None:
                assert_right(program)


# --------------------------------------------------------------------------------------------------------- closed forms
def lg(p: int) -> int:
    return (p - 1).bit_length()


ROUNDS: dict[tuple[str, str], Any] = {
    ("ring", "all-reduce"): lambda p: 2 * (p - 1),
    ("ring", "all-gather"): lambda p: p - 1,
    ("recursive_doubling", "all-reduce"): lambda p: lg(p) + (p & (p - 1) > 0),
    ("rabenseifner", "all-reduce"): lambda p: 2 * (p.bit_length() - 1) + 2 * (p & (p - 1) > 0),
    ("recursive_halving", "reduce-scatter"): lambda p: lg(p) + (p & (p - 1) > 0),
    ("bruck", "all-gather"): lg,
    ("bruck", "all-to-all"): lg,
    ("bruck", "barrier"): lg,
    ("sparbit", "all-gather"): lg,
    ("pairwise", "all-to-all"): lambda p: p - 1,
    ("pairwise", "reduce-scatter"): lambda p: p - 1,
    ("direct", "all-to-all"): lambda p: 1,
    ("binomial", "broadcast"): lg,
    ("binomial", "reduce"): lg,
    ("binomial", "gather"): lg,
    ("binomial", "scatter"): lg,
    ("pipeline", "broadcast"): lambda p: p - 1,
    ("double_ring", "barrier"): lambda p: 2 * p,
    ("linear", "broadcast"): lambda p: 1,
}


@pytest.mark.parametrize(("name", "op"), sorted(ROUNDS))
def test_rounds_are_those_of_the_closed_form(name: str, op: str) -> None:
    for p in range(2, 65):
        program = build(name, Collective(op, range(p), 0 if op == "barrier" else 4 * p * 64), {})
        assert program is not None
        assert program.cost.messages == ROUNDS[name, op](p), p
        sending = [step for step in program.steps() if any(moves.op is not Op.COPY for moves in step.blocks)]
        assert len(sending) == ROUNDS[name, op](p), p


def test_neighbour_exchange_takes_half_of_a_rings_rounds() -> None:
    for p in range(2, 65, 2):
        assert block("neighbor_exchange")(Collective("all-gather", range(p), 64 * p)).n_steps == p // 2
    with pytest.raises(UsageError, match="even number of ranks, not 5"):
        block("neighbor_exchange")(Collective("all-gather", range(5), 64 * 5))


@pytest.mark.parametrize("p", [2, 4, 8, 16, 32, 64])
def test_bytes_are_those_of_the_closed_form(p: int) -> None:
    n = 4 * p * 64
    share = n * (p - 1) / p
    wanted = {
        ("recursive_doubling", "all-reduce"): lg(p) * n,
        ("recursive_doubling", "all-gather"): share,
        ("recursive_doubling", "reduce-scatter"): (lg(p) - (p - 1) / p) * n,
        ("rabenseifner", "all-reduce"): 2 * share,
        ("ring", "all-reduce"): 2 * share,
        ("segmented_ring", "all-reduce"): 2 * share,
        ("recursive_halving", "reduce-scatter"): share,
        ("butterfly", "reduce-scatter"): share,
        ("bruck", "all-gather"): share,
        ("bruck", "all-to-all"): lg(p) * n / 2,
        ("sparbit", "all-gather"): share,
        ("neighbor_exchange", "all-gather"): share,
        ("pairwise", "all-to-all"): share,
        ("direct", "all-to-all"): share,
        ("binomial", "broadcast"): lg(p) * n,
        ("binomial", "gather"): share,
        ("scatter_allgather", "broadcast"): 2 * share,
    }
    for (name, op), size in wanted.items():
        program = block(name)(Collective(op, range(p), n))
        assert program.cost.path_bytes == pytest.approx(size), (name, op)
        if (name, op) not in {("binomial", "broadcast"), ("binomial", "gather"), ("scatter_allgather", "broadcast")}:
            # All ranks send alike, so that all bytes are p times those of one rank.
            assert program.cost.sent_bytes == pytest.approx(p * size), (name, op)


def test_pipeline_of_segments() -> None:
    program = block("pipeline")(Collective("broadcast", range(9), 4096), segment_bytes=256)
    assert program.n_steps == 9 - 2 + 16
    assert program.cost.path_bytes == (9 - 2 + 16) * 256
    best = importlib.import_module("ringwright.algorithms.blocks.pipeline").best_segments
    assert best(18, 1e6, 1e-6, 1e-9) == 126 or best(18, 1e6, 1e-6, 1e-9) == 127
    assert best(2, 1e6, 1e-6, 1e-9) == 1


def test_knomial_takes_the_cards_rounds() -> None:
    for radix in (2, 3, 4, 5):
        for levels in (1, 2, 3):
            program = block("knomial")(Collective("broadcast", range(radix**levels), 64), radix=radix)
            assert program.n_steps == levels * (radix - 1)


def test_recursive_multiplying_of_radix_two_is_recursive_doubling() -> None:
    for p in range(2, 34):
        collective = Collective("all-reduce", range(p), 64)
        ours, theirs = block("recursive_multiplying")(collective), block("recursive_doubling")(collective)
        assert (ours.n_steps, ours.cost.messages, ours.cost.sent_bytes) == (
            theirs.n_steps,
            theirs.cost.messages,
            theirs.cost.sent_bytes,
        )


@pytest.mark.parametrize(
    ("name", "op", "knobs"),
    [
        ("knomial", "broadcast", {"radix": 1}),
        ("chain", "broadcast", {"fanout": 0}),
        ("binary_tree", "broadcast", {"fanout": 1}),
        ("pipeline", "broadcast", {"segment_bytes": -1}),
        ("direct", "all-to-all", {"window": -1}),
        ("pairwise", "all-to-all", {"xor": True}),
        ("scatter_allgather", "broadcast", {"gather": "magic"}),
        ("bruck", "all-gather", {"radix": 0}),
        ("two_level", "all-reduce", {"leaders": 0}),
        ("two_level", "all-reduce", {"hosts": [0, 1]}),
        ("two_level", "all-reduce", {"outer": block("allgather_reduce"), "hosts": [0, 0, 1, 1, 2, 2]}),
        ("nonoverlapping", "reduce-scatter", {"inner": block("rabenseifner")}),
    ],
)
def test_blocks_refuse_what_makes_no_sense(name: str, op: str, knobs: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        block(name)(Collective(op, range(6), 240), **knobs)


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_name_what_they_offer(name: str) -> None:
    other = next(op for op in ("send-recv", "all-to-all") if op not in offered(name))
    with pytest.raises(UsageError, match=f"{name} does no {other}"):
        block(name)(Collective(other, range(4), 64))


@pytest.mark.parametrize("name", BLOCKS)
def test_block_files_say_what_the_law_asks(name: str) -> None:
    text = importlib.import_module(f"ringwright.algorithms.blocks.{name}").__doc__
    assert text is not None
    found = [line.split(":")[0] for line in text.splitlines() if line.split(":")[0] in HEADINGS]
    assert found == HEADINGS


HEADINGS = ["Idea", "Cost", "Knobs", "Holds", "Figure", "Source", "Declines"]
