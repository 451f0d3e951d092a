"""What cannot be held is refused before anything is laid out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringwright.cli import main
from ringwright.engines import flat, memory
from ringwright.engines.folding import fold, quotient

ASKED = ["simulate", "all-reduce", "--fabric", "dgx-h100:8", "-b", "1M", "--algorithm", "ring"]


def test_too_many_moves_are_refused_before_one_is_laid_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def laid_out(*_: Any) -> None:
        raise AssertionError("laid out")

    monkeypatch.setattr(quotient, "MOST_PIECES", 100)
    monkeypatch.setattr(flat, "MOST_PIECES", 5000)
    monkeypatch.setattr(fold, "_Rows", laid_out)
    monkeypatch.setattr(flat, "step_pieces", laid_out)
    assert main([*ASKED, "--engine", "events"]) == 5
    told = capsys.readouterr().err
    assert "more than 5,000 moves" in told
    assert "--engine closed-form" in told


def test_a_job_beyond_the_free_memory_says_how_much_it_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*ASKED, "--engine", "events"]) == 0
    capsys.readouterr()
    monkeypatch.setattr(memory, "available_bytes", lambda: 50_000)
    assert main([*ASKED, "--engine", "events"]) == 5
    assert "GB are free" in capsys.readouterr().err
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    assert main([*ASKED, "--engine", "events"]) == 0


def test_free_memory_is_read_where_the_system_tells_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    told, most, used = (tmp_path / name for name in ("meminfo", "max", "current"))
    monkeypatch.setattr(memory, "_MEMINFO", told)
    monkeypatch.setattr(memory, "_LIMITS", (most, used))
    assert memory.available_bytes() is None
    told.write_text("MemTotal: 100 kB\nMemAvailable:   64 kB\n")
    assert memory.available_bytes() == 65536
    most.write_text("max\n")
    used.write_text("1000\n")
    assert memory.available_bytes() == 65536
    most.write_text("3000\n")
    assert memory.available_bytes() == 2000


def test_a_job_in_too_many_pieces_is_refused_with_the_largest(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "simulate",
        "--model",
        "vgg16",
        "--gpus",
        "8",
        "--fabric",
        "switch:8,rate=1GB/s",
        "--policy",
        "p3:slice_elements=1",
    ]
    assert main(words) == 5
    told = capsys.readouterr().err
    assert "pieces: it is more than 16,777,216" in told
    assert "B in pieces of 4 B" in told
    assert "p3:slice_elements=50000" in told


@pytest.mark.once
def test_a_program_in_too_many_steps_is_refused_before_one_is_laid_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each half in segments of 6 B is 174,767 steps on 8 ranks, an all-reduce in segments of 29 B nearly 290,000."""

    def laid_out(*_: Any) -> None:
        raise AssertionError("laid out")

    monkeypatch.setattr(flat, "step_pieces", laid_out)
    few = ["--fabric", "dgx-h100:1", "-b", "1M", "--algorithm"]
    assert main(["simulate", "broadcast", *few, "split-binary-tree:segment_bytes=6"]) == 5
    told = capsys.readouterr().err
    assert "is 174,767 steps: it is more than 131,072" in told
    assert "larger segments" in told
    assert main(["simulate", "all-reduce", *few, "knomial:segment_bytes=29"]) == 5
    assert "steps: it is more than 131,072" in capsys.readouterr().err


@pytest.mark.once
def test_experts_in_too_many_chunks_are_a_row_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    job = ["simulate", "--model", "mixtral-8x7b", "--gpus", "16", "--parallel", "ep8,dp16", "--seq", "512"]
    assert main([*job, "--fabric", "dgx-h100:2", "--policy", "none,lina:partition_mb=0.001", "--json"]) == 0
    none, cut = json.loads(capsys.readouterr().out)["rows"]
    assert none["step_us"] > 0
    assert "chunks and edges between them: it is more than 65,536" in cut["declined"]
