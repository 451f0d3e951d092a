"""Exports and model families keep their contracts; one that loses or miscounts something is told what."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import pytest

from ringwright.fabrics import fabric
from ringwright.formats import exports
from ringwright.formats.sources.topology import read_topology
from ringwright.ground.errors import UsageError
from ringwright.model.topology import Topology
from ringwright.workloads import families
from ringwright.workloads.families import resnet
from ringwright.workloads.parts import Anatomy
from ringwright_lab.contracts import family as of_families
from ringwright_lab.contracts.conformance import check_export, check_family, failures

pytestmark = pytest.mark.once
HOUSE = exports.of_house(*exports.TAKES)
READ_BACK = ("msccl-xml", "mscclpp-json", "topology-json", "json", "parquet")


@pytest.mark.parametrize("name", sorted(HOUSE))
def test_every_export_keeps_its_contract(name: str) -> None:
    outcomes = check_export(HOUSE[name])
    assert failures(outcomes) == []
    assert any("same-again" in each.passed for each in outcomes)
    assert ("round-trip" in outcomes[0].passed) == (name in READ_BACK)


def forgetful(topology: Topology) -> bytes:
    from ringwright.formats.exports.topology_json import topology_json

    return topology_json(dataclasses.replace(topology, rate=topology.rate * 2))


def restless(topology: Topology) -> bytes:
    restless.count = getattr(restless, "count", 0) + 1  # type: ignore[attr-defined]
    return json.dumps({"written": restless.count}).encode()  # type: ignore[attr-defined]


def wordy(topology: Topology) -> Any:
    return "text"


def empty(topology: Topology) -> bytes:
    return b""


def test_a_declared_loss_is_no_failure() -> None:
    given = [fabric("ring:4")]
    assert failures(check_export(forgetful, "topology", read=read_topology, loss=("rates",), given=given)) == []
    (told,) = check_export(forgetful, "topology", read=read_topology, loss=("tempo",), given=given)
    assert told.failed["loss"].startswith("'tempo' is not of a topology: ranks, nodes")


@pytest.mark.parametrize(
    ("broken", "check", "why"),
    [
        (forgetful, "round-trip", "rates: written"),
        (restless, "same-again", "differs from one time to the next"),
        (wordy, "written", "it returned no bytes"),
        (empty, "written", "is empty"),
    ],
)
def test_a_broken_export_is_told_what_it_loses(broken: Any, check: str, why: str) -> None:
    (told,) = check_export(broken, "topology", read=read_topology, given=[fabric("ring:4")])
    assert why in told.failed[check]


# ----------------------------------------------------------------------------------------------------------- families
@pytest.mark.parametrize("name", sorted(families.of_house()))
def test_every_family_agrees_with_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_families, "MOST_BUILT", 0)  # the models themselves are built below
    outcomes = check_family(name)
    assert failures(outcomes) == []
    assert all(len(each.passed) == 5 for each in outcomes)


@pytest.mark.parametrize("name", ["vgg", "resnet"])
def test_the_model_itself_has_the_parameters_of_the_file(name: str) -> None:
    pytest.importorskip("torch")
    outcomes = check_family(name)
    assert failures(outcomes) == []
    assert all("meta" in each.passed for each in outcomes)


def as_family(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> dict[str, str]:
    sizes = {"tiny": resnet.SIZES["tiny"]}
    made = SimpleNamespace(**{"SIZES": sizes, "anatomy": resnet.anatomy, "sides": resnet.sides, **changed})
    monkeypatch.setitem(families.of_house(), "made", made)
    return check_family("made", meta=changed.get("meta"))[0].failed


def test_a_family_of_somebody_elses_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert as_family(monkeypatch) == {}


def test_a_broken_family_is_told_what_does_not_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = resnet.anatomy(resnet.SIZES["tiny"])
    twice = as_family(monkeypatch, anatomy=lambda dims: Anatomy((*plain.blocks, plain.blocks[0])))
    assert "two blocks are called" in twice["anatomy"]
    block = dataclasses.replace(plain.blocks[1], used=("nobody",))
    assert "nobody is used and is no layer" in as_family(monkeypatch, anatomy=lambda dims: Anatomy((block,)))["anatomy"]
    assert "not an Anatomy" in as_family(monkeypatch, anatomy=lambda dims: None)["anatomy"]
    none = as_family(monkeypatch, SIZES={"tiny": {**resnet.SIZES["tiny"], "classes": 0}})
    assert none["dimensions"] == "classes=0"
    other = as_family(
        monkeypatch,
        meta=lambda dims: SimpleNamespace(parameters=lambda: [SimpleNamespace(shape=(3, 3), requires_grad=True)]),
    )
    assert "of shape" in other["meta"]


def test_a_family_of_no_name_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no family of models is named 'gtp2'"):
        check_family("gtp2")
