"""The template of a distribution of plug-ins: copied, installed without a network, and run as a stranger would."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
TEMPLATE = REPOSITORY / "docs" / "template"
ROWS = "rank,op,bytes,start_us,time_us\n0,all-reduce,1024,10,5\n1,all-reduce,1024,12,4\n"
# Runs each command and prints what they print, as a list.
EACH = """
import contextlib, io, json, sys
from ringwright.cli import main
said = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(words) == 0, words
    said.append(out.getvalue())
print(json.dumps(said))
"""

pytestmark = [pytest.mark.slow, pytest.mark.once]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the template, and beside it ``site``, where it is installed."""
    if find_spec("setuptools") is None:  # asked without importing it: it would put itself in the place of distutils
        pytest.skip("setuptools is absent")
    folder = tmp_path_factory.mktemp("stranger")
    shutil.copytree(TEMPLATE, folder / "template", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--target",
        str(folder / "site"),
        str(folder / "template"),
    ]
    subprocess.run(command, check=True, cwd=folder)
    return folder


def run(folder: Path, *command: str) -> str:
    """Run a command of the template's reader and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "site")}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder / "template",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_own_tests_pass(installed: Path) -> None:
    said = run(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "tests")
    assert int(said.split(" passed")[0].split()[-1]) >= 6


def test_what_its_page_says_runs(installed: Path) -> None:
    """Every command of its README, but the first two: installed it is, and its tests have run."""
    (installed / "template" / "ops.csv").write_text(ROWS)
    lines = (TEMPLATE / "README.md").read_text().splitlines()
    commands = [line.split()[1:] for line in lines if line.startswith("    ringwright ")]
    assert len(commands) >= 5
    first, *others = commands
    said = {
        first[-1]: run(installed, "-m", "ringwright", *first)
    }  # each would load all of it: the others in one process
    said |= zip(
        (words[-1] for words in others), json.loads(run(installed, "-c", EACH, json.dumps(others))), strict=True
    )
    assert "added by ringwright-template" in said["stride-ring"]
    assert "stride-ring" in said["stride-ring:stride=3"]
    assert "smallest-first" in said["smallest-first"]
    assert "all-reduce" in said["ops.csv"]
    assert json.loads(run(installed, "-m", "ringwright", "read", "ops.csv", "--json"))["files"][0]["kind"] == "op-csv"
