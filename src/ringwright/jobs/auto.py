"""``--policy auto``: which policy, or which of them joined, makes the shortest step in the memory that a rank has.

Tried are all schedulers that a machine of today can carry out, as they ship, then each word that a knob of those that gain may
be, then these joined by two and by three, the fastest first, until so many were tried. What a policy schedules is not simulated
where it is what another one scheduled, or where the least that its step can take shows that it changes neither the frontier nor
what is tried next. No wall clock and no draw: the same job gets the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

from ringwright.graph.memory import peak_bytes
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Knob
from ringwright.jobs.memory import device_bytes, fitting
from ringwright.jobs.step_bound import least_step_s
from ringwright.jobs.study import DECLINES, NONE, Job, answer, scheduled_by
from ringwright.model.registry import schedulers, values
from ringwright.model.stages import Costs
from ringwright.model.workload import Workload

AUTO = "auto"
TRIES, MOST_TRIES = 64, 10_000
JOINED = 5  # the fastest policies that are joined with each other
SHOWN = 8  # rows of the frontier
WORSE = 1.02  # a policy that makes a step longer by more is joined with no other
SURE = 1 - 2e-3  # of the least that a step can take: steps count as steady to a thousandth


@dataclass(frozen=True)
class TriedPolicy:
    """A policy that was tried: seconds of a step and bytes of a rank at its peak (None: not known), or why it declined.

    Without seconds and without a reason it was not simulated: its step takes ``least_s`` or more. Nor was what makes the
    same of the step as ``same_as``.
    """

    policy: str
    step_s: float | None
    peak_bytes: int | None = None
    declined: str = ""
    least_s: float | None = None
    same_as: str = ""


@dataclass(frozen=True)
class PolicySearch:
    """Everything that was tried, in its order; the frontier of time and memory, the fastest first; whether more was left."""

    tried: tuple[TriedPolicy, ...]
    frontier: tuple[str, ...]
    stopped: bool
    left_out: tuple[tuple[str, str], ...] = ()  # schedulers that were not tried, and the hardware that they need

    @property
    def pruned(self) -> int:
        """How many were scheduled and not simulated."""
        return sum(each.least_s is not None for each in self.tried)

    @property
    def alike(self) -> int:
        """How many made the same of the step as one that was simulated."""
        return sum(bool(each.same_as) for each in self.tried)

    def document(self) -> dict[str, Any]:
        """Return it for ``--json``, times in microseconds."""
        return {
            "tried": [
                {
                    "policy": each.policy,
                    "step_us": None if each.step_s is None else each.step_s * 1e6,
                    "peak_memory_bytes": each.peak_bytes,
                    "declined": each.declined or None,
                    "least_us": None if each.least_s is None else each.least_s * 1e6,
                    "same_as": each.same_as or None,
                }
                for each in self.tried
            ],
            "pruned": self.pruned,
            "alike": self.alike,
            "frontier": list(self.frontier),
            "stopped": self.stopped,
            "left_out": [{"policy": policy, "needs": needs} for policy, needs in self.left_out],
        }


def expanded(job: Job, policies: Sequence[str], memory_bytes: int | None) -> tuple[list[str], PolicySearch | None]:
    """Return the policies with ``auto`` (or ``auto:tries=100``) replaced by what the search found, ``none`` before it.

    Without ``memory_bytes`` nothing is found that needs more than a device has. UsageError for other knobs, and where the
    search is asked for twice.
    """
    asked = [each for each in policies if each.split(":")[0] == AUTO]
    if not asked:
        return list(policies), None
    if len(asked) > 1:
        raise UsageError("auto is named twice", remedy=f"--policy {AUTO}:tries=100")
    search = searched(job, _tries(asked[0]), memory_bytes or _device_bytes(job))
    listed = [NONE, *(each for each in policies if each != asked[0]), *search.frontier]
    return list(dict.fromkeys(listed)), search


def _device_bytes(job: Job) -> int | None:
    """Return what the memory of a device holds; None where that, or what ranks hold, is not known."""
    return None if peak_bytes(job.workload) is None else device_bytes(job.workload)


def _tries(spelling: str) -> int:
    said = dict(each.partition("=")[::2] for each in spelling.split(":")[1:])
    text = said.pop("tries", str(TRIES))
    if said or not text.isdigit() or not 1 <= int(text) <= MOST_TRIES:
        raise UsageError(
            f"'{spelling}' is no search", remedy=f"auto, or auto:tries={TRIES} with 1 to {MOST_TRIES:,} policies"
        )
    return int(text)


def searched(job: Job, tries: int, memory_bytes: int | None = None, *, prunes: bool = True) -> PolicySearch:
    """Return the outcome of trying policies, at most ``tries`` of them; who needs more than ``memory_bytes`` declines.

    Without ``prunes`` all are simulated, with the same frontier.
    """
    trials = _Trials(job, memory_bytes, prunes)
    tried, stopped = trials.tried, False
    for spelling in _candidates(tried):
        if spelling in tried:
            continue
        if len(tried) >= tries:
            stopped = True
            break
        trials.take(spelling)
    needing = tuple((each.slug, each.hardware) for each in schedulers() if each.hardware)
    return PolicySearch(tuple(tried.values()), _frontier(tried), stopped, needing)


@dataclass
class _Trials:
    """What a search has tried; ``scheduled`` is what of it was simulated, as it was scheduled. Without ``prunes`` all is."""

    job: Job
    memory_bytes: int | None
    prunes: bool
    tried: dict[str, TriedPolicy] = field(default_factory=dict)
    scheduled: dict[str, Workload] = field(default_factory=dict)

    def take(self, spelling: str) -> None:
        """Try a policy."""
        job, schedule = self.job, scheduled_by(spelling)[1]
        try:
            scheduled = schedule(job.workload, job.costs)
            fitting(scheduled, self.memory_bytes)
            spared = self._spared(spelling, scheduled) if self.prunes and self.scheduled else None
            if spared is None:
                step_s = answer(job, _once(schedule, job, scheduled)).step_s
                self.scheduled[spelling] = _plain(scheduled)
                spared = TriedPolicy(spelling, step_s, peak_bytes(scheduled))
        except DECLINES as error:
            spared = TriedPolicy(spelling, None, None, error.what)
        self.tried[spelling] = spared

    def _spared(self, spelling: str, scheduled: Workload) -> TriedPolicy | None:
        """Return what is known of a policy without simulating it: it makes of the step what another did, or cannot win."""
        plain = _plain(scheduled)
        alike = next((policy for policy, each in self.scheduled.items() if each == plain), None)
        if alike is not None:
            return replace(self.tried[alike], policy=spelling, same_as=alike)
        peak, least_s = peak_bytes(scheduled), SURE * least_step_s(scheduled, self.job.costs)
        beaten = _is_beaten(self.tried, spelling, least_s, peak)
        return TriedPolicy(spelling, None, peak, least_s=least_s) if beaten else None


def _plain(scheduled: Workload) -> Workload:
    """Return a workload without the words about how it came to be."""
    return replace(scheduled, assumptions=(), applied=(), policy=replace(scheduled.policy, by={}))


def _once(schedule: Callable[..., Workload], job: Job, scheduled: Workload) -> Callable[..., Workload]:
    """Return the scheduler, asked no second time about the job."""

    def again(workload: Workload, costs: Costs) -> Workload:
        return scheduled if workload is job.workload and costs is job.costs else schedule(workload, costs)

    return again


def _is_beaten(tried: Mapping[str, TriedPolicy], spelling: str, least_s: float, peak: int | None) -> bool:
    """Whether a policy whose step takes ``least_s`` or more changes nothing: neither the frontier nor what is tried next."""
    times = {each.policy: each.step_s for each in tried.values() if each.step_s is not None}
    if not any(
        times[each.policy] < least_s and (peak is None or (each.peak_bytes or 0) <= peak)
        for each in tried.values()
        if each.policy in times
    ):
        return False
    slug, base = spelling.partition(":")[0], times.get(NONE)
    siblings = [step_s for policy, step_s in times.items() if "+" not in policy and policy.partition(":")[0] == slug]
    is_joined_no_more = base is not None and least_s > base * WORSE
    return "+" in spelling or is_joined_no_more or (":" in spelling and min(siblings, default=least_s) < least_s)


def _candidates(tried: dict[str, TriedPolicy]) -> Iterator[str]:
    """Yield what to try next; ``tried`` grows meanwhile, and what is joined follows from it."""
    yield NONE
    systems = [each for each in schedulers() if each.problem is None and not each.hardware]
    for each in systems:
        yield each.slug
    for each in systems:
        if _is_no_longer(tried, tried[each.slug]):
            yield from (
                f"{each.slug}:{word}" for knob in each.knobs().values() for word in spelled_words(each.slug, knob)
            )
    for many in (2, 3):
        best = _gaining(tried)
        for group in permutations(best, many):
            yield "+".join(group)


def spelled_words(slug: str, knob: Knob) -> Iterator[str]:
    """Yield ``knob=word`` for each word that the knob may be and is not by itself."""
    words = [
        word for form in knob.forms for word in (*form.choices, *(("true", "false") if form.kind == "bool" else ()))
    ]
    known = {knob.name: knob}
    for word in words:
        if values(slug, known, [f"{knob.name}={word}"], where=slug)[knob.name] != knob.default:
            yield f"{knob.name}={word}"


def _gaining(tried: dict[str, TriedPolicy]) -> list[str]:
    """Return the fastest policies that are not joined yet and make no step much longer, one of each system."""
    alone = [each for each in tried.values() if "+" not in each.policy and each.policy != NONE]
    alone = [each for each in alone if _is_no_longer(tried, each)]
    best: dict[str, str] = {}
    for each in sorted(alone, key=lambda one: (one.step_s or 0.0, one.policy)):
        best.setdefault(each.policy.split(":")[0], each.policy)
    return list(best.values())[:JOINED]


def _is_no_longer(tried: dict[str, TriedPolicy], one: TriedPolicy) -> bool:
    """Return whether a policy makes a step hardly longer than none does, or shorter."""
    base = tried[NONE].step_s
    return one.step_s is not None and (base is None or one.step_s <= base * WORSE)


def _frontier(tried: dict[str, TriedPolicy]) -> tuple[str, ...]:
    """Return the policies that none beats in time and memory both: the fastest, and slower ones that hold less."""
    good = [each for each in tried.values() if each.step_s is not None]
    kept: list[TriedPolicy] = []
    for each in sorted(good, key=lambda one: (one.step_s or 0.0, one.peak_bytes or 0)):
        if not kept or (each.peak_bytes is not None and each.peak_bytes < (kept[-1].peak_bytes or 0)):
            kept.append(each)
    return tuple(each.policy for each in kept[:SHOWN])
