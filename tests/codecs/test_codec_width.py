"""The contract of number formats: each file of the folder is one, and engines notice how wide its numbers are on the wire."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import ringwright.model.codecs
from ringwright.algorithms.innetwork.ethernet.switchml import switchml
from ringwright.calls.simulate import SimulationSpec, sweep
from ringwright.engines.choose import simulate
from ringwright.engines.wire_width import narrowest, wire_shares
from ringwright.fabrics import fabric
from ringwright.model.codecs import block_exponent, formats
from ringwright.model.codecs.contributions import NodeSum
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.topology import Topology

TOFINO = "leaf-spine:12,per_leaf=4,switches=tofino"
SIZE = 1 << 20


def asked(spelled: str = TOFINO) -> tuple[Program, Topology]:
    top = fabric(spelled)
    return switchml(Collective("all-reduce", range(top.n_ranks), SIZE), top), top


@pytest.mark.parametrize("name", sorted(formats.HOUSE))
def test_a_file_of_the_folder_is_a_format(name: str) -> None:
    """It adds arrays of (workers, elements), and says its bytes to the node and back."""
    given = np.ones((4, 64), np.float32)
    made = formats.added(name, given)
    assert isinstance(made, NodeSum)
    assert made.values == pytest.approx(np.full(64, 4.0), rel=0.2)
    to, back = formats.wire_bytes(name)
    alone = formats.number_bytes(name)
    assert 0 < alone[0] <= to
    assert 0 < alone[1] <= back
    assert name in formats.codecs()
    takes = inspect.signature(formats.FORMATS[name]).parameters
    assert all(each.kind is each.KEYWORD_ONLY for each in list(takes.values())[1:])


def test_the_folder_is_the_registry() -> None:
    """A file with a function of its own name is found without being named anywhere."""
    for path in Path(next(iter(ringwright.model.codecs.__path__))).glob("*.py"):
        module = import_module(f"ringwright.model.codecs.{path.stem}")
        assert hasattr(module, "wire_bytes") == (path.stem.replace("_", "-") in formats.HOUSE or path.stem == "formats")


@pytest.mark.parametrize("engine", ["events", "packets"])
def test_numbers_that_are_wider_take_longer(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    program, top = asked()
    times = {}
    for width in (4.0, 2.0, 8.0, 400.0):
        monkeypatch.setattr(block_exponent, "wire_bytes", lambda width=width: (width, width))
        times[width] = simulate(program, top, engine).time_ps
    assert times[2.0] < times[4.0] < times[8.0] < times[400.0]
    assert times[400.0] > 50 * times[4.0]


def test_each_way_has_its_own_width(monkeypatch: pytest.MonkeyPatch) -> None:
    program, top = asked()
    monkeypatch.setattr(block_exponent, "wire_bytes", lambda: (2.0, 4.0))
    shares = wire_shares(program)
    assert set(shares.values()) == {(0.5, 1.0)}
    assert narrowest(program) == 0.5
    one_way = simulate(program, top, "events").time_ps
    monkeypatch.setattr(block_exponent, "wire_bytes", lambda: (2.0, 2.0))
    assert simulate(program, top, "events").time_ps < one_way


def test_simulate_notices_and_is_not_below_the_bound_of_such_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    question = SimulationSpec("all-reduce", fabric(TOFINO))
    usual = sweep(question, ["switchml"], [64 << 20])["rows"][0]
    monkeypatch.setattr(block_exponent, "wire_bytes", lambda: (2.0, 2.0))
    half = sweep(question, ["switchml"], [64 << 20])["rows"][0]
    assert half["time_us"] == pytest.approx(usual["time_us"] / 2, rel=0.05)
    assert half["bound_us"] == pytest.approx(usual["bound_us"] / 2)


def test_formats_as_they_ship_are_as_wide_as_their_numbers() -> None:
    program, _ = asked()
    assert wire_shares(program) == {}
