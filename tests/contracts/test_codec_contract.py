"""Every number format keeps its contract, one that is coarser than all of ours too; what is wrong with one is told by name."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from outsiders import install
from ringwright.calls.simulate import SimulationSpec, sweep
from ringwright.fabrics import fabric
from ringwright.ground.errors import UsageError
from ringwright.model.codecs import block_exponent, formats
from ringwright.model.codecs.formats import added_by, codecs
from ringwright.model.registry import find
from ringwright_lab.contracts import codec as contract
from ringwright_lab.testing import check_codec, failures

pytestmark = pytest.mark.once
# Three values a number: off by half of a sum, more than any format of ours.
COARSE = '''"""Three levels: a number is -1, 0 or 1 times a step that all workers agree on.

Holds: a contribution is off by three quarters of itself.
Source: none, a test.
"""

import numpy as np

from ringwright.model.codecs.contributions import NodeSum, Packet, encodable, in_packets, out_of_packets, unfinite

OPS = ("sum",)
CARRIES = ("float16", "float32")
ADDED_AS = "uint32"
SWITCHES = ("tofino",)
TOLERANCE = 0.75
WHOLE_NUMBERS = True


def three_levels(given, *, packet: Packet = 256):
    """Return the sum.

    Knobs: ``packet`` numbers that share a step.
    """
    given = encodable("three-levels", given, packet)
    cut = in_packets(given, packet)
    step = np.abs(cut).max(axis=(0, 2))[:, None] / 2
    known = np.isfinite(step)
    with np.errstate(invalid="ignore", divide="ignore"):
        level = np.where(known & (step > 0), np.clip(np.rint(cut / step), -1, 1), 0)
    sent = np.where(known, level * np.where(known, step, 0), np.nan)
    total = out_of_packets(sent.sum(axis=0), given[0])
    return NodeSum(total, out_of_packets(sent, given), not_finite=unfinite(given))


def wire_bytes(packet=256):
    """Return bytes of a number: two bits there, a byte back."""
    return 0.25 + 4 / packet, 1.0
'''


def loaded(text: str) -> Any:
    """Return the function of a file."""
    module = sys.modules["three_levels"] = ModuleType("three_levels")
    exec(compile(text, "three_levels.py", "exec"), module.__dict__)
    return module.three_levels


@pytest.mark.parametrize("name", sorted(codecs()))
def test_every_format_keeps_its_contract(name: str) -> None:
    assert failures(check_codec(name)) == []


def test_a_format_coarser_than_all_of_ours_keeps_it_as_it_says_so() -> None:
    (outcome,) = check_codec(loaded(COARSE))
    assert outcome.failed == {}
    assert set(outcome.passed) == set(contract.CHECKS)
    assert "three-levels" not in codecs()


def test_a_format_of_others_is_one_file_that_reaches_fabrics_systems_and_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, {"codecs": {"three-levels": "outside_levels:three_levels"}}, outside_levels=COARSE)
    assert failures(check_codec("three-levels")) == []
    assert codecs()["three-levels"].origin == "outside"
    assert added_by("tofino") == ("native", "block-exponent", "three-levels")
    top = fabric("switch:4,switches=tofino")
    assert "three-levels" in next(iter(top.aggregators.values())).codecs
    assert "three-levels" in find("switchml").knobs()["codec"].expects
    question = SimulationSpec("all-reduce", top)
    rows = sweep(question, ["switchml:codec=three-levels", "switchml:codec=block-exponent"], [64 << 20])["rows"]
    narrow, usual = (row["time_us"] for row in rows)
    assert narrow == pytest.approx(usual / 4, rel=0.1)  # a byte back is the wider way


def test_a_format_that_says_no_width_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without = COARSE.replace("def wire_bytes", "def other_bytes")
    install(tmp_path, monkeypatch, {"codecs": {"no-width": "outside_width:three_levels"}}, outside_width=without)
    assert "no-width" not in codecs()
    (error,) = formats.problems()
    assert "nothing is called wire_bytes beside it" in error.what
    with pytest.raises(UsageError, match="'no-width' is no number format"):
        formats.codec_of("no-width")


BROKEN = [
    ("declared", "TOLERANCE = 0.75\n", "", "TOLERANCE is None"),
    ("declared", "TOLERANCE = 0.75", "TOLERANCE = 1.5", "TOLERANCE is 1.5"),
    ("declared", 'OPS = ("sum",)', 'OPS = ("plus",)', "OPS names {'plus'}"),
    ("declared", 'SWITCHES = ("tofino",)', 'SWITCHES = ("tomatino",)', "SWITCHES names 'tomatino'"),
    ("able", 'ADDED_AS = "uint32"', 'ADDED_AS = "float64"', "'tofino', which adds no float64"),
    ("documented", "Source: none, a test.", "", "its docstring has no heading Source"),
    ("knobs", "*, packet: Packet", "packet: Packet", "'packet' is no knob"),
    ("near", "TOLERANCE = 0.75", "TOLERANCE = 0.1", "TOLERANCE says 0.1"),
    ("near", "sent.sum(axis=0)", "sent.sum(axis=0) * 3", "off by"),
    ("near", "sent.sum(axis=0), given[0]", "sent.sum(axis=0), given[0].astype('float64')", "float64 of shape"),
    ("kept", "NodeSum(total, out_of_packets(sent, given)", "NodeSum(total, 3 * given", "what was sent adds up"),
    ("same-again", "sent.sum(axis=0)", "(sent * np.random.default_rng().random()).sum(axis=0)", "each time"),
    ("same-again", "cut = in_packets", "given *= 2; cut = in_packets", "it changes the contributions"),
    ("edges", "np.where(known, step, 0), np.nan)", "np.where(known, step, 0), 0)", "come out as"),
    ("edges", "not_finite=unfinite(given)", "not_finite=0", "not_finite is 0"),
    ("refuses", 'encodable("three-levels", given, packet)', "np.atleast_2d(given)", "numbers without workers"),
    ("width", "return 0.25 +", "return 0.125 +", "whose 0.125 B tell 2 apart"),
    ("width", "return 0.25 +", "return -0.25 +", "a number takes"),
]


@pytest.mark.parametrize(("check", "old", "new", "why"), BROKEN)
def test_what_is_wrong_with_a_format_is_told_by_name(check: str, old: str, new: str, why: str) -> None:
    assert old in COARSE
    (outcome,) = check_codec(loaded(COARSE.replace(old, new)))
    assert why in outcome.failed[check]


@pytest.mark.parametrize("engine", contract.ENGINES)
def test_an_engine_that_ignores_the_width_is_told_by_name(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of 2 B: where only others take notice of them, the contract names the one that does not."""
    from ringwright.engines import closed_form, switch_slots

    monkeypatch.setattr(block_exponent, "wire_bytes", lambda: (2.0, 2.0))
    monkeypatch.setattr(contract, "ENGINES", (engine,))
    assert "engines" not in check_codec("block-exponent")[0].failed
    monkeypatch.setattr(switch_slots, "wire_shares", lambda _: {})
    monkeypatch.setattr(closed_form, "wire_shares", lambda _: {})
    assert engine in check_codec("block-exponent")[0].failed["engines"]


def test_what_is_no_format_is_told() -> None:
    assert failures(check_codec("float9")) == ["float9: known: 'float9' is no number format that is known"]
