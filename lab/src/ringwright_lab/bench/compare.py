"""Measured against simulated: a benchmark's capture, calibrated on half of its sizes, predicts the other half.

Fitted are two numbers for each backend: what a message waits beyond the wire, and which share of the fabric's rate data gets.
The fault script is the capture's own; where it changes with time, each round is simulated from its own moment on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.calls.provenance import asked_of
from ringwright.ground.errors import InputError
from ringwright.model.registry import algorithm
from ringwright_lab.bench import capture, probe
from ringwright_lab.bench.study import HORIZON_S, faulted

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.topology import Fault, Topology
    from ringwright.model.trace import Trace
    from ringwright_lab.bench.question import BenchSpec

SCHEMA = "ringwright.compare/1"
MOST_ROUNDS, FEW_ROUNDS = 12, 4  # simulated of each row where faults change with time; while fitting
HORIZON_RUNS = 10  # times as long as was measured
USUAL_S = 200e-6
LATENCY_PULL, SHARE_PULL = 0.02, 0.3
_FINE = 1.02  # the last step of the search


@dataclass(frozen=True)
class ComparedRow:
    """One collective: what its rounds took, and what the simulator says. ``used``: it was calibrated with."""

    collective: str
    backend: str
    algorithm: str
    size_bytes: int
    measured_us: float
    p10_us: float
    p90_us: float
    simulated_us: float
    used: bool

    @property
    def error(self) -> float:
        """Return simulated over measured, less one."""
        return self.simulated_us / self.measured_us - 1


@dataclass(frozen=True)
class Fitted:
    """What was fitted for a backend."""

    latency_s: float
    share: float  # of the fabric's rate


@dataclass(frozen=True)
class Comparison:
    """All rows, and for the largest collective of each program its two Traces."""

    question: BenchSpec
    rows: list[ComparedRow]
    fitted: dict[str, Fitted]
    verdict: Mapping[str, Any] | None
    outside: Sequence[str]
    machine: Topology = field(repr=False)  # of the lab, with those of the faults that the simulation knows

    @property
    def geomean_error(self) -> float | None:
        """Return the geometric mean of max(simulated/measured, measured/simulated), less one, over what was predicted."""
        logs = [abs(math.log(row.simulated_us / row.measured_us)) for row in self.rows if not row.used]
        return math.exp(sum(logs) / len(logs)) - 1 if logs else None

    def document(self) -> dict[str, Any]:
        """Return the object of schema ``ringwright.compare/1``."""
        asked = asked_of(self.machine, self.question.algorithms, seed=self.question.seed)
        return {
            "schema": SCHEMA,
            "asked": {**asked, "faults": list(self.question.faults)},
            "lab": self.question.lab,
            "ranks": self.question.ranks,
            "tcp": self.question.tcp,
            "faults": list(self.question.faults),
            "outside_simulation": list(self.outside),
            "verdict": self.verdict,
            "fitted": {name: dataclasses.asdict(each) for name, each in self.fitted.items()},
            "rows": [{**dataclasses.asdict(row), "error": row.error} for row in self.rows],
            "geomean_error": self.geomean_error,
        }


class _Run:
    """One measured collective, ready to be simulated."""

    def __init__(self, question: BenchSpec, fabric: Topology, run: Mapping[str, Any]) -> None:
        import numpy as np

        self.wire = str(run.get("wire", ""))
        self.backend, self.name, self.size_bytes = run["backend"], run["algorithm"], int(run["size_bytes"])
        self.starts_s, self.times_s = np.array(run["start_s"], float), np.array(run["time_s"], float)
        self.measured_s = float(np.median(self.times_s))
        self._question, self._fabric = question, fabric

    @cached_property
    def program(self) -> Program:
        """The program; UsageError where the algorithm has none here."""
        _, make, knobs = algorithm(self.name)
        return make(self._question.collective(self.size_bytes), self._fabric, **knobs)

    def machine(self, fitted: Fitted) -> Topology:
        """Return the fabric as a backend sees it."""
        topology = probe.ProbedMachine(fitted.latency_s, 0.0, 0.0, 0.0, math.inf).on(self._fabric)
        return dataclasses.replace(topology, rate=self._fabric.rate * fitted.share)

    def simulated_s(self, fitted: Fitted, most_rounds: int = MOST_ROUNDS) -> float:
        """Return the median over the rounds, each from its own moment on."""
        import numpy as np

        from ringwright.engines.choose import simulate

        machine = self.machine(fitted)
        if all(fault.time_s <= 0 for fault in machine.faults):
            return simulate(self.program, machine).time_s
        starts = self.starts_s[:: -(-len(self.starts_s) // most_rounds)]
        soon_s = max(HORIZON_RUNS * self.measured_s, 1.0)
        return float(np.median([simulate(self.program, since(machine, start, soon_s)).time_s for start in starts]))


def since(topology: Topology, start_s: float, horizon_s: float = math.inf) -> Topology:
    """Return the topology of a run that begins at a given moment of its fault script.

    Events later than ``horizon_s`` after it are left out, except the recovery of a dead link.
    """
    state: dict[tuple[str, int, str], Fault] = {}
    later: list[Fault] = []
    for fault in topology.faults:
        if fault.time_s > start_s + horizon_s and all(
            each.value or each.field != "rate_factor" for each in state.values()
        ):
            break
        state[fault.kind, fault.target, fault.field] = fault
        later.append(dataclasses.replace(fault, time_s=max(fault.time_s - start_s, 0.0)))
    now = {(fault.kind, fault.target, fault.field): fault for fault in later if not fault.time_s}
    return dataclasses.replace(topology, faults=(*now.values(), *(fault for fault in later if fault.time_s)))


def compare(folder: Path) -> Comparison:
    """Return measured beside simulated; InputError where the folder holds no benchmark in a lab."""
    from ringwright.fabrics import fabric

    document = capture.load(folder)
    question = capture.question(document)
    if not question.lab:
        raise InputError(
            "this benchmark ran on a machine whose links nobody knows",
            where=str(folder),
            remedy="ringwright bench all-reduce --lab switch:4,rate=100Mb/s -b 64K -e 4M -o DIR",
        )
    plain = fabric(question.lab)
    outside = beyond(plain, question.faults, question.seed)
    machine = faulted(question, plain)
    runs = [ready for run in document["runs"] if (ready := _ready(question, machine, run)) is not None]
    if not runs:
        raise InputError(
            "nothing in this capture can be simulated", where=str(folder), remedy="ringwright bench --help"
        )
    rows: list[ComparedRow] = []
    fitted: dict[str, Fitted] = {}
    for backend in dict.fromkeys(run.backend for run in runs):
        mine = [run for run in runs if run.backend == backend]
        used = _half(mine)
        fitted[backend] = fit([run for run in mine if run in used], probed_s(document, mine[0]))
        mine.sort(
            key=lambda run: (
                question.algorithms.index(run.name) if run.name in question.algorithms else -1,
                run.size_bytes,
            )
        )
        rows += [_row(question, run, fitted[backend], used=run in used and len(used) < len(mine)) for run in mine]
    return Comparison(question, rows, fitted, document["result"].get("verdict"), outside, machine)


def beyond(fabric: Topology, faults: Sequence[str], seed: int) -> list[str]:
    """Return the lines of a fault script that the simulation has no model for, each with the reason."""
    from ringwright_lab.network import script, spec

    effects = script.read(spec.read(fabric), faults, horizon_s=HORIZON_S, seed=seed)
    outside = list(effects.outside)
    fields = {row.field for row in effects.rows}
    if "loss" in fields or (fabric.loss is not None and fabric.loss.any()):
        outside.append(
            "loss: TCP's smaller window and its timeouts; simulated is the time of sending lost frames again"
        )
    if any(row.field == "rate_factor" and not row.value for row in effects.rows):
        outside.append("dead and flapping links: TCP's timeouts after the link is back; simulated is the outage alone")
    return outside


def _ready(question: BenchSpec, machine: Topology, run: Mapping[str, Any]) -> _Run | None:
    from ringwright.ground.errors import UsageError

    ready = _Run(question, machine, run)
    try:
        return ready if len(ready.times_s) and ready.program.n_steps else None
    except UsageError:
        return None  # a library's own way, for which there is no program


def _half(runs: Sequence[_Run]) -> list[_Run]:
    """Return every second size, from the smallest on."""
    sizes = sorted({run.size_bytes for run in runs})
    chosen = set(sizes[::2])
    return [run for run in runs if run.size_bytes in chosen]


def _row(question: BenchSpec, run: _Run, fitted: Fitted, *, used: bool) -> ComparedRow:
    import numpy as np

    low, high = np.quantile(run.times_s, [0.1, 0.9]) * 1e6
    return ComparedRow(
        question.op,
        run.backend,
        run.name,
        run.size_bytes,
        run.measured_s * 1e6,
        float(low),
        float(high),
        run.simulated_s(fitted) * 1e6,
        used,
    )


def probed_s(document: Mapping[str, Any], run: _Run) -> float:
    """Return the seconds of a small message in the same run over the same wire; a usual value where nothing was probed."""
    for each in document["result"].get("probe") or ():
        if (each["kind"], each["size_bytes"], each["wire"]) == ("shift", probe.SMALL_BYTES, run.wire):
            return float(each["time_us"]) / 1e6
    return USUAL_S


def fit(runs: Sequence[_Run], probed_s: float = USUAL_S) -> Fitted:
    """Return the latency and the share of the rate with the least mean of |log(simulated/measured)|, by coordinate steps.

    Both are held to what is known of them, a message's time from the probe and the share that frame headers leave: few sizes
    could otherwise be met by numbers that no wire has.
    """

    def off(latency_s: float, share: float) -> float:
        fitted = Fitted(latency_s, share)
        logs = [abs(math.log(max(run.simulated_s(fitted, FEW_ROUNDS), 1e-9) / run.measured_s)) for run in runs]
        pull = LATENCY_PULL * abs(math.log(latency_s / probed_s)) + SHARE_PULL * abs(math.log(share / probe.GOODPUT))
        return sum(logs) / len(logs) + pull

    best = (probed_s, probe.GOODPUT)
    error = off(*best)
    step = 4.0
    while step > _FINE:
        moved = False
        for factors in ((step, 1.0), (1 / step, 1.0), (1.0, step**0.1), (1.0, step**-0.1)):
            tried = (min(max(best[0] * factors[0], 1e-6), 0.1), min(best[1] * factors[1], 1.0))
            score = off(*tried)
            if score < error * (1 - 1e-6):
                best, error, moved = tried, score, True
        if not moved:
            step **= 0.5
    return Fitted(*best)


def traces(folder: Path, comparison: Comparison, row: ComparedRow) -> tuple[Trace | None, Trace]:
    """Return the recorded run of a row, if it was kept, and the simulated one."""
    from ringwright.calls.run_trace import trace
    from ringwright.engines.choose import simulate
    from ringwright.fabrics import fabric

    question = comparison.question
    run = _Run(
        question,
        faulted(question, fabric(question.lab or "")),
        {
            "backend": row.backend,
            "algorithm": row.algorithm,
            "size_bytes": row.size_bytes,
            "start_s": [0.0],
            "time_s": [1.0],
        },
    )
    machine = run.machine(comparison.fitted[row.backend])
    simulated = trace(run.program, machine, simulate(run.program, machine, fold_symmetry=False))
    return capture.recorded(folder, row.backend, row.algorithm, row.size_bytes), simulated
