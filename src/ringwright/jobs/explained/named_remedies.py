"""Which policies the advice of a cause names: those that would send another step than this one, their knobs set from its sizes.

A policy that plans the very same step is no remedy. It is named with the reason, and so is one that declines the job, or whose
step is as long: that is looked at where operations have measured times, so that no engine need be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, TypedDict

from ringwright.costs.measured_costs import MeasuredCosts
from ringwright.ground.errors import RingwrightError
from ringwright.ground.units import MIB
from ringwright.jobs.explained.remedies import OF_STEP
from ringwright.jobs.recorded_job import Changed, below_recorded
from ringwright.jobs.study import NONE, answer, scheduled_by
from ringwright.model.registry import composed
from ringwright.model.rewrites.operations import operations
from ringwright.schedulers.order import GRADIENTS

if TYPE_CHECKING:
    from ringwright.jobs.explained.why import Cause
    from ringwright.jobs.study import Job, PolicyResult
    from ringwright.model.rewrites import Operation
    from ringwright.model.workload import Workload

MOST_HALVINGS, MOST_DOUBLINGS = 6, 12
WIDER = 4  # times as large, where pieces are too small
SAME = 1e-9  # of a step
MOST_INSTANCES = 20_000  # of a run at measured times, up to which a policy is simulated before it is named
BY_URGENCY = ("p3", "bytescheduler", "pace")
BY_LAYER = ("bytescheduler", "p3", "pace")


class NamedRemedy(TypedDict):
    """A policy that the advice names, as ``--policy`` takes it; ``why_not`` says why it changes nothing, null if it does."""

    policy: str
    why_not: str | None


@dataclass
class NamedRemedies:
    """Looks up, for one job, which policies send another step; what each plans is remembered."""

    job: Job
    plans: dict[str, object] = field(default_factory=dict, repr=False)
    steps: dict[str, float] = field(default_factory=dict, repr=False)  # seconds

    def told(self, causes: Sequence[Cause], result: PolicyResult) -> list[Cause]:
        """Return the causes with the policies that help named in their advice, and in ``remedies`` those that cannot, too.

        Causes that are next to nothing of the step keep their advice in general.
        """
        least_us = OF_STEP * result.step_s * 1e6
        return [self._told(each, result) if each["exposed_us"] >= least_us else each for each in causes]

    def noted(self, result: PolicyResult, step_us: float | None) -> list[str]:
        """Say why a policy leaves the step as it was, ``step_us`` without it, and where a recording says little of its pieces."""
        if result.policy == NONE:
            return []
        costs = self.job.costs.measured if isinstance(self.job.costs, Changed) else self.job.costs
        small = below_recorded(result.run.laid.operations, costs) if isinstance(costs, MeasuredCosts) else ""
        return [f"{result.policy}: {each}" for each in (small, self._same_step(result, step_us)) if each]

    def in_either_order(self, result: PolicyResult) -> list[str]:
        """Return what two composed policies decide and hold, the same in either order where they make the same step then."""
        one, *others = composed(result.policy)
        if len(others) != 1 or one == others[0]:
            return list(result.decided)
        reversed_ = f"{others[0]}+{one}"
        try:
            other = answer(self.job, reversed_)
        except RingwrightError:
            return list(result.decided)
        if abs(other.step_s - result.step_s) > SAME * result.step_s:
            return list(result.decided)
        both = sorted({*result.decided, *other.decided})
        first, second = sorted((result.policy, reversed_))
        return [*both, f"{first} and {second}: the order does not matter here, the step is as long"]

    def _same_step(self, result: PolicyResult, step_us: float | None) -> str:
        """Say why a policy leaves the step as it was, ``step_us`` without it (None: not simulated); nothing where it does not."""
        mine, plain = plan(result.workload), self._planned(NONE)
        if mine == plain:
            return f"changes nothing here: {_same(result.workload)}"
        if step_us is None or abs(result.step_s * 1e6 - step_us) > SAME * step_us:
            return ""
        return f"{_differs(mine, plain)}, and the step is as long as without it: {_same(result.workload)}"

    def _told(self, cause: Cause, result: PolicyResult) -> Cause:
        named: list[NamedRemedy] = []
        for spellings in _CANDIDATES.get(cause["cause"], _none)(result):
            if spellings[0] == result.policy:
                continue
            tried = [self._tried(each, result) for each in spellings]
            named.append(next((each for each in tried if each["why_not"] is None), tried[0]))
        helping = [each["policy"] for each in named if each["why_not"] is None]
        said = f"{cause['advice']}: {', '.join(helping)}" if helping else cause["advice"]
        why_not = [f"{each['policy']} would not: {each['why_not']}" for each in named if each["why_not"]]
        return {**cause, "advice": "; ".join([said, *why_not]), "remedies": named}

    def _tried(self, spelling: str, result: PolicyResult) -> NamedRemedy:
        """Return a policy with why it would send the step that this one sends, or none."""
        planned = self._planned(spelling)
        if isinstance(planned, str):
            return {"policy": spelling, "why_not": planned}
        if planned == plan(result.workload):
            return {"policy": spelling, "why_not": f"it sends the same {_same(result.workload)}"}
        is_short = isinstance(self.job.costs, MeasuredCosts) and result.undisturbed.laid.flat.n <= MOST_INSTANCES
        moved = not is_short or self._moves(spelling, result)
        return {"policy": spelling, "why_not": None if moved else "it sends otherwise, and the step is as long"}

    def _moves(self, spelling: str, result: PolicyResult) -> bool:
        """Return whether a step is another one by a policy."""
        if spelling not in self.steps:
            self.steps[spelling] = answer(self.job, spelling).step_s
        return abs(self.steps[spelling] - result.step_s) > SAME * result.step_s

    def _planned(self, spelling: str) -> object:
        """Return the plan of a policy, or in words why it declines the job."""
        if spelling not in self.plans:
            try:
                self.plans[spelling] = plan(scheduled_by(spelling)[1](self.job.workload, self.job.costs))
            except RingwrightError as error:
                self.plans[spelling] = error.what
        return self.plans[spelling]


def plan(workload: Workload) -> tuple[object, ...]:
    """Return all of a scheduled step that decides how long it takes: what is sent, in which order, and what waits for what."""
    sent, queue = operations(workload), workload.policy.queue
    carried = tuple((each.op, each.axes, each.size_bytes, each.piece_bytes, _names(each)) for each in sent)
    known = [each.key for each in sent if each.key is not None]
    turn = {key: at for at, key in enumerate(sorted(set(known)))}
    urgency = tuple(turn.get(each.key, -1) for each in sent) if len(sent) > 1 and len(turn) > 1 else ()  # type: ignore[arg-type]
    line = None if queue is None else (queue.issue_s, queue.random, tuple(queue.gates), tuple(queue.windows.items()))
    order = tuple((workload.policy.order or {}).items())
    waits = (workload.tasks, workload.edges, order, workload.policy.boundary or "barrier")
    return carried, urgency, None if line == (0.0, None, (), ()) else line, waits


def _differs(one: object, other: object) -> str:
    """Say in which part two plans differ."""
    parts = ("what is sent", "the order", "how much is on its way at once", "what waits for what")
    if not isinstance(one, tuple) or not isinstance(other, tuple):
        return parts[0]
    return next((said for said, mine, its in zip(parts, one, other, strict=True) if mine != its), parts[0]) + " differs"


def _names(operation: Operation) -> tuple[str, ...]:
    return tuple(payload.name for payload in operation.payloads)


def _gradients(workload: Workload) -> list[Operation]:
    return [each for each in operations(workload) if each.role in GRADIENTS and each.per == "step"]


def _same(workload: Workload) -> str:
    """Say what is sent, where a policy sends what was sent already."""
    sums = _gradients(workload)
    if not sums:
        return _counted(len(operations(workload)), "")
    many = _counted(len(sums), " on gradients")
    return (
        many if any(len(each.payloads) > 1 for each in sums) else f"{many}, each of one gradient, which no bucket cuts"
    )


def _counted(count: int, of: str) -> str:
    return f"{count} operation{'s' * (count != 1)}{of}"


def _none(result: PolicyResult) -> Iterator[list[str]]:
    yield from ()


def _smaller(result: PolicyResult) -> Iterator[list[str]]:
    """Yield caps below the largest bucket, each half of the one before: one whose last tensor is large closes as it did."""
    largest = max((each.size_bytes for each in _gradients(result.workload) if len(each.payloads) > 1), default=0)
    if largest:
        yield [_buckets(largest / 2**at) for at in range(1, MOST_HALVINGS + 1)]


def _larger(result: PolicyResult) -> Iterator[list[str]]:
    """Yield larger pieces of what is cut, larger buckets of what is joined."""
    sums, policy = _gradients(result.workload), result.policy.partition(":")[0]
    pieces = max((each.piece_bytes for each in sums), default=0)
    if pieces and policy == "p3":
        elements = sum(payload.elements for each in sums for payload in each.payloads)
        width = sum(each.size_bytes for each in sums) / elements if elements else 4
        yield [f"p3:slice_elements={round(WIDER * pieces / width)}"]
    if pieces and policy == "bytescheduler":
        yield [f"bytescheduler:partition_mb={float(f'{WIDER * pieces / MIB:.3g}'):g}"]
    if sums:
        middle = median(each.size_bytes for each in sums)
        yield [_buckets(WIDER * middle * 2**at, first=True) for at in range(MOST_DOUBLINGS)]


def _buckets(cap_bytes: float, *, first: bool = False) -> str:
    cap = f"{float(f'{cap_bytes / MIB:.3g}'):g}"
    return f"pytorch-ddp:bucket_cap_mb={cap}" + (f":first_bucket_mb={cap}" if first else "")


_CANDIDATES: dict[str, Callable[[PolicyResult], Iterator[list[str]]]] = {
    "order": lambda _: ([each] for each in BY_URGENCY),
    "barrier": lambda _: ([each] for each in BY_LAYER),
    "bucket": _smaller,
    "latency": _larger,
}
