"""What kind a file is: every kind says so itself in its own small file, and the surest is taken."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest

import ringwright
from ringwright.formats.sources import kinds as room
from ringwright.formats.sources.detect import detect, kind_of
from ringwright.formats.sources.gate.inputs import find
from ringwright.formats.sources.kinds import kinds
from shared_data import data_folder, is_present, needs_shared_data

pytestmark = pytest.mark.once

LOG = b"host:1:2 [0] NCCL INFO Channel 00/02\n"
TABLE = b"#       size         count      type   redop\n 1024 256 float sum\n"
METRICS = b"# HELP nccl_bytes sent\nnccl_bytes 3\n"
MEANS = b"size,p50,mean,bytes,time\n1,2,3,4,5\n"
TIMES = b"bytes,op,time\n1,2,3\n"
PICO = b"{0 : node7 - 12}\n"
CALL = b"comm op: all_reduce | time (ms): 1.00 | msg size: 4.0 B | algbw (Gbps): 0.00 | busbw (Gbps): 0.00\n"
ITERATION = b" iteration        2/       4 | consumed samples: 16 | elapsed time per iteration (ms): 36.4 |\n"
CHAKRA = b"\x08\x0a\x050.0.4\x00\x00"
# What a file begins with, its name -> its kind. Where several know their words in it, the order of the kinds decides.
HEADS: list[tuple[bytes, str, str | None]] = [
    (b"SQLite format 3\x00{", "x", "nsys"),
    (b"RWNCCLPROF" + LOG, "x", "nccl-profiler"),
    (b"\x0a\x93\x05\x08\x01\x12\x09/host:CPU\x1a", "x", "xplane"),
    (b"\x0a\x05\x12\x03abc", "vm.xplane.pb", "xplane"),
    (b"\x80\x04" + LOG, "x", "flight-recorder"),
    (PICO + LOG, "x", "perf-table"),
    (PICO + b'"traceEvents"', "x", "perf-table"),
    (b"collective_type,size,median\n" + LOG, "x", "perf-table"),
    (b'{"ringwright": "calls/1"}', "x", "calls"),
    (b'{"ringwright": "run/1", "traceEvents": []}', "x", "run"),
    (b'{"ringwright": "network/1"}', "x", "network"),
    (b'{"ringwright": "else/1", "traceEvents": [], "x": "NCCL INFO "}', "x", None),
    (b'\xef\xbb\xbf {"traceEvents": [], "pg_status": 1}', "x", "kineto"),
    (b'[{"ph": "X", "ts": 1}]', "x", "kineto"),
    (b'{"pg_status": {}, "coll_sn": 1}', "x", "flight-recorder"),
    (b'{"pg_config": {}, "entries": []}', "x", "flight-recorder"),
    (b'{"coll_sn": 3, "schema": 1, "nodes": []}', "x", "inspector"),
    (b'{"schema": "1.0", "nodes": [], "NodeType": 1, "ctrlDeps": []}', "x", "chakra-et"),
    (b'{"workload_graph": []}', "x", "chakra-et"),
    (b'{"schema": "1.0", "nodes": [], "comms": 1, "pg_id": 1}', "x", "pytorch-et"),
    (b'{"nodes": ["record_param_comms"]}', "x", "pytorch-et"),
    (b'{"comms": "all_reduce", "in_msg_size": 1, "busbw": 3}', "x", "param-comms"),
    (b'{"commsTrace": []}', "x", "param-comms"),
    (b'{"comms": 1}', "x", None),
    (b'{"busbw": 1, "log": "NCCL INFO x"}', "x", "bench"),
    (b'{"ranks": 1, "size": 2, "time": 3}', "x", "bench"),
    (b'{"x": "no nccl-bw"}', "x", None),
    (b'{"nccl-bw/a": 1}', "x", "bench"),
    (b'{"log": "NCCL INFO x"}', "x", "nccl-log"),
    (b'{"log": 3}', "x", None),
    (CHAKRA + LOG, "x", "chakra-et"),
    (b"any\x00thing", "a.et", "chakra-et"),
    (b"any\x00thing", "a.txt", None),
    (LOG + TABLE + METRICS, "a.csv", "nccl-log"),
    (TABLE + METRICS, "x", "bench"),
    (METRICS + TIMES, "x", "prometheus"),
    (MEANS, "a.csv", "perf-table"),
    (TIMES, "a.csv", "bench"),
    (b"a,b,c\n", "a.csv", None),
    (b"a,b,c\n", "a.txt", "nccl-log"),
    (ITERATION, "x", "megatron-log"),
    (LOG + ITERATION, "x", "nccl-log"),
    (CALL + ITERATION, "x", "deepspeed-comms"),
    (b"[2026-01-02] [Rank 0] time (ms) | fwd: 1.00\n", "x", "megatron-log"),
    (b"V|1|base_timestamp=1714234567.890\n", "x", "torchcomms-log"),
    (b"Collective name,dtype,comm_latency_mean,count\n", "x.csv", "tracelens"),
    (b"rank,total_wait_time_us,mean_wait_time_us,times_arrived_last\n", "x.csv", "tracelens"),
    (b"{\n  hostname : a, version : 0,\n", "x.json", "rccl-recorder"),
    (b"[2026-01-02] [Rank 0] " + CALL, "x", "deepspeed-comms"),
    (LOG + CALL, "x", "nccl-log"),
    (
        b'{"summary": {"a": {"1": {"total_latency_ms": 1, "tput_avg_gbps": 1, "msg_size_bytes": 1}}}}',
        "x",
        "deepspeed-comms",
    ),
    (b"OMPI-5\n# OSU MPI Allreduce Latency Test v7.1\n", "x", "osu"),
    (b"# Size          Latency (us)\n0   1.1\n", "x", "osu"),
    (b"# Benchmarking PingPong \n# #processes = 2 \n", "x", "imb"),
    (b"Collective:             Allreduce\nMemory type:            cuda\n", "x", "ucc"),
    (b" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]\n", "x", "perftest"),
    (b" ** x\n\n Start (ns)  Duration (ns)  CorrId   GrdX\n", "x", "nsys-text"),
    (b"Time (%),Total Time (ns),Instances,Avg (ns),Name\n", "x", "nsys-text"),
    (b"---  ---\n   Name    Self CPU %   Self CPU   # of Calls\n", "x", "key-averages"),
    (b"x\nNot all ranks joining collective, sequence number: 43\n", "x", "fr-trace"),
    (b"AssertionError: Missing dump files from ranks {6}\n", "x", "fr-trace"),
    (b'[\n{"name": "Group", "cat": "GROUP", "ph": "b", "id": 0, "pid": 7, "ts": 1.5},\n', "x", "nccl-profiler-example"),
    (gzip.compress(LOG), "x", "nccl-log"),
    (gzip.compress(b"SQLite format 3\x00"), "x", None),
    (b"\x1f\x8bbroken", "x", None),
]


@pytest.mark.parametrize(
    ("head", "name", "kind"), HEADS, ids=[f"{number}-{kind}" for number, (*_, kind) in enumerate(HEADS)]
)
def test_a_head_is_of_its_kind(head: bytes, name: str, kind: str | None) -> None:
    assert kind_of(head, name) == kind


def test_every_kind_is_met() -> None:
    assert {kind for _, _, kind in HEADS if kind} == set(kinds())


@pytest.mark.parametrize("packed", [False, True])
def test_a_tar_is_of_the_first_kind_in_it(packed: bool) -> None:
    def tar(*files: tuple[str, bytes]) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz" if packed else "w") as archive:
            for name, data in files:
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        return out.getvalue()

    assert kind_of(tar(("notes.txt", b"words"), ("a.db", b"SQLite format 3\x00"))) == "nsys"
    assert kind_of(tar(("a.log", gzip.compress(b"SQLite format 3\x00")), ("b.log", LOG))) == "nccl-log"
    assert kind_of(tar(("notes.csv", b"words"))) is None


def test_the_folder_is_the_list() -> None:
    files = {path.stem.replace("_", "-") for path in Path(room.__file__).parent.glob("*.py")} - {"--init--"}
    assert set(kinds()) == files
    assert all(kind.what and callable(kind.reader()) for kind in kinds().values())
    ranks = [kind.rank for kind in kinds().values()]
    assert len(set(ranks)) == len(ranks), "of two that are equally sure one is first"


def test_no_answer_is_surer_than_the_kind_may_be() -> None:
    """What a kind says it never is, it is not: others are not asked because of that."""
    for head, name, _ in HEADS:
        for kind in kinds().values():
            assert kind.looks_like(head, name) <= kind.surest, kind.name


def test_looking_at_a_file_imports_no_reader_and_no_library() -> None:
    code = (
        "import sys; from ringwright.formats.sources.detect import kind_of; kind_of(b'NCCL INFO');"
        "print(*(name for name in sys.modules if name.startswith('ringwright.formats.sources.')"
        " and not name.startswith(('ringwright.formats.sources.kinds', 'ringwright.formats.sources.detect'))"
        " or name in ('numpy', 'polars', 'msgspec')))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not done.stdout.strip()


# Folder -> kind -> files of it, as the one long list of conditions told them that stood here before.
KINDS = {
    "real/chakra": {"chakra-et": 28, "nccl-log": 10, "pytorch-et": 4},
    "real/flight-recorder": {"flight-recorder": 32, "nccl-log": 2},
    "real/inspector": {"inspector": 2},
    "real/kineto": {"kineto": 13},
    "real/metrics": {"prometheus": 2},
    "real/more-profilers": {"kineto": 2, "xplane": 1},
    "real/nccl-logs": {"nccl-log": 12, "nccl-log+megatron-log": 1, "nccl-log+bench": 4},
    "real/nccl-tests": {"bench": 14, "nccl-log": 2, "nccl-log+bench": 5},
    "real/nccl-topo": {"nccl-log": 1, "perf-table": 1},
    "real/perf-db": {"perf-table": 187},
    "real/pytorch-et": {"pytorch-et": 9},
    "regressions": {"bench": 1, "nccl-log": 1},
    "validation": {"bench": 4, "perf-table": 1},
}


@needs_shared_data
def test_the_kinds_of_real_recordings_are_as_ever() -> None:
    if not is_present():
        pytest.skip("no real recordings")
    for folder, expected in KINDS.items():
        files = sorted(path for path in (data_folder() / folder).rglob("*") if path.is_file())
        found = Counter("+".join(detect(source)) for path in files for source in find([str(path)]))
        assert {kind: found[kind] for kind in expected} == expected, folder
        assert not set(found) - set(expected) - {""}, folder


def test_a_kind_that_was_sniffed_and_gives_nothing_is_tried_as_the_next(tmp_path: Path) -> None:
    """Prose that speaks of NCCL's log above a table is no log: the table is read, and what was tried in vain is told."""
    path = tmp_path / "notes.txt"
    head = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong"
    row = "     1048576        262144     float     sum      -1    100.0   10.49   18.35      0    100.0   10.49   18.35      0"
    path.write_text(f"With NCCL INFO switched on nothing more is printed:\n{head}\n{row}\n")
    trace = ringwright.read(str(path))
    assert trace.meta["source"] == "bench"
    assert set(trace.df.filter(op="all-reduce")["size_bytes"]) == {1 << 20}
    assert any("as nccl-log" in each for each in trace.meta["passed_over"])
