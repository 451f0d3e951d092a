"""The README tells the truth: its commands exist and the sample's output is today's."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text()
COMMAND_LINE = re.compile(r"(?:^|`)(scripts/\w+|ringwright)(?: ([a-z]+))?\b", re.MULTILINE)
PAGES = [README, (REPOSITORY / "docs" / "cli.md").read_text()]

RUN_MAIN = [sys.executable, "-c", "import sys; from ringwright.cli import main; sys.exit(main())"]

has_cli = pytest.mark.skipif(
    not (REPOSITORY / "src" / "ringwright" / "cli" / "__init__.py").is_file(), reason="there is no command line yet"
)


def commands() -> set[tuple[str, str]]:
    return {(program, verb or "") for page in PAGES for program, verb in COMMAND_LINE.findall(page)}


def test_scripts_named_in_the_readme_exist() -> None:
    scripts = {program for program, _ in commands() if program.startswith("scripts/")}
    assert scripts
    assert not [script for script in scripts if not os.access(REPOSITORY / script, os.X_OK)]


@has_cli
@pytest.mark.parametrize("verb", sorted({verb for program, verb in commands() if "ringwright" in program and verb}))
def test_verbs_named_in_the_readme_exist(verb: str) -> None:
    ran = subprocess.run([*RUN_MAIN, verb, "--help"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert verb in ran.stdout


@has_cli
@pytest.mark.parametrize("name", ["sample-output", "simulate-output", "job-output"])
def test_the_examples_are_fresh(name: str) -> None:
    script = runpy.run_path(str(REPOSITORY / "scripts" / "readme"))
    block = script["example"](name, [*RUN_MAIN, *script["BLOCKS"][name]])
    assert script["with_block"](README, name, block) == README, "run scripts/readme"


def test_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert links
    assert not [link for link in links if not (REPOSITORY / link).exists()]


def test_the_tables_of_papers_are_those_of_the_last_record() -> None:
    script = runpy.run_path(str(REPOSITORY / "scripts" / "readme"))
    record = json.loads((REPOSITORY / "src" / "ringwright" / "papers" / "reproduced.json").read_text())["papers"]
    page = (REPOSITORY / "docs" / "reproduce.md").read_text()
    assert script["with_block"](README, "papers", script["papers"](record)) == README, "run scripts/readme"
    assert script["with_block"](page, "rows", script["rows"](record)) == page, "run scripts/readme"
    files = {path.stem for path in (REPOSITORY / "src" / "ringwright" / "papers" / "rows").glob("*.toml")}
    assert {paper["slug"] for paper in record} == files - {"collective-profiling-poster"}
