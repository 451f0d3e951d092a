"""The files of advice: what is written, read back, and held to what was advised; and the commands that write the same."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ringwright.advise import advise as advising
from ringwright.advise import folder
from ringwright.advise.advise import AdviceSpec, Advised, advised
from ringwright.advise.evaluation import Evaluator
from ringwright.advise.exported import AdvisedFile, export_of, files_of, measure_of
from ringwright.advise.interval import FEWEST_DRAWS, Draws
from ringwright.advise.settings import FORM, MACHINE, OPERATION, ORDER, PREFETCH, Setting, Setup
from ringwright.advise.situation import Situation, named, of_model, of_recording
from ringwright.advise.software import job_command, library_of, mpi_library, nccl_release
from ringwright.cli import main
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply
from ringwright.formats.settings.msccl_config import read_msccl_config
from ringwright.formats.settings.nccl_environment import parse_nccl_environment
from ringwright.formats.sources.programs.program_files import read_program
from ringwright.ground.errors import OutputError, UsageError
from ringwright.ground.trace_tables import rows
from ringwright.jobs.job_trace import trace
from ringwright.jobs.model_job import GeneratedJobSpec
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.jobs.study import Job, answer
from ringwright.model.stages import LinkCosts
from ringwright.model.trace import Trace
from ringwright.workloads.chain import ChainLayer, chain

pytestmark = pytest.mark.once
MIB = 1 << 20
ALL_REDUCE = f"{OPERATION}all-reduce"
FEW = partial(Draws, most=FEWEST_DRAWS)  # how sure a gain is, is asked in test_advice
NCCL = "nccl-2-4:release=2.27:algorithm=ring:protocol=simple"


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advising, "Draws", FEW)


def job(machine: str = "dgx-a100:2", form: str = "dp16") -> Situation:
    spec = GeneratedJobSpec(WorkloadSpec("gpt3-125m", 16, form, 1))
    return of_model(spec, fabric(machine), "pytorch-ddp:bucket_cap_mb=400")


def setting(layer: str, slot: str, spelling: str, size_bytes: int = 400 * MIB) -> Setting:
    ranks = tuple(range(4 if layer == "algorithm" else 16)) if slot.startswith(OPERATION) else ()
    return Setting(layer, slot, spelling, spelling, "", size_bytes=size_bytes if ranks else 0, ranks=ranks)


# Layer, slot, spelling, form of the job, and the files that must come of it.
CASES = [
    ("nccl", ALL_REDUCE, NCCL, "dp16", {"tuner.csv", "torchcomms.json", "nccl.env"}),
    ("nccl", ALL_REDUCE, f"{NCCL}:channels=8", "dp16", {"tuner.csv", "torchcomms.json", "nccl.env"}),
    ("algorithm", ALL_REDUCE, "accl", "dp16", {"msccl.xml", "mscclpp.json"}),
    ("algorithm", ALL_REDUCE, "ring", "dp16", {"msccl.xml", "mscclpp.json"}),
    ("algorithm", ALL_REDUCE, "open-mpi:algorithm=ring", "dp16", {"ompi-rules.txt"}),
    ("algorithm", ALL_REDUCE, "mpich2:algorithm=ring", "dp16", {"mpich.json"}),
    ("ddp", ORDER, "pytorch-ddp:bucket_cap_mb=25", "dp16", {"buckets.py"}),
    ("fsdp", PREFETCH, "3", "dp16,fsdp", {"prefetch.py"}),
    ("parallel", FORM, "tp2,dp8,sp in 2", "dp16", {"megatron.txt"}),
    ("parallel", FORM, "tp2,dp8,sp,fsdp in 2", "dp16", {"megatron.txt", "torchtitan.toml"}),
    ("fabric", MACHINE, "fabric dgx-a100:2,nic_rate=400Gb/s", "dp16", {"fabric.json"}),
    ("fabric", MACHINE, "links nic x2", "dp16", {"fabric.json"}),
]


@pytest.mark.sampled(7, "spelling", "form")  # of each layer and place
@pytest.mark.parametrize(("layer", "slot", "spelling", "form", "ends"), CASES, ids=[each[2] for each in CASES])
def test_each_file_is_read_back_and_its_command_writes_the_same(
    layer: str,
    slot: str,
    spelling: str,
    form: str,
    ends: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    files, refused = files_of(job(form=form), [setting(layer, slot, spelling)])
    assert refused == []
    assert {each.name.removeprefix("all-reduce-") for each in files} == ends
    for each in files:
        path = tmp_path / f"read-{each.name}"
        path.write_bytes(each.data)
        folder.read_back(path, each)
        if each.command:
            assert main(shlex.split(each.command)[1:]) == 0
            assert (tmp_path / each.name).read_bytes() == each.data


def test_a_program_is_made_for_the_size_and_the_ranks_of_today(tmp_path: Path) -> None:
    group = (0, 2, 4, 6)
    one = Setting("algorithm", ALL_REDUCE, "ring", "", "", size_bytes=3 * MIB + 4, ranks=group)
    files, _ = files_of(job(), [one])
    for each in files:
        (tmp_path / each.name).write_bytes(each.data)
        program = read_program(tmp_path / each.name, size_bytes=3 * MIB + 4 * 4096)
        assert program.p == 4
        assert "--ranks 0,2,4,6" in each.command
        size = int(each.command.split(" -b ")[1].split()[0])
        assert 0 <= size - (3 * MIB + 4) < 4 * 4096, (
            "a size that cannot be cut evenly is raised by less than a page a rank"
        )


def wrong(data: bytes) -> AdvisedFile:
    (first, *_), _ = files_of(job(), [setting("nccl", ALL_REDUCE, NCCL)])
    return replace(first, data=data)


def test_a_file_that_says_something_else_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "tuner.csv"
    good = wrong(b"")
    (first, *_), _ = files_of(job(), [setting("nccl", ALL_REDUCE, NCCL)])
    path.write_bytes(first.data.replace(b"ring", b"tree"))
    with pytest.raises(OutputError, match="says something else"):
        folder.read_back(path, good)
    path.write_bytes(first.data.replace(b"allreduce", b"allgather"))
    with pytest.raises(OutputError, match="says something else"):
        folder.read_back(path, good)


def made(*settings: Setting) -> Advised:
    """Advice as if these settings had been told, each a change of its own."""
    situation = job()
    files = [files_of(situation, [each])[0] for each in settings]
    told = advised(situation, AdviceSpec((), seconds=60))
    change = {"what": ""}
    told.document["changes"] = [{**change, "files": []} for _ in settings]  # type: ignore[misc]
    return replace(told, files=files)


def test_a_folder_holds_all_files_and_what_picks_a_program(tmp_path: Path) -> None:
    both = made(setting("nccl", ALL_REDUCE, NCCL), setting("algorithm", f"{OPERATION}all-gather", "ring"))
    written = folder.write(both, "<!doctype html>", folder.claim(tmp_path / "out", force=False))
    assert set(written.names) == {each.name for each in (tmp_path / "out").iterdir()}
    assert written.names[:2] == ("advice.json", "advice.html")
    told = json.loads((tmp_path / "out" / "advice.json").read_text())
    assert [len(each["files"]) for each in told["changes"]] == [3, 2]
    assert all(name.startswith("2-") for name in told["changes"][1]["files"])
    (load,) = read_msccl_config(tmp_path / "out" / folder.SELECTOR)
    assert Path(load.path) == (tmp_path / "out" / "2-all-gather-msccl.xml").resolve()
    assert Path(load.path).is_file()


def test_a_folder_of_something_else_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years")
    for force in (False, True):
        with pytest.raises(UsageError, match="other files"):
            folder.claim(tmp_path / "mine", force=force)
    first = folder.write(made(), "", folder.claim(tmp_path / "out", force=False))
    assert first.names == ("advice.json", "advice.html")
    with pytest.raises(UsageError, match="exists"):
        folder.claim(tmp_path / "out", force=False)
    assert folder.claim(tmp_path / "out", force=True) == tmp_path / "out"


def test_nothing_stands_where_a_file_differs(tmp_path: Path) -> None:
    broken = made(setting("nccl", ALL_REDUCE, NCCL))
    (tuner, *_), *_ = broken.files
    broken.files[0][0] = replace(tuner, data=tuner.data.replace(b"ring", b"tree"))
    with pytest.raises(OutputError, match="read back"):
        folder.write(broken, "", folder.claim(tmp_path / "out", force=False))
    assert list((tmp_path / "out").iterdir()) == []


def test_what_no_file_can_hold_says_why() -> None:
    files, refused = files_of(job("switch:16,sharp=true"), [setting("switch", ALL_REDUCE, "sharp")])
    assert [each.name for each in files] in ([], ["all-reduce-mscclpp.json"])
    assert files or "in the network" in refused[0]
    assert export_of([]) is None
    assert files_of(job(), [setting("policy", ORDER, "p3")]) == ([], [])


def test_variables_of_all_changes_so_far_stand_in_the_command() -> None:
    both = Setup.of(
        [
            setting("nccl", ALL_REDUCE, NCCL),
            setting("nccl", f"{OPERATION}all-gather", NCCL.replace("simple", "ll128")),
        ]
    )
    told = measure_of(job(), both, "PATH")
    command = shlex.split(told.split("; ringwright diff")[0].split("-- COMMAND; ")[1])
    lines = "\n".join(each for each in command if each.startswith("NCCL_"))
    read = parse_nccl_environment(lines, release="2.27")
    assert read.of("all-reduce") == (("ring",), ("simple",))
    assert read.of("all-gather") == (("ring",), ("ll128",))


def recorded(command: str = "", release: str = "", *, layer_bytes: int = 8 * MIB, ranks: int = 4) -> Trace:
    """Four layers, whose gradients are on the wire for 20 ms each, whatever their bytes."""
    source = chain("toy", [ChainLayer(0.01, 0.02, layer_bytes, layer_bytes // 4) for _ in range(4)], ranks=ranks)
    plain = Job(source, LinkCosts(layer_bytes / 0.02), folded=False)
    seen = trace(plain, answer(plain, "pytorch-ddp"))
    claims = [{"field": "run command", "value": command, "source": "run", "ground": "read", "confidence": 1.0}]
    frames = {name: seen.table(name) for name in seen.tables} | ({"claims": rows("claims", claims)} if command else {})
    return Trace.of(frames, {**seen.meta, **({"nccl_versions": [release]} if release else {})})


@pytest.mark.sampled(1, "*")
@pytest.mark.parametrize("of", ["model", "recording"])
def test_what_measures_a_change_runs(of: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command as it stands, COMMAND for a job: each part of it ends in order."""
    monkeypatch.chdir(tmp_path)
    job_words = f"{shlex.quote(sys.executable)} -c pass"
    if of == "model":
        situation, name = job(), ""
    else:
        recorded(command=job_words).save(tmp_path / "before")
        situation, name = of_recording(recorded(command=job_words), None), "before"
    told = measure_of(situation, Setup.of([setting("nccl", ALL_REDUCE, NCCL)]), name)
    told = told.replace("COMMAND", job_words)
    assert job_words in told, "the job's own command where it is known"
    script = told.replace("ringwright ", f"{shlex.quote(sys.executable)} -m ringwright ").replace("; ", " && ", 1)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert "NCCL_ALGO" in told
    assert (tmp_path / "after").is_dir(), done.stderr
    assert done.returncode in (0, 1, 3), done.stderr  # a job that communicates nothing cannot be compared
    assert "Traceback" not in done.stderr


def test_the_recording_says_what_ran() -> None:
    told = recorded("torchrun --token=hf_abcdefghijklmnopqrstuvwxyz0123 'my train.py'", "2.18.5+cuda12.2")
    assert nccl_release(told) == "2.18.5"
    assert library_of(told) == "nccl-2-4:release=2.18.5"
    assert "hf_abc" not in job_command(told)
    assert "'my train.py'" in job_command(told)
    assert job_command(recorded()) == job_command(None) == "COMMAND"
    assert nccl_release(recorded(release="9.9.1")) == nccl_release(recorded(release="garbage")) == ""
    for release, slug in (("Open MPI v5.0.3, package: x", "open-mpi"), ("MPICH Version: 4.2", "mpich2")):
        assert mpi_library(recorded(release=release)) == library_of(recorded(release=release)) == slug


def test_the_release_that_was_recorded_is_asked_about() -> None:
    """Buckets of 1 MiB, which NCCL's own choice sends twice as slowly as it could on this machine."""
    situation = of_recording(
        recorded(release="2.20.5", layer_bytes=MIB // 4, ranks=8), fabric("leaf-spine:8,per_leaf=2")
    )
    (change,) = advised(situation, AdviceSpec(("nccl",), seconds=300)).document["changes"]
    assert "NCCL 2.20.5, as recorded" in change["ground"]
    assert change["spelling"].startswith("nccl-2-4:release=2.20.5:")
    other = advised(situation, AdviceSpec(("nccl",), seconds=300, release="2.27")).document["changes"]
    assert ["NCCL 2.27, as asked" in each["ground"] for each in other] == [True], (
        "another one only where it is asked for"
    )


@pytest.mark.sampled(1, "*")
@pytest.mark.parametrize(
    ("release", "machine", "spelling", "file"),
    [
        ("Open MPI v5.0.3", "leaf-spine:4,per_leaf=2,rate=10Gb/s", "open-mpi:algorithm=", "all-reduce-ompi-rules.txt"),
        ("MPICH Version: 4.2", "dgx-a100:1", "mpich2:algorithm=", "all-reduce-mpich.json"),
    ],
)
def test_a_job_of_mpi_is_told_rules_of_its_library(
    release: str, machine: str, spelling: str, file: str, tmp_path: Path
) -> None:
    situation = of_recording(recorded(release=release, layer_bytes=MIB // 16), fabric(machine))
    told = advised(situation, AdviceSpec(("nccl", "algorithm"), seconds=300))
    (refused,) = told.document["refused"]
    assert (refused["what"], "not NCCL" in refused["why"]) == ("nccl", True)
    (change,), (files,) = told.document["changes"], told.files
    assert change["spelling"].startswith(spelling)
    assert [each.name for each in files] == [file]
    (tmp_path / file).write_bytes(files[0].data)
    folder.read_back(tmp_path / file, files[0])


def test_a_machine_with_a_fault_is_named_by_who_asks() -> None:
    plain = fabric("torus:2x4")
    assert named(plain) == "--fabric torus:2x4"
    assert named(apply(plain, ["link rank0 rate 50%"])) == ""


def test_a_new_plan_round_a_fault_is_a_change_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGWRIGHT_PROGRAMS", str(tmp_path))
    spec = GeneratedJobSpec(WorkloadSpec("resnet-18", 3, "dp3", 1))
    for line, pays in (("link rank0>rank1 rate 20%", True), ("link rank0>rank1 latency +1ns", False)):
        machine = apply(fabric("ring:3"), [line])
        situation = of_model(spec, machine, "pytorch-ddp:bucket_cap_mb=800")
        told = advised(situation, AdviceSpec(("algorithm",), seconds=600)).document
        anew = [each for each in told["changes"] if "planned anew round the fault" in each["what"]]
        refused = [each for each in told["refused"] if "planned anew round the fault" in each["what"]]
        assert bool(anew) is pays
        assert bool(refused) is not pays
        assert "re-plan: " in anew[0]["where"] if pays else "live with it" in refused[0]["why"]


@pytest.mark.parametrize(
    ("rate", "policy", "hidden"), [("10Gb/s", "pytorch-ddp:bucket_cap_mb=800", 0), ("800Gb/s", "pytorch-ddp", 1)]
)
def test_operations_that_switches_do_not_help_say_why(rate: str, policy: str, hidden: int) -> None:
    """One operation for all gradients on a slow network gains. Of buckets on a quick one all but the last lie behind compute."""
    spec = GeneratedJobSpec(WorkloadSpec("resnet-18", 4, "dp4", 1))
    situation = of_model(spec, fabric(f"switch:4,sharp=true,rate={rate}"), policy)
    told = advised(situation, AdviceSpec(("switch",), seconds=600)).document
    assert [each["layer"] for each in told["changes"]] == ["switch"]
    refused = [each for each in told["refused"] if each["what"].startswith("switch: all-reduce of")]
    assert ["none of it is exposed" in each["why"] for each in refused] == [True] * hidden
    assert all("sharp" in each["remedy"] for each in refused)


def test_evaluated_settings_keep_their_operation() -> None:
    """What a file is made for comes from the step of today."""
    spec = GeneratedJobSpec(WorkloadSpec("gpt3-125m", 4, "dp4", 1))
    situation = of_model(spec, fabric("leaf-spine:4,per_leaf=2"), "pytorch-ddp:bucket_cap_mb=400")
    from ringwright.advise.layers.operations import main_operations
    from ringwright.advise.space import space

    result = Evaluator(situation).result(Setup())
    (main_operation,) = main_operations(result)
    listed = space(situation, result, ("nccl",)).slots[ALL_REDUCE]
    assert {(each.size_bytes, each.ranks) for each in listed} == {(main_operation.size_bytes, main_operation.ranks)}


def test_a_change_of_several_files_names_a_command_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands under ``export`` runs as it stands, part by part."""
    monkeypatch.chdir(tmp_path)
    files, _ = files_of(
        job(), [setting("nccl", ALL_REDUCE, NCCL), setting("ddp", ORDER, "pytorch-ddp:bucket_cap_mb=5")]
    )
    commands = (export_of(files) or "").split("; ")
    assert [main(shlex.split(each)[1:]) for each in commands] == [0, 0, 0, 0]
    assert {each.name for each in tmp_path.iterdir()} == {each.name for each in files}
