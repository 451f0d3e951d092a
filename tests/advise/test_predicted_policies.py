"""Policies that are named, predicted from a recording of one bucket; and how predictions are judged against real ranks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ringwright.advise.interval import FEWEST_DRAWS
from ringwright.advise.layers.ddp import bucket_settings
from ringwright.advise.situation import of_recording
from ringwright.costs.measured_costs import MeasuredCosts, MeasuredOperation
from ringwright.jobs.job_trace import trace
from ringwright.jobs.study import Job, answer
from ringwright.model.stages import LinkCosts
from ringwright.workloads.chain import ChainLayer, chain
from ringwright.workloads.recorded.finer import PIECE_BYTES, in_pieces
from ringwright.workloads.recorded.isolated_times import own_times
from ringwright.workloads.recorded.plan import CommEvent, RankStep, RecordedCall
from ringwright_lab.judges.predicted import predicted

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import lab_advise

pytestmark = pytest.mark.once
RESULTS = Path(lab_advise.__file__).with_suffix(".json")
KIB = 1 << 10
WIRE_S = 0.05
ONE_BUCKET = "pytorch-ddp:bucket_cap_mb=1000:first_bucket_mb=1000"


def job() -> Job:
    """Six layers whose gradients take nearly as long as the layers."""
    made = chain("toy", [ChainLayer(0.04, 0.02, 256 * KIB, 64 * KIB) for _ in range(6)], ranks=2)
    return Job(made, LinkCosts(256 * KIB / WIRE_S), folded=False)


def test_what_one_bucket_would_gain_in_pieces_is_told_from_its_recording() -> None:
    """Half of sixteen draws of an operation's time lie on one side of it, so that the step is off by some of its spread."""
    policy = "pytorch-ddp:bucket_cap_mb=0.25:first_bucket_mb=0.25"
    today, truth = (answer(job(), each) for each in (ONE_BUCKET, policy))
    (told,) = predicted(of_recording(trace(job(), today), None), [policy], most=FEWEST_DRAWS)
    assert told.gain is not None
    assert told.step_s == pytest.approx(truth.step_s, rel=0.1)
    assert told.gain[0] <= 1 - truth.step_s / today.step_s <= told.gain[2]


@pytest.mark.parametrize("policy", ["p3:slice_elements=1024", "pytorch-ddp:bucket_cap_mb=0.016:first_bucket_mb=0.016"])
def test_pieces_of_one_bucket_are_made_and_used_evenly(policy: str) -> None:
    """A bucket of 24 even layers in pieces does what the layers do: forward waits for its own pieces only."""
    costs = LinkCosts(4 * PIECE_BYTES / WIRE_S)
    bucket = chain("bucket", [ChainLayer(0.24, 0.12, 24 * PIECE_BYTES, 24 * PIECE_BYTES // 4)])
    layers = chain("layers", [ChainLayer(0.01, 0.005, PIECE_BYTES, PIECE_BYTES // 4) for _ in range(24)])
    pieces, _ = in_pieces(bucket) or (bucket, bucket)
    truth_s, whole_s = (answer(Job(each, costs), policy).step_s for each in (layers, bucket))
    assert answer(Job(pieces, costs), policy).step_s == pytest.approx(truth_s, rel=1e-3)
    assert whole_s > 1.1 * truth_s, "in one piece it waits"


def test_a_policy_that_cannot_be_done_is_refused_with_its_reason() -> None:
    today = answer(job(), ONE_BUCKET)
    (told,) = predicted(of_recording(trace(job(), today), None), ["gradientflow"], most=FEWEST_DRAWS)
    assert told.step_s is None
    assert "not the same numbers" in told.refused


def test_a_cap_that_is_given_is_the_first_buckets_too() -> None:
    """As DistributedDataParallel takes it; without a cap the first bucket has 1 MiB."""
    today = answer(job(), ONE_BUCKET)
    settings = bucket_settings(of_recording(trace(job(), today), None))
    assert "pytorch-ddp:bucket_cap_mb=0.5:first_bucket_mb=0.5" in [each.spelling for each in settings]


# ------------------------------------------------------------------------------------------- operations beside others
def owned(*calls: tuple[float, float], sizes: tuple[int, ...] = ()) -> list[float | None]:
    """Own seconds of calls (issued, ended) of 1000 bytes each, unless said otherwise."""
    listed = [
        RecordedCall(at, "all-reduce", sizes[at] if sizes else 1000, 0, None, begin, end - begin)
        for at, (begin, end) in enumerate(calls)
    ]
    own_times(RankStep(0, sent=[CommEvent(each) for each in listed]), lambda _: ())
    return [each.own_s for each in listed]


def test_operations_one_after_another_take_what_follows_the_one_before() -> None:
    assert owned((0.0, 1.0), (0.1, 2.0), (0.2, 3.0)) == pytest.approx([1.0, 1.0, 1.0])


def test_operations_two_at_a_time_share_what_carries_them() -> None:
    """Two begin at once and take twice as long; so do the two that were issued meanwhile."""
    assert owned((0.0, 2.0), (0.0, 2.0), (0.5, 4.0), (0.6, 4.0)) == pytest.approx([1.0, 1.0, 1.0, 1.0])


def test_unequal_operations_two_at_a_time_share_by_their_bytes() -> None:
    """A small one beside a large one on the same connections waits for the large one's messages."""
    assert owned((0.0, 2.0), (0.0, 3.0), sizes=(500, 2500)) == pytest.approx([1 / 3, 2 + 2 / 3])


def test_nearly_one_size_tells_no_latency() -> None:
    """Two operations a sixth apart, one of them by noise as long as the other: a tenth of them is not nearly as long."""
    near = MeasuredCosts.of(
        [MeasuredOperation("all-reduce", 700_000, "dp", 0.175), MeasuredOperation("all-reduce", 600_000, "dp", 0.170)]
    )
    far = MeasuredCosts.of(
        [MeasuredOperation("all-reduce", 700_000, "dp", 0.19), MeasuredOperation("all-reduce", 100_000, "dp", 0.07)]
    )
    assert near.lines["all-reduce"][0] == 0
    assert far.lines["all-reduce"][0] == pytest.approx(0.05)


def test_operations_apart_keep_their_times_whatever_their_sizes() -> None:
    assert owned((0.0, 1.0), (2.0, 2.5), (3.0, 3.0), sizes=(1000, 400, 10)) == pytest.approx([1.0, 0.5, 0.0])


# -------------------------------------------------------------------------------------------------------- the verdict
def results(**steps: float) -> dict[str, Any]:
    """A row of results: today's step of 1 s; p3 was predicted to gain 30 %, ddp:1 10 %, lina was refused."""
    told = {"p3": [0.2, 0.3, 0.4], "ddp:1": [0.05, 0.1, 0.15], "lina": None}
    return {
        "set": "b",
        "case": "made",
        "today": "ddp",
        "limits": {"recorded": "wire", "measured": "wire"},
        "predicted": {name: {"gain": gain} for name, gain in told.items()},
        "recorded_s": [1.0],
        "measured_s": {"ddp": [1.0, 0.9, 1.1], **{name.replace("_", ":"): [each] for name, each in steps.items()}},
    }


def test_the_best_as_predicted_with_its_gain_inside() -> None:
    verdict = lab_advise.judged(results(p3=0.65, ddp_1=0.92, lina=0.99))
    assert (verdict.is_right, verdict.is_inside, verdict.limit) == (True, True, "wire")
    assert verdict.ahead == pytest.approx(0.92 / 0.65 - 1)
    assert lab_advise.coverage([results(p3=0.65, ddp_1=0.92, lina=0.99)])[:2] == (2, 2)


def test_another_one_is_best() -> None:
    verdict = lab_advise.judged(results(p3=0.9, ddp_1=0.5, lina=0.99))
    assert (verdict.predicted, verdict.best) == ("p3", "ddp:1")
    assert not verdict.is_inside


def test_no_change_is_best_and_what_loses_least_is_judged() -> None:
    verdict = lab_advise.judged(results(p3=1.2, ddp_1=1.1, lina=1.3))
    assert (verdict.best, verdict.change) == ("ddp", "ddp:1")
    assert verdict.gain == pytest.approx(-0.1)
    assert not verdict.is_right


def test_a_best_that_was_refused_is_no_hit() -> None:
    verdict = lab_advise.judged(results(p3=0.7, ddp_1=0.9, lina=0.5))
    assert (verdict.is_right, verdict.is_inside, verdict.interval) == (False, False, None)


@pytest.mark.parametrize("which", ["a", "b"])
def test_each_case_has_six_changes_that_differ(which: str) -> None:
    listed = lab_advise.cases(which)
    assert len({each.slug for each in listed}) == 10
    assert all(len(set(each.settings)) == 7 for each in listed)


def test_the_results_that_are_kept_are_of_the_cases_and_say_what_the_page_says() -> None:
    rows = [row for row in json.loads(RESULTS.read_text()) if row["set"] == "b"]
    cases = {each.name: each for each in lab_advise.cases("b")}
    assert {row["case"] for row in rows} == cases.keys()
    assert all(set(row["measured_s"]) == set(cases[row["case"]].settings) for row in rows)
    verdicts = [lab_advise.judged(row) for row in rows]
    assert {each.limit for each in verdicts} == {"wire"}
    counts = [
        sum(each) for each in zip(*((one.is_right, one.is_inside, one.ahead >= 0.08) for one in verdicts), strict=True)
    ]
    assert counts == [9, 10, 8]
    assert lab_advise.coverage(rows)[:2] == (56, 60)
