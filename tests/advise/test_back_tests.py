"""Predictions held against recordings: halves, pairs, causes that were put in, and what is said of each."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from ringwright.advise import advise as advising
from ringwright.advise import backtest
from ringwright.advise.advise import AdviceSpec, advise
from ringwright.advise.backtest import BackTest, is_telling, of_halves, of_pair, wander
from ringwright.advise.bucket_tensors import lumped
from ringwright.advise.changes import setup_of
from ringwright.advise.evaluation import Evaluator
from ringwright.advise.interval import FEWEST_DRAWS, Draws, size_sigma
from ringwright.advise.layers.repair import repair_settings
from ringwright.advise.links import SOCKETS, slow_link, sockets_seen
from ringwright.advise.settings import BROKEN, GRAPH, LINK, MACHINE, NETWORK, ORDER, Setup
from ringwright.advise.situation import of_recording
from ringwright.cli import main
from ringwright.costs.measured_costs import MeasuredCosts, MeasuredOperation
from ringwright.fabrics import fabric
from ringwright.ground.errors import InputError, UsageError
from ringwright.jobs.recorded_job import FAR
from ringwright.model.registry import scheduler
from ringwright.reports.steps.backtested import write_judged
from ringwright.workloads.replay import replayed
from ringwright_lab.live.recordings import WARMUP, in_turns
from ringwright_lab.testing import drawn_jobs
from ringwright_lab.testing.back_tests import (
    SEALED,
    BackTestSizes,
    JudgedCause,
    JudgedPair,
    campaign,
    counted,
    figures,
)
from ringwright_lab.testing.drawn_jobs import drawn, recorded
from ringwright_lab.testing.drawn_pairs import RecordedPair, buckets, pair
from ringwright_lab.testing.live_pairs import planned, runs
from ringwright_lab.testing.planted_causes import LEAST, PlantedRecording, planted

SEED = 21  # below those that are fitted to


@pytest.fixture(scope="module", autouse=True)
def _small_jobs() -> Iterator[None]:
    """Recordings of few steps and layers, and a quarter of the draws: what is judged, and how, is the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawn_jobs, "STEPS", (10, 12))
        patch.setattr(drawn_jobs, "LAYERS", (8, 12))
        patch.setattr(backtest, "MOST_DRAWS", 8)
        patch.setattr(advising, "Draws", partial(Draws, most=FEWEST_DRAWS))
        yield


@pytest.fixture(scope="module")
def made() -> RecordedPair:
    return pair("buckets", SEED)


@pytest.fixture(scope="module")
def judged(made: RecordedPair) -> BackTest:
    return of_pair(made.before, made.after, made.change)


@pytest.mark.once
def test_a_pair_is_predicted_from_its_first_recording_alone(made: RecordedPair, judged: BackTest) -> None:
    assert judged.gain_p05 is not None
    assert judged.gain_p95 is not None
    assert judged.gain_p05 < judged.gain_p95 < 1
    steps = [of_recording(each, None).measured_s for each in (made.before, made.after)]
    assert judged.measured_gain == pytest.approx(1 - np.mean(steps[1]) / np.mean(steps[0]))
    assert judged.is_inside is (judged.gain_p05 <= judged.measured_gain <= judged.gain_p95)
    other = of_pair(made.before, made.before, made.change)
    before, after = ((each.gain_p05, each.gain_p50, each.gain_p95) for each in (other, judged))
    assert before == after, "what was measured afterwards is not seen"


@pytest.mark.parametrize(
    ("low", "middle", "high", "sentence"),
    [
        (-0.257, 0.002, 0.204, "Too wide to tell: 0.2% in -25.7% to 20.4% was predicted, and 5.6% was measured"),
        (-0.01, 0.05, 0.2, "Too wide to tell: 5.0% in -1.0% to 20.0% was predicted, and 5.6% was measured"),
        (0.01, 0.05, 0.2, "The change did what was predicted: 5.6% was measured, 5.0% in 1.0% to 20.0% was predicted"),
        (0.07, 0.1, 0.2, "The change gained less than was predicted: 5.6%"),
    ],
)
def test_an_interval_in_which_nearly_anything_lies_is_no_success(
    judged: BackTest, low: float, middle: float, high: float, sentence: str
) -> None:
    gains = {"gain_p05": low, "gain_p50": middle, "gain_p95": high, "measured_gain": 0.056}
    verdict: dict[str, Any] = {"is_inside": low <= 0.056 <= high, "is_telling": is_telling(low, high), "kind": "pair"}
    out = io.StringIO()
    write_judged(replace(judged, **gains, **verdict), out, width=200)
    assert out.getvalue().splitlines()[0].strip() == sentence


@pytest.mark.once
def test_a_gain_that_is_not_there_is_seen(made: RecordedPair) -> None:
    """A recording beside itself has no gain: where the change is predicted to gain surely, it lies outside."""
    faster = of_pair(made.before, made.before, "repair:0" if made.before.df["rank"].max() else "p3")
    assert faster.measured_gain == 0
    assert faster.is_inside is not None


@pytest.mark.once
def test_halves_of_a_job_that_slows_down_differ() -> None:
    job = drawn(SEED)
    plan = job.planned(scheduler(buckets(job, 0.25))[1])
    steady = recorded(job, plan, 0)
    calm = of_halves(steady)
    assert abs(calm.measured_gain) < 0.2, "one half is as long as the other"
    assert (calm.change, calm.kind) == ("", "halves")
    from ringwright.ground.trace_tables import TABLES
    from ringwright.model.trace import Trace

    frames = {name: steady.table(name) for name in TABLES}
    middle = frames["events"].filter(pl.col("iteration") == job.steps // 2)["start_s"].min()
    assert isinstance(middle, float)
    late = pl.col("start_s") >= middle
    frames["events"] = (
        frames["events"]
        .with_columns(
            pl.when(late).then(middle + 2 * (pl.col(name) - middle)).otherwise(pl.col(name)).alias(name)
            for name in ("start_s", "enqueue_s")
        )
        .with_columns(pl.when(late).then(2 * pl.col("duration_s")).otherwise(pl.col("duration_s")).alias("duration_s"))
    )
    slower = of_halves(Trace.of(frames, steady.meta))
    assert slower.is_inside is False
    assert slower.measured_gain < -0.5


def test_steps_that_wander_slowly_are_less_sure() -> None:
    drift = np.random.default_rng(0)
    fast = np.exp(drift.normal(0, 0.02, 64))
    slow = fast * np.exp(np.repeat(drift.normal(0, 0.02, 4), 16))
    assert wander([1.0, 1.0, 1.0]) == 0
    assert wander(fast.tolist()) == pytest.approx(0.02, rel=0.5)
    assert wander(slow.tolist()) > 2 * wander(fast.tolist())


def test_a_size_is_less_sure_the_further_it_is_from_what_was_measured() -> None:
    mib = 1 << 20
    one = MeasuredCosts.of([MeasuredOperation("all-reduce", 8 * mib, "dp", 1e-3, "")])
    near, far, furthest = (size_sigma(one, "all-reduce", size) for size in (7 * mib, 2 * mib, 1 << 10))
    assert 0.05 < near < far < furthest == 0.2
    line = [MeasuredOperation("all-reduce", at * mib, "dp", at * 1e-4, "") for at in (1, 2, 4, 8, 16)]
    assert size_sigma(MeasuredCosts.of(line), "all-reduce", 2 << 10) < furthest


def test_pieces_far_below_all_that_was_recorded_are_not_predicted() -> None:
    """What each of some thousand pieces takes, however small, no recording of a few large buckets tells."""
    job = drawn(1165)  # p3 takes a quarter longer, and was once told to gain a fifth
    before = recorded(job, job.planned(scheduler("pytorch-ddp:bucket_cap_mb=100")[1]), 0)
    made = of_pair(before, before, "p3")
    assert made.gain_p05 is None
    assert "what each of them takes is not known" in made.why
    assert of_pair(before, before, "pytorch-ddp:bucket_cap_mb=40").why == ""


def test_runs_in_turns_hold_the_steps_by_their_policy_alone() -> None:
    """Of each run the steps before the policy are left out, and the last one, whose end nothing tells."""
    job = drawn(SEED)
    run = recorded(replace(job, steps=8), job.planned(scheduler("p3")[1]), 0)
    joined = in_turns([run, run]).table("events").filter(pl.col("kind") == "collective")
    last = WARMUP + 1, 7
    assert sorted(joined["iteration"].unique().to_list()) == [*range(*last), *(7 + at for at in range(*last))]


@pytest.mark.parametrize(
    ("text", "slot", "spelling"),
    [
        ("ddp:bucket_cap_mb=25", ORDER, "pytorch-ddp:bucket_cap_mb=25"),
        ("p3", ORDER, "p3"),
        ("dear", GRAPH, "dear"),
        ("repair:1", "broken", "1"),
        ("0,1", "broken", "0,1"),
        ("all-reduce=ring", "operation all-reduce", "ring"),
        ("fsdp:2", "prefetch", "2"),
        ("links link x2", MACHINE, "links link x2"),
        ("nccl-2-4:algorithm=tree:protocol=simple", "operation all-reduce", "nccl-2-4:algorithm=tree:protocol=simple"),
    ],
)
def test_changes_as_they_are_spelled(made: RecordedPair, text: str, slot: str, spelling: str) -> None:
    assert setup_of(of_recording(made.before, None), text).spelling(slot) == spelling


@pytest.mark.parametrize("text", ["", "; ;", "buckets=25", "repair:99", "ddp:cap=3", "fsdp:0", "all-reduce"])
def test_what_is_no_change(made: RecordedPair, text: str) -> None:
    with pytest.raises(UsageError):
        setup_of(of_recording(made.before, None), text)


@cache
def with_cause(cause: str) -> PlantedRecording:
    return planted(cause, SEED)


@pytest.mark.sampled(1, "*")
@pytest.mark.once
@pytest.mark.parametrize("cause", ["sockets", "slow-nic"])
def test_what_no_setting_mends_is_named_with_its_gain(cause: str) -> None:
    made = with_cause(cause)
    found = advise(of_recording(made.trace, made.machine), AdviceSpec(("repair",), 600.0))
    first = found["changes"][0]
    assert first["layer"] == "repair"
    assert first["gain_p05"] <= made.loss <= first["gain_p95"]
    said = f"{first['what']} {first['where']}"
    if cause == "sockets":
        assert SOCKETS in said
        assert "NCCL_" in said
    else:
        (rank,) = made.ranks
        assert f"NIC mlx5_0 of host{rank} (rank {rank})" in said


def test_sockets_without_a_machine_that_has_rdma_are_told_and_not_advised() -> None:
    over_sockets = with_cause("sockets")
    for machine in (None, fabric(f"switch:{over_sockets.trace.df['rank'].max() + 1},transport=tcp")):  # type: ignore[operator]
        found = advise(of_recording(over_sockets.trace, machine), AdviceSpec(("repair",), 600.0))
        assert found["changes"] == []
        assert "NET/Socket" in found["refused"][0]["why"]
        assert "--fabric" in found["refused"][0]["remedy"]


def test_a_log_without_sockets_and_a_network_alike_everywhere_say_nothing(made: RecordedPair) -> None:
    assert sockets_seen(made.before) is None
    assert slow_link(made.before) is None


@pytest.mark.once
def test_a_mended_link_shortens_what_goes_over_it_and_not_what_an_empty_operation_takes() -> None:
    made = with_cause("slow-nic")
    situation, slow = of_recording(made.trace, made.machine), slow_link(made.trace)
    assert slow is not None
    assert slow.ranks == made.ranks
    from ringwright.advise.settings import Setting

    mended = situation.job(Setup((Setting("repair", LINK, slow.spelling, "", ""),))).costs
    today, ranks = situation.job(Setup()).costs, tuple(range(situation.workload.mesh.size))
    size = max(each.size_bytes for each in situation.workload.payloads)
    was, now = (sum(stage.wire_s for stage in each.stages("all-reduce", size, ranks, "dp")) for each in (today, mended))
    assert was / slow.times * 0.99 <= now < was
    beside = tuple(rank for rank in ranks if rank not in slow.ranks)
    assert [each.stages("all-reduce", size, beside, "dp") for each in (today,)] == [
        mended.stages("all-reduce", size, beside, "dp")
    ]
    rdma = situation.job(Setup((Setting("repair", NETWORK, "rdma", "", ""),))).costs
    assert rdma is not today


def test_tensors_of_a_stretch_are_ready_no_later_than_its_end(made: RecordedPair) -> None:
    situation = of_recording(made.before, None)
    whole = situation.workload
    rough = lumped(whole, lambda *what: 2.5 if what[0] == "tensor" else -2.5 if what == ("tensors",) else 0.0)
    assert sum(each.seconds for each in rough.tasks) == pytest.approx(sum(each.seconds for each in whole.tasks))
    assert max(each.seconds for each in rough.tasks) > max(each.seconds for each in whole.tasks)
    fine = lumped(whole, lambda *what: -9.0 if what[0] == "tensor" else 0.0)
    assert [each.seconds for each in fine.tasks] == pytest.approx([each.seconds for each in whole.tasks])


@pytest.mark.sampled(1, "cause", "slot")
@pytest.mark.once
@pytest.mark.parametrize(("cause", "slot"), [("slow-nic", LINK), ("sockets", NETWORK), ("straggler", BROKEN)])
def test_a_part_of_the_network_is_mended_less_surely_than_a_rank(cause: str, slot: str) -> None:
    made = with_cause(cause)
    situation = of_recording(made.trace, made.machine)
    mended = next(each for each in repair_settings(situation) if each.slot == slot)
    low, middle, high = Draws(Evaluator(situation), most=FEWEST_DRAWS).gain(Setup((mended,))).ends
    assert (high - low > 0.5 * middle) is (slot != BROKEN)
    assert low > 0.2 * middle


def test_a_bucket_that_is_one_tensor_is_sent_as_one(made: RecordedPair) -> None:
    """Half of the draws have one large tensor a bucket: no bucket of another size ends within it."""
    whole = of_recording(made.before, None).workload
    recorded_sizes = sorted(each.size_bytes for each in replayed(made.before).workload.payloads)
    large = lumped(whole, lambda *what: {"large": -9.0, "share": 9.0, "tensor": 9.0}.get(str(what[0]), 0.0))
    assert sorted(each.size_bytes for each in large.payloads) == recorded_sizes
    assert len(large.payloads) < len(whole.payloads)
    assert sum(each.elements for each in large.payloads) == sum(each.elements for each in whole.payloads)
    part = lumped(whole, lambda *what: {"large": -9.0, "share": -9.0, "tensor": 9.0}.get(str(what[0]), 0.0))
    assert len(recorded_sizes) < len(part.payloads) < len(whole.payloads)
    assert sum(each.size_bytes for each in part.payloads) == sum(recorded_sizes)
    used = {name for each in whole.payloads for name, _ in each.consumers}
    assert {name for each in large.payloads for name, _ in each.consumers} == used


def test_what_fills_a_bucket_beyond_the_smallest_is_one_tensor() -> None:
    """With small buckets each layer is one: none of them can be cut into several."""
    job = drawn(SEED)
    plan = job.planned(scheduler("pytorch-ddp:bucket_cap_mb=0.001:first_bucket_mb=0.001")[1])
    sizes = {each.size_bytes for each in job.workload.payloads}
    situation = of_recording(recorded(job, plan, 0), None)
    pieces = [each.size_bytes for each in situation.workload.payloads]
    least = min(sizes)
    assert max(pieces) >= max(sizes) - 3 * least


@pytest.mark.sampled(1, "seed")
@pytest.mark.once
@pytest.mark.parametrize("seed", [SEED, SEED + 1, SEED + 2])
def test_a_step_that_reaches_into_the_next_one_is_replayed(seed: int) -> None:
    job = drawn(seed, share=(0.6, 1.2))
    plan = job.planned(scheduler(f"p3:slice_elements={job.total_bytes // 64}")[1])
    judged = of_pair(recorded(job, plan, 0), recorded(job, plan, 1), "")
    fidelity = judged.fidelity
    assert fidelity is not None
    assert abs(fidelity) < FAR
    assert judged.why == ""


# Each time: how one is counted, below, and its pairs and causes one by one, above.
@pytest.mark.sampled(0)
@pytest.mark.once
def test_a_small_campaign() -> None:
    said: list[JudgedPair | JudgedCause] = []
    told = campaign(BackTestSizes(1, 0, 2, 0, 1), SEED, said.append)
    assert len(said) == len(told["pairs"]) + len(told["causes"]) == 1 + 2 + 1
    assert told["figures"]["pairs"] == 1
    assert told["figures"]["planted"] == 2
    assert (told["figures"]["cause_first"] or 0) >= 0.5
    assert told["figures"]["false_promises"] == 0
    assert json.loads(json.dumps(told)) == told


def test_how_a_campaign_is_counted() -> None:
    usual: JudgedPair = {
        "kind": "buckets",
        "seed": 1,
        "is_real": False,
        "change": "p3",
        "gain_p05": 0.0,
        "gain_p50": 0.1,
        "gain_p95": 0.2,
        "measured_gain": 0.1,
        "true_gain": 0.1,
        "is_inside": True,
        "is_told": False,
        "why": "",
    }
    refused: JudgedPair = {**usual, "gain_p05": None, "gain_p50": None, "gain_p95": None, "is_inside": None}
    outside: JudgedPair = {**usual, "measured_gain": 0.3, "is_inside": False, "is_told": True, "true_gain": 0.01}
    told = figures([usual, refused, outside], [])
    assert (told["pairs"], told["covered"], told["gaining"], told["cannot_tell"]) == (3, 0.5, 2, 1.0)
    assert told["width"] == pytest.approx(0.2)
    assert figures([], [])["covered"] is None


def test_real_pairs_are_drawn_from_their_seed() -> None:
    plan = planned(SEED)
    assert plan == planned(SEED) != planned(SEED + 1)
    assert next(each.knobs for each in runs(plan)) != runs(plan)[1].knobs
    assert len(runs(plan)) == 1 + len(plan.changes)


# ------------------------------------------------------------------------------------------------- the command line
@pytest.fixture(scope="module")
def folders(made: RecordedPair, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pair")
    made.before.save(folder / "before")
    made.after.save(folder / "after")
    return folder


@pytest.mark.once
def test_the_command_judges(made: RecordedPair, folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = str(folders / "before"), str(folders / "after")
    code = main(["advise", before, "--json", "--change", made.change, "--back-test", after])
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "ringwright.back-test/1"
    assert code == (0 if told["is_inside"] else 1)
    assert main(["advise", before, "--back-test"]) in (0, 1)
    assert "half" in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--sample", "--back-test"], "steady steps"),
        (["--back-test", "--model", "gpt3-125m"], "only a recording is judged"),
        (["--sample", "--change", "p3"], "beside a run with it"),
        (["--sample", "--back-test", "missing.log"], "missing.log"),
    ],
)
def test_wrong_words(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", *words]) in (2, 3)
    assert said in capsys.readouterr().err


def test_a_recording_without_times_has_no_step(made: RecordedPair) -> None:
    from ringwright.formats.sources import read
    from ringwright.formats.sources.sample import sample

    with pytest.raises(InputError, match="times"):
        of_pair(read(str(sample())), made.after, "p3")


@pytest.mark.once
@pytest.mark.parametrize("width", [40, 200])
def test_the_verdict_comes_first(judged: BackTest, width: int) -> None:
    out = io.StringIO()
    write_judged(judged, out, width=width)
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("The change" if judged.is_telling or not judged.is_inside else "Too wide to tell")
    assert all(len(line) <= width for line in lines)
    refused = replace(judged, gain_p05=None, gain_p50=None, gain_p95=None, is_inside=None, why="so")
    out = io.StringIO()
    write_judged(refused, out, width=width)
    assert out.getvalue().startswith("Cannot tell: so")


# ------------------------------------------------------------------------------------------------- what the page tells
RECORD = json.loads((files("ringwright_lab") / "testing" / "back_tests.json").read_text())


def test_the_record_is_counted_from_its_rows() -> None:
    """``scripts/back-test --json lab/src/ringwright_lab/testing/back_tests.json`` writes it, in parts that --join puts together."""
    again = counted(RECORD["pairs"], RECORD["causes"], RECORD["first_seed"])
    assert again == RECORD
    assert RECORD["first_seed"] >= SEALED, "no seed that was fitted to"
    assert {each["seed"] for each in [*RECORD["pairs"], *RECORD["causes"]]} >= {SEALED}


def test_the_page_tells_the_record() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs" / "explanation" / "lab-accuracy.md").read_text().split())
    told = RECORD["figures"]
    drawn = figures([each for each in RECORD["pairs"] if not each["is_real"]], [])
    real = figures([each for each in RECORD["pairs"] if each["is_real"]], [])
    for name, one in (("simulated jobs", drawn), ("real ranks", real)):
        assert f"| {name} | {one['pairs']} | {one['covered']:.0%} | {(one['width'] or 0) * 100:.1f} points |" in page
    costly = [each for each in RECORD["causes"] if each["cause"] and each["loss"] >= LEAST]
    right = sum(each["is_right"] for each in costly)
    assert f"in {right} of {told['planted']} recordings" in page
    assert f"{told['false_promises']} of {told['nulls']} jobs in which nothing gains" in page
