"""What is simulated is a recording like any other: saved, packed, converted and sent, every verb says the same of it.

Rows are the jobs, columns the ways back. A format that cannot be read back is named with the reason, and its refusal is held.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ringwright
from ringwright.analysis.compared.diff import diff
from ringwright.analysis.summary import summarise
from ringwright.cli import main
from ringwright.ground.errors import InputError
from ringwright.ground.trace_tables import TABLES
from ringwright.model.trace import Trace
from ringwright.reports.serve import job_opening
from ringwright.workloads.replay import STEPS_UNKNOWN, replayed

pytestmark = pytest.mark.once

JOBS = {
    "job": ["--model", "alexnet", "--gpus", "4", "--fabric", "switch:4,rate=10Gb/s"],
    "stages": [
        *("--model", "gpt3-125m", "--gpus", "4", "--parallel", "tp2,pp2", "--micro-batches", "2"),
        *("--fabric", "switch:4,rate=10Gb/s"),
    ],
    "collective": ["all-reduce", "--fabric", "switch:4,rate=10Gb/s", "-b", "1M", "-e", "1M", "--algorithm", "ring"],
}
NOT_READ_BACK = {
    "otlp": "JSON with the keys",  # metrics for a collector
    "csv": "its tables are csv, which says neither types nor what is missing",
    "jsonl": "JSON with the keys",  # one line a row, in no order of columns: for other programs
    "perfetto": "JSON with the keys|no usable event",  # a timeline of what has a beginning; groups, claims and the ledger are not in it
}
ONE_WAY = ("prometheus",)  # bandwidths of all calls together: read as metrics, of which no call comes back
NEAR = 0.01  # of a step, between a replay and what was simulated


@pytest.fixture(scope="module", params=JOBS)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, dict[str, Any]]:
    """Return a simulated job's name, where its Trace was saved, and what the simulation said."""
    folder = tmp_path_factory.mktemp(request.param)
    where = folder / "run.trace"
    told = said(folder, "simulate", *JOBS[request.param], "--trace", str(where))
    return request.param, where, told


def said(folder: Path, *command: str) -> dict[str, Any]:
    """Return the JSON that a command prints."""
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main([*command, "--json"])
    assert code == 0, command
    return dict(json.loads(out.getvalue()))


def packed(where: Path, folder: Path) -> Path:
    with tarfile.open(folder / "rt.tgz", "w:gz") as archive:
        archive.add(where, where.name)
    return folder / "rt.tgz"


def converted(where: Path, folder: Path) -> Path:
    assert main(["convert", str(where), "-o", str(folder / "again")]) == 0
    return folder / "again"


def packed_after_converting(where: Path, folder: Path) -> Path:
    return packed(converted(where, folder), folder)


def moved(where: Path, folder: Path) -> Path:
    shutil.copytree(where, folder / "elsewhere" / "run.trace")
    return folder / "elsewhere"


WAYS: dict[str, Callable[[Path, Path], Path]] = {
    "as saved": lambda where, folder: where,
    "packed": packed,
    "converted": converted,
    "converted and packed": packed_after_converting,
    "in another folder": moved,
}
Saved = tuple[str, Path, dict[str, Any]]


@pytest.mark.sampled(6, "*")
@pytest.mark.parametrize("way", WAYS)
def test_every_table_and_answer_comes_back(way: str, saved: Saved, tmp_path: Path) -> None:
    _, where, _ = saved
    first, back = Trace.open(where), ringwright.read(WAYS[way](where, tmp_path))
    for name in TABLES:
        assert back.table(name).equals(first.table(name)), name
    one, two = summarise(first), summarise(back)
    told = diff(one, two)
    assert (told["changes"], told["changed_share"]) == ([], 0.0)
    assert told["answer"] is not None
    assert told["answer"]["kind"] in ("equal", "cannot-tell")
    assert one["answer"] is not None
    assert two["answer"] is not None
    assert one["answer"]["sentence"] == two["answer"]["sentence"]
    assert one["operations"] == two["operations"]


def test_a_replay_takes_what_was_simulated(saved: Saved, tmp_path: Path) -> None:
    """Where steps of each rank are there; of folded ranks or of a lone collective there is none, and the answer says so."""
    name, where, told = saved
    trace = Trace.open(where)
    if trace.df.filter(kind="collective")["rank"].null_count():
        with pytest.raises(InputError, match="by a known rank"):
            replayed(trace)
        return
    again = said(tmp_path, "simulate", str(packed(where, tmp_path)))
    if name == "collective":
        assert again["ground"] == "communication-only"
        assert STEPS_UNKNOWN in again["assumptions"]
        return
    assert again["rows"][0]["step_us"] == pytest.approx(told["rows"][0]["step_us"], rel=NEAR)


def test_advice_is_given_or_says_why_not(saved: Saved, tmp_path: Path) -> None:
    _, where, _ = saved
    told = said(tmp_path, "advise", str(packed(where, tmp_path)), "--budget", "0.1s")
    assert told["verdict"]
    assert told["verdict"] != "cannot-tell" or told["why"]


def test_a_page_and_the_server_show_it(saved: Saved, tmp_path: Path) -> None:
    _, where, _ = saved
    archive = packed(where, tmp_path)
    assert main(["report", str(archive), "-o", str(tmp_path / "job.html")]) == 0
    assert "<h1>" in (tmp_path / "job.html").read_text()
    (tmp_path / "served").mkdir()
    job_opening.main([str(tmp_path / "served"), str(archive)])
    assert {"summary.json", "report.html"} <= {path.name for path in (tmp_path / "served").iterdir()}


@pytest.mark.parametrize("form", [*NOT_READ_BACK, *ONE_WAY])
def test_a_format_that_is_for_others_says_so(form: str, saved: Saved, tmp_path: Path) -> None:
    _, where, _ = saved
    target = tmp_path / f"job.{form}"
    assert main(["convert", str(where), "--format", form, "-o", str(target)]) == 0
    if form in NOT_READ_BACK:
        with pytest.raises(InputError, match=NOT_READ_BACK[form]):
            ringwright.read(target)
    else:
        assert not len(ringwright.read(target).df.filter(kind="collective"))


def test_every_format_stands_in_the_table() -> None:
    from ringwright.formats.exports import exports

    known = set(exports("trace"))
    assert known == {*NOT_READ_BACK, *ONE_WAY, "parquet", "chakra"}


def test_chakra_traces_of_a_simulated_job_hold_its_calls(saved: Saved, tmp_path: Path) -> None:
    """Of what has ranks: a collective alone is simulated as classes of ranks."""
    name, where, _ = saved
    if name == "collective":
        pytest.skip("no rank stands alone in it")
    target = tmp_path / "et"
    assert main(["convert", str(where), "--format", "chakra", "-o", str(target)]) == 0
    count = [len(ringwright.read(str(each)).df.filter(kind="collective")) for each in (where, target)]
    assert count[0] == count[1] > 0
