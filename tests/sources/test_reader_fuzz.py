"""Damaged input of every kind ends in a Trace or in an error that a user can read, seeded and with bounded memory."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nsys_export import write
from ringwright.analysis.bandwidth import bandwidth
from ringwright.analysis.expected import cliffs, expected
from ringwright.formats.sources.bench import read_bench
from ringwright.formats.sources.chakra_et import read_chakra_et
from ringwright.formats.sources.kinds import kinds
from ringwright.formats.sources.nsys import read_nsys
from ringwright.formats.sources.param_comms import read_param_comms
from ringwright.formats.sources.pytorch_et import read_pytorch_et
from ringwright.formats.sources.tables.perf_table import read_perf_table
from ringwright.ground.errors import RingwrightError
from ringwright.ground.trace_tables import TABLES
from ringwright.model.trace import Trace
from sources import test_fr_trace, test_profiler_example
from sources.test_chakra_et import coll
from sources.test_kernel_tables import PRINTED
from sources.test_mpi_tables import SAMPLES
from sources.test_nccl_tests_source import NEW
from sources.test_param_comms import BASIC
from sources.test_perf_table import CSV
from sources.test_pytorch_et import GROUPS, comms, document, tensor
from written import attribute, framed, metadata, sources, tar_of, varint

CASES = 25
MOST_BYTES = 64 << 20
STRANGE: list[Any] = [
    None,
    True,
    -1,
    1 << 80,
    1e308,
    "",
    "\ud800",
    "9" * 40,
    [],
    {},
    [[[[]]]],
    "NaN",
    -(1 << 63),
    0.5,
    {"ranks": "x"},
    [None, 1],
]
REPORTS = [
    {"name": "allreduce", "ranks": 8, "ranksPerNode": 8, "size": 1024, "time": 9.5, "algBw": 1, "busBw": 2, "kernel": 1}
]
PICO = tar_of({"run/0/1024_allreduce_nccl_ring.csv": b"highest\n0\n10\n12\n", "run/alloc.txt": b"{0 : a - 1}\n"})
ET = framed(
    metadata(),
    coll(1, 0, 4096, attribute("pg_name", 29, "1")),
    coll(2, 2, 8, attribute("involved_dim", 28, b"\n\x02\x01\x00")),
)
PYTORCH = document(
    GROUPS, comms(5, "allreduce", [tensor(9)], seq=1), comms(6, "all_to_allv", [tensor(8)], seq=2, group="7")
)
KINDS: dict[str, tuple[Callable[..., Trace], dict[str, bytes]]] = {
    "chakra-et": (read_chakra_et, {"x.0.et": ET, "x.1.et": ET * 2}),
    "chakra-json": (
        read_chakra_et,
        {
            "x.0.json": json.dumps(
                {
                    "workload_graph": [
                        {
                            "Id": 1,
                            "Name": "ncclKernel_AllReduce",
                            "NodeType": 7,
                            "ctrlDeps": [],
                            "data_deps": [2],
                            "runtime": 3,
                            "comm_size": 5,
                        },
                    ]
                }
            ).encode()
        },
    ),
    "pytorch-et": (
        read_pytorch_et,
        {"rank0.json": PYTORCH, "et.tar": tar_of({"rank1.json": PYTORCH, "rank2.json": PYTORCH})},
    ),
    "param-comms": (read_param_comms, {"rank0.json": json.dumps(BASIC).encode()}),
    "bench": (read_bench, {"a.txt": NEW.encode(), "b.jsonl": json.dumps(REPORTS).encode()}),
    "perf-table": (read_perf_table, {"a.csv": CSV, "pico.tar": PICO}),
    **{
        kind: (kinds()[kind].read, {"job.out": text.encode()})
        for kind, text in {**SAMPLES, **PRINTED, **test_fr_trace.PRINTED, **test_profiler_example.PRINTED}.items()
    },
}


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with a few flips, a cut, a repetition or a foreign piece."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        if not out:
            break
        place, way = rng.randrange(len(out)), rng.randrange(6)
        if way == 0:
            out[place] = rng.randrange(256)
        elif way == 1:
            del out[place : place + rng.randrange(1, 40)]
        elif way == 2:
            out[place:place] = out[max(0, place - rng.randrange(1, 60)) : place]
        elif way == 3:
            out[place:place] = rng.choice(
                (b"\xff" * 10, b"[" * 3000, b"9" * 30, b"\x80" * 9 + b"\x01", b"null", b"\0\0")
            )
        elif way == 4:
            del out[place:]
        else:
            out[place : place + 1] = bytes(rng.choice(b'0123456789{}[],:"-eE.\n'.split(b"x")[0]) for _ in range(3))
    return bytes(out)


def twisted(rng: random.Random, data: bytes) -> bytes:
    """Return JSON with some values replaced by strange ones."""
    document_ = json.loads(data)

    def change(value: Any, depth: int) -> Any:
        if rng.random() < 0.06:
            return rng.choice(STRANGE)
        if isinstance(value, dict):
            return {key: change(item, depth + 1) for key, item in value.items()}
        return [change(item, depth + 1) for item in value] if isinstance(value, list) else value

    return json.dumps(change(document_, 0)).encode("utf-8", "surrogatepass")


def survives(reader: Callable[..., Trace], folder: Path, files: dict[str, bytes]) -> None:
    """Read, touch every table, and run the analyses; only errors of ours may come."""
    try:
        trace = reader(sources(folder, files))
        for name in TABLES:
            trace.table(name)
        bandwidth(trace)
        expected(trace)
        cliffs(trace)
    except RingwrightError as error:
        assert str(error)  # noqa: PT017 - any message will do, but there must be one


@pytest.mark.sampled(4, "*")
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files(kind: str, tmp_path: Path) -> None:
    reader, files = KINDS[kind]
    for seed in range(CASES):
        survives(reader, tmp_path, hurt(kind, files, seed))


def hurt(kind: str, files: dict[str, bytes], seed: int) -> dict[str, bytes]:
    """Return the files of a case: some damaged, sometimes all in damaged archives."""
    rng = random.Random(f"{kind} {seed}")
    out = {name: damaged(rng, data) if rng.random() < 0.8 else data for name, data in files.items()}
    if rng.random() < 0.1:
        return {f"{name}.gz": damaged(rng, gzip.compress(data)) for name, data in out.items()}
    return out


@pytest.mark.sampled(3, "*")
@pytest.mark.parametrize("kind", KINDS)
def test_damage_does_not_ask_for_memory(kind: str, tmp_path: Path) -> None:
    reader, files = KINDS[kind]
    tracemalloc.start()
    for seed in range(10):
        survives(reader, tmp_path, hurt(kind, files, seed))
    huge = varint(200 << 20) + ET  # a length that is allowed, of a message that is not there
    survives(reader, tmp_path, {"x.0.et": huge})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MOST_BYTES


@pytest.mark.sampled(3, "*")
@pytest.mark.parametrize("kind", ["chakra-json", "pytorch-et", "param-comms", "bench"])
def test_strange_values(kind: str, tmp_path: Path) -> None:
    reader, files = KINDS[kind]
    name, data = next((name, data) for name, data in files.items() if ".json" in name)
    for seed in range(CASES):
        survives(reader, tmp_path, {name: twisted(random.Random(f"{kind} values {seed}"), data)})


def test_damaged_databases(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    data = write(tmp_path / "base" / "a.sqlite").read_bytes()
    for seed in range(CASES):
        rng = random.Random(f"nsys {seed}")
        out = bytearray(data if rng.random() < 0.8 else data[: rng.randrange(len(data))])
        for _ in range(rng.randrange(1, 30)):
            out[rng.randrange(100, max(len(out), 101)) % len(out)] = rng.randrange(256)
        survives(read_nsys, tmp_path, {"rank0.sqlite": bytes(out)})


def test_bytes_of_no_kind(tmp_path: Path) -> None:
    readers = (read_chakra_et, read_pytorch_et, read_param_comms, read_bench, read_perf_table, read_nsys)
    for seed in range(30):
        rng = random.Random(seed)
        for reader in readers:
            survives(reader, tmp_path, {"x": rng.randbytes(rng.randrange(300))})
