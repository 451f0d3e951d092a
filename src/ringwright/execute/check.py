"""Whether ranks ended with what the interpreter says: bit for bit, or for reals within what any order of additions allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.execute import data
from ringwright.execute.arithmetic import MANTISSA_BITS, STORED, element, narrow, scale, widen
from ringwright.ground.errors import UsageError
from ringwright.model import interpreter

if TYPE_CHECKING:
    from ringwright.execute.job import NodeResult
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program


@dataclass(frozen=True)
class Difference:
    """The first element that is not what it must be."""

    rank: int
    block: int
    element: int
    got: float
    wanted: float
    wrong: int  # elements in all

    def __str__(self) -> str:
        return (
            f"{self.wrong} elements differ; first: rank {self.rank}, block {self.block}, element {self.element} "
            f"is {self.got:g} instead of {self.wanted:g}"
        )


def gathered(result: NodeResult, collective: Collective) -> dict[int, np.ndarray]:
    """Return what a rank ended with, block by block, as stored; parts that nobody gave are left out.

    Each is of the dtype ``STORED[...]`` of its elements and of shape (elements,).
    """
    kind = np.dtype(STORED[element(collective)])
    blocks: dict[int, np.ndarray] = {}
    for block, begin, part in result.results:
        if block not in blocks:
            blocks[block] = np.zeros(data.block_bytes(collective, block), np.uint8)
        blocks[block][begin : begin + len(part)] = np.frombuffer(part, np.uint8)
    values = {block: raw.view(kind) for block, raw in blocks.items()}
    if collective.reduces and collective.reduce_op == "avg":
        return {block: scale(each, element(collective), collective.p) for block, each in values.items()}
    return values


def against_interpreter(program: Program, answers: Sequence[NodeResult], *, seed: int = 0) -> Difference | None:
    """Compare with the interpreter's run on the same whole numbers, bit for bit; None where all are equal."""
    collective = program.collective
    kind = element(collective)
    given = [
        {block: np.asarray(widen(values, kind), np.float64) for block, values in held.items()}
        for held in data.inputs(collective, seed)
    ]
    wanted = interpreter.run(program, given)
    found = [gathered(answer, collective) for answer in answers[: collective.p]]
    return _first(found, wanted, kind)


def _first(
    results: Sequence[Mapping[int, np.ndarray]], wanted: Sequence[Mapping[int, np.ndarray]], kind: str
) -> Difference | None:
    first: Difference | None = None
    wrong = 0
    for rank, blocks in enumerate(wanted):
        for block, values in blocks.items():
            stored = results[rank].get(block)
            mine = np.zeros(0) if stored is None else np.asarray(widen(stored, kind), np.float64)
            if mine.shape != values.shape:
                return Difference(rank, block, 0, float("nan"), float("nan"), len(values))
            differs = np.flatnonzero(mine != _as_stored(values, kind))
            wrong += len(differs)
            if len(differs) and first is None:
                at = int(differs[0])
                first = Difference(rank, block, at, float(mine[at]), float(values[at]), 0)
    return None if first is None else Difference(first.rank, first.block, first.element, first.got, first.wanted, wrong)


def _as_stored(values: np.ndarray, kind: str) -> np.ndarray:
    """Return results as the element type holds them: averages are rounded, integers wrap around as additions of them do."""
    if kind in MANTISSA_BITS:
        return np.asarray(widen(narrow(values, kind), kind), np.float64)
    wrapped: np.ndarray = np.floor(values).astype(np.int64).astype(STORED[kind]).astype(np.float64)
    return wrapped


def within_order(program: Program, answers: Sequence[NodeResult], *, seed: int = 0) -> Difference | None:
    """Compare results of random reals with the exact ones; None where each is within the bound that holds for any order.

    UsageError for products, for which there is no such bound.
    """
    collective = program.collective
    kind = element(collective)
    if collective.reduces and collective.reduce_op == "prod":
        raise UsageError("products of reals have no bound for every order", remedy="compare whole numbers")
    given = data.inputs(collective, seed, reals=True)
    wrong, first = 0, None
    for rank, answer in enumerate(answers[: collective.p]):
        blocks = gathered(answer, collective)
        for block in collective.final(rank):
            exact, bound = _exact(program, rank, block, given, seed)
            stored = blocks.get(block, np.zeros(0, STORED[kind]))
            if stored.shape != exact.shape:
                return Difference(rank, block, 0, float("nan"), float("nan"), len(exact))
            numbers = np.asarray(widen(stored, kind), np.float64)
            far = np.flatnonzero(~(np.abs(numbers - exact) <= bound))
            wrong += len(far)
            if len(far) and first is None:
                at = int(far[0])
                first = (rank, block, at, float(numbers[at]), float(exact[at]))
    return None if first is None else Difference(*first, wrong)


def _given(
    collective: Collective, rank: int, given: Sequence[dict[int, np.ndarray]]
) -> Sequence[dict[int, np.ndarray]]:
    """Return what is added up for a rank."""
    return given[: len(collective.contributors(rank))] if collective.reduces else given


def _exact(
    program: Program, rank: int, block: int, given: Sequence[dict[int, np.ndarray]], seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return a block's result in float64, and how far from it a rank may be: not at all where no order could change it."""
    collective = program.collective
    kind = element(collective)
    if kind not in MANTISSA_BITS or not collective.reduces or collective.reduce_op in ("max", "min"):
        stored = data.expected(collective, block, seed, reals=True, rank=rank)
        return np.asarray(widen(stored, kind), np.float64), np.zeros(len(stored))
    parts = [
        np.asarray(widen(held[block], kind), np.float64) for held in _given(collective, rank, given) if block in held
    ]
    roundings = len(parts) - 1
    bound = data.order_bound(
        parts, 2 * roundings if kind == "float64" else roundings, kind
    )  # the sum here is rounded too
    total: np.ndarray = np.sum(parts, axis=0)
    if collective.reduce_op == "sum":
        return total, bound
    total, bound = total / collective.p, bound / collective.p
    # A division may leave the normal numbers.
    least = np.array([1], f"u{np.dtype(STORED[kind]).itemsize}").view(STORED[kind])
    tiny = float(np.asarray(widen(least, kind), np.float64)[0])
    return total, bound + 2.0 ** -MANTISSA_BITS[kind] * (np.abs(total) + bound) + tiny
