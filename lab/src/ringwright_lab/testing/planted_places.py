"""Simulated jobs with one fault put in, as recordings that do not say so, and whether the summary names the place of the fault.

A job is drawn from a seed: model, mesh, policy, fabric, the fault's kind, place and severity. Its Trace is judged without a word
of the fault and with its ranks renumbered. What is right to say stands in ``identified``: it is worked out from the run without
the fault beside the run with it, which the summary does not have.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ringwright.fabrics import fabric, faults
from ringwright.ground.errors import RingwrightError
from ringwright.jobs import model_job, study
from ringwright.jobs.job_trace import trace as traced
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.model.topology import NIC
from ringwright.model.trace import Trace

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.topology import Topology

MODELS = ("gpt3-125m", "gpt3-350m", "gpt2-small", "bert-base", "bert-large", "resnet50", "vgg16")
IMAGES = ("resnet50", "vgg16")
LAYERS = (4, 8)  # of the other models: what they take stays what a layer takes
POLICIES = (
    "none",
    "pytorch-ddp",
    "pytorch-ddp:bucket_cap_mb=5",
    "bytescheduler",
    "p3",
    "dear",
    "gradientflow",
    "poseidon",
)
MESHES = (
    *("dp8", "tp2,dp4", "tp4,dp2", "pp2,dp4", "tp2,pp2,dp2", "fsdp,dp8", "zero1,dp8"),
    *("dp16", "tp2,dp8", "tp4,dp4", "pp4,dp4", "pp2,dp8", "tp2,pp2,dp4", "tp4,pp2,dp2", "fsdp,tp2,dp8"),
    *("tp4,dp8", "tp2,pp4,dp4"),
)
SMALL_MODELS, SMALL_MESHES, SMALL_POLICIES = (
    MODELS[:5],
    MESHES[1:5],
    ("none", "pytorch-ddp", "dear", "gradientflow", "poseidon"),
)
FABRICS = (
    *("switch:{n},rate=25Gb/s", "switch:{n},rate=100Gb/s", "switch:{n},rate=400Gb/s"),
    *("dgx-h100:{nodes}", "dgx-a100:{nodes}", "p4d:{nodes}", "rail-optimised:{nodes}"),
    *("leaf-spine:{n},per_leaf=4,spines=2,rate=50Gb/s", "leaf-spine:{n},per_leaf=4,spines=4,rate=100Gb/s"),
    *("fat-tree:{n}", "torus:4x{quarter}", "full:{n}"),
)
SMALL_FABRICS = tuple(each for each in FABRICS if each.startswith(("switch", "leaf-spine", "fat-tree")))
RANK_FAULTS = ("slow-rank", "late-loader")
LINK_FAULTS: dict[str, tuple[str, tuple[float | str, ...]]] = {  # mild ones first
    "slow-nic": ("rate {}%", (75, 60, 50, 33, 25, 20, 10)),
    "loss": ("loss {}%", (0.05, 0.1, 0.5, 1, 2)),
    "bit-errors": ("ber {}", ("5e-4", "1e-3", "2e-3")),
    "latency": ("latency +{}us", (20, 100, 500, 2000)),
    "half-optic": ("optics degrade for {}us", (1, 10, 100)),
    "flap": ("flap {}ms every 20ms", (1, 2, 5)),
}
KINDS = ("healthy", *RANK_FAULTS, *LINK_FAULTS, "slow-uplink")
SEVERITY, SEVERE = (1.3, 6.0), (3.0, 8.0)  # times as long as without, what a rank does by itself


@dataclass(frozen=True)
class PlantedJob:
    """A job with a fault: what was drawn, where the fault is, and both recordings.

    ``ranks`` are beside the place of the fault; of ``through``, pairs of ranks, what one sends the other goes through it, which
    on rails may be the NIC of neither.
    """

    seed: int
    kind: str
    said: str
    ranks: frozenset[int]
    trace: Trace
    healthy: Trace
    times: float  # as long as without, a step takes
    through: frozenset[frozenset[int]] = frozenset()

    @property
    def is_folded(self) -> bool:
        """Whether events stand for several ranks, of a job of very many events."""
        return self.trace.df["rank"].null_count() > 0 or self.healthy.df["rank"].null_count() > 0


def planted(seed: int, kind: str = "", *, small: bool = False) -> PlantedJob | None:
    """Return the job of a seed with a fault of a kind (drawn, where none is named); None where the draw makes no job.

    ``small`` jobs have 8 ranks, few layers, severe faults, and none of the policies that cut operations into very many.
    """
    draw = random.Random(f"planted {seed}")  # noqa: S311 - a lottery, not a secret
    drawn = draw.choice((*KINDS, "healthy", *RANK_FAULTS))  # those twice
    kind = kind or drawn
    of_all, of_small = (MODELS, POLICIES, MESHES, FABRICS), (SMALL_MODELS, SMALL_POLICIES, SMALL_MESHES, SMALL_FABRICS)
    model, policy, mesh, spelled = (draw.choice(each) for each in (of_small if small else of_all))
    mesh, layers = draw.choice(("dp8", "dp16")) if model in IMAGES else mesh, (2,) if small else LAYERS
    ranks = int(np.prod([int(word[2:]) for word in mesh.split(",") if word[:2] in ("tp", "pp", "dp")]))
    named = spelled.format(n=ranks, nodes=-(-ranks // 8), quarter=max(2, ranks // 4))
    try:
        machine = fabric(named)
        dims = {} if model in IMAGES else {"layers": draw.choice(layers)}
        spec = WorkloadSpec(model, None, mesh, micro_batches=4 if "pp" in mesh else None, dims=dims)
        question = model_job.GeneratedJobSpec(spec)
        fault, where, late = _fault(kind, machine, ranks, draw, severe=small)
        sound = model_job.made(question, machine)
        job = model_job.made(question, faults.apply(machine, [fault], seed=seed)) if fault else sound
        well = study.answer(sound, policy)
        if kind == "late-loader":
            late = {rank: share * well.step_s for rank, share in late.items()}
            job = replace(job, late=late)
        ill = well if kind == "healthy" else study.answer(job, policy)
    except RingwrightError:
        return None
    said = f"{model} {mesh} on {named}, policy {policy}: {fault or late or 'healthy'}"
    return PlantedJob(
        seed,
        kind,
        said,
        where,
        traced(job, ill),
        traced(sound, well),
        ill.step_s / max(well.step_s, 1e-12),
        _through(machine, fault.split()[1], ranks) if kind in (*LINK_FAULTS, "slow-uplink") else frozenset(),
    )


def _through(machine: Topology, label: str, ranks: int) -> frozenset[frozenset[int]]:
    """Return the pairs of ranks between which a route goes through a node, or a link of two nodes, by its label."""
    ends = {node for node in range(len(machine.kinds)) if machine.label(node) in label.split("--")}
    touched = np.isin(machine.src, [*ends]).astype(int) + np.isin(machine.dst, [*ends])
    src, dst = (each.ravel() for each in np.meshgrid(np.arange(ranks), np.arange(ranks), indexing="ij"))
    starts, links = machine.routes(src, dst)
    hit = np.flatnonzero(touched[links] >= len(ends))
    rows = np.searchsorted(starts, hit, side="right") - 1
    return frozenset(frozenset((int(src[row]), int(dst[row]))) for row in np.unique(rows))


def _fault(
    kind: str, machine: Topology, ranks: int, draw: random.Random, *, severe: bool
) -> tuple[str, frozenset[int], dict[int, float]]:
    """Return the fault's line, the ranks beside its place, and how late ranks begin, in shares of a healthy step."""
    rank = draw.randrange(ranks)
    if kind == "healthy":
        return "", frozenset(), {}
    factor = float(np.exp(draw.uniform(*np.log(SEVERE if severe else SEVERITY))))
    if kind == "slow-rank":
        return f"rank {rank} slow {factor:.2f}x", frozenset((rank,)), {}
    if kind == "late-loader":
        return "", frozenset((rank,)), {rank: factor - 1}
    target, where = _uplink(machine, rank) if kind == "slow-uplink" else _nic(machine, rank)
    effect, values = LINK_FAULTS["slow-nic" if kind == "slow-uplink" else kind]
    value = draw.choice(values[len(values) // 2 :] if severe else values)
    return f"{target} {effect.format(value)}", frozenset(each for each in where if each < ranks), {}


def _nic(machine: Topology, rank: int) -> tuple[str, set[int]]:
    """Return the NIC nearest to a rank, with all ranks that are as near to it; where none is drawn, the rank's own links."""
    mine = {
        each: _nearest(machine, each, lambda node: int(machine.kinds[node]) == NIC) for each in range(machine.n_ranks)
    }
    nic = mine[rank]
    if nic is None:
        return f"link {machine.label(rank)}", {rank}
    return f"nic {machine.label(nic)}", {each for each, near in mine.items() if near == nic}


def _uplink(machine: Topology, rank: int) -> tuple[str, set[int]]:
    """Return the links of the leaf of a rank, with all ranks on it; those of its NIC where there is no leaf."""
    leaf = _nearest(machine, rank, lambda node: machine.label(node).startswith(("leaf", "edge")))
    on_it = {each for each in range(machine.n_ranks) if leaf is not None and _hangs_on(machine, each, leaf)}
    if leaf is None or len(on_it) < 2 or len(on_it) == machine.n_ranks:
        return _nic(machine, rank)
    above = [int(node) for node in machine.dst[machine.src == leaf] if int(node) >= machine.n_ranks]
    return f"link {machine.label(leaf)}--{machine.label(above[0])}" if above else f"link {machine.label(leaf)}", on_it


def _hangs_on(machine: Topology, rank: int, leaf: int) -> bool:
    return bool(((machine.src == rank) & (machine.dst == leaf)).any())


def _nearest(machine: Topology, rank: int, wanted: Callable[[int], bool]) -> int | None:
    """Return the nearest node of a kind by hops, through no other rank; of several the first."""
    seen, edge = {rank}, [rank]
    while edge:
        further = []
        for node in edge:
            for other in machine.dst[machine.src == node].tolist():
                if other not in seen and other >= machine.n_ranks:
                    seen.add(other)
                    further.append(other)
        gathered = sorted(node for node in further if wanted(node))
        if gathered:
            return int(gathered[0])
        edge = further
    return None


def disguised(trace: Trace, seed: int) -> tuple[Trace, dict[int, int]]:
    """Return the recording without what was asked, its ranks and hosts under other names, and the new number of each rank."""
    import polars as pl

    world = int(trace.meta["world"])
    numbers = list(range(world))
    random.Random(f"disguise {seed}").shuffle(numbers)  # noqa: S311
    now = dict(enumerate(numbers))
    kinds = pl.Int32
    rank = pl.col("rank").replace_strict(now, default=None, return_dtype=kinds)
    table = {name: trace.table(name) for name in ("events", "edges", "communicators", "topology", "links", "ledger")}
    events = table["events"].with_columns(rank, pl.col("task").str.replace(r"^held .*", "task"))
    members = pl.col("members").list.eval(pl.element().replace_strict(now, default=None, return_dtype=kinds))
    hosts = {each: f"h{at}" for at, each in enumerate(sorted(set(table["topology"]["host"].drop_nulls()), key=hash))}
    host = pl.col("host").replace_strict(hosts, default=None, return_dtype=pl.String) if hosts else pl.col("host")
    told = {
        "events": events.with_columns(pl.col("rank_class").str.replace(r", rank \d+$", "")),
        "edges": table["edges"],
        "communicators": table["communicators"].with_columns(members),
        "topology": _renamed(table["topology"], rank, host),
    }
    return Trace.of(told, {"source": trace.meta["source"], "world": world, "summary": "a job"}), now


def _renamed(topology: pl.DataFrame, rank: pl.Expr, host: pl.Expr) -> pl.DataFrame:
    return topology.with_columns(rank, host) if topology.height else topology
