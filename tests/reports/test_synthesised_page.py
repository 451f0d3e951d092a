"""The page of a search for programs: what it says is what was found, on machines that fit a picture and on those that do not."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from ringwright.cli import main
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply
from ringwright.reports.calls import synthesised
from ringwright.reports.draw import machine_picture
from ringwright.reports.draw.curves import Spot, apex, line
from ringwright.reports.draw.load_picture import load_picture
from ringwright.reports.draw.machine_graph import hosts_of_nodes, spans
from ringwright.reports.draw.rank_grid import rank_grid
from ringwright.reports.draw.tree_maps import tree_maps
from ringwright.reports.pages.synthesised_page import synthesis_page
from ringwright.search import study
from ringwright.search.best_run import SeenProgram, seen
from ringwright.search.question import SynthesisSpec
from ringwright.search.study import Synthesised

VOID = {"meta", "link", "br", "hr", "input"}


@pytest.fixture(autouse=True, scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RINGWRIGHT_PROGRAMS", str(tmp_path_factory.mktemp("programs")))
        yield


class Read(HTMLParser):
    """A page as it was read: elements with their attributes and texts; what is not closed is an error."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1], data.strip()))

    def of(self, tag: str, kind: str = "") -> list[dict[str, str]]:
        """Return the attributes of the elements of a tag, of a class where one is named."""
        return [
            each for name, each in self.elements if name == tag and (not kind or kind in each.get("class", "").split())
        ]

    def said(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]


@cache
def answered(
    op: str, name: str, method: str, *, rivals: bool = False, fault: str = ""
) -> tuple[Synthesised, SeenProgram]:
    topology = fabric(name)
    question = SynthesisSpec(op, apply(topology, [fault]) if fault else topology)
    result = study.synthesise(question, [1 << 20], method, rivals=rivals)
    return result, seen(result)


def page(op: str, name: str, method: str, *, rivals: bool = False, fault: str = "") -> Read:
    result, shown = answered(op, name, method, rivals=rivals, fault=fault)
    return Read(synthesis_page(result, shown, "ringwright synthesise", ["--fabric", name]))


def test_the_page_begins_with_the_answer_and_loads_nothing() -> None:
    result, shown = answered("all-gather", "torus:2x3", "forest", rivals=True)
    text = synthesis_page(result, shown, "ringwright synthesise", ["--fabric", "torus:2x3"])
    read = Read(text)
    (heading,) = read.said("h1")
    row = result.largest
    assert heading == synthesised.sentence(result)
    assert heading.startswith(f"forest: 1 MiB all-gather on torus:2x3 in {row.time_us:,.2f} us, ")
    first = result.rivals[0]
    assert f"{first.ratio:.2f} times as fast as {first.algorithm}" in heading
    assert not re.search(r"https?://(?!www\.w3\.org)|src=|@import|url\((?!#)", text)
    assert {each["id"] for each in read.of("section")} == {
        each["href"][1:] for each in read.of("a") if each["href"] != "#main"
    }
    for each in read.of("svg"):
        assert each["role"] == "img"
        assert each["aria-label"]
    assert all(each["tabindex"] == "0" and each["aria-label"] for each in read.of("div", "scroll"))


@pytest.mark.parametrize(
    ("op", "name", "method"),
    [("all-gather", "torus:2x3", "forest"), ("all-gather", "dgx-1:1", "sccl"), ("all-reduce", "dgx-a100:2", "taccl")],
)
def test_every_node_link_and_move_is_drawn_once(op: str, name: str, method: str) -> None:
    result, shown = answered(op, name, method)
    topology, read = result.question.topology, page(op, name, method)
    drawn = [kind for kind in ("rank", "nic", "switch") for _ in read.of("g", kind) if kind != "rank"]
    circles = len(read.of("circle"))
    ranks = len(read.of("g", "rank")) + len(read.of("g", "root")) - circles
    assert len(drawn) + ranks == topology.n_nodes
    pairs = {tuple(sorted(ends)) for ends in zip(topology.src.tolist(), topology.dst.tolist(), strict=True)}
    links = [each for each in read.of("path") if re.match(r"u[0-5]", each.get("class", ""))]
    assert len(links) == len(pairs)
    cut = result.largest.proof.sets[0] if len(result.largest.proof.sets) == 1 else ()
    assert len(read.of("g", "cut")) == len(cut)
    assert bool(read.of("path", "crossing")) == bool(cut)
    moves = sum(len(tree.src) for tree in shown.trees[:8])
    assert len([each for each in read.of("path") if "marker-end" in each]) == moves


def test_what_a_fault_slows_is_dotted_and_said() -> None:
    read = page("all-gather", "dgx-a100:2", "taccl", fault="link node0/gpu0>node0/nic0 rate 50%")
    (ill,) = read.of("path", "ill")
    assert "u" in ill["class"]
    assert any("under faults" in text for text in read.said("title"))
    assert any("Faults: link node0/gpu0>node0/nic0 rate 50%; slower links" in text for text in read.said("p"))


def test_many_ranks_are_folded_by_host_and_the_first_host_is_drawn() -> None:
    read = page("all-gather", "dgx-h100:8", "p2")
    assert len(read.of("g", "host")) == 8
    assert any("node7 ranks 56-63" in text for text in read.said("text"))
    assert any("folded" in text for text in read.said("p"))
    topology = fabric("torus:20x20")
    drawn, why = machine_picture.pictures(topology, None, ())
    assert not drawn
    assert "400 ranks are more than a picture can show" in why


@pytest.mark.parametrize("name", ["torus:8x8", "leaf-spine:64", "gb200-nvl72:1", "rail-optimised:32", "hypercube:16"])
def test_no_two_nodes_of_a_picture_overlap(name: str) -> None:
    drawn, _ = machine_picture.pictures(fabric(name), None, ())
    assert drawn
    for picture in drawn:
        for here in picture["nodes"]:
            assert here["x"] >= 0
            assert here["x"] + here["width"] <= picture["width"]
            assert here["y"] + here["height"] <= picture["height"]
            for there in picture["nodes"]:
                apart = abs(here["cx"] - there["cx"]) >= (here["width"] + there["width"]) / 2 - 0.2
                assert here is there or apart or abs(here["cy"] - there["cy"]) >= here["height"]


@pytest.mark.parametrize(
    ("name", "columns", "rows"),
    [("torus:4x4", 4, 4), ("torus:2x2x4", 11, 2), ("dgx-a100:2", 8, 2), ("hypercube:16", 4, 4), ("mesh:3x3", 3, 3)],
)
def test_ranks_stand_along_the_axes_each_for_itself(name: str, columns: int, rows: int) -> None:
    topology = fabric(name)
    grid = rank_grid(topology)
    assert (grid.columns, grid.rows) == (columns, rows)
    assert len(set(zip(grid.x, grid.y, strict=True))) == topology.n_ranks
    if name.startswith("hypercube"):
        ends = zip(topology.src.tolist(), topology.dst.tolist(), strict=True)
        steps = [abs(grid.x[a] - grid.x[b]) + abs(grid.y[a] - grid.y[b]) for a, b in ends]
        assert set(steps) == {1, 3}, "neighbours are beside each other, or at the other end of a row"


def test_nodes_belong_to_the_host_that_they_serve() -> None:
    topology = fabric("dgx-a100:2")
    hosts = hosts_of_nodes(topology)
    for node in range(topology.n_nodes):
        prefix = topology.label(node).partition("/")[0]
        assert hosts[node] == (int(prefix.removeprefix("node")) if prefix.startswith("node") else -1)


def test_the_load_is_drawn_to_the_end_and_adds_up() -> None:
    _, shown = answered("all-gather", "dgx-a100:2", "taccl", fault="link node0/gpu0>node0/nic0 rate 50%")
    assert shown.load is not None
    drawn = load_picture(shown.run, shown.load)
    assert 0 < len(drawn["rows"]) <= 40
    shares = [float(row["share"].removesuffix(" %")) for row in drawn["rows"]]
    assert shares == sorted(shares, reverse=True)
    for row in drawn["rows"]:
        ends = [(strip["x"], strip["x"] + strip["width"]) for strip in row["strips"]]
        assert all(left >= before - 0.2 for (_, before), (left, _) in pairwise(ends))
        assert ends[-1][1] <= 932.2
    assert "carry nothing" in drawn["note"]


def test_what_is_too_large_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from ringwright.search import best_run as module
    from ringwright.search import chunk_routes

    monkeypatch.setattr(chunk_routes, "MOST_MOVES", 3)
    monkeypatch.setattr(module, "MOST_HOPS", 3)
    result, _ = answered("all-gather", "torus:2x3", "forest")
    shown = module.seen(result)
    read = Read(synthesis_page(result, shown, "ringwright synthesise", ["--fabric", "torus:2x3"]))
    assert shown.load is None
    said = read.said("p")
    assert any("more than are followed one by one" in text for text in said)
    assert any("too many to follow chunk by chunk" in text for text in said)
    assert read.of("figure", "steps"), "steps are drawn instead"


def test_names_are_text_whatever_they_hold() -> None:
    result, shown = answered("all-gather", "torus:2x3", "forest")
    names = [f"<script>{rank}" for rank in range(6)]
    topology = replace(result.question.topology, name='"><b>', names=names)
    hostile = replace(result, question=replace(result.question, topology=topology))
    text = synthesis_page(hostile, shown, "<i>", ["--fabric", "<u>"])
    assert "<script>0" not in text
    assert "<b>" not in text.replace("<b>Ground</b>", "")
    assert "<i>" not in text
    Read(text)


def test_a_wrong_or_stopped_program_is_said() -> None:
    result, shown = answered("all-gather", "torus:2x3", "forest")
    for change, said in (
        ({"verified": False}, "NOT right"),
        ({"verified": None}, "was not run"),
        ({"stopped": True}, "the best so far"),
    ):
        row = replace(result.rows[0], **change)  # type: ignore[arg-type]
        text = synthesis_page(replace(result, rows=(row,)), replace(shown, row=row), "", [])
        assert any(said in each for each in Read(text).said("p"))


def test_the_commands_that_come_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for method in ("forest", "sccl"):
        commands = [text for text in page("all-gather", "torus:2x3", method).said("code") if text.count(" ") > 2]
        assert len(commands) == 4
        for command in (commands[0], commands[2]):
            assert main(shlex.split(command)[1:]) == 0
    assert (tmp_path / "best.xml").stat().st_size > 0


def test_a_root_that_is_none_is_said() -> None:
    _, shown = answered("all-reduce", "dgx-a100:2", "gc3")
    told = tree_maps(shown.program, fabric("dgx-a100:2"), shown.trees)
    assert all(tree["colour"] <= 8 for tree in told["maps"])
    assert {tree.root for tree in shown.trees} == {-1} or "sent from there" in told["lead"]


def test_the_verb_writes_the_page_and_keeps_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "page.html"
    words = ["synthesise", "all-gather", "--fabric", "ring:4", "--size", "1M", "--alone", "--html", str(target)]
    assert main(words) == 0
    assert f"wrote {target}" in capsys.readouterr().out.replace("\n", "")
    Read(target.read_text())
    assert main(words) == 2
    assert main([*words, "--force", "--json"]) == 0
    assert capsys.readouterr().out.startswith("{")


def test_lines_bend_and_end_where_they_should() -> None:
    assert line(Spot(0, 0), Spot(10, 0)) == "M0.0 0.0L10.0 0.0"
    assert line(Spot(0, 0), Spot(10, 0), ends=2) == "M2.0 0.0L8.0 0.0"
    assert line(Spot(0, 0), Spot(10, 0), shift=3) == "M0.0 3.0L10.0 3.0"
    assert line(Spot(0, 0), Spot(10, 0), bend=4) == "M0.0 0.0Q5.0 -8.0 10.0 0.0"
    assert apex(Spot(0, 0), Spot(10, 0), 4) == Spot(5, -4)
    assert spans([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"


def test_shades_grow_with_the_load() -> None:
    shades = [machine_picture.shade(share) for share in np.linspace(0, 1, 101)]
    assert shades == sorted(shades)
    assert (shades[0], shades[1], shades[-1]) == (0, 1, 5)
