"""Measured times of MPI algorithms against their programs: is the ranking right, and how far are the times off?

Per system and transport three numbers are fitted on every second size: seconds a message, seconds a byte, seconds a byte
added up. An algorithm's time is what its program declares of its critical path, priced with them, no contention; or the
event engine's on the fabric of the system, with the same numbers. Ranks are compared by Kendall's tau-b over the
algorithms of one system, node count, operation and size, on the sizes that were not fitted.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.costs.calibration.search import descend
from ringwright.costs.mpi_names import OUR_NAMES
from ringwright.executors.fan_out import Chosen, FanOut, fan_out
from ringwright.formats.sources.tables.csv_rows import csv_rows, finite, whole_number
from ringwright.ground.errors import InputError, RingwrightError
from ringwright.model.collective import Collective

if TYPE_CHECKING:
    import numpy as np

    from ringwright.model.program import Program

SCHEMA = "ringwright.mpi-accuracy/1"
LARGE_BYTES = 64 << 10
COLUMNS = ("system", "nodes", "collective", "algorithm", "bytes", "median_us")
MOST_NODES = 1 << 20
_LONGEST_HEAD = 1 << 12

# Their spelling without library and interface -> (block, why not exactly). Variants that only rearrange buffers share one.
BLOCKS = {
    "allreduce": {
        r"ring|default-ring|RING-B_CONT": ("ring", ""),
        r"default-segmented_ring": ("segmented_ring", ""),
        r"rabenseifner|RECDOUB-B_CONT": ("rabenseifner", ""),
        r"recursive_doubling|default-recursive_doubling|RECDOUB-L": ("recursive_doubling", ""),
        r"bine_lat|BINE-L": (
            "recursive_doubling",
            "Bine's latency form: as many and as large messages, to other partners",
        ),
        r"bine_bdw_remap|bine_bdw_static|BINE-B_CONT": ("bine", ""),
        r"default-basic_linear": ("linear", ""),
        r"default-nonoverlapping": ("nonoverlapping", ""),
    },
    "allgather": {
        r"ring|default-ring|RING-VEC_DOUBLING_CONT_PERMUTE": ("ring", ""),
        r"recursive_doubling|default-recursive-doubling": ("recursive_doubling", ""),
        r"neighbor|default-neighbor": ("neighbor_exchange", ""),
        r"k_bruck|default-bruck": ("bruck", ""),
        r"sparbit": ("sparbit", ""),
        r"default-linear": ("direct", ""),
        r"bine_2_blocks|bine_send_remap|BINE-VEC_DOUBLING_(?:BLOCKS|CONT_PERMUTE|CONT_SEND)": ("bine", ""),
    },
    "reduce_scatter": {
        r"ring|default-ring|RING-VEC_HALVING_CONT_PERMUTE": ("ring", ""),
        r"recursive_halving|recursive_distance_doubling|default-recursive-halving": ("recursive_halving", ""),
        r"default-non-overlapping": ("nonoverlapping", ""),
        r"bine_permute_remap|bine_send_remap|BINE-VEC_HALVING_CONT_PERMUTE": ("bine", ""),
    },
    "alltoall": {
        r"pairwise|default-pairwise": ("pairwise", ""),
        r"linear|default-linear": ("direct", ""),
        r"modified_bruck|default-modified-bruck|BRUCK-LOG": ("bruck", ""),
        r"bine|BINE-LOG": ("bruck", "Bine's form: as many and as large messages, to other partners"),
    },
}
FABRICS = {"mare_nostrum": "fat-tree:{p}", "fugaku": "torus:{nodes}"}
MOST_RANKS = 64
_INTERFACE = re.compile(r"(?P<name>.*?)(?:-(?P<how>UTOFU|MPI)-0-(?P<nics>\d+)|_ompi|_over)?$")


@dataclass(frozen=True)
class Point:
    """One measured time with what its program declares."""

    system: str
    nodes: str
    op: str
    algorithm: str
    transport: str
    size_bytes: int
    time_s: float
    block: str
    messages: float
    path_bytes: float
    added_bytes: float

    @property
    def place(self) -> tuple[str, str, str, int]:
        """Points of one place are ranked against each other."""
        return self.system, self.nodes, self.op, self.size_bytes


def is_table(path: str | Path) -> bool:
    """Return whether a file has the columns of such a table."""
    try:
        with Path(path).open(newline="", encoding="utf-8", errors="replace") as stream:
            head = next(csv.reader([stream.readline(_LONGEST_HEAD)]), [])
    except (OSError, csv.Error):
        return False
    return set(head) >= set(COLUMNS)


def points(path: str | Path, refused: list[tuple[int, str]] | None = None) -> tuple[list[Point], dict[str, int]]:
    """Return the points of ``mpi_collectives_times.csv``, and rows per algorithm for which there is no program.

    ``refused`` takes in (line, reason) of rows that cannot be read; without it they are an InputError.
    """
    rows = csv_rows(path, COLUMNS)
    kept: list[Point] = []
    without: dict[str, int] = {}
    for line, row in enumerate(rows, 2):
        try:
            point = _point(row)
        except ValueError as error:
            if refused is None:
                raise InputError(f"the row cannot be read: {error}", where=f"{path}, line {line}") from error
            refused.append((line, str(error)))
            continue
        if point is None:
            name = f"{row['collective']} {row['algorithm']}"
            without[name] = without.get(name, 0) + 1
        else:
            kept.append(point)
    return kept, without


def _point(row: dict[str, str]) -> Point | None:
    size, p, time_s = whole_number(row["bytes"]), ranks(row["nodes"]), finite(row["median_us"]) * 1e-6
    if not (time_s > 0 and size > 0 and 1 < p <= MOST_NODES):
        raise ValueError(f"{size} B over {p} ranks in {row['median_us']} us")
    match = _INTERFACE.match(row["algorithm"])
    if match is None:
        return None
    table = BLOCKS.get(row["collective"], {})
    block = next((made for pattern, (made, _) in table.items() if re.fullmatch(pattern, match["name"])), None)
    if block is None:
        return None
    nics = max(1, int(match["nics"] or 1))
    try:
        cost = program(block, OUR_NAMES[row["collective"]], p, size).cost
    except RingwrightError:
        return None
    transport = "utofu" if match["how"] == "UTOFU" else "mpi"
    return Point(
        row["system"],
        row["nodes"],
        row["collective"],
        row["algorithm"],
        transport,
        size,
        time_s,
        block,
        cost.messages,
        cost.path_bytes / nics,
        cost.reduced_bytes,
    )


def ranks(nodes: str) -> int:
    """Return the ranks of ``2048`` or ``4x4x4``."""
    count = 1
    for part in nodes.split("x"):
        count *= int(part)
    return count


@cache
def program(block: str, op: str, p: int, size_bytes: int) -> Program:
    """Return a building block's program."""
    make = getattr(import_module(f"ringwright.algorithms.blocks.{block}"), block)
    made: Program = make(Collective(op, range(p), size_bytes))
    return made


def prices(points: Sequence[Point]) -> np.ndarray:
    """Return seconds per message, byte and added byte, fitted by the mean of |log| ratios. float64 of shape (3,)."""
    import numpy as np

    columns = np.array([(point.messages, point.path_bytes, point.added_bytes) for point in points])
    logs = np.log(np.array([point.time_s for point in points]))[:, None]

    def loss(candidates: np.ndarray) -> np.ndarray:
        off = np.abs(np.log(columns @ np.exp(candidates).T + 1e-12) - logs)
        total: np.ndarray = np.minimum(off, 1.5).mean(axis=0)
        return total

    low, high = np.log([1e-8, 1e-12, 1e-13]), np.log([1e-4, 1e-8, 1e-8])
    starts = np.log([(alpha, beta, 1e-10) for alpha in (1e-6, 1e-5) for beta in (1e-10, 1e-9)])
    ends = [descend(loss, start, low, high) for start in starts]
    best: np.ndarray = np.exp(min(ends, key=lambda end: float(loss(end[None])[0])))
    return best


def kendall(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return Kendall's tau-b of two lists; None where one of them is all ties."""
    import numpy as np

    x, y = (np.sign(np.subtract.outer(np.asarray(values), np.asarray(values))) for values in (a, b))
    norm = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / norm if norm else None


@dataclass(frozen=True)
class Ranked:
    """One system, node count and operation: tau over its judged sizes, error of the times, is the fastest right?

    ``first_two``: share of sizes with three algorithms or more whose fastest is predicted among the first two; what is predicted
    as fast as it counts as before it.
    """

    system: str
    nodes: str
    collective: str
    algorithms: int
    sizes: int
    tau: float | None
    error: float
    error_large: float | None
    best_right: float
    best_loss: float
    first_two: float | None


def study(path: str | Path, engine: str = "closed-form", executor: Chosen | FanOut = None) -> dict[str, Any]:
    """Return the object of schema ``ringwright.mpi-accuracy/1``.

    ``events`` runs programs of up to 64 ranks on the fabric of the system, by ``executor``; what it cannot run keeps its
    closed form.
    """
    from dataclasses import asdict

    refused: list[tuple[int, str]] = []
    measured, without = points(path, refused)
    fitted, judged = _halves(measured)
    machines: dict[tuple[str, str], np.ndarray] = {}
    for key in sorted({(point.system, point.transport) for point in fitted}):
        machines[key] = prices([point for point in fitted if (point.system, point.transport) == key])
    priced = [point for point in judged if (point.system, point.transport) in machines]
    if len(priced) < len(judged):
        refused.append(
            (0, f"{len(judged) - len(priced)} sizes of a system and transport of which no other was measured")
        )
    judged = priced
    if engine == "events":
        judged = [point for point in judged if _is_small(point)]
    at = [machines[point.system, point.transport] for point in judged]
    times = [_declared(point, prices_s) for point, prices_s in zip(judged, at, strict=True)]
    if engine == "events":
        asked = [_simulation(point, prices_s) for point, prices_s in zip(judged, at, strict=True)]
        each = list(dict.fromkeys(asked))
        with fan_out(executor) as fan:
            known = dict(zip(each, fan.map(simulated_s, each), strict=True))
        # An engine would overlap additions, which are priced beside.
        times = [known[a] + float(p[2]) * b.added_bytes for a, p, b in zip(asked, at, judged, strict=True)]
    return {
        "schema": SCHEMA,
        "engine": "events on the system's fabric" if engine == "events" else "closed form of the declared cost",
        "prices": [
            {"system": system, "transport": how, "message_us": float(row[0] * 1e6), "gbs": float(1e-9 / row[1])}
            for (system, how), row in machines.items()
        ],
        "ranked": [asdict(line) for line in rank(judged, times)],
        "without_program": without,
        "refused": [{"line": line, "reason": reason} for line, reason in refused],
    }


def _declared(point: Point, prices_s: np.ndarray) -> float:
    return float(prices_s @ (point.messages, point.path_bytes, point.added_bytes))


def _is_small(point: Point) -> bool:
    """Say whether the engine runs it: 64 ranks, a fabric we have, and one network interface."""
    return ranks(point.nodes) <= MOST_RANKS and point.system in FABRICS and point.transport == "mpi"


def _simulation(point: Point, prices_s: np.ndarray) -> tuple[str, str, int, int, str, float, float]:
    """Return what ``simulated_s`` is given of a point."""
    machine = FABRICS[point.system].format(p=ranks(point.nodes), nodes=point.nodes)
    key = (point.block, OUR_NAMES[point.op], ranks(point.nodes), point.size_bytes, machine)
    return *key, float(prices_s[0]), float(prices_s[1])


def simulated_s(block: str, op: str, p: int, size: int, machine: str, per_message: float, per_byte: float) -> float:
    """Return the engine's seconds of a block's program of ``p`` ranks, at prices (s) of a message and a byte."""
    import numpy as np

    from ringwright.engines.choose import simulate
    from ringwright.fabrics import fabric

    top = fabric(machine)
    priced = replace(
        top,
        rate=np.full(top.n_links, 1 / per_byte),
        latency_s=np.zeros(top.n_links),
        message_s=dict.fromkeys(top.classes, per_message),
    )
    return simulate(program(block, op, p, size), priced, "events").time_s


def _halves(points: Sequence[Point]) -> tuple[list[Point], list[Point]]:
    """Return the points of every second size, and the others."""
    order: dict[tuple[str, str, str], list[int]] = {}
    for point in points:
        order.setdefault((point.system, point.nodes, point.op), []).append(point.size_bytes)
    places = {key: sorted(set(sizes)) for key, sizes in order.items()}
    halves: tuple[list[Point], list[Point]] = ([], [])
    for point in points:
        halves[places[point.system, point.nodes, point.op].index(point.size_bytes) % 2].append(point)
    return halves


def rank(judged: Sequence[Point], times: Iterable[float]) -> list[Ranked]:
    """Return a line per system, node count and operation."""
    groups: dict[tuple[str, str, str], dict[int, list[tuple[Point, float]]]] = {}
    for point, time_s in zip(judged, times, strict=True):
        key = (point.system, point.nodes, point.op)
        groups.setdefault(key, {}).setdefault(point.size_bytes, []).append((point, time_s))
    return [_ranked(key, sizes) for key, sizes in sorted(groups.items())]


def _ranked(key: tuple[str, str, str], sizes: dict[int, list[tuple[Point, float]]]) -> Ranked:
    import numpy as np

    taus, right, lost, logs = [], [], [], []
    large: list[float] = []
    ahead: list[bool] = []
    for size, pairs in sizes.items():
        measured = [point.time_s for point, _ in pairs]
        simulated = [time_s for _, time_s in pairs]
        off = [abs(float(np.log(a / b))) for a, b in zip(simulated, measured, strict=True)]
        logs += off
        large += off if size >= LARGE_BYTES else []
        tau = kendall(measured, simulated) if len(pairs) > 1 else None
        if tau is not None:
            taus.append(tau)
        if len(pairs) > 2:
            fastest = simulated[measured.index(min(measured))]
            ahead.append(sum(made <= fastest * (1 + 1e-9) for made in simulated) <= 2)
        least = min(simulated)
        chosen = min(time for time, made in zip(measured, simulated, strict=True) if made <= least * (1 + 1e-9))
        right.append(chosen <= min(measured) * 1.05)
        lost.append(chosen / min(measured))
    algorithms = {point.algorithm for pairs in sizes.values() for point, _ in pairs}
    return Ranked(
        *key,
        len(algorithms),
        len(sizes),
        float(np.mean(taus)) if taus else None,
        float(np.exp(np.mean(logs)) - 1),
        float(np.exp(np.mean(large)) - 1) if large else None,
        float(np.mean(right)),
        float(np.mean(lost)) - 1,
        float(np.mean(ahead)) if ahead else None,
    )
