"""The contract of algorithms: what every one must show, on small fabrics, awkward sizes, and every knob that it declares.

A case is one system, one collective, one group size, one buffer size, one fabric, and values of its knobs; each check of a case
passes, fails with a reason, or is declined by the system itself, openly.
"""

from __future__ import annotations

import inspect
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Knob, knobs_of
from ringwright.model.collective import OPS, ROOTED, Collective
from ringwright.model.registry import System, find, values
from ringwright_lab.contracts.algorithm_checks import CHECKS, moves, same_again, with_steps_kept
from ringwright_lab.contracts.knob_values import declared, settled
from ringwright_lab.contracts.outcome import DECLINED, Outcome, TriedInput, beside, made, raised

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

GROUP_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 32, 64)
SMALL_GROUPS = (1, 2, 3, 4, 5, 6, 8, 12)
KNOB_GROUPS = (2, 3, 4, 6, 8, 12, 16)
# Bytes by name, of the ranks of the group.
SIZES: dict[str, Callable[[int], int]] = {
    "zero": lambda _: 0,
    "one": lambda _: 4,
    "fewer": lambda p: 4 * max(p - 1, 0),
    "more": lambda p: 4 * (p + 1),
    "ragged": lambda _: 4 * 1021,
    "bytes": lambda _: 3001,  # not whole elements
    "even": lambda p: 4 * 24 * p * p,
}
MOST_WITH_KNOBS = 40_000  # moves of a program whose knobs cut it small
FABRICS = ("switch", "full", "ring")
INNER = ("ring", "binomial", "linear", "rabenseifner")  # what is given to a knob that takes another algorithm
EXAMPLE = "ring all-reduce p=7 size=ragged fabric=full root=0 knobs=channels=2"


@dataclass(frozen=True)
class AlgorithmCase:
    """One thing to try; ``str(case)`` replays it. A fabric without a size has as many ranks as the group.

    ``knobs`` are as they are typed, ``channels=2:segments=4``.
    """

    slug: str
    op: str
    p: int
    size: str
    fabric: str = "switch"
    root: int = 0
    knobs: str = ""

    def __str__(self) -> str:
        knobs = f" knobs={self.knobs}" if self.knobs else ""
        return f"{self.slug} {self.op} p={self.p} size={self.size} fabric={self.fabric} root={self.root}{knobs}"

    @classmethod
    def parsed(cls, text: str) -> AlgorithmCase:
        """Return the case that ``str`` wrote; UsageError for anything else."""
        try:
            slug, op, *settings = text.split()
            given = dict(setting.split("=", 1) for setting in settings)
            root, knobs = int(given.get("root", 0)), given.get("knobs", "")
            return cls(slug, op, int(given["p"]), given["size"], given["fabric"], root, knobs)
        except (ValueError, KeyError):
            raise UsageError(f"'{text}' is not a case", remedy=f"as in: {EXAMPLE}") from None

    def collective(self) -> Collective:
        """Return the collective of the case."""
        return Collective(self.op, range(self.p), SIZES[self.size](self.p), root=self.root)


def cases(chosen: Iterable[System], group_sizes: Sequence[int] = GROUP_SIZES) -> Iterator[AlgorithmCase]:
    """Yield the full campaign over each system as it is, no knob set."""
    for system in chosen:
        for op, p, size, fabric in itertools.product(system.ops, group_sizes, SIZES, system.fabrics or FABRICS):
            if p > ranks_of(fabric):
                continue
            for root in {0, p - 1, p // 2} if op in ROOTED else {0}:
                yield AlgorithmCase(system.slug, op, p, size, fabric, root)


def pairwise(chosen: Iterable[System], seed: int, group_sizes: Sequence[int] = GROUP_SIZES) -> Iterator[AlgorithmCase]:
    """Yield a seeded part in which every pair of (group size, buffer size, fabric) meets for each system and collective."""
    generator = random.Random(seed)  # noqa: S311 - a choice of tests
    for system in chosen:
        for op in system.ops:
            seen: set[tuple[object, object]] = set()
            fabrics = system.fabrics or FABRICS
            every = [each for each in itertools.product(group_sizes, SIZES, fabrics) if each[0] <= ranks_of(each[2])]
            generator.shuffle(every)
            for p, size, fabric in every:
                pairs = {(p, size), (p, fabric), (size, fabric)}
                if pairs <= seen:
                    continue
                seen |= pairs
                yield AlgorithmCase(system.slug, op, p, size, fabric, generator.randrange(p) if op in ROOTED else 0)


def over_knobs(chosen: Iterable[System], seed: int, draws: int = 2) -> Iterator[AlgorithmCase]:
    """Yield cases in which every knob that can be typed takes both its ends, each of its words, and ``draws`` values more.

    Every value meets each collective of the system; ``draws`` cases more set two knobs at once.
    """
    for system in chosen:
        if system.problem is None:
            yield from knob_cases(system.slug, system.ops, system.knobs(), system.fabrics or FABRICS, seed, draws)


def few_over_knobs(chosen: Iterable[System], seed: int, per_knob: int = 2) -> Iterator[AlgorithmCase]:
    """Yield a seeded part: each knob of each system ``per_knob`` times, with some collective."""
    for system in chosen:
        every: dict[str, list[AlgorithmCase]] = {}
        for case in over_knobs([system], seed, 1):
            every.setdefault(case.knobs.partition("=")[0], []).append(case)
        draw = random.Random(f"{system.slug} {seed}")  # noqa: S311 - a choice of tests
        for cases in every.values():
            yield from draw.sample(cases, min(per_knob, len(cases)))


def knob_cases(
    slug: str, ops: Sequence[str], knobs: Mapping[str, Knob], fabrics: Sequence[str], seed: int, draws: int
) -> Iterator[AlgorithmCase]:
    """Yield the cases over the knobs of one algorithm; none where it has none that can be typed."""
    typable = [knob for knob in knobs.values() if knob.can_be_typed]
    draw = random.Random(f"{slug} {seed}")  # noqa: S311 - a choice of tests
    for op in ops:
        alone = [(knob, text) for knob in typable for text in (*settled(knob, INNER), *[""] * draws)]
        pairs = [tuple(draw.sample(typable, 2)) for _ in range(draws)] if len(typable) > 1 else []
        for settings in (*([each] for each in alone), *([(knob, "") for knob in pair] for pair in pairs)):
            fabric = draw.choice(fabrics)
            p = draw.choice([each for each in KNOB_GROUPS if each <= ranks_of(fabric)])
            said = [f"{knob.name}={text or declared(knob, draw, p, INNER)}" for knob, text in settings]
            root = draw.randrange(p) if op in ROOTED else 0
            yield AlgorithmCase(slug, op, p, draw.choice(tuple(SIZES)), fabric, root, ":".join(said))


@cache
def machine(fabric: str) -> Topology:
    """Return a fabric of the campaign, made once: some hundred, of at most a few dozen ranks."""
    from ringwright.fabrics import fabric as build

    return build(fabric)


@cache
def ranks_of(fabric: str) -> int:
    """Return the ranks of a fabric that names its size, as ``dgx-h100:2``; those that do not have as many as the case."""
    return machine(fabric).n_ranks if ":" in fabric else 1 << 30


def check(case: AlgorithmCase) -> Outcome:
    """Run every check of a case on its system and fabric."""
    return examine(case, find(case.slug).load())


def examine(case: AlgorithmCase, algorithm: Callable[..., Program]) -> Outcome:
    """Run every check of a case on any algorithm."""
    outcome = Outcome(case)
    topology = machine(case.fabric if ":" in case.fabric else f"{case.fabric}:{case.p}")
    if case.knobs:
        try:
            said = values(case.slug, knobs_of(inspect.unwrap(algorithm)), case.knobs.split(":"), where=case.knobs)
        except UsageError as error:
            outcome.failed["knobs"] = f"refuses what it declares: {error.what}"
            return outcome
        algorithm = partial(algorithm, **said)
    program, why = made(lambda: algorithm(case.collective(), topology))
    if program is None:
        outcome.note("program", why or "it returned None, not a Program")
        return outcome
    if (strange := _not_a_program(program)) is not None:
        outcome.note("program", strange)
        return outcome
    if case.knobs and moves(program, MOST_WITH_KNOBS) > MOST_WITH_KNOBS:
        outcome.note("program", f"{DECLINED}more than {MOST_WITH_KNOBS:,} moves")
        return outcome
    outcome.run("same-again", partial(same_again, program, kept := with_steps_kept(program)))
    for name, look in CHECKS.items():
        outcome.run(name, partial(look, kept, topology))
    return outcome


def _not_a_program(made: object) -> str | None:
    from ringwright.model.program import Program

    return None if isinstance(made, Program) else f"it returned {type(made).__name__}, not a Program"


def offered(algorithm: Callable[..., object]) -> tuple[str, ...]:
    """Return the collectives that an algorithm declares: ``OPS`` on it or in its module; UsageError for none or unknown ones."""
    name, ops = getattr(algorithm, "__name__", "the algorithm"), beside(algorithm, "OPS")
    listed = ", ".join(OPS)
    if not ops:
        remedy = f'write OPS = ("all-reduce",) beside it, of: {listed}'
        raise UsageError(f"{name} declares no OPS: nobody knows which collectives it does", remedy=remedy)
    strange = [op for op in ops if op not in OPS]
    if strange:
        raise UsageError(f"{name} declares '{strange[0]}', which is no collective", remedy=f"one of: {listed}")
    return ops


def check_algorithm(
    algorithm: Callable[..., Program],
    ops: Sequence[str] = (),
    *,
    group_sizes: Sequence[int] = SMALL_GROUPS,
    sizes: Sequence[str] = tuple(SIZES),
    fabrics: Sequence[str] = (),
    knobs: bool = True,
    seed: int = 0,
) -> list[Outcome]:
    """Return the outcome of every check on an algorithm of your own; ``failures`` of them lists what is wrong.

    Checked are rules, results, bounds, declared cost and repeatability, over collectives, group sizes, buffer sizes, fabrics
    and knobs.

    Parameters
    ----------
    algorithm
        A callable ``(collective, topology, **knobs) -> Program``.
    ops
        Collectives to try, such as ``all-reduce``; none: those that ``OPS`` beside the algorithm names.
    group_sizes
        Numbers of ranks.
    sizes
        Names of buffer sizes: keys of ``ringwright_lab.contracts.algorithm.SIZES``, which work out bytes from the group's size.
    fabrics
        Families of machines, such as ``switch``, or with their size, ``torus:2x2``; none: those of ``FABRICS`` beside the
        algorithm, else plain ones.
    knobs
        Whether to try each knob of its signature too: both ends of its range, each of its words, and values drawn.
    seed
        Of the values that are drawn.

    Returns
    -------
    list of Outcome
        One a case. What the algorithm openly refuses (UsageError, InfeasibleError) is declined, what it raises otherwise
        failed: nothing is raised here.

    Examples
    --------
    >>> import ringwright
    >>> from ringwright_lab.testing import check_algorithm, failures
    >>> ring = ringwright.algorithm("ring")
    >>> outcomes = check_algorithm(ring, ["all-reduce"], group_sizes=[3], sizes=["ragged"], fabrics=["switch"], knobs=False)
    >>> [str(each.case) for each in outcomes], failures(outcomes)
    (['algorithm all-reduce p=3 size=ragged fabric=switch root=0'], [])
    """
    name = getattr(algorithm, "__name__", "algorithm").replace("_", "-")
    try:
        asked = tuple(ops) or offered(algorithm)
        declared_knobs = knobs_of(inspect.unwrap(algorithm)) if knobs else {}
    except Exception as error:  # noqa: BLE001 - a signature of others may hold anything
        why = error.what if isinstance(error, UsageError) else raised(error)
        return [Outcome(TriedInput(name), failed={"declared": why})]
    where = tuple(fabrics) or beside(algorithm, "FABRICS") or FABRICS
    plain = (
        AlgorithmCase(name, op, p, size, fabric, root)
        for op, p, size, fabric in itertools.product(asked, group_sizes, sizes, where)
        if p <= ranks_of(fabric)
        for root in sorted({0, p - 1} if op in ROOTED else {0})
    )
    return [
        examine(case, algorithm) for case in (*plain, *knob_cases(name, asked, declared_knobs, where, seed, draws=1))
    ]
