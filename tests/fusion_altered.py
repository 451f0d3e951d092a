"""Real traces with collectives or fusions taken away, split, moved to another stream, carried out by copies, or renamed."""

from __future__ import annotations

import bisect
import copy
import gzip
import json
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec

from fusion_device import COMPUTE_STREAM, GEMM
from fusion_truth import COPIES, GATHER_MATMUL, GRADIENT_BUCKET, Document, KnownTrace, Truth
from ringwright.formats.sources.kineto.names import operation
from shared_data import real

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
GROUP = {
    "Process Group Name": "9",
    "Process Group Description": "mesh_tp",
    "Group size": 16,
    "dtype": "BFloat16",
    "In msg nelems": 1 << 20,
    "Out msg nelems": 1 << 24,
}


@cache
def _text(name: str, rank: int | None) -> bytes:
    path = real(f"real/kineto/{name}")
    if rank is None:
        text = gzip.decompress(path.read_bytes())
    else:
        with tarfile.open(path) as archive:
            member = next(one for one in archive.getmembers() if f"worker{rank}_" in one.name)
            held = archive.extractfile(member)
            text = held.read() if held else b""
    return json.dumps(json.loads(text.decode("utf-8", "replace"), strict=False)).encode()


@dataclass
class Asked:
    """A collective: numbers of its kernel, launch, record and outer host event; its operation and step."""

    kernel: int
    launch: int
    record: int  # of older releases the label that stands for it
    outer: int
    op: str
    iteration: int | None


@dataclass
class Altered:
    """A copy of a real trace, and what of it is known before and after."""

    document: Document
    truth: Truth = field(default_factory=Truth)

    def __post_init__(self) -> None:
        marks = [e for e in self.events if str(e.get("name")).startswith("ProfilerStep#")]
        self._steps = [(e["ts"], e["ts"] + e["dur"], int(e["name"].split("#")[1])) for e in marks if "dur" in e]

    @classmethod
    def of(cls, name: str, rank: int | None = None) -> Altered:
        """Return a copy of a recording, with one bucket of gradients per all-reduce that its backward pass asks for."""
        made = cls(msgspec.json.decode(_text(name, rank)))
        for outer in made.hosted("c10d::allreduce_"):
            made.truth.expect(GRADIENT_BUCKET, made.iteration(made.events[outer]["ts"]), fired=True)
        return made

    @property
    def events(self) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = self.document["traceEvents"]
        return events

    def hosted(self, name: str) -> list[int]:
        """Return the host events of a name, in order of time."""
        mine = [n for n, event in enumerate(self.events) if event.get("name") == name and event.get("cat") == "cpu_op"]
        return sorted(mine, key=lambda number: self.events[number]["ts"])

    def iteration(self, moment: float) -> int | None:
        """Return the step in which a moment of the host lies."""
        return next((number for begin, end, number in self._steps if begin <= moment <= end), None)

    def kernels(self) -> list[int]:
        """Return the kernels that compute, in order of time."""
        mine = [
            n for n, event in enumerate(self.events) if event.get("cat") == "kernel" and "nccl" not in event["name"]
        ]
        return sorted(mine, key=lambda number: self.events[number]["ts"])

    def asked(self, op: str) -> list[Asked]:
        """Return the collectives of an operation whose kernel and call are in the trace, in order of time."""
        calls = {
            event["args"]["correlation"]: number
            for number, event in enumerate(self.events)
            if event.get("cat") == "cuda_runtime" and "correlation" in event.get("args", {})
        }
        records, labels = self.hosted("record_param_comms"), self._labels()
        made = []
        for number, event in enumerate(self.events):
            if event.get("cat") == "kernel" and event["name"].startswith("nccl"):
                launch = calls.get(event["args"].get("correlation"))
                around = [n for n in records if launch is not None and self._holds(n, launch)]
                named = [n for n in labels if launch is not None and self._holds(n, launch)]
                if launch is not None and named and operation(self.events[named[-1]]["name"]) == op:
                    step = self.iteration(self.events[launch]["ts"])
                    record = around[-1] if around else max(named, key=self._start)
                    made.append(Asked(number, launch, record, min(named, key=self._start), op, step))
        return sorted(made, key=lambda one: self.events[one.kernel]["ts"])

    def _labels(self) -> list[int]:
        return [
            n
            for n, event in enumerate(self.events)
            if event.get("cat") in ("cpu_op", "user_annotation") and str(event["name"]).startswith(("nccl:", "c10d::"))
        ]

    def _start(self, number: int) -> float:
        return float(self.events[number]["ts"])

    def _holds(self, outer: int, inner: int) -> bool:
        a, b = self.events[outer], self.events[inner]
        return bool(a["tid"] == b["tid"] and a["ts"] <= b["ts"] <= a["ts"] + a["dur"])

    def drop(self, numbers: set[int]) -> None:
        """Make events no events, so that the others keep their numbers."""
        for number in numbers:
            self.events[number] = {"ph": "M", "name": "dropped", "pid": 0, "tid": 0}

    def held_by(self, one: Asked) -> set[int]:
        """Return the numbers of all that belongs to a collective: kernel, launch, host events."""
        outer = self.events[one.outer]
        end = outer["ts"] + outer["dur"]
        inner = {
            n
            for n, event in enumerate(self.events)
            if event.get("tid") == outer["tid"] and outer["ts"] <= event.get("ts", -1) <= end and event["ph"] == "X"
        }
        return inner | {one.kernel}

    def on_stream(self, chosen: list[Asked], stream: int = COMPUTE_STREAM) -> None:
        """Move collectives to a stream; all that came after starts later, for one stream does one thing at a time."""
        for one in chosen:
            kernel = self.events[one.kernel]
            begin = kernel["ts"]
            busy = [
                event["ts"] + event["dur"]
                for event in self.events
                if event.get("cat") in DEVICE
                and event["args"].get("stream") == stream
                and event["ts"] <= begin < event["ts"] + event["dur"]
            ]
            begin = max([begin, *busy])
            kernel["tid"] = kernel["args"]["stream"] = stream
            self._later(begin, kernel["dur"] + 1, kernel)
            kernel["ts"] = begin + 0.5

    def _later(self, at: float, us: float, but: dict[str, Any]) -> None:
        for event in self.events:
            if event is but or "ts" not in event:
                continue
            if event["ts"] >= at:
                event["ts"] += us
            elif event.get("cat") not in DEVICE and event["ts"] + event.get("dur", 0) > at:
                event["dur"] += us

    def by_copies(self, chosen: list[Asked], pieces: int = 4) -> None:
        """Let copies from peer to peer do what a kernel did."""
        for one in chosen:
            kernel, launch = self.events[one.kernel], self.events[one.launch]
            self.drop({one.kernel})
            share = kernel["dur"] / pieces
            for piece in range(pieces):
                number = 1 << 40 | one.kernel << 4 | piece
                args = {"stream": kernel["args"]["stream"], "device": 0, "correlation": number, "bytes": 1 << 20}
                copied = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy PtoP (Device -> Device)", "pid": 0}
                when = {"ts": kernel["ts"] + piece * share, "dur": share * 0.99, "tid": kernel["tid"], "args": args}
                self.events.append(copied | when)
                self.events.append(
                    launch
                    | {
                        "name": "cudaMemcpyAsync",
                        "ts": launch["ts"] + 0.1 * piece,
                        "dur": 0.1,
                        "args": {"correlation": number},
                    }
                )

    def gradient_by_gradient(self, one: Asked) -> None:
        """Reduce each gradient of a bucket by itself, as soon as it is there."""
        ready = self._gradients(one)
        kernel, launch = copy.deepcopy(self.events[one.kernel]), copy.deepcopy(self.events[one.launch])
        record, outer = copy.deepcopy(self.events[one.record]), copy.deepcopy(self.events[one.outer])
        label = next(
            (copy.deepcopy(self.events[n]) for n in self.held_by(one) if self.events[n]["name"] == "nccl:all_reduce"),
            None,
        )
        self.drop(self.held_by(one))
        free = 0.0
        for index, number in enumerate(ready):
            gradient = self.events[number]
            at, tid = gradient["ts"] + gradient["dur"] + 0.01, gradient["tid"]
            correlation = 1 << 41 | one.kernel << 10 | index
            for level, event in enumerate(event for event in (outer, record, label, launch) if event is not None):
                made = copy.deepcopy(event)
                made |= {"ts": at + 0.001 * level, "dur": 0.05 - 0.002 * level, "tid": tid}
                self._share(made, len(ready))
                self.events.append(made)
            self.events[-1]["args"]["correlation"] = correlation
            piece = copy.deepcopy(kernel)
            piece["ts"] = max(at + 10, free)
            piece["dur"] = kernel["dur"] / len(ready)
            piece["args"]["correlation"] = correlation
            self._share(piece, len(ready))
            free = piece["ts"] + piece["dur"] + 1
            self.events.append(piece)

    @staticmethod
    def _share(event: dict[str, Any], parts: int) -> None:
        args = event.get("args", {})
        for name in ("In msg nelems", "Out msg nelems"):
            if name in args:
                args[name] //= parts
        dims = args.get("Input Dims")
        if dims and len(dims) == 1 and dims[0]:
            args["Input Dims"] = [[dims[0][0] // parts]]

    def _gradients(self, one: Asked) -> list[int]:
        """Return the gradients between the reduction before and this one."""
        every = self.hosted("torch::autograd::AccumulateGrad")
        mine = self._start(one.outer)
        before = max(
            (t for n in self.hosted("c10d::allreduce_") if (t := self._start(n)) < mine), default=float("-inf")
        )
        return [number for number in every if before < self._start(number) <= mine]


def altered(draw: int = 0) -> list[KnownTrace]:
    """Return the twenty traces of a draw; they need the recordings when they are made, not before."""
    return [KnownTrace(name, _made(make), is_real=True) for name, make in _recipes(_CHOSEN[draw])]


def _made(make: Callable[[], Altered]) -> Callable[[], tuple[Document, Truth]]:
    def build() -> tuple[Document, Truth]:
        one = make()
        return one.document, one.truth

    return build


@dataclass(frozen=True)
class Chosen:
    """Which step, and which reduction in it, is altered in each recording; which rank of the recommendation job."""

    resnet: tuple[int, int]
    queue: tuple[int, int]
    diff: tuple[int, int]
    ranks: tuple[int, int]
    fused: int


_CHOSEN = (
    Chosen((5, 3), (552, 1), (1011, 2), (2, 5), 2),
    Chosen((5, 1), (551, 1), (1013, 0), (6, 1), 5),
    Chosen((5, 4), (553, 1), (1010, 2), (3, 4), 7),
)


def _recipes(at: Chosen) -> Iterator[tuple[str, Callable[[], Altered]]]:
    resnet, queue, diff = "hta_nccl_data.json.gz", "hta_negative_queue_rank0.json.gz", "hta_trace_diff_control.json.gz"
    sampled, dlrm = "hta_sampled_rank-0.json.gz", "param_dlrm_kineto.tar.gz"
    yield "resnet-split", lambda: _split(Altered.of(resnet), *at.resnet)
    yield "resnet-split-all", lambda: _split(Altered.of(resnet), 4, None)
    yield "resnet-removed", lambda: _removed(Altered.of(resnet), at.resnet[0], (at.resnet[1] + 4) % 5)
    yield "resnet-compute-stream", lambda: _moved(Altered.of(resnet), "all-reduce")
    yield "resnet-copies", lambda: _copied(Altered.of(resnet), "all-reduce", 5)
    yield "resnet-renamed", lambda: _renamed(Altered.of(resnet), "all-reduce", 6)
    yield "resnet-variable", lambda: _variable(Altered.of(resnet))
    yield "queue-split", lambda: _split(Altered.of(queue), *at.queue)
    yield "queue-removed", lambda: _removed(Altered.of(queue), at.queue[0], 0)
    yield "queue-compute-stream", lambda: _moved(Altered.of(queue), "reduce-scatter")
    yield "queue-renamed", lambda: _renamed(Altered.of(queue), "all-gather", at.queue[0])
    yield "queue-tensor", lambda: _tensor(Altered.of(queue), fused=0)
    yield "queue-tensor-fused", lambda: _tensor(Altered.of(queue), fused=at.fused)
    yield "diff-split", lambda: _split(Altered.of(diff), *at.diff)
    yield "diff-removed", lambda: _removed(Altered.of(diff), at.diff[0], (at.diff[1] + 2) % 3)
    yield "diff-compute-stream", lambda: _moved(Altered.of(diff), "all-reduce")
    yield "diff-copies", lambda: _copied(Altered.of(diff), "all-to-all", at.diff[0] + 1)
    yield "sampled-compute-stream", lambda: _moved(Altered.of(sampled), "all-gather")
    yield "dlrm-compute-stream", lambda: _moved(Altered.of(dlrm, at.ranks[0]), "all-reduce")
    yield "dlrm-renamed", lambda: _renamed(Altered.of(dlrm, at.ranks[1]), "all-to-all", 10)


def _split(made: Altered, step: int, which: int | None) -> Altered:
    mine = [one for one in made.asked("all-reduce") if one.iteration == step]
    mine.sort(key=lambda one: made.events[one.outer]["ts"])
    for one in mine if which is None else [mine[which]]:
        made.gradient_by_gradient(one)
        made.truth.expect(GRADIENT_BUCKET, step, fired=True, count=-1)
        made.truth.expect(GRADIENT_BUCKET, step, fired=False)
    return made


def _removed(made: Altered, step: int, which: int) -> Altered:
    outer = [n for n in made.hosted("c10d::allreduce_") if made.iteration(made.events[n]["ts"]) == step][which]
    mine = next((one for one in made.asked("all-reduce") if one.outer == outer), None)
    made.drop(made.held_by(mine) if mine else {outer})
    made.truth.expect(GRADIENT_BUCKET, step, fired=True, count=-1)
    made.truth.expect(GRADIENT_BUCKET, step, fired=False)
    return made


def _moved(made: Altered, op: str) -> Altered:
    chosen = made.asked(op)
    made.on_stream(chosen)
    made.truth.causes |= dict.fromkeys((one.kernel for one in chosen), "same-stream")
    made.truth.apart.add(f"stream {COMPUTE_STREAM}")
    return made


def _copied(made: Altered, op: str, step: int) -> Altered:
    chosen = made.asked(op)
    made.by_copies([one for one in chosen if one.iteration == step])
    for one in chosen:
        made.truth.expect(COPIES, one.iteration, fired=one.iteration == step)
    return made


def _renamed(made: Altered, op: str, step: int) -> Altered:
    for one in made.asked(op):
        if one.iteration == step:
            made.events[one.kernel]["name"] = "void fast_transport::ring_step<float>(float*, unsigned long)"
            args = made.events[one.kernel]["args"]
            made.events[one.kernel]["args"] = {
                key: value for key, value in args.items() if key in ("stream", "device", "correlation", "grid")
            }
            made.truth.causes[one.record] = "cannot tell"
    return made


def _variable(made: Altered) -> Altered:
    """Say that one hardware queue was asked for, in a run whose computation did overtake: it is not to blame."""
    made.document["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    return made


def _tensor(made: Altered, *, fused: int) -> Altered:
    """Make the gathers of a tensor parallel group that a product follows; ``fused``: the first so many are one operation."""
    compute = made.kernels()
    starts = [made.events[n]["ts"] for n in compute]
    made.document["distributedInfo"]["pg_config"] = [
        {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 16, "ranks": list(range(16))},
        {"pg_name": "9", "pg_desc": "mesh_tp", "pg_size": 16, "ranks": list(range(16))},
    ]
    on = fused > 0
    for one in made.asked("all-gather"):
        kernel = made.events[one.kernel]
        end = kernel["ts"] + kernel["dur"]
        following = compute[bisect.bisect_left(starts, end)]
        if made.events[following]["ts"] - end > 15:
            continue
        made.events[following]["name"] = GEMM
        is_fused, fused = fused > 0, fused - 1
        made.truth.expect(GATHER_MATMUL, one.iteration, fired=is_fused)
        if is_fused:
            _fuse(made, one, following)
        else:
            for number in (one.kernel, one.record):
                made.events[number].setdefault("args", {}).update({**GROUP, "Collective name": "_allgather_base"})
            made.truth.causes[one.kernel] = "fusion-not-matched" if on else "dependency"
    return made


def _fuse(made: Altered, one: Asked, following: int) -> None:
    """Put gather and product into one operation of the host, with copies in place of the gather's kernel."""
    made.by_copies([one])
    outer = made.events[one.outer]
    number = made.events[following]["args"]["correlation"]
    launch = next(
        event
        for event in made.events
        if event.get("cat") == "cuda_runtime" and event.get("args", {}).get("correlation") == number
    )
    launch |= {"ts": outer["ts"] + outer["dur"] * 0.5, "tid": outer["tid"]}
    made.drop({one.record})
    outer |= {"name": "symm_mem::fused_all_gather_matmul", "cat": "cpu_op"}
    for event in made.events:
        is_inside = (
            event.get("tid") == outer["tid"] and outer["ts"] <= event.get("ts", -1) <= outer["ts"] + outer["dur"]
        )
        if is_inside and str(event.get("name")).startswith(("nccl:", "record_param_comms")):
            event |= {"ph": "M", "cat": "none"}
