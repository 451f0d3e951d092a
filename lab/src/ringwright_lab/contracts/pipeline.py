"""The contract of pipeline schedules: every pass once, no device waits for ever, and no more inputs are held than declared.

A schedule is tried on small pipelines that it takes. Its orders run step after step, each pass when all that it needs has ended;
so a schedule whose first backward passes are of the step before is tried in the same way.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from ringwright.graph.pipelines import Order, PipelineSchedule, Shape, Slot, in_halves, order, schedule_of, trying
from ringwright.ground.errors import RingwrightError
from ringwright_lab.contracts.outcome import Outcome, TriedInput, made

SIZES = ((1, 2), (2, 4), (2, 7), (3, 6), (4, 8), (4, 12), (8, 16))  # devices, micro-batches
CHUNKS = (1, 2, 3)  # tried of a schedule that takes any
STEPS = 3
Done = tuple[str, int, int]  # pass, stage along the model, micro-batch counted over all steps


@dataclass(frozen=True)
class PipelineCase:
    """One pipeline: devices, micro-batches, chunks on each device, and the group that is spelled (0: the schedule's own)."""

    slug: str
    devices: int
    micro_batches: int
    chunks: int
    group: int = 0

    def __str__(self) -> str:
        return f"{self.spelling} p={self.devices} m={self.micro_batches} v={self.chunks}"

    @property
    def what(self) -> str:
        """The pipeline, without the schedule's name."""
        return str(self).partition(" ")[2]

    @property
    def spelling(self) -> str:
        """The schedule as it is typed."""
        return f"{self.slug}:{self.group}" if self.group else self.slug


@dataclass(frozen=True)
class TriedOrders:
    """The orders of all devices of one side, and the shape that they are of."""

    case: PipelineCase
    schedule: PipelineSchedule
    shape: Shape
    orders: tuple[Order, ...]

    def stepped(self, device: int) -> Iterator[Slot]:
        """Yield the passes of a device over all steps, those of before the first one left out."""
        batches = self.shape.micro_batches
        for step in range(STEPS):
            for phase, chunk, batch in self.orders[device]:
                if batch + step * batches >= 0:
                    yield phase, chunk, batch + step * batches

    def needs(self, device: int, slot: Slot) -> list[Done]:
        """Return the passes that must have ended before one: G is a backward pass, or its half of inputs."""
        phase, chunk, batch = slot
        stage = self.shape.stage(device, chunk)
        if phase == "F":
            return [("F", stage - 1, batch)] if stage else []
        if phase == "W":
            return [("G", stage, batch)]
        return [("F", stage, batch), *([("G", stage + 1, batch)] if stage < self.shape.stages - 1 else [])]


def known_passes(tried: TriedOrders) -> str | None:
    """Its passes are F, B, I or W, and halves are there where ``splits`` says so, and only there."""
    phases = {phase for slots in tried.orders for phase, _, _ in slots}
    if strange := phases - set("FBIW"):
        return f"'{min(strange)}' is no pass: F, B, I or W"
    halves = bool(phases & {"I", "W"})
    return (
        None
        if halves == tried.schedule.splits
        else f"splits is {tried.schedule.splits}, its passes are {sorted(phases)}"
    )


def every_pass(tried: TriedOrders) -> str | None:
    """Each device does every pass of each of its chunks and micro-batches once."""
    shape = tried.shape
    wanted = Counter(itertools.product("FBW", range(shape.chunks), range(shape.micro_batches)))
    for device, slots in enumerate(tried.orders):
        versions = tried.schedule.versions
        halves = Counter(
            (phase, chunk, batch % shape.micro_batches if versions > 1 else batch)
            for phase, chunk, batch in in_halves(slots)
        )
        if missing := wanted - halves:
            return f"device {device} misses {_told(min(missing))}"
        if twice := halves - wanted:
            return f"device {device} does {_told(min(twice))} once too often, or it is none"
    return None


def _told(slot: Slot) -> str:
    words = {"F": "the forward pass", "B": "the gradients of inputs", "W": "the gradients of weights"}
    return f"{words[slot[0]]} of chunk {slot[1]}, micro-batch {slot[2]}"


def ends(tried: TriedOrders) -> str | None:
    """No device waits for ever: each pass comes when what it needs can have ended."""
    left = [list(tried.stepped(device)) for device in range(tried.shape.devices)]
    at, ended = [0] * len(left), set[Done]()
    moved = True
    while moved:
        moved = False
        for device, slots in enumerate(left):
            while at[device] < len(slots) and all(need in ended for need in tried.needs(device, slots[at[device]])):
                phase, chunk, batch = slots[at[device]]
                ended.add(("G" if phase in "BI" else phase, tried.shape.stage(device, chunk), batch))
                at[device] += 1
                moved = True
    stuck = [device for device, slots in enumerate(left) if at[device] < len(slots)]
    if not stuck:
        return None
    phase, chunk, batch = left[stuck[0]][at[stuck[0]]]
    return f"device {stuck[0]} waits for ever before {phase} of chunk {chunk}, micro-batch {batch}"


def held(tried: TriedOrders) -> str | None:
    """No device holds the inputs of more passes than ``held`` says, from forward until the gradients of weights are there."""
    if tried.schedule.held is None:
        return "it does not say how many inputs it holds: held=f(shape, group)"
    most = tried.schedule.held(tried.shape, tried.case.group)
    for device in range(tried.shape.devices):
        levels = itertools.accumulate({"F": 1, "I": 0}.get(slot[0], -1) for slot in tried.stepped(device))
        if (highest := max(levels, default=0)) > most:
            return f"device {device} holds the inputs of {highest} passes, it declares {most}"
    return None


def legal(tried: TriedOrders) -> str | None:
    """A training step laid out so is legal, and its simulated time is at least what a device computes."""
    from ringwright.engines.job.run import simulate
    from ringwright.model.stages import LinkCosts
    from ringwright.model.validity.workloads import check
    from ringwright.workloads.pipeline_chain import pipeline_chain

    case = tried.case
    step = pipeline_chain(case.devices, case.micro_batches, case.chunks, schedule=case.spelling, replicas=2, elements=8)
    if wrong := check(step, warnings=False):
        return str(wrong[0])
    least = 3 * tried.shape.micro_batches * tried.shape.chunks
    took = simulate(step, LinkCosts(1e30), steps=STEPS).finished(STEPS - 1) / 1e12
    return (
        None
        if took >= STEPS * least * (1 - 1e-9)
        else f"{STEPS} steps take {took:g}, a device computes {STEPS * least:g}"
    )


CHECKS: dict[str, Callable[[TriedOrders], str | None]] = {
    "named": known_passes,
    "whole": every_pass,
    "ends": ends,
    "held": held,
    "legal": legal,
}


def cases(schedule: PipelineSchedule) -> Iterator[PipelineCase]:
    """Yield small pipelines for a schedule: one of groups is tried in groups too."""
    for (devices, batches), chunks in itertools.product(SIZES, (schedule.chunks,) if schedule.chunks else CHUNKS):
        yield PipelineCase(schedule.name, devices, batches, chunks)
        if schedule.grouped:
            yield PipelineCase(schedule.name, devices, batches, chunks, devices)


def check_pipeline(schedule: str | PipelineSchedule) -> list[Outcome]:
    """Return the outcome of every check on a pipeline schedule; ``failures`` of them lists what is wrong.

    Checked is that each device does every pass once, that none waits for ever, that no more inputs are held than ``held`` says,
    and that a training step laid out so is legal.

    Parameters
    ----------
    schedule
        Its name, of the house or of an entry point of ``ringwright.graph.pipelines``, or a ``PipelineSchedule``.

    Returns
    -------
    list of Outcome
        One for each small pipeline.

    Examples
    --------
    >>> from ringwright_lab.testing import check_pipeline, failures
    >>> failures(check_pipeline("1f1b"))
    []
    """
    try:
        known = schedule_of(schedule)[0] if isinstance(schedule, str) else schedule
    except RingwrightError as error:
        return [Outcome(TriedInput(str(schedule)), failed={"known": error.what})]
    with trying(known):
        outcomes = [_examine(case, known) for case in cases(known)]
    if all("orders" in each.declined for each in outcomes):
        why = outcomes[0].declined["orders"]
        outcomes.append(Outcome(TriedInput(known.name), failed={"orders": f"it takes none of the pipelines: {why}"}))
    return outcomes


def _examine(case: PipelineCase, schedule: PipelineSchedule) -> Outcome:
    outcome = Outcome(case)
    shape = schedule.halved(case.devices, case.micro_batches, case.chunks)
    call = partial(_orders, case, max(1, shape.devices))
    orders, why = made(call)
    if orders is None:
        outcome.note("orders", why)
        return outcome
    outcome.run("same-again", lambda: None if call() == orders else "it differs from one time to the next")
    tried = TriedOrders(case, schedule, shape, orders)
    for name, look in CHECKS.items():
        if not outcome.run(name, partial(look, tried)) and name in ("named", "whole", "ends"):
            break
    return outcome


def _orders(case: PipelineCase, devices: int) -> tuple[Order, ...]:
    return tuple(
        tuple(order(case.spelling, case.devices, device, case.micro_batches, case.chunks)) for device in range(devices)
    )
