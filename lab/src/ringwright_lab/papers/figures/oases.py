"""Oases' figures: a stack of profiled layers whose halves take turns, and experts' exchanges beside another pass.

Not in the paper's abstract and charts, so assumed, and written down before the rows were run: micro-batches of 4 sequences;
layers cut by 4 GPUs up to the hidden size 4096, by 8 beyond (4 of 24 GB do not hold the optimizer states there); beyond 4096 the
products grow with the square of the hidden size, sums with itself; of the rest of a step (data parallel sums, optimizer,
embeddings) nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from math import log

from ringwright.engines.job.flat import Interference
from ringwright.engines.job.run import simulate
from ringwright.fabrics import fabric
from ringwright.jobs.model_step import job
from ringwright.jobs.pricing.costs import on_fabric
from ringwright.model.stages import Costs, Stage
from ringwright.model.values import PARTIAL, Placement, Value, Work
from ringwright.model.workload import Edge, Mesh, Payload, RankClass, Task, Workload
from ringwright.schedulers.decompose.oases import Schedule, oases
from ringwright_lab.papers.figures.oases_profile import SEQUENCE, LayerMs, layer_ms

BATCH, WIDTH_BYTES = 4, 2
LAYERS = {1024: 24, 2048: 24, 3072: 24, 4096: 16, 6144: 16, 8192: 8, 12288: 4}
PUBLISHED = {  # charts of the repository: times faster than Megatron-LM without NVLink, and with pairs of GPUs on NVLink
    (1024, False): 1.53,
    (2048, False): 1.95,
    (3072, False): 1.78,
    (4096, False): 1.73,
    (6144, False): 1.67,
    (8192, False): 1.71,
    (12288, False): 1.81,
    (1024, True): 1.06,
    (2048, True): 1.62,
    (3072, True): 1.45,
    (4096, True): 1.39,
    (6144, True): 1.59,
    (8192, True): 1.63,
    (12288, True): 1.58,
}
FITTED = list(PUBLISHED)[::2]  # every other one, as they are listed
SLOWDOWNS = [1.0 + 0.05 * at for at in range(21)]
SHARES = [0.1 * at for at in range(2, 11)]  # of a sum's time without NVLink
GROUPS = (0, 4096)  # hidden sizes up to which 4 GPUs cut a layer


@dataclass(frozen=True)
class SumCosts:
    """A sum takes what the profile says of a whole and of half a micro-batch, and as much with NVLink times a share."""

    seconds: tuple[tuple[int, float], ...]
    share: float

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return one phase."""
        return (Stage(dict(self.seconds)[size_bytes] * self.share),)


# ------------------------------------------------------------------------------------------------------------ the profile
def gain(hidden: int, nvlink: bool = False) -> float:
    """Return how many times faster than Megatron-LM, at the fitted slowdown of products beside a sum."""
    slowdown, share = fit()
    return gain_at(hidden, slowdown, share if nvlink else 1.0)


def bound(hidden: int, nvlink: bool = False) -> float:
    """Return how many times faster where sums slow nothing down; NVLink only makes less of it to gain."""
    return gain_at(hidden, 1.0, 1.0)


@cache
def gain_at(hidden: int, slowdown: float, share: float, schedule: Schedule = "oases") -> float:
    """Return how many times faster than Megatron-LM, products ``slowdown`` times as long beside a sum."""
    step, costs = layers_of(hidden), sums_of(hidden, share)
    made = oases(step, costs, schedule=schedule)
    beside = Interference("factor", slowdown - 1.0) if slowdown > 1.0 else None
    return simulate(step, costs, steps=2).step_s / simulate(made, costs, steps=2, interference=beside).step_s


@cache
def fit() -> tuple[float, float]:
    """Return the slowdown, and the share of a sum's time with NVLink, that fit the fitted gains best, in that order."""
    plain = [key for key in FITTED if not key[1]]
    slowdown = min(SLOWDOWNS, key=lambda each: _misfit(plain, each, 1.0))
    pairs = [key for key in FITTED if key[1]]
    return slowdown, min(SHARES, key=lambda each: _misfit(pairs, slowdown, each))


def _misfit(keys: Iterable[tuple[int, bool]], slowdown: float, share: float) -> float:
    return sum(log(gain_at(hidden, slowdown, share) / PUBLISHED[hidden, nvlink]) ** 2 for hidden, nvlink in keys)


def slowdown() -> float:
    """Return how many times as long products take beside a sum, as fitted."""
    return fit()[0]


def order(hidden: int) -> float:
    """Return 1 where default-checkpoint is slower than optim-comm, and that slower than oases, at the fitted slowdown."""
    mine = fit()[0]
    schedules: tuple[Schedule, ...] = ("default-checkpoint", "optim-comm", "oases")
    gains = [gain_at(hidden, mine, 1.0, each) for each in schedules]
    return float(gains[0] < gains[1] < gains[2])


def sums_kept(hidden: int) -> float:
    """Return how many times faster than Megatron-LM it is to keep sums alone, without halves."""
    return gain_at(hidden, 1.0, 1.0, "optim-comm")


def sums_of(hidden: int, share: float) -> SumCosts:
    """Return what sums take at a hidden size."""
    ranks = ranks_of(hidden)
    each = [
        (sequences * SEQUENCE * hidden * WIDTH_BYTES, layer_ms(hidden, ranks, sequences).sum / 1e3)
        for sequences in (BATCH, BATCH // 2)
    ]
    return SumCosts(tuple(each), share)


def ranks_of(hidden: int) -> int:
    """Return how many GPUs cut a layer."""
    return 4 if hidden <= GROUPS[1] else 8


@cache
def layers_of(hidden: int) -> Workload:
    """Return a step of Megatron-LM: layers forward, then each forward once more and back; six sums a layer."""
    whole, half = (layer_ms(hidden, ranks_of(hidden), each) for each in (BATCH, BATCH // 2))
    stack = _Stack(hidden, whole, half)
    at = "input"
    for number in range(LAYERS[hidden]):
        at = stack.forward(number, at)
    back = at
    for number in reversed(range(LAYERS[hidden])):
        back = stack.backward(number, back)
    return stack.step()


class _Stack:
    """A stack of layers in the making; every task says what it reads and writes, and that a batch may be cut."""

    def __init__(self, hidden: int, whole: LayerMs, half: LayerMs) -> None:
        self.hidden, self.whole, self.half = hidden, whole, half
        self.tasks: list[Task] = []
        self.payloads: list[Payload] = []
        self.values: dict[str, Value] = {}
        self.edges: list[Edge] = []
        self.starts: dict[int, str] = {}
        self.bars: dict[str, str] = {}  # payload -> the task that holds the next pass back until it is there
        self.value("input")

    def value(self, name: str, *, partial: bool = False, gradient: bool = False) -> str:
        dims = (
            (("hidden", self.hidden),)
            if gradient
            else (("batch", BATCH), ("sequence", SEQUENCE), ("hidden", self.hidden))
        )
        size = (self.hidden if gradient else BATCH * SEQUENCE * self.hidden) * WIDTH_BYTES
        layout = (Placement("tp", PARTIAL),) if partial else ()
        kind, per = ("gradient", "step") if gradient else ("activation", "micro-batch")
        self.values[name] = Value(name, "all", size, dims, layout, kind, per, "float16")
        return name

    def block(self, name: str, phase: str, what: str, reads: list[str], same_as: str = "") -> str:
        """Add a task and the sum of what it writes, and return the sum's value."""
        part = f"{what}_back" if phase == "B" else what
        whole, half = getattr(self.whole, part) / 1e3, getattr(self.half, part) / 1e3
        inner = (
            []
            if phase == "F"
            else [self.value(f"{name}.w" if phase == "B" else f"{name}.inner", gradient=phase == "B")]
        )
        writes = [*inner, self.value(f"{name}.out", partial=True)]
        settings = {"same_as": same_as or name, "outputs": (["inner", "out"] if inner else ["out"])}
        work = Work(settings=settings, cuts={"batch": max(0.0, 2 * half - whole)})
        slot = "F" if phase == "F" else "B"
        layer = int(name.split(".")[1])
        read = tuple((each, 0) for each in reads)
        self.tasks.append(Task(name, "all", slot, whole, layer, (slot, 0), reads=read, writes=tuple(writes), work=work))
        result = self.value(f"{name}.sum")
        size = self.values[result].size_bytes
        self.payloads.append(
            Payload(
                f"{name}.send",
                "all",
                "all-reduce",
                size,
                ("tp",),
                "tp",
                (name,),
                (),
                "micro-batch",
                layer,
                "float16",
                source=writes[-1],
                result=result,
            )
        )
        return result

    def forward(self, number: int, at: str) -> str:
        self.starts[number] = at
        middle = self.block(f"attention.{number}", "F", "attention", [at])
        return self.block(f"mlp.{number}", "F", "mlp", [middle])

    def backward(self, number: int, back: str) -> str:
        """Run a layer's forward pass once more once the layer above is done, then back through it once that is done."""
        start = self.starts[number]
        bar = Task(f"again.{number}", "all", "B", 0.0, number, ("B", 0))
        self.tasks.append(bar)
        self.edges.append(Edge(bar.name, f"again-attention.{number}"))
        above = f"attention-back.{number + 1}.send"
        self.bars[above if any(each.name == above for each in self.payloads) else f"mlp.{number}.send"] = bar.name
        names = [f"again-{each}.{number}" for each in ("attention", "mlp")]
        middle = self.block(names[0], "R", "attention", [start], f"attention.{number}")
        end = self.block(names[1], "R", "mlp", [middle], f"mlp.{number}")
        back = self.block(f"mlp-back.{number}", "B", "mlp", [back, middle, f"{names[1]}.inner", end])
        return self.block(f"attention-back.{number}", "B", "attention", [back, start, f"{names[0]}.inner"])

    def step(self) -> Workload:
        readers: dict[str, list[tuple[str, int]]] = {}
        for task in self.tasks:
            for name, far in task.reads:
                readers.setdefault(name, []).append((task.name, far))
        payloads = []
        for each in self.payloads:
            bars = [(self.bars[each.name], 0)] if each.name in self.bars else []
            payloads.append(replace(each, consumers=(*readers.get(each.result, ()), *bars)))
        mesh = Mesh((("tp", ranks_of(self.hidden)),))
        named = f"{LAYERS[self.hidden]} layers of {self.hidden}"
        parts = tuple(self.tasks), tuple(self.edges), tuple(payloads)
        return Workload(named, mesh, (RankClass("all"),), *parts, values=tuple(self.values.values()))


# ------------------------------------------------------------------------------------------------------------ experts
EXPERT_MODEL, EXPERT_BATCHES = "qwen3-30b-a3b", 8
MEASURED = Interference("measured", gpu="h100")
EXPERT_BAND = (1.02, 1.1)  # flat is at most the one, a gain at least the other


@cache
def expert_gain(ranks: int) -> float:
    """Return how many times faster pairs of passes make a step with experts on so many H100, 8 in a node.

    Kernels that exchange hold compute units: what a product takes beside them was measured on an H100, not fitted to this gain.
    """
    step = job(
        EXPERT_MODEL, gpus=ranks, parallel=f"ep{ranks}", micro_batches=EXPERT_BATCHES, micro_batch_size=1, seq=4096
    )
    costs: Costs = on_fabric(fabric(f"dgx-h100:{-(-ranks // 8)}"), step)
    made = oases(step, costs, halves="passes")
    times = [simulate(each, costs, steps=2, interference=MEASURED).step_s for each in (step, made)]
    return times[0] / times[1]


def experts_need_wide_groups() -> float:
    """Return 1 where 16 ranks gain and 2 and 4 are flat or slower."""
    flat, gains = EXPERT_BAND
    return float(expert_gain(16) >= gains and max(expert_gain(2), expert_gain(4)) <= flat)
