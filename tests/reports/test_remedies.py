"""A command is a command that runs: every one that a report of the shipped samples, of made-up cases and of the shared recordings
prints is taken apart, and those of our own are run."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringwright import cli
from ringwright.analysis import remedies
from ringwright.analysis.summary import summarise
from ringwright.formats.sources import read
from ringwright.ground.errors import RingwrightError
from ringwright_lab.testing import noise, slow_ranks
from shared_data import data_folder, needs_shared_data

pytestmark = pytest.mark.once
OTHERS = {"py-spy", "pgrep", "xargs", "nvidia-smi", "dmesg", "grep", "ls", *remedies.PERF.values()}
SETTING = re.compile(r"[A-Z][A-Z0-9_]*=[\w,.%:-]+")
BLANKS = re.compile(r"\b(PID|INPUT|LOGS|FOLDER|COMMAND|FILE|DIR|RANK)\b")
SAMPLES = [remedies._SAMPLES / "job.log.gz"]
MOST_BYTES = 3_000_000
FOLDERS = (
    "real/nccl-logs",
    "real/nccl-tests",
    "real/inspector",
    "real/kineto",
    "real/metrics",
    "real/perf-db",
    "regressions",
)


def printed(summary: dict[str, Any]) -> Iterator[str]:
    """Every command that the reports of a summary may print."""
    for one in (*summary["findings"], *summary["culprits"], *summary["overlap"].get("audit", [])):
        yield one["command"]


def stages(command: str) -> Iterator[list[str]]:
    """The programs that a line starts, each with its words, without the settings before it."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|;<>&")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word in ("|", ";"):
            yield words
            words = []
        elif words or not SETTING.fullmatch(word):
            words.append(word)


def trouble(command: str, folder: Path) -> str:
    """What is wrong with a command; ours is run, and must find its input and understand its options."""
    if not command.strip():
        return "empty"
    try:
        parts = list(stages(command))
    except ValueError as error:
        return str(error)
    for words in parts:
        if not words:
            if len(parts) > 1 or not SETTING.match(command):
                return "nothing is started"
        elif BLANKS.search(" ".join(words)):
            return "something is left to fill in"
        elif words[0] == "ringwright":
            return run(words[1:], folder)
        elif words[0] not in OTHERS:
            return f"{words[0]} is no program"
    return ""


def run(words: list[str], folder: Path) -> str:
    if any("*" in word for word in words) and not any("select" in word for word in words):
        words = [words[0], "--help"]  # of files that are not here: the verb is there
    words = [str(folder / "out") if words[place - 1] == "-o" else word for place, word in enumerate(words)]
    words += ["--force"] if "-o" in words else []
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: Any = cli.main(words)
        except SystemExit as error:
            code = error.code
    return "" if not code else f"exit {code}: {err.getvalue()[-300:]}"


def all_of(paths: list[Path]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in paths:
        with contextlib.suppress(RingwrightError):
            for command in printed(summarise(read(str(path)))):
                found.setdefault(command.replace(str(path), "@"), path)
    return found


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_commands_on_the_shipped_samples(path: Path, tmp_path: Path) -> None:
    wrong = {command: why for command in printed(summarise(read(str(path)))) if (why := trouble(command, tmp_path))}
    assert not wrong


@pytest.mark.sampled(3, "*")
@needs_shared_data
@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_commands_on_the_shared_recordings(folder: str, tmp_path: Path) -> None:
    """Each kind of command once: what differs by the input alone is run on the first."""
    paths = [
        path
        for path in sorted((data_folder() / folder).iterdir())
        if path.is_file() and path.stat().st_size < MOST_BYTES
    ]
    found = {re.sub(r"\d+", "0", command): (command, path) for command, path in all_of(paths).items()}
    wrong = {}
    for command, path in found.values():
        why = trouble(command.replace("@", str(path)), tmp_path)
        if why:
            wrong[command] = f"{why} ({path.name})"
    assert not wrong


@needs_shared_data
@pytest.mark.parametrize("name", ["lock_gil_1st", "gpu_error_2nd"])
def test_commands_on_hangs(name: str, tmp_path: Path) -> None:
    summary = summarise(read(str(data_folder() / "real/flight-recorder" / name)))
    assert not {command: why for command in printed(summary) if (why := trouble(command, tmp_path))}
    assert any(text.startswith("next: ") and "on its host" in text for text in summary["verdict"]["evidence"])


def test_what_is_printed_today_would_be_caught(tmp_path: Path) -> None:
    for wrong in (
        "",
        "expected(trace, box='dgx-a100:2')",
        "unknown_perf -b 1 -e 2",
        "look at nvidia-smi -q",
        "ls -l LOGS",
        "py-spy dump --pid PID",
        "ringwright nonsense x",
        "NCCL_DEBUG_SUBSYS=INIT,NET (look for NET/IB)",
        "ringwright summary FOLDER (one recording per rank)",
        "all_to_all_perf -b 1 -e 2",
    ):
        assert trouble(wrong, tmp_path), wrong
    for right in ("NCCL_DEBUG_FILE=nccl.%h.%p.log", "nvidia-smi -q; dmesg | grep -i xid", "alltoall_perf -b 8 -e 16"):
        assert not trouble(right, tmp_path), right


def test_the_input_in_a_command_is_all_of_the_input() -> None:
    assert remedies.inputs(["a b.log"]) == "'a b.log'"
    assert remedies.inputs(["x/1", "x/2"]) == "x/1 x/2"
    assert remedies.inputs([f"run/calls.{rank}" for rank in range(9)]) == "run"
    assert remedies.inputs(["t.tar.gz!a/1.json", "t.tar.gz!a/2.json"]) == "t.tar.gz"
    assert remedies.inputs(["<stdin>"]) == "-"
    assert remedies.inputs([None, "a.log"]) == "a.log"
    assert remedies.inputs([None]) == "."
    assert remedies.perf("unknown", 1, 2) == ""


def test_a_fabric_is_no_input_that_can_be_typed(tmp_path: Path) -> None:
    """A simulated trace names the fabric it ran on; where it lies in a file, that is typed."""
    simulated = {"source": "simulator", "inputs": ["switch:16"]}
    assert remedies.report(simulated) == remedies.perfetto(simulated) == ""
    simulated["inputs"] = [str(tmp_path)]
    assert remedies.report(simulated) == f"ringwright report {tmp_path} -o job.html"
    assert remedies.report({"source": "kineto", "inputs": ["a.json"]}) == "ringwright report a.json -o job.html"
    trace, _ = slow_ranks.job("straggler", 3, noise.ours())
    told = summarise(trace)
    commands = [each["command"] for each in (*told["culprits"], *told["findings"])]
    assert commands
    assert not [command for command in commands if "job" in command.split()]
