"""From a question to its table: programs, starts, measured rows, predictions, ratios."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ringwright.execute import launch
from ringwright.execute.switched.terms import is_switched
from ringwright.ground import stepwise
from ringwright.ground.errors import InfeasibleError, RanksFailedError, UsageError
from ringwright.model.registry import algorithm
from ringwright_lab.bench import capture, jobs, probe, switched
from ringwright_lab.bench.question import BenchSpec, Candidate

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology
    from ringwright_lab.network import LabNetwork
    from ringwright_lab.network.script import Flow, Script

SCHEMA = "ringwright.bench/1"
HORIZON_S = 600.0  # flapping is laid out until then
LOOPBACK_RATE = 1e9  # bytes/s, only to guess how long a round takes


def bench(question: BenchSpec, *, out: Path | None = None, progress: stepwise.Advance | None = None) -> dict[str, Any]:
    """Return the object of schema ``ringwright.bench/1``: a row per backend, algorithm and size; ratios; what was left out.

    Raises UsageError for a question that cannot be asked, InfeasibleError where ranks did not come to an end.
    """
    notes: list[str] = []
    usable = _usable(question, notes)
    with launch.terminable(), _network(question, out) as net, switched.serving(question, net) as ports:
        topology = net.topology if net else _plain(question.ranks)
        made = _programs(question, topology, notes)
        rate = float(topology.rate.min()) if net else LOOPBACK_RATE
        samples: list[jobs.BenchSample] = []
        probes: dict[tuple[str, str], dict[tuple[str, int], float]] = {}
        clock: list[float] = []  # when the fault script began: as soon as the first ranks are ready

        def begin() -> None:
            if net and not clock:
                clock.append(net.start_faults())

        for group in stepwise.track_progress([*jobs.groups(question, usable, notes)], progress, _named):
            try:
                measured_samples, measured = jobs.measure(
                    question, group, made, net.places if net else None, rate, begin, samples, ports
                )
            except RanksFailedError as error:
                if out is not None:  # what was measured until then
                    rows = _rows(question, samples, made, probes, topology if net else None)
                    partial = {"rows": rows, "failure": error.what, "verdict": None}
                    capture.save(out, partial, question, samples, made, clock[0] if clock else 0.0)
                raise
            samples += measured_samples
            for wire, times_s in measured.items():
                probes.setdefault((group.starter.name, wire), times_s)
                probes.setdefault(("", wire), times_s)
        began_s = clock[0] if clock else 0.0
        limit = net.limit(began_s) if net else None
    rows = _rows(question, samples, made, probes, topology if net else None)
    result: dict[str, Any] = {
        "schema": SCHEMA,
        **_asked(question),
        "rows": rows,
        "ratios": _ratios(question, samples),
        "probe": _probed(probes),
        "verdict": {"limit": limit.what, "why": limit.why} if limit else None,
        "notes": [*dict.fromkeys(notes), *_untimed(samples), *_remarks(question, usable)],
    }
    if out is not None:
        capture.save(out, result, question, samples, made, began_s)
    return result


def _untimed(samples: list[jobs.BenchSample]) -> list[str]:
    """Return a line for each contender that has no row: who was asked for does not vanish."""
    said = []
    for each in samples:
        if not each.times_s:
            why = next((one.declined for one in each.results if one.declined), "no round came to its end")
            said.append(f"{each.candidate}, {each.algorithm}, {each.size_bytes} B has no row: {why}")
    return said


def _plain(ranks: int) -> Topology:
    from ringwright.fabrics import fabric

    return fabric(f"switch:{ranks}")


def _named(group: jobs.LaunchGroup) -> str:
    return ", ".join(f"{candidate.name} {name}" for candidate, name in group.entries)


@contextlib.contextmanager
def _network(question: BenchSpec, out: Path | None) -> Iterator[LabNetwork | None]:
    if question.lab is None:
        yield None
        return
    from ringwright_lab import network as lab

    asked = question.through_switch.values()
    adds, xdp = bool(asked), any(each.xdp for each in asked)
    with lab.network(
        question.lab, question.faults, seed=question.seed, tcp=question.tcp, adds=adds, xdp=xdp, out=out
    ) as net:
        if net.topology.n_ranks != question.ranks:
            raise UsageError(
                f"{question.ranks} ranks in a lab of {net.topology.n_ranks}", remedy=f"--ranks {net.topology.n_ranks}"
            )
        yield net


def _programs(question: BenchSpec, topology: Topology, notes: list[str]) -> dict[tuple[str, int], Program]:
    """Return the program of each algorithm and size; what an algorithm declines is said."""
    made: dict[tuple[str, int], Program] = {}
    for spelling in question.algorithms:
        if is_switched(spelling):
            continue
        _, make, knobs = algorithm(spelling)
        for size in question.sizes:
            try:
                made[spelling, size] = make(question.collective(size), topology, **knobs)
            except (UsageError, InfeasibleError) as error:
                notes.append(f"{spelling} left out: {error.what}")
                break
    return made


def _rows(
    question: BenchSpec,
    samples: list[jobs.BenchSample],
    made: dict[tuple[str, int], Program],
    probes: dict[tuple[str, str], dict[tuple[str, int], float]],
    fabric: Topology | None,
) -> list[dict[str, Any]]:
    """Return a row for each backend, algorithm and size: of several starts the first."""
    rows: dict[tuple[str, str, int], dict[str, Any]] = {}
    for sample in samples:
        key = (sample.candidate, sample.algorithm, sample.size_bytes)
        times = sample.times_s
        if key in rows or not times:
            continue
        rows[key] = _row(question, sample, np.array(times)) | {
            "predicted_us": _predicted(question, sample, made, probes, fabric)
        }
    order = {name: at for at, name in enumerate(question.backends)}
    return sorted(rows.values(), key=lambda row: (row["size_bytes"], order[row["backend"]], row["algorithm"]))


def _row(question: BenchSpec, sample: jobs.BenchSample, times_s: np.ndarray) -> dict[str, Any]:
    collective = question.collective(sample.size_bytes)
    time_s = float(np.median(times_s))
    algbw = sample.size_bytes / time_s / 1e9
    low, high = np.quantile(times_s, [0.1, 0.9])
    wrong = sum(each.wrong for each in sample.results)
    return {
        "backend": sample.candidate,
        "algorithm": sample.algorithm,
        "ranks": question.ranks,
        "size_bytes": sample.size_bytes,
        "count": sample.size_bytes // collective.unit_bytes,
        "dtype": question.dtype,
        "time_us": time_s * 1e6,
        "algbw_gbs": algbw,
        "busbw_gbs": algbw * collective.bus_factor,
        "wrong": wrong,
        "min_us": float(times_s.min()) * 1e6,
        "p10_us": float(low) * 1e6,
        "p90_us": float(high) * 1e6,
        "wire": sample.wire,
        "runs": len(times_s) * sample.inner,
        "beside": sample.beside or None,
        **_sent(sample, len(times_s) * sample.inner),
    }


def _sent(sample: jobs.BenchSample, runs: int) -> dict[str, int | None]:
    """Return bytes of one run, headers counted: a rank's, mean over ranks, and those of the least and the most busy interface."""
    counted = [each.sent_bytes for each in sample.results]
    if not all(counted):
        return dict.fromkeys(("sent_bytes", "least_port_bytes", "most_port_bytes"))
    ports = [sent for each in counted for sent in each]
    return {
        "sent_bytes": sum(ports) // (runs * len(counted)),
        "least_port_bytes": min(ports) // runs,
        "most_port_bytes": max(ports) // runs,
    }


def _predicted(
    question: BenchSpec,
    sample: jobs.BenchSample,
    made: dict[tuple[str, int], Program],
    probes: dict[tuple[str, str], dict[tuple[str, int], float]],
    fabric: Topology | None,
) -> float | None:
    """Return the simulator's time: the same program on the probe's machine, or on the lab's fabric with its faults."""
    from ringwright.jobs.predict import simulate

    if sample.wire == switched.WIRE:
        return None if fabric is None else _by_slots(question, sample, fabric)
    program = made.get((sample.algorithm, sample.size_bytes)) or _own(question, sample)
    times_s = probes.get((sample.beside or sample.candidate, sample.wire)) or probes.get(("", sample.wire))
    if program is None or not times_s:
        return None
    competing = _script(question, fabric).flows if fabric is not None else ()
    if fabric is not None and sample.wire == "sockets":
        by_packets = _by_packets(question, program, fabric, competing)
        if by_packets is not None:
            return by_packets
    if competing:  # nothing but packets says what TCP leaves
        return None
    machine = probe.fit(question.ranks, times_s, sample.size_bytes / question.ranks)
    where = machine.topology(question.ranks) if fabric is None else machine.on(faulted(question, fabric))
    said = simulate(program, where).probable  # as every verb says it, of a machine that no GPU is part of
    return None if said is None else said.p50_us


def _by_slots(question: BenchSpec, sample: jobs.BenchSample, fabric: Topology) -> float | None:
    """Return the median over seeds in us, by packets through the slots of the lab's switches; None where nothing says them."""
    from ringwright_lab.bench.by_slots import median_s, pool_of

    if _script(question, fabric).flows or _acts_otherwise(question, fabric):
        return None
    terms = question.through_switch[sample.algorithm]
    lost = switched.lost_at_switches(question, terms)
    try:
        pool = pool_of(terms, faulted(question, fabric), sample.size_bytes, question.dtype, lost)
        return median_s(pool) * 1e6
    except InfeasibleError:  # too many packets, or links that lose too much
        return None


def _acts_otherwise(question: BenchSpec, fabric: Topology) -> bool:
    """Say whether a fault does something else than lose packets of links."""
    return any(fault.field != "loss" for fault in faulted(question, fabric).faults)


def _by_packets(question: BenchSpec, program: Program, fabric: Topology, competing: tuple[Flow, ...]) -> float | None:
    """Return the median over rounds and seeds in us, by packets, where faults act on packets or flows compete; else None."""
    from ringwright.engines.packets.carriage import acts_on_packets
    from ringwright_lab.bench.by_packets import flow_programs, of_lab, rounds_s

    if not competing and not acts_on_packets(faulted(question, fabric)):
        return None
    try:
        on = faulted(question, of_lab(fabric, question.tcp))
        beside = flow_programs(competing, program, on, question.rounds)
        return float(np.median(rounds_s(program, on, question.rounds, beside))) * 1e6
    except InfeasibleError:  # too many packets, or a connection that is given up, which the ranks then say
        return None


def _own(question: BenchSpec, sample: jobs.BenchSample) -> Program | None:
    """Return the program of what a library does by itself, where we have it under that name."""
    try:
        _, make, knobs = algorithm(sample.algorithm)
        return make(question.collective(sample.size_bytes), _plain(question.ranks), **knobs)
    except (UsageError, InfeasibleError):
        return None


def faulted(question: BenchSpec, fabric: Topology) -> Topology:
    """Return the fabric with those faults that the simulation knows."""
    from ringwright.fabrics.faults import apply

    told = _script(question, fabric)
    apart = {*told.outside, *(flow.text for flow in told.flows)}
    # A line that is left out stays as an empty one: the lottery of the others goes by their number.
    known = ["" if line.partition("#")[0].strip() in apart else line for line in question.faults]
    return apply(fabric, known, horizon_s=HORIZON_S, seed=question.seed) if any(known) else fabric


def _script(question: BenchSpec, fabric: Topology) -> Script:
    from ringwright_lab.network import script, spec

    return script.read(spec.read(fabric), question.faults, horizon_s=HORIZON_S, seed=question.seed)


def _ratios(question: BenchSpec, samples: list[jobs.BenchSample]) -> list[dict[str, Any]]:
    """Return ours over theirs, for each pair that took turns in the same processes, the same algorithm or a library's own."""
    natives = {
        (each.candidate, each.algorithm, each.size_bytes): each for each in samples if not each.beside and each.times_s
    }
    ratios = []
    for sample in samples:
        own = jobs.OWN.get((sample.beside, question.op), sample.algorithm)
        theirs = natives.get((sample.beside, sample.algorithm, sample.size_bytes)) or natives.get(
            (sample.beside, own, sample.size_bytes)
        )
        if not sample.beside or theirs is None or not sample.times_s:
            continue
        ours_s, theirs_s = float(np.median(sample.times_s)), float(np.median(theirs.times_s))
        ratios.append(
            {
                "backend": sample.candidate,
                "native": sample.beside,
                "algorithm": sample.algorithm,
                "native_algorithm": theirs.algorithm,
                "size_bytes": sample.size_bytes,
                "time_us": ours_s * 1e6,
                "native_us": theirs_s * 1e6,
                "ratio": ours_s / theirs_s,
            }
        )
    return ratios


def _remarks(question: BenchSpec, usable: list[Any]) -> list[str]:
    remarks = []
    names = [candidate.name for candidate in usable]
    cores = len(os.sched_getaffinity(0))
    if question.ranks > cores:
        how = "" if question.lab else ": predictions know nothing of waiting for a core"
        remarks.append(f"{question.ranks} ranks share {cores} cores{how}")
        if any("mpich" in name for name in names):
            remarks.append(
                "MPICH's ranks hold their core while they wait: with more ranks than cores its times mean nothing"
            )
    if "gloo" in names and question.op == "reduce-scatter":
        remarks.append("gloo carries out a reduce-scatter as an all-reduce: it moves twice the bytes it would have to")
    return remarks


def _usable(question: BenchSpec, notes: list[str]) -> list[Candidate]:
    """Return the backends that can run here, and note why others cannot; UsageError where none can."""
    usable = []
    for candidate in question.candidates():
        reason = candidate.executor.missing()
        if reason:
            notes.append(f"{candidate.name} left out: {' '.join(reason.split())}")
        else:
            usable.append(candidate)
    if not usable:
        raise UsageError("none of these backends can run here", where="; ".join(notes), remedy="--backend ringwright")
    return usable


def _asked(question: BenchSpec) -> Mapping[str, object]:
    """Return the question as the object of the answer repeats it."""
    return {
        "collective": question.op,
        "ranks": question.ranks,
        "dtype": question.dtype,
        "reduce_op": question.reduce_op,
        "root": question.root,
        "rounds": question.rounds,
        "lab": question.lab,
        "tcp": question.tcp if question.lab else None,
        "faults": list(question.faults),
        "seed": question.seed,
    }


def _probed(probes: dict[tuple[str, str], dict[tuple[str, int], float]]) -> list[Mapping[str, object]]:
    return [
        {"backend": starter, "wire": wire, "kind": kind, "size_bytes": size, "time_us": time_s * 1e6}
        for (starter, wire), times_s in probes.items()
        if starter
        for (kind, size), time_s in times_s.items()
    ]
