"""Several sources of one job become one Trace; clocks are brought together or refused."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from ringwright.analysis.clocks import Clock, align
from ringwright.formats.sources.detect import kind_of
from ringwright.formats.sources.fusion import fuse
from ringwright.formats.sources.fusion.operations import best_shift
from ringwright.formats.sources.gate.archives import unpack
from ringwright.formats.sources.gate.inputs import find
from ringwright.ground.errors import InputError
from ringwright.ground.trace_tables import rows
from ringwright.model.trace import Trace

Row = dict[str, Any]
CALLS = [
    ("all-reduce", 1 << 20),
    ("all-gather", 4096),
    ("all-reduce", 1 << 10),
    ("reduce-scatter", 4096),
    ("all-reduce", 64),
]


def part(source: str, calls: list[tuple[str, int]], first: int = 0, ranks: int = 2, **more: Any) -> Trace:
    """A source that saw some calls of all ranks in one communicator; ``more`` are columns of every row."""
    events = [
        {
            "kind": "collective",
            "op": op,
            "size_bytes": size,
            "communicator": 7,
            "sequence": first + number,
            "rank": rank,
            "records": 1,
            "multiplicity": 1,
            "source": source,
            "ground": "read",
            "nranks": ranks,
        }
        | more
        for number, (op, size) in enumerate(calls)
        for rank in range(ranks)
    ]
    comm = {"communicator": 7, "comm_id": "0", "size": ranks, "members": [*range(ranks)], "ranks_seen": ranks}
    return Trace.of(
        {"events": rows("events", events), "communicators": rows("communicators", [comm])}, {"source": source}
    )


def claims(trace: Trace, field: str) -> list[Row]:
    return [row for row in trace.table("claims").to_dicts() if row["field"] == field]


def test_the_same_calls_are_counted_once_and_keep_what_each_source_knows() -> None:
    log = part("nccl-log", CALLS, algorithm="ring", host="a")
    kineto = part("kineto", CALLS, duration_s=1e-3, start_s=2.0)
    found = fuse([log, kineto])
    assert found.df.height == 2 * len(CALLS)
    assert found.df["source"].unique().to_list() == ["kineto+nccl-log"]
    assert found.df["algorithm"].unique().to_list() == ["ring"]
    assert found.df["duration_s"].unique().to_list() == [1e-3]
    assert found.table("communicators").height == 1
    given = {row["source"]: row["note"] for row in claims(found, "fusion")}
    assert "algorithm" in given["nccl-log"]
    assert "duration_s" in given["kineto"]
    assert found.meta["source"] == "kineto+nccl-log"


def test_a_trace_that_began_later_is_shifted_into_place() -> None:
    found = fuse([part("nccl-log", CALLS * 3), part("kineto", CALLS[2:], duration_s=1e-3)])
    assert found.df.height == 2 * 3 * len(CALLS)
    timed = found.df.filter(pl.col("duration_s").is_not_null())
    assert timed.height == 2 * 3
    assert (timed["source"] == "kineto+nccl-log").all()
    assert any("sequence" in row["field"] for row in found.table("claims").to_dicts())


def test_what_differs_is_shown_and_never_averaged() -> None:
    other = [(op, 100 if op == "all-gather" else size) for op, size in CALLS]
    found = fuse([part("kineto", CALLS), part("flight-recorder", other)])
    sizes = set(found.df.filter(pl.col("op") == "all-gather")["size_bytes"].to_list())
    assert sizes == {4096}
    shown = claims(found, "size_bytes")
    assert shown
    assert "kineto: 4096, flight-recorder: 100" in shown[0]["value"]


def test_what_cannot_be_matched_stands_side_by_side() -> None:
    strange = [("broadcast", 11), ("reduce", 13), ("broadcast", 17)]
    found = fuse([part("kineto", CALLS), part("flight-recorder", strange)])
    assert found.df.height == 2 * (len(CALLS) + len(strange))
    assert any("could not be matched" in row["value"] for row in found.table("claims").to_dicts())
    both = found.df.group_by("communicator", "sequence", "rank").agg(pl.len())
    assert both["len"].max() == 1


def test_groups_are_matched_by_members_and_never_two_of_one_source() -> None:
    def groups(source: str, members: list[list[int]], ids: list[str]) -> Trace:
        table = [
            {"communicator": n, "comm_id": ids[n], "size": len(m), "members": m, "ranks_seen": len(m)}
            for n, m in enumerate(members)
        ]
        return Trace.of({"communicators": rows("communicators", table)}, {"source": source})

    one = groups("kineto", [[0, 1], [2, 3], [0, 1, 2, 3]], ["tp0", "tp1", "world"])
    two = groups("flight-recorder", [[2, 3], [0, 1], [0, 2]], ["7", "8", "9"])
    found = fuse([one, two]).table("communicators")
    assert sorted(map(tuple, found["members"].to_list())) == [(0, 1), (0, 1, 2, 3), (0, 2), (2, 3)]


@pytest.mark.parametrize("shift", [0, 3, -2, 40])
def test_the_shift_is_found(shift: int) -> None:
    rng = np.random.default_rng(5)
    first = [(n, "all-reduce", int(rng.integers(1, 9)) * 1024) for n in range(200)]
    second = [(n - shift, op, size) for n, op, size in first[50:120]]
    assert best_shift(first, second)[:2] == (shift, 1.0)


def job(offsets: list[float], *, noise_s: float = 2e-6, drift: float = 0.0, calls: int = 60, seed: int = 1) -> Trace:
    """Collectives that end together; each rank arrives when it likes and writes times of its own clock."""
    rng = np.random.default_rng(seed)
    events = []
    for number in range(calls):
        end = 0.01 * (number + 1)
        for rank, offset in enumerate(offsets):
            start, stop = end - rng.uniform(1e-4, 5e-3), end + rng.normal(0, noise_s)
            moved = [time + offset + (drift * time if rank else 0.0) for time in (start, stop)]
            events.append(
                {
                    "kind": "collective",
                    "op": "all-reduce",
                    "communicator": 0,
                    "sequence": number,
                    "rank": rank,
                    "start_s": moved[0],
                    "duration_s": moved[1] - moved[0],
                    "clock": f"host:rank{rank}",
                }
            )
    return Trace.of({"events": rows("events", events)})


def test_offsets_are_recovered_within_their_uncertainty() -> None:
    true = [0.0, 3.5, -0.25, 11.56]
    found = align(job(true))
    assert not found.refused
    for rank, offset in enumerate(true):
        relative = found.clocks[rank].offset_s - found.clocks[0].offset_s
        assert relative == pytest.approx(offset - true[0], abs=found.clocks[rank].uncertainty_s + 1e-6)
    assert 1e-7 < found.uncertainty_s < 1e-5
    ends = found.moved(job(true).df).with_columns((pl.col("start_s") + pl.col("duration_s")).alias("end"))
    spread = ends.group_by("sequence").agg(pl.col("end").max() - pl.col("end").min())
    assert spread["end"].max() < 3e-5


def test_a_drifting_clock_is_straightened() -> None:
    found = align(job([0.0, 1.0], drift=5e-3))
    assert not found.refused
    assert found.uncertainty_s < 1e-4


def test_clocks_that_cannot_be_compared_are_refused() -> None:
    lone = job([0.0, 1.0]).df.with_columns(pl.col("rank").alias("communicator"))
    assert (
        "no chain" in align(Trace.of({"events": lone})).refused
        or "no collective" in align(Trace.of({"events": lone})).refused
    )
    assert "fewer than" in align(job([0.0, 1.0], calls=2)).refused
    assert "clocks agree to" in align(job([0.0, 1.0], noise_s=0.05)).refused


def test_one_clock_needs_no_alignment() -> None:
    events = job([0.0, 0.0]).df.with_columns(pl.lit("host:a").alias("clock"))
    found = align(Trace.of({"events": events}))
    assert not found.refused
    assert found.uncertainty_s == 0
    assert found.clocks == {rank: Clock(rank, 0.0, 0.0, 0.0, 0.0, 0) for rank in range(2)}  # and rests on no collective


def test_archives_give_their_files_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "job.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in (("../../etc/rank0.json", b"{}"), ("b/rank1.json", b"[1]"), (".hidden", b"x")):
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    found = unpack(path)
    assert [source.name.rpartition("!")[2] for source in found] == ["../../etc/rank0.json", "b/rank1.json"]
    assert [source.head(10) for source in found] == [b"{}", b"[1]"]
    zipped = tmp_path / "job.zip"
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("a/rank0.json", "{}")
    assert [source.head(10) for source in find([str(zipped)])] == [b"{}"]


def test_damaged_archives(tmp_path: Path) -> None:
    whole = tmp_path / "job.tar.gz"
    with tarfile.open(whole, "w:gz") as archive:
        for number in range(20):
            info = tarfile.TarInfo(f"rank{number}.bin")
            data = np.random.default_rng(number).bytes(5000)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    found = unpack(cut)
    assert 5 < len(found) < 20
    assert "damaged" in found[-1].losses[0][0] or "damaged" in str([source.losses for source in found])
    empty = tmp_path / "no.tar"
    empty.write_bytes(b"")
    with pytest.raises(InputError):
        unpack(empty)


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b'{"schemaVersion": 1, "deviceProperties": []', "kineto"),
        (b'[{"ph": "X", "ts": 1}]', "kineto"),
        (b"\x80\x02}q\x00", "flight-recorder"),
        (b'{"version": "2.4", "pg_config": {}, "entries": []', "flight-recorder"),
        (b'{"header": {}, "coll_perf": {}}', "inspector"),
        (b'{"schema": "1.0.2-chakra.0.0.4", "nodes": []', "pytorch-et"),
        (b"SQLite format 3\x00", "nsys"),
        (b"# HELP x y\n# TYPE x gauge\n", "prometheus"),
        (b"RWNCCLPROF\x01", "nccl-profiler"),
        (b"# nThread 1 nGpus 1 minBytes 8\n", "bench"),
        (b"host:1:2 [0] NCCL INFO Bootstrap\n", "nccl-log"),
        (b"<html>", "nccl-log"),
        (b'{"hello": 1}', None),
        (b"\x00\x01\x02", None),
    ],
)
def test_a_recording_is_known_by_its_first_bytes(head: bytes, kind: str | None) -> None:
    assert kind_of(head) == kind
