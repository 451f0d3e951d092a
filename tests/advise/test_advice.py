"""Advice on small jobs: what is found, with which interval, in which words; and what is refused, and why."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import polars as pl
import pytest

from ringwright.advise import advise as advising
from ringwright.advise.advise import AdviceSpec, advise, step_today_us
from ringwright.advise.document import Advice
from ringwright.advise.evaluation import Evaluator
from ringwright.advise.interval import FEWEST_DRAWS, Draws
from ringwright.advise.search import BY_CLOCK, INTERRUPTED, AdviceLimits
from ringwright.advise.settings import LAYERS, ORDER, Setting, Setup
from ringwright.advise.situation import Situation, of_model, of_recording
from ringwright.advise.space import asked_layers, space
from ringwright.advise.without_stragglers import factors
from ringwright.cli import main
from ringwright.fabrics import fabric
from ringwright.ground.errors import UsageError
from ringwright.jobs.job_trace import trace
from ringwright.jobs.model_job import GeneratedJobSpec
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.jobs.study import Job, answer
from ringwright.model.stages import LinkCosts
from ringwright.model.trace import Trace
from ringwright.model.workload import RankClass, Task
from ringwright.reports.steps.advised import write
from ringwright.workloads.chain import ChainLayer, chain
from ringwright.workloads.recorded.lines import steady_steps
from ringwright.workloads.replay import Replay, lasted_s
from ringwright_lab.testing import slow_ranks
from ringwright_lab.testing.noise import ours

pytestmark = pytest.mark.once
MIB = 1 << 20
ORDERS = "ddp,policy"
REPLAYED = Replay(chain("toy", [ChainLayer(0.01, 0.02, MIB, MIB)], ranks=2), "times", "step 4", None, 0.010)


def recorded(policy: str, wire_s: float = 0.015) -> Trace:
    """What a job of twelve layers does with a policy, as a recording: every rank, operations and work with times."""
    made = chain("toy", [ChainLayer(0.01, 0.02, 8 * MIB, 2 * MIB) for _ in range(12)], ranks=4)
    job = Job(made, LinkCosts(8 * MIB / wire_s), folded=False)
    return trace(job, answer(job, policy))


def untimed(told: Advice) -> dict[str, object]:
    return {name: each for name, each in told.items() if name not in ("search_s", "executor")}


def small() -> Situation:
    """Four GPUs whose gradients travel when all are made."""
    spec = GeneratedJobSpec(WorkloadSpec("gpt3-125m", 4, "dp4", 1))
    return of_model(spec, fabric("switch:4,rate=400Gb/s"), "pytorch-ddp:bucket_cap_mb=800")


def asked(layers: str) -> AdviceSpec:
    return AdviceSpec(asked_layers(layers), seconds=600.0)


@pytest.fixture(scope="module", autouse=True)
def _few_draws() -> Iterator[None]:
    """As many as advice takes at the least; who asks how sure a gain is takes all of them below."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(advising, "Draws", partial(Draws, most=FEWEST_DRAWS))
        yield


@pytest.fixture(scope="module")
def told() -> Advice:
    return advise(small(), asked(ORDERS))


def test_the_best_of_all_is_found(told: Advice) -> None:
    situation = small()
    evaluator = Evaluator(situation)
    slots = space(situation, evaluator.result(Setup()), asked_layers(ORDERS)).slots
    choices = [(None, *listed) for listed in slots.values()]
    steps = [
        evaluator.run(Setup.of(one for one in chosen if one is not None)).step_s or np.inf
        for chosen in product(*choices)
    ]
    base = evaluator.run(Setup()).step_s
    assert base is not None
    best = min(steps)
    assert told["verdict"] == "changes"
    (change,) = told["changes"]
    gained = 1 - (evaluator.run(_setup(situation, change["spelling"], slots[ORDER])).step_s or np.inf) / base
    assert gained >= 0.95 * (1 - best / base) > 0.05
    assert told["evaluated"] < 0.7 * len(steps), "not every setup was run"


def _setup(situation: Situation, spelling: str, listed: tuple[Setting, ...]) -> Setup:
    return Setup(tuple(each for each in listed if each.spelling == spelling))


def test_a_change_says_all_of_itself(told: Advice) -> None:
    (change,) = told["changes"]
    assert 0 < change["gain_p05"] <= change["gain_p50"] <= change["gain_p95"] < 1
    assert change["step_us"] == pytest.approx((step_today_us(told["base"]) or 0.0) * (1 - change["gain_p50"]))
    assert change["layer"] in LAYERS
    assert all(change[name] for name in ("what", "where", "risk", "ground", "measure"))
    assert change["memory_bytes"] is not None
    assert told["base"]["measured_us"] is None
    assert told["evaluated"] > 1
    assert not told["stopped"]


def test_the_same_question_gets_the_same_advice(told: Advice) -> None:
    again = advise(small(), asked(ORDERS))
    assert untimed(again) == untimed(told)


def test_base_against_itself_gains_nothing_and_draws_are_shared() -> None:
    draws = Draws(Evaluator(small()))
    base = draws.steps(Setup())
    assert base.std() > 0, "what is not known moves the step"
    assert (draws.gain(Setup()).shares == 0).all()
    bucket = Setup(
        (Setting("ddp", ORDER, "pytorch-ddp:bucket_cap_mb=800", "", ""),)
    )  # what runs today, by another name
    assert (draws.gain(bucket).shares == 0).all()


def test_a_bucket_that_is_too_large_is_seen_in_a_recording() -> None:
    situation = of_recording(recorded("pytorch-ddp:bucket_cap_mb=1000"), None)
    found = advise(situation, asked("repair,ddp"))
    assert found["base"]["fidelity"] == pytest.approx(0, abs=0.01)
    (change,) = found["changes"]
    assert change["layer"] == "ddp"
    # With buckets of 8 MiB the job takes 375 ms, by the simulator that recorded it; 525 with all in one.
    assert change["gain_p05"] <= 1 - 0.375 / 0.525 <= change["gain_p95"]
    assert change["gain_p05"] > 0.2
    assert "of sizes that were not recorded" in change["ground"]


def test_who_communicates_alone_is_not_told_to_change() -> None:
    """Where all is hidden but the last bucket, of the layer that is computed last, there is nothing to win by buckets."""
    found = advise(of_recording(recorded("none", wire_s=0.001), None), asked("repair,ddp"))
    assert found["verdict"] == "nothing"
    assert found["changes"] == []


@pytest.mark.parametrize("seed", [3])
def test_what_is_broken_comes_first(seed: int) -> None:
    recording, injected = slow_ranks.job("straggler", seed, ours())
    found = advise(of_recording(recording, None), asked("repair,ddp"))
    first = found["changes"][0]
    assert first["layer"] == "repair"
    assert all(f"rank {rank}" in first["what"] for rank in injected.ranks)
    steps = {step: seconds for step, seconds in steady_steps(recording).items() if seconds is not None}
    before = [seconds for step, seconds in steps.items() if step < (injected.begin or 0)]
    truth = 1 - np.mean(before) / np.mean(list(steps.values()))
    assert first["gain_p05"] <= truth <= first["gain_p95"]
    assert truth > 0.15
    assert first["where"].startswith("host of rank")


def test_what_waited_for_a_slow_rank_goes_with_what_it_computes_too_much() -> None:
    """Four ranks: one computes 3 s, two waited within their 2 s of work, one worked 1 s, as all would."""
    classes = [RankClass(f"r{rank}", {"dp": rank}) for rank in range(4)]
    tasks = [Task(f"F{rank}", f"r{rank}", "F", seconds) for rank, seconds in enumerate((3.0, 2.0, 2.0, 1.0))]
    job = replace(chain("toy", [ChainLayer(1, 1, 8, 8)], ranks=4), classes=tuple(classes), tasks=tuple(tasks))
    assert factors(job, [0]) == {0: 0.5, 1: 0.75, 2: 0.75}, "the usual: a quarter of the others compute less than 1.5 s"
    assert factors(job, [3]) == {}, "it is no slower than they are"
    assert factors(job, []) == {}


def test_nobody_is_broken_in_a_healthy_job() -> None:
    found = advise(of_recording(slow_ranks.job("none", 1, ours())[0], None), asked("repair"))
    assert found["verdict"] == "nothing"
    assert found["refused"][0]["what"] == "repair"


def test_a_machine_that_is_not_known_refuses_four_layers_in_one_sentence() -> None:
    found = advise(of_recording(recorded("none"), None), asked("nccl,algorithm,placement,switch"))
    (refused,) = found["refused"]
    assert refused["what"] == "nccl, algorithm, placement, switch"
    assert "--fabric" in refused["remedy"]


@pytest.mark.parametrize("layer", [each for each in LAYERS if each not in ("repair", "rewrites")])
def test_every_layer_has_settings_that_change_a_step(layer: str) -> None:
    """A job with two axes on a machine whose switches add, with parameters that are shared out for the layer of prefetch."""
    form, rate = ("dp16,fsdp", "400Gb/s") if layer == "fsdp" else ("tp2,dp8", "50Gb/s")
    spec = GeneratedJobSpec(WorkloadSpec("gpt3-125m", 16, form, 2))
    situation = of_model(spec, fabric(f"leaf-spine:16,per_leaf=4,sharp=true,rate={rate}"), "pytorch-ddp")
    evaluator = Evaluator(situation)
    listed = space(situation, evaluator.result(Setup()), (layer,))
    assert listed.slots, listed.refused
    settings = [each for slot in listed.slots.values() for each in slot]
    assert {each.layer for each in settings} == {layer}
    base = evaluator.run(Setup()).step_s
    steps = (evaluator.run(Setup((each,))).step_s for each in settings[:6])
    assert any(step is not None and step != base for step in steps)


def test_a_layer_that_there_is_not() -> None:
    with pytest.raises(UsageError, match="no layer 'buckets'"):
        asked_layers("ddp,buckets")


def test_other_numbers_are_asked_for() -> None:
    """GradientFlow sends 16 bits of each gradient: half of the bytes, where nothing else could gain as much."""
    half = Setup((Setting("policy", ORDER, "gradientflow", "", ""),))
    assert "not the same numbers" in Evaluator(small()).run(half).refused
    assert Evaluator(small(), inexact=True).run(half).step_s
    found = advise(small(), replace(asked(ORDERS), inexact=True))
    assert found["changes"][0]["spelling"] == "gradientflow"
    assert "not the same numbers" in found["changes"][0]["risk"]


def test_memory_refuses_what_does_not_fit() -> None:
    situation = small()
    held = Evaluator(situation).run(Setup()).peak_bytes
    assert held is not None
    settings = [Setting("rewrites", "graph", each, "", "") for each in ("dear", "coconet:schedule=rs-c-ag")]
    loose, tight = Evaluator(situation), Evaluator(situation, memory_bytes=held)
    more = [each for each in settings if (loose.run(Setup((each,))).peak_bytes or 0) > held]
    assert more
    assert all("holds" in tight.run(Setup((each,))).refused for each in more)


# ------------------------------------------------------------------------------------------------- the command line
def test_a_log_without_times_cannot_tell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", "--sample", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "ringwright.advise/1"
    assert (found["verdict"], found["changes"]) == ("cannot-tell", [])
    assert "ringwright run" in found["refused"][0]["remedy"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["advise"], "no job is named"),
        (["advise", "--sample", "--may", "wishes"], "no layer 'wishes'"),
        (["advise", "--sample", "--budget", "soon"], "soon"),
        (["advise", "missing.log"], "missing.log"),
        (["advise", "--sample", "--seed", "-1"], "-1"),
        (["advise", "--model", "gpt3-125m", "--gpus", "3", "--parallel", "tp2"], "tp2"),
    ],
)
def test_wrong_words(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) in (2, 3)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("width", [40, 200])
def test_the_answer_comes_first(told: Advice, width: int) -> None:
    out = io.StringIO()
    write(told, out, width=width)
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("Change: a step")
    assert all(len(line) <= width for line in lines)
    assert "Not advised" in out.getvalue() or not told["refused"]


def test_steps_last_from_work_to_work_else_as_their_source_says() -> None:
    """The host marks a step of 10 ms in which a device works for 15: so long does it last."""
    first = replace(REPLAYED, step="step 4", measured_s=0.010)
    assert lasted_s({4: 0.0101, 5: 0.012, 6: None}, [first]) == (0.0101, 0.012)
    assert lasted_s({4: None}, [first]) == (0.010,)
    trace = recorded("pytorch-ddp:bucket_cap_mb=25")
    events = trace.table("events")
    shorter = pl.when(pl.col("kind") == "step").then(pl.col("duration_s") / 1.5).otherwise(pl.col("duration_s"))
    frames = {"events": events.with_columns(shorter), "communicators": trace.table("communicators")}
    assert steady_steps(Trace.of(frames, trace.meta)) == steady_steps(trace)
    without = frames | {"events": frames["events"].filter(pl.col("kind") != "compute")}
    said = {step: seconds for step, seconds in steady_steps(Trace.of(without, trace.meta)).items() if seconds}
    assert said
    assert all(seconds == pytest.approx(steady_steps(trace)[step] / 1.5, rel=0.05) for step, seconds in said.items())


def test_one_step_is_less_sure_than_many() -> None:
    situation = of_recording(recorded("pytorch-ddp:bucket_cap_mb=1000"), None)
    nothing = Setup((Setting("fsdp", "prefetch", "2", "", ""),))  # which changes nothing where nothing is gathered
    ends = Draws(Evaluator(situation)).gain(nothing).ends
    assert ends[0] < 0 < ends[2], "what one step differs by from the next is not known"
    assert max(map(abs, ends)) < 0.03


def test_what_nccl_is_told_is_in_its_own_words() -> None:
    spec = GeneratedJobSpec(WorkloadSpec("gpt3-125m", 16, "dp16", 1))
    situation = of_model(spec, fabric("dgx-h100:2"), "pytorch-ddp")
    whole = space(situation, Evaluator(situation).result(Setup()), ("nccl",), "2.27")
    told = {each.spelling: each.where for each in whole.slots["operation all-reduce"]}
    tree = next(where for spelling, where in told.items() if "nvls_tree" in spelling and "channels" not in spelling)
    assert tree.startswith("environment: NCCL_ALGO=allreduce:nvlstree NCCL_PROTO=allreduce:simple;")
    assert any("NCCL_MAX_CTAS=8" in where for spelling, where in told.items() if "channels=8" in spelling)


def test_fewer_draws_are_no_refusal() -> None:
    """Where seconds run out, eight draws tell a gain, and nothing is said to be declined."""
    evaluator = Evaluator(small())
    bucket = Setup((Setting("ddp", ORDER, "pytorch-ddp:bucket_cap_mb=5", "", ""),))
    whole, few = Draws(evaluator), Draws(evaluator, limits=AdviceLimits(until_s=0.0))
    assert len(few.steps(Setup())) == len(few.gain(bucket).shares) == 8 < len(whole.steps(bucket))
    assert few.ended == BY_CLOCK
    assert few.gain(bucket).declined == 0
    assert few.steps(bucket).tolist() == whole.steps(bucket)[:8].tolist()


def test_ctrl_c_between_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = Draws(Evaluator(small()))
    draws.steps(Setup())
    step, asked = Draws._step, []

    def interrupted(*words: object) -> float:
        asked.append(words)
        if len(asked) == 7:
            raise KeyboardInterrupt
        return step(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(Draws, "_step", interrupted)
    bucket = Setup((Setting("ddp", ORDER, "pytorch-ddp:bucket_cap_mb=5", "", ""),))
    assert len(draws.gain(bucket).shares) == 4, "those that were asked for together, and are done"
    assert draws.ended == INTERRUPTED
