"""A job whose network's switches add: who is compared, which operations gain, and which field says what stands in the way."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ringwright.cli import main
from ringwright.fabrics import fabric
from ringwright.ground.documents import as_json, read_json
from ringwright.ground.errors import EXIT_USAGE, FanInError, UsageError
from ringwright.jobs import model_job, switch_gains
from ringwright.jobs.explained.exposed_operations import exposed_operations
from ringwright.jobs.explained.obstacles import Obstacle, obstacles
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.jobs.study import Job, answer
from ringwright.model.topology import Capability, Topology
from ringwright.reports import layout
from ringwright.reports.steps import aggregated as report

SLOW = "leaf-spine:8,per_leaf=4,rate=40Gb/s,sharp=true"
FAST = "leaf-spine:8,per_leaf=4,sharp=true"


def maker(machine: Topology, model: str = "resnet-50", parallel: str | None = None) -> Callable[[str, bool], Job]:
    def by(system: str, plain: bool) -> Job:
        card = WorkloadSpec(model, machine.n_ranks, parallel, None, None, None, None, None)
        on = switch_gains.plain_switches(machine) if plain else machine
        return model_job.made(model_job.GeneratedJobSpec(card, None, {"": system} if system else {}), on)

    return by


def compared(by: Callable[[str, bool], Job], *systems: str) -> Any:
    job = by("", False)
    first = switch_gains.stepped(job, "nccl-2-4", answer(job, "pytorch-ddp"))
    return as_json(switch_gains.compare_systems(first, "pytorch-ddp", systems, by))


@pytest.fixture(scope="module")
def slow() -> dict[str, Any]:
    return compared(maker(fabric(SLOW)), "ring", "sharp", "nvls")


def test_the_library_is_compared_with_itself_on_plain_switches(slow: dict[str, Any]) -> None:
    rows = {row["system"]: row for row in slow["systems"]}
    assert list(rows) == ["nccl-2-4", "nccl-2-4, plain switches", "ring", "sharp", "nvls"]
    assert [name for name, row in rows.items() if row["in_network"]] == ["nccl-2-4", "sharp"]
    assert rows["nvls"]["declined"] == "nvls works inside one switch domain"
    assert rows["nvls"]["step_us"] is None
    hosts = min(rows[name]["step_us"] for name in ("nccl-2-4, plain switches", "ring"))
    network = min(rows[name]["step_us"] for name in ("nccl-2-4", "sharp"))
    assert slow["saved_us"] == pytest.approx(hosts - network)
    assert slow["saved_us"] > 0


def test_what_is_hidden_gains_nothing_however_much_quicker_it_is(slow: dict[str, Any]) -> None:
    verdicts = {each["verdict"]: each for each in slow["operations"]}
    gains, hidden = verdicts["gains"], verdicts["hidden"]
    assert hidden["network_us"] < hidden["hosts_us"]
    assert hidden["gain_us"] == pytest.approx(0.0, abs=switch_gains.LEAST_US)
    assert gains["gain_us"] == pytest.approx(gains["exposed_hosts_us"] - gains["exposed_network_us"])
    assert f"{gains['gain_us']:,.1f} us" in gains["why"]
    assert [each["verdict"] == "gains" for each in slow["operations"]] == sorted(
        (each["verdict"] == "gains" for each in slow["operations"]), reverse=True
    )


def test_of_steps_alike_the_one_with_quicker_operations_is_best() -> None:
    by = maker(fabric(FAST))
    slow, quick = (
        switch_gains.stepped(job := by(name, False), name, answer(job, "pytorch-ddp")) for name in ("ring", "sharp")
    )
    assert switch_gains._step(quick) < switch_gains._step(slow)
    alike = [replace(each, row=replace(each.row, step_us=1.0)) for each in (slow, quick)]
    assert switch_gains._step(alike[1]) < switch_gains._step(alike[0])


def test_exposed_operations_are_what_the_account_has_exposed() -> None:
    result = answer(maker(fabric(SLOW))("ring", False), "pytorch-ddp")
    told = sum(each.exposed_s for each in exposed_operations(result).values())
    assert told == pytest.approx(result.exposed_s, rel=1e-6)


def test_halves_are_left_to_hosts_and_the_system_that_has_none_declines() -> None:
    told = compared(maker(fabric(FAST), "bert-base", "fsdp"), "sharp")
    assert told["systems"][-1]["declined"] == "sharp does no reduce-scatter"
    assert told["network"] is None
    assert told["saved_us"] is None
    assert {each["verdict"] for each in told["operations"]} == {"not added"}
    assert all(
        "no less time" in each["why"] for each in told["operations"] if each["op"] in ("all-gather", "reduce-scatter")
    )
    types = next(each for each in told["obstacles"] if each["obstacle"] == "types and operations")
    assert types["verdict"] == "in the way"
    assert types["answer"] == "sharp does no reduce-scatter"


def test_a_group_within_a_host_does_not_make_a_system_decline_the_others() -> None:
    told = compared(maker(fabric("dgx-a100:2,sharp=true"), "bert-base", "tp4"), "sharp")
    rows = {row["system"]: row for row in told["systems"]}
    assert rows["sharp"]["declined"] is None
    assert rows["sharp"]["in_network"]
    verdicts = {(each["role"], each["verdict"]) for each in told["operations"]}
    assert ("tp", "not added") in verdicts
    left = [each["why"] for each in told["operations"] if (each["role"], each["verdict"]) == ("dp", "not added")]
    assert all("among hosts at this size" in why for why in left)
    assert ("dp", "gains") in verdicts


CHANGES: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("types and operations", {"dtypes": ("int32",)}, "in the way", "it does not add float32", "dtypes"),
    ("fan-in and topology", {"fanin_max": 3}, "in the way", "at most 3 contributions", "fanin_max"),
    ("order", {"order": "fixed"}, "clear", "the same to the bit", "order"),
]


@pytest.mark.parametrize(("obstacle", "change", "verdict", "answered", "field"), CHANGES)
def test_each_answer_follows_the_field_that_it_names(
    obstacle: str, change: dict[str, Any], verdict: str, answered: str, field: str
) -> None:
    asked = _obstacles(lambda can: can)[obstacle]
    changed = _obstacles(lambda can: replace(can, **change))[obstacle]
    assert asked.verdict == ("with care" if obstacle == "order" else "clear")
    assert changed.verdict == verdict
    assert answered in changed.answer
    assert any(f".{field} = " in each for each in changed.decided_by)


@pytest.mark.parametrize(
    ("change", "answered"), [({"memory_bytes": 192 << 10}, "of 192 KiB"), ({"concurrency": 1}, "2 of 1 streams")]
)
def test_groups_that_add_at_once_share_what_one_alone_would_have(change: dict[str, int], answered: str) -> None:
    asked = _obstacles(lambda can: can, "bert-base", "tp2")["memory and leases"]
    assert (asked.verdict, "2 groups at once" in asked.answer) == ("clear", True)
    changed = _obstacles(lambda can: replace(can, **change), "bert-base", "tp2")["memory and leases"]
    assert changed.verdict == "in the way"
    assert answered in changed.answer


def _obstacles(
    change: Callable[[Capability], Capability], model: str = "resnet-50", parallel: str | None = None
) -> dict[str, Obstacle]:
    machine = fabric(FAST)
    by = maker(
        replace(machine, aggregators={node: change(can) for node, can in machine.aggregators.items()}), model, parallel
    )
    slots = "switchml:slots=64:codec=native"
    step = switch_gains.stepped(job := by(slots, False), slots, answer(job, "pytorch-ddp"))
    assert step.costs is not None
    why = [each for key, mine in step.operations.items() if (each := switch_gains.refusal(step.costs, key, mine))]
    told = obstacles(step.costs, step.operations, {}, why)
    return {each.obstacle: each for each in told if each.tier == "core"}


def test_the_size_is_in_the_way_where_hosts_are_as_quick_and_refusals_go_by_their_kind() -> None:
    by = maker(fabric(FAST))
    step = switch_gains.stepped(job := by("sharp", False), "sharp", answer(job, "pytorch-ddp"))
    assert step.costs is not None
    for factor, verdict in ((2.0, "clear"), (0.5, "in the way")):
        hosts_s = {key: factor * mine.alone_s for key, mine in step.operations.items()}
        told = obstacles(step.costs, step.operations, hosts_s, ())
        assert next(each for each in told if each.obstacle == "size").verdict == verdict
    # A refusal counts by its kind, whatever its words are.
    for refused, verdict in (
        (FanInError("the tree is too wide"), "with care"),
        (UsageError("no contributions"), "clear"),
    ):
        told = obstacles(step.costs, step.operations, {}, [refused, refused])
        fan_in = next(each for each in told if each.obstacle == "fan-in and topology")
        assert fan_in.verdict == verdict
        assert fan_in.answer.count(refused.what) == (verdict == "with care"), "each is told once"


def test_all_six_are_answered_and_cite_a_field(slow: dict[str, Any]) -> None:
    core = [each for each in slow["obstacles"] if each["tier"] == "core"]
    assert len(core) == len({each["obstacle"] for each in core}) == 6
    assert all(each["decided_by"] for each in slow["obstacles"])


@pytest.mark.parametrize("width", [40, 200])
def test_tables_fit_and_say_what_is_saved(slow: dict[str, Any], width: int) -> None:
    file = io.StringIO()
    told = read_json(switch_gains.JobInNetwork, slow)
    report.write(layout.console(file, width=width), told)
    assert max(map(len, file.getvalue().splitlines())) <= width
    assert report.saved(told) in " ".join(file.getvalue().split())
    assert [table.name for table in report.page_tables(told)] == ["systems", "gains", "obstacles"]
    assert report.page_tables(None) == []


def test_the_verb_compares_where_switches_add_or_several_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    def told(*more: str) -> dict[str, Any]:
        assert main(["simulate", "--model", "resnet-50", "--gpus", "4", *more, "--json"]) == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    plain, adding = "switch:4", "switch:4,sharp=true"
    assert "in_network" not in told("--fabric", plain)
    assert "in_network" not in told("--fabric", adding, "--algorithm", "ring")
    named = told("--fabric", plain, "--algorithm", "ring,double-binary-tree")["in_network"]
    assert [row["system"] for row in named["systems"]] == ["ring", "double-binary-tree"]
    usual = told("--fabric", adding)["in_network"]
    assert [row["system"] for row in usual["systems"]][1:] == list(switch_gains.SYSTEMS)
    assert main(["simulate", "--model", "resnet-50", "--gpus", "4", "--algorithm", "ring,ring"]) == EXIT_USAGE
    assert "named twice" in capsys.readouterr().err
