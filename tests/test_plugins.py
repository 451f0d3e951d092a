"""What other distributions add by entry point: loaded as it is written, told like our own, and blamed by name when it fails."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from outsiders import install
from ringwright.cli import main
from ringwright.ground import plugins
from ringwright.ground.errors import PluginError
from ringwright.model import registry
from ringwright_lab.testing import check_codec, check_executor, check_law, check_pipeline, failures

pytestmark = pytest.mark.once

RING = '''"""Rings of others."""
from typing import Annotated

from ringwright.algorithms.blocks.ring import ring
from ringwright.ground.knobs import Range

OPS = ("all-reduce",)


def other_name(collective, topology=None, *, lanes: Annotated[int, Range(1, 4)] = 1):
    """A ring from outside.

    Idea: the ring once more.
    Knobs: ``lanes``: rings side by side.
    """
    return ring(collective, topology, channels=lanes)


def nothing(collective, topology=None):
    """Return nothing at all."""


def late(collective, topology=None):
    return {}["gone"]


class Made:
    """Something that is no function."""


A_VALUE = 3
'''
ORDER = '''"""Orders of others."""
OPS = ("all-reduce",)


def untouched(workload, costs, *, backwards: bool = False):
    """Leave all as it is."""
    return workload.with_policy("untouched")
'''
BROKEN = {
    "gone": "rings_gone:ring",
    "no-such": "rings:no_such",
    "raises": "rings_raise:x",
    "leaves": "rings_leave:x",
    "value": "rings:A_VALUE",
    "a-module": "rings",
    "text": "not a reference",
}
SIMULATE = ["simulate", "all-reduce", "--fabric", "ring:8", "-b", "1M", "-e", "1M"]


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"my-ring": "rings:other_name", "late": "rings:late", "nothing": "rings:nothing", **BROKEN}
    modules = {"rings": RING, "rings_raise": "raise ValueError('at import')", "rings_leave": "raise SystemExit(4)"}
    install(
        tmp_path,
        monkeypatch,
        {"algorithms": points, "schedulers": {"my-order": "orders:untouched"}},
        orders=ORDER,
        **modules,
    )


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    assert main([*words]) == code, capsys.readouterr()
    return capsys.readouterr()


@pytest.mark.usefixtures("outside")
def test_an_algorithm_runs_under_the_name_of_its_entry_point(capsys: pytest.CaptureFixture[str]) -> None:
    theirs = json.loads(said(capsys, *SIMULATE, "--algorithm", "my-ring:lanes=2", "--json")[0])
    ours = json.loads(said(capsys, *SIMULATE, "--algorithm", "ring:channels=2", "--json")[0])
    assert theirs.pop("executor").keys() == ours.pop("executor").keys()  # whose processor time differs
    assert json.dumps(theirs).replace("my-ring:lanes", "ring:channels") == json.dumps(ours)
    error = said(capsys, *SIMULATE, "--algorithm", "my-ring:lanes=9", code=2)[1]
    assert "lanes is a whole number from 1 to 4" in error


@pytest.mark.usefixtures("outside")
def test_a_plug_in_is_listed_and_told_like_our_own(capsys: pytest.CaptureFixture[str]) -> None:
    listed = json.loads(said(capsys, "systems", "--json")[0])
    origins = {row["slug"]: row["origin"] for row in listed["systems"]}
    assert origins["my-ring"] == origins["my-order"] == "outside"
    assert origins["ring"] == origins["p3"] == "house"
    assert next(row["lines"] for row in listed["systems"] if row["slug"] == "my-ring") == len(RING.splitlines())
    told = json.loads(said(capsys, "systems", "my-ring", "--json")[0])
    assert told["headings"] == {"Idea": "the ring once more.", "Knobs": "``lanes``: rings side by side."}
    assert told["collectives"] == ["all-reduce"]
    assert [(knob["name"], knob["low"], knob["high"]) for knob in told["knobs"]] == [("lanes", 1, 4)]
    assert "lanes=1" in said(capsys, "systems", "my-ring")[0]
    order = json.loads(said(capsys, "systems", "my-order", "--json")[0])
    assert (order["headings"], order["collectives"]) == ({"Idea": "Leave all as it is."}, [])
    help_text = said(capsys, "systems", "--help")[0]
    assert "my-ring: lanes=1..4" in help_text
    assert "my-order: backwards=true|false" in help_text


@pytest.mark.usefixtures("outside")
def test_a_scheduler_of_others_orders_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    job = ["simulate", "--model", "gpt2-small", "--gpus", "4", "--parallel", "dp4", "--fabric", "dgx-h100:1", "--json"]
    found = json.loads(said(capsys, *job, "--policy", "my-order")[0])
    assert "my-order" in json.dumps(found)


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.usefixtures("outside")
def test_a_broken_plug_in_is_named_with_its_distribution(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([*SIMULATE, "--algorithm", name], ["systems", name]):
        error = said(capsys, *words, code=2)[1]
        assert f"the plug-in '{name}' of outside 1.2 cannot be used: " in error
        assert f'entry point {name} = "{BROKEN[name]}" in the group ringwright.algorithms' in error
        assert "  try: " in error


@pytest.mark.parametrize("name", ["late", "nothing"])
@pytest.mark.usefixtures("outside")
def test_a_plug_in_that_fails_while_it_runs_is_no_bug_of_ours(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = said(capsys, *SIMULATE, "--algorithm", name, code=2)[1]
    assert f"the plug-in '{name}' of outside 1.2" in error
    assert ("KeyError: 'gone' (rings.py:24)" if name == "late" else "it returned NoneType, not a Program") in error


@pytest.mark.usefixtures("outside")
def test_the_blame_is_that_of_the_function_that_failed(capsys: pytest.CaptureFixture[str]) -> None:
    """Of several plug-ins in one module the one whose function was running."""
    said(capsys, *SIMULATE, "--algorithm", "my-ring")
    assert "the plug-in 'late' of" in said(capsys, *SIMULATE, "--algorithm", "late", code=2)[1]


@pytest.mark.usefixtures("outside")
def test_what_is_broken_is_listed_and_spoils_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, *SIMULATE, "--algorithm", "ring")
    assert not {"rings", "orders", "rings_raise"} & set(sys.modules), "nothing of others is imported unasked"
    listed = json.loads(said(capsys, "systems", "--json")[0])
    assert not set(BROKEN) & {row["slug"] for row in listed["systems"]}
    assert len(listed["refused"]) == len(BROKEN)
    text = " ".join(said(capsys, "systems")[0].split())
    assert all(f"the plug-in '{name}' of outside 1.2 cannot be used" in text for name in BROKEN)


def test_plug_ins_that_are_all_broken_cost_no_other_verb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, monkeypatch, {group: {f"bad-{group}": "not_there:x"} for group in plugins.GROUPS})
    page = str(Path(plugins.__file__).parents[1] / "samples" / "job.log.gz")
    for words in (
        ["systems", "--help"],
        ["systems", "p3"],
        ["systems", "torus"],
        ["read", page],
        ["export", "--help"],
        ["convert", "--help"],
        ["workload", "vgg16"],
        [*SIMULATE, "--algorithm", "ring"],
        ["survey", "--json"],
    ):
        assert main(words) == 0, words
        out, error = capsys.readouterr()
        assert "bad-" not in out + error, words
    refused = json.loads(said(capsys, "systems", "--json")[0])["refused"]
    assert {error["what"].split("'")[1] for error in refused} == {f"bad-{group}" for group in plugins.GROUPS}
    for words, name in (
        (["simulate", "all-reduce", "--fabric", "bad-fabrics:2"], "bad-fabrics"),
        (
            ["export", "all-reduce", "--fabric", "ring:2", "--to", "bad-exports", "-o", str(tmp_path / "x")],
            "bad-exports",
        ),
        (["convert", page, "--format", "bad-exports", "-o", str(tmp_path / "x")], "bad-exports"),
        (["workload", "bad-families"], "bad-families"),
        (
            ["simulate", "--model", "vgg16", "--gpus", "2", "--fabric", "ring:2", "--policy", "bad-schedulers"],
            "bad-schedulers",
        ),
    ):
        assert (
            f"the plug-in '{name}' of outside 1.2 cannot be used: ModuleNotFoundError"
            in said(capsys, *words, code=2)[1]
        )


def test_names_stay_with_who_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = {"ring": "rings:other_name", "two:parts": "rings:other_name", "twice": "rings:other_name"}
    install(tmp_path, monkeypatch, {"algorithms": theirs}, rings=RING)
    install(tmp_path, monkeypatch, {"algorithms": {"twice": "rings:other_name"}}, name="elsewhere")
    assert registry.find("ring").origin == plugins.HOUSE
    assert {each.name for each in registry.refused()} == set(theirs)
    with pytest.raises(PluginError, match="one of the same name"):
        registry.find("twice")
    text = " ".join(said(capsys, "systems")[0].split())
    assert "'ring' of outside 1.2 cannot be used: Ringwright has a 'ring' of its own" in text
    assert "'two:parts' of outside 1.2 cannot be used: its name cannot be typed" in text


# --------------------------------------------------------------------------------------------------------- sources
OP_CSV = '''"""Tables of operations, one a line: rank, operation, bytes, microseconds."""
from ringwright.errors import InputError
from ringwright.formats.sources.reader_rows import Gathered


def looks_like(head, name):
    return head.startswith(b"rank,op,bytes,us")


def read_op_csv(sources, *, progress=None):
    """Read operations as CSV."""
    found = Gathered("op-csv")
    for source in sources:
        found.inputs.append(source.name)
        with source.open() as stream:
            rows = stream.read().decode().splitlines()[1:]
        for seq, line in enumerate(rows):
            rank, op, size, us = line.split(",")
            number = found.communicator("world", size=2)
            found.device(int(rank))
            found.events.add(
                kind="collective", source="op-csv", ground="read", confidence=1.0, communicator=number, rank=int(rank),
                sequence=seq // 2, op=op, size_bytes=int(size), duration_s=int(us) / 1e6, multiplicity=1, records=1,
            )
        found.note(source.name, "understood", "operation", len(rows))
    if not found.events.total:
        raise InputError("no operation could be read", where=sources[0].name)
    return found.trace(world=2)


def fails(sources, *, progress=None):
    return {}["gone"]


def answers(sources, *, progress=None):
    return "a trace"


class Bundle:
    """Operations as CSV, by an object that looks and reads."""

    def looks_like(self, head, name):
        return looks_like(head, name)

    def read(self, sources, *, progress=None):
        return read_op_csv(sources)


bundle = Bundle()
'''
ROWS = "rank,op,bytes,us\n" + "".join(f"{rank},all-reduce,1048576,{900 + rank}\n" for rank in (0, 1) * 4)
LOG = "h:1:1 [0] NCCL INFO NCCL version 2.20.5+cuda12.4\n"


def reader(folder: Path, patch: pytest.MonkeyPatch, points: dict[str, str], **modules: str) -> Path:
    """Install readers; return a file that they read."""
    install(folder, patch, {"sources": points}, op_csv=OP_CSV, **modules)
    (folder / "ops.csv").write_text(ROWS)
    return folder / "ops.csv"


@pytest.mark.parametrize("value", ["op_csv:read_op_csv", "op_csv:bundle"])
def test_a_source_reads_what_it_knows(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = reader(tmp_path, monkeypatch, {"op-csv": value})
    told = json.loads(said(capsys, "read", str(file), "--json")[0])
    assert [row["kind"] for row in told["files"]] == ["op-csv"]
    assert value != "op_csv:read_op_csv" or told["files"][0]["what"] == "Read operations as CSV"
    summary = json.loads(said(capsys, "summary", str(file), "--json")[0])
    assert [(row["op"], row["count"]) for row in summary["operations"]] == [("all-reduce", 4)]


def test_a_source_takes_nothing_that_is_surely_of_another_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    greedy = OP_CSV.replace('return head.startswith(b"rank,op,bytes,us")', "return True")
    install(tmp_path, monkeypatch, {"sources": {"op-csv": "greedy:read_op_csv"}}, greedy=greedy)
    from ringwright.formats.sources.detect import kind_of

    assert kind_of(b"bytes,op,time\n", "a.csv") == "op-csv", "the first line of a table is a weak sign"
    assert kind_of(LOG.encode(), "a.log") == "nccl-log"
    assert kind_of(b'{"traceEvents": []}', "a.json") == "kineto"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("gone:read", "ModuleNotFoundError"),
        ("no_look:read", "there is no looks_like(head, name) beside its reader"),
        ("bad_look:read", "ZeroDivisionError"),
    ],
)
def test_a_reader_that_cannot_be_asked_costs_its_own_files_alone(
    value: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = "def looks_like(head, name):\n    return 1 / 0\n\n\ndef read(sources, **_):\n    return None\n"
    file = reader(tmp_path, monkeypatch, {"op-csv": value}, no_look="def read(sources):\n    pass\n", bad_look=bad)
    (tmp_path / "job.log").write_text(LOG)
    told = json.loads(said(capsys, "summary", str(tmp_path / "job.log"), "--json")[0])
    assert not told["passed_over"]
    told = json.loads(said(capsys, "summary", str(tmp_path / "job.log"), str(file), "--json")[0])
    assert "the plug-in 'op-csv' of outside 1.2" in told["passed_over"][0]
    error = said(capsys, "summary", str(file), code=3)[1]
    assert "the plug-in 'op-csv' of outside 1.2" in error
    assert says in error


@pytest.mark.parametrize("value", ["op_csv:fails", "op_csv:answers"])
def test_a_reader_that_fails_is_named_and_spoils_no_other_file(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = reader(tmp_path, monkeypatch, {"op-csv": value})
    (tmp_path / "job.log").write_text(LOG)
    error = said(capsys, "summary", str(file), code=2)[1]
    assert "the plug-in 'op-csv' of outside 1.2" in error
    told = json.loads(said(capsys, "summary", str(tmp_path / "job.log"), str(file), "--json")[0])
    assert "ops.csv: as op-csv: the plug-in 'op-csv' of outside 1.2" in told["passed_over"][0].replace(
        str(tmp_path), ""
    )


# --------------------------------------------------------------------------------------------------------- fabrics
MACHINES = '''"""Machines of others."""
from typing import Annotated

from ringwright.fabrics.ring import ring
from ringwright.ground.knobs import Range, Rate


def pair(*, lanes: Annotated[int, Range(1, 8)] = 1, rate: Rate = 50e9):
    """Two ranks side by side.

    Knobs: ``lanes``: links between the two.
    Source: a drawing.
    """
    return ring(2, rate=rate)


def nothing(ranks):
    """Return no machine."""
'''


def test_a_fabric_of_others_is_built_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    points = {
        "a-pair": "machines:pair",
        "gone": "machines:gone",
        "nothing": "machines:nothing",
        "ring": "machines:pair",
    }
    install(tmp_path, monkeypatch, {"fabrics": points}, machines=MACHINES)
    words = ["simulate", "all-reduce", "--algorithm", "ring", "-b", "1M", "-e", "1M", "--json"]
    theirs = json.loads(said(capsys, *words, "--fabric", "a-pair,rate=10GB/s")[0].replace("a-pair,", "ring:2,"))
    ours = json.loads(said(capsys, *words, "--fabric", "ring:2,rate=10GB/s")[0])
    assert theirs.pop("executor").keys() == ours.pop("executor").keys()  # whose processor time differs
    assert theirs == ours
    told = json.loads(said(capsys, "systems", "a-pair", "--json")[0])
    knobs = {knob["name"]: knob for knob in told["knobs"]}
    assert (told["class"], told["origin"]) == ("fabric", "outside")
    assert (knobs["lanes"]["high"], knobs["lanes"]["meaning"]) == (8, "lanes: links between the two")
    assert knobs["rate"]["meaning"]
    assert json.loads(said(capsys, "systems", "torus", "--json")[0])["origin"] == "house"
    for name in ("gone", "nothing"):
        error = said(capsys, *words, "--fabric", f"{name}:2", code=2)[1]
        assert f"the plug-in '{name}' of outside 1.2 cannot be used" in error
    assert "lanes=" in said(capsys, "systems", "--help")[0]
    refused = [error["what"] for error in json.loads(said(capsys, "systems", "--json")[0])["refused"]]
    assert any("'ring' of outside" in what for what in refused)
    assert any("'gone' of outside" in what for what in refused)


# --------------------------------------------------------------------------------------------------------- exports
WRITERS = '''"""Files of others."""
from pathlib import Path


def steps(program):
    """Write the number of steps."""
    return f"{program.name} {program.n_steps}".encode()


def each_rank(program):
    return [str(rank).encode() for rank in range(program.p)]


def links(topology):
    return str(len(topology.src)).encode()


def count(trace, path, *, force=False):
    Path(path).write_text(str(trace.table("events").height))
    return [Path(path)]


def tasks(workload):
    return {3: str(len(workload.tasks)).encode()}


def words(program):
    return "no bytes"


def odd(something):
    return b""


def silent(trace, path, *, force=False):
    return None
'''
WRITTEN = {name: f"writers:{name}" for name in ("steps", "links", "count", "tasks", "words", "odd", "silent", "gone")}


@pytest.fixture
def writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    points = {**WRITTEN, "each-rank": "writers:each_rank", "goal": "writers:steps"}
    install(tmp_path, monkeypatch, {"exports": points}, writers=WRITERS)
    return tmp_path / "out"


def test_exports_of_others_write_what_they_take(writers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to_file = ["export", "all-reduce", "--fabric", "ring:4", "-o", str(writers), "--force", "--to"]
    said(capsys, *to_file, "steps")
    assert writers.read_bytes() == b"ring 6"
    said(capsys, *to_file, "links")
    assert writers.read_bytes() == b"8"
    said(capsys, *to_file, "each-rank")
    assert [writers.with_name(f"out.{rank}.et").read_bytes() for rank in range(4)] == [b"0", b"1", b"2", b"3"]
    said(capsys, *to_file, "goal")
    assert writers.read_bytes().startswith(b"num_ranks 4"), "a name of ours stays ours"
    sample = str(Path(plugins.__file__).parents[1] / "samples" / "job.log.gz")
    said(capsys, "convert", sample, "--format", "count", "-o", str(writers), "--force")
    assert int(writers.read_text()) > 0
    said(capsys, "workload", "vgg16", "--gpus", "2", "--to", "tasks", "-o", str(writers.parent / "tasks"))
    assert [int(path.read_bytes()) > 10 for path in (writers.parent / "tasks").glob("*.3.et")] == [True]
    for verb in ("export", "convert"):
        assert ("steps" if verb == "export" else "count") in said(capsys, verb, "--help")[0]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("words", "it returned str, not bytes or a list of them"),
        ("odd", "its first parameter is 'something', which is none of program, collective, topology"),
        ("gone", "AttributeError"),
        ("count", "'count' is an export of a Trace, not of a Program or Topology\n  try: ringwright convert"),
    ],
)
def test_an_export_that_is_none_is_named(
    name: str, says: str, writers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = said(capsys, "export", "all-reduce", "--fabric", "ring:4", "-o", str(writers), "--to", name, code=2)[1]
    assert says in error
    assert name == "count" or f"the plug-in '{name}' of outside 1.2" in error
    assert not writers.exists()


def test_an_export_of_a_trace_says_what_it_wrote(writers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample = str(Path(plugins.__file__).parents[1] / "samples" / "job.log.gz")
    error = said(capsys, "convert", sample, "--format", "silent", "-o", str(writers), code=2)[1]
    assert "the plug-in 'silent' of outside 1.2 cannot be used: it returned NoneType" in error


def test_every_export_lies_in_a_folder() -> None:
    from ringwright.calls import export_files, rules
    from ringwright.formats import exports

    for listed in (exports.exports(*exports.TAKES).values(), exports.in_folder(rules.__name__)):
        assert all(callable(each.load()) for each in listed)
    assert set(exports.exports("trace")) == {"chakra", "csv", "jsonl", "otlp", "parquet", "perfetto", "prometheus"}
    assert set(exports.exports("workload")) == {
        *("chakra", "json", "ddp-buckets", "ddp-buckets-py", "fsdp2-prefetch", "fsdp2-prefetch-py"),
        *("megatron-flags", "pipeline-csv", "torchtitan-toml"),
    }
    assert len(export_files.known()) == len(set(export_files.known())) == 16


# -------------------------------------------------------------------------------------------------------- families
MODELS = '''"""Models of others."""
from ringwright.workloads.parts import Anatomy, ModelBlock, linear

SIZES = {"tower-small": {"layers": 3, "hidden": 64, "heads": 4, "positions": 128}, "vgg-16": {"layers": 1, "hidden": 8, "positions": 1},
         "headless": {"layers": 1, "hidden": 8, "positions": 4}}
ALIASES = {"tower": "tower-small"}


def anatomy(dims):
    h = dims["hidden"]
    layers = (linear("up", 4 * h, h), linear("down", h, 4 * h))
    blocks = [ModelBlock(f"layer{at}", layers, ("up", "down")) for at in range(dims["layers"])]
    return Anatomy(tuple(blocks))


class Short:
    SIZES = {"stub": {"layers": 1}}
    anatomy = staticmethod(anatomy)


class Shapeless:
    SIZES = {"stub": {"layers": 1, "positions": 3}}
'''


def test_a_model_family_of_others_is_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    points = {"tower": "models_of_others", "short": "models_of_others:Short", "shapeless": "models_of_others:Shapeless"}
    install(tmp_path, monkeypatch, {"families": {**points, "vgg": "models_of_others"}}, models_of_others=MODELS)
    told = json.loads(said(capsys, "workload", "Tower", "--gpus", "2", "--json")[0])
    assert f"{3 * 2 * 4 * 64 * 64}" in json.dumps(told), "parameters as its anatomy counts them"
    job = ["simulate", "--model", "tower-small", "--gpus", "2", "--fabric", "switch:2", "--policy", "p3", "--json"]
    assert "tower-small" in json.dumps(json.loads(said(capsys, *job)[0]))
    lacks = said(capsys, "workload", "headless", "--gpus", "2", code=2)[1]
    assert "the plug-in 'tower' of outside 1.2 cannot be used: 'headless' has no dimension 'heads'" in lacks
    ours = said(capsys, "workload", "vgg16", "--gpus", "2", "--json")[0]
    assert "138357544" in ours, "a name of ours stays ours"
    error = said(capsys, "workload", "no-such-model", "--gpus", "2", code=2)[1]
    assert "the plug-in 'short' of outside 1.2 cannot be used: 'stub' has neither a dimension 'positions'" in error
    assert "the plug-in 'shapeless' of outside 1.2 cannot be used: it has no function anatomy(dims)" in error
    assert "tower-small" in error


MORE_MODELS = """
from ringwright.workloads.parts import Anatomy, Layer, ModelBlock, linear


class Patches:
    SIZES = {"seer": {"layers": 2, "hidden": 64, "heads": 4, "image": 32, "patch": 8}}
    REFUSED = {"pp": ("it was never cut into stages", "dp")}

    @staticmethod
    def tokens(dims):
        return (dims["image"] // dims["patch"]) ** 2

    @staticmethod
    def untrained(dims):
        return 7

    @staticmethod
    def anatomy(dims):
        layers = (linear("up", 256, 64, "columns"), linear("down", 64, 256, "rows"))
        return Anatomy(tuple(ModelBlock(f"layer{at}", layers) for at in range(dims["layers"])))


class Tables:
    SIZES = {"ranker": {"tables": 4, "rows": 400, "lookups": 1, "width": 8}}

    @staticmethod
    def anatomy(dims):
        tables = tuple(Layer(f"table{at}", ((100, 8),), "tables") for at in range(4))
        return Anatomy((ModelBlock("tables", tables, unit="root"), ModelBlock("top", (linear("top1", 1, 18),))))


class Blind:
    SIZES = {"blind": {"image": 32}}
    anatomy = Tables.anatomy
"""


def test_a_family_of_others_may_cut_images_share_tables_and_refuse_forms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    points = {name: f"more_of_others:{name.title()}" for name in ("patches", "tables", "blind")}
    install(tmp_path, monkeypatch, {"families": points}, more_of_others=MORE_MODELS)
    told = json.loads(said(capsys, "workload", "seer", "--gpus", "4", "--parallel", "tp2", "--json")[0])
    assert told["parameters"] == 2 * 2 * 64 * 256 + 7
    assert "an image is 16 tokens" in told["assumptions"]
    assert {row["bytes"] for row in told["requests"] if row["role"] == "tp"} == {32 * 16 * 64 * 2}
    assert "never cut into stages" in said(capsys, "workload", "seer", "--parallel", "pp2", code=2)[1]
    told = json.loads(said(capsys, "workload", "ranker", "--gpus", "2", "--json")[0])
    assert {row["role"] for row in told["requests"]} == {"mp", "dp"}
    error = said(capsys, "workload", "no-such-model", code=2)[1]
    assert "'blind' takes images, but it has neither sides(dims) nor tokens(dims)" in error


def test_the_files_of_families_are_the_list() -> None:
    from ringwright.workloads import families, model_cards, models

    files = {path.stem.replace("_", "-") for path in Path(families.__file__).parent.glob("*.py")} - {"--init--"}
    assert set(families.of_house()) == files
    assert set(model_cards.FAMILIES) == {"bert", "deepseek-v3", "gpt2", "llama", "mixtral", "resnet", "vgg"}
    assert (set(model_cards.IMAGES), set(model_cards.MIXTURES)) == ({"resnet", "vgg"}, {"mixtral", "deepseek-v3"})
    assert models.model("DeepSeek").size == models.model("deepseek_v3").size == "deepseek-v3"
    assert models.usual_sequence(models.model("mixtral")) == 4096


# ------------------------------------------------------------------------------------------------------- executors
def test_the_files_of_executors_are_the_list() -> None:
    from ringwright.execute import executors, offered

    files = {path.stem.replace("_", "-") for path in Path(offered.__file__).parent.glob("*.py")} - {"--init--"}
    assert set(executors.EXECUTORS) == files
    assert all(each.name == name and each.says for name, each in executors.EXECUTORS.items())


# -------------------------------------------------------------------------------------------------------- the page
@pytest.mark.slow
@pytest.mark.usefixtures("forked_ranks")
def test_every_line_of_the_page_on_plug_ins_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its files, put together by name, its entry points, and its commands, as they stand there."""
    page = (Path(__file__).resolve().parents[1] / "docs" / "how-to" / "plug-ins.md").read_text()
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)
    modules: dict[str, str] = {}
    for text in (text for kind, text in blocks if kind == "python" and text.startswith("# file: ")):
        name = text.partition("\n")[0].removeprefix("# file: ").removesuffix(".py")
        modules[name] = modules.get(name, "") + text
    groups = tomllib.loads(next(text for kind, text in blocks if kind == "toml"))["project"]["entry-points"]
    points = {key.removeprefix("ringwright."): rows for key, rows in groups.items()}
    assert set(points) == set(plugins.GROUPS)
    install(tmp_path, monkeypatch, points, **modules)
    monkeypatch.chdir(tmp_path)
    commands = [line[2:] for kind, text in blocks if kind == "console" for line in text.splitlines()]
    assert len(commands) > 12
    said_all = ""
    for command in commands:
        if command.startswith("printf"):
            subprocess.run(command, shell=True, check=True)
            continue
        said_all += said(capsys, *shlex.split(command)[1:])[0]
    assert not json.loads(said(capsys, "systems", "--json")[0])["refused"]
    assert (tmp_path / "steps.txt").read_text().split() == ["8"] * 14
    names = ("my-ring", "whole-gradients", "op-list", "step-list", "my-pair", "tower")
    for name in (*names, "signs", "elements", "polite"):
        assert name in said_all
    outcomes = [*check_codec("signs"), *check_pipeline("one-by-one"), *check_law("elements"), *check_executor("polite")]
    assert failures(outcomes) == []
