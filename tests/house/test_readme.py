"""The README tells the truth: its commands exist and the sample's output is today's."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text()
COMMAND_LINE = re.compile(r"(?:^|`)(scripts/[\w-]+|ringwright)(?: ([a-z]+))?\b", re.MULTILINE)
NAMED = {
    "README": REPOSITORY / "README.md",
    "tour": REPOSITORY / "docs" / "tutorials" / "tour.md",
    "cli": REPOSITORY / "docs" / "reference" / "cli.md",
}
PAGES = [page.read_text() for page in NAMED.values()]
MOST_LINES, MOST_SHOWN = 150, 8  # of the README; of what a command prints there

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
def test_verbs_named_in_the_readme_exist(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    from ringwright.cli import main

    assert main([verb, "--help"]) == 0
    assert verb in capsys.readouterr().out


@has_cli
def test_every_page_holds_what_commands_print_and_what_the_record_says() -> None:
    script = runpy.run_path(str(REPOSITORY / "scripts" / "readme"))
    for page, text in script["fresh_pages"](RUN_MAIN).items():
        assert page.read_text() == text, f"{page.name}: run scripts/readme"
    assert {page.stem for page in (REPOSITORY / "docs" / "papers").glob("*.md")} == {
        page.stem for page in (REPOSITORY / "lab" / "src" / "ringwright_lab" / "papers" / "rows").glob("*.toml")
    } - {"collective-profiling-poster"}


def test_the_first_page_is_short() -> None:
    assert len(README.splitlines()) <= MOST_LINES
    shown = re.findall(r"```text\n(coverage|Replay|Change)(.*?)```", README, re.DOTALL)
    assert len(shown) == 3
    assert all(len(text.strip().splitlines()) <= MOST_SHOWN + 1 for _, text in shown)  # and the dots
    assert README.index("pip install") < README.index("## Three questions")


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


@pytest.mark.parametrize("page", PAGES, ids=[*NAMED])
def test_every_command_on_the_page_is_understood(page: str) -> None:
    from ringwright.cli.application import app

    commands = typed(page)
    assert len(commands) > 4
    for words in commands:
        app().parse_args(words, exit_on_error=False, print_error=False)


def ran_elsewhere(page: str) -> list[list[str]]:
    """Return what the script that compares outputs runs, and the commands of the pages before this one."""
    script = runpy.run_path(str(REPOSITORY / "scripts" / "readme"))
    shown = [*script["BLOCKS"].values(), [*script["RECORD_JOB"], "--trace", script["RECORDED"]]]
    shown += [words for words, *_ in script["EXCERPTS"].values()]
    before = [words for each in PAGES[: PAGES.index(page)] for words in typed(each) if "-o" not in words]
    return [sorted(words) for words in (*shown, *before)]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=[*NAMED])
def test_the_commands_run_as_they_stand(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a folder where nothing is, in the order of the page: what one writes the next may read.

    What the pages show runs where that is compared, and what two pages have runs once.
    """
    from ringwright.cli import main

    monkeypatch.chdir(tmp_path)
    wanted = [words for words in typed(page) if words[0] not in LONG and sorted(words) not in ran_elsewhere(page)]
    wanted.sort(key=lambda words: "--trace" not in words)  # a recording is made before it is read
    for words in wanted:
        code = main(words)
        assert code == 0, f"{shlex.join(words)}: {capsys.readouterr().err}"
        capsys.readouterr()


def test_links_lead_somewhere() -> None:
    for page in (REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")):
        links = [link for link in re.findall(r"\]\(([^)#\s]+)\)", page.read_text()) if "://" not in link]
        gone = [link for link in links if not (page.parent / link).exists()]
        assert not gone, f"{page.name}: {gone}"
    assert re.findall(r"\]\(([^)#]+)\)", README)
