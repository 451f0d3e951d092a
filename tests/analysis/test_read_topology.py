"""Rings, trees, NICs and neighbours of a log without operations: read, computed on, printed and drawn."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from typing import Any

import polars as pl
import pytest

from ringwright.analysis.summary import summarise
from ringwright.analysis.topology_view import CommunicatorView, TopologyView
from ringwright.cli.reading import inputs
from ringwright.formats.sources import read
from ringwright.ground.documents import read_json
from ringwright.reports import html, terminal, topology_names
from ringwright.reports import topology as topology_report
from ringwright.reports.draw import ring_pictures, tree_pictures
from ringwright_lab.testing.nccl_job import make_job
from ringwright_lab.testing.nccl_log import write_log
from shared_data import needs_shared_data, real

GIB = 1 << 30
NO_OPERATIONS = ("INIT", "GRAPH", "NET")


def summary_of(tmp_path: Any, hosts: int, gpus: int, omit: tuple[int, ...] = (), **more: Any) -> dict[str, Any]:
    """The summary of a log that was written without the COLL subsystem."""
    log = write_log(make_job(hosts, gpus, **more), "2.19", subsystems=NO_OPERATIONS, omit_ranks=omit)
    (tmp_path / "job.log").write_bytes(log.text)
    return summarise(read([str(tmp_path / "job.log")]))


def load_of(topology: dict[str, Any], op: str, algorithm: str) -> dict[str, Any]:
    return next(row for row in topology["shown"]["loads"] if (row["op"], row["algorithm"]) == (op, algorithm))


@needs_shared_data
def test_a_ring_of_a_published_log_agrees_with_figures_worked_out_by_hand() -> None:
    """16 ranks on 4 hosts, 4 channels: 2 (16 - 1) / 16 x 1 GiB / 4 on each edge of each channel's ring."""
    summary = summarise(read([str(real("real/nccl-logs/bigscience_all_reduce_bench-32gb-n4.txt"))]))
    topology = summary["topology"]
    assert [ring["ranks"] for ring in topology["rings"]][:2] == [
        list(range(16)),
        [0, 3, 2, 1, 4, 7, 6, 5, 8, 11, 10, 9, 12, 15, 14, 13],
    ]
    assert [(tree["channel"], tree["root"]) for tree in topology["trees"]] == [(0, 0), (1, 2), (2, 12), (3, 14)]
    assert {row["transport"] for row in topology["transports"]} >= {"P2P/IPC", "NET/IB"}
    edge = 2 * 15 * GIB / 16 / 4
    load = load_of(topology, "all-reduce", "ring")
    assert load["link_inside_bytes"] == load["link_between_bytes"] == 2 * edge  # 0-1-2-3 on channels 0, 2; 3>4 likewise
    nics = {(nic["host"], nic["nic"]): nic for nic in load["nics"]}
    # Channels 0 and 2 leave the first host by rank 3 and NIC 3, the others by rank 1 and NIC 1; all come in at rank 0, NIC 1.
    assert nics["r6i6n4", "3"]["sent_bytes"] == nics["r6i6n4", "1"]["sent_bytes"] == 2 * edge
    assert (nics["r6i6n4", "1"]["received_bytes"], nics["r6i6n4", "3"]["received_bytes"]) == (4 * edge, 0)
    assert load["between_hosts_bytes"] == 4 * 4 * edge
    assert load["total_bytes"] == 2 * 15 * GIB
    direct = load_of(topology, "all-to-all", "direct")
    assert (direct["link_between_bytes"], direct["between_hosts_bytes"]) == (GIB / 16, 16 * 12 * GIB / 16)
    near = topology["shown"]["neighbours"][3]
    assert (near["ring_from"], near["ring_to"], near["nics"]) == ([0, 2], [2, 4], ["3"])
    named = next(nic for nic in topology["nics"] if (nic["host"], nic["nic"]) == ("r6i6n4", "3"))
    assert (named["name"], named["ranks"]) == ("hfi1_3", [2, 3])


LOGS = (
    "alcf_VAE_2024-11-08-21-23-14_with_aws.log",
    "alcf_resnet50_2025-01-15-15-59-06_without_aws.log",
    "bigscience_n1_16gb_all_reduce_bench.txt",
    "bigscience_n16_32gb_all_reduce_bench.txt.gz",
)


@needs_shared_data
@pytest.mark.parametrize("name", LOGS)
def test_published_logs_without_operations_show_rings_trees_and_neighbours(name: str) -> None:
    summary = summarise(read([str(real(f"real/nccl-logs/{name}"))]))
    topology = summary["topology"]
    text = terminal.text(summary, width=120)
    assert "topology  communicator 0" in text
    assert "ring of channel" in text
    assert "tree of channel" in text
    page = html.page(summary)
    assert "Ring of channel" in page
    assert "No NIC is named in the input" not in page
    for load in topology["shown"]["loads"]:
        assert load["total_bytes"] > 0
        assert load["nic_named_share"] in (None, pytest.approx(1.0))
        if load["op"] == "all-to-all":
            continue  # goes by no ring or tree; its NICs are not told
        sent, received = (sum(nic[way] for nic in load["nics"]) for way in ("sent_bytes", "received_bytes"))
        assert sent == pytest.approx(received) == pytest.approx(load["between_hosts_bytes"])


@pytest.mark.parametrize(("hosts", "gpus"), [(1, 8), (4, 8), (16, 8)])
def test_every_rank_and_host_stands_in_the_picture(tmp_path: Any, hosts: int, gpus: int) -> None:
    summary = summary_of(tmp_path, hosts, gpus)
    view = read_json(TopologyView, summary["topology"])
    pictures = ring_pictures.rings(view).pictures
    assert [picture.channels for picture in pictures] == [[0], [1]]
    for picture, ring in zip(pictures, view.rings, strict=True):
        assert [square.text for square in picture.squares] == [str(rank) for rank in ring.ranks]
        assert len({(square.x, square.y) for square in picture.squares}) == hosts * gpus
        assert len(picture.lines) == hosts * gpus
        assert Counter(line.kind for line in picture.lines)["net"] == (hosts if hosts > 1 else 0)
        for shape in (*picture.frames, *picture.squares):
            assert 0 <= shape.x < picture.width - shape.width
            assert 0 <= shape.y < picture.height
    drawn = tree_pictures.trees(view).pictures
    told = {rank for box in drawn[0].frames for row in box.ranks for rank in row.text.split()}
    assert told == {str(rank) for rank in range(hosts * gpus)}
    page = html.page(summary)
    assert all(f">node{host + 1:03}</text>" in page for host in range(hosts))
    HTMLParser().feed(page)


def test_large_jobs_fold_to_hosts_and_say_so(tmp_path: Any) -> None:
    found = ring_pictures.rings(read_json(TopologyView, summary_of(tmp_path, 20, 8)["topology"]))
    assert "160 ranks are folded" in found.note
    assert [square.text for square in found.pictures[0].squares][:2] == ["0..7", "8..15"]
    hosts = [f"h{n}" for n in range(200)]
    members = [{"rank": n, "global_rank": n, "host": host, "device": 0} for n, host in enumerate(hosts)]
    shown = {"communicator": 0, "size": 200, "members": members, "links": []}
    ring = {"communicator": 0, "channel": 0, "ranks": list(range(200)), "ground": "read"}
    refused = ring_pictures.rings(read_json(TopologyView, {"shown": shown, "rings": [ring], "trees": []}))
    assert (refused.pictures, "200 hosts" in refused.note) == ([], True)


def test_the_log_of_rank_0_alone_says_what_it_cannot_tell(tmp_path: Any) -> None:
    summary = summary_of(tmp_path, 16, 8, omit=tuple(range(1, 128)))
    topology = summary["topology"]
    assert topology["rings"] == topology["trees"] == []
    assert topology["shown"]["part_rings"][0]["ranks"][:4] == [0, 1, 2, 3]
    notes = " ".join(topology["shown"]["notes"])
    assert "127 of 128 ranks wrote no line here" in notes
    assert "all of the ring of channel 0, 1" in notes
    assert "all of the tree of channel 0, 1" in notes
    text = terminal.text(summary, width=100)
    assert "(the rest was not read)" in " ".join(text.split())
    assert topology["shown"]["loads"] == []
    assert "Topology that was read" in html.page(summary)


def test_a_whole_ring_of_one_hosts_log_is_used_and_unread_hosts_are_said(tmp_path: Any) -> None:
    topology = summary_of(tmp_path, 2, 8, omit=tuple(range(8, 16)))["topology"]
    assert [len(ring["ranks"]) for ring in topology["rings"]] == [16, 16]
    assert topology["rings"][0]["host_crossings"] is None
    assert load_of(topology, "all-gather", "ring")["total_bytes"] == 15 * GIB
    assert any("8 of 16 ranks wrote no line" in note for note in topology["shown"]["notes"])
    assert {box.title for box in ring_pictures.rings(read_json(TopologyView, topology)).pictures[0].frames} == {
        "node001",
        topology_names.UNKNOWN,
    }


def test_of_several_communicators_the_largest_is_shown_and_the_others_are_counted(tmp_path: Any) -> None:
    topology = summary_of(tmp_path, 4, 4, tp=4)["topology"]
    assert topology["shown"]["size"] == 16
    assert topology["communicators"] > 4
    assert "more communicators have paths" in topology_report.title(read_json(TopologyView, topology))
    assert len({ring["communicator"] for ring in topology["rings"]}) == topology["communicators"]


def test_each_end_of_a_connection_keeps_its_own_nic(tmp_path: Any) -> None:
    head = "n{h}:{p}:{p} [0] NCCL INFO "
    lines = []
    for rank in range(2):
        who = head.format(h=rank, p=100 + rank)
        init = f"comm 0xa rank {rank} nranks 2 cudaDev 0 busId 1000 commId 0x1 - Init"
        lines += [f"{who}ncclCommInitRank {init} START"]
        lines += [f"{who}Channel 00/01 :    0   1"] if rank == 0 else []
        lines += [
            f"{who}Channel 00/0 : {a}[0] -> {b}[0] [{way}] via NET/IB/{5 if way == 'send' else 2}/GDRDMA"
            for a, b, way in ((rank, 1 - rank, "send"), (1 - rank, rank, "receive"))
        ]
        lines += [f"{who}ncclCommInitRank {init} COMPLETE"]
    (tmp_path / "a.log").write_text("\n".join(lines) + "\n")
    topology = summarise(read([str(tmp_path / "a.log")]))["topology"]
    load = load_of(topology, "all-gather", "ring")
    assert [(n["host"], n["nic"], n["sent_bytes"], n["received_bytes"]) for n in load["nics"]] == [
        ("n0", "2", 0.0, GIB / 2),
        ("n0", "5", GIB / 2, 0.0),
        ("n1", "2", 0.0, GIB / 2),
        ("n1", "5", GIB / 2, 0.0),
    ]
    assert topology["shown"]["rails"] == {"connections": 2, "same_nic_at_both_ends": 0}


def test_a_nic_row_that_lost_its_name_is_left_out(tmp_path: Any) -> None:
    """As a capture whose topology table was damaged holds it."""
    log = write_log(make_job(2, 2), "2.19", subsystems=NO_OPERATIONS)
    (tmp_path / "job.log").write_bytes(log.text)
    trace = read([str(tmp_path / "job.log")])
    whole = summarise(trace)["topology"]["nics"]
    nameless = pl.when(pl.col("kind") == "nic").then(None).otherwise(pl.col("nic"))
    trace.tables["topology"] = trace.table("topology").lazy().with_columns(nic=nameless)
    kept = summarise(trace)["topology"]["nics"]
    assert {(row["host"], row["nic"]) for row in kept} <= {(row["host"], row["nic"]) for row in whole}
    assert all(row["name"] is None for row in kept)
    assert any(row["name"] for row in whole)


def test_nothing_read_is_nothing_shown(tmp_path: Any) -> None:
    log = write_log(make_job(1, 2), "2.19", subsystems=("INIT",))
    (tmp_path / "job.log").write_bytes(re.sub(rb"[^\n]*via P2P[^\n]*\n", b"", log.text))
    summary = summarise(read([str(tmp_path / "job.log")]))
    assert {name: summary["topology"][name] for name in ("rings", "trees", "transports")} == {
        "rings": [],
        "trees": [],
        "transports": [],
    }
    assert "No ring, tree, connection or NIC was read" in html.page({**summary, "topology": None})


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_section_fits_any_width(tmp_path: Any, width: int) -> None:
    text = terminal.text(summary_of(tmp_path, 2, 4), width=width)
    assert max(len(line) for line in text.splitlines() if not line.startswith("    $ ")) <= width
    assert "896 MiB" in text


@needs_shared_data
def test_rings_that_were_printed_cut_short_are_closed_by_what_must_be() -> None:
    """64 ranks, lists cut at 20: on channels 1 and 3 most links serve a tree too, so that a search alone gets lost."""
    summary = summarise(read([str(real("real/nccl-logs/bigscience_n16_32gb_all_reduce_bench.txt.gz"))]))
    topology = summary["topology"]
    backwards = [rank for host in range(0, 64, 4) for rank in (host, host + 3, host + 2, host + 1)]
    assert [ring["ranks"] for ring in topology["rings"]] == [list(range(64)), backwards] * 2
    assert {ring["ground"] for ring in topology["rings"]} == {"inferred"}
    assert topology["shown"]["notes"] == []
    assert "60 63 62 61 &gt; back to 0" in html.page(summary)
    assert load_of(topology, "all-reduce", "ring")["total_bytes"] == pytest.approx(2 * 63 * GIB)


def test_a_channel_that_is_not_known_keeps_its_share(tmp_path: Any) -> None:
    log = write_log(make_job(1, 4), "2.19", subsystems=NO_OPERATIONS)
    (tmp_path / "job.log").write_bytes(re.sub(rb"[^\n]*Channel 01[^\n]*\n", b"", log.text))
    summary = summarise(read([str(tmp_path / "job.log")]))
    load = load_of(summary["topology"], "all-gather", "ring")
    assert (load["channels_known"], load["channels"], load["total_bytes"]) == (1, 2, 3 * GIB / 2)
    assert "1 of 2 channels known" in " ".join(terminal.text(summary, width=120).split())


def test_a_long_ring_in_words_names_its_ends_and_how_much_is_between() -> None:
    members = [{"rank": n, "global_rank": n, "host": f"host{n // 40}", "device": 0} for n in range(4000)]
    told = topology_report.path(read_json(CommunicatorView, {"members": members}), tuple(range(4000)))
    assert told.startswith("host0: 0 1 2 3 ")
    assert "29 ... 8 more ... 38 39 > host1: 40 " in told
    assert " > ... 84 more hosts ... > host99: 3960 " in told
    assert told.endswith("3998 3999")


def test_what_other_communicators_have_is_told_apart() -> None:
    """The sample's world has rings, and its log has connections of other groups alone."""
    told = summarise(read(inputs((), sample=True)))
    notes = told["topology"]["shown"]["notes"]
    assert any("every connection that was read belongs to another one" in note for note in notes)
    assert not any("no connection line" in note for note in notes)
