"""What holds for every verb: its group, its examples, one spelling of each option; lists, completion, progress, the program's name."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ringwright.cli
import ringwright_lab
from ringwright.cli import main, progress
from ringwright.cli.application import app, examples
from ringwright.cli.verbs import GROUPS, VERBS
from ringwright.ground import invocation, laboratory, stepwise
from ringwright.ground.errors import UsageError

pytestmark = pytest.mark.once

FOLDER = Path(ringwright.cli.__file__).parent
SOURCE = FOLDER.parents[1]
RECORDINGS = ("inputs", "two_inputs", "recording")  # who asks `reading` for these reads recordings
OUTPUT = {"--output", "-o"}
ONE_MORE_RELEASE = {"--out"}
MOST_OPTIONS = 12
MOST_IN_A_GROUP = 15


def functions() -> dict[str, ast.FunctionDef]:
    """The verbs by name: the files whose function is called like them."""
    found = {}
    for path in [*FOLDER.glob("*.py"), *(Path(ringwright_lab.__file__).parent / "cli").glob("*.py")]:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name == path.stem:
                found[path.stem] = node
    return found


def asks_for_recordings(node: ast.FunctionDef) -> bool:
    calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
    return any(isinstance(call, ast.Attribute) and call.attr in RECORDINGS for call in calls)


READERS = sorted(verb for verb, node in functions().items() if asks_for_recordings(node))


def parameters(verb: str) -> list[Any]:
    application = app()
    return list(application[verb].assemble_argument_collection())


# ------------------------------------------------------------------------------------------------------------ groups


def test_every_verb_is_in_exactly_one_group() -> None:
    listed = [verb for verbs in GROUPS.values() for verb in verbs]
    assert sorted(listed) == sorted(set(listed)) == sorted(functions().keys() - {"absent", "completion"})
    assert list(GROUPS) == ["Record", "Understand", "Predict", "Run and prove"]


@pytest.mark.parametrize("verb", laboratory.VERBS)
def test_a_verb_that_is_not_installed_says_what_to_install(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(laboratory, "is_there", lambda: False)
    assert main([verb, "all-reduce", "--lab", "x", "-q"]) == 2
    said = capsys.readouterr().err
    assert f"ringwright {verb} comes with ringwright-lab, which is not installed" in said
    assert "pip install" in said
    assert main([verb, "--help"]) == 0
    assert main(["--help"]) == 0
    assert verb in capsys.readouterr().out


def test_help_shows_the_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    places = [out.index(f" {title} ") for title in GROUPS]
    assert places == sorted(places)
    assert all(len(line) <= 80 for line in out.splitlines())


@pytest.mark.parametrize("verb", VERBS)
def test_many_options_stand_in_groups(verb: str) -> None:
    options = parameters(verb)
    titles = [group.name for argument in options for group in argument.parameter.group or ()]
    most = max((titles.count(title) for title in {*titles}), default=0)
    plain = sum(not argument.parameter.group for argument in options)
    if len(options) > MOST_OPTIONS:
        assert len({*titles}) >= 2
    assert max(most, plain) <= MOST_IN_A_GROUP, "one group as long as a page"


# ----------------------------------------------------------------------------------------------- one spelling of each


@pytest.mark.parametrize("verb", VERBS)
def test_one_spelling_for_output_and_for_json(verb: str) -> None:
    names = {name for argument in parameters(verb) for name in argument.names}
    assert "--json" in names
    outputs = names & (OUTPUT | ONE_MORE_RELEASE)
    assert not outputs or outputs >= OUTPUT, f"{verb} names its output otherwise: {outputs}"


def test_the_old_spellings_are_read_for_one_more_release(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("run", "bench", "sweep", "lab", "reproduce"):
        assert "--out" in {name for argument in parameters(verb) for name in argument.names}
    asked = ["bench", "all-reduce", "-g", "2", "-b", "8", "-n", "1", "-w", "0", "--json"]
    assert main([*asked, "-o", "max"]) == 0
    shown = capsys.readouterr()
    assert "read as --op max" in shown.err
    assert main([*asked, "-o", str(tmp_path / "capture")]) == 0
    assert (tmp_path / "capture" / "bench.json").exists()


# ------------------------------------------------------------------------------------------------------------ sample

MORE = {
    "query": ["select count(*) as n from events"],
    "convert": ["-o", "OUT"],
    "report": ["-o", "OUT.html"],
    "live": ["--once"],
    "serve": ["--port", "0", "--for", "0.2s", "--keep", "OUT"],
    "survey": None,  # a minute: see test_survey_takes_the_sample
}


def test_the_verbs_that_read_recordings_are_found() -> None:
    known = {"summary", "report", "diff", "check", "convert", "query", "read", "live", "doctor", "simulate", "survey"}
    known |= {"advise", "serve"}
    assert set(READERS) == known


@pytest.mark.parametrize("verb", READERS)
def test_every_verb_that_reads_a_recording_takes_the_sample(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--sample" in {name for argument in parameters(verb) for name in argument.names}
    more = MORE.get(verb, [])
    if more is not None:
        words = [word.replace("OUT", str(tmp_path / "out")) for word in more]
        assert main([verb, *words, "--sample", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["schema"].startswith("ringwright.")


def test_survey_takes_the_sample(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from ringwright_lab.survey import document

    asked: list[Any] = []
    monkeypatch.setattr(document, "survey", lambda question, **_: asked.append(question) or {"schema": "x", "rows": []})
    assert main(["survey", "--sample", "--json"]) == 0
    assert "job.log.gz" in asked[0].name


@pytest.mark.parametrize("words", [["diff", "a", "b"], ["summary", "a"], ["simulate", "all-reduce"], ["survey", "x"]])
def test_the_sample_and_a_file_are_one_too_many(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--sample"]) == 2
    assert "--sample" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------------- examples

SLOW = {
    "run",
    "plugin",
    "bench",
    "lab",
    "compare",
    "reproduce",
    "survey",
    "sweep",
    "accuracy",
}  # compilers, ranks, minutes, tables
LONGEST = {"provision resnet-50 --fabric dgx-h100:2"}  # as the other examples of its verb, on eight times as many links


def of_ours(line: str) -> list[list[str]]:
    """The words of each of our commands in a line of a shell, none for those of others."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&;")
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set("&;"):
            commands.append([])
        else:
            commands[-1].append(word)
    return [words[1:] for words in commands if words and words[0] == "ringwright"]


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_examples_that_can_be_typed(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = examples(verb)
    assert lines
    assert any(f"ringwright {verb}" in line for line in lines)
    assert main([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {line}\n" in shown for line in lines), "an example is broken over lines"
    application = app()
    for line in lines:
        for words in of_ours(line):
            application.parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.sampled(8, "*")  # that all can be read: above
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in SLOW])
def test_examples_run_as_they_stand(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for line in examples(verb):
        for words in of_ours(line):
            if shlex.join(words) not in LONGEST:
                assert main(words) == 0, f"{line}: {capsys.readouterr().err}"


# ------------------------------------------------------------------------------------------------------------- lists


def test_every_list_has_names_meanings_and_spellings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    lists = [row["name"] for row in json.loads(capsys.readouterr().out)["rows"]]
    assert {"fabrics", "models", "policies", "gpus", "faults", "algorithms", "collectives", "formats", "sources"} <= {
        *lists
    }
    for what in lists:
        assert main(["list", what, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert len(rows) > 2
        assert all(row["name"] and row["meaning"] and row["example"] for row in rows)
    assert main(["list", "fabric"]) == 2
    assert "ringwright list fabrics" in capsys.readouterr().err


def test_what_is_listed_is_what_the_owners_have() -> None:
    from ringwright import fabrics
    from ringwright.calls import lists
    from ringwright.costs.gpus import GPUS
    from ringwright.fabrics import _congestion as congestion
    from ringwright.fabrics import faults
    from ringwright.formats import exports
    from ringwright.formats.sources.kinds import kinds
    from ringwright.model import registry
    from ringwright.model.collective import OPS
    from ringwright.workloads import models

    def named(what: str) -> dict[str, str]:
        return {row["name"]: row["example"].partition(" ")[2] for row in lists.listing(what)["rows"]}

    assert named("fabrics").keys() == {*fabrics.families()}
    assert all(fabrics.fabric(example).n_ranks > 1 for example in named("fabrics").values())
    assert named("models").keys() == {*models.names()}
    assert named("policies").keys() == {each.slug for each in registry.schedulers()}
    assert all(registry.scheduler(example) for example in named("policies").values())
    assert named("algorithms").keys() == {each.slug for each in registry.systems()}
    assert all(registry.algorithm(example) for example in named("algorithms").values())
    assert named("gpus").keys() == GPUS.keys()
    assert tuple(named("collectives")) == OPS
    assert named("formats").keys() == exports.exports(*exports.TAKES).keys()
    assert named("sources").keys() == kinds().keys()
    machines = [fabrics.fabric(spec) for spec in ("dgx-1:4", "dgx-h100:4", "leaf-spine:64")]
    for _, line, _ in faults.in_words():
        told, other = congestion.split([line])
        assert all(congestion.congestion(each, machines[0].n_ranks) for each in told)
        assert any(_is_accepted(machine, each) for machine in machines for each in other or [""]), line


def _is_accepted(machine: Any, line: str) -> bool:
    from ringwright.fabrics import faults

    try:
        return bool(faults.apply(machine, [line]))
    except UsageError:
        return False


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("simulate all-reduce --fabric dgx-h2000:2", "list fabrics"),
        ("simulate all-reduce --fabric switch:4 --algorithm rinq", "list algorithms"),
        ("simulate all-reduc --fabric switch:4", "list collectives"),
        ("simulate all-reduce --fabric switch:4 --fault 'link nowhere bend'", "list faults"),
        ("simulate all-reduce --fabric switch:4 --calibration no-such", "list calibrations"),
        ("simulate --model llama9 --gpus 4", "list models"),
        ("simulate --model resnet50 --gpus 4 --policy p9", "list policies"),
        ("simulate --model resnet50 --gpus 4 --gpu h900", "list gpus"),
        ("simulate --model resnet50 --gpus 4 --fit no-such", "list fits"),
        ("export all-reduce --fabric switch:4 --to no-such -o x", "list formats"),
        ("convert --sample --format no-such -o x", "list formats"),
        ("workload resnet50 --to no-such -o x.json", "list formats"),
    ],
)
def test_an_unknown_name_says_where_the_names_are(words: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(words)) == 2
    assert f"ringwright {named}" in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------------- completion

COMPLETE = """
eval "$(cat "$1")"
ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _ringwright; printf '%s ' "${COMPREPLY[@]}"; echo; }
ask ringwright sim
ask ringwright simulate --fab
ask ringwright bench --bac
"""


def test_a_shell_completes_verbs_and_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "completion"
    assert main(["--completion", "bash", "-o", str(script)]) == 0
    assert main(["--completion", "bash", "-o", str(script)]) == 2, "what is there is not overwritten"
    capsys.readouterr()
    ran = subprocess.run(
        ["bash", "--norc", "-c", COMPLETE, "bash", str(script)], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["simulate", "--fabric", "--backend"]
    for shell in ("zsh", "fish"):
        assert main(["--completion", shell]) == 0
        assert "simulate" in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------------------- progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("option", "is_terminal"), [((), False), (("-q",), True), (("--quiet",), False)])
def test_progress_is_silent_in_a_pipe_and_when_asked(
    option: tuple[str, ...], is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    err = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    assert main(["check", "--sample", *option]) == 0
    assert err.getvalue() == ""


def test_progress_is_drawn_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", err := Terminal())
    assert main(["check", "--sample"]) == 0
    assert "reading" in err.getvalue()


def test_verbose_writes_share_and_time_left_and_changes_no_output(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["simulate", "all-reduce", "--fabric", "switch:4", "-b", "1K", "-e", "1M"]
    assert main(asked) == 0
    plain = capsys.readouterr()
    assert plain.err == ""
    assert main([*asked, "-v"]) == 0
    verbose = capsys.readouterr()
    assert verbose.out == plain.out
    lines = verbose.err.splitlines()
    assert lines[0] == "ringwright: simulating 0 %: ring, 1 KiB"
    assert lines[-1] == "ringwright: simulating 100 %"
    assert all(
        re.fullmatch(r"ringwright: simulating \d+ %(, about \d+ (s|min) left)?(: ring, .*)?", line) for line in lines
    )
    assert len(lines) <= 11


def test_what_stands_behind_two_dashes_is_the_other_program_s() -> None:
    with progress.spoken(["run", "-q", "--", "tool", "-v", "-q"]) as words:
        assert words == ["run", "--", "tool", "-v", "-q"]
        assert not progress.is_drawn()
        assert not progress.is_written()


def test_the_share_of_what_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_bytes(b"x" * 600)
    (tmp_path / "b.log").write_bytes(b"x" * 400)
    assert progress.size_of([str(tmp_path)]) == 1000
    (tmp_path / "c.log.gz").write_bytes(b"x")
    assert progress.size_of([str(tmp_path)]) == 0, "what is packed tells no size"
    with progress.spoken(["-v"]), progress.read([str(tmp_path / "a.log")]) as count:
        assert count is not None
        count(300)
        count(300)
        count(300)  # read once more
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("ringwright: reading 50 %")
    assert "600 B of 600 B" in lines[1]
    assert lines[2] == "ringwright: reading: 900 B"


def test_time_left_in_words() -> None:
    assert progress.left(0, 0, 5) == ""
    assert progress.left(0, 10, 5) == "0 %"
    assert progress.left(5, 10, 30) == "50 %, about 30 s left"
    assert progress.left(1, 10, 60) == "10 %, about 9 min left"
    assert progress.left(10, 10, 60) == "100 %"


def test_steps_are_told_before_each_and_at_the_end() -> None:
    told: list[tuple[int, int, str]] = []
    assert list(stepwise.track_progress(["a", "b"], lambda *each: told.append(each))) == ["a", "b"]
    assert told == [(0, 2, "a"), (1, 2, "b"), (2, 2, "")]


# ------------------------------------------------------------------------------------------------ the program's name


def test_commands_begin_with_how_the_program_was_called() -> None:
    text = "$ ringwright summary x; see ringwright check --help (ringwright.summary, my-ringwright run, ringwright is)"
    assert invocation.as_called(text) == text
    with invocation.as_typed("scripts/ringwright", VERBS):
        assert invocation.as_called(text) == (
            "$ scripts/ringwright summary x; see scripts/ringwright check --help"
            " (ringwright.summary, my-ringwright run, ringwright is)"
        )
    assert invocation.as_called(text) == text


@pytest.mark.parametrize(
    ("started", "told", "words"),
    [
        ("/usr/bin/pytest", "", "ringwright"),
        ("-c", "", "ringwright"),
        ("BIN/ringwright", "", "ringwright"),  # what the shell finds
        ("other place/ringwright", "", "'other place/ringwright'"),
        ("ringwright", "", "ringwright"),
        ("x/.venv/bin/ringwright", "scripts/ringwright", "scripts/ringwright"),
        ("x/.venv/bin/ringwright", "BIN/ringwright", "ringwright"),
        ("/x/site-packages/ringwright/__main__.py", "", "python -m ringwright"),
    ],
)
def test_how_it_was_called(
    started: str, told: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ringwright", "python"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(sys, "argv", [started.replace("BIN", str(tmp_path)), "summary"])
    monkeypatch.setenv(invocation.TOLD_BY_SCRIPT, told.replace("BIN", str(tmp_path)))
    assert invocation.words() == words
    assert invocation.TOLD_BY_SCRIPT not in os.environ, "a job that is started inherits no name"


def test_a_hint_runs_as_it_stands(tmp_path: Path) -> None:
    """What a person sees who runs the module: each command is the one that was typed, and JSON stays as it is stored."""
    python = [sys.executable, "-m", "ringwright"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(SOURCE),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }

    def run(*words: str) -> str:
        ran = subprocess.run(
            [*python, *words], capture_output=True, text=True, env=environment, check=False, cwd=tmp_path
        )
        return ran.stdout + ran.stderr

    shown = run("summary", "--sample")
    hints = re.findall(r"^    \$ (.*ringwright .*)$", shown, re.MULTILINE)
    assert hints
    assert all(hint.startswith("python -m ringwright ") for hint in hints)
    assert "python -m" not in run("summary", "--sample", "--json")
    assert "try: python -m ringwright summary --sample" in run("summary", "/no/such.log")
