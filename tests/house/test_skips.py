"""A skip must be seen: the hooks of conftest.py, tried on a suite of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
SUITE = """
import pytest
from shared_data import needs_shared_data, real

@needs_shared_data
def test_reads_a_recording():
    assert real("one.log").read_text() == "line"

@needs_shared_data
def test_skips_by_itself():
    pytest.skip("no reason")

def test_is_independent():
    pass
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    for name in ("campaigns.py", "conftest.py", "shared_data.py"):
        shutil.copy(TESTS / name, tmp_path / name)
    (tmp_path / "test_suite.py").write_text(SUITE)
    markers = "\n".join(f"    {name}: tried here" for name in ("shared_data", "browser"))
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = .\nmarkers =\n{markers}\n")
    return tmp_path


def run(suite: Path, data: Path) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(suite), str(suite)]
    environment = {**os.environ, "RINGWRIGHT_TEST_DATA": str(data), "COLUMNS": "200"}
    environment.pop("PYTEST_ADDOPTS", None)
    return subprocess.run(command, cwd=suite, env=environment, capture_output=True, text=True, check=False).stdout


def test_absent_recordings_skip_aloud(suite: Path) -> None:
    output = run(suite, suite / "absent")
    assert "1 passed, 2 skipped" in output
    assert "2 tests skipped: real recordings are absent" in output


def test_absent_libraries_skip_aloud(suite: Path) -> None:
    for number, reason in enumerate(
        ("PyTorch is absent: no real ranks", "the MPI wheels are absent: no ranks over MPI")
    ):
        text = f"import pytest\n\n@pytest.mark.skipif(True, reason={reason!r})\ndef test_ranks():\n    pass\n"
        (suite / f"test_more_{number}.py").write_text(text)
    output = run(suite, suite / "absent")
    assert "1 tests skipped: PyTorch is absent" in output
    assert "1 tests skipped: the MPI wheels are absent" in output


def test_present_recordings_forbid_a_skip(suite: Path) -> None:
    data = suite / "data"
    data.mkdir()
    (data / "one.log").write_text("line")
    output = run(suite, data)
    assert "1 failed, 2 passed" in output
    assert "skipped although the recordings are present" in output


def test_a_lost_recording_is_a_failure(suite: Path) -> None:
    (suite / "data").mkdir()
    output = run(suite, suite / "data")
    assert "2 failed, 1 passed" in output
    assert "one.log is missing from" in output
