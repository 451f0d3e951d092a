"""A step and the outages that come over it: how much longer it is when one does, and how long steps are in the mean.

The job is simulated with the outage at several moments of a step, and link by link what is on the wire stands still. After an
outage a transport tries again when its timer says so; how much longer than the outage that is, one message across the link tells,
followed packet by packet. An outage that comes every so often lengthens each of the steps of a period by its part; where
several come in a few steps, all of them are simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from statistics import fmean
from typing import Protocol, runtime_checkable

import numpy as np

from ringwright.calls.job_ends import across
from ringwright.engines.choose import simulate
from ringwright.engines.job.outages import Outage
from ringwright.engines.job.run import JobRun
from ringwright.engines.packets.carriage import inside, without_losses
from ringwright.ground.errors import DeclinedError, UsageError
from ringwright.ground.units import PS, format_time
from ringwright.jobs.explained.account import Account, account, combined
from ringwright.jobs.explained.outages import RATE, PassingFault
from ringwright.jobs.pricing.costs import LIBRARY
from ringwright.model.collective import Collective
from ringwright.model.registry import algorithm
from ringwright.model.topology import Fault, Topology

MOMENTS = 5  # of a step, evenly spaced, at which an outage begins
PERIODS = 8  # of outages that are simulated where they come every few steps
WARM = 2  # steps before the first that counts
RECOVERS = 4  # steps behind an outage until they are as before
LONG = 20  # steps: what a longer outage does beyond is known
MOST_OUTAGES = 50_000
MOST_INSTANCES = 2_000_000  # of a run of as many steps as are worth it
MESSAGE = 4 << 20  # bytes of the message that shows when a transport goes on


@runtime_checkable
class MeetsOutages(Protocol):
    """Costs on a machine over which outages come."""

    @property
    def topology(self) -> Topology:
        """The machine, with the faults that stay."""

    @property
    def passing(self) -> tuple[PassingFault, ...]:
        """The outages."""


Simulated = Callable[[int, Sequence[Outage]], JobRun]  # steps, outages


@dataclass(frozen=True)
class Interrupted:
    """What outages do to a job: the breakdown of its step, a run that ends with a step that meets one, what one adds.

    ``added_s`` are the least, the mean and the most that an outage adds, by the moment at which it comes; ``share``: which
    part of the difference between that run and a calm one the breakdown has.
    """

    account: Account
    run: JobRun = field(repr=False)
    hit_s: float
    share: float
    added_s: tuple[float, float, float]
    step_s: tuple[float, float, float]
    told: tuple[str, ...]


def interrupted(simulated: Simulated, calm: JobRun, topology: Topology, passing: Sequence[PassingFault]) -> Interrupted:
    """Return what outages of a machine do to a job whose calm run is given.

    Several kinds of outages add up. InfeasibleError where the transport gives up a connection meanwhile.
    """
    met = [_of_one(simulated, calm, topology, each) for each in passing]
    if len(met) == 1:
        return met[0]
    own = account(calm)
    worst = max(met, key=lambda each: each.added_s[1])
    parts = [(1.0 - len(met), own), *((1.0, each.account) for each in met)]
    whole = combined(parts)
    hit = worst.hit_s - own.step_s
    share = (whole.exposed_s - own.exposed_s) / hit if hit > 0 else 0.0
    low, middle, high = (sum(each.step_s[at] for each in met) - (len(met) - 1) * own.step_s for at in range(3))
    return replace(
        worst,
        account=whole,
        share=share,
        step_s=(low, middle, high),
        told=tuple(line for one in met for line in one.told),
    )


def _of_one(simulated: Simulated, calm: JobRun, topology: Topology, fault: PassingFault) -> Interrupted:
    own = account(calm)
    held = _held(topology, fault)
    several = max(1, ceil(held.lasts_s / own.step_s)) + RECOVERS
    if fault.every_s and fault.every_s < several * own.step_s:
        return _many(simulated, calm, held, own)
    return _single(simulated, calm, held, own)


def _single(simulated: Simulated, calm: JobRun, fault: PassingFault, own: Account) -> Interrupted:
    """Return it for outages that are so rare that a step, or a few in a row, meet one of them."""
    shown, left_s = _shortened(fault, own.step_s)
    before = calm.laid.steps - 1
    after = max(1, ceil(shown.lasts_s / own.step_s)) + RECOVERS
    steps = before + after
    undisturbed = simulated(steps, ())  # as many steps: until the outage begins the runs are the same
    begin_s = undisturbed.finished(before - 1) / PS if before else 0.0
    runs = [simulated(steps, _outages(shown, begin_s + own.step_s * (turn + 0.5) / MOMENTS)) for turn in range(MOMENTS)]
    within = range(before, steps)
    added = [max(0.0, (run.finished(steps - 1) - undisturbed.finished(steps - 1)) / PS) + left_s for run in runs]
    longest = [max(within, key=run.lasted) for run in runs]
    hits = [run.lasted(step) / PS + left_s for run, step in zip(runs, longest, strict=True)]
    middle = int(np.argsort(added)[MOMENTS // 2])
    run = simulated(longest[middle] + 1, _outages(shown, begin_s + own.step_s * (middle + 0.5) / MOMENTS))
    if fault.every_s:
        met = combined([(1.0 / MOMENTS, account(each, within)) for each in runs])
        per_period = [(fault.every_s - each) / own.step_s for each in added]  # steps from one outage to the next
        if min(per_period) < after:
            return _many(simulated, calm, fault, own)
        weight = fmean(after / each for each in per_period)
        whole = combined([(1.0, own), (weight, met), (-weight, account(undisturbed, within))])
        whole = _standing(whole, left_s * weight / after)
        lasting = [fault.every_s / each for each in per_period]
        told = (
            f"{fault.text}: one adds {_range(added)} to the step that it meets, which then takes {_range(hits)};"
            f" steps take {_range(lasting)} in the mean"
        )
    else:
        whole = combined(
            [(1.0 / MOMENTS, account(each, range(at, at + 1))) for each, at in zip(runs, longest, strict=True)]
        )
        whole = _standing(whole, left_s)
        lasting = hits
        told = f"{fault.text}: the step that meets it takes {_range(hits)}, by the moment at which it comes"
    return _made(own, whole, run, fmean(hits), added, lasting, (told,))


def _many(simulated: Simulated, calm: JobRun, fault: PassingFault, own: Account) -> Interrupted:
    """Return it for outages of which several come in a few steps: all of them are simulated."""
    most = max(WARM + 2, MOST_INSTANCES // max(calm.laid.per_step, 1))
    steps = min(most, WARM + max(2, ceil(PERIODS * fault.every_s / own.step_s)))
    runs = [_covered(simulated, steps, fault, fault.every_s * (turn + 0.5) / MOMENTS) for turn in range(MOMENTS)]
    within = range(WARM, steps)
    accounts = [account(run, within) for run in runs]
    whole = combined([(1.0 / MOMENTS, each) for each in accounts])
    lasting = [each.step_s for each in accounts]
    outages = [max(1.0, each * len(within) / fault.every_s) for each in lasting]
    added = [max(0.0, each - own.step_s) * len(within) / many for each, many in zip(lasting, outages, strict=True)]
    hit = fmean(max(run.lasted(step) for step in within) / PS for run in runs)
    told = f"{fault.text}: steps take {_range(lasting)} in the mean; each outage adds {_range(added)}"
    shown = max(runs, key=lambda run: account(run).exposed_s)
    return _made(own, whole, shown, hit, added, lasting, (told,))


def _standing(spent: Account, seconds: float) -> Account:
    """Return a step in which all stand still for some seconds more, waiting for what waits most anyway."""
    if not seconds:
        return spent
    longer = replace(spent, step_s=spent.step_s + seconds, exposed_s=spent.exposed_s + seconds)
    if longer.roles:
        name = max(longer.roles, key=lambda each: longer.roles[each].exposed_s)
        mine = longer.roles[name]
        longer.roles = longer.roles | {
            name: replace(mine, exposed_s=mine.exposed_s + seconds, busy_s=mine.busy_s + seconds)
        }
    return longer


def _made(
    own: Account,
    whole: Account,
    run: JobRun,
    hit_s: float,
    added: Sequence[float],
    lasting: Sequence[float],
    told: tuple[str, ...],
) -> Interrupted:
    differs = account(run).exposed_s - own.exposed_s
    share = (whole.exposed_s - own.exposed_s) / differs if differs > 0 else 0.0
    return Interrupted(
        whole,
        run,
        hit_s,
        share,
        (min(added), fmean(added), max(added)),
        (min(lasting), whole.step_s, max(lasting)),
        told,
    )


def _covered(simulated: Simulated, steps: int, fault: PassingFault, first_s: float) -> JobRun:
    """Return a run all of which has outages, the first of them at ``first_s``."""
    horizon_s = first_s
    run = simulated(steps, ())
    while True:
        end_s = run.finished(steps - 1) / PS
        if end_s <= horizon_s:
            return run
        horizon_s = 1.5 * end_s
        count = ceil((horizon_s - first_s) / fault.every_s)
        if count > MOST_OUTAGES:
            raise UsageError(
                f"{count:,} outages within {steps} steps",
                where=fault.text,
                remedy="a longer period, or a link of as much less rate: link NAME rate 90%",
            )
        run = simulated(
            steps, [each for turn in range(count) for each in _outages(fault, first_s + turn * fault.every_s)]
        )


def _outages(fault: PassingFault, begin_s: float) -> list[Outage]:
    return [
        Outage(fault.links, round((begin_s + begin) * PS), round((begin_s + end) * PS), left)
        for begin, end, left in fault.segments
    ]


def _shortened(fault: PassingFault, step_s: float) -> tuple[PassingFault, float]:
    """Return a fault of few steps, and how many seconds were taken off: of a link that is down a job gets nothing in them.

    What is left of a rate is cut short for one outage alone, of which the longest step is told; in the mean all of it counts.
    """
    walked, now, left_s = [], 0.0, 0.0
    for begin, end, left in fault.segments:
        lasts = end - begin if left > 0 and fault.every_s else min(end - begin, LONG * step_s)
        walked.append((now, now + lasts, left))
        now += lasts
        left_s += (end - begin - lasts) * (left <= 0)
    return replace(fault, segments=tuple(walked)), left_s


def _range(seconds: Sequence[float]) -> str:
    low, high = min(seconds), max(seconds)
    middle = format_time(fmean(seconds))
    return middle if high - low <= 1e-3 * high else f"{middle} ({format_time(low)} to {format_time(high)})"


# ------------------------------------------------------------------------------------------------------------- the transport
def _held(topology: Topology, fault: PassingFault) -> PassingFault:
    """Return the fault as messages meet it: a transport goes on when it tries again, or goes around it."""
    down = [(begin, end) for begin, end, left in fault.segments if left <= 0]
    if not down or bool(inside(topology)[list(fault.links)].all()):
        return fault
    pair = across(topology, fault.links)
    if pair is None:
        return fault
    begin, end = max(down, key=lambda each: each[1] - each[0])
    later_s = _held_s(topology, fault.links, pair, end - begin) - (end - begin)
    text = fault.text
    if fault.every_s and later_s > 0.5 * (fault.every_s - fault.lasts_s):
        later_s = 0.5 * (fault.every_s - fault.lasts_s)
        text += ", while its transport waits longer than the link is up: at least"
    walked, ahead = [], 0.0
    for start, stop, left in fault.segments:
        longer = later_s if left <= 0 else 0.0
        walked.append((max(start, ahead), max(stop + longer, start, ahead), left))
        ahead = walked[-1][1]
    return replace(fault, segments=tuple(walked), text=text)


def _held_s(topology: Topology, links: Sequence[int], pair: tuple[int, int], lasts_s: float) -> float:
    """Return how much later a message arrives for an outage in its middle."""
    clear = without_losses(replace(topology, faults=()))
    _, make, _ = algorithm(LIBRARY)
    program = make(Collective("send-recv", pair, MESSAGE, "float32"), clear)
    try:
        calm_s = simulate(program, clear, "packets").time_s
        rows = [
            Fault(time_s, "link", link, RATE, value)
            for link in links
            for time_s, value in ((calm_s / 2, 0.0), (calm_s / 2 + lasts_s, 1.0))
        ]
        rows.sort(key=lambda each: (each.time_s, each.target))
        return max(0.0, simulate(program, replace(clear, faults=tuple(rows)), "packets").time_s - calm_s)
    except DeclinedError:
        return lasts_s
