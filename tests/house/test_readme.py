"""The README tells the truth: its commands exist and the sample's output is today's."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text()
COMMAND_LINE = re.compile(r"(?:^|`)(scripts/[\w-]+|ringwright)(?: ([a-z]+))?\b", re.MULTILINE)
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


# Compilers, real ranks, networks of namespaces, a server, minutes: understood here, run by the tests of their rooms.
LONG = {"run", "plugin", "bench", "lab", "compare", "survey", "reproduce", "provision", "serve", "advise"}
CODE = re.compile(r"```bash\n(.*?)```|`((?:scripts/)?ringwright [^`]+)`", re.DOTALL)


def typed(page: str) -> list[list[str]]:
    """Every command of ours on a page as the words of a shell, in the order in which they stand."""
    found = []
    for block, single in CODE.findall(page):
        for line in re.sub(r"\\\n\s*", "", block or single).splitlines():
            lexer = shlex.shlex(line.replace("$(", "").replace(')"', '"'), posix=True, punctuation_chars="&;|")
            lexer.whitespace_split = True
            words: list[str] = []
            for word in [*lexer, ";"]:
                if set(word) <= set("&;|"):
                    if words and words[0] in ("scripts/ringwright", "ringwright") and len(words) > 1:
                        found.append(words[1:])
                    words = []
                else:
                    words.append(word)
    return [words for words in found if not {word for word in words if word.isupper() and word.isalpha()}]


@pytest.mark.parametrize("page", PAGES, ids=["README", "cli"])
def test_every_command_on_the_page_is_understood(page: str) -> None:
    from ringwright.cli.application import app

    commands = typed(page)
    assert len(commands) > 15
    for words in commands:
        app().parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=["README", "cli"])
def test_the_commands_run_as_they_stand(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a folder where nothing is, in the order of the page: what one writes the next may read."""
    from ringwright.cli import main

    monkeypatch.chdir(tmp_path)
    shown = runpy.run_path(str(REPOSITORY / "scripts" / "readme"))[
        "BLOCKS"
    ].values()  # run where what they show is compared
    wanted = [words for words in typed(page) if words[0] not in LONG and words not in map(list, shown)]
    wanted.sort(key=lambda words: "--trace" not in words)  # a recording is made before it is read
    for words in wanted:
        code = main(words)
        assert code == 0, f"{shlex.join(words)}: {capsys.readouterr().err}"
        capsys.readouterr()


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
