"""Solves the program for every stage within its memory, and tries what comes out: the peak is that of the rewritten step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ringwright.graph.memory import memory
from ringwright.ground.errors import InfeasibleError
from ringwright.ground.units import format_size
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose.lynx.carry_out import Sources, put
from ringwright.schedulers.decompose.lynx.layers import LayersOfClass, StageLayer, joint
from ringwright.schedulers.decompose.lynx.program import (
    DEMAND,
    KEPT,
    Recomputation,
    RecomputeChoice,
    chosen,
    judged,
    on_demand,
)
from ringwright.schedulers.decompose.lynx.stages import imbalance, partitioned

TRIES = 4  # budgets of a stage, each by how far the last one's peak was from the limit


@dataclass(frozen=True)
class MemoryLimits:
    """Bytes of a rank, the share of a window that is good for work, the search, how far it looks, and whether waits are used."""

    memory_bytes: float
    overlap: float
    search: str
    reach: int
    early: bool


def planned(workload: Workload, stages: Sequence[LayersOfClass], limits: MemoryLimits) -> tuple[Workload, list[str]]:
    """Return the step that fits, and what was decided, in words; InfeasibleError, naming the least, where none does.

    Layers of a stage in one program are searched so far as the solver's budget goes: where alike layers solved once expose less,
    that is the answer.
    """
    both = [
        _within(workload, stages, replace(limits, search=search)) for search in dict.fromkeys(("heu", limits.search))
    ]
    best = min(both, key=lambda each: each.exposed_s)
    return best.workload, best.said


@dataclass(frozen=True)
class _Tried:
    workload: Workload
    said: list[str]
    exposed_s: float = 0.0


def _within(workload: Workload, stages: Sequence[LayersOfClass], limits: MemoryLimits) -> _Tried:
    """Return the step that fits, by one search; InfeasibleError where none does."""
    peaks = _peaks(workload)
    if max(peaks.values()) <= limits.memory_bytes:
        return _Tried(workload, [f"all fits into {format_size(round(limits.memory_bytes))}: nothing is computed again"])
    least = {
        (layer.of, layer.number): on_demand(_alone(stage, layer, limits)) for stage in stages for layer in stage.layers
    }
    floor = put(workload, stages, least, early=False)
    lowest = _peaks(floor)
    if max(lowest.values()) > limits.memory_bytes:
        of = max(lowest, key=lambda name: lowest[name])
        what = f"{of} needs {format_size(lowest[of])} at the least, of {format_size(round(limits.memory_bytes))}"
        raise InfeasibleError(what, where=of, remedy="more memory, smaller micro-batches, zero1, or more ranks a layer")
    room = {stage.of: limits.memory_bytes - lowest[stage.of] for stage in stages}
    for early in (True, False) if limits.early else (False,):
        sources, exposed = _best(workload, stages, limits, (room, peaks, least), early=early)
        made = put(workload, stages, sources, early=early)
        if max(_peaks(made).values()) <= limits.memory_bytes:
            break
    return _Tried(made, _said(stages, sources, exposed, lowest, limits), sum(exposed.values()))


def _best(
    workload: Workload,
    stages: Sequence[LayersOfClass],
    limits: MemoryLimits,
    known: tuple[dict[str, float], dict[str, int], Sources],
    *,
    early: bool,
) -> tuple[Sources, dict[str, float]]:
    """Return the sources with which each stage exposes least of those tried within the limit, and what it exposes."""
    spare, peaks, least = known
    best, late = _solved(stages, limits, dict.fromkeys(spare, 0.0), peaks, least)
    before: Sources = best
    for _ in range(TRIES):
        sources, exposed = _solved(stages, limits, spare, peaks, least)
        if sources == before:
            break  # alike layers change all at once, so a little more room changes nothing
        before, held = sources, _peaks(put(workload, stages, sources, early=early))
        for of, peak in held.items():
            if peak <= limits.memory_bytes and exposed[of] <= late[of]:
                best = {key: sources[key] if key[0] == of else mine for key, mine in best.items()}
                late[of] = exposed[of]
        left = {of: limits.memory_bytes - peak for of, peak in held.items()}
        spare = {of: room + (0.8 if left[of] > 0 else 1.1) * left[of] for of, room in spare.items()}
    return best, late


def _peaks(workload: Workload) -> dict[str, int]:
    return {each.of: each.peak_bytes for each in memory(workload)}


def _solved(
    stages: Sequence[LayersOfClass],
    limits: MemoryLimits,
    spare: dict[str, float],
    peaks: dict[str, int],
    least: Sources,
) -> tuple[Sources, dict[str, float]]:
    """Return where each result comes from by the choices of every stage, and the seconds that each stage exposes.

    A stage without room to spare computes again what it can, when it is needed: that is known to fit.
    """
    sources: dict[tuple[str, int], dict[str, str]] = {}
    exposed: dict[str, float] = {}
    for stage in stages:
        if peaks[stage.of] <= limits.memory_bytes:
            choices = _all_kept(stage)
        elif spare[stage.of] > 0:
            choices = choices_of(stage, limits, spare[stage.of])
        else:
            choices = {layer.number: _late(layer, least[stage.of, layer.number]) for layer in stage.layers}
        exposed[stage.of] = sum(each.exposed_s for each in choices.values())
        sources |= {(stage.of, number): dict(choice.source) for number, choice in choices.items()}
    return sources, exposed


def _late(layer: StageLayer, source: Mapping[str, str]) -> RecomputeChoice:
    return RecomputeChoice(
        dict(source), sum(each.seconds for each in layer.operations if source.get(each.name) == DEMAND)
    )


def _all_kept(stage: LayersOfClass) -> dict[int, RecomputeChoice]:
    return {
        layer.number: RecomputeChoice({each.name: KEPT for each in layer.operations if each.is_needed})
        for layer in stage.layers
    }


def choices_of(
    stage: LayersOfClass, limits: MemoryLimits, spare_bytes: float, share: float = 1.0
) -> dict[int, RecomputeChoice]:
    """Return the choice of each layer of a stage that has ``spare_bytes`` beside what is kept when all is computed on demand.

    The memory must do for ``share`` times as many layers.
    """
    if limits.search == "opt":
        return _joint(stage, limits, spare_bytes)
    count = len(stage.layers)
    alike: dict[object, list[StageLayer]] = {}
    for layer in stage.layers:
        alike.setdefault(layer.signature, []).append(layer)
    made: dict[int, RecomputeChoice] = {}
    for group in alike.values():
        problem = _alone(stage, group[0], limits, len(group) * share, spare_bytes * len(group) / count)
        choice = chosen(problem)
        turn = {each.name: at for at, each in enumerate(group[0].operations)}
        for layer in group:
            source = {layer.operations[turn[name]].name: where for name, where in choice.source.items()}
            made[layer.number] = replace(choice, source=source)
    return made


def _alone(
    stage: LayersOfClass, layer: StageLayer, limits: MemoryLimits, alike: float = 1, spare_bytes: float = float("inf")
) -> Recomputation:
    """Return the program of one layer for all that are alike; what it holds on demand is free."""
    windows = tuple(each.window for each in layer.windows)
    made = Recomputation(
        layer.operations, windows, 0.0, stage.copies, max(1, round(alike)), limits.overlap, has_turn=True
    )
    base = judged(made, on_demand(made)).held_bytes
    return replace(made, budget_bytes=base + max(0.0, spare_bytes))


def _joint(stage: LayersOfClass, limits: MemoryLimits, spare_bytes: float) -> dict[int, RecomputeChoice]:
    """Return the choices of one program for the whole stage."""
    operations, windows = joint(stage.layers, limits.reach)
    waits = tuple(each.window for each in windows)
    made = Recomputation(operations, waits, 0.0, stage.copies, 1, limits.overlap, limits.reach, has_turn=True)
    base = judged(made, on_demand(made)).held_bytes
    source = chosen(replace(made, budget_bytes=base + max(0.0, spare_bytes))).source
    choices = {}
    for layer in stage.layers:
        mine = {each.name: source[each.name] for each in layer.operations if each.name in source}
        choices[layer.number] = _late(layer, mine)
    return choices


def _said(
    stages: Sequence[LayersOfClass],
    sources: Sources,
    exposed: dict[str, float],
    lowest: dict[str, int],
    limits: MemoryLimits,
) -> list[str]:
    said = []
    for stage in stages:
        mine = [where for layer in stage.layers for where in sources[stage.of, layer.number].values()]
        again = [where for where in mine if where != KEPT]
        late = again.count("demand")
        said.append(
            f"{stage.of}: {len(again)} of {len(mine)} operations of {len(stage.layers)} layers are computed again, "
            f"{len(again) - late} in windows; {exposed[stage.of] * 1e3:.2f} ms a micro-batch on demand"
        )
    return said + _moved(stages, lowest, limits)


def _moved(stages: Sequence[LayersOfClass], lowest: dict[str, int], limits: MemoryLimits) -> list[str]:
    """Say which stages would be faster, if layers moved: a prediction by the program, nothing is simulated."""
    bodies = [_body(stage) for stage in stages]
    counts = [len(body) for body in bodies]
    if len(stages) < 2 or min(counts) < 2:
        return []

    def stage_s(at: int, layers: int) -> float:
        """Return the seconds of a micro-batch; what a stage holds at the least grows with its layers."""
        stage, share = stages[at], layers / counts[at]
        spare = limits.memory_bytes - lowest[stage.of] * share
        if spare < 0:
            return float("inf")
        late = sum(each.exposed_s for each in choices_of(stage, replace(limits, search="heu"), spare, share).values())
        own = sum(task.seconds for task in stage.tasks.values() if task.layer in bodies[at])
        return sum(task.seconds for task in stage.tasks.values()) + own * (share - 1) + late * share

    best = partitioned(counts, stage_s)
    if best == counts:
        return []
    now, then = ([stage_s(at, each) for at, each in enumerate(made)] for made in (counts, best))
    said = (
        f"--stages {','.join(map(str, best))} in place of {','.join(map(str, counts))}: the slowest stage is predicted to be "
        f"{imbalance(then) * 100:.0f} % above the mean, not {imbalance(now) * 100:.0f} %"
    )
    return [said]


def _body(stage: LayersOfClass) -> set[int]:
    """Return the layers of a stage that are like most of them: neither embedding nor head."""
    alike: dict[object, set[int]] = {}
    for layer in stage.layers:
        times = tuple(picoseconds for picoseconds, _ in layer.needed if picoseconds)
        alike.setdefault(times, set()).add(layer.number)
    return max(alike.values(), key=len, default=set())
