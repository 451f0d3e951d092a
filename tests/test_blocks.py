"""Every building block: legal, right on real data, exact in bytes, and as many rounds as its closed form says."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import numpy as np
import pytest

from ringwright import interpreter
from ringwright.algorithms import blocks
from ringwright.collective import Collective
from ringwright.errors import UsageError
from ringwright.program import Op, Program
from ringwright.validity import check

RANKS = [*range(1, 18), 24, 32, 48, 64]
BLOCKS = sorted(module.name for module in pkgutil.iter_modules(blocks.__path__))
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
                chunk = moves.arrays()[2]
                sent += int(program.layout.message_bytes(chunk, moves.span).sum())
    return sent


def assert_right(program: Program) -> None:
    collective = program.collective
    assert not check(program), (program.name, program.knobs, collective)
    given = interpreter.inputs(collective, seed=7)
    found, wanted = interpreter.run(program, given), interpreter.expected(collective, given)
    for rank in range(collective.p):
        for which, values in wanted[rank].items():
            assert np.array_equal(found[rank][which], values), (program.name, collective, rank, which)
    assert sent_bytes(program) == pytest.approx(program.cost.sent_bytes, abs=1e-6), (program.name, collective)


CASES = [
    pytest.param(name, op, knobs, id=f"{name}-{op}-{number}")
    for name in BLOCKS
    for op in offered(name)
    for number, knobs in enumerate(KNOBS.get(name, [{}]))
]


@pytest.mark.parametrize(("name", "op", "knobs"), CASES)
def test_blocks_do_what_the_collective_says(name: str, op: str, knobs: dict[str, Any]) -> None:
    built = 0
    for p in RANKS:
        sizes = [0] if op == "barrier" else counts(p) if p <= 17 else [p + 1, 7 * p + 3]
        for count in sizes:
            for root in {0, p // 2, p - 1} if op in ("broadcast", "reduce", "gather", "scatter") else {0}:
                program = build(name, Collective(op, range(p), 4 * count, root=root), knobs)
                if program is not None:
                    built += 1
                    assert_right(program)
    assert built >= 6
