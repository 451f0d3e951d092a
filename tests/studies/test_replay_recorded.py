"""Real model code under ``ringwright run``, real ranks and fake ones, replayed: the calls of the closed forms, and the time."""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from patience import HANG_S
from recorded_points import closed, counts_of
from ringwright.formats.sources import read
from ringwright.model.trace import Trace
from ringwright.workloads.replay import Replay, baseline, replayed
from ringwright_lab.sweep.grid import legal
from ringwright_lab.sweep.point import GridPoint
from ringwright_lab.sweep.run import sweep

HAS_MODELS = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
pytestmark = [
    pytest.mark.skipif(not HAS_MODELS, reason="models need PyTorch and transformers"),
    pytest.mark.torch,
    pytest.mark.slow,
]
REAL = [
    GridPoint("llama", parallel="ddp:dp=2", steps=6),
    GridPoint("llama", parallel="tp:tp=2", steps=6),
    GridPoint("llama", parallel="fsdp:dp=2", steps=6),
    GridPoint("llama", parallel="pp:pp=2", micro_batches=2, steps=6),
]
FAKE = [
    GridPoint("llama", parallel="tp+fsdp:tp=2,dp=8", world=16, steps=3),
    GridPoint("mixtral", parallel="ddp:dp=64", world=64, steps=3),
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[GridPoint], Path]:
    """Record a grid point once, when a test asks for it; return its folder."""

    @cache
    def record(point: GridPoint) -> Path:
        out = tmp_path_factory.mktemp("recorded")
        assert sweep(legal([point]), out, timeout_s=HANG_S).counts["failed"] == 0
        return out / "cells" / point.key

    return record


def recording(recorded: Callable[[GridPoint], Path], point: GridPoint) -> Trace:
    """Return what was recorded of a grid point, without what its ranks printed."""
    return read(sorted(recorded(point).glob("calls.*.jsonl")))


@pytest.mark.sampled(1, "*")
@pytest.mark.parametrize("point", FAKE, ids=[point.key for point in FAKE])
def test_one_fake_rank_is_a_workload_in_counts_and_bytes(
    recorded: Callable[[GridPoint], Path], point: GridPoint
) -> None:
    found = replayed(recording(recorded, point), step=2)
    assert found.ground == "communication-only"
    assert found.workload.mesh.size == point.world
    assert counts_of(found.workload) == closed(point)
    assert any("ranks were not recorded" in each for each in found.workload.assumptions)


def of_real(recorded: Callable[[GridPoint], Path], at: int) -> Replay:
    return replayed(recording(recorded, REAL[at]), step=4)


# Each time: of DDP ``test_what_real_ranks_recorded_replays_as_the_formulas_say``, in test_sweep.
@pytest.mark.sampled(0, "*")
@pytest.mark.parametrize("at", range(3))
def test_a_recorded_job_issues_what_the_closed_forms_say(recorded: Callable[[GridPoint], Path], at: int) -> None:
    found = of_real(recorded, at)
    assert found.ground == "times"
    assert counts_of(found.workload) == closed(REAL[at])


def test_messages_between_stages_are_joined(recorded: Callable[[GridPoint], Path]) -> None:
    made = of_real(recorded, 3).workload
    wanted = sum(count for (role, op, _), count in closed(REAL[3]).items() if role == "pp" and op in ("send", "recv"))
    assert len([each for each in made.payloads if each.op == "send-recv"]) == wanted
    assert {(each.of, each.peer) for each in made.payloads if each.op == "send-recv"} == {
        ("pp0", "pp1"),
        ("pp1", "pp0"),
    }


# The others in campaigns: each time that of stages, which the test above has recorded.
OTHERS = [pytest.param(at, marks=pytest.mark.sampled(0, "*")) for at in range(3)]


@pytest.mark.parametrize("at", [*OTHERS, 3])
def test_a_replay_takes_as_long_as_its_busiest_rank_and_not_longer_than_one_thing_after_another(
    recorded: Callable[[GridPoint], Path], at: int
) -> None:
    """Whatever else this machine does while it records. How near a replay comes to its step: ``test_replay``, on recordings."""
    found = of_real(recorded, at)
    assert found.costs is not None
    busy: dict[str, float] = defaultdict(float)
    for task in found.workload.tasks:
        busy[task.of] += task.seconds
    calls = sum(
        stage.latency_s + stage.wire_s
        for each in found.workload.payloads
        for stage in found.costs.stages(each.op, each.size_bytes, (), each.role)
    )
    again = baseline(recording(recorded, REAL[at]), step=4)[1]
    assert max(busy.values()) - 1e-9 <= again <= sum(busy.values()) + calls + 1e-9
