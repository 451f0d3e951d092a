"""The survey: every system has its row, every figure is one that another verb gives, and what does not apply says which need."""

from __future__ import annotations

import io
import json
import re
import shlex
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from ringwright.cli import main
from ringwright.fabrics import fabric
from ringwright.ground.documents import read_json
from ringwright.ground.errors import UsageError
from ringwright.jobs import model_job
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.jobs.pricing.wire import sent_by_ranks
from ringwright.model import registry
from ringwright.model.collective import Collective
from ringwright.model.rewrites import is_sent_whole, operations
from ringwright_lab.reports import survey_page
from ringwright_lab.reports.survey import job_cells, write
from ringwright_lab.survey import catalogue, document, entries, job_gains, needs, survey_job
from ringwright_lab.survey.form import fitting
from ringwright_lab.survey.survey_view import SurveyedSystem

pytestmark = pytest.mark.once

CONTRACT = {
    "slug",
    "family",
    "class",
    "built",
    "simulated",
    "real",
    "claim",
    "got",
    "kind",
    "step_us",
    "exposed_us",
    "why_not",
}
TREE = {
    "pre-defined": 10,
    "synthesised": 5,
    "fifo": 3,
    "priority": 5,
    "decomposition": 12,
    "ethernet": 8,
    "infiniband": 1,
    "profiler": 1,
}
MACHINE = "switch:4"


def of_model(name: str = "alexnet", machine: str = MACHINE, **question: Any) -> survey_job.Asked:
    return survey_job.of_model(
        name, survey_job.NamedMachine(fabric(machine), f"--fabric {machine}"), survey_job.SurveySpec(**question)
    )


@pytest.fixture(scope="module")
def listed() -> dict[str, Any]:
    return document.survey()


@pytest.fixture(scope="module")
def of_vgg() -> dict[str, Any]:
    return document.survey(of_model(machine="full:2"))


def row(result: dict[str, Any], slug: str) -> dict[str, Any]:
    return next(each for each in result["rows"] if each["slug"] == slug)


# --------------------------------------------------------------------------------------------------------------- the list
def test_the_survey_has_all_its_systems_in_the_order_of_its_tree(listed: dict[str, Any]) -> None:
    assert listed["schema"] == "ringwright.survey/1"
    assert {each["class"]: each["systems"] for each in listed["tree"]} == TREE
    assert list(dict.fromkeys(each["class"] for each in listed["rows"])) == list(TREE)
    assert len({each["slug"] for each in listed["rows"]}) == sum(TREE.values()) == 45
    for each in listed["rows"]:
        assert each.keys() >= CONTRACT
        assert all(each[name] for name in ("mechanism", "title")), each["slug"]
        assert "\n" not in each["mechanism"]


def test_a_system_is_told_once_by_itself_or_by_the_data_file() -> None:
    here = {each.slug for each in (*registry.systems(), *registry.schedulers())}
    waiting = {each.slug for each in entries.not_built()}
    assert not here & waiting, "it is built: take its entry out of survey/unbuilt.json"


def test_every_need_is_one_of_the_table_and_every_collective_is_known(listed: dict[str, Any]) -> None:
    from ringwright.model.collective import OPS

    for system in (*registry.systems(), *registry.schedulers()):
        assert set(system.needs) <= set(needs.NEEDS), system.slug
    for each in listed["rows"]:
        assert set(each["needs"]) <= set(needs.NEEDS), each["slug"]
        assert set(each["collectives"]) <= set(OPS), each["slug"]
    assert {name.partition(".")[0] for name in needs.NEEDS} <= set(needs.ROOMS)


def test_what_exists_fills_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    found = registry.find("p3", registry.schedulers)
    waiting = entries.Entry("not-yet", "ethernet", "Not yet", 2012, "It waits.", (), ("reduce",))
    monkeypatch.setattr(entries, "not_built", lambda: [waiting])
    before = len(entries.entries())
    plugged = replace(found, slug="not-yet", family="plug-in", kind="outside")
    every = (*registry.schedulers(), plugged)
    monkeypatch.setattr(registry, "schedulers", lambda: every)
    entry = next(each for each in entries.entries() if each.slug == "not-yet")
    assert (entry.kind, entry.built, entry.needs) == ("ethernet", True, found.needs)
    assert entry.title == "P3"
    assert len(entries.entries()) == before


def test_claims_are_those_of_the_record(listed: dict[str, Any]) -> None:
    record = json.loads((files("ringwright_lab") / "papers" / "reproduced.json").read_text())
    papers = {paper["slug"]: paper for paper in record["papers"]}
    claimed = [each for each in listed["rows"] if each["kind"] is not None]
    assert len(claimed) >= 18
    for each in claimed:
        (said,) = (row for row in papers[each["slug"]]["rows"] if row["headline"])
        assert (each["claim"], each["got"], each["kind"], each["claim_of"], each["inside"]) == tuple(
            said[name] for name in ("claimed", "got", "kind", "figure", "pass")
        )
    assert all(each["claim"] is None for each in listed["rows"] if not each["built"])


def test_what_was_recorded_is_what_the_records_say(listed: dict[str, Any]) -> None:
    checks = {each["slug"]: each["conformance"] for each in catalogue.catalogue()["systems"]}
    for each in listed["rows"]:
        assert each["conformance"] == checks.get(each["slug"])
        assert each["simulated"] is bool(each["conformance"] and each["conformance"]["passed"])
        assert each["real"] is bool(each["real_runs"])
        assert all(run["exact"] + run.get("rounded", 0) > 0 == run["wrong"] for run in each["real_runs"])
    apart = ("profiler", "decomposition")  # a rewritten step runs on ranks of its own, see tests/execute and tests/lab
    assert all(each["real"] for each in listed["rows"] if each["built"] and each["class"] not in apart)
    assert row(listed, "gradientflow")["real_runs"][0]["exact"] == 0  # its sums travel in half precision
    assert [row(listed, slug)["simulated"] for slug in ("accl", "sharp", "camdoop")] == [True, True, True]
    assert len([each for each in listed["rows"] if each["class"] == "ethernet" and each["built"]]) == 8


# ----------------------------------------------------------------------------------------------------------------- a job
@pytest.mark.parametrize("slug", ["accl", "mvapich", "gradientflow", "pace"])
def test_a_row_is_what_simulate_says(slug: str, of_vgg: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    mine = row(of_vgg, slug)
    assert main([*shlex.split(mine["command"])[1:], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["rows"][0]
    assert (mine["step_us"], mine["exposed_us"]) == (found["step_us"], found["exposed_comm_us"])
    assert mine["speedup"] == of_vgg["baseline"]["step_us"] / found["step_us"]


def test_every_built_system_has_a_figure_or_an_unmet_need(of_vgg: dict[str, Any]) -> None:
    for each in of_vgg["rows"]:
        if not each["built"]:
            assert (each["why_not"], each["step_us"]) == ("not built", None)
        elif each["step_us"] is None:
            why_not = each["why_not"] or ""
            unmet = re.match(r"(collective|workload|topology|trace)\.[a-z_.-]+: ", why_not)
            assert unmet or each["declined"], each["slug"]
        else:
            assert (each["why_not"], each["declined"], each["simulated"]) == (None, None, True)
            assert each["step_us"] > each["exposed_us"] >= 0 < each["wire_bytes"]
    assert "no all-to-all in alexnet" in row(of_vgg, "lina")["why_not"]
    assert row(of_vgg, "nccl-2-4")["step_us"] == row(of_vgg, "pytorch-ddp")["step_us"] == of_vgg["baseline"]["step_us"]


def test_bytes_on_the_wire_are_those_of_the_algorithms(of_vgg: dict[str, Any]) -> None:
    gradients = sum(each.size_bytes for each in of_model().jobs("").workload.gradients())
    assert row(of_vgg, "ring-allreduce")["wire_bytes"] == pytest.approx(2 * 1 / 2 * gradients, rel=1e-6)
    cut = row(of_vgg, "bytescheduler")  # its largest gradients travel in 13 pieces
    assert cut["wire_bytes"] == pytest.approx(of_vgg["baseline"]["wire_bytes"], rel=0.1)
    half = row(of_vgg, "gradientflow")
    assert half["wire_bytes"] == pytest.approx(of_vgg["baseline"]["wire_bytes"] / 2, rel=0.1)


@pytest.mark.parametrize(
    ("machine", "spelling", "share"),
    [
        ("dgx-h100:1", "ring", 7 / 4),
        ("dgx-h100:1", "nvls", 1 + 1 / 8),
        ("dgx-h100:1", "nccl-2-4:algorithm=ring:protocol=ll", 7 / 2),
    ],
)
def test_what_switches_send_is_not_the_ranks_and_flags_are(machine: str, spelling: str, share: float) -> None:
    _, make, knobs = registry.algorithm(spelling)
    program = make(Collective("all-reduce", range(8), 1 << 20, "float32"), fabric(machine), **knobs)
    assert sent_by_ranks(program) == pytest.approx(8 * share * (1 << 20))


@pytest.mark.parametrize("name", ["of_vgg", "listed"])
def test_who_changes_the_bits_is_seen_in_a_run(name: str, request: pytest.FixtureRequest) -> None:
    bits = {each["slug"]: each["equal_bits"] for each in request.getfixturevalue(name)["rows"]}
    assert bits["gradientflow"] is False  # half precision
    assert bits["poseidon"] is False  # sums of outer products
    assert all(bits[slug] is True for slug in ("p3", "pace", "tictac", "bytescheduler", "pytorch-ddp", "accl"))
    assert bits["switchml"] is False
    operation = operations(of_model().jobs("").workload)[0]
    assert is_sent_whole([operation])
    assert not is_sent_whole([replace(operation, op="factors", size_bytes=10 * operation.size_bytes)])


def test_an_algorithm_that_leaves_an_operation_to_the_library_says_so() -> None:
    question = WorkloadSpec("mixtral-8x7b", 4, "ep4,dp4", seq=256)
    job = model_job.made(model_job.GeneratedJobSpec(question), fabric(MACHINE))
    scene = needs.Scene(job.workload)
    assert needs.unmet(("workload.all-to-all",), (), scene) == ""
    assert needs.collectives(job.workload) == {"all-reduce", "all-to-all"}
    assert needs.unmet((), ("scan",), scene).startswith("collective.op: the job has all-reduce, all-to-all, not scan")


@pytest.mark.parametrize(
    ("need", "machine", "lacking"),
    [
        ("topology.hosts", "switch:4", True),
        ("topology.hosts", "dgx-a100:1", False),
        ("topology.torus", "torus:2x2x2", False),
        ("topology.torus", "switch:8", True),
        ("topology.aggregators.network", "dgx-h100:2", True),
        ("topology.aggregators.network", "dgx-h100:2,sharp=true", False),
        ("workload.split-backward", "switch:4", False),
        ("workload.pipeline", "switch:4", True),
        ("transport.rdma", "switch:4", False),
        ("of a stranger", "switch:4", False),
    ],
)
def test_a_need_is_looked_up_in_its_field(need: str, machine: str, lacking: bool) -> None:
    workload = model_job.workload(model_job.GeneratedJobSpec(WorkloadSpec("vgg16", 4)))
    told = needs.unmet((need,), (), needs.Scene(workload, fabric(machine)))
    assert told.startswith(f"{need}: ") if lacking else told == ""


def surveyed_alone(monkeypatch: pytest.MonkeyPatch, *slugs: str) -> None:
    """Let the survey be of these systems; that it takes them all is told by the job above."""
    those = [each for each in entries.entries() if each.slug in slugs]
    assert len(those) == len(slugs)
    monkeypatch.setattr(document, "entries", lambda: those)


def test_a_decode_step_has_no_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    surveyed_alone(monkeypatch, "p3", "ring-allreduce", "nccl-2-4")
    found = document.survey(of_model("gpt2", mode="decode", parallel="tp4"))
    assert row(found, "p3")["why_not"].startswith("workload.gradients: ")
    assert row(found, "ring-allreduce")["step_us"] > 0


def test_one_rank_exchanges_nothing() -> None:
    found = document.survey(of_model(gpus=1))
    others = [each for each in found["rows"] if each["class"] != "decomposition"]  # an order needs no exchange
    assert all(each["step_us"] is None and each["why_not"] for each in others)
    assert found["baseline"]["step_us"] > 0 == found["baseline"]["wire_bytes"]
    assert (found["best"]["algorithm"], found["best"]["tried"]) == ("nccl-2-4", 1)


def test_a_recording_is_held_against_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    surveyed_alone(monkeypatch, "accl", "mvapich", "nccl-2-4", "pytorch-ddp", "p3", "collective-profiling-poster")
    sample = str(files("ringwright") / "samples" / "job.log.gz")
    assert main(["survey", sample, "--fabric", "switch:16", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["baseline"]["policy"] == "none"
    assert row(found, "accl")["step_us"] > 0
    assert row(found, "collective-profiling-poster")["why_not"].startswith("trace.events.duration_s: ")
    assert main([*shlex.split(row(found, "mvapich")["command"])[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["step_us"] == row(found, "mvapich")["step_us"]


# ------------------------------------------------------------------------------------------------------------- best pair
class Table(job_gains.Runs):
    """Runs whose steps are read from a table of algorithms by policies."""

    steps = ((9.0, 7.0, 5.0), (8.0, 6.0, 6.5), (1.0, 9.0, 9.0))

    def simulated(self, algorithm: str, policy: str) -> job_gains.StepOutcome:
        step = self.steps["abc".index(algorithm)]["xyz".index(policy)] if algorithm in "abc" else 10.0
        return job_gains.StepOutcome(step, 0.0, 0.0)


@pytest.mark.parametrize(("exhaustive", "pair", "tried"), [(True, ("c", "x"), 9), (False, ("b", "y"), 5)])
def test_the_best_pair_is_one_that_no_exchange_makes_shorter(
    exhaustive: bool, pair: tuple[str, str], tried: int
) -> None:
    runs = Table(replace(of_model(), policy="y"))
    found = job_gains.best(runs, ["a", "b", "c"], ["x", "y", "z"], exhaustive=exhaustive)
    assert (found["algorithm"], found["policy"]) == pair
    assert (found["tried"], found["pairs"]) == (tried, 9)


def test_the_search_by_exchange_ends_where_neither_part_alone_helps(of_vgg: dict[str, Any]) -> None:
    best = of_vgg["best"]
    steps = [each["step_us"] for each in of_vgg["rows"] if each["step_us"] is not None]
    assert best["step_us"] <= min(steps)
    programs = {
        each["slug"] for each in of_vgg["rows"] if each["built"] and each["class"] in ("pre-defined", "synthesised")
    }
    apart = {each["slug"] for each in of_vgg["rows"] if each["slug"] in programs and each["step_us"] is None}
    policies, rest = divmod(best["pairs"], len(programs) - len(apart))
    assert (best["tried"] <= best["pairs"], rest) == (True, 0)
    assert policies >= 7
    assert best["algorithm"] in programs


# ------------------------------------------------------------------------------------------------------------------ form
def test_the_form_is_the_first_that_a_device_can_hold() -> None:
    assert fitting("llama3-70b", 64, 8, 80e9)[0] == "tp8,pp4,dp2"
    assert fitting("llama3-70b", 64, 8, 288e9)[0] == "tp8,dp8"
    assert fitting("mixtral-8x7b", 64, 8, 80e9)[0] == "ep8,pp4,dp16"
    assert fitting("resnet50", 3, 8, 80e9)[0] == "dp3"
    assert fitting("deepseek-v3", 2048, 8, 80e9)[0] == "ep32,pp16,dp128"
    with pytest.raises(UsageError, match="llama3-70b is too large for 4 GPUs of 80 GB: 317 GB each at least"):
        fitting("llama3-70b", 4, 8, 80e9)


# ---------------------------------------------------------------------------------------------------------------- output
@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_number_is_cut_at_any_width(width: int, of_vgg: dict[str, Any]) -> None:
    text = io.StringIO()
    write(of_vgg, text, width=width)
    lines = text.getvalue().splitlines()
    words = {word for line in lines for word in line.split()}
    for each in of_vgg["rows"]:
        for cell in job_cells(read_json(SurveyedSystem, each)):
            assert set(cell.split()) <= words, (each["slug"], cell)
    assert all(len(line) <= width for line in lines if not line.lstrip().startswith("$")), max(lines, key=len)


def test_the_page_holds_every_row_and_runs_nothing_of_a_job(of_vgg: dict[str, Any]) -> None:
    page = survey_page.page({**of_vgg, "workload": "<script>alert(1)</script>"}, "ringwright survey x")
    assert "<script>alert" not in page
    for each in of_vgg["rows"]:
        assert f"<b>{each['slug']}</b>" in page
    assert "does not apply: workload.all-to-all: no all-to-all in alexnet training" in page


def test_the_list_alone_and_its_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "survey.html"
    assert main(["survey", "-o", str(page)]) == 0
    built = sum(each.built for each in entries.entries())
    assert f"survey: 45 systems, {built} built" in capsys.readouterr().out
    assert "What each is" in page.read_text()
    assert 'id="job"' not in page.read_text()
    assert main(["survey", "-o", str(page)]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no-such-model"], "no model known here"),
        (["llama3-7b"], "perhaps llama3-70b"),
        (["vgg16", "--fabric", "no-such:8"], "no fabric is named"),
        (["vgg16", "--fabric", "switch:4", "--gpus", "9"], "9 ranks do not fit"),
        (["vgg16", "--gpus", "0"], "--gpus is 0"),
        (["vgg16", "--fabric", "switch:8", "--ranks", "4"], "--ranks is the group of one collective"),
        (["--fabric", "switch:4"], "no job is named"),
        (["vgg16", "--fabric", "switch:4", "--mode", "sleep"], "one of: training"),
    ],
)
def test_a_wrong_question_is_refused_with_the_next_command(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["survey", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "\n  try: " in error
