"""Lines of CollNet, SHARP and NVLS: who asked, what was leased or refused, and which ranks fell back, whole, cut and mixed."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest

import ringwright
from ringwright.analysis import adders
from ringwright.formats.sources.nccl_log import switch_lines
from ringwright.reports import html, terminal

INIT = "NCCL INFO ncclCommInitRank comm {comm} rank {rank} nranks {size} cudaDev 3 nvmlDev 3 busId 7000 commId 0xab - Init {phase}"
NODES = "NCCL INFO comm {comm} rank {rank} nRanks {size} nNodes {nodes} localRanks 1 localRank 0 MNNVL 0"
ASKED = "NCCL INFO NCCL_COLLNET_ENABLE set by environment to 1."
LOADED = "NCCL INFO NET/Plugin: Loaded collnet plugin SHARP (v8)"
CONNECTED = "NCCL INFO rank {rank} Connected CollNet"
HEAD = "NCCL INFO CollNet 05/0 : {rank} [receive] via COLLNET/SHARP/5/GDRDMA"
LOCK = "[node{rank}:0:{pid} - comm.c:379][2024-05-30 12:26:47] ERROR Failed to lock SAT tree(ID:0x208 ret:0xffffffee)"
LEASE = "[node{rank}:0:{pid} - context.c:872] INFO sharp_job_id:692  tree_type:SAT tree_idx:1  treeID:520 caps:0x76"
LOW = (
    "[node{rank}:0:{pid} - context.c:857] INFO sharp_job_id:692  resv_key: tree_type:LLT tree_idx:0  treeID:8 caps:0x66 "
    "quota:(osts:23 user_data_per_ost:1024 max_groups:12 max_qps:1 max_group_channels:1)"
)
WARNED = "sharp_plugin.c:354 NCCL WARN SHARP group create: Streaming Tree lock failed (-18)"
BELOW = "NCCL INFO Communicator has 1 nodes which is less than CollNet node threshold 2, disabling CollNet"
PROXY = 9000  # a thread that sets up no communicator itself


def job(said: dict[int, list[str]], *, nodes: int | None = None, thread: int | None = None) -> list[str]:
    """Return the lines of a job: what each rank says while it sets up the one communicator."""
    size, before, inside, after = len(said), [], [], []
    for rank, texts in said.items():
        known = {"comm": f"0x{rank + 1}000", "rank": rank, "size": size, "pid": 100 + rank, "nodes": nodes or size}
        who = f"node{rank}:{100 + rank}:{200 + rank} [3] "
        before += [who + INIT.format(phase="START", **known), who + NODES.format(**known)]
        other = f"node{rank}:{100 + rank}:{thread or 200 + rank} [3] "
        inside += [text.format(**known) if text.startswith("[") else other + text.format(**known) for text in texts]
        after.append(who + INIT.format(phase="COMPLETE", **known))
    return [*before, *inside, *after]


def summary(folder: Path, lines: list[str]) -> Any:
    file = folder / "job.log"
    file.write_text("\n".join(lines) + "\n")
    return ringwright.summary(ringwright.read(file))


def state(folder: Path, lines: list[str]) -> str:
    (only,) = summary(folder, lines)["in_network"]["communicators"]
    return str(only["state"])


def test_lines_beyond_what_is_kept_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switch_lines, "MOST_KEPT", 1)
    said = summary(tmp_path, job({0: [CONNECTED, ASKED], 1: [CONNECTED]}))["in_network"]
    assert (said["lines"], said["lines_dropped"]) == (1, 1)


def test_the_page_says_it_too(tmp_path: Path) -> None:
    told = summary(tmp_path, job({0: [CONNECTED, LOCK], 1: [CONNECTED, "NCCL INFO NVLS <b>odd</b>"]}))
    shown = html.page(told)
    assert "SAT lock refused (tree 0x208): ranks 0" in shown
    assert "communicator 0 of 2: partly" in shown
    assert "NVLS &lt;b&gt;odd" in shown
    assert 'id="in-network"' not in html.page(summary(tmp_path, job({0: [], 1: []})))


def test_a_log_that_says_nothing_of_it_has_none(tmp_path: Path) -> None:
    assert summary(tmp_path, job({0: [], 1: []}))["in_network"] is None


@pytest.mark.parametrize(
    ("said", "nodes", "expected"),
    [
        ({0: [ASKED, LOADED, CONNECTED], 1: [LOADED, CONNECTED]}, None, "connected"),
        ({0: [ASKED, LOADED, HEAD], 1: [LOADED]}, None, "connected"),
        ({0: [ASKED, LOADED, CONNECTED], 1: [LOADED]}, None, "partly"),
        ({0: [ASKED, LOADED, WARNED], 1: [LOADED, CONNECTED]}, None, "partly"),
        ({0: [ASKED, LOADED, WARNED], 1: [LOADED, WARNED]}, None, "refused"),
        ({0: [ASKED, LOADED, BELOW], 1: [LOADED, BELOW]}, 1, "below the threshold"),
        ({0: [ASKED, LOADED], 1: [LOADED]}, None, "silent fallback"),
        ({0: [LOADED], 1: [LOADED]}, None, "not asked for"),
    ],
)
def test_what_became_of_a_communicator(
    tmp_path: Path, said: dict[int, list[str]], nodes: int | None, expected: str
) -> None:
    assert state(tmp_path, job(said, nodes=nodes)) == expected


@pytest.mark.parametrize("thread", [None, PROXY])
def test_a_refused_lock_names_its_rank_and_its_tree(tmp_path: Path, thread: int | None) -> None:
    lines = job({0: [ASKED, LOADED, LOW, LEASE, LOCK, WARNED], 1: [LOADED, CONNECTED]}, thread=thread)
    told = summary(tmp_path, lines)
    said = told["in_network"]
    assert said["leases"] == [
        {"tree_type": "LLT", "tree": "0x8", "osts": 23, "processes": 1},
        {"tree_type": "SAT", "tree": "0x208", "osts": None, "processes": 1},
    ]
    (refused,) = said["refused"]
    assert (refused["tree"], refused["ranks"], refused["hosts"], refused["lines"]) == ("0x208", [0], ["node0"], 2)
    assert refused["first_at"].endswith(f":{lines.index(LOCK.format(rank=0, pid=100)) + 1}")
    (only,) = said["communicators"]
    assert (only["ranks_connected"], only["ranks_refused"]) == ([1], [0])
    finding = next(each for each in told["findings"] if each["title"].startswith("CollNet"))
    assert (finding["severity"], finding["title"]) == ("error", "CollNet: partly in 1 of 1 communicators")


def test_plugins_and_nvls_are_counted_by_process_and_device(tmp_path: Path) -> None:
    missing = "NCCL INFO NET/Plugin: Failed to find ncclCollNetPlugin_v{pid} symbol."
    available = "NCCL INFO NVLS multicast support is available on dev {rank} (NVLS_NCHANNELS 16)"
    not_so = "NCCL INFO NVLS multicast support is not available on dev {rank}"
    unbound = "transport/nvls.cc:343 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 1 : CUDA error 401 'x'"
    said = summary(tmp_path, job({0: [missing, LOADED, available], 1: [missing, not_so, unbound]}))["in_network"]
    assert said["plugins"] == [{"name": "SHARP (v8)", "processes": 1}]
    assert said["plugin_missing"] == 1
    assert (said["nvls_available"], said["nvls_not_available"], said["nvls_refused"]) == (1, 1, 1)


def test_unknown_forms_are_kept_as_they_stand(tmp_path: Path) -> None:
    lines = job({0: ["NCCL INFO SHARP speaks of something new"] * 3, 1: ["NCCL INFO CollNet? whatever"]})
    told = summary(tmp_path, lines)
    assert [(each["text"], each["lines"]) for each in told["in_network"]["unknown"]] == [
        ("SHARP speaks of something new", 3),
        ("CollNet? whatever", 1),
    ]
    assert told["ledger"]["refused"] == 0


@pytest.mark.parametrize(
    "value", [None, "", "{", "[]", "7", '{"name": "x"}', '{"name": 1, "number": "n", "count": 1, "at": 0}']
)
def test_a_value_that_holds_nothing_is_of_no_known_form(value: str | None) -> None:
    row = {"transport": "plugin", "value": value, "host": None, "pid": None, "rank": None, "src": None}
    opened = adders._opened({**row, "communicator": None})
    assert (opened["what"], opened["name"], opened["count"]) == ("unknown", str(value), 1)


def test_lines_printed_into_each_other_are_both_read(tmp_path: Path) -> None:
    own = "node0:100:200 [3] NCCL INFO CollNet 05/0 : 0 [receive] via COLLNET/SHARP/5/GDRDMA"
    library = LOCK.format(rank=1, pid=101)
    apart = summary(tmp_path, [*job({0: [ASKED, LOADED], 1: [LOADED]}), own, library])
    for glued in (own + library, library + own):
        assert _figures(summary(tmp_path, [*job({0: [ASKED, LOADED], 1: [LOADED]}), glued])) == _figures(apart)


def _figures(told: Any) -> str:
    said = told["in_network"]
    refused = [{key: value for key, value in each.items() if key != "first_at"} for each in said["refused"]]
    return json.dumps([said["communicators"], said["leases"], refused, said["lines"]], sort_keys=True)


@pytest.mark.sampled(8, "*")
@pytest.mark.parametrize("seed", range(12))
def test_cut_and_mixed_lines_lose_nothing_else(tmp_path: Path, seed: int) -> None:
    drawn = random.Random(seed)
    texts = [ASKED, LOADED, LOW, LEASE, LOCK, WARNED, HEAD, "NCCL INFO NVLS multicast support is available on dev 3"]
    whole = job({0: texts, 1: [LOADED, CONNECTED]})
    dirty = []
    said = [line for line in whole if " comm 0x" not in line]
    for line in whole:
        if line not in said:
            dirty.append(line)
            continue
        cut = drawn.randrange(1, len(line))
        other = drawn.choice(said)
        dirty += drawn.choice(([line], [line, line[:cut]], [line[cut:], line], [line, other[: len(other) // 2] + line]))
    before, after = summary(tmp_path, whole), summary(tmp_path, dirty)
    assert sum(after["ledger"][name] for name in ("understood", "repaired", "refused", "other")) == len(dirty)
    known, told = before["in_network"], after["in_network"]
    assert told["lines"] >= known["lines"]
    (first,), (now,) = known["communicators"], told["communicators"]
    assert set(first["ranks_connected"]) <= set(now["ranks_connected"])
    assert first["ranks_refused"] == now["ranks_refused"]
    assert {each["tree"] for each in known["leases"]} <= {each["tree"] for each in told["leases"]}


def test_a_cut_line_is_put_together_again(tmp_path: Path) -> None:
    lines = job({0: [ASKED, LOADED], 1: [LOADED]})
    own = "node0:100:200 [3] NCCL INFO rank 0 Connected CollNet"
    middle = "node1:101:201 [3] NCCL INFO rank 1 Connected CollNet"
    told = summary(tmp_path, [*lines[:-2], own[:34] + middle, own[34:], *lines[-2:]])
    assert told["in_network"]["communicators"][0]["ranks_connected"] == [0, 1]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_terminal_shows_the_worst_first(tmp_path: Path, width: int) -> None:
    told = summary(tmp_path, job({0: [ASKED, LOADED, LOCK, WARNED], 1: [LOADED, CONNECTED]}))
    file = io.StringIO()
    terminal.write(told, file, width=width)
    text = " ".join(file.getvalue().split())
    assert "communicator 0 of 2: partly; connected 1; refused 0" in text
    assert "SAT lock refused (tree 0x208): ranks 0, 2 lines" in text
