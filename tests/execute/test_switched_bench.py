"""The benchmark of SwitchML on real ranks: what goes through a switch, what does not, and where the switches of a fabric stand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ringwright.cli import main
from ringwright.errors import DeclinedError, UsageError
from ringwright.execute.executors import executor
from ringwright.execute.job import NodeResult
from ringwright.execute.switched.tree import SwitchSeat, WorkerSeat, seats
from ringwright.fabrics import fabric
from ringwright.studies.bench import BenchSpec, jobs, switched
from ringwright.studies.bench.jobs import BenchSample

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
            switched.switched(question)
        assert says in refused.value.what
        assert refused.value.remedy
    assert switched.switched(replace(ASKED, op="all-gather", algorithms=["ring"])) == {}


def test_each_spelling_is_a_job_of_its_own() -> None:
    jobs_asked = ASKED.through_switch.values()
    assert [(each.job, each.slots, each.codec) for each in jobs_asked] == [(0, 64, "block-exponent"), (1, 4, "int8")]


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
