"""What cannot be held is refused before anything is laid out."""

from __future__ import annotations

from typing import Any

import pytest

from ringwright.cli import main
from ringwright.engines import flat, memory
from ringwright.engines.folding import fold

ASKED = ["simulate", "all-reduce", "--fabric", "dgx-h100:8", "-b", "1M", "--algorithm", "ring"]


def test_too_many_moves_are_refused_before_one_is_laid_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def laid_out(*_: Any) -> None:
        raise AssertionError("laid out")

    monkeypatch.setattr(fold, "MOST_PIECES", 100)
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
