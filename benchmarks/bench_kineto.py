"""Kineto traces: time and memory of reading, against a bare JSON decode of the same bytes.

    python benchmarks/bench_kineto.py [--events 400000] [--ranks 1] [--big-gb 0] [--trace FILE ...]

Generates a trace in the profiler's own layout (or takes real ones), decodes it whole with msgspec without types (what any
reader must at least do that keeps the document), then reads it. Prints the ratio, and the peak of memory of a fresh
process that reads; with ``--big-gb`` also for one file of that size, generated as it is read.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HEAD = (
    '{\n  "schemaVersion": 1,\n  "distributedInfo": {"backend": "nccl", "rank": %d, "world_size": 8},\n'
    '  "traceEvents": [\n'
)
TAIL = '  ],\n  "traceName": "t.json",\n  "baseTimeNanoseconds": 1711964646000000000\n}\n'
META = (
    '"Collective name": "allreduce", "dtype": "BFloat16", "In msg nelems": 1048576, "Out msg nelems": 1048576, '
    '"Group size": 8, "Process Group Name": "0", "Process Group Description": "default_pg", '
    '"Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]"'
)
SHAPES = '"Input Dims": [[4096, 1024], [1024, 4096], [4096, 4096]], "Input type": ["c10::BFloat16", "c10::BFloat16", "float"]'
GRID = '"registers per thread": 96, "shared memory": 87568, "blocks per SM": 0.07, "grid": [16, 1, 1], "block": [544, 1, 1]'
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def lines(events: int, rank: int) -> Iterator[str]:
    """Yield a trace in the profiler's layout: per kernel a host operation, a launch, two flow events; some collectives."""
    yield HEAD % rank
    at, made = 1000.0, 0
    yield event("user_annotation", "ProfilerStep#1", 1, at, events * 4.0, '"External id": 1')
    while made < events:
        number = made // 5
        is_comm = number % 50 == 49
        name, stream = ("record_param_comms", 24) if is_comm else ("aten::addmm", 7)
        ids = f'"External id": {number}, "correlation": {number}'
        yield event("cpu_op", name, 1, at, 9.5, f'"External id": {number}, {META if is_comm else SHAPES}')
        yield event("cuda_runtime", "cudaLaunchKernel", 1, at + 2, 4.25, f'{ids}, "cbid": 211')
        yield flow("s", number, 1, at + 2)
        yield flow("f", number, 7, at + 20)
        detail = f'{ids}, "queued": 0, "device": 0, "context": 1, "stream": {stream}, {GRID}'
        detail += f", {META}" if is_comm else ""
        yield event("kernel", NCCL if is_comm else LONG, stream, at + 20, 15.75, detail)
        at, made = at + 20.125, made + 5
    yield '  {\n    "ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 1\n  }\n'
    yield TAIL


LONG = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >"
    "(int, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)"
)


def event(cat: str, name: str, tid: int, ts: float, dur: float, args: str) -> str:
    head = f'  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": 0, "tid": {tid},\n'
    return f'{head}    "ts": {ts:.3f}, "dur": {dur:.3f},\n    "args": {{\n      {args}\n    }}\n  }},\n'


def flow(kind: str, number: int, tid: int, ts: float) -> str:
    head = f'  {{\n    "ph": "{kind}", "id": {number}, "pid": 0, "tid": {tid}, "ts": {ts:.3f},\n'
    return head + '    "cat": "ac2g", "name": "ac2g", "bp": "e"\n  },\n'


class Generated(io.RawIOBase):
    """A trace that is made while it is read: any size without a disk."""

    def __init__(self, size: int, rank: int) -> None:
        self.left = size
        block = "".join(lines(100_000, rank)).encode()
        start, end = block.index(b"[\n") + 2, block.index(b'  {\n    "ph": "i"')
        self.head, self.body, self.tail = block[:start], block[start:end], block[end:]
        self.queue = [self.head]

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not self.queue:
            if self.left > 0:
                self.queue.append(self.body)
                self.left -= len(self.body)
            elif self.tail:
                self.queue.append(self.tail)
                self.tail = b""
            else:
                return b""
        block = self.queue.pop(0)
        if len(block) > size:
            self.queue.insert(0, block[size:])
        return block[:size]


def measure(paths: list[str]) -> None:
    """Child process: read, and print seconds and the peak of memory."""
    from ringwright.formats.sources import kineto
    from ringwright.formats.sources.gate.inputs import Source, find

    if paths[0].startswith("generated:"):
        size, ranks = (int(part) for part in paths[0].split(":")[1:])
        sources = [Source(f"rank{n}.json", lambda n=n: Generated(size // ranks, n)) for n in range(ranks)]
    else:
        sources = find(paths)
    warm = Source("warm", lambda: io.BytesIO("".join(lines(50, 0)).encode()))
    kineto.read_kineto([warm])  # the import of Polars is no part of reading
    start = time.perf_counter()
    trace = kineto.read_kineto(sources)
    seconds = time.perf_counter() - start
    peak = peak_bytes()
    rows = trace.query("select count(*) from events").item()
    print(json.dumps({"seconds": seconds, "peak": peak, "rows": rows}))


def peak_bytes() -> int:
    """Return the peak of resident memory of this program; ru_maxrss would count the parent's before exec."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def child(arguments: list[str]) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--measure", *arguments], capture_output=True, text=True, check=True
    )
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--big-gb", type=float, default=0)
    parser.add_argument("--trace", nargs="*", default=[])
    parser.add_argument("--measure", nargs="*", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        measure(asked.measure)
        return
    import msgspec

    with tempfile.TemporaryDirectory() as folder:
        paths = asked.trace or [f"{folder}/rank{rank}.json" for rank in range(asked.ranks)]
        if not asked.trace:
            for rank, path in enumerate(paths):
                Path(path).write_text("".join(lines(asked.events, rank)))
        sizes = sum(Path(path).stat().st_size for path in paths)
        bare = min(_bare(paths, msgspec.json.decode) for _ in range(asked.rounds))
        read = min((child(paths) for _ in range(asked.rounds)), key=lambda found: found["seconds"])
        print(f"{sizes / 1e6:.0f} MB in {len(paths)} files, {read['rows']:,.0f} rows kept")
        print(
            f"bare decode {bare:.2f} s; read {read['seconds']:.2f} s; ratio {read['seconds'] / bare:.2f} (target 1.3)"
        )
        print(f"{sizes / 1e6 / read['seconds']:.0f} MB/s; peak memory {read['peak'] / 2**20:.0f} MiB")
    if asked.big_gb:
        found = child([f"generated:{int(asked.big_gb * 1e9)}:{max(asked.ranks, 1)}"])
        print(
            f"{asked.big_gb:g} GB generated in {asked.ranks} files: {found['seconds']:.0f} s, {found['rows']:,.0f} rows kept, "
            f"peak memory {found['peak'] / 2**20:.0f} MiB (target 2048)"
        )


def _bare(paths: list[str], decode: object) -> float:
    total = 0.0
    for path in paths:
        start = time.perf_counter()
        document = decode(Path(path).read_bytes())  # type: ignore[operator]
        total += time.perf_counter() - start
        del document
    return total


if __name__ == "__main__":
    main()
