"""How sure a gain is: base and candidate simulated again and again, each time with the same draw of what is not known.

Drawn are the iterations of the recording that are averaged over (its own noise), by how much operations are off whose size or
system was not measured, and, of a job from a model, how long its compute really takes against its communication. What both
share cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from ringwright.advise.bucket_tensors import lumped
from ringwright.advise.evaluation import REFUSALS, Evaluator, EvaluatorRecipe, evaluator_of
from ringwright.advise.search import BY_CLOCK, BY_WORK, COMPLETE, INTERRUPTED, NO_LIMITS, AdviceLimits, ended
from ringwright.advise.settings import LINK, NETWORK, REPAIRS, Setup
from ringwright.advise.situation import MODEL
from ringwright.advise.unmeasured_operations import LikenedCosts, measured_of
from ringwright.algorithms.searching import OutOfTimeError
from ringwright.costs.measured_costs import MeasuredCosts, tell_latency
from ringwright.jobs.recorded_job import Changed
from ringwright.workloads.recorded.timeline import HOST_NOTE

if TYPE_CHECKING:
    from ringwright.model.stages import Costs, Stage

MOST_DRAWS, FEWEST_DRAWS, AT_ONCE = 64, 16, 4  # the last: that one process draws
WORK = 4_000_000  # instances that all draws of one setup may take, but for the fewest draws
ENGINE_SIGMA = 0.3  # of an operation's logarithm, engines against tables of measured ones (docs: accuracy)
# Of that variance: what all operations on a machine share, and what all systems for one operation do.
OF_MACHINE, OF_OPERATION = 0.6, 0.2
COMPUTE_SIGMA, FITTED_SIGMA = 0.25, 0.1  # of a model's compute: by the data sheet, by a fit
# Of a size beside a measured one; for each e-fold that it is away from it, without and with a line; and at the most.
SIZE_SIGMA, FURTHER_SIGMA, ON_LINE_SIGMA, ONE_SIZE_SIGMA = 0.05, 0.07, 0.03, 0.2
ONCE_SIGMA, LEAST_SIGMA = 0.15, 0.03  # of a size that was measured once in a step, and often
ONE_STEP_SIGMA = 0.01  # of a step
# Of the logarithm of what is gained by mending a rank, and a part of the network or all of it; where calls alone were recorded.
MENDED_SIGMA, NETWORK_SIGMA, CALLS_ALONE_SIGMA = 0.08, 0.2, 0.3
LIKENED_SIGMA = 0.25  # of an operation that another one stands for
# Of the smallest measured operation, what any piece of it takes too: by its line, which few sizes do not tell; how sure that is.
LEAST_BEGIN, FEW_BEGIN, MOST_BEGIN, BEGIN_SIGMA = 0.01, 0.015, 0.9, 0.8
OF_LINE = 0.5  # of what the line begins with: rates that grow with sizes look like it too
ENOUGH_SIZES = 5


@dataclass(frozen=True)
class Draw:
    """Standard normal numbers by what they are for; ``iterations``: which steps of the recording are averaged over."""

    seed: int
    iterations: tuple[int, ...] = (0,)

    def normal(self, *what: object) -> float:
        """Return the number of something, the same whenever it is asked for."""
        words = np.frombuffer(repr(what).encode(), np.uint8).tolist()
        return float(np.random.default_rng([self.seed, *words]).standard_normal())


@dataclass(frozen=True)
class Gain:
    """What a setup gains: shares of the step as it is today, of all draws, in their order. float64 of shape (draws,)."""

    shares: np.ndarray = field(repr=False)

    @property
    def declined(self) -> float:
        """In which share of the draws an iteration declined what was to be set; 1 where nothing was drawn."""
        return float(np.isnan(self.shares).mean()) if len(self.shares) else 1.0

    @property
    def ends(self) -> tuple[float, float, float]:
        """5, 50 and 95 % of the draws in which no iteration declined are below these."""
        low, middle, high = np.nanquantile(self.shares, (0.05, 0.5, 0.95)).tolist()
        return low, middle, high


class DrawnCosts:
    """Costs of which those that were not measured are off by what a draw says. What else is asked, the costs answer."""

    def __init__(
        self, costs: Costs, draw: Draw, algorithms: dict[str, str], compute: float, *, is_once: bool = True
    ) -> None:
        self.costs, self._draw, self._algorithms, self._compute = costs, draw, algorithms, compute
        # One step was recorded: else which steps are averaged over says how far their mean is off.
        self._is_once = is_once
        self._known: dict[tuple[str, int, str], float] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.costs, name)

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return the phases, longer or shorter."""
        stages = self.costs.stages(op, size_bytes, ranks, role)
        key = (op, size_bytes, role)
        if key not in self._known:
            self._known[key] = math.exp(self._off(op, size_bytes, role))
        factor = self._known[key]
        return tuple(replace(each, wire_s=each.wire_s * factor, latency_s=each.latency_s * factor) for each in stages)

    def _off(self, op: str, size_bytes: int, role: str) -> float:
        """Return by how much the logarithm of an operation's time is off."""
        system = self._algorithms.get(op) or self._algorithms.get("", "")
        measured, own = measured_of(self.costs), math.sqrt(1 - OF_MACHINE - OF_OPERATION)
        if measured is not None:
            is_changed = bool(system) or isinstance(self.costs, Changed)  # who does it, or the machine
            changed = ENGINE_SIGMA * own * self._draw.normal("changed", op, system) if is_changed else 0.0
            return self._of_size(measured, op, size_bytes, role) + changed
        machine = math.sqrt(OF_MACHINE) * self._draw.normal("machine")
        operation = math.sqrt(OF_OPERATION) * self._draw.normal("operation", op)
        of_system = own * self._draw.normal("system", op, system)
        return ENGINE_SIGMA * (machine + operation + of_system) + self._compute * self._draw.normal("compute")

    def _of_size(self, costs: LikenedCosts, op: str, size_bytes: int, role: str) -> float:
        """Return by how much a size is off: one that was measured by what its mean may be off."""
        if (op, size_bytes, role) in costs.measured.exact:
            sigma = mean_sigma(costs.measured, op, size_bytes, role) if self._is_once else 0.0
            return sigma * self._draw.normal("measured", op, size_bytes, role)
        other = costs.stands_for(op) or op
        sigma = size_sigma(costs.measured, other, size_bytes)
        size = 0.8 * self._draw.normal("size", op) + 0.6 * self._draw.normal("size", op, size_bytes.bit_length())
        begin = _begins(costs.measured, other, size_bytes, self._draw.normal("begin", op))
        return sigma * size + begin + (LIKENED_SIGMA * self._draw.normal("likened", op) if other != op else 0.0)


def _begins(costs: MeasuredCosts, op: str, size_bytes: int, normal: float) -> float:
    """Return by how much longer a piece takes than its share of the smallest measured operation, in its logarithm.

    A share of that one's time is the same for any piece, however small: how large it is no recording shows for sure.
    """
    latency_s, s_per_byte, least = costs.lines.get(op, (0.0, 0.0, 0))
    part = size_bytes / least if least else 1.0
    if part >= 1:
        return 0.0
    told = latency_s / (latency_s + s_per_byte * least) if latency_s else 0.0
    sizes = len({each.size_bytes for each in costs.samples if each.op == op})
    known = OF_LINE * told if sizes >= ENOUGH_SIZES else min(OF_LINE * told, FEW_BEGIN)
    begin = min(MOST_BEGIN, max(known, LEAST_BEGIN) * math.exp(BEGIN_SIGMA * normal))
    return math.log((begin + (1 - begin) * part) / part)


def mean_sigma(costs: MeasuredCosts, op: str, size_bytes: int, role: str) -> float:
    """Return how far the mean of so many operations of one size may be off: standard deviation of its logarithm."""
    times = [each.time_s for each in costs.samples if (each.op, each.size_bytes, each.role) == (op, size_bytes, role)]
    if len(times) < 2 or min(times) <= 0:
        return ONCE_SIGMA
    return max(LEAST_SIGMA, float(np.std(np.log(times))) / math.sqrt(len(times)))


def size_sigma(costs: MeasuredCosts, op: str, size_bytes: int) -> float:
    """Return how sure a size is that was not measured: standard deviation of the logarithm of its time.

    The further it is from the nearest measured one the less; beside several sizes at least what those lie off their line.
    """
    samples = [each for each in costs.samples if each.op == op and each.time_s > 0]
    further = min((abs(math.log(max(size_bytes, 1) / each.size_bytes)) for each in samples), default=math.inf)
    if not tell_latency(each.size_bytes for each in samples):
        return min(ONE_SIZE_SIGMA, math.hypot(SIZE_SIGMA, FURTHER_SIGMA * further))
    latency_s, s_per_byte, _ = costs.lines[op]
    told = [latency_s + s_per_byte * each.size_bytes for each in samples]
    off = [math.log(each.time_s / line) for each, line in zip(samples, told, strict=True) if line > 0]
    spread = max(SIZE_SIGMA, float(np.std(off))) if len(off) > 1 else ONE_SIZE_SIGMA
    return min(max(spread, ONE_SIZE_SIGMA), math.hypot(spread, ON_LINE_SIGMA * further))


@dataclass
class Draws:
    """Draws for one situation, the same for all its setups; steps that were simulated with them are remembered.

    ``fidelity``: how much longer the replay, unchanged, is than what was measured, as a share of it; 0 of a model. ``most``: how
    many there are at the most; of a large job fewer, for the work that they are.
    """

    evaluator: Evaluator
    fidelity: float = 0.0
    seed: int = 0
    limits: AdviceLimits = NO_LIMITS
    most: int = MOST_DRAWS
    ended: str = COMPLETE
    known: dict[object, np.ndarray] = field(default_factory=dict)

    @cached_property
    def draws(self) -> list[Draw]:
        """As many as their work allows; each averages over as many iterations as there are, drawn with replacement."""
        steps = self.evaluator.situation.iterations
        instances = self.evaluator.run(Setup()).instances
        count = int(np.clip(WORK // max(1, instances), min(FEWEST_DRAWS, self.most), self.most))
        drawn = np.random.default_rng(self.seed).integers(steps, size=(count, steps)).tolist()
        return [Draw(self.seed * MOST_DRAWS + at, tuple(each)) for at, each in enumerate(drawn)]

    def steps(self, setup: Setup) -> np.ndarray:
        """Return the mean step of a setup with each draw, s: float64 of shape (draws,), fewer where limits end it.

        NaN where one of its iterations declines the setup. What costs are off by is drawn on one iteration, and changes all of
        them by as much.
        """
        if setup.key not in self.known:
            count = self._count()
            parts = [tuple(self.draws[at : min(at + AT_ONCE, count)]) for at in range(0, count, AT_ONCE)]
            done: dict[int, list[float]] = {}

            def take(at: int, steps: list[float]) -> None:
                done[at] = steps
                if {0, 1} <= done.keys() and len(done) < len(parts) and self.limits.by(0) != COMPLETE:
                    raise OutOfTimeError

            try:
                self.evaluator.each(steps_drawn, [(setup, each) for each in parts], take)
            except OutOfTimeError:
                self.ended = ended(self.ended, BY_CLOCK)
            except KeyboardInterrupt:  # what was drawn so far is told, and nothing more is begun
                self.ended, self.limits = INTERRUPTED, AdviceLimits(until_s=-math.inf)
            whole = takewhile(done.__contains__, range(len(parts)))
            self.known[setup.key] = np.array([step for at in whole for step in done[at]])
        return self.known[setup.key]

    def _count(self) -> int:
        """Return how many draws of a setup work allows, and count what they are."""
        evaluator, count = self.evaluator, len(self.draws)
        each = max(1, evaluator.run(Setup()).instances)
        left = min(self.limits.work - evaluator.work, count * each)
        within = min(count, max(2 * AT_ONCE, int(left // each)))
        if within < count:
            self.ended = ended(self.ended, BY_WORK)
        evaluator.work += within * each
        return within

    def mean_step(self, setup: Setup, draw: Draw) -> float:
        """Return the mean over the iterations of a draw, s."""
        first, plain = draw.iterations[0], self.evaluator.undrawn
        if len(draw.iterations) == 1:
            return self._step(setup, draw, first)
        for iteration in draw.iterations:
            if (setup.key, iteration) not in plain:
                plain[setup.key, iteration] = self._step(setup, None, iteration)
        off = self._step(setup, draw, first) / plain[setup.key, first]
        return float(np.mean([plain[setup.key, iteration] for iteration in draw.iterations])) * off

    def gain(self, setup: Setup, over: Setup | None = None) -> Gain:
        """Return what a setup gains over another one (None: today's), as shares of today's step.

        What a replay lacks of the measured step is not shortened by anything.
        """
        over = over or Setup()
        steps = [self.steps(each) for each in (Setup(), over, setup)]
        base, before, after = (each[: min(map(len, steps))] for each in steps)
        shares = (before - after) / np.maximum(base, self._measured_s)
        if setup.key == over.key:
            return Gain(shares)
        mends, mended_before = (tuple(each.spelling(slot) for slot in REPAIRS) for each in (setup, over))
        what = (("replay",), ("step", setup.key), ("mended", *mends))
        off = np.array([[each.normal(*words) for words in what] for each in self.draws[: len(shares)]]).reshape(-1, 3)
        is_of_ranks = all(setup.spelling(slot) == over.spelling(slot) for slot in (LINK, NETWORK))
        sigma = MENDED_SIGMA if is_of_ranks else NETWORK_SIGMA
        sigma = max(sigma, CALLS_ALONE_SIGMA) if HOST_NOTE in self.evaluator.situation.assumptions else sigma
        mended = np.exp(sigma * off[:, 2]) if mends != mended_before else 1.0
        return Gain(shares * (1 + abs(self.fidelity) * off[:, 0]) * mended + self._step_sigma * off[:, 1])

    @property
    def _step_sigma(self) -> float:
        """By how much a step differs from the next, where one alone was recorded."""
        return ONE_STEP_SIGMA if self._measured_s and self.evaluator.situation.iterations == 1 else 0.0

    @cached_property
    def _measured_s(self) -> float:
        measured = self.evaluator.situation.measured_s
        return float(np.mean(measured)) if measured else 0.0

    def _step(self, setup: Setup, draw: Draw | None, iteration: int) -> float:
        """Return the step of an iteration with what a draw says that costs are off by, s; NaN where it declines the setup."""
        job, is_once = self.evaluator.situation.job(setup, iteration), self.evaluator.situation.iterations == 1
        if draw is not None:
            job = replace(job, costs=DrawnCosts(job.costs, draw, setup.algorithms, self._compute, is_once=is_once))
        try:
            plan = self.evaluator.plan(setup, iteration)
            if draw is not None and self.evaluator.situation.trace is not None:
                plan = lumped(plan, draw.normal)
            return self.evaluator.answered(job, plan).step_s
        except REFUSALS:
            return math.nan

    @cached_property
    def _compute(self) -> float:
        spec = self.evaluator.situation.spec
        if self.evaluator.situation.ground != MODEL or spec is None:
            return 0.0
        return FITTED_SIGMA if spec.fit else COMPUTE_SIGMA


def steps_drawn(recipe: Evaluator | EvaluatorRecipe, setup: Setup, draws: tuple[Draw, ...]) -> list[float]:
    """Return the mean step of a setup with each of some draws, s."""
    known = Draws(evaluator_of(recipe))
    return [known.mean_step(setup, each) for each in draws]


def mean_interval(values: Sequence[float], seed: int = 0) -> tuple[float, float, float]:
    """Return 5, 50 and 95 % of the mean of values, drawn again and again from them."""
    if not values:
        return math.nan, math.nan, math.nan
    drawn = np.random.default_rng(seed).choice(np.array(values), (256, len(values))).mean(axis=1)
    low, middle, high = np.quantile(drawn, (0.05, 0.5, 0.95)).tolist()
    return low, middle, high
