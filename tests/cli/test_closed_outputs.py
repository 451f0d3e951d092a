"""A reader that leaves early ends a command in 0, an output that takes no more is our error, and a gate keeps its verdict."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.test_diff_times import table
from ringwright.cli import main

RUN = [sys.executable, "-c", "import sys; from ringwright.cli import main; sys.exit(main())"]


def into_closed_pipe(*arguments: str) -> tuple[int, str]:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*RUN, *arguments], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize("arguments", [["summary", "--sample"], ["summary", "--sample", "--json"], ["--help"]])
def test_a_closed_pipe_ends_in_0(arguments: list[str]) -> None:
    assert into_closed_pipe(*arguments) == (0, "")


def test_a_closed_pipe_does_not_let_a_gate_pass(tmp_path: Path) -> None:
    fast, slow = table(tmp_path / "fast_all_reduce.txt"), table(tmp_path / "slow_all_reduce.txt", 6)
    code, told = into_closed_pipe("diff", fast, slow, "--fail-over", "5%")
    assert code == 1
    assert "FAIL" in told
    limits = tmp_path / "limits.toml"
    limits.write_text("[[limit]]\nmax_time_us = 1.0\n")
    assert into_closed_pipe("check", fast, "--config", str(limits))[0] == 1


def test_a_full_output_is_our_error() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*RUN, "summary", "--sample"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert "standard output cannot be written: no space left on device" in done.stderr
    assert "  try: " in done.stderr


def test_a_place_below_a_file_is_our_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    asked = ["simulate", "all-reduce", "--fabric", "switch:4", "-b", "1K", "--trace", str(tmp_path / "file" / "x")]
    assert main(asked) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_dash_is_no_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        main(["export", "all-reduce", "--fabric", "switch:4", "--algorithm", "ring", "--to", "msccl-xml", "-o", "-"])
        == 2
    )
    assert "is a file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_input_that_is_closed_to_us_is_not_told_as_an_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Met outside a reader; the same file behind -o is an output."""
    place = tmp_path / "grid.toml"
    place.write_text("")

    def closed(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(place))

    monkeypatch.setattr("ringwright.cli._dispatch", closed)
    assert main(["sweep", str(place)]) == 3
    said = capsys.readouterr().err
    assert f"{place} cannot be read: permission denied" in said
    assert "try: ls -l" in said
    assert main(["sweep", "x.toml", "-o", str(place)]) == 2
    assert f"{place} cannot be written: permission denied" in capsys.readouterr().err
