"""Networks beside a fabric: ``--network``, what operations take on each, and what is no network."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ringwright.cli import main
from ringwright.costs.networks import LINKS_APART, NetworkCosts
from ringwright.fabrics import fabric
from ringwright.graph.algebra.typed_rules import apply_spelled
from ringwright.ground.errors import UsageError
from ringwright.jobs import study, workload_files
from ringwright.jobs.pricing.networks import NetworkedFabrics, named, on_networks
from ringwright.model.stages import LinkCosts, PlacedCosts, Stage, seconds
from ringwright.model.workload import Mesh
from ringwright.workloads.chain import ChainLayer, chain

FAST, SLOW, RANKS = "switch:4,rate=40Gb/s", "switch:4,rate=10Gb/s", (0, 1, 2, 3)
SIZE = 1 << 24


def costs(*networks: str) -> NetworkedFabrics:
    made = on_networks(
        {each: fabric(SLOW) for each in networks}, fabric(FAST), Mesh((("dp", 4),)), frozenset(), {"": "ring"}
    )
    assert isinstance(made, NetworkedFabrics)
    return made


def test_an_operation_takes_what_its_network_takes_and_loads_its_links_alone() -> None:
    both = costs("slow")
    assert both.networks == ("fabric", "slow")
    usual, fabrics, slow = (seconds(both, f"all-reduce{on}", SIZE, RANKS) for on in ("", " on fabric", " on slow"))
    assert usual == fabrics
    assert slow == pytest.approx(4 * usual, rel=0.02)
    links = [
        {link for link, _ in both.stages(f"all-reduce{on}", SIZE, RANKS, "dp")[0].links} for on in ("", " on slow")
    ]
    assert links[0]
    assert {link + LINKS_APART for link in links[0]} == links[1]
    assert both.sent_bytes("all-reduce on slow", SIZE, RANKS) == both.sent_bytes("all-reduce", SIZE, RANKS)
    assert len(both.programs("all-reduce on slow", SIZE, RANKS)) == 1
    assert seconds(both.sound, "all-reduce on slow", SIZE, RANKS) == slow
    with pytest.raises(UsageError, match="there is no network 'third'"):
        both.stages("all-reduce on third", SIZE, RANKS, "dp")


def test_ranks_lie_alike_only_where_they_do_on_each_network() -> None:
    mesh = Mesh((("dp", 2), ("tp", 4)))
    uneven = fabric("dgx-1:1")  # a cube whose links are not all as wide
    alone, beside = (on_networks(more, fabric("switch:8"), mesh, frozenset(), {}) for more in ({}, {"cube": uneven}))
    assert isinstance(beside, PlacedCosts)
    assert alone.places is None or len(np.unique(alone.places)) == 1
    of_cube = on_networks({}, uneven, mesh, frozenset(), {}).places
    assert of_cube is not None
    assert beside.places is not None
    assert len(np.unique(beside.places)) == len(np.unique(of_cube)) > 1


def test_where_a_sum_goes_changes_the_step_for_every_policy() -> None:
    step = chain("layers", [ChainLayer(1e-3, 2e-3, SIZE, SIZE // 4)] * 3, 4)
    networks = {"slow": fabric(SLOW)}
    taken = {}
    for rules in ((), ("on-network:at=layer0,network=slow",), ("on-network:role=dp,network=slow",)):
        workload = step
        for rule in rules:
            workload = apply_spelled(workload, rule)
        job = workload_files.job(workload, fabric(FAST), "ring", networks)
        taken[rules] = [study.answer(job, each).step_s for each in ("none", "pytorch-ddp:bucket_cap_mb=0", "tictac")]
    whole, one, every = taken.values()
    assert all(4 * a > b > 2.5 * a for a, b in zip(whole, every, strict=True))
    assert all(a < b < c for a, b, c in zip(whole, one, every, strict=True))
    assert "network slow: switch:4,rate=10Gb/s, beside the fabric; neither slows the other" in job.assumptions


def test_the_command_places_operations_on_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step = tmp_path / "step.json"
    workload_files.save(chain("layers", [ChainLayer(1e-3, 2e-3, SIZE, SIZE // 4)] * 3, 4), step)
    asked = ["simulate", str(step), "--fabric", SLOW, "--policy", "none,syndicate:budget=40"]
    assert main([*asked, "--network", f"second={SLOW}", "--json"]) == 0
    plain, both = (each["step_us"] for each in json.loads(capsys.readouterr().out)["rows"])
    assert both < 0.7 * plain
    assert main([*asked, "--json"]) == 0
    assert [each["step_us"] for each in json.loads(capsys.readouterr().out)["rows"]] == pytest.approx([plain] * 2)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["ethernet"], "'ethernet' names no network and its fabric"),
        (["=switch:4"], "names no network"),
        (["a b=switch:4"], "names no network"),
        (["fabric=switch:4"], "'fabric' is what --fabric is called"),
        (["a=switch:4", "a=switch:4"], "network 'a' is given twice"),
    ],
)
def test_what_is_no_network_is_refused(given: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        named(given)


@pytest.mark.parametrize(
    "asked", [["all-reduce", "--fabric", "switch:4"], ["--sample"], ["--model", "vgg16", "--gpus", "8"]]
)
def test_what_has_one_network_and_networks_that_are_too_small_are_refused(
    asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *asked, "--network", "a=switch:4"]) == 2
    said = capsys.readouterr().err
    assert "goes over one network" in said or "its own network did" in said or "do not fit on switch:4" in said


@pytest.mark.parametrize("slug", ["tictac", "pace", "p3", "lina", "centauri", "ooo-backprop", "dear", "syndicate"])
def test_policies_ask_for_costs_on_the_network_that_a_payload_names(slug: str) -> None:
    step = chain("layers", [ChainLayer(1e-3, 2e-3, SIZE, SIZE // 4)] * 3, 4)
    job = workload_files.job(apply_spelled(step, "on-network:role=dp,network=slow"), fabric(FAST), "ring", {})
    costs = Named(NetworkCosts({"usual": LinkCosts(5e9, ring=True), "slow": LinkCosts(1e9, ring=True)}))
    study.answer(replace(job, costs=costs), slug)
    assert costs.asked
    assert {each for each in costs.asked if not each.endswith(" on slow")} <= costs.chosen


class Named:
    """Costs of two networks that keep what they were asked for; ``chosen`` are operations that a policy may place itself."""

    def __init__(self, costs: NetworkCosts) -> None:
        self._costs, self.networks = costs, costs.networks
        self.asked: set[str] = set()
        self.chosen: set[str] = set()

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        self.asked.add(op)
        if op.endswith(" on usual"):
            self.chosen.add(op)
        return self._costs.stages(op, size_bytes, ranks, role)
