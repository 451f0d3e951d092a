"""Who holds a job up, and how it is said, over lateness made by hand: shares of a step by rank and step."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from ringwright.analysis.slow.lateness import Lateness
from ringwright.analysis.slow.stragglers import HeldUp, Stretch, at_least, held_up
from ringwright.analysis.slow.stragglers_said import culprit

RANKS, STEPS = 8, 60
Floats = npt.NDArray[np.float64]


def quiet(step: float = 0.0) -> Floats:
    """Return ranks by steps in which every rank goes to and fro by ``step``: a usual difference of ``step / 0.954``."""
    late = np.zeros((RANKS, STEPS))
    late[:, ::2] = step
    return late


def seen(late: Floats, first: Floats | None = None, *, begin: int = 100, unit: str = "step") -> Lateness:
    """Return lateness of ranks 10, 11, ... in steps of 1,000 us that are numbered from ``begin``."""
    ranks, steps = late.shape
    labels = list(range(begin, begin + steps))
    return Lateness(
        list(range(10, 10 + ranks)), labels, late, np.zeros_like(late) if first is None else first, 1000.0, unit
    )


def verdict(late: Floats) -> tuple[str, tuple[int, ...]]:
    found = held_up(seen(late))
    return found.kind, found.rows


def in_turn(delay: float, every: int = 1) -> Floats:
    """Return lateness in which another rank is late by ``delay`` each time, in every ``every``-th step."""
    late = quiet()
    for number, step in enumerate(range(0, STEPS, every)):
        late[number * 3 % RANKS, step] = delay
    return late


# ------------------------------------------------------------------------------------------------------ for a stretch
def test_a_rank_that_is_late_from_a_step_on() -> None:
    late = quiet()
    late[3, 25:] = 0.5
    found = held_up(seen(late))
    assert (found.kind, found.rows, found.delay) == ("lasting", (3,), 0.5)
    assert found.steps == tuple(range(25, STEPS))
    assert found.stretches == (Stretch(3, 25, STEPS, 0.5),)


def test_what_goes_before_a_stretch_may_be_late_a_little() -> None:
    """A tenth of a step late from the first one on, and then a whole step: it begins where the whole step does."""
    late = quiet()
    late[3, :10] = 0.1
    late[3, 10:] = 1.0
    assert held_up(seen(late)).stretches == (Stretch(3, 10, STEPS, 1.0),)


def test_ranks_late_at_the_same_time_are_slow_and_one_after_the_other_what_is_slow_moves() -> None:
    together = quiet()
    together[2, 10:50] = together[5, 12:50] = 0.5
    assert verdict(together) == ("lasting", (2, 5))
    after = quiet()
    after[2, :20] = after[5, 20:40] = after[1, 40:] = 0.5
    found = held_up(seen(after))
    assert (found.kind, found.rows) == ("moving", (1, 2, 5))
    assert [one.row for one in found.stretches] == [2, 5, 1]


@pytest.mark.parametrize(("delay", "rows"), [(0.4, (2,)), (0.6, (2, 5))])
def test_beside_the_costliest_stretch_only_one_that_costs_a_third_is_accused(
    delay: float, rows: tuple[int, ...]
) -> None:
    """A fifth of a step for forty steps costs eight steps; what lasts six steps must cost 2.4 of them."""
    late = quiet()
    late[2, 20:] = 0.2
    late[5, 4:10] = delay * 0.9
    assert held_up(seen(late)).rows == rows


@pytest.mark.parametrize(("others", "kind"), [(3.5, "at-times"), (2.8, "lasting")])
def test_a_stretch_must_explain_what_holds_the_job_up(others: float, kind: str) -> None:
    """Other ranks in turn late by so many times the usual difference count beyond three: then the one explains too little of it."""
    noise = 0.02
    late = quiet(noise * 0.6745 * math.sqrt(2))
    late[3, :12] = 0.16
    for step in range(12, STEPS):
        late[4 + step % 4, step] = others * noise
    assert verdict(late)[0] == kind


# ----------------------------------------------------------------------------------------------------- now and then
@pytest.mark.parametrize(("delay", "kind"), [(0.06, "at-times"), (0.059, "none")])
def test_six_hundredths_of_a_step_now_and_then_are_enough(delay: float, kind: str) -> None:
    late = quiet()
    late[3, 2::5] = delay
    assert verdict(late)[0] == kind


@pytest.mark.parametrize(("mine", "others", "kind"), [(14.3, 13.7, "at-times"), (13.6, 13.3, "none")])
def test_a_rank_is_looked_for_up_to_fourteen_times_the_usual_difference(mine: float, others: float, kind: str) -> None:
    """Below that others are late as often, each in its turn."""
    noise = 0.01
    late = quiet(noise * 0.6745 * math.sqrt(2))
    late[3, 1:STEPS:6] = mine * noise
    for number, step in enumerate(range(4, STEPS, 3)):
        late[(4, 5, 6, 7, 0, 1, 2)[number % 7], step] = others * noise
    assert verdict(late)[0] == kind


def test_a_rank_must_cause_most_of_what_holds_the_job_up() -> None:
    late = in_turn(0.2, every=3)
    late[3, 1::6] = 0.2
    assert verdict(late)[0] == "none"
    late[3, 1::3] = late[3, 2::3] = 0.2
    assert verdict(late) == ("at-times", (3,))


# ---------------------------------------------------------------------------------------------------------- in turn
@pytest.mark.parametrize(("delay", "kind"), [(0.55, "in-turn"), (0.45, "none")])
def test_ranks_that_hold_up_every_step_in_turn_do_so_by_half_of_it(delay: float, kind: str) -> None:
    assert verdict(in_turn(delay))[0] == kind


def test_a_quarter_of_the_steps_held_up_no_more_than_the_others_are_not_in_turn() -> None:
    late = in_turn(0.45)
    late[late.argmax(axis=0)[::4], np.arange(0, STEPS, 4)] = 0.55
    assert verdict(late)[0] == "none"


def test_ranks_in_turn_are_those_that_were_last() -> None:
    late = quiet()
    for number, step in enumerate(range(0, STEPS, 4)):
        late[(1, 4, 6)[number % 3], step] = 0.8
    found = held_up(seen(late))
    assert (found.kind, found.rows, found.steps) == ("in-turn", (1, 4, 6), tuple(range(0, STEPS, 4)))
    assert found.delay == 0.8


def test_one_rank_does_not_take_turns() -> None:
    """Five steps of one rank alone: too few for the surest rule, and yet nobody else; named, with what chance would make of it."""
    late = quiet()[:4]
    late[1, 3:36:7] = 9.0
    found = held_up(seen(late))
    assert (found.kind, found.rows, found.steps) == ("at-times", (1,), (3, 10, 17, 24, 31))
    assert found.chance == pytest.approx(4 * 0.25**5)
    told = culprit(seen(late), found, 1.0)
    assert (told["kind"], told["ranks"], told["confidence"]) == ("straggler", [11], 0.6)
    assert told["evidence"][0].startswith("rank 11 holds the others up now and then: in 8% of 60 steps")
    assert "every 7 of them" in told["evidence"][0]


def test_a_few_ranks_in_turn_are_named() -> None:
    found = HeldUp("in-turn", (1, 4, 6), (), tuple(range(0, STEPS, 4)), 0.8)
    assert said(found)[0].startswith("cannot tell one rank: ranks 11, 14, 16 hold the others up in turn, in 25% of")


def test_nobody() -> None:
    assert held_up(seen(quiet())) == HeldUp("none", (), (), (), 0.0)


def test_how_likely_so_many_hits_are() -> None:
    assert at_least(0, 5, 0.3) == pytest.approx(1.0)
    assert at_least(2, 3, 0.5) == pytest.approx(0.5)
    assert at_least(5, 5, 0.5) == pytest.approx(1 / 32)
    assert at_least(1, 2, 0.25) == pytest.approx(7 / 16)
    assert at_least(600, 2000, 0.25) == pytest.approx(at_least(300, 1000, 0.25))


# ------------------------------------------------------------------------------------------------------- how it is said
def said(found: HeldUp, steps: int = STEPS, unit: str = "step") -> list[str]:
    evidence: list[str] = culprit(seen(np.zeros((RANKS, steps)), unit=unit), found, 1.0)["evidence"]
    return evidence


def lasting(first: int, last: int) -> HeldUp:
    return HeldUp("lasting", (3,), (Stretch(3, first, last, 0.5),), tuple(range(first, last)), 0.5)


@pytest.mark.parametrize(
    ("first", "last", "when"),
    [
        (0, 60, "all the time"),
        (1, 58, "all the time"),
        (2, 60, "from step 102 on"),
        (0, 57, "from the beginning to step 156"),
        (2, 57, "from step 102 to step 156"),
        (2, 58, "from step 102 on"),
        (2, 59, "from step 102 on"),
    ],
)
def test_the_ends_of_a_recording_are_no_beginning_and_no_end(first: int, last: int, when: str) -> None:
    """Of 60 steps the two at each end count as the end."""
    assert said(lasting(first, last))[0].startswith(f"rank 13 holds the others up {when}: 0.5 ms (50% of a usual step)")


@pytest.mark.parametrize(
    ("steps", "rhythm"),
    [
        ((3, 6, 9, 12, 15), ", every 3 of them"),
        ((3, 6, 9, 12, 15, 17), ", every 3 of them"),
        ((3, 6, 9, 13, 17, 22), ""),
        ((3, 4, 5, 6, 7), ""),
        ((3, 6, 9), ""),
    ],
)
def test_a_rhythm_is_told_where_there_is_one(steps: tuple[int, ...], rhythm: str) -> None:
    first = said(HeldUp("at-times", (3,), (), steps, 0.5, 1e-9), unit="call")[0]
    assert first.endswith(f"the first of them 103, by 0.5 ms (50% of a usual call){rhythm}")


@pytest.mark.parametrize(
    ("kind", "told", "ranks", "confidence"),
    [
        ("lasting", "straggler", [13], 0.95),
        ("moving", "straggler-moving", [13], 0.85),
        ("at-times", "straggler", [13], 0.8),
        ("in-turn", "stragglers-in-turn", [], 0.3),
    ],
)
def test_each_kind_has_its_confidence_and_whom_it_accuses(
    kind: str, told: str, ranks: list[int], confidence: float
) -> None:
    found = HeldUp(kind, (3,), (Stretch(3, 6, 12, 0.5),), tuple(range(6, 12)), 0.5)
    one = culprit(seen(np.zeros((RANKS, STEPS))), found, 1.0)
    assert (one["kind"], one["ranks"], one["confidence"]) == (told, ranks, confidence)
    assert (one["begin_step"], one["steps_share"]) == (106, 0.1)
    assert culprit(seen(np.zeros((RANKS, STEPS))), found, 0.2)["confidence"] == round(0.6 * confidence, 2)


def test_a_delay_before_the_first_call_of_a_step_is_said_to_lie_there() -> None:
    late = quiet()
    late[3, 25:] = 0.5
    found = held_up(seen(late))
    assert "before the step's first collective" in culprit(seen(late, 0.9 * late), found, 1.0)["evidence"][-1]
    assert len(culprit(seen(late, 0.5 * late), found, 1.0)["evidence"]) == 1
    assert len(culprit(seen(late, late, unit="call"), found, 1.0)["evidence"]) == 1
