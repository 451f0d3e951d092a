"""A device of a few streams that makes profiler traces: kernels start when launched, when their stream and what they wait for allow.

The host launches one after another, each call costs ``CALL_US``. Times are microseconds. ``in_order`` keeps every kernel
from starting before the one that was launched before it, as a single hardware queue does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

CALL_US = 6.0
AFTER_US = 2.0  # from the end of what a kernel waits for to its start
COMPUTE_STREAM = 7
FORWARD, BACKWARD = 100, 101  # threads
NCCL = {
    "all-gather": ("_allgather_base", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    "reduce-scatter": (
        "_reduce_scatter_base",
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    ),
    "all-reduce": ("allreduce", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    "all-to-all": ("all_to_allv", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),
}
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, at::detail::Array<char*, 3>>"
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float)"


@dataclass(frozen=True)
class Group:
    """A process group as traces describe it."""

    name: str
    text: str
    size: int
    stream: int


@dataclass
class Done:
    """A device operation: when it ends, its event number, the record's event number."""

    end: float
    event: int
    record: int


@dataclass
class Device:
    """One rank. ``in_order``: see above. ``names``: further keys of the document, such as variables of the environment."""

    in_order: bool = False
    names: dict[str, Any] = field(default_factory=dict)
    rank: int = 0
    world: int = 8
    events: list[dict[str, Any]] = field(default_factory=list)
    now: float = 1000.0
    thread: int = FORWARD

    def __post_init__(self) -> None:
        self._free: dict[int, float] = {}
        self._held: dict[int, float] = {}
        self._last = 0.0
        self._ids = itertools.count(1)
        self._sequence = itertools.count(1)
        self.stood: dict[int, float] = {}  # by event: how long it stood behind another one of its stream

    def document(self) -> dict[str, Any]:
        """Return the trace."""
        said = {"backend": "nccl", "rank": self.rank, "world_size": self.world, "nccl_version": "2.26.2"}
        return {"schemaVersion": 1, "distributedInfo": said, **self.names, "traceEvents": self.events}

    def add(self, cat: str, name: str, ts: float, dur: float, tid: int, **args: Any) -> int:
        """Append an event; return its number."""
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 10, "tid": tid, "ts": ts, "dur": dur, "args": args}
        )
        return len(self.events) - 1

    @contextmanager
    def span(self, name: str, cat: str = "user_annotation") -> Iterator[None]:
        """Put a host event around what is launched within."""
        number, began = self.add(cat, name, self.now, 0.0, self.thread), self.now
        self.now += 1
        yield
        self.now += 1
        self.events[number]["dur"] = self.now - began

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Put the profiler's mark of a step around what is launched within; the host waits for the device at its end."""
        with self.span(f"ProfilerStep#{number}"):
            yield
            self.synchronise()

    @contextmanager
    def backward(self) -> Iterator[None]:
        """Launch from the thread of the backward pass."""
        self.thread = BACKWARD
        yield
        self.thread = FORWARD

    def gradients(self, count: int) -> None:
        """Accumulate gradients, as the backward pass does after each parameter."""
        for _ in range(count):
            with self.span("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", "cpu_op"):
                self.add("cpu_op", "torch::autograd::AccumulateGrad", self.now, 0.5, self.thread)

    def kernel(self, name: str, us: float, stream: int = COMPUTE_STREAM, cat: str = "kernel", **args: Any) -> Done:
        """Launch a kernel."""
        number = next(self._ids)
        call = "cudaMemcpyAsync" if cat == "gpu_memcpy" else "cudaLaunchKernel"
        self.add("cuda_runtime", call, self.now, CALL_US - 1, self.thread, correlation=number)
        ready = max(self.now + 4, self._held.get(stream, 0.0))
        start = max(ready, self._free.get(stream, 0.0))
        if self.in_order:
            start = max(start, self._last + 0.5)
        self.now += CALL_US
        self._last = start
        self._free[stream] = start + us + 0.5
        said = {"correlation": number, "stream": stream, "device": 0, "grid": [8, 1, 1], **args}
        event = self.add(cat, name, start, us, stream, **said)
        self.stood[event] = start - ready
        return Done(start + us, event, -1)

    def collective(
        self, op: str, group: Group, us: float, elements: int = 1 << 20, *, stream: int | None = None, name: str = ""
    ) -> Done:
        """Launch a collective that waits for what was launched on the compute stream; ``name`` renames its kernel."""
        with self._call(op, group, elements) as (said, record):
            done = self._talk(name or NCCL[op][1], us, group.stream if stream is None else stream, "kernel", said)
        return Done(done.end, done.event, record)

    def copies(self, op: str, group: Group, us: float, pieces: int = 3) -> Done:
        """Carry out a collective by copies from peer to peer."""
        with self._call(op, group, 1 << 20) as (_, record):
            for _ in range(pieces):
                done = self._talk("Memcpy PtoP (Device -> Device)", us / pieces, group.stream, "gpu_memcpy", {})
        return Done(done.end, done.event, record)

    def unseen(self, op: str, group: Group) -> Done:
        """Ask for a collective whose kernel is not in the trace."""
        with self._call(op, group, 1 << 20) as (_, record):
            pass
        return Done(self.now, -1, record)

    @contextmanager
    def _call(self, op: str, group: Group, elements: int) -> Iterator[tuple[dict[str, Any], int]]:
        out = elements * group.size if op == "all-gather" else elements
        out = elements // group.size if op == "reduce-scatter" else out
        said = {
            "Collective name": NCCL[op][0],
            "In msg nelems": elements,
            "Out msg nelems": out,
            "Group size": group.size,
            "dtype": "BFloat16",
            "Process Group Name": group.name,
            "Process Group Description": group.text,
            "Process Group Ranks": str(list(range(group.size))),
            "Seq": next(self._sequence),
        }
        with self.span(f"c10d::{NCCL[op][0]}_", "cpu_op"):
            number, began = self.add("cpu_op", "record_param_comms", self.now, 0.0, self.thread, **said), self.now
            yield said, number
            self.now += 1
            self.events[number]["dur"] = self.now - began

    def _talk(self, name: str, us: float, stream: int, cat: str, said: dict[str, Any]) -> Done:
        if stream != COMPUTE_STREAM:
            self.hold(self._free.get(COMPUTE_STREAM, 0.0), stream)
        return self.kernel(name, us, stream, cat, **said)

    def hold(self, until: float, stream: int = COMPUTE_STREAM) -> None:
        """Let a stream wait, as ``cudaStreamWaitEvent`` does."""
        self.add("cuda_runtime", "cudaStreamWaitEvent", self.now, 0.5, self.thread)
        self.now += 1
        self._held[stream] = max(self._held.get(stream, 0.0), until + AFTER_US)

    def wait(self, done: Done) -> None:
        """Let computation wait for an operation."""
        self.hold(done.end)

    def exposed_share(self, event: int) -> float:
        """Return the share of an operation's time in which the compute stream did nothing."""
        mine = self.events[event]
        begin, end = mine["ts"], mine["ts"] + mine["dur"]
        busy = [e for e in self.events if e["cat"] == "kernel" and e["tid"] == COMPUTE_STREAM]
        hidden = sum(max(0.0, min(end, e["ts"] + e["dur"]) - max(begin, e["ts"])) for e in busy)
        return float(1 - hidden / (end - begin))

    def synchronise(self, stream: int | None = None) -> None:
        """Let the host wait for a stream, or for all of them."""
        ends = self._free.values() if stream is None else [self._free.get(stream, 0.0)]
        until = max([self.now + 1, *(end + 1 for end in ends)])
        name = "cudaDeviceSynchronize" if stream is None else "cudaStreamSynchronize"
        self.add("cuda_runtime", name, self.now, until - self.now, self.thread)
        self.now = until
