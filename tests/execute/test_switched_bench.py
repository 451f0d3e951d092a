"""The benchmark of SwitchML on real ranks: what goes through a switch, what does not, and where the switches of a fabric stand."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from ringwright.cli import main
from ringwright.execute.executors import executor
from ringwright.execute.job import NodeResult, RankJob
from ringwright.execute.switched import runner
from ringwright.execute.switched.terms import SwitchTerms, WorkerPort
from ringwright.execute.switched.tree import SwitchSeat, WorkerSeat, seats
from ringwright.fabrics import fabric
from ringwright.ground.errors import DeclinedError, RanksFailedError, UsageError
from ringwright_lab.bench import BenchSpec, jobs, study, switched
from ringwright_lab.bench.jobs import BenchSample
from ringwright_lab.reports import benched

pytestmark = pytest.mark.once
ASKED = BenchSpec("all-reduce", 2, [4096], algorithms=["ring", "switchml", "switchml:slots=4:codec=int8"])


def test_ranks_sum_through_a_switch_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    asked = "switchml,switchml:codec=fixed-point,switchml:slots=4:codec=int8,switchml:payload=32:loss=0.02"
    assert (
        main(
            [
                "bench",
                "all-reduce",
                "-g",
                "2",
                "--algorithm",
                asked,
                "-b",
                "4000",
                "-e",
                "40000",
                "-f",
                "10",
                "-n",
                "2",
                "-w",
                "0",
                "--json",
            ]
        )
        == 0
    )
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["size_bytes"], row["algorithm"], row["wire"], row["wrong"]) for row in rows] == [
        (size, name, "switch", 0) for size in (4000, 40000) for name in sorted(asked.split(","))
    ]


def test_what_a_switch_does_not_do_is_refused_before_anything_starts() -> None:
    for question, says in (
        (replace(ASKED, op="all-gather"), "all-gather"),
        (replace(ASKED, reduce_op="max"), "max"),
        (replace(ASKED, dtype="float16"), "float16"),
        (replace(ASKED, algorithms=["switchml:trees=2"]), "trees"),
        (replace(ASKED, algorithms=["switchml:codec=zip"]), "zip"),
        (replace(ASKED, algorithms=["switchml:slots=many"]), "slots=many: slots is a whole number from 1 to 8192"),
        (replace(ASKED, algorithms=["switchml:payload=100"]), "400 bytes"),
        (replace(ASKED, algorithms=["switchml:loss=1"]), "loss=1: loss is a number from 0 to 0.99"),
    ):
        with pytest.raises(UsageError) as refused:
            _ = question.through_switch
        assert says in refused.value.what
        assert refused.value.remedy
    assert replace(ASKED, op="all-gather", algorithms=["ring"]).through_switch == {}


def test_each_spelling_is_a_job_of_its_own() -> None:
    jobs_asked = ASKED.through_switch.values()
    assert [(each.job, each.slots, each.codec) for each in jobs_asked] == [(0, 64, "block-exponent"), (1, 4, "int8")]


def test_each_start_of_ranks_is_a_session_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: list[set[int]] = []

    def run(folder: Path, job: RankJob, starts: object, **knobs: object) -> None:
        sessions.append({port.session for port in job.switched})
        raise RanksFailedError("seen enough")

    monkeypatch.setattr(jobs.launch, "run", run)
    ports = [WorkerPort("127.0.0.1", 1, number, b"") for number in range(2)]
    (group,) = jobs.groups(ASKED, ASKED.candidates(), [])
    for _ in range(2):
        with pytest.raises(RanksFailedError):
            jobs.measure(ASKED, group, {}, None, 1e9, ports=ports)
    assert len(sessions[0] | sessions[1]) == 2


def test_a_rank_goes_to_the_switch_whose_kernel_adds_only_where_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "SwitchClient", lambda member, address, **knobs: address)
    port = WorkerPort("10.0.0.1", 48864, 0, b"", 1, 48865)
    for terms, number in ((SwitchTerms(), 48864), (SwitchTerms(xdp=True), 48865)):
        assert runner.connected(terms, port, 2, "float32", 1.0) == ("10.0.0.1", number)


def test_both_spellings_of_one_system_are_shown_and_what_has_no_row_is_said() -> None:
    spelled = ("switchml:slots=16", "switchml:slots=64")
    question = BenchSpec("all-reduce", 2, [4096], algorithms=spelled)
    done = [NodeResult(0, "", times_s=[(0.0, 0.1), (0.2, 0.4)]) for _ in range(2)]
    samples = [BenchSample("ringwright", each, 4096, 1, done, "", switched.WIRE) for each in spelled]
    samples.append(BenchSample("openmpi", "ring", 4096, 1, [NodeResult(0, "", declined="no such call")], "", ""))
    rows = study._rows(question, samples, {}, {}, None)
    notes = study._untimed(samples)
    empty = {"lab": None, "tcp": None, "faults": [], "verdict": None, "ratios": [], "reduce_op": "sum", "root": 0}
    said = StringIO()
    benched.write({**empty, "collective": "all-reduce", "ranks": 2, "rounds": 2, "rows": rows, "notes": notes}, said)
    for each in spelled:
        assert f"ringwright, {each}" in said.getvalue()
    assert "openmpi, ring, 4096 B has no row: no such call" in " ".join(said.getvalue().split())


def test_only_our_own_backend_goes_through_a_switch() -> None:
    question = replace(ASKED, backends=["ringwright", "ringwright@sockets"])
    groups = jobs.groups(question, question.candidates(), [])
    entries = {(candidate.name, name) for group in groups for candidate, name in group.entries}
    assert entries == {("ringwright", name) for name in ASKED.algorithms} | {("ringwright@sockets", "ring")}
    assert executor("sockets").wire == "sockets"
    assert BenchSample("ringwright", "switchml", 1, 1, [NodeResult(0, "")], "", switched.WIRE).times_s == []


def test_switches_form_a_tree_with_its_root_in_the_middle() -> None:
    above, ranks = seats(fabric("switch:3"))
    assert above == [SwitchSeat(3, 3)]
    assert ranks == [WorkerSeat(3, number) for number in range(3)]
    above, ranks = seats(fabric("leaf-spine:4,spines=1"))
    assert above == [SwitchSeat(6, 2), SwitchSeat(4, 2, 6, 0), SwitchSeat(5, 2, 6, 1)]
    assert ranks == [WorkerSeat(4, 0), WorkerSeat(4, 1), WorkerSeat(5, 0), WorkerSeat(5, 1)]
    with pytest.raises(DeclinedError, match="hang on one"):
        seats(fabric("ring:4"))
