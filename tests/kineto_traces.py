"""Small profiler traces made by hand: each test says in microseconds what ran when."""

from __future__ import annotations

import io
import itertools
import json
from typing import Any

from ringwright.formats.sources.kineto import read_kineto
from ringwright.formats.sources.source import Source
from ringwright.model.trace import Trace

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "ampere_bf16_s16816gemm_bf16_128x64_tn"


class Maker:
    """Collects events of one rank; ``launch`` gives the host call, ``record`` the record around it."""

    def __init__(self, rank: int | None = 0, world: int | None = 2, **info: Any) -> None:
        self.events: list[dict[str, Any]] = []
        self.header: dict[str, Any] = {"schemaVersion": 1}
        if rank is not None:
            said = {"backend": "nccl", "rank": rank, "world_size": world, **info}
            self.header["distributedInfo"] = {key: value for key, value in said.items() if value is not None}
        self.numbers = itertools.count(1)

    def add(self, cat: str, name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> dict[str, Any]:
        event = {"ph": "X", "cat": cat, "name": name, "pid": 10, "tid": tid, "ts": ts, "dur": dur, "args": args}
        self.events.append(event)
        return event

    def step(self, number: int, ts: float, dur: float) -> None:
        self.add("user_annotation", f"ProfilerStep#{number}", ts, dur)

    def kernel(
        self,
        name: str,
        ts: float,
        dur: float,
        *,
        stream: int = 7,
        launch: float | None = None,
        tid: int = 1,
        **args: Any,
    ) -> None:
        """Add a kernel and, five microseconds before or at ``launch``, its call; NaN for none."""
        number = next(self.numbers)
        at = ts - 5 if launch is None else launch
        if at == at:
            self.add("cuda_runtime", "cudaLaunchKernel", at, 2, tid, correlation=number)
        self.add("kernel", name, ts, dur, stream, correlation=number, stream=stream, device=0, grid=[8, 1, 1], **args)

    def record(self, ts: float, dur: float, tid: int = 1, **args: Any) -> None:
        self.add("cpu_op", "record_param_comms", ts, dur, tid, **args)

    def collective(self, ts: float, dur: float, launch: float | None = None, **more: Any) -> None:
        """Add a recorded all-reduce of 1,000 bfloat16 elements with its kernel."""
        at = ts - 5 if launch is None else launch
        self.record(at - 1, 4, **{**meta("allreduce", 1000), **more})
        self.kernel(ALL_REDUCE, ts, dur, stream=20, launch=at)

    def text(self, **more: Any) -> bytes:
        return json.dumps({**self.header, "traceEvents": self.events, **more}).encode()

    def source(self, name: str = "rank0.json", **more: Any) -> Source:
        return source(self.text(**more), name)


def meta(name: str, count: int, out: int | None = None, **more: Any) -> dict[str, Any]:
    """Return metadata as the profiler spells it."""
    said = {
        "Collective name": name,
        "In msg nelems": count,
        "Out msg nelems": count if out is None else out,
        "Group size": 2,
        "dtype": "BFloat16",
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": "[0, 1]",
    }
    return {**said, **{key.replace("_", " "): value for key, value in more.items()}}


def source(text: bytes, name: str = "rank0.json", compressed: int = 0) -> Source:
    return Source(name, lambda: io.BytesIO(text), compressed)


def read(*makers: Maker) -> Trace:
    return read_kineto([maker.source(f"job/t{place}.json") for place, maker in enumerate(makers)])


def collectives(trace: Trace) -> list[dict[str, Any]]:
    import polars as pl

    return trace.df.filter(pl.col("kind").is_in(["collective", "p2p"])).to_dicts()


def claims(trace: Trace, field: str) -> list[dict[str, Any]]:
    return [row for row in trace.table("claims").to_dicts() if row["field"] == field]
