"""A part of the campaign of scripts/fuzz-programs: always the same thousand damaged files."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "fuzz-programs"


@pytest.fixture(scope="module")
def campaign() -> ModuleType:
    loader = SourceFileLoader("fuzz_programs", str(SCRIPT))
    spec = importlib.util.spec_from_loader("fuzz_programs", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


@pytest.mark.parametrize("part", range(4))
def test_damaged_programs(campaign: ModuleType, tmp_path: Path, part: int) -> None:
    failures = {}
    for number in range(part * 250, part * 250 + 250):
        failure = campaign.run_one(2027, number, tmp_path)
        if failure:
            failures[f"scripts/fuzz-programs --seed 2027 --only {number}"] = failure.strip().splitlines()[-1]
    assert not failures
