"""What a page draws of advice: one step as it is today, and with each change and those above it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ringwright.advise.evaluation import REFUSALS
from ringwright.advise.settings import BROKEN, Setup
from ringwright.jobs.explained.tracks import StepTrack, StepTracks, tracks

if TYPE_CHECKING:
    from ringwright.advise.advise import Advised
    from ringwright.jobs.study import PolicyResult

MOST_RANKS = 3  # drawn of a step: those that compute longest, least, and between


@dataclass(frozen=True, slots=True)
class DrawnStep:
    """A simulated step: of which change (0: today), what it is called, its seconds, and its lanes as ``tracks`` has them."""

    change: int
    title: str
    step_s: float
    timeline: StepTracks


def drawn_steps(made: Advised) -> list[DrawnStep]:
    """Return today's step and then one a change, all of the same few ranks; empty where nothing was simulated."""
    if made.document["base"]["replayed_us"] is None:
        return []
    iteration = _telling(made)
    name = made.evaluator.situation.job(Setup(), iteration).workload.name
    setups = [(0, f"Today, {name}", Setup())]
    setups += [
        (number, f"With change {number}" + (" and those above it" if number > 1 else ""), each.after)
        for number, each in enumerate(made.changes, 1)
    ]
    steps: list[DrawnStep] = []
    shown: set[str] = set()
    for number, title, setup in setups:
        result = _result(made, setup, iteration)
        if result is not None:
            timeline = tracks(result.run)
            shown = shown or _few(timeline)
            drawn = _only(timeline, shown)
            steps.append(DrawnStep(number, title, result.step_s, drawn))
    return steps


def _telling(made: Advised) -> int:
    """Return the iteration that is drawn: the steadiest one, or where something is mended the one that gains most by that."""
    mended = next((each.after for each in made.changes if each.after.spelling(BROKEN)), None)
    if mended is None:
        return 0
    gains = {}
    for at in range(made.evaluator.situation.iterations):
        before, after = (_result(made, setup, at) for setup in (Setup(), mended))
        gains[at] = before.step_s - after.step_s if before is not None and after is not None else 0.0
    return max(gains, key=lambda at: (gains[at], -at))


def _result(made: Advised, setup: Setup, iteration: int) -> PolicyResult | None:
    """Return a step; None where that iteration declines the setup."""
    try:
        return made.evaluator.result(setup, iteration)
    except REFUSALS:
        return None


def _few(timeline: StepTracks) -> set[str]:
    """Return the kinds of ranks that compute longest, least, and half-way between these."""
    busy = {
        _kind(track): sum(
            end - start for part in track.parts for start, end in zip(part.starts, part.ends, strict=True)
        )
        for track in timeline.tracks
        if track.name == "compute"
    }
    order = sorted(busy, key=lambda kind: (-busy[kind], kind))
    at = {0, len(order) // 2, len(order) - 1} if len(order) > MOST_RANKS else set(range(len(order)))
    return {order[each] for each in at}


def _kind(track: StepTrack) -> str:
    return f"{track.of} {track.rank}"


def _only(timeline: StepTracks, shown: set[str]) -> StepTracks:
    """Return a timeline with the lanes of some kinds of ranks; of other kinds than today's (another form) all that fit."""
    drawn = [track for track in timeline.tracks if _kind(track) in shown]
    if not drawn:
        kinds = list(dict.fromkeys(map(_kind, timeline.tracks)))[:MOST_RANKS]
        drawn = [track for track in timeline.tracks if _kind(track) in kinds]
    return replace(timeline, tracks=drawn, shown=len(set(map(_kind, drawn))))
