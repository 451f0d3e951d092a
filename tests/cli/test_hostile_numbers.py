"""Numbers that no machine has are unknown, not a bug of ours; arrays for the compiled loops are checked before they go."""

from __future__ import annotations

import dataclasses
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringwright.analysis.summary import summarise
from ringwright.bounds.laws.tables import factor_of
from ringwright.cli import main
from ringwright.engines.machine import machine
from ringwright.fabrics import fabric
from ringwright.formats.sources import read
from ringwright.ground.errors import EXIT_OUR_BUG, UsageError
from ringwright.ground.trace_tables import rows
from ringwright.native import engine

pytestmark = pytest.mark.once


def kineto(rank: int, **arguments: Any) -> dict[str, Any]:
    said = {
        "Collective name": "allreduce",
        "In msg nelems": 8,
        "Out msg nelems": 8,
        "dtype": "Float",
        "Group size": 2,
        "external id": 1,
    }
    kernel = {
        "ph": "X",
        "cat": "kernel",
        "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        "pid": 0,
        "tid": 7,
        "ts": 10,
        "dur": 5,
    }
    return {
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
        "schemaVersion": 1,
        "deviceProperties": [],
        "traceEvents": [kernel | {"args": {"device": 0, "stream": 7, "correlation": 1} | said | arguments}],
    }


@pytest.mark.parametrize(
    "arguments",
    [{"Rank": 2**31}, {"Dst Rank": 2**32}, {"Group size": 2**33}, {"device": 2**31}, {"stream": 2**70}],
    ids=str,
)
def test_a_kineto_number_above_its_type_is_unknown(arguments: dict[str, int], tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(kineto(2**31, **arguments)))
    assert summarise(read(str(tmp_path / "a.json")))["operations"]


def test_a_number_that_its_column_cannot_hold_is_unknown() -> None:
    frame = rows(
        "events",
        [{"kind": "collective", "rank": 2**31, "nranks": 2}, {"kind": "collective", "rank": 1, "nranks": 2**80}],
    )
    assert frame.select("rank", "nranks").rows() == [(None, 2), (1, None)]


def test_a_law_of_bandwidth_takes_any_whole_number() -> None:
    assert factor_of("all-reduce", 10**400) is None


# ---------------------------------------------------------------------------------------------- the compiled loops
def test_a_latency_that_is_no_time_is_refused_before_the_engine() -> None:
    for latency_s in (-1.0, float("nan"), float("inf"), 1e300, 1e6):
        topology = fabric("switch:2")
        hostile = dataclasses.replace(topology, latency_s=np.full(topology.n_links, latency_s))
        with pytest.raises(UsageError, match="is no time"):
            machine(hostile)


@pytest.mark.skipif(engine is None, reason="no compiled engine")
def test_arrays_are_checked_before_the_compiled_loops() -> None:
    one, zero = np.zeros(1, np.int32), np.zeros(1, np.int64)
    for messages in (-1, -(2**31), 0):
        with pytest.raises(ValueError, match="message"):
            engine.order(one, one, zero, zero, messages)
    with pytest.raises(TypeError):
        engine.order(one, one, zero, zero, 2**31)
    start, end = engine.events(**loop(latency=1 << 61, hops=5))
    assert (start[0], end[0]) == (0, 1 << 62)  # never, and not a moment before the beginning
    for wrong in (
        {"latency": -1},
        {"latency": 1 << 62},
        {"delay": -1},
        {"size_bytes": -1},
        {"ps_per_byte": float("nan")},
        {"ps_per_byte": -1.0},
    ):
        with pytest.raises(ValueError, match=r"latency|delay|size_bytes|ps_per_byte"):
            engine.events(**loop(**wrong))


def loop(
    latency: int = 0, delay: int = 0, size_bytes: int = 8, ps_per_byte: float = 1.0, hops: int = 1
) -> dict[str, Any]:
    """Return the arrays of one message over some links."""
    none32, none64, nonef = np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.float64)
    return {
        "hop_starts": np.array([0, hops]),
        "hops": np.arange(hops, dtype=np.int32),
        "next_starts": np.zeros(2, np.int64),
        "nexts": none32,
        "waits": np.zeros(1, np.int32),
        "size_bytes": np.array([size_bytes]),
        "delay": np.array([delay]),
        "parent": none32,
        "hop": none32,
        "child": none32,
        "ps_per_byte": np.full(hops, ps_per_byte),
        "latency": np.full(hops, latency),
        "whole": np.ones(hops, np.uint8),
        "holds": np.zeros(hops, np.uint8),
        "change_resource": none64,
        "change_time": none64,
        "change_ps_per_byte": nonef,
        "delay_resource": none64,
        "delay_time": none64,
        "delay_latency": none64,
    }


# ------------------------------------------------------------------------------------------------------- archives
@pytest.mark.parametrize("packing", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_member_of_an_archive_is_no_bug_of_ours(
    packing: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = tmp_path / "whole.zip"
    with zipfile.ZipFile(whole, "w", packing) as archive:
        archive.writestr("a.log", LOG)
        archive.writestr("b.log", LOG)
    for number in range(30):
        draw = random.Random(number)
        data = bytearray(whole.read_bytes())
        for _ in range(3):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        (tmp_path / "a.zip").write_bytes(data)
        assert main(["summary", str(tmp_path / "a.zip")]) != EXIT_OUR_BUG, number
        capsys.readouterr()


LOG = (
    b"n1:1:1 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x7f00 recvbuff 0x7f01 count 4 datatype 7 op 0 root 0 comm 0x5 [nranks=4] stream 0x55\n"
    * 200
)
