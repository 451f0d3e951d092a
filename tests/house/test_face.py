"""The public face: few names, lazy, typed, each with an example that runs; one line for each noun, and its HTML."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ringwright
import ringwright_lab
from ringwright.ground.notebook import MOST_ROWS, card, table
from ringwright.ground.trace_tables import rows
from ringwright_lab import testing

REPOSITORY = Path(__file__).resolve().parents[2]
NAMES = [name for name in ringwright.__all__ if name != "__version__"]
WITHOUT_EXAMPLE = {"schedule": "needs PyTorch and a process group; test_live runs it"}
CONTRACTS = [f"testing.{name}" for name in testing.CONTRACTS]  # of ringwright_lab
FUNCTIONS = [name for name in NAMES if inspect.isfunction(inspect.unwrap(getattr(ringwright, name)))]
NEVER_RAISES = set(CONTRACTS) - {"testing.check_family"}  # what is wrong is an outcome
LETTERS = 200  # of a repr

pytestmark = pytest.mark.once


def test_the_face_is_small_and_has_what_people_look_for() -> None:
    wanted = "Collective Topology Program Workload Trace read fabric algorithm scheduler simulate verify bound run bench export"
    assert set(f"{wanted} calibrate systems reproduce".split()) <= set(dir(ringwright))
    assert len(dir(ringwright)) <= 40


def test_type_checkers_see_what_is_loaded() -> None:
    """The imports for type checkers name the same home as the table that loads; modules, their folder."""
    tree = ast.parse(Path(str(ringwright.__file__)).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    told = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    loaded = {
        name: (home, real) if real else (home.rpartition(".")[0], home.rpartition(".")[2])
        for name, (home, real) in ringwright._HOMES.items()
    }
    rooms = {name for name in NAMES if callable(getattr(ringwright, name)) and not ringwright._HOMES[name][1]}
    for name in rooms:  # a room that is called is the function that type checkers are told of
        function = inspect.unwrap(getattr(ringwright, name))
        assert told.pop(name) == (function.__module__, function.__name__)
        assert loaded.pop(name)[1] == name
    assert rooms == {"survey"}
    assert told == loaded
    assert sorted([*loaded, *rooms, "__version__"]) == sorted(ringwright.__all__)


def test_a_name_is_what_it_says_whatever_was_imported_before() -> None:
    """A room of the same name, once imported, must not take the place of a public name."""
    rooms = {path.stem for path in Path(str(ringwright.__file__)).parent.iterdir()}
    assert not [name for name in NAMES if name in rooms and not isinstance(getattr(ringwright, name), ModuleType)]


def test_a_room_that_was_imported_first_is_still_called() -> None:
    import ringwright_lab.survey.systems_list as room

    assert ringwright.survey is sys.modules["ringwright_lab.survey"]
    assert callable(room.systems)
    assert "rows" in ringwright.survey()


def test_nothing_is_loaded_before_it_is_touched() -> None:
    code = "import sys, ringwright; print(*(name for name in sys.modules if name.startswith('ringwright.')))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert set(loaded.split()) == {"ringwright.ground", "ringwright.ground.moved"}  # what finds old paths


def public(name: str) -> Any:
    """Return what a name of the face, or of ``testing``, stands for, without what wraps it."""
    home = ringwright_lab if name.startswith("testing.") else ringwright
    return inspect.unwrap(attrgetter(name)(home))


def documented(name: str) -> str:
    return inspect.getdoc(public(name)) or ""


@pytest.mark.sampled(22, "*")
@pytest.mark.usefixtures("forked_ranks")
@pytest.mark.parametrize("name", [*NAMES, *CONTRACTS])
def test_the_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = doctest.DocTestParser().get_doctest(documented(name), {}, name, name, 0)
    assert bool(found.examples) != (name in WITHOUT_EXAMPLE), "an example, or a reason for none"
    told: list[str] = []
    doctest.DocTestRunner(verbose=False).run(found, out=told.append)
    assert not told, "".join(told)


@pytest.mark.parametrize("name", [*FUNCTIONS, *CONTRACTS])
def test_a_function_tells_what_goes_in_and_comes_out(name: str) -> None:
    text = documented(name)
    heads = re.findall(r"^(\w+)\n-+$", text, re.MULTILINE)
    taken = [each for each in inspect.signature(public(name)).parameters if each != "progress"]
    assert heads == [head for head in ("Parameters", "Returns", "Raises", "Examples") if head in heads]
    assert {"Returns", "Examples"} <= set(heads)
    assert "Parameters" in heads or not taken
    assert "Raises" in heads or not taken or name in NEVER_RAISES
    parameters = text.partition("Parameters\n---")[2].partition("\nReturns\n---")[0]
    listed = {each for line in parameters.splitlines() if not line.startswith((" ", "-")) for each in line.split(", ")}
    assert set(taken) <= listed


def reduced() -> ringwright.Collective:
    return ringwright.Collective("all-reduce", range(16), 64 << 20)


def ring() -> ringwright.Program:
    return ringwright.algorithm("ring")(reduced(), ringwright.fabric("dgx-h100:2"))


def ran() -> ringwright.Run:
    return ringwright.simulate(ring(), "dgx-h100:2")


NOUNS: dict[str, Callable[[], object]] = {
    "Collective(all-reduce of 64 MiB over 16 ranks, float32, sum)": reduced,
    "Topology(dgx-h100:2: 16 ranks, 44 nodes, 128 links)": lambda: ringwright.fabric("dgx-h100:2"),
    "Program(ring: all-reduce of 64 MiB over 16 ranks, 30 steps)": ring,
    "Run(ring, all-reduce of 64 MiB over 16 ranks on dgx-h100:2: 2,519 us, events)": ran,
    "Trace(nccl-log, 16 ranks)": lambda: ringwright.read(ringwright.sample()),
    "Bound(167.8 us for 64 MiB, by cut: the tightest of all cuts, switches may add)": lambda: ringwright.bound(
        reduced(), "dgx-h100:2"
    ),
    "Algorithm(ring:channels=2)": lambda: ringwright.algorithm("ring:channels=2"),
    "Scheduler(p3)": lambda: ringwright.scheduler("p3"),
    "Verified(ring: legal)": lambda: ringwright.verify(ring()),
}


@pytest.mark.parametrize("line", NOUNS, ids=lambda line: line.partition("(")[0])
def test_a_noun_is_one_line(line: str) -> None:
    noun = NOUNS[line]()
    assert repr(noun) == line
    page = noun._repr_html_()  # type: ignore[attr-defined]
    assert page.startswith("<p><b>")
    assert len(page) < 10_000
    assert not re.search(r"src=|href=|<script|<link", page)


def test_a_job_and_its_answer_are_one_line_each() -> None:
    step = ringwright.job("vgg16", gpus=8)
    answer = ringwright.simulate(step, "dgx-h100:1", policy="p3")
    for each in (step, answer, answer.run, answer.costs.__class__):
        assert len(repr(each)) < LETTERS
        assert "\n" not in repr(each)
    assert repr(answer).startswith("PolicyResult(vgg-16 training on dgx-h100:1, policy p3: ")
    assert f"{answer.step_s * 1e3:,.6g}" in answer._repr_html_()
    assert "vgg-16" in step._repr_html_()


def test_no_array_is_dumped() -> None:
    """What holds an array says how large it is, not what is in it: all nouns, and what the engines answer."""
    rooms = [
        "model.collective",
        "model.program",
        "model.topology",
        "model.workload",
        "model.trace",
        "engines.result",
        "engines.job.run",
        "bounds.lower_bounds",
    ]
    found = []
    for room in rooms:
        for name, kind in vars(import_module(f"ringwright.{room}")).items():
            if dataclasses.is_dataclass(kind) and isinstance(kind, type) and "__repr__" not in vars(kind):
                continue
            if dataclasses.is_dataclass(kind) and "_recursive_repr" in kind.__repr__.__code__.co_names:
                shown = [each.name for each in dataclasses.fields(kind) if each.repr and "ndarray" in str(each.type)]
                found += [f"{room}.{name}.{each}" for each in shown]
    assert not found


def test_what_a_page_shows_is_escaped_and_short() -> None:
    evil = "<script>alert(1)</script>"
    for page in (card(evil, {evil: evil}), table(evil, [evil], [[evil]] * (MOST_ROWS + 7))):
        assert "<script" not in page
        assert "&lt;script&gt;" in page
    assert "and 7 more" in table("t", ["a"], [[1]] * (MOST_ROWS + 7))
    assert len(card("t" * 10_000, {"n": "x" * 10_000})) < 1_000
    assert card("t", {"none": None, "empty": "", "zero": 0}).count("<tr>") == 1
    box = dataclasses.replace(ringwright.fabric("switch:4"), name=evil, provenance=evil)
    assert "<script" not in box._repr_html_()


def test_a_trace_shows_weighted_bytes_and_no_zero_for_what_is_not_told() -> None:
    said = [
        {"kind": "collective", "op": "all-reduce", "multiplicity": 3, "size_bytes": 1000},
        {"kind": "step", "multiplicity": 7},
    ]
    page = ringwright.Trace.of({"events": rows("events", said)})._repr_html_()
    assert "<td>all-reduce</td><td>3</td><td>3,000</td>" in page
    assert "<td>step</td><td></td><td>7</td><td></td>" in page


def test_a_hostile_name_stays_on_its_line() -> None:
    """Names come from files: no break, no escape sequence, no page of text in a prompt."""
    evil = "a\nb\x1b[31m" + "c" * 10_000
    box = dataclasses.replace(ringwright.fabric("switch:4"), name=evil)
    program = dataclasses.replace(ring(), name=evil)
    step = dataclasses.replace(ringwright.job("vgg16", gpus=4), name=evil)
    trace = ringwright.Trace.of({}, {"source": evil, "summary": evil})
    collective = ringwright.Collective("all-reduce", range(4), 1024)
    results = (ringwright.simulate(collective, box), ringwright.verify(program), ringwright.bound(collective, box))
    for each in (box, program, step, trace, *results):
        assert len(repr(each)) < 1.5 * LETTERS
        assert repr(each).isprintable()


def test_simulate_takes_what_people_have(tmp_path: Path) -> None:
    """A program, a collective or an operation; a job, its file, a recording or a model: each the same answer."""
    box, operation = ringwright.fabric("switch:4,rate=10GB/s"), ringwright.Collective("all-reduce", range(4), 1 << 20)
    program = ringwright.algorithm("ring")(operation, box)
    ways = (
        ringwright.simulate(program, box),
        ringwright.simulate(operation, "switch:4,rate=10GB/s"),
        ringwright.simulate("all-reduce", box, size="1M", algorithm="ring"),
        ringwright.simulate("all-reduce", box, size=1 << 20, algorithm=ringwright.algorithm("ring")),
    )
    assert len({run.time_ps for run in ways}) == 1
    assert ringwright.simulate(program, box, faults=["rank 1 slow 2x", "link rank0 rate 50%"]).time_ps > ways[0].time_ps

    step = ringwright.job("vgg16", gpus=4)
    [file] = ringwright.export(step, "json", tmp_path / "step.json")
    kept = ringwright.simulate(step, box, policy="p3")
    assert ringwright.simulate(str(file), box, policy="p3").run.step_s == kept.run.step_s  # type: ignore[union-attr]
    assert ringwright.simulate(step, box, policy=ringwright.scheduler("p3")).run.step_s == kept.run.step_s
    assert ringwright.simulate(step, box, policy="p3", faults=["rank 1 slow 2x"]).step_s > kept.step_s
    by_name = ringwright.simulate("vgg16", box, policy="p3")
    assert by_name.run.step_s == kept.run.step_s  # type: ignore[union-attr]

    trace = ringwright.read(ringwright.sample())
    recorded = ringwright.simulate(trace, "dgx-h100:2")
    assert ringwright.simulate(ringwright.sample(), "dgx-h100:2").run.step_s == recorded.run.step_s
    assert ringwright.simulate(trace, "dgx-h100:2", faults=["nic node0/nic* rate 10%"]).step_s > recorded.step_s


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (lambda: ringwright.simulate("all-reduce"), "no machine is named"),
        (lambda: ringwright.simulate("all-reduce", "switch:4", policy="p3"), "a policy orders"),
        (lambda: ringwright.simulate(ring(), "switch:16", size="1M"), "has its algorithm and size"),
        (lambda: ringwright.simulate("vgg16", "switch:4", size="1M"), "size is for one collective"),
        (lambda: ringwright.simulate("no-such-model", "switch:4"), "no-such-model"),
        (lambda: ringwright.simulate(3, "switch:4"), "a int cannot be simulated"),
        (lambda: ringwright.bound(reduced(), "switch:4"), "rank 15 is not on switch:4"),
        (lambda: ringwright.bound(reduced(), "switch:16", size="1M"), "has its size"),
        (lambda: ringwright.export(ring(), "csv", "x"), "'csv' is no export of a Program"),
        (lambda: ringwright.export(3, "csv", "x"), "a int cannot be written"),
        (lambda: ringwright.bench("all-reduce", sizes="64K"), "are lists"),
        (lambda: ringwright.reproduce("collective-profiling-poster"), "an experiment of hours"),
        (lambda: ringwright.simulate(ringwright.sample(), faults=["rank 3 slow 2x"]), "none is named"),
    ],
)
def test_what_cannot_be_asked_is_a_usage_error(asked: Callable[[], object], words: str) -> None:
    with pytest.raises(ringwright.errors.UsageError, match=re.escape(words)):
        asked()
