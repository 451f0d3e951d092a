"""Inputs that nobody should have: they may be refused with a remedy, but nothing fails, hangs or fills the memory."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import zstandard

from patience import HANG_S
from reading import operations, put, small_job, summary_of
from ringwright.formats.sources import read
from ringwright.ground.errors import InputError, RingwrightError
from ringwright.reports.html import page
from ringwright_lab.testing import write_log

REPOSITORY = Path(__file__).resolve().parents[2]
SMALL = write_log(small_job(), "2.27").text
RECORDS = sum(row[1] for row in operations(write_log(small_job(), "2.27").truth).values())
MIB = 1 << 20


def _load_fuzz() -> ModuleType:
    loader = SourceFileLoader("fuzz_campaign", str(REPOSITORY / "scripts" / "fuzz"))
    spec = importlib.util.spec_from_loader("fuzz_campaign", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_campaign"] = module
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


fuzz = _load_fuzz()


# ------------------------------------------------------------------------------------------------------ the campaign
@pytest.mark.sampled(1, "*")
@pytest.mark.parametrize("part", range(12))
def test_damaged_logs(tmp_path: Path, part: int) -> None:
    """A part of the campaign of scripts/fuzz, always the same 300 inputs."""
    failures = {}
    for number in range(part * 25, part * 25 + 25):
        failure = fuzz.run_one(2027, number, tmp_path)
        if failure:
            failures[f"scripts/fuzz --seed 2027 --only {number}"] = failure.strip().splitlines()[-1]
    assert not failures


def test_an_input_is_the_same_every_time() -> None:
    assert [fuzz.make_input(1, n) for n in range(20)] == [fuzz.make_input(1, n) for n in range(20)]


# ------------------------------------------------------------------------------------------------------- hostile lines
def test_every_hostile_line_alone(tmp_path: Path) -> None:
    """No line can take away what the other lines say."""
    draw = random.Random(7)
    lines = sorted({fuzz.hostile_lines(draw) for _ in range(400)})
    for number, line in enumerate(lines[::32]):
        path = tmp_path / f"{number}.log"
        path.write_bytes(line + b"\n" + SMALL + line)
        fuzz.check(path, events="auto", lines=SMALL.count(b"\n") + 2, records=RECORDS)


@pytest.mark.parametrize("nranks", [0, 1, 9_999_999])
@pytest.mark.parametrize("events", ["auto", "folded"])
def test_impossible_group_sizes_are_left_out_aloud(tmp_path: Path, nranks: int, events: str) -> None:
    line = (
        b"h:1:1 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x2 count 4 datatype 7 op 0 root 0 comm 0xaa "
    )
    (tmp_path / "a.log").write_bytes(SMALL + line + b"[nranks=%d] stream 0x1\n" % nranks)
    summary = summary_of(tmp_path / "a.log", events)
    assert summary["ranks_expected"] == 8
    assert sum(row["records"] for row in summary["operations"]) == RECORDS + (nranks == 1)


@pytest.mark.parametrize("count", [10**19, 2**63, 2**64 - 1])
@pytest.mark.parametrize("events", ["auto", "folded"])
def test_impossible_counts_are_left_out_aloud(tmp_path: Path, count: int, events: str) -> None:
    line = (
        b"h:1:1 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x2 count %d datatype 7 op 0 root 0 comm 0xaa "
    )
    (tmp_path / "a.log").write_bytes(SMALL + line % count + b"[nranks=2] stream 0x1\n")
    summary = summary_of(tmp_path / "a.log", events)
    assert sum(row["records"] for row in summary["operations"]) == RECORDS
    assert any("not read" in text or "left out" in text for text in summary["warnings"])


def test_a_rank_beyond_its_group_is_not_believed(tmp_path: Path) -> None:
    line = b"h:1:1 [0] NCCL INFO comm 0xaa rank 9 nranks 4 cudaDev 0 busId 1000 - Init COMPLETE\n"
    (tmp_path / "a.log").write_bytes(SMALL + line)
    summary = summary_of(tmp_path / "a.log")
    assert summary["ranks_expected"] == 8
    assert not [row for row in summary["communicator_list"] if row["size"] == 4]


def test_the_page_escapes_everything(tmp_path: Path) -> None:
    """The tag stands where a host, an operation, a version, a network, a peer and a file name stand."""
    tag = fuzz.SCRIPT
    text = SMALL.replace(b"node001", b"node001" + tag, 40).replace(b"AllReduce", b"All" + tag, 40)
    for draw in (random.Random(seed) for seed in range(60)):
        text += fuzz.hostile_lines(draw) + b"\n"
    folder = tmp_path / "<script>alert(1)<"
    folder.mkdir()
    (folder / "script>.log").write_bytes(text)
    shown = page(summary_of(folder / "script>.log"))
    assert tag.decode() not in shown
    assert shown.count("<script") == page(summary_of(put(write_log(small_job(), "2.27"), tmp_path / "plain"))).count(
        "<script"
    )


# -------------------------------------------------------------------------------------------------------- odd files
def test_an_empty_file_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"")
    with pytest.raises(InputError) as caught:
        read(tmp_path / "a.log")
    assert caught.value.remedy


def test_a_folder_without_logs_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read(tmp_path)
    with pytest.raises(InputError):
        read(tmp_path / "nothing*")


@pytest.mark.parametrize("name", ["a.gz", "a.log.gz", "a.zst"])
@pytest.mark.parametrize(
    "data", [b"", b"\x1f\x8b", b"this is no archive\n" * 9, bytes(100)], ids=["empty", "magic", "text", "zeros"]
)
def test_a_garbage_archive_is_an_input_error(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(RingwrightError):
        read(tmp_path / name)


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_truncated_archive_gives_what_it_holds(tmp_path: Path, ending: str) -> None:
    text = b"".join(
        write_log(small_job(seed=seed), "2.27").text
        + bytes(random.Random(seed).randbytes(200_000).hex(), "ascii")
        + b"\n"
        for seed in range(4)
    )
    data = gzip.compress(text, 1) if ending == ".gz" else zstandard.ZstdCompressor().compress(text)
    (tmp_path / f"a.log{ending}").write_bytes(data[: len(data) * 3 // 4])
    summary = summary_of(tmp_path / f"a.log{ending}")
    assert sum(row["records"] for row in summary["operations"]) >= RECORDS
    assert any("not read" in text for text in summary["warnings"])


def test_a_good_file_beside_a_bad_one_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.log.gz").write_bytes(b"garbage")
    (tmp_path / "b.log").write_bytes(SMALL)
    summary = summary_of(tmp_path)
    assert sum(row["records"] for row in summary["operations"]) == RECORDS
    assert any("not read" in text for text in summary["warnings"])


# ------------------------------------------------------------------------------------------------------- large inputs
_CHILD = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[3]), int(sys.argv[3])))
from ringwright.analysis.summary import summarise
from ringwright.errors import RingwrightError
from ringwright.formats.sources import read
try:
    summary = summarise(read(sys.argv[1]))
    kept = {name: summary[name] for name in ("ledger", "warnings")}
    kept["records"] = sum(row["records"] for row in summary["operations"])
except RingwrightError as error:
    kept = {"error": str(error)}
peak = [line for line in open("/proc/self/status") if line.startswith("VmHWM")][0].split()[1]
print(json.dumps(kept | {"peak_bytes": int(peak) * 1024}))
"""


def in_a_cell(path: Path, *, cpu_s: int, address_bytes: int = 4 << 30) -> dict[str, Any]:
    """Read a file in a process of bounded memory and processor time; return its answer."""
    command = [sys.executable, "-c", _CHILD, str(path), str(address_bytes), str(cpu_s)]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "src"), "POLARS_MAX_THREADS": "2"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def write_blocks(path: Path, block: bytes, count: int, tail: bytes = b"") -> Path:
    with path.open("wb") as file:
        for _ in range(count):
            file.write(block)
        file.write(tail)
    return path


@pytest.mark.slow
@pytest.mark.sampled(2, "*")
@pytest.mark.parametrize(
    "block",
    [b"x" * MIB, bytes(MIB), b"node001:1:1 [0] NCCL INFO " * 40_000, b"[" * MIB, b"\x1b[31m" * 200_000],
    ids=["letters", "nuls", "prefixes", "brackets", "colours"],
)
def test_a_line_of_100_mb(tmp_path: Path, block: bytes) -> None:
    """What stands before and after the line is read all the same."""
    path = write_blocks(tmp_path / "a.log", block, 100, b"\n" + SMALL)
    answer = in_a_cell(path, cpu_s=30)
    assert answer["records"] == RECORDS
    assert answer["peak_bytes"] < 700 * MIB


@pytest.mark.slow
@pytest.mark.parametrize(
    "block", [b"\n" * MIB, b"\x00\n" * (MIB // 2), b"NCCL\n" * 80_000], ids=["blank", "nuls", "word"]
)
def test_many_tiny_lines(tmp_path: Path, block: bytes) -> None:
    answer = in_a_cell(write_blocks(tmp_path / "a.log", block, 3, SMALL), cpu_s=60)
    assert answer["ledger"]["lines"] == block.count(b"\n") * 3 + SMALL.count(b"\n")
    assert answer["records"] == RECORDS
    assert answer["peak_bytes"] < 800 * MIB


def _bomb(path: Path, gib: float) -> Path:
    """Zeros that pack a thousandfold: 64 packed MiB as a member of its own, repeated."""
    import zlib

    packer = zlib.compressobj(9, wbits=31)
    member = b"".join(packer.compress(bytes(MIB)) for _ in range(64)) + packer.flush()
    return write_blocks(path, member, int(16 * gib))


@pytest.mark.slow
@pytest.mark.parametrize(
    "gib",
    [1.25, pytest.param(10, marks=pytest.mark.sampled(0, "*"))],  # 1.25 GiB are more than the one that may be asked for
)
def test_a_bomb_is_stopped(tmp_path: Path, gib: float) -> None:
    path = _bomb(tmp_path / "a.log.gz", gib)
    assert path.stat().st_size < 2 * gib * MIB
    answer = in_a_cell(path, cpu_s=90)
    assert answer["peak_bytes"] < 700 * MIB
    assert "error" in answer or answer["warnings"]


@pytest.mark.parametrize(
    "make",
    [lambda path: path.mkdir(), lambda path: path.symlink_to(path), lambda path: path.symlink_to("/nowhere")],
    ids=["folder", "loop", "dangling"],
)
def test_a_name_that_is_no_file(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "a.log")
    with pytest.raises(InputError):
        read(tmp_path / "a.log")
