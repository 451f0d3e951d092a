"""How far a question travels through the files: the numbers may only fall."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).resolve().parents[2]
MOST_RETURNS = 8
# Twelve is what a person follows. One journey is longer: a job is generated, priced, timed, weighed in memory and explained.
MOST_FILES = {"summary": 12, "simulate a collective": 12, "simulate a job": 18, "advise": 12, "synthesise": 12}


@pytest.fixture(scope="module")
def journeys() -> Any:
    loader = SourceFileLoader("journeys_script", str(ROOT / "scripts" / "journeys.py"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", MOST_FILES)
def test_a_journey_is_short(journeys: Any, name: str) -> None:
    length = journeys.lengths(journeys.main_line(journeys.walked(journeys.JOURNEYS[name])))
    assert length["files"] <= MOST_FILES[name], length
    assert length["returns"] <= MOST_RETURNS, length
    assert length["depth"] > 5, "nothing was walked"


def test_files_and_returns_are_counted_along_the_line(journeys: Any) -> None:
    """a calls b, b calls c and then d of its own file: b is come back to; then a calls c again, after a return to a."""
    line = [(0, "a"), (1, "b"), (2, "c"), (2, "b"), (1, "c")]
    calls = [(depth, journeys.Call(file, "f")) for depth, file in line]
    assert journeys.lengths(calls) == {"files": 3, "returns": 3, "depth": 2}
