"""The law of parts: a recording's files in any partition, its parts merged in any order, is the recording read at once."""

from __future__ import annotations

import gzip
import json
import random
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import shared_data
from every_recording import MADE
from ringwright.analysis.summary import summarise
from ringwright.cli.convert import convert
from ringwright.executors.fan_out import fan_out
from ringwright.formats.sources import part_files, parts, read
from ringwright.formats.sources.captures import kinds_of, parted
from ringwright.formats.sources.kinds import kinds
from ringwright.ground.errors import InputError, RingwrightError
from ringwright.ground.trace_tables import TABLES
from sources.test_calls import GROUP, HEAD, call, end, text
from sources.test_chakra_et import coll
from sources.test_inspector import lines, record
from written import attribute, block, framed, metadata, number, varint

DRAWS = 500
MOST_PARTS = 7
SKIPPED = (".md", ".parquet")
# Folders of the published data that hold programs, topologies and tables of others: no recordings.
NONE_OF = frozenset(
    "bench-topologies overlap peers goal htsim simai mpi-tuning msccl-xml mscclpp-json nccl-topo taccl-inputs validation".split()
)
OWN = ("every kind", "ranks of a job", "execution traces", "Inspector records")
ALONE = (
    "calls",
    "chakra-et",
    "flight-recorder",
    "inspector",
    "kineto",
    "nccl-profiler",
    "pytorch-et",
)  # read file by file


def folders() -> dict[str, list[Path]]:
    """Return the published recordings of several files, by folder."""
    if not shared_data.is_present():
        return {}
    top = shared_data.data_folder()
    below = [each for each in sorted(top.rglob("*")) if each.is_dir() and each.name not in NONE_OF]
    named = {str(each.relative_to(top)): recordings(each) for each in below}
    return {name: files for name, files in named.items() if len(files) > 1}


def recordings(folder: Path) -> list[Path]:
    return [each for each in sorted(folder.iterdir()) if each.is_file() and each.suffix not in SKIPPED]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Recordings made here: one of every kind as if they were of one job, and the ranks of a job in files of their own."""
    made = tmp_path_factory.mktemp("made")
    for kind, files in MADE.items():
        for name, data in files(made).items():
            target = made / "mixed" / kind / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    ranks = made / "ranks"
    ranks.mkdir()
    for rank in range(8):
        head = HEAD | {"rank": rank, "world": 9, "host": f"n{rank // 4}", "wall_ns": 10**18 + rank * 10**6}
        (ranks / f"calls.n{rank // 4}.{rank}.jsonl").write_bytes(text(head, GROUP, call(0), end(0), call(1), end(1)))
    packed = gzip.compress(text(HEAD | {"rank": 8, "world": 9}, GROUP, call(0), end(0)))
    (ranks / "calls.n2.8.jsonl.gz").write_bytes(packed[:-9])  # cut
    for name, files_of in zip(OWN[2:], (execution_traces(), inspector_records()), strict=True):
        (made / name).mkdir()
        for file, data in files_of.items():
            (made / name / file).write_bytes(data)
    mixed = [each for each in (made / "mixed").rglob("*") if each.is_file()]
    return {OWN[0]: mixed, OWN[1]: recordings(ranks), **{name: recordings(made / name) for name in OWN[2:]}}


def execution_traces() -> dict[str, bytes]:
    """Six ranks: groups that one file alone tells, sends, work of the host, a rank twice, none, a file cut, one that is none."""
    told = json.dumps([{"pg_name": "dp", "ranks": [4, 0, 2]}, {"pg_name": "pp", "ranks": [1, 3]}])
    groups = number(1, 0) + block(2, "groups") + number(3, 1) + block(8, block(1, f"['{told}']"))
    files = {}
    for rank in range(6):
        kernel = number(1, 5) + block(2, "gemm") + number(3, 4) + number(6, 10**15 + 70 * rank) + number(7, 9)
        host = number(1, 6) + block(2, "host") + number(3, 4) + attribute("is_cpu_op", 27, 1) + block(5, varint(5))
        send = number(1, 7) + block(2, "send") + number(3, 5) + attribute("comm_dst", 9, rank ^ 2)
        send += attribute("pg_name", 29, "dp") + attribute("comm_size", 9, 64) + block(4, varint(6))
        calls = coll(8, 2, 1000, attribute("pg_name", 29, "dp"), deps=(6, 7)), coll(9, 7, 8000, deps=(8, 77))
        some = coll(10, 0, 8, attribute("involved_dim", 28, block(1, b"\x01\x00")), deps=(9,))
        lost = coll(11, 0, 8, attribute("pg_name", 29, "none")), coll(12, 0, 8, cpu=True)
        files[f"x.{rank}.et"] = framed(metadata(), *[groups][rank:], kernel, host, send, *calls, some, *lost)
    files["y.3.et"], files["z.et"], files["x.9.et"] = (
        files["x.3.et"],
        files["x.2.et"][:-9],
        framed(metadata("7.1"), kernel),
    )
    files["x.json"] = json.dumps(
        {"workload_graph": [{"Id": 1, "NodeType": 7, "comm_type": 0, "comm_size": 1 << 70}]}
    ).encode()
    return files


def inspector_records() -> dict[str, bytes]:
    """Four processes of two groups, whose name only one file tells; records that were lost, cut, strange or none."""
    files = {}
    for rank in range(4):
        told = [
            record(rank % 2, comm=f"0xt{rank // 2}", pid=100 + rank, sn=3 * turn, coll=op, coll_algobw_gbs=turn)
            for turn, op in enumerate(("AllGather", "ReduceScatter", "AllReduce", "AllReduce"))
        ]
        told += [record(rank, comm="0xw", nranks=4, pid=100 + rank, coll_colour=rank, coll_timing_source="kernel_gpu")]
        told += [{"p2p_perf": {"p2p": "Send", "p2p_sn": 1, "p2p_peer": 1 << 40, "p2p_msg_size_bytes": 8192}}]
        told[-2]["coll_perf"]["event_trace_ts"] = {
            "coll_start_ts": 10**15 + rank,
            "kernel_events": [{"kernel_start_ts": 10**15 + 9}],
        }
        told[rank]["header"]["comm_name"] = "data"
        told += [
            {"dump_stats": {"coll_dropped_total": rank}},
            {"proxy_trace": {}},
            {"coll_perf": {"coll": "AllReduce"}},
        ]
        files[f"node0-pid{100 + rank}.log"] = lines(*told).encode() + b"{torn\n" + b"\xff\n" * rank
    files["node1-pid7.log"] = lines(told[-3])[:-9].encode()  # before any header, and cut
    return files


def draws() -> list[tuple[str, int]]:
    """Return recordings, each with seeds: five hundred draws."""
    names = [*OWN, *folders()]
    return [(names[number % len(names)], number) for number in range(DRAWS)]


@cache
def at_once(files: tuple[str, ...]) -> Any:
    """Return what is said of files that each reader reads itself, one after the other."""
    with mock.patch.object(parts, "apart", lambda told, *_: told):
        return told([*files])


def told(names: list[str]) -> Any:
    """Return what is said of some inputs, or why nothing is."""
    try:
        return dict(summarise(read(names, executor="local:1")))
    except RingwrightError as error:
        return {"refused": error.what}


def written(files: list[Path], target: Path) -> str:
    with fan_out("local:1") as fan:
        made = parts.apart([kinds_of(each) for each in parted([str(each) for each in files]).sources], fan, None)
        part_files.write(target, parts.parts(made))
    return str(target)


@pytest.mark.shared_data
@pytest.mark.sampled(24, "seed")
@pytest.mark.parametrize(("recording", "seed"), draws())
def test_any_partition_merged_in_any_order_is_one_read(
    recording: str, seed: int, own: dict[str, list[Path]], tmp_path: Path
) -> None:
    files = own[recording] if recording in own else recordings(shared_data.real(recording))
    rng = random.Random(seed)
    lots: list[list[Path]] = [[] for _ in range(rng.randint(1, MOST_PARTS))]
    for file in rng.sample(files, len(files)):
        rng.choice(lots).append(file)
    named = [written(lot, tmp_path / f"{number}.zip") for number, lot in enumerate(lots) if lot]
    merged, whole = told(rng.sample(named, len(named))), at_once(tuple(map(str, files)))
    assert whole["ledger"]["lines"] > 0
    assert [name for name in {*whole, *merged} if whole.get(name) != merged.get(name)] == []


@pytest.mark.parametrize("recording", OWN)
def test_every_cell_is_that_of_one_read(recording: str, own: dict[str, list[Path]], tmp_path: Path) -> None:
    files = own[recording]
    with mock.patch.object(parts, "apart", lambda told, *_: told):
        whole = read([str(each) for each in files])
    merged = read([written(files[1::2], tmp_path / "1.zip"), written(files[::2], tmp_path / "2.zip")])
    assert [name for name in TABLES if not whole.table(name).equals(merged.table(name))] == []
    assert whole.meta == merged.meta


def test_kinds_that_are_read_file_by_file_give_a_part_of_each(own: dict[str, list[Path]]) -> None:
    assert {kind for kind, known in kinds().items() if known.parser} == set(ALONE)
    told = [kinds_of(each) for each in parted([str(each) for files in own.values() for each in files]).sources]
    with fan_out("local:1") as fan:
        given = [(of[0], each.part()) for each, of in parts.apart(told, fan, None) if of and each.part is not None]
    assert {kind for kind, part in given if part is not None} == set(ALONE)
    assert [kind for kind, part in given if part is None] == []


def test_parts_are_written_by_a_verb_and_counted_once(own: dict[str, list[Path]], tmp_path: Path) -> None:
    files = [str(each) for each in own[OWN[1]]]
    first, both = tmp_path / "first.zip", tmp_path / "both.zip"
    assert convert(*files[:5], output=first, format="parts") == 0
    assert convert(*files[3:], output=both, format="parts") == 0
    assert told([str(first), str(both)]) == at_once(tuple(files))
    with pytest.raises(InputError, match="cut, or was changed"):
        read(str(changed(first, tmp_path)))


def changed(archive: Path, folder: Path) -> Path:
    """Return an archive of which one byte of what a part says is another."""
    import zipfile

    other = folder / "changed.zip"
    with zipfile.ZipFile(archive) as given, zipfile.ZipFile(other, "w") as made:
        for name in given.namelist():
            data = given.read(name)
            made.writestr(name, data[:-1] + bytes([data[-1] ^ 1]))
    return other


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_no_answer_depends_on_how_many_read(workers: int, own: dict[str, list[Path]]) -> None:
    for files in own.values():
        names = [str(each) for each in files]
        assert dict(summarise(read(names, executor=f"local:{workers}"))) == at_once(tuple(names))
