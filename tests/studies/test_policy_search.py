"""``--policy auto``: what is tried, what is left, the limit of memory; and what removes which cause."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ringwright.cli import main
from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright.jobs import auto, rows
from ringwright.jobs.explained.remedies import remedies
from ringwright.jobs.study import Job, answer
from ringwright.model.registry import schedulers
from ringwright.model.stages import LinkCosts
from ringwright.workloads.chain import ChainLayer, chain

MIB = 1 << 20


def job(layers: int = 6) -> Job:
    """A chain whose gradients take about as long as its work."""
    made = chain("toy", [ChainLayer(0.01, 0.02, 8 * MIB, 2 * MIB) for _ in range(layers)], ranks=4)
    return Job(made, LinkCosts(8 * MIB / 0.03))


def test_every_scheduler_is_tried_and_the_best_answer_is_the_first_of_the_frontier() -> None:
    search = auto.searched(job(), 400)
    names = {each.policy for each in search.tried}
    assert {each.slug for each in schedulers() if each.problem is None and not each.hardware} <= names
    assert [policy for policy, _ in search.left_out] == ["t3"]  # no machine has its trackers: it is no answer
    assert "t3" not in names
    times = {each.policy: each.step_s for each in search.tried if each.step_s is not None}
    best = search.frontier[0]
    assert times[best] == min(times.values()) < times["none"]
    assert answer(job(), best).step_s == times[best]
    assert any("+" in name for name in names)
    assert not search.stopped


def test_the_same_job_gets_the_same_answer_and_fewer_tries_stop_it() -> None:
    one, again = (auto.searched(job(), 20) for _ in range(2))
    assert one == again
    assert one.stopped
    assert len(one.tried) == 20


def test_nothing_over_the_limit_of_memory_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"p3": 80, "none": 50, "pytorch-ddp": 20}

    def fitting(workload: object, limit: int | None) -> None:
        name = getattr(workload, "policy").label  # noqa: B009
        if limit is not None and held.get(name, 90) > limit:
            raise InfeasibleError("too much", remedy="less")

    monkeypatch.setattr(auto, "fitting", fitting)
    monkeypatch.setattr(auto, "peak_bytes", lambda workload: held.get(workload.policy.label, 90))
    search = auto.searched(job(), 12, 60)
    assert set(search.frontier) <= {"none", "pytorch-ddp"}
    assert "pytorch-ddp" in search.frontier
    assert next(each for each in search.tried if each.policy == "p3").declined == "too much"


def test_auto_is_a_word_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = "simulate --model resnet18 --gpus 8 --fabric switch:8,rate=10Gb/s --policy".split()
    assert main([*words, "auto:tries=5", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rows"][0]["policy"] == "none"
    assert told["search"]["frontier"] == [row["policy"] for row in told["rows"] if row["policy"] != "none"][:8]
    assert len(told["search"]["tried"]) == 5
    assert main([*words, "auto:tries=5"]) == 0
    text = capsys.readouterr().out
    assert "5 policies tried" in text
    assert "What removes it" in text
    for wrong in ("auto:tries=0", "auto:tries=many", "auto:hours=2", "auto,auto:tries=3"):
        with pytest.raises(UsageError):
            auto.expanded(job(), wrong.split(","), None)


def row(policy: str, step: float, **causes: float) -> dict[str, object]:
    why = [{"cause": name, "exposed_us": value} for name, value in causes.items()]
    return {
        "policy": policy,
        "declined": None,
        "step_us": step,
        "step_us_p05": step * 0.8,
        "step_us_p95": step * 2,
        "peak_memory_bytes": int(step),
        "why": why,
        "applied": [{"rule": "cut"}, {"rule": "cut"}] if policy == "cutting" else [],
        "equal": "rewritten by rules",
        "decided": ["cutting: in practice: --cut", "cutting: chose 2"] if policy == "cutting" else [],
    }


def test_a_remedy_says_what_it_removes_and_costs_and_how_it_is_switched_on() -> None:
    told = remedies(
        [
            row("none", 1000, dependency=300, order=100, latency=4),
            row("cutting", 800, dependency=100, order=95),
            row("slower", 1100, dependency=0),
            {"policy": "declines", "declined": "no"},
        ]
    )
    (one,) = told  # of the order hardly anything goes, latency is less than half a percent of the step
    assert (one["cause"], one["policy"], one["exposed_us"], one["exposed_after_us"]) == (
        "dependency",
        "cutting",
        300,
        100,
    )
    assert (one["saved_us"], one["saved_us_p05"], one["saved_us_p95"], one["memory_bytes"]) == (200, 160, 400, -200)
    assert one["rules"] == {"cut": 2}
    assert one["switch"] == ["cutting: in practice: --cut"]
    assert one["equal"] == "rewritten by rules"


def test_without_another_policy_nothing_is_a_remedy() -> None:
    assert rows.document(job(), ["none"])["remedies"] == []


def test_the_page_has_what_helps_and_what_was_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    words = "simulate --model resnet18 --gpus 8 --fabric switch:8,rate=10Gb/s --policy auto:tries=12".split()
    assert main([*words, "--rewrite", "split-all-reduce:role=dp", "-o", str(page)]) == 0
    text = page.read_text()
    assert "What removes it" in text
    assert "What was tried" in text
    assert "Rewritten, and what that changes in a step of one rank" in text
    assert "split-all-reduce" in text


def test_what_no_longer_travels_as_it_is_is_not_told_as_equal() -> None:
    told = rows.document(job(), ["none", "gradientflow", "p3", "dear"])["rows"]
    equal = {each["policy"]: each["equal"] for each in told}
    assert equal["gradientflow"].startswith("not the same numbers")  # half precision, and a part of the elements
    assert equal["p3"] == "only what is sent when changes"
    assert "to the bit" in equal["dear"]


def test_a_trace_of_a_search_is_that_of_its_best_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "simulate --model resnet18 --gpus 8 --fabric switch:8,rate=10Gb/s --policy auto:tries=6".split()
    assert main([*words, "--trace", str(tmp_path / "run"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    best = told["search"]["frontier"][0]
    assert best != "none"
    assert (tmp_path / "run").exists()
    assert main(["summary", str(tmp_path / "run"), "--json"]) == 0
    assert best in capsys.readouterr().out
