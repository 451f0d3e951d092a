"""How arrivals are typed, and where they are told: tables, JSON, bounds, the public face."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringwright
from ringwright.calls.arrivals import arriving, of_recording
from ringwright.calls.bounds import bounds
from ringwright.calls.simulate import sweep
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.cli import main
from ringwright.ground.errors import UsageError
from ringwright.ground.trace_tables import rows
from ringwright.model.trace import Trace

SWITCH = "switch:4,rate=50GB/s"


def test_lists_and_late_ranks() -> None:
    assert arriving("0,20us,0,1ms", 4).seconds.tolist() == [0, 20e-6, 0, 1e-3]
    assert arriving("late:3=2ms,1=5us", 4).seconds.tolist() == [0, 5e-6, 0, 2e-3]
    assert arriving([0.0, 1.0], 2).last_s == 1.0


@pytest.mark.parametrize(("kind", "mean"), [("normal", None), ("exponential", 20e-6), ("uniform", 10e-6)])
def test_distributions_are_drawn_by_seed_and_counted_from_the_first(kind: str, mean: float | None) -> None:
    drawn = arriving(f"{kind}:20us,seed=3", 4000).seconds
    assert drawn.tolist() == arriving(f"{kind}:20us,seed=3", 4000).seconds.tolist()
    assert drawn.tolist() != arriving(f"{kind}:20us", 4000).seconds.tolist()
    assert drawn.min() == 0
    assert mean is None or drawn.mean() == pytest.approx(mean, rel=0.1)
    assert kind != "normal" or drawn.std() == pytest.approx(20e-6, rel=0.1)


@pytest.mark.parametrize(
    "wrong", ["0,1us", "late:4=1us", "late:x=1us", "late:1", "normal:20us,sead=1", "fnord:1us", "normal:", "soon"]
)
def test_what_says_no_time_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError):
        arriving(wrong, 4)


def measured(*operations: tuple[float, ...]) -> Trace:
    """Return all-reduces whose ranks took so many microseconds."""
    events: list[dict[str, Any]] = [
        {
            "kind": "collective",
            "op": "all-reduce",
            "communicator": 0,
            "sequence": number,
            "rank": rank,
            "nranks": len(durations),
            "duration_s": us * 1e-6,
        }
        for number, durations in enumerate(operations)
        for rank, us in enumerate(durations)
    ]
    return Trace.of({"events": rows("events", events)})


def test_a_recording_gives_its_median_operation(tmp_path: Path) -> None:
    """Who took the longest came first; of three operations the second is neither the widest nor the narrowest."""
    trace = measured((100, 100, 100, 10), (80, 60, 30, 50), (20, 20, 20, 19))
    told = of_recording(trace, 4)
    assert told.seconds == pytest.approx(np.array([0, 20, 50, 30]) * 1e-6)
    assert "all-reduce 1" in told.said
    trace.save(tmp_path / "job")
    assert arriving(tmp_path / "job", 4).seconds.tolist() == told.seconds.tolist()
    assert arriving(str(tmp_path / "job"), 4).seconds.tolist() == told.seconds.tolist()
    with pytest.raises(UsageError, match="of 8 ranks"):
        of_recording(trace, 8)


def test_a_sweep_tells_what_is_left_after_the_last_rank() -> None:
    topology = ringwright.fabric(SWITCH)
    together = sweep(SimulationSpec("all-reduce", topology), ["ring"], [1 << 20])
    late = sweep(SimulationSpec("all-reduce", topology, arrivals="late:3=2ms"), ["ring"], [1 << 20])
    assert (together["arrivals"], together["last_arrival_us"], together["rows"][0]["after_last_us"]) == (None,) * 3
    row = late["rows"][0]
    assert late["last_arrival_us"] == pytest.approx(2000)
    assert row["time_us"] == pytest.approx(2000 + row["after_last_us"])
    assert 2000 < row["lowest_bound_us"] <= row["time_us"]


def test_the_command_line_and_the_face_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["all-reduce", "--fabric", SWITCH, "--arrivals", "late:3=2ms"]
    assert main(["simulate", *asked, "-b", "1M", "-e", "1M", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["rows"][0]
    run = ringwright.simulate("all-reduce", SWITCH, size="1M", arrivals="late:3=2ms")
    assert row["time_us"] == run.time_s * 1e6
    assert row["after_last_us"] == run.after_last_s * 1e6
    assert main(["simulate", *asked, "-b", "1M", "-e", "1M", "--algorithm", "ring,rabenseifner"]) == 0
    assert "after the last rank came" in capsys.readouterr().out
    assert main(["bound", *asked, "-b", "1M", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    floor = ringwright.bound("all-reduce", SWITCH, size="1M", arrivals="late:3=2ms")
    assert told["lowest"]["time_us"] == floor.time_s * 1e6 <= row["time_us"]
    assert told["lowest"]["after_last_us"] == pytest.approx(floor.time_s * 1e6 - 2000)
    assert main(["bound", *asked, "-b", "1M"]) == 0
    assert "are left then" in " ".join(capsys.readouterr().out.split())


def test_bounds_without_arrivals_are_as_before() -> None:
    topology = ringwright.fabric("dgx-h100:1")
    before, zero = (bounds("all-reduce", topology, 1 << 26, arrivals=each) for each in (None, [0.0] * 8))
    assert zero["lowest"]["time_us"] == before["lowest"]["time_us"]
    assert zero["time_us"] == before["time_us"]
