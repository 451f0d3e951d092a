"""The law of one number: every verb gives the same most probable time and interval for the same call, whatever else it tells beside.

What may differ stands under a name of its own beside that number: a library's estimate, by which it chooses, and an engine's time.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import ringwright
from ringwright.accuracy import jobs as accuracy
from ringwright.accuracy.judged import judged
from ringwright.advise.advise import AdviceSpec, advise
from ringwright.advise.provision.least_network import SizedNetwork
from ringwright.advise.provision.question import ProvisionSpec, Workloads
from ringwright.advise.situation import of_model
from ringwright.calls import calibrate, library
from ringwright.calls.answers import Answers
from ringwright.calls.arguments import Algorithm, algorithm
from ringwright.calls.library_calls import library_call
from ringwright.calls.simulate import sweep
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.calls.winners import winners
from ringwright.cli import main
from ringwright.costs.calibration import calibrated
from ringwright.costs.learnt import shipped
from ringwright.costs.learnt.trusted import MeasuredCall
from ringwright.costs.probable_time import Probable
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.formats.sources.sample import measured_table
from ringwright.jobs import model_job, rows, step_tables, study
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.jobs.pricing.verb_costs import SaidOperations
from ringwright.model.collective import Collective
from ringwright.reports.steps.jobs import milliseconds
from ringwright_lab.bench import jobs, probe
from ringwright_lab.bench.question import BenchSpec
from ringwright_lab.bench.study import _predicted
from ringwright_lab.survey import survey_job as surveyed
from ringwright_lab.survey.job_gains import Runs, figures

Ends = tuple[float | None, float | None, float | None]  # 5, 50 and 95 %, in us
FABRICS = {
    "dgx-a100:1": (8, 1),
    "dgx-a100:2": (16, 2),
    "dgx-h100:1": (8, 1),
    "dgx-h100:2": (16, 2),
    "dgx-b200:2": (16, 2),
}
OPS = ("all-reduce", "all-gather", "reduce-scatter")  # of which NCCL has a model to choose by
RELEASES = ("2.18", "2.21", "2.27", "2.30")
SIZES = [1 << power for power in range(10, 31, 4)]
CALLS, JOBS = 24, 6
STEPS = """model,gpus,tensor_parallel,pipeline_parallel,global_batch,micro_batch,sequence,device,iteration_ms,dtype,gradients,recompute
llama3-8b,16,8,1,16,1,4096,h100,3000,bf16,float32,none
"""
FORMS = (
    ("gpt3-1.3b", "tp8,dp2", 2),
    ("gpt3-125m", "tp4,dp4", 2),
    ("gpt3-125m", "tp2,dp8", 1),
    ("gpt3-125m", "dp16", 2),
    ("gpt3-1.3b", "tp4,pp2,dp2", 4),
    ("gpt3-125m", "tp4,dp4", 1),
)


@dataclass(frozen=True)
class AskedCall:
    """One call of NCCL, as a user names it."""

    op: str
    fabric: str
    release: str
    size_bytes: int

    @property
    def question(self) -> SimulationSpec:
        """The call as simulate is asked it, but for the size."""
        return SimulationSpec(self.op, fabric(self.fabric))

    @property
    def algorithm(self) -> Algorithm:
        """The library in its release."""
        return algorithm(f"nccl-2-4@{self.release}")


def drawn(seed: int) -> AskedCall:
    """Return the call of a seed."""
    draw = random.Random(seed)
    return AskedCall(draw.choice(OPS), draw.choice(list(FABRICS)), draw.choice(RELEASES), draw.choice(SIZES))


def ends(row: Mapping[str, Any], name: str = "time_us") -> Ends:
    """Return the most probable time of a row with its interval."""
    return row[f"{name}_p05"], row[f"{name}_p50"], row[f"{name}_p95"]


def told(call: AskedCall) -> dict[str, Ends]:
    """Return what each verb that knows of single operations says of a call."""
    spelling, size = call.algorithm.spelling, call.size_bytes
    (row,) = sweep(call.question, [spelling], [size])["rows"]
    said = ringwright.simulate(call.question.collective(size), call.fabric, algorithm=spelling).probable
    assert said is not None
    ranks, nodes = FABRICS[call.fabric]
    (line,) = library.choices(spelling, call.op, ranks, nodes, [size], call.fabric.partition(":")[0])["rows"]
    collective = call.question.collective(size)
    sizes = sorted({1 << power for power in range(3, size.bit_length())} | {size})
    asked = library_call(collective, call.question.topology, call.algorithm.knobs, sizes)
    assert asked is not None
    table = judged([MeasuredCall(asked, (1.0,) * len(sizes))], [], shipped())
    won = winners(call.question, [spelling], [size]).points[-1]  # of the whole group
    assert {"library", "closed-form", "events"} == set(row["witnesses"]), "an engine's own time has its name"
    assert line["time_us"] is not None, "the library's own estimate stands beside"
    return {
        "simulate": ends(row),
        "simulate, shown": (row["time_us_p05"], row["time_us"], row["time_us_p95"]),
        "ringwright.simulate": (said.p05_us, said.p50_us, said.p95_us),
        "library": ends(line),
        "accuracy": ends(next(vars(each) for each in table if each.size_bytes == size)),
        "winners": (won.time_us_p05, won.time_us, won.time_us_p95),
    }


def same(by_verb: Mapping[str, Ends], where: object) -> None:
    """Hold the answers of several verbs to be one."""
    first = next(iter(by_verb.values()))
    assert None not in first, f"{where} has an interval"
    for verb, each in by_verb.items():
        assert each == pytest.approx(first, rel=1e-9), f"{verb} of {where}: {each}, not {first}"


@pytest.mark.sampled(5, "seed")
@pytest.mark.parametrize("seed", range(CALLS))
def test_an_operation_has_one_number_in_every_verb(seed: int) -> None:
    call = drawn(seed)
    same(told(call), call)


@pytest.mark.parametrize("name", ["ring", "rabenseifner", "open-mpi"])
def test_bench_predicts_what_simulate_says_of_the_machine_that_was_probed(name: str) -> None:
    p, size = 4, 1 << 20
    probed = probe.ProbedMachine(5e-6, 2e-6, 4e9, 1e10, 3e9)
    times_s = {
        (kind, each): ringwright.simulate(program, probed.topology(p)).time_s / probe.STEPS
        for kind, each, program in probe.programs(p, [size // p])
    }
    asked = BenchSpec("all-reduce", p, [size], algorithms=(name,))
    sample = jobs.BenchSample("ringwright", name, size, 1, [], "", "shm")
    here = probe.fit(p, times_s, size / p).topology(p)
    said = ringwright.simulate(asked.collective(size), here, algorithm=name).probable
    assert said is not None
    assert _predicted(asked, sample, {}, {("", "shm"): times_s}, None) == pytest.approx(said.p50_us, rel=1e-9)


def test_a_calibrated_operation_has_one_number_in_every_verb() -> None:
    made, sizes = calibrate.calibrate([str(measured_table())], "dgx-h100:2", release="2.20")
    wanted = [each.size_bytes for each in sizes[::6]]
    on = ringwright.fabric("dgx-h100:2")
    machine = calibrated(on, made)
    question = SimulationSpec("all-reduce", machine, healthy=machine, calibration=made)
    for each, row in zip(sizes[::6], sweep(question, ["nccl-2-4@2.20"], wanted)["rows"], strict=True):
        assert each.said is not None
        same({"simulate": ends(row), "calibrate": (each.said.p05_us, each.said.p50_us, each.said.p95_us)}, row)
        assert each.simulated_s > 0


@pytest.mark.sampled(2, "at")
@pytest.mark.parametrize("at", range(JOBS))
def test_a_step_has_one_number_in_every_verb(at: int) -> None:
    model, parallel, micro_batches = FORMS[at]
    on, card = fabric("dgx-h100:2"), WorkloadSpec(model, 16, parallel, micro_batches)
    spec = model_job.GeneratedJobSpec(card)
    row = rows.row(study.answer(model_job.made(spec, on), "pytorch-ddp"))
    base = advise(of_model(spec, on, "pytorch-ddp"), AdviceSpec((), 1.0))["base"]
    sized = SizedNetwork(Workloads(ProvisionSpec([model], model=card), 16).on(model, on), on, 0.05, None)
    machine = surveyed.NamedMachine(on, "--fabric dgx-h100:2")
    asked = surveyed.of_model(model, machine, surveyed.SurveySpec(16, parallel, micro_batches))
    baseline = figures(Runs(asked).outcome(*asked.baseline))
    assert sized.reference is not None
    same(
        {
            "simulate": ends(row, "step_us"),
            "advise": ends(base, "step_us"),
            "provision": (sized.reference.p05_us, sized.reference.p50_us, sized.reference.p95_us),
            "survey": ends(baseline, "step_us"),
        },
        FORMS[at],
    )
    own = row["step_us"], base["replayed_us"], 1e6 * sized.reference_s, baseline["step_us"]
    assert own == pytest.approx([row["step_us"]] * len(own), rel=1e-9), "the engine's own is one number too"


def test_a_measured_step_stands_beside_what_simulate_answers(tmp_path: Path) -> None:
    table = tmp_path / "steps.csv"
    table.write_text(STEPS)
    predictor = accuracy.Predictor()
    judged_steps, _ = accuracy.judge(step_tables.read(table), predictor, answers=True)
    card = WorkloadSpec("llama3-8b", 16, "tp8,pp1,dp2", 8, 1, 4096, "bf16", "float32", "none")
    spec = model_job.GeneratedJobSpec(card, "h100", fit="h100-megatron")
    row = rows.row(study.answer(model_job.made(spec, fabric("dgx-h100:2,layout=switch")), "none"))
    (told,) = accuracy.document(judged_steps)["rows"]
    same({"simulate": ends(row, "step_us"), "compare": ends(told, "step_us")}, "llama3-8b")
    assert told["predicted_s"] * 1e6 > row["step_us"], "its own, with all exchanges in line, keeps its name"


def test_library_prints_its_own_estimate_beside_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["-b", "64M", "-e", "64M"]
    assert main(["library", "nccl-2-4@2.30", "--ranks", "16", "--nodes", "2", "--fabric", "dgx-h100", *sizes]) == 0
    text = capsys.readouterr().out
    line = next(line for line in text.splitlines() if "64 MiB" in line)
    assert line.split()[-5:] == ["416.6", "257.0", "to", "675.5", "339.4"], "what simulate answers, then its own"
    assert "its own us: what the library itself estimates, and chooses by" in " ".join(text.split())


def test_a_job_is_answered_by_its_most_probable_step(capsys: pytest.CaptureFixture[str]) -> None:
    job = ["--model", "gpt3-125m", "--gpus", "8", "--fabric", "dgx-h100:1", "--parallel", "tp4,dp2"]
    assert main(["simulate", *job, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert main(["simulate", *job]) == 0
    first, *_ = (line for line in capsys.readouterr().out.splitlines() if "pytorch-ddp" in line)
    shown = [milliseconds(row[name]) for name in ("step_us_p50", "step_us_p05", "step_us_p95", "step_us")]
    assert first.replace("*", "").split()[1:] == [shown[0], shown[1], "to", *shown[2:]]


def test_the_last_bit_of_a_learnt_time_makes_no_operation_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fabric("dgx-h100:2")
    program = algorithm("nccl-2-4")(Collective("all-reduce", range(16), 1 << 20), machine)
    run = simulate(program, machine)
    learnt = Answers.of_call

    def longer() -> float:
        return SaidOperations(machine, machine).longer("nccl-2-4", program, run)

    def others(self: Answers, *asked: Any) -> Probable:
        found = learnt(self, *asked)
        assert found is not None
        return replace(found, p50_us=found.p50_us * (1 + 1e-15))

    plain = longer()
    monkeypatch.setattr(Answers, "of_call", others)
    assert longer() == plain != 1.0


# Each time: what a plan is made of does not follow last bits, above.
@pytest.mark.sampled(0)
def test_a_plan_does_not_follow_the_threads_of_a_linear_algebra_library() -> None:
    """Last bits of learnt times do; a policy that weighs operations against each other once took another plan for them."""
    words = ["simulate", "--model", "llama3-70b", "--gpus", "64", "--parallel", "tp8,pp4,sp", "--fabric", "dgx-h100:8"]
    program = [sys.executable, "-m", "ringwright", *words, "--policy", "pace", "--json"]
    steps = set()
    for threads in ("1", "2"):
        around = {**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        ran = subprocess.run(program, env=around, capture_output=True, text=True, check=True)
        steps.add(json.loads(ran.stdout)["rows"][0]["step_us"])
    assert len(steps) == 1
