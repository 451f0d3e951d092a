"""The NCCL profiler plug-in: driven by a stand-in for NCCL through every version of the interface, and read back exactly."""

from __future__ import annotations

import itertools
import json
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from patience import HANG_S
from ringwright.capture.nccl_profiler import FILE_NAME, build
from ringwright.cli import main
from ringwright.formats.sources.detect import kind_of
from ringwright.formats.sources.gate.inputs import find
from ringwright.formats.sources.nccl_profiler import clocks, read_nccl_profiler, sequence
from ringwright.formats.sources.nccl_profiler.file import read_file
from ringwright.ground.errors import InputError, UsageError
from ringwright.model.trace import Trace

HERE = Path(__file__).resolve().parents[1]
SOURCE = HERE.parent / "src" / "ringwright" / "capture" / "nccl_profiler"
VERSIONS = range(1, 7)
STRICT = ("-Wall", "-Wextra", "-Werror")
OPS = {
    "AllReduce": "all-reduce",
    "AllGather": "all-gather",
    "ReduceScatter": "reduce-scatter",
    "Broadcast": "broadcast",
}

pytestmark = [pytest.mark.once, pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")]

Run = Callable[..., list[Path]]


def compiled(source: str, target: Path, *flags: str) -> Path:
    command = ["cc", "-std=c11", "-O1", "-g", *STRICT, "-pthread", f"-I{SOURCE}", *flags, str(HERE / source)]
    subprocess.run([*command, "-o", str(target), "-ldl"], check=True)
    return target


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tools")
    build(folder, flags=STRICT)
    compiled("fake_nccl_host.c", folder / "host")
    compiled("fake_next_plugin.c", folder / "next.so", "-fPIC", "-shared")
    compiled("fake_next_plugin.c", folder / "next_v5.so", "-fPIC", "-shared", "-DONLY_V5")
    return folder


def drive(
    tools: Path, folder: Path, version: int, *options: str, plugin: str = FILE_NAME, code: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the stand-in for NCCL with the plug-in in ``folder``; its recordings land there."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("RINGWRIGHT_", "LD_PRELOAD"))}
    environment |= {
        "RINGWRIGHT_PROFILE_FILE": str(folder / "job-%h-%p.rwprof"),
        "RINGWRIGHT_PROFILE_EVENTS": "all",
        "RINGWRIGHT_PROFILE_BUFFER": "16M",  # nothing is dropped, however busy the machine
        **variables,
    }
    done = subprocess.run(
        [str(tools / "host"), str(tools / plugin), str(version), *options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == code, done.stderr[-3000:]
    return done


def recordings(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.rwprof"))


def read(*paths: Path) -> Trace:
    return read_nccl_profiler(find([str(path) for path in paths]))


def truth_of(path: Path) -> dict[str, list[list[str]]]:
    lines = [line.split() for line in path.read_text().splitlines()]
    return {kind: [words[1:] for words in lines if words[0] == kind] for kind in {words[0] for words in lines}}


def counted(trace: Trace) -> dict[str, int]:
    return {row["reason"]: row["lines"] for row in trace.table("ledger").iter_rows(named=True)}


def gpu(host_ns: int) -> int:
    return host_ns + host_ns // 50000 + 7777777777777


# --------------------------------------------------------------------------------------------- every version, to the event


@pytest.fixture(scope="module", params=VERSIONS)
def driven(request: pytest.FixtureRequest, tools: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp(f"v{request.param}")
    drive(tools, folder, request.param, "ops=200", "comms=3", f"truth={folder / 'truth'}")
    (path,) = recordings(folder)
    return {"version": request.param, "path": path, "trace": read(path), "truth": truth_of(folder / "truth")}


def test_every_operation_is_read_back(driven: dict[str, Any]) -> None:
    trace, truth = driven["trace"], driven["truth"]
    names = dict(trace.table("communicators").select("communicator", "name").iter_rows())
    rows = trace.df.filter(kind="collective")
    seen = Counter(
        (names[r["communicator"]], r["op"], r["op_count"], r["count"], r["algorithm"])
        for r in rows.iter_rows(named=True)
    )
    want = Counter((f"comm{c}", OPS[f], int(s), int(n), "ring") for c, f, s, n, _ in truth["coll"])
    want.update((f"comm{c}", OPS[f], int(s), int(n), "copy-engine") for c, f, s, n, _ in truth.get("ce", []))
    assert seen == want
    assert not trace.meta["losses"]
    sends = trace.df.filter(kind="p2p")
    seen = Counter((names[r["communicator"]], r["op"], r["count"], r["peer"]) for r in sends.iter_rows(named=True))
    assert seen == Counter((f"comm{c}", "send", int(n), int(p)) for c, _, n, p in truth["p2p"])
    assert set(sends["datatype"]) == {"bfloat16"}
    assert sends["size_bytes"].to_list() == [2 * count for count in sends["count"]]


def test_fields_are_those_of_the_version(driven: dict[str, Any]) -> None:
    version, rows = driven["version"], driven["trace"].df.filter(kind="collective", algorithm="ring")
    assert set(rows["datatype"]) == {"float32"}
    assert set(rows["protocol"]) == {"ll128"}
    assert set(rows["channels"]) == {2}
    assert set(rows["reduce_op"]) == ({"max"} if version == 1 else {None})
    gathers = rows.filter(op="all-gather")
    if version >= 4:
        assert set(rows["nranks"]) == {4}
        assert gathers["size_bytes"].to_list() == [16 * count for count in gathers["count"]]
        assert driven["trace"].meta["world"] == 4
    else:
        assert set(gathers["size_bytes"]) == {None}  # these versions do not say how many ranks there are
    if version >= 5:
        assert set(rows["stream"]) == {"0x5000"}
        assert set(rows["graph_captured"]) == {True, False}


def test_sequence_is_the_order_in_the_communicator(driven: dict[str, Any]) -> None:
    for _, rows in driven["trace"].df.filter(kind="collective").sort("enqueue_s").group_by("communicator"):
        assert sorted(rows["sequence"]) == list(range(len(rows)))


def test_kernels_are_placed_on_the_hosts_time(driven: dict[str, Any]) -> None:
    trace, truth, version = driven["trace"], driven["truth"], driven["version"]
    rows = trace.df.filter(kind="collective", algorithm="ring")
    if version < 3:
        assert set(rows["ground"]) <= {"inferred", "read"}
        assert set(rows["state"]) == {None}
        return
    recorded = read_file(find([str(driven["path"])])[0], None)
    names = dict(trace.table("communicators").select("communicator", "name").iter_rows())
    begun: dict[tuple[str, str, int], list[int]] = {}
    ended: dict[tuple[str, str, int], list[int]] = {}
    funcs = list(OPS.values())
    for kind, times in (("kernel", begun), ("kernel_stop", ended)):
        for c, seq, index, is_p2p, _, ns in truth[kind]:
            if is_p2p == "0":
                times.setdefault((f"comm{c}", funcs[int(index) % 4], int(seq)), []).append(int(ns))
    claim = trace.table("claims").filter(field="start of kernels")
    uncertainty_s = float(claim["value"][0].split()[2]) / 1e6 if version >= 4 else 2e-3
    assert set(rows["state"]) == {"completed"}
    shift = recorded.real_ns - recorded.mono_ns - trace.meta["origin_ns"]
    errors = []
    for row in rows.iter_rows(named=True):
        key = (names[row["communicator"]], row["op"], row["op_count"])
        errors.append(abs(row["start_s"] - (min(begun[key]) + shift) / 1e9))
        if version >= 4:
            exact = gpu(max(ended[key])) - gpu(min(begun[key]))
            assert row["duration_s"] == pytest.approx(exact / 1e9, abs=2e-9)
            assert row["clock"] == "gpu:0"
        assert row["enqueue_s"] <= row["start_s"] + 2 * uncertainty_s
    # The host notes its time apart from the plug-in: a thread that loses its core in between is late by that much.
    assert statistics.median(errors) <= uncertainty_s + 5e-6
    assert max(errors) <= uncertainty_s + 0.1


def test_proxies_and_their_steps(driven: dict[str, Any]) -> None:
    trace, truth = driven["trace"], driven["truth"]
    rows = trace.df.filter(kind="proxy")
    steps, operations = rows.filter(op="step"), rows.filter(pl.col("op") != "step")
    assert len(steps) == 3 * len(truth["proxy"])
    assert len(operations) == len(truth["proxy"])
    assert set(operations["size_bytes"]) == {100 + 101 + 102}
    assert set(operations["peer"]) == {1}
    foreign = sum(words[-1] == "1" for words in truth["proxy"])
    assert operations.filter(pl.col("task").is_null()).height == foreign > 0
    sends = Counter(words[5] for words in truth["proxy"])
    assert Counter(operations["op"]) == Counter({"send": sends["1"], "recv": sends["0"]})
    texts = operations["text"].str.json_decode(
        pl.Struct(dict.fromkeys(("network_wait_s", "gpu_wait_s", "peer_wait_s", "flush_wait_s", "steps"), pl.Float64))
    )
    waits = texts.struct.unnest()
    assert set(waits["steps"]) == {3.0}
    total = waits.select(pl.sum_horizontal(pl.exclude("steps"))).to_series()
    assert (total <= operations["duration_s"] + 1e-9).all()


def test_all_other_events_are_counted(driven: dict[str, Any]) -> None:
    version, truth, counts = driven["version"], driven["truth"], counted(driven["trace"])
    collectives, engines = len(truth["coll"]), len(truth.get("ce", []))
    want = {"groups": collectives, "proxy control events": 3, "communicators": 3, "collectives": collectives}
    if version >= 3:
        want |= {"kernel channels": len(truth["kernel"]), "ends of kernel channels": len(truth["kernel_stop"])}
    if version >= 5:
        want |= {
            "group calls": collectives + engines,
            "collective calls": collectives + engines,
            "send and receive calls": len(truth["p2p"]),
            "kernel launches": collectives,
        }
    if version >= 6:
        want |= {"copy-engine synchronisations": engines, "copy-engine batches": engines}
    assert {key: counts.get(key) for key in want} == want
    assert set(driven["trace"].table("ledger")["outcome"]) == {"understood"}


# ----------------------------------------------------------------------------------------------------------- what it tells


def test_waits_say_who_was_slow(tools: Path, tmp_path: Path) -> None:
    for slow, state in (("slow_net_us", "network-wait"), ("slow_gpu_us", "gpu-wait")):
        folder = tmp_path / slow
        folder.mkdir()
        drive(tools, folder, 6, "ops=3", "comms=1", f"{slow}=2000", RINGWRIGHT_PROFILE_EVENTS="default")
        rows = read(*recordings(folder)).df.filter(kind="proxy")
        assert set(rows["state"]) == {state}
        assert set(rows["op"]) == {"send", "recv"}
        assert (rows["value"] >= 0.006).all() == (slow == "slow_net_us")


def test_ranks_of_a_job_join_and_a_hang_shows(tools: Path, tmp_path: Path) -> None:
    for rank in range(2):
        hang = ["hang=1"] if rank else []
        extra = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
        drive(tools, tmp_path, 4, "ops=21", "comms=1", "nranks=2", f"rank={rank}", *hang, **extra)
    trace = read(*recordings(tmp_path))
    assert trace.table("communicators")["members"].to_list() == [[0, 1]]
    assert trace.table("topology").sort("rank").select("rank", "device").rows() == [(0, 0), (1, 1)]
    rows = trace.df.filter(kind="collective")
    ops = {rank: part.sort("sequence")["op"].to_list() for (rank,), part in rows.group_by("rank")}
    assert ops[0] == ops[1]
    last = {r["rank"]: r["state"] for r in rows.filter(sequence=20).iter_rows(named=True)}
    assert last == {0: "completed", 1: "started"}
    status = trace.df.filter(kind="status")
    reached = {(r["rank"], r["op"]): r["sequence"] for r in status.iter_rows(named=True)}
    assert reached[0, "last-completed"] == 20
    assert reached[1, "last-completed"] == 19
    assert reached[1, "last-started"] == 20


def test_the_summary_takes_the_files(tools: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(2):
        extra = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
        drive(tools, tmp_path, 6, "ops=20", "comms=1", "nranks=2", f"rank={rank}", **extra)
    assert main(["summary", str(tmp_path), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["ranks_seen"], summary["ranks_expected"]) == (2, 2)
    counts = Counter({entry["op"]: 0 for entry in summary["operations"]})
    for entry in summary["operations"]:
        counts[entry["op"]] += entry["count"]
    assert counts == Counter({"all-gather": 8, "all-reduce": 4, "reduce-scatter": 4, "broadcast": 4, "send": 8})


def test_one_process_with_several_gpus(tools: Path, tmp_path: Path) -> None:
    drive(tools, tmp_path, 4, "ops=20", "comms=2", "nranks=2", "same_job=1")
    trace = read(*recordings(tmp_path))
    assert trace.table("communicators")["members"].to_list() == [[0, 1]]
    rows = trace.df.filter(kind="collective")
    assert sorted(zip(rows["rank"], rows["sequence"], strict=True)) == [(r, s) for r in range(2) for s in range(20)]
    assert set(rows["clock"]) == {"gpu:0", "gpu:1"}
    assert trace.table("claims").filter(field="start of kernels").height == 2


def test_event_selection(tools: Path, tmp_path: Path) -> None:
    drive(tools, tmp_path, 6, "ops=10", RINGWRIGHT_PROFILE_EVENTS="coll,kernel,nonsense")
    counts = counted(read(*recordings(tmp_path)))
    assert counts["kernel channels"] > 0
    assert not {"proxy operations", "groups", "group calls", "copy-engine collectives"} & set(counts)


# ------------------------------------------------------------------------------------------------------------ hard times


def test_a_full_ring_drops_and_says_so(tools: Path, tmp_path: Path) -> None:
    drive(tools, tmp_path, 5, "ops=3000", f"truth={tmp_path / 'truth'}", RINGWRIGHT_PROFILE_BUFFER="4K")
    trace = read(*recordings(tmp_path))
    assert any("buffer was full" in loss for loss in trace.meta["losses"])
    assert trace.table("claims").filter(field="records dropped").height == 1
    truth = {(f"comm{c}", OPS[f], int(s)) for c, f, s, *_ in truth_of(tmp_path / "truth")["coll"]}
    names = dict(trace.table("communicators").select("communicator", "name").iter_rows())
    seen = {
        (names[r["communicator"]], r["op"], r["op_count"])
        for r in trace.df.filter(kind="collective").iter_rows(named=True)
    }
    assert seen < truth


def test_a_killed_process_leaves_what_was_flushed(tools: Path, tmp_path: Path) -> None:
    drive(tools, tmp_path, 4, "ops=100", "kill_at=50", code=-signal.SIGKILL)
    trace = read(*recordings(tmp_path))
    assert trace.df.filter(kind="collective").height == 2 * 51
    assert trace.table("claims").filter(field="end of recording").height == 1


def test_exit_without_finalize_writes_everything(tools: Path, tmp_path: Path) -> None:
    drive(tools, tmp_path, 4, "ops=100", "finalize=0")
    trace = read(*recordings(tmp_path))
    assert trace.df.filter(kind="collective").height == 200
    assert trace.table("claims").filter(field="end of recording").is_empty()


def test_a_full_disk_does_not_touch_the_job(tools: Path, tmp_path: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, 1 << 17))

    environment = {
        **os.environ,
        "RINGWRIGHT_PROFILE_FILE": str(tmp_path / "%p.rwprof"),
        "RINGWRIGHT_PROFILE_EVENTS": "all",
    }
    command = [str(tools / "host"), str(tools / FILE_NAME), "6", "ops=2000"]
    done = subprocess.run(command, env=environment, preexec_fn=small_files, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "recording ends, the job goes on" in done.stderr
    (path,) = recordings(tmp_path)
    trace = read(path)
    assert path.stat().st_size <= 1 << 17
    assert trace.df.filter(kind="collective").height > 0 or trace.table("ledger").height > 0
    assert any("ended early" in loss for loss in trace.meta["losses"])
    assert any("could grow no more" in loss for loss in trace.meta["losses"])


def test_no_place_to_write_at_all(tools: Path, tmp_path: Path) -> None:
    for place in ("/dev/full", str(tmp_path / "absent" / "file")):
        done = drive(tools, tmp_path, 5, "ops=50", RINGWRIGHT_PROFILE_FILE=place)
        assert "ringwright: NCCL profiler" in done.stderr


def test_the_size_limit_holds(tools: Path, tmp_path: Path) -> None:
    drive(tools, tmp_path, 6, "ops=2000", RINGWRIGHT_PROFILE_LIMIT="100K")
    (path,) = recordings(tmp_path)
    assert path.stat().st_size <= 100 << 10
    assert any("RINGWRIGHT_PROFILE_LIMIT" in loss for loss in read(path).meta["losses"])


def test_a_fork_writes_a_file_of_its_own(tools: Path, tmp_path: Path) -> None:
    drive(tools, tmp_path, 4, "ops=40", "fork=1")
    counts = sorted(read(path).df.filter(kind="collective").height for path in recordings(tmp_path))
    assert counts == [80, 160]  # the child once, the parent before and after


def test_children_of_a_busy_process(tools: Path, tmp_path: Path) -> None:
    drive(tools, tmp_path, 4, "ops=20000", "storm=8")
    counts = Counter(read(path).df.filter(kind="collective").height for path in recordings(tmp_path))
    assert counts == Counter({5: 8, 40000: 1})


def test_threads_that_come_and_go_share_their_lanes(tools: Path, tmp_path: Path) -> None:
    drive(tools, tmp_path, 4, "ops=10", "churn=400")
    trace = read(*recordings(tmp_path))
    assert not trace.meta["losses"]
    assert counted(trace)["groups"] == 20 + 400


def test_stale_handles_are_passed_over(tools: Path, tmp_path: Path) -> None:
    drive(tools, tmp_path, 6, "ops=30", "stale=1", f"truth={tmp_path / 'truth'}")
    trace = read(*recordings(tmp_path))
    assert trace.df.filter(kind="collective", algorithm="ring").height == len(truth_of(tmp_path / "truth")["coll"])


# ------------------------------------------------------------------------------------------------- another plug-in behind


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mask", ["32767", "2", "72"])
def test_the_next_plugin_gets_what_it_would_get_alone(tools: Path, tmp_path: Path, version: int, mask: str) -> None:
    alone, behind = tmp_path / "alone", tmp_path / "behind"
    drive(tools, tmp_path, version, "ops=30", plugin="next.so", FAKE_NEXT_FILE=str(alone), FAKE_NEXT_MASK=mask)
    chained = {"RINGWRIGHT_PROFILE_NEXT": str(tools / "next.so"), "FAKE_NEXT_FILE": str(behind), "FAKE_NEXT_MASK": mask}
    drive(tools, tmp_path, version, "ops=30", **chained)
    assert behind.read_text() == alone.read_text()
    assert behind.read_text().endswith("bad 0\n")
    assert read(*recordings(tmp_path)).df.filter(kind="collective").height == 60


def test_the_next_plugin_may_be_older_or_missing(tools: Path, tmp_path: Path) -> None:
    counts = tmp_path / "counts"
    drive(tools, tmp_path, 6, "ops=10", RINGWRIGHT_PROFILE_NEXT=str(tools / "next_v5.so"), FAKE_NEXT_FILE=str(counts))
    lines = dict(line.split(" ", 1) for line in counts.read_text().splitlines())
    assert lines["2"].startswith("16 16")
    assert lines["13"].startswith("0 0")  # v5 knows no copy engine
    done = drive(tools, tmp_path, 6, "ops=10", RINGWRIGHT_PROFILE_NEXT=str(tools / "absent.so"))
    assert "cannot be loaded, going on without" in done.stderr
    done = drive(tools, tmp_path, 6, "ops=10", RINGWRIGHT_PROFILE_NEXT=str(tools / FILE_NAME))
    assert "going on without" in done.stderr


def test_the_next_plugin_works_where_nothing_can_be_written(tools: Path, tmp_path: Path) -> None:
    alone, behind = tmp_path / "alone", tmp_path / "behind"
    drive(tools, tmp_path, 6, "ops=30", plugin="next.so", FAKE_NEXT_FILE=str(alone))
    chained = {"RINGWRIGHT_PROFILE_NEXT": str(tools / "next.so"), "FAKE_NEXT_FILE": str(behind)}
    drive(tools, tmp_path, 6, "ops=30", **chained, RINGWRIGHT_PROFILE_FILE=str(tmp_path / "absent" / "file"))
    assert behind.read_text() == alone.read_text()


# ------------------------------------------------------------------------------------------------------------ sanitizers


@pytest.fixture(scope="module", params=["address,undefined", "thread"])
def sanitized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sanitized")
    flags = (f"-fsanitize={request.param}", "-fno-sanitize-recover=all", "-g")
    probe = folder / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    linked = subprocess.run(["cc", *flags, str(probe), "-o", str(folder / "probe")], capture_output=True, check=False)
    if linked.returncode or subprocess.run([str(folder / "probe")], capture_output=True, check=False).returncode:
        pytest.skip(f"the runtime of -fsanitize={request.param} is not installed")
    build(folder, flags=(*STRICT, *flags))
    compiled("fake_nccl_host.c", folder / "host", *flags)
    compiled("fake_next_plugin.c", folder / "next.so", "-fPIC", "-shared", *flags)
    return folder


@pytest.mark.sampled(1)
@pytest.mark.parametrize("version", VERSIONS)
def test_sanitizers_find_nothing(sanitized: Path, tmp_path: Path, version: int) -> None:
    options = {
        "ASAN_OPTIONS": "detect_leaks=0:exitcode=99",
        "TSAN_OPTIONS": "exitcode=99:halt_on_error=1",
        "RINGWRIGHT_PROFILE_NEXT": str(sanitized / "next.so"),
    }
    drive(sanitized, tmp_path, version, "ops=100", "comms=3", "stale=1", "churn=20", **options)
    drive(sanitized, tmp_path, version, "ops=300", RINGWRIGHT_PROFILE_BUFFER="4K", ASAN_OPTIONS=options["ASAN_OPTIONS"])
    drive(
        sanitized,
        tmp_path,
        version,
        "ops=50",
        RINGWRIGHT_PROFILE_FILE="/dev/full",
        ASAN_OPTIONS=options["ASAN_OPTIONS"],
    )
    heights = [read(path).df.filter(kind="collective").height for path in recordings(tmp_path)]
    assert 300 in heights


# ---------------------------------------------------------------------------------------------------------- damaged files


@pytest.fixture(scope="module")
def sample(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("sample")
    drive(tools, folder, 5, "ops=300", "comms=1", "pause_us=1000")
    return recordings(folder)[0].read_bytes()


def test_a_cut_file_keeps_its_whole_blocks(sample: bytes, tmp_path: Path) -> None:
    path, heights = tmp_path / "cut.rwprof", []
    for end in [*range(4096, len(sample), len(sample) // 25), len(sample)]:
        path.write_bytes(sample[:end])
        heights.append(read(path).df.filter(kind="collective").height)
    assert heights == sorted(heights)
    assert heights[0] == 0
    assert heights[-1] == 300


def test_garbled_files_never_raise_anything_else(sample: bytes, tmp_path: Path) -> None:
    random_bytes = random.Random(7)
    path = tmp_path / "bad.rwprof"
    for _ in range(30):
        damaged = bytearray(sample)
        for _ in range(random_bytes.randrange(1, 30)):
            damaged[random_bytes.randrange(len(damaged))] = random_bytes.randrange(256)
        path.write_bytes(damaged)
        try:
            trace = read(path)
        except InputError:
            continue
        assert trace.df.filter(kind="collective").height <= 300


def test_one_bad_block_costs_one_block(sample: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.rwprof"
    second = sample.find(b"RWBK", sample.find(b"RWBK") + 4)
    path.write_bytes(sample[: second + 70] + b"\xff" + sample[second + 71 :])
    trace = read(path)
    assert 0 < trace.df.filter(kind="collective").height <= 300
    assert any("damaged" in loss for loss in trace.meta["losses"])
    assert "refused" in set(trace.table("ledger")["outcome"])


def test_a_foreign_file_does_not_cost_the_good_ones(sample: bytes, tmp_path: Path) -> None:
    good, bad = tmp_path / "a.rwprof", tmp_path / "b.rwprof"
    good.write_bytes(sample)
    bad.write_bytes(b"RWNCCLPROF" + b"\x09" * 5000)
    assert kind_of(sample[:4096], "x") == "nccl-profiler"
    trace = read(good, bad)
    assert trace.df.filter(kind="collective").height == 300
    assert any("b.rwprof" in loss for loss in trace.meta["losses"])
    with pytest.raises(InputError, match="version"):
        read(bad)
    bad.write_bytes(b"")
    with pytest.raises(InputError, match="not a file"):
        read(bad)


# ------------------------------------------------------------------------------------------------------- numbers and time


def test_sequence_survives_dropped_records() -> None:
    def rank(file: int, kept: set[int]) -> list[dict[str, Any]]:
        counters: Counter[str] = Counter()
        rows = []
        for place, name in enumerate(itertools.islice(itertools.cycle(["A", "B", "A", "C"]), 40)):
            row = {
                "communicator": 0,
                "file": file,
                "context": 0,
                "ns": place,
                "id": place,
                "counter": name,
                "seq": counters[name],
            }
            counters[name] += 1
            if place in kept:
                rows.append({**row, "true": place})
        return rows

    full, holes = set(range(40)), set(range(40)) - {3, 4, 5, 17, 30}
    numbered, inferred = sequence.number(pl.DataFrame(rank(0, full) + rank(1, holes)))
    assert inferred == [0]
    assert numbered["sequence"].to_list() == numbered["true"].to_list()
    numbered, inferred = sequence.number(pl.DataFrame(rank(0, full) + rank(1, full)))
    assert inferred == []
    assert numbered["sequence"].to_list() == numbered["true"].to_list()


def test_the_gpu_clock_is_found_within_its_uncertainty() -> None:
    draw = np.random.default_rng(3)
    host = np.sort(draw.integers(0, 100_000_000_000, 5000)) + 10**15
    enqueue = host - draw.integers(5_000, 200_000, 5000)
    stop = host + draw.integers(10_000, 1_000_000, 5000)

    def gpu_of(at: Any) -> Any:
        return at + np.rint((at - 10**15) * 30e-6).astype(np.int64) + 10**18

    seen_start, seen_stop = host + draw.integers(1_000, 60_000, 5000), stop + draw.integers(1_000, 60_000, 5000)
    clock = clocks.fit(enqueue, gpu_of(host), gpu_of(stop), seen_start, seen_stop)
    error = np.abs(clock.to_host(gpu_of(host)) - host)
    assert clock.uncertainty_ns < 20_000
    assert error.max() <= clock.uncertainty_ns + 15_000
    assert clock.slope == pytest.approx(30e-6, abs=2e-6)


def test_the_benchmark_runs() -> None:
    command = [
        sys.executable,
        str(HERE.parent / "benchmarks" / "bench_profiler.py"),
        "--pairs",
        "2000",
        "--rounds",
        "1",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["4 threads"]["coll_pair_ns"] > 0


# ---------------------------------------------------------------------------------------------------- building, from Python


def test_build_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(UsageError, match="no C compiler") as caught:
        build(tmp_path / "x.so", compiler="no-such-compiler")
    assert "gcc" in caught.value.remedy
    with pytest.raises(UsageError, match="the compiler failed"):
        build(tmp_path / "x.so", flags=["-no-such-flag"])
    assert not list(tmp_path.iterdir())


def test_the_verb_builds_and_prints_the_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plugin", "build"]) == 0
    assert (tmp_path / FILE_NAME).is_file()
    assert main(["plugin", "build"]) == 2
    assert main(["plugin", "build", "--force", "--json"]) == 0
    capsys.readouterr()
    assert main(["plugin", "env"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"export NCCL_PROFILER_PLUGIN={tmp_path / FILE_NAME}"
    assert lines[1].startswith("export RINGWRIGHT_PROFILE_FILE=")


def test_the_sources_ship() -> None:
    """Package data is what git knows and the wheel does not leave out."""
    import tomllib

    excluded = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["tool"]["scikit-build"]["wheel"]["exclude"]
    assert not {"**/*.c", "**/*.h"} & set(excluded)
    listed = subprocess.run(
        ["git", "ls-files", str(SOURCE)], cwd=HERE, capture_output=True, text=True, check=True
    ).stdout
    assert {"plugin.c", "nccl_abi.h"} <= {Path(line).name for line in listed.splitlines()}
