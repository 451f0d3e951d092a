"""The answer of synthesis: a row for each method and size, what beats it, and which program is best at which size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from ringwright.algorithms.searching import Deadline
from ringwright.bounds.certificates import Certificate, certificate
from ringwright.bounds.lower_bounds import Bound, lowest
from ringwright.bounds.routed_bounds import routed_s
from ringwright.calls.provenance import asked_of
from ringwright.engines.choose import simulate
from ringwright.executors.fan_out import fan_out
from ringwright.ground.errors import InfeasibleError, ProgramError, RingwrightError, UsageError
from ringwright.search.ahead import NEAR, Ahead, gap_of
from ringwright.search.question import BEST, USUAL, FoundProgram, SynthesisSpec, methods
from ringwright.search.replan import Replanned, TimedFind, cut_off, replanned
from ringwright.search.rivals import RivalRow, rivals_for, rivals_of

if TYPE_CHECKING:
    from ringwright.executors.fan_out import Chosen, FanOut
    from ringwright.ground.stepwise import Advance
    from ringwright.model.program import Program

SCHEMA = "ringwright.synthesise/1"
STOPPED = "stopped before it had found a program"


@dataclass(frozen=True)
class SynthesisedRow:
    """A program that a method found, its time beside the bound, and what is proved of both."""

    method: str
    size_bytes: int
    time_us: float
    bound_us: float
    gap: float  # time over bound, less one
    certificate: Certificate
    bound_kind: str
    algbw_gbs: float
    steps: int
    chunks: int
    trees: int | None
    height: int | None
    synthesis_s: float
    stopped: bool
    verified: bool | None  # None: more than the interpreter follows in a minute
    kept: bool  # found before, and read from a file
    engine: str
    knobs: Mapping[str, object]
    proof: Bound = field(repr=False)
    routed_us: float | None = (
        None  # what no program of the group is faster than along its routes; where the gap is above 1 %
    )


@dataclass(frozen=True)
class Synthesised:
    """All that was found for a question: rows, what declined, all other algorithms' times, and the best program of each size."""

    question: SynthesisSpec
    rows: tuple[SynthesisedRow, ...]
    declined: tuple[Mapping[str, object], ...]
    rivals: tuple[RivalRow, ...]
    regions: tuple[Mapping[str, object], ...]
    programs: Mapping[int, Program]
    by_method: Mapping[tuple[int, str], Program]  # all that was found, by size and method
    faults: tuple[Replanned, ...] = ()
    stopped: bool = False  # by a person, before all was searched and timed

    @property
    def largest(self) -> SynthesisedRow:
        """The row of the largest size: the fastest of them."""
        return min(self.rows, key=lambda row: (-row.size_bytes, row.time_us))

    def _healthy(self, size_bytes: int) -> dict[str, float] | None:
        """Return what was found at a size on the machine without its faults; None where it has none."""
        return next(({"time_us": each.healthy_us} for each in self.faults if each.size_bytes == size_bytes), None)

    def document(self) -> dict[str, object]:
        """Return the object of schema ``ringwright.synthesise/1``."""
        return {
            "schema": SCHEMA,
            "asked": asked_of(self.question.topology, {row.method: None for row in self.rows}, seed=self.question.seed),
            "collective": self.question.op,
            "fabric": self.question.topology.name,
            "ranks": self.question.collective(0).p,
            "link_model": self.question.link_model,
            "stopped": self.stopped,
            "rows": [_plain(row) | {"healthy": self._healthy(row.size_bytes)} for row in self.rows],
            "declined": list(self.declined),
            "rivals": [asdict(row) for row in self.rivals],
            "regions": list(self.regions),
            "fault": [each.document() for each in self.faults],
            "ground": {
                "engine": sorted({row.engine for row in self.rows}),
                "link_model": self.question.link_model,
                "left_out": ["what a library's software adds to a message"],
                "bound": "computed without the synthesiser, from the links' rates and latencies alone",
            },
        }


def synthesise(
    question: SynthesisSpec,
    sizes: Sequence[int],
    method: str = USUAL,
    *,
    rivals: bool = True,
    progress: Advance | None = None,
    executor: Chosen | FanOut = None,
) -> Synthesised:
    """Search for programs by each method at each size, prove and time them, and time all other algorithms beside them.

    The usual methods end with the first that comes within 1 % of the bound. Of each size the fastest row comes first.
    A method that finds nothing is among the declined; where none finds anything its error is raised. With the machine as it is
    without faults (``question.healthy``) the program that was found for that runs on the faulty one, beside the new one. Where a
    person stops it (``searching.stoppable``) the answer holds what there is by then; InfeasibleError where that is nothing.
    ``executor`` says who searches and times ahead of each one's turn, as in ``ringwright list executors``.
    """
    asked, person = methods(question.op, method), Deadline(None)
    with fan_out(executor) as fan:
        total = len(sizes) * (len(asked) * (1 + (question.healthy is not None)) + rivals)
        study = _Study(question, asked, Ahead(fan, person), person, progress, total, ends_near=method == USUAL)
        study.search_ahead(sizes, rivals=rivals)
        for size in sizes:
            if not person.passed() or study.ahead.has(question, asked[0], size):
                study.search(size, rivals=rivals)
    if progress is not None:
        progress(total, total, "")
    return study.answer(with_regions=method == BEST)


@dataclass
class _Study:
    """A question on its way to an answer: what was found size by size, and how far it has come."""

    question: SynthesisSpec
    asked: Sequence[str]
    ahead: Ahead
    person: Deadline
    progress: Advance | None
    total: int
    ends_near: bool
    done: int = 0
    finds: dict[int, _SizeFinds] = field(default_factory=dict)
    others: list[RivalRow] = field(default_factory=list)
    faults: list[Replanned] = field(default_factory=list)

    @cached_property
    def questions(self) -> list[SynthesisSpec]:
        """The question, and behind it that of the machine without its faults, where it has any."""
        healthy = self.question.healthy
        return [
            self.question,
            *([replace(self.question, topology=healthy, healthy=None)] if healthy is not None else ()),
        ]

    def tell(self, name: str) -> None:
        """Say what begins."""
        if self.progress is not None:
            self.progress(self.done, self.total, name)
        self.done += 1

    def search_ahead(self, sizes: Sequence[int], *, rivals: bool) -> None:
        """Ask whoever works for all sizes, on the machine without its faults too; of the usual methods one after the other."""
        tell = self.progress
        together = [tuple(self.asked)] if self.ends_near else [(each,) for each in self.asked]
        largest = sorted(sizes, reverse=True)  # they take longest
        asked = [(each, of, size, self.ends_near) for size in largest for each in self.questions for of in together]
        self.ahead.search(asked, tell and (lambda done, _, name: tell(done, self.total, name)))
        others = rivals_for(self.question.op) if rivals else ()
        self.ahead.time(self.question, [(each.slug, size) for size in sizes for each in others])

    def search(self, size: int, *, rivals: bool) -> None:
        """Search for programs of a size, on the machine without its faults too, and time all other algorithms."""
        question, *without_faults = self.questions
        here = self.finds[size] = self._of_size(question, size)
        if without_faults and here.best is not None and not self.person.passed():
            before = self._of_size(without_faults[0], size)
            if before.best is not None:
                self.faults.append(replanned(before.best, here.best, question.topology, question.alpha))
        if rivals and not self.person.passed():
            self.tell("other algorithms")
            best_us = None if here.best is None else here.best.time_us
            self.others += rivals_of(question, size, best_us, self.person, self.ahead.rival)

    def _of_size(self, question: SynthesisSpec, size: int) -> _SizeFinds:
        """Return what each method finds for a size, until one comes near the bound where that is enough."""
        made, person = _SizeFinds(), self.person
        bound = _bound(question, size)
        for each in self.asked:
            is_ahead = self.ahead.has(question, each, size)
            if person.passed() and not is_ahead:
                break
            self.tell("" if is_ahead else each)
            try:
                one = self.ahead.program_of(question, each, size)
                row = _row(question, one, bound)
            except (InfeasibleError, UsageError, ProgramError) as error:
                made.errors.append(error)
                why, remedy = (STOPPED, "") if person.passed() else (error.what, error.remedy)
                made.declined.append({"method": each, "size_bytes": size, "reason": why, "remedy": remedy})
                continue
            if row.stopped:
                person.passed()
            made.rows.append(row)
            made.programs[each] = one.program
            if made.best is None or row.time_us < made.best.time_us:
                made.best = TimedFind(row.method, one.program, row.time_us, row.bound_us)
            if self.ends_near and row.gap <= NEAR:
                break
        return made

    def answer(self, *, with_regions: bool) -> Synthesised:
        """Return what there is by now; where that is nothing its error is raised."""
        finds = self.finds
        rows = sorted(chain(*(each.rows for each in finds.values())), key=lambda row: (row.size_bytes, row.time_us))
        if not rows:
            stopped = self.person.stopped
            raise (
                _nothing(self.question, self.asked)
                if stopped
                else next(chain(*(each.errors for each in finds.values())))
            )
        return Synthesised(
            self.question,
            tuple(rows),
            tuple(why for each in finds.values() for why in each.declined),
            tuple(self.others),
            tuple(regions(rows, self.others) if with_regions else ()),
            {size: each.best.program for size, each in finds.items() if each.best is not None},
            {(size, name): program for size, each in finds.items() for name, program in each.programs.items()},
            tuple(self.faults),
            self.person.stopped,
        )


@dataclass
class _SizeFinds:
    """What the methods found for one size, and the fastest of it."""

    rows: list[SynthesisedRow] = field(default_factory=list)
    declined: list[Mapping[str, object]] = field(default_factory=list)
    errors: list[RingwrightError] = field(default_factory=list)
    programs: dict[str, Program] = field(default_factory=dict)
    best: TimedFind | None = None


def _nothing(question: SynthesisSpec, asked: Sequence[str]) -> InfeasibleError:
    return InfeasibleError(
        f"stopped before {', '.join(asked)} had found a program for {question.op}",
        remedy="let it search for longer, or give it a time: --budget 60s",
    )


def _bound(question: SynthesisSpec, size: int) -> Bound:
    """Return what no program is faster than; raise InfeasibleError where ranks are cut off, by a fault or as the machine is."""
    collective = question.collective(size)
    try:
        return lowest(collective, question.topology, alpha=question.alpha)
    except InfeasibleError as error:
        if question.healthy is None:
            raise
        raise cut_off(collective, question.topology, error) from None


def _plain(row: SynthesisedRow) -> dict[str, object]:
    """Return a row for JSON: the bound stands there as its certificate."""
    return {name: value for name, value in asdict(row).items() if name != "proof"}


def _row(question: SynthesisSpec, one: FoundProgram, bound: Bound) -> SynthesisedRow:
    program, topology = one.program, question.topology
    time_s, engine, size = one.time_s, one.engine, program.collective.size_bytes
    if time_s is None:
        run = simulate(program, topology, alpha=question.alpha)
        time_s, engine = run.time_s, run.engine
    gap = gap_of(time_s, bound)
    routed = routed_s(program.collective, topology) if gap > NEAR else None
    knobs = dict(program.knobs)
    trees, height = knobs.get("trees"), knobs.get("height")
    return SynthesisedRow(
        one.method,
        size,
        time_s * 1e6,
        bound.time_s * 1e6,
        gap,
        certificate(bound),
        bound.kind,
        size / time_s / 1e9 if time_s else 0.0,
        program.n_steps,
        program.layout.parts,
        trees if isinstance(trees, int) else None,
        height if isinstance(height, int) else None,
        one.seconds,
        bool(knobs.get("stopped")),
        one.verified,
        one.was_kept,
        engine,
        knobs,
        bound,
        None if routed is None else routed * 1e6,
    )


def regions(rows: Sequence[SynthesisedRow], others: Sequence[RivalRow]) -> list[dict[str, object]]:
    """Return which algorithm is fastest from which size to which, of all that were searched and all others."""
    times: dict[int, dict[str, float]] = {}
    for row in rows:
        times.setdefault(row.size_bytes, {})[row.method] = row.time_us
    for other in others:
        if other.time_us is not None:
            times.setdefault(other.size_bytes, {})[other.algorithm] = other.time_us
    made: list[dict[str, object]] = []
    for size in sorted(times):
        name = min(times[size], key=lambda each: (times[size][each], each))
        if made and made[-1]["algorithm"] == name:
            made[-1]["to_bytes"] = size
        else:
            made.append({"algorithm": name, "from_bytes": size, "to_bytes": size})
    return made
