"""What the player shows is what the engine says: arrivals, loads and routes, whole and cut, and the steps on what a log named."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures_summary import job_summary
from ringwright.analysis.summary import summarise
from ringwright.analysis.topology_view import TopologyView
from ringwright.calls.detail import detail
from ringwright.calls.message_playback import FollowedRun, all_followed, follow, followed
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.engines.machine import FOREVER
from ringwright.engines.passages import passages
from ringwright.fabrics import fabric
from ringwright.formats.sources import read
from ringwright.ground.documents import read_json
from ringwright.ground.units import format_size
from ringwright.reports import cuts
from ringwright.reports.completion import complete
from ringwright.reports.draw.log_player import log_play
from ringwright.reports.draw.player import PARTS, Play, PlayedRun, play
from ringwright_lab.testing.nccl_job import make_job
from ringwright_lab.testing.nccl_log import write_log

MACHINES = ("dgx-a100:2", "torus:4x4", "fat-tree:16", "dgx-h100:4")


@cache
def seen(name: str, algorithm: str, op: str = "all-reduce", engine: str = "events") -> FollowedRun:
    question = SimulationSpec(op, fabric(name), engine)
    one = followed(question, detail(question, algorithm, 1 << 20))
    assert isinstance(one, FollowedRun)
    return one


def played(one: FollowedRun) -> tuple[Play, PlayedRun]:
    assert one.run.machine is not None
    made, _ = play(one.run.machine.topology, [one])
    assert made is not None
    return made, made["runs"][0]


def begins(run: PlayedRun) -> list[int]:
    return list(accumulate(run["messages"]["start"]))


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [
        *((name, algorithm) for name in MACHINES for algorithm in ("ring", "double-binary-tree")),
        ("switch:8,sharp=true", "sharp"),
        ("dgx-h100:2", "nvls-tree"),
    ],
)
def test_bytes_that_arrived_by_any_moment_are_those_of_the_engine(name: str, algorithm: str) -> None:
    one = seen(name, algorithm)
    flat, (_, run) = one.run.flat, played(one)
    assert flat is not None
    assert not one.left
    columns = run["messages"]
    ends = np.array(begins(run)) + columns["length"]
    to = np.array([run["routes"][route]["names"][1] for route in columns["route"]])
    sizes = np.array(columns["bytes"])
    between = flat.src != flat.dst
    for moment in [*np.linspace(0, one.run.time_ps, 23).astype(int).tolist(), *np.unique(one.run.end_ps)[::7].tolist()]:
        came = between & (one.run.end_ps <= moment)
        for rank in range(fabric(name).n_ranks):
            told = sizes[(ends <= moment) & (to == f"rank {rank}")].sum()
            assert told == flat.size_bytes[came & (flat.dst == rank)].sum(), (moment, rank)
    assert run["end"] == one.run.time_ps


@pytest.mark.parametrize("name", ["dgx-a100:2", "torus:4x4", "fat-tree:16"])
def test_load_over_the_whole_time_is_the_bytes_of_each_link(name: str) -> None:
    one = seen(name, "ring")
    topology = fabric(name)
    (made, run), load = played(one), played(one)[1]["load"]
    assert load is not None
    wide = run["end"] / PARTS
    directions = {(link["ends"]): number for number, link in enumerate(made["pictures"][0]["links"])}
    assert len(directions) * 2 == topology.n_links
    assert made["pictures"][0]["nodes"][0]["text"] == "0"
    for link, (src, dst) in enumerate(zip(topology.src.tolist(), topology.dst.tolist(), strict=True)):
        at = 2 * directions[min(src, dst), max(src, dst)] + int(src > dst)
        busy_ps = sum(load["courses"][load["links"][at]]) / 1000 * wide
        assert busy_ps == pytest.approx(one.run.busy_ps[link], abs=PARTS * wide / 1000)


def test_load_of_a_folded_picture_is_the_bytes_of_all_its_links() -> None:
    whole = seen("dgx-h100:8", "ring")
    one = follow("ring", whole.program, whole.run, 1_000_000)
    assert isinstance(one, FollowedRun)
    topology = fabric("dgx-h100:8")
    made, run = played(one)
    load, picture = run["load"], made["pictures"][0]
    assert load is not None
    assert not one.left
    assert len(picture["nodes"]) < topology.n_nodes
    hosts = [number for number, node in enumerate(picture["nodes"]) if node["kind"] == "host"]
    assert len(hosts) == 8
    node_of = {f"rank {rank}": hosts[rank // 8] for rank in range(64)}
    assert all(route["nodes"] == tuple(node_of[name] for name in route["names"]) for route in run["routes"])
    out = [
        2 * number + link["ends"].index(hosts[3])
        for number, link in enumerate(picture["links"])
        if hosts[3] in link["ends"]
    ]
    mine = [link for link in range(topology.n_links) if topology.label(int(topology.src[link])).startswith("node3/nic")]
    mine = [link for link in mine if not topology.label(int(topology.dst[link])).startswith("node3/")]
    rate = topology.rate[mine].sum()
    shown = sum(sum(load["courses"][load["links"][at]]) for at in out) / 1000 / PARTS * run["end"] / 1e12 * rate
    assert shown == pytest.approx(one.run.bytes[mine].sum(), rel=0.02)


@pytest.mark.parametrize("name", MACHINES)
def test_a_message_passes_each_link_of_its_route_between_its_begin_and_its_end(name: str) -> None:
    made, run = played(seen(name, "ring"))
    links = made["pictures"][0]["links"]
    passes = iter(run["messages"]["passes"])
    for route, length in zip(run["messages"]["route"], run["messages"]["length"], strict=True):
        there = run["routes"][route]
        at = there["nodes"][0]
        for link in there["links"]:
            ends = links[link >> 1]["ends"]
            here, at_next = ends if not link & 1 else ends[::-1]
            assert here == at
            at = at_next
            enters, stays = next(passes), next(passes)
            assert 0 <= enters <= enters + stays <= length
            last = enters + stays
        assert last == length, "its last byte has left its last link when it has arrived"
        assert at == there["nodes"][1]
    assert next(passes, None) is None


def test_passages_of_late_ranks_and_faults_begin_when_the_run_says() -> None:
    question = SimulationSpec("all-reduce", fabric("torus:2x3"), "events", arrivals="0,5us,0,40us,0,0")
    one = followed(question, detail(question, "ring", 1 << 16))
    assert isinstance(one, FollowedRun)
    assert one.passages.is_exact
    flat = one.run.flat
    assert flat is not None
    assert (one.passages.begin_ps[flat.hop_starts[:-1]] == one.run.start_ps).all()


def test_a_run_of_another_clock_is_spread_and_said() -> None:
    one = seen("torus:2x3", "ring")
    other = replace(one.run, start_ps=one.run.start_ps + (np.arange(len(one.run.start_ps)) == 3))
    spread = passages(one.program, other)
    assert not spread.is_exact
    flows = seen("torus:2x3", "ring", engine="flows")
    assert not flows.passages.is_exact
    assert 0 < flows.passages.share.max() <= 1
    assert "drawn on all of its links" in played(flows)[1]["note"]
    assert "drawn on all of its links" not in played(one)[1]["note"]


def test_a_run_that_is_too_long_is_shown_from_its_beginning_and_exactly() -> None:
    whole = seen("dgx-a100:2", "ring")
    short = follow("ring", whole.program, whole.run, 200)
    assert isinstance(short, FollowedRun)
    assert 0 < len(short.messages) < len(whole.messages)
    assert len(short.messages) + short.left == len(whole.messages)
    assert (whole.run.start_ps[short.messages] < short.until_ps).all()
    done = short.passages.stop_ps < FOREVER
    assert done.any()
    assert not done.all()
    assert (short.passages.begin_ps[done] == whole.passages.begin_ps[done]).all()
    assert (short.passages.stop_ps[done] == whole.passages.stop_ps[done]).all()
    assert (whole.passages.begin_ps[~done] >= short.until_ps).all()
    _, run = played(short)
    assert run["end"] == short.until_ps
    assert f"{len(short.messages):,} of {len(whole.messages):,} messages" in run["note"]
    assert follow("ring", whole.program, whole.run, 3) == "16 of its messages begin at once, more than a page can hold"


def test_chunks_have_the_names_of_the_program() -> None:
    _, run = played(seen("torus:2x3", "ring"))
    first = [run["chunks"][chunk] for chunk in run["messages"]["chunk"][:6]]
    assert sorted(first) == [f"chunk {number}" for number in range(6)]


def test_what_is_not_played_is_said_and_pages_stay_small() -> None:
    question = SimulationSpec("all-to-all", fabric("dgx-h100:16"), "events")
    told = all_followed(question, [detail(question, "pairwise", 1 << 20)] * 5)
    made, notes = play(question.topology, told)
    assert any("a page plays 4 algorithms" in note for note in notes)
    assert any("folded" in note for note in notes)
    assert made is not None
    assert 100_000 < len(json.dumps(made, separators=(",", ":"))) < 1_500_000
    assert play(fabric("torus:20x20"), told)[0] is None
    beside = SimulationSpec("all-reduce", fabric("torus:2x3"), "flows", beside=question.beside or ("x",))  # type: ignore[arg-type]
    assert followed(beside, detail(replace(beside, beside=()), "ring", 1 << 10)) == (
        "the messages of the job beside it are not followed"
    )


def topology_of(view: object) -> Play:
    made = log_play(view)  # type: ignore[arg-type]
    assert made is not None
    return made


def held_after(run: PlayedRun, chunks: int) -> dict[str, list[dict[str, int]]]:
    """Return how often each rank holds the part of each rank, by chunk, after the steps of a run."""
    names = sorted({name for route in run["routes"] for name in route["names"]})
    state = {name: [{name: 1} for _ in range(chunks)] for name in names}
    columns, starts, step = run["messages"], begins(run), -1
    before = state
    for at, route in enumerate(columns["route"]):
        if starts[at] != step:
            step = starts[at]
            before = {name: [dict(each) for each in held] for name, held in state.items()}
        src, dst = run["routes"][route]["names"]
        chunk = columns["chunk"][at]
        coming = before[src][chunk]
        mine = state[dst][chunk] if columns["adds"][at] else {}
        state[dst][chunk] = {name: coming.get(name, 0) + mine.get(name, 0) for name in {*coming, *mine}}
    return state


def logged(folder: Path, hosts: int, gpus: int) -> dict[str, Any]:
    """Return the summary of a log that names rings and trees."""
    log = write_log(make_job(hosts, gpus), "2.19", subsystems=("INIT", "GRAPH", "NET"))
    (folder / "job.log").write_bytes(log.text)
    return summarise(read([str(folder / "job.log")]))


@pytest.mark.parametrize(("hosts", "gpus"), [(2, 8), (1, 4), (4, 2)])
def test_steps_on_the_rings_and_trees_of_a_log_are_an_all_reduce(hosts: int, gpus: int, tmp_path: Path) -> None:
    made = topology_of(read_json(TopologyView, logged(tmp_path, hosts, gpus)["topology"]))
    kinds = [run["name"].partition(" ")[0] for run in made["runs"]]
    assert "ring" in kinds
    assert "tree" in kinds
    for run in made["runs"]:
        chunks = len(run["chunks"])
        names = {name for route in run["routes"] for name in route["names"]}
        for held in held_after(run, chunks).values():
            assert all(each == dict.fromkeys(names, 1) for each in held), run["name"]
        links = made["pictures"][run["picture"]]["links"]
        for route in run["routes"]:
            for link in route["links"]:
                ends = links[link >> 1]["ends"]
                assert route["nodes"] == (ends if not link & 1 else ends[::-1])
        assert "a log has no times" in run["note"]


def test_a_ring_of_many_ranks_is_cut_at_a_step() -> None:
    ranks = list(range(100))
    members = [{"rank": r, "global_rank": r, "host": f"h{r // 8}", "device": r % 8, "bus_id": None} for r in ranks]
    shown = {"communicator": 0, "size": 100, "members": members, "links": []}
    ring = {"communicator": 0, "channel": 0, "ranks": ranks, "ground": "read", "host_crossings": 13}
    (run,) = topology_of(read_json(TopologyView, {"rings": [ring], "trees": [], "shown": shown}))["runs"]
    assert run["end"] == 81_000
    assert len(run["messages"]["route"]) == 8_100
    assert "the first 81 of 198 steps" in run["note"]
    assert log_play(TopologyView()) is None


@pytest.mark.parametrize(("hosts", "unit", "size"), [(1, "rank", 8), (8, "rank", 64), (64, "host", 64)])
def test_a_matrix_has_labels_bands_and_words(hosts: int, unit: str, size: int) -> None:
    drawn = cuts.matrix(complete(job_summary(hosts=hosts)))
    assert drawn is not None
    assert (drawn.unit, drawn.size, len(drawn.ticks)) == (unit, size, size)
    assert drawn.ticks[3] == ("3" if unit == "rank" else drawn.labels[3])
    named = [(8 * host, f"node{host:02}") for host in range(hosts)]
    assert [tuple(each) for each in drawn.bands] == (named if unit == "rank" else [])
    assert "pairs send" in drawn.words
    most = max(range(0, len(drawn.sent), 3), key=lambda at: drawn.sent[at + 2])
    src, dst, value = drawn.sent[most : most + 3]
    largest = f"{drawn.labels[src]} to {drawn.labels[dst]} {format_size(drawn.values[value])}"
    assert f"Most: {largest}, " in drawn.words
