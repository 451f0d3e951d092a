"""The sentences about stragglers: one culprit, its conclusion first, with the first step and the share of steps."""

from __future__ import annotations

import numpy as np

from ringwright.analysis.document import Culprit
from ringwright.analysis.hangs.hang_mismatch import say_ranks
from ringwright.analysis.slow.lateness import Lateness
from ringwright.analysis.slow.stragglers import CHANCE, HeldUp, Stretch

MOVING, IN_TURN, STRAGGLER = "straggler-moving", "stragglers-in-turn", "straggler"
AT_FIRST = 0.8  # of a delay before the step's first call, from which on what precedes that call is named
MOST_SPANS = 6
MOST_NAMED = 4  # of ranks that take turns


def culprit(seen: Lateness, stragglers: HeldUp, ground: float) -> Culprit:
    """Return the culprit: ``begin_step`` where it began, ``steps_share`` of the steps held up; confidence by ``ground``."""
    ranks = [] if stragglers.kind == "in-turn" else [seen.ranks[row] for row in stragglers.rows]
    share = len(stragglers.steps) / len(seen.labels)
    kinds = {"moving": MOVING, "in-turn": IN_TURN}
    evidence = {"lasting": _lasting, "moving": _moving, "at-times": _at_times, "in-turn": _in_turn}[stragglers.kind](
        seen, stragglers, share
    )
    return {
        "ranks": ranks,
        "hosts": [],
        "kind": kinds.get(stragglers.kind, STRAGGLER),
        "confidence": _confidence(stragglers, ground),
        "evidence": [*evidence, *_where(seen, stragglers)],
        "begin_step": seen.labels[stragglers.steps[0]],
        "steps_share": round(share, 4),
    }


def _confidence(stragglers: HeldUp, ground: float) -> float:
    sure = {"lasting": 0.95, "moving": 0.85, "at-times": _at_times_sure(stragglers.chance), "in-turn": 0.3}[
        stragglers.kind
    ]
    return round(sure * max(ground, 0.6), 2)


def _at_times_sure(chance: float) -> float:
    """Return how sure it is that a rank is late now and then, where so many steps would be its by chance."""
    return next(sure for most, sure in ((CHANCE, 0.8), (0.01, 0.6), (1.0, 0.3)) if chance <= most)


def _lasting(seen: Lateness, stragglers: HeldUp, share: float) -> list[str]:
    ranks = [seen.ranks[row] for row in stragglers.rows]
    first, last = min(one.first for one in stragglers.stretches), max(one.last for one in stragglers.stretches)
    when = _when(seen, first, last)
    holds = "holds" if len(ranks) == 1 else "hold"
    return [
        (
            f"{say_ranks(ranks)} {holds} the others up {when}: {_cost(seen, stragglers)} a {seen.unit}, "
            f"in {share:.0%} of {len(seen.labels)} {seen.unit}s"
        )
    ]


def _when(seen: Lateness, first: int, last: int) -> str:
    """Say from which step to which; ends of the recording are not called a beginning or an end."""
    edge = 1 + len(seen.labels) // 50
    if last >= len(seen.labels) - edge:
        return "all the time" if first < edge else f"from {seen.unit} {seen.labels[first]} on"
    begin = "the beginning" if first < edge else f"{seen.unit} {seen.labels[first]}"
    return f"from {begin} to {seen.unit} {seen.labels[last - 1]}"


def _moving(seen: Lateness, stragglers: HeldUp, share: float) -> list[str]:
    spans = [_span(seen, one) for one in stragglers.stretches[:MOST_SPANS]]
    return [
        (
            f"the slow rank changes, {len(stragglers.rows)} ranks one after the other: {'; '.join(spans)}; in {share:.0%} of "
            f"{len(seen.labels)} {seen.unit}s"
        ),
        "what moves is seldom a card or a host: look at what moves with it (data, experts, a neighbour's job)",
    ]


def _span(seen: Lateness, one: Stretch) -> str:
    return f"rank {seen.ranks[one.row]} in {seen.unit}s {seen.labels[one.first]} to {seen.labels[one.last - 1]}"


def _at_times(seen: Lateness, stragglers: HeldUp, share: float) -> list[str]:
    rank = seen.ranks[stragglers.rows[0]]
    return [
        (
            f"rank {rank} holds the others up now and then: in {share:.0%} of {len(seen.labels)} {seen.unit}s, "
            f"the first of them {seen.labels[stragglers.steps[0]]}, by {_cost(seen, stragglers)}{_rhythm(stragglers)}"
        ),
        f"it is last in so many of the {seen.unit}s that are held up by chance {stragglers.chance:.1g}, were all alike",
    ]


def _rhythm(stragglers: HeldUp) -> str:
    gaps = np.diff(stragglers.steps)
    common = int(np.bincount(gaps).argmax()) if len(gaps) > 2 else 0
    is_regular = len(gaps) > 2 and float((gaps == common).mean()) >= 0.8
    return f", every {common} of them" if is_regular and common > 1 else ""


def _in_turn(seen: Lateness, stragglers: HeldUp, share: float) -> list[str]:
    ranks = [seen.ranks[row] for row in stragglers.rows]
    who = say_ranks(ranks) if len(ranks) <= MOST_NAMED else f"{len(ranks)} ranks"
    return [
        (
            f"cannot tell one rank: {who} hold the others up in turn, in {share:.0%} of "
            f"{len(seen.labels)} {seen.unit}s, by {_cost(seen, stragglers)} each"
        ),
        "pauses that go around: collection of garbage at each rank's own time, data that come late, uneven work",
    ]


def _cost(seen: Lateness, stragglers: HeldUp) -> str:
    return f"{stragglers.delay * seen.step_us / 1e3:,.3g} ms ({stragglers.delay:.0%} of a usual {seen.unit})"


def _where(seen: Lateness, stragglers: HeldUp) -> list[str]:
    """Say where in the step the delay falls, if nearly all of it falls before the first call."""
    if seen.unit != "step" or stragglers.kind not in ("lasting", "at-times") or len(stragglers.rows) != 1:
        return []
    row, steps = stragglers.rows[0], list(stragglers.steps)
    before, whole = float(np.median(seen.first[row, steps])), float(np.median(seen.late[row, steps]))
    if whole <= 0 or before < AT_FIRST * whole:
        return []
    return ["the delay comes before the step's first collective: the input data, or what else precedes that call"]
