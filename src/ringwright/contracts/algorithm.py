"""Conformance: what every system must show, on small fabrics and awkward sizes. If this does not run on it, it does not exist.

A case is one system, one collective, one group size, one buffer size and one fabric; each check of a case passes, fails with a
reason, or is declined by the system itself, openly.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ringwright import interpreter, validity
from ringwright.collective import OPS, ROOTED, Collective
from ringwright.errors import RingwrightError, UsageError
from ringwright.registry import System, find, systems

if TYPE_CHECKING:
    from ringwright.program import Program
    from ringwright.topology import Topology

GROUP_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 32, 64)
# Elements per rank of the group, and a few that no group divides.
SIZES: dict[str, Callable[[int], int]] = {
    "zero": lambda _: 0,
    "one": lambda _: 4,
    "fewer": lambda p: 4 * max(p - 1, 0),
    "more": lambda p: 4 * (p + 1),
    "ragged": lambda _: 4 * 1021,
    "bytes": lambda _: 3001,  # not whole elements
    "even": lambda p: 4 * 24 * p * p,
}
FABRICS = ("switch", "full", "ring")
MOST_MOVES = 400_000


@dataclass(frozen=True)
class Case:
    """One thing to try; ``str(case)`` replays it. A fabric without a size has as many ranks as the group."""

    slug: str
    op: str
    p: int
    size: str
    fabric: str = "switch"
    root: int = 0

    def __str__(self) -> str:
        return f"{self.slug} {self.op} p={self.p} size={self.size} fabric={self.fabric} root={self.root}"

    @classmethod
    def parsed(cls, text: str) -> Case:
        """Return the case that ``str`` wrote; UsageError for anything else."""
        try:
            slug, op, *settings = text.split()
            given = dict(setting.split("=", 1) for setting in settings)
            return cls(slug, op, int(given["p"]), given["size"], given["fabric"], int(given.get("root", 0)))
        except (ValueError, KeyError):
            remedy = "as in: ring all-reduce p=7 size=ragged fabric=full root=0"
            raise UsageError(f"'{text}' is not a case", remedy=remedy) from None

    def collective(self) -> Collective:
        """Return the collective of the case."""
        return Collective(self.op, range(self.p), SIZES[self.size](self.p), root=self.root)


@dataclass
class Outcome:
    """Checks of one case: passed names, and reasons of those declined or failed."""

    case: Case
    passed: list[str] = field(default_factory=list)
    declined: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def cases(chosen: Iterable[System], group_sizes: Sequence[int] = GROUP_SIZES) -> Iterator[Case]:
    """Yield the full campaign."""
    for system in chosen:
        for op, p, size, fabric in itertools.product(system.ops, group_sizes, SIZES, system.fabrics or FABRICS):
            if p > ranks_of(fabric):
                continue
            for root in {0, p - 1, p // 2} if op in ROOTED else {0}:
                yield Case(system.slug, op, p, size, fabric, root)


def pairwise(chosen: Iterable[System], seed: int, group_sizes: Sequence[int] = GROUP_SIZES) -> Iterator[Case]:
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
                yield Case(system.slug, op, p, size, fabric, generator.randrange(p) if op in ROOTED else 0)


def ranks_of(fabric: str) -> int:
    """Return the ranks of a fabric that names its size, as ``dgx-h100:2``; those that do not have as many as the case."""
    from ringwright.fabrics import fabric as build

    return build(fabric).n_ranks if ":" in fabric else 1 << 30


def check(case: Case) -> Outcome:
    """Run every check of a case on its system and fabric."""
    return examine(case, find(case.slug).load())


def examine(case: Case, algorithm: Callable[..., Program]) -> Outcome:
    """Run every check of a case on any algorithm."""
    from ringwright.fabrics import fabric

    outcome = Outcome(case)
    topology = fabric(case.fabric if ":" in case.fabric else f"{case.fabric}:{case.p}")
    try:
        program = algorithm(case.collective(), topology)
    except UsageError as error:
        outcome.declined["program"] = error.what
        return outcome
    except RingwrightError as error:
        outcome.failed["program"] = str(error)
        return outcome
    for name, look in CHECKS.items():
        try:
            reason = look(program, topology)
        except RingwrightError as error:
            reason = str(error)
        if reason is None:
            outcome.passed.append(name)
        elif reason.startswith("declined: "):
            outcome.declined[name] = reason.removeprefix("declined: ")
        else:
            outcome.failed[name] = reason
    return outcome


def tally(outcomes: Iterable[Outcome]) -> dict[str, dict[str, int]]:
    """Return checks passed, declined and failed per system."""
    counts = {system.slug: {"passed": 0, "declined": 0, "failed": 0} for system in systems()}
    for outcome in outcomes:
        row = counts[outcome.case.slug]
        row["passed"] += len(outcome.passed)
        row["declined"] += len(outcome.declined)
        row["failed"] += len(outcome.failed)
    return counts


# ------------------------------------------------------------------------------------------------------- the checks
def _legal(program: Program, topology: Topology) -> str | None:
    """The table of rules, the declared bytes and number of steps among them."""
    del topology
    found = validity.check(program)
    return "; ".join(map(str, found[:3])) or None


def _right(program: Program, topology: Topology) -> str | None:
    """Real data through the interpreter equal NumPy over all ranks at once."""
    del topology
    if sum(step.count for step in program.steps()) > MOST_MOVES:
        return f"declined: more than {MOST_MOVES:,} moves"
    given = interpreter.inputs(program.collective, seed=program.p)
    wanted = interpreter.expected(program.collective, given)
    for rank, (have, want) in enumerate(zip(interpreter.run(program, given), wanted, strict=True)):
        if have.keys() != want.keys():
            return f"rank {rank} holds blocks {sorted(have)[:5]}, not {sorted(want)[:5]}"
        wrong = [block for block in want if not np.array_equal(have[block], want[block])]
        if wrong:
            return f"rank {rank} has the wrong data in block {wrong[0]}"
    return None


def _same_again(program: Program, topology: Topology) -> str | None:
    """Two generations are the same, move by move."""
    del topology
    for number, (one, two) in enumerate(zip(program.steps(), program.steps(), strict=True)):
        for left, right in zip(one.blocks, two.blocks, strict=True):
            if not all(map(np.array_equal, left.arrays(), right.arrays())):
                return f"step {number} differs from one time to the next"
    return None


def _timed(program: Program, topology: Topology) -> str | None:
    """It ends on the fabric, and not before the bounds of physics allow."""
    from ringwright.costs.bounds import bound
    from ringwright.engines.choose import simulate

    run = simulate(program, topology, engine="events")
    least = bound(program.collective, topology, exact=False, in_network=bool(program.aggregators))
    if run.time_s < least.time_s * (1 - 1e-9):
        return f"{run.time_s * 1e6:.3f} us is less than the bound {least.time_s * 1e6:.3f} us ({least.kind})"
    return None


def _closed_form(program: Program, topology: Topology) -> str | None:
    """Where no rank ever sends or receives two messages at once, the declared cost is the time on ideal links."""
    from ringwright.engines.choose import simulate

    if not _one_port(program) or not program.cost.is_even or program.p < 2 or program.aggregators:
        return "declined: several messages at once, or an uneven cut"
    from ringwright.program import NO_SOFTWARE

    del topology
    alpha_s, rate = 1e-6, 1e10
    bare = dataclasses.replace(program, software=NO_SOFTWARE)
    have = simulate(bare, _one_port_machine(program.p, alpha_s, rate), engine="events", alpha="busy").time_s
    want = program.cost.messages * alpha_s + program.cost.path_bytes / rate
    slack = 1e-6 * want + 1e-11 * program.n_steps
    # In groups that are no power of two some ranks are ahead, and channels side by side fill each other's gaps: there the
    # critical path may be shorter than the formula's.
    exact = program.p & (program.p - 1) == 0 and program.channels == 1
    if have > want + slack or have < (want - slack if exact else want / 2):
        return f"declared {want * 1e6:.6f} us, measured {have * 1e6:.6f} us"
    return None


def _one_port_machine(p: int, alpha_s: float, rate: float) -> Topology:
    """Return a switch whose uplinks are busy for alpha + bytes, so that a rank sends one message after the other."""
    from ringwright.fabrics import fabric

    machine = fabric(f"switch:{p}", rate=rate)
    up = machine.src < p
    return dataclasses.replace(machine, latency_s=np.where(up, alpha_s, 0.0))


def _one_port(program: Program) -> bool:
    for step in program.steps():
        pairs = {(int(s), int(d)) for block in step.blocks for s, d in zip(*block.arrays()[:2], strict=True) if s != d}
        if len({s for s, _ in pairs}) < len(pairs) or len({d for _, d in pairs}) < len(pairs):
            return False
    return True


CHECKS: dict[str, Callable[[Program, Topology], str | None]] = {
    "legal": _legal,
    "right": _right,
    "same-again": _same_again,
    "timed": _timed,
    "closed-form": _closed_form,
}
assert set(ROOTED) < set(OPS)  # noqa: S101 - both lists are ours
