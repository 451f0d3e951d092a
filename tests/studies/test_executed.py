"""A program on real ranks by one call: what comes of it, that it is checked, and that its Trace can be read."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import ringwright
from ringwright.capture import rank_run
from ringwright.execute import batch, data
from ringwright.execute.plan import Do, NodePlan, plans
from ringwright.formats.exports.perfetto import perfetto
from ringwright.ground.errors import InfeasibleError, ProgramError, RanksFailedError, UsageError
from ringwright.model.program import Block, Op, Program, Step, turn
from ringwright.model.trace import Trace

pytestmark = pytest.mark.once
NO_TORCH = importlib.util.find_spec("torch") is None
torch = [pytest.mark.torch, pytest.mark.skipif(NO_TORCH, reason="PyTorch is absent: no real ranks")]


def ring(p: int = 3, **more: Any) -> Program:
    wanted = ringwright.Collective("all-reduce", more.pop("group", range(p)), 3000 * 4, **more)
    return ringwright.algorithm("ring")(wanted, ringwright.fabric("switch:8"))


@pytest.mark.parametrize("name", ["sockets", "memory", pytest.param("gloo", marks=torch)])
def test_a_program_is_run_checked_and_recorded(name: str) -> None:
    p = 2 if name == "gloo" else 3  # each of its ranks reads PyTorch
    program = ring(p)
    done = ringwright.run(program, executor=name, seed=3)
    assert done
    assert done.correct
    for held in done.results:
        for block, elements in held.items():
            np.testing.assert_array_equal(elements, data.expected(program.collective, block, 3))
    assert sum(len(elements) for elements in done.results[0].values()) == 3000
    whole, messages = (done.trace.df.filter(kind=kind) for kind in ("collective", "proxy"))
    assert whole["rank"].to_list() == [*range(p)]
    assert done.time_s == pytest.approx((whole["start_s"] + whole["duration_s"]).max())
    assert messages["sent_bytes"].sum() == 2 * (p - 1) * 12_000  # 2 (p-1)/p n from each
    assert done.trace.meta["source"] == "executor"
    assert repr(done).startswith(f"Executed(ring, all-reduce of 11.7 KiB over {p} ranks on real ranks, {name}: right, ")
    assert "<td>right</td>" in done._repr_html_()


def test_its_trace_is_read_like_any_other(tmp_path: Path) -> None:
    done = ringwright.run(ring(), tmp_path / "run")
    assert Trace.open(tmp_path / "run").df.equals(done.trace.df)
    [row] = ringwright.summary(done.trace)["operations"]
    assert (row["op"], row["count"], row["bytes"]) == ("all-reduce", 1, 12_000)
    assert perfetto(done.trace, tmp_path / "timeline.json")[0].stat().st_size > 1000
    assert ringwright.simulate(done.trace, "switch:3").step_s > 0


def test_ranks_are_named_as_in_the_job() -> None:
    done = ringwright.run(ring(group=(6, 2, 5)))
    messages = done.trace.df.filter(kind="proxy")
    assert done.trace.df.filter(kind="collective")["rank"].to_list() == [6, 2, 5]
    assert set(messages.select("rank", "comm_rank").iter_rows()) == {(6, 0), (2, 1), (5, 2)}
    assert set(messages["peer"]) == {0, 1, 2}


def test_aggregating_nodes_are_processes_too() -> None:
    top = ringwright.fabric("dgx-h100:1")
    program = ringwright.algorithm("nvls")(ringwright.Collective("all-reduce", range(4), 1 << 12), top)
    assert program.aggregators
    done = ringwright.run(program, executor="memory")
    assert done
    assert len(done.results) == 4
    assert set(program.aggregators) <= set(done.trace.df.filter(kind="proxy")["rank"])


def changed(change: Callable[[NodePlan], dict[str, Any]]) -> Callable[..., Any]:
    """Return ``batch.run_all`` with another plan of rank 1."""

    def cut(program: Program) -> list[NodePlan]:
        found = plans(program)
        found[1] = msgspec.structs.replace(found[1], **change(found[1]))
        return found

    return functools.partial(batch.run_all, cut=cut)


def test_a_wrong_result_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def copies(plan: NodePlan) -> dict[str, Any]:
        first = plan.receives[0]
        runs = [msgspec.structs.replace(first.runs[0], adds=False), *first.runs[1:]]
        return {"receives": [msgspec.structs.replace(first, runs=runs), *plan.receives[1:]]}

    monkeypatch.setattr(rank_run.batch, "run_all", changed(copies))
    done = ringwright.run(ring(), executor="memory")
    assert not done
    assert "elements differ; first: rank" in done.wrong
    assert "wrong, " in repr(done)


def test_ranks_that_hang_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def sends_less(plan: NodePlan) -> dict[str, Any]:
        last = len(plan.sends) - 1
        return {"order": [each for each in plan.order if each not in [(Do.SEND, last), (Do.SENT, last)]]}

    monkeypatch.setattr(rank_run.batch, "run_all", changed(sends_less))
    with pytest.raises(RanksFailedError, match="rank 2 receives from rank 1"):
        ringwright.run(ring(), executor="memory", timeout_s=2.0)


def test_what_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before any process is started."""
    monkeypatch.setattr(rank_run.batch, "run_all", None)
    program = ring()
    with pytest.raises(UsageError, match="no executor 'pigeon'"):
        ringwright.run(program, executor="pigeon")
    with pytest.raises(UsageError, match="summarised is for the recording of a command"):
        ringwright.run(program, summarised=False)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="executor is for a Program"):
        ringwright.run(["true"], executor="sockets")  # type: ignore[call-overload]
    (tmp_path / "taken").mkdir()
    with pytest.raises(UsageError, match="taken exists"):
        ringwright.run(program, tmp_path / "taken")
    wanted = ringwright.Collective("all-reduce", range(300), 4096)
    large = ringwright.algorithm("ring")(wanted, ringwright.fabric("switch:300"))
    with pytest.raises(InfeasibleError, match="needs 300 processes"):
        ringwright.run(large)
    half = [Step((Block(Op.REDUCE, (3,), turn(3), turn(3, 1), turn(3)),))]
    illegal = Program("half", program.collective, program.layout, lambda: iter(half), 1, program.cost)
    with pytest.raises(ProgramError, match="half is not legal"):
        ringwright.run(illegal)
    monkeypatch.setattr("ringwright.execute.executor.Executor.missing", lambda _self: "there is no library")
    with pytest.raises(UsageError, match="the executor gloo cannot run here"):
        ringwright.run(program, executor="gloo")
