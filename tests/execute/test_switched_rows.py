"""The benchmark of switches that add prints measured, simulated and a verdict for each row; here with measurements made up."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from ringwright.ground.errors import InfeasibleError

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "bench_switch.py"


@pytest.fixture(scope="module")
def script() -> Any:
    """The benchmark as a module."""
    spec = importlib.util.spec_from_file_location("bench_switch", SCRIPT)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = sys.modules["bench_switch"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["bench_switch"]


def answer(question: Any, limit: str = "wire", gloo_s: float = 0.65, **ours: Any) -> dict[str, Any]:
    """Return what a bench tells of one size."""
    row = {"backend": "ringwright", "min_us": 0.43e6, "time_us": 0.435e6, "predicted_us": 0.429e6, "wrong": 0}
    return {
        "rows": [
            {**row, "backend": "gloo", "algorithm": "ring", "time_us": gloo_s * 1e6},
            {**row, "algorithm": "ring"},
            {**row, "algorithm": question.algorithms[1], **ours},
        ],
        "verdict": {"limit": limit},
    }


@pytest.mark.parametrize(
    ("told", "code", "words"),
    [
        ({}, 0, "kept"),
        ({"wrong": 3}, 1, "missed: 3 elements are wrong"),
        ({"min_us": 0.47e6}, 1, "missed: best above 0.46 s"),
        ({"predicted_us": 0.4e6}, 1, "missed: simulated is off by +8.7%"),
        ({"predicted_us": None}, 1, "missed: simulated is off by +nan%"),
        ({"gloo_s": 0.55}, 1, "missed: ratio 1.26, not 1.50"),
        ({"limit": "cpu"}, 1, "missed: cpu was the limit, so nothing is said of time"),
    ],
)
def test_every_row_has_its_verdict(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], told: Any, code: int, words: str
) -> None:
    monkeypatch.setattr(script, "bench", lambda question: answer(question, **told))
    assert script.main(["--only", "one level, xdp"]) == code
    head, row, last = capsys.readouterr().out.splitlines()
    assert head.split()[-1] == "verdict"
    assert row.startswith("one level, xdp")
    assert row.endswith(f"  {words}")
    assert last == ("1 kept, 0 missed, 0 no verdict" if not code else "0 kept, 1 missed, 0 no verdict")


def test_what_is_refused_or_too_short_is_neither(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(question: Any) -> dict[str, Any]:
        raise InfeasibleError("no XDP: clang is missing")

    monkeypatch.setattr(script, "bench", lambda question: answer(question, "cpu"))
    assert script.main(["--only", "16 slots"]) == 0  # not held to a ring
    assert script.main(["--only", "two levels", "--quick"]) == 0
    assert "too short" in capsys.readouterr().out
    monkeypatch.setattr(script, "bench", refused)
    assert script.main(["--only", "int8, xdp"]) == 1
    assert "missed: no XDP: clang is missing" in capsys.readouterr().out


def test_what_is_simulated_needs_no_measurement(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["--only", "int8, xdp", "--predict"]) == 0
    assert capsys.readouterr().out.split() == ["int8,", "xdp", "0.112", "s"]
