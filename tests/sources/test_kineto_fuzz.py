"""Damaged and hostile profiler traces end in a Trace or in an error of ours, never in anything else."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from kineto_traces import ALL_REDUCE, GEMM, Maker, meta, source
from ringwright.analysis.exposed.overlap import overlap
from ringwright.analysis.kernels import kernels
from ringwright.analysis.slow.arrivals import arrivals
from ringwright.analysis.steps import steps_us
from ringwright.formats.sources.gate.inputs import find
from ringwright.formats.sources.kineto import read_kineto, stream
from ringwright.ground.errors import RingwrightError

pytestmark = pytest.mark.once

CASES = 300
VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1.5,
    1e308,
    -1e308,
    10**30,
    2**63,
    -(2**63),
    "",
    "x",
    "12",
    "[0, 1",
    "\u0000",
    "\ud83d\ude00",
    [],
    [[]],
    [None],
    {},
    {"a": {}},
    [1, "a", None],
    "9" * 400,
    list(range(50)),
]


def whole_job() -> dict[str, Any]:
    job = Maker(pg_config=[{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}])
    job.step(1, 0, 2000)
    for place in range(4):
        job.collective(100 + 200 * place, 30, Seq=place)
        job.kernel(GEMM, 140 + 200 * place, 50)
        job.add("cuda_runtime", "cudaStreamWaitEvent", 130 + 200 * place, 3)
    job.add("user_annotation", "nccl:all_to_all", 900, 20)
    job.kernel("ncclDevKernel_SendRecv(x)", 910, 10, stream=20, launch=905)
    job.kernel("my_moe_dispatch_kernel", 960, 10)
    job.kernel(ALL_REDUCE, 990, 10, stream=20, **meta("allreduce", 10))
    job.record(990, 5, **meta("wait", 0))
    return {
        **job.header,
        "deviceProperties": [{"id": 0, "name": "H100"}],
        "traceEvents": job.events,
        "baseTimeNanoseconds": 5,
    }


def mutated(chance: random.Random) -> bytes:
    document = whole_job()
    events = list(document["traceEvents"])
    for _ in range(chance.randrange(6)):
        event = chance.choice(events)
        kind = chance.randrange(5)
        target = event["args"] if kind < 3 and isinstance(event.get("args"), dict) and event["args"] else event
        target[chance.choice(list(target))] = chance.choice(VALUES)
        if kind == 4:
            document[chance.choice(list(document))] = chance.choice(VALUES)
        if kind == 3 and isinstance(info := document["distributedInfo"], dict):
            info[chance.choice(["rank", "world_size", "pg_config", "nccl_version", "backend"])] = chance.choice(VALUES)
    text = bytearray(json.dumps(document, indent=chance.choice([None, 2])).encode())
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(text))
        kind = chance.randrange(5)
        if kind == 0:
            text[at] = chance.randrange(256)
        elif kind == 1:
            del text[at : at + chance.randrange(1, 40)]
        elif kind == 2:
            text[at:at] = chance.choice(
                [b"{", b"}", b"[", b"]", b'"', b"\\", b",", b"inf", b"\xff", b"[" * 3000, b"null"]
            )
        elif kind == 3:
            text[at:at] = text[at // 2 : at // 2 + chance.randrange(300)]
        else:
            del text[at:]
        text = text or bytearray(b"{")
    return bytes(text)


@pytest.mark.sampled(2, "start")
@pytest.mark.parametrize("start", range(0, CASES, 15))
def test_mutated_traces(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(start, start + 15):
        chance = random.Random(seed)
        monkeypatch.setattr(stream, "BLOCK_BYTES", chance.choice([100, 4096, 8 << 20]))
        texts = [mutated(chance) for _ in range(chance.randrange(1, 3))]
        try:
            trace = read_kineto([source(text, f"rank{place}.json") for place, text in enumerate(texts)])
            trace.table("events")
            for analysis in (kernels, overlap, arrivals, steps_us):
                json.dumps(analysis(trace), allow_nan=False)
        except RingwrightError as error:
            if not (error.what and error.remedy):
                pytest.fail(f"seed {seed}: an error without a remedy: {error}")
        except Exception as error:  # noqa: BLE001 - that none comes is what is tested
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}")


def test_cut_archives(tmp_path: Path) -> None:
    packed = gzip.compress(json.dumps(whole_job()).encode())
    for place, size in enumerate(range(0, len(packed), max(1, len(packed) // 40))):
        path = tmp_path / f"rank{place}.json.gz"
        path.write_bytes(packed[:size])
        try:
            trace = read_kineto(find([str(path)]))
        except RingwrightError:
            continue
        assert trace.meta["losses"]
