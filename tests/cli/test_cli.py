"""The command line: exit codes, three-part errors, JSON, pipes. The reader and the analysis run for real on the sample."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ringwright.cli
import ringwright_lab
from fixtures_summary import changed_summary, empty_summary, job_summary
from patience import HANG_S
from ringwright.cli import main, reading
from ringwright.model.trace import Trace

SOURCE = Path(ringwright.cli.__file__).parents[2]


@pytest.fixture
def summaries(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the verbs see hand-made summaries by the name of their input."""

    def use(**named: dict[str, Any]) -> None:
        monkeypatch.setattr(reading, "trace", lambda paths, executor=None: Trace.of({}))
        monkeypatch.setattr(reading, "summarised", lambda source, paths, strict=False, gap_s=None: named[paths[0]])

    return use


def process(
    *arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run the command line in its own process."""
    return subprocess.run(
        [sys.executable, "-m", "ringwright", *arguments],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=HANG_S,
        env={**os.environ, "PYTHONPATH": str(SOURCE), **(env or {})},
    )


# ------------------------------------------------------------------------------------------------ on the sample


def test_the_sample_is_summarised(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", "--sample"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("coverage: ")
    assert "ringwright report --sample -o job.html" in out
    assert max(len(line) for line in out.splitlines() if not line.startswith("    $ ")) <= 80


def test_json_has_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", "--sample", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "ringwright.summary/1"
    assert main(["query", "select count(*) as n from events", "--sample", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["schema"], answer["columns"]) == ("ringwright.query/1", ["n"])
    assert answer["rows"][0][0] > 0


def test_a_page_is_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "job.html"
    assert main(["report", "--sample", "-o", str(page)]) == 0
    assert page.read_text().startswith("<!doctype html>") or "<!doctype html>" in page.read_text()[:200]
    assert main(["report", "--sample", "-o", str(page)]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["report", "--sample", "-o", str(page), "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["size_bytes"] == page.stat().st_size


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_the_sample_is_converted(tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    (sample,) = reading.inputs((), sample=True)
    out = tmp_path / "out"
    assert main(["convert", sample, "-o", str(out), "--format", form, "--json"]) == 0
    assert all(Path(path).is_file() for path in json.loads(capsys.readouterr().out)["outputs"])
    assert main(["convert", sample, "-o", str(out), "--format", form]) == 2
    assert main(["convert", sample, "-o", str(out), "--format", form, "--force"]) == 0


def test_a_capture_reads_like_its_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (sample,) = reading.inputs((), sample=True)
    assert main(["convert", sample, "-o", str(tmp_path / "job")]) == 0
    assert main(["diff", sample, str(tmp_path / "job"), "--fail-over", "0%"]) == 0
    assert "none: operations" in capsys.readouterr().out


def test_a_redacted_log_reads_to_the_same_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (sample,) = reading.inputs((), sample=True)
    shared = tmp_path / "shared.log.gz"
    assert main(["convert", sample, "--redact", "--format", "log", "-o", str(shared)]) == 0
    capsys.readouterr()
    found = []
    for path in (sample, str(shared)):
        assert main(["summary", path, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    for key in ("operations", "communicators", "hosts", "ranks_seen", "roles", "pair_bytes", "algorithms", "truncated"):
        assert found[0][key] == found[1][key], key
    assert found[0]["ledger"] == found[1]["ledger"]
    assert {row["host"] for row in found[1]["ranks"]} <= {f"host-{n}" for n in range(1, 100)}


def test_standard_input_is_read() -> None:
    import gzip

    (sample,) = reading.inputs((), sample=True)
    done = process("summary", "-", "--json", stdin=gzip.decompress(Path(sample).read_bytes()))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["operations"]


def test_strict_refuses_a_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["summary", "--sample", "--strict"])
    shown = capsys.readouterr()
    assert code == 3
    assert "refused" in shown.err
    assert shown.out == ""


def test_a_closed_pipe_is_quiet() -> None:
    command = f"{sys.executable} -m ringwright query 'select * from events' --sample | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        check=False,
        timeout=HANG_S,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    assert done.stderr == b""
    assert done.returncode == 0


# ---------------------------------------------------------------------------------------------- usage and errors


@pytest.mark.parametrize(
    "arguments",
    [
        ["sumary"],
        ["summary"],
        ["summary", "--sample", "x"],
        ["summary", "--no-such"],
        ["diff", "one"],
        ["convert", "x"],
        ["convert", "x", "-o", "y", "--format", "log"],
        ["convert", "-", "-o", "y", "--format", "log", "--redact"],
        ["check", "x", "--max-refused", "lots"],
        ["check", "x", "--config", "/nowhere.toml"],
        ["diff", "a", "b", "--fail-over", "x"],
        ["query"],
        ["convert", "x", "-o", "y", "--format", "xlsx"],
        ["report", "--sample", "-o", "/nowhere/x.html"],
    ],
)
def test_wrong_usage_is_code_two_with_a_remedy(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("ringwright: ")
    assert "\n  try: " in shown.err


def test_a_wrong_query_is_code_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", "select nothing from nowhere", "--sample"]) == 2
    assert "try:" in capsys.readouterr().err


def test_no_such_input_is_code_three(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", "/no/such/file.log"]) == 3
    assert "try:" in capsys.readouterr().err


def test_a_bug_of_ours_is_code_seventy(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("over\nboard")

    monkeypatch.setattr(reading, "summary", broken)
    monkeypatch.delenv("RINGWRIGHT_DEBUG", raising=False)
    assert main(["summary", "a b.log"]) == 70
    shown = capsys.readouterr().err
    assert "ZeroDivisionError: over board" in shown
    assert "RINGWRIGHT_DEBUG=1 ringwright summary 'a b.log'" in shown
    assert "Traceback" not in shown
    monkeypatch.setenv("RINGWRIGHT_DEBUG", "1")
    assert main(["summary", "x"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_help_fits_the_first_screen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) <= 50
    assert all(verb in out for verb in ringwright.cli.VERBS)


@pytest.mark.parametrize("verb", list(ringwright.cli.VERBS))
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    assert "--json" in capsys.readouterr().out


def test_every_verb_is_a_short_file() -> None:
    """What a verb does is a few lines: its options with their help stand besides."""
    folders = [Path(each.__file__).parent for each in (ringwright.cli, ringwright_lab)]
    for verb in ringwright.cli.VERBS:
        (file,) = (each for each in (folders[0] / f"{verb}.py", folders[1] / "cli" / f"{verb}.py") if each.is_file())
        tree = ast.parse(file.read_text())
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        lines = sum(
            node.body[-1].end_lineno - node.body[0].end_lineno for node in functions if node.body[-1].end_lineno
        )  # type: ignore[operator]
        assert lines < 60, verb


def test_start_up_loads_nothing_heavy() -> None:
    code = "import sys, ringwright.cli as c; c.app(); print([m for m in ('polars', 'numpy', 'jinja2') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env={**os.environ, "PYTHONPATH": str(SOURCE)}
    )
    assert done.stdout.strip() == b"[]"


# --------------------------------------------------------------------------------- gate and diff on hand-made jobs


def test_the_gate_passes_and_fails(
    summaries: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    summaries(job=job_summary(), empty=empty_summary())
    assert main(["check", "job"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("PASS 3 checks")
    limits = tmp_path / "limits.toml"
    limits.write_text('[[limit]]\nop = "all-reduce"\nmax_size = "64K"\nmax_count = 10\n')
    assert main(["check", "job", "--config", str(limits), "--ranks", "16"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "FAIL 1 of 5 checks: all-reduce 0 B to 64 KiB: 8400 calls, at most 10 calls"
    assert main(["check", "empty"]) == 1
    assert main(["check", "empty", "--allow-empty"]) == 0


def test_the_last_line_is_an_annotation_in_actions(
    summaries: Callable[..., None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    summaries(empty=empty_summary())
    assert main(["check", "empty"]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("::error title=ringwright check%2C ")


def test_a_difference_is_shown_and_gated(summaries: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    summaries(a=job_summary(), b=changed_summary())
    assert main(["diff", "a", "b"]) == 0
    shown = capsys.readouterr().out
    assert "all-reduce 128 MiB" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert main(["diff", "a", "b", "--fail-over", "5%"]) == 1
    assert "FAIL" in capsys.readouterr().err
    assert main(["diff", "a", "b", "--fail-over", "50%", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "ringwright.diff/1"
