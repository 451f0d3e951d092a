"""The least network that keeps a step within a share of the step on the fabric as it is: a row for each workload and fabric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ringwright.advise.provision import figures
from ringwright.advise.provision.document import SCHEMA, ProvisionDocument, ProvisionRow
from ringwright.advise.provision.least_network import SizedNetwork
from ringwright.advise.provision.question import ProvisionSpec, SizedJob, Workloads, gpus_of
from ringwright.advise.provision.sensitivity import sensitivity
from ringwright.calls.provenance import asked_of
from ringwright.executors.fan_out import WorkAccount
from ringwright.executors.shared import shared
from ringwright.ground.errors import InfeasibleError, UsageError, WorkloadError
from ringwright.jobs.memory import peak, too_large
from ringwright.jobs.pricing.costs import LIBRARY
from ringwright.model.topology import Topology

REFERENCE = "the step on each fabric as it is named"
LEFT_OUT = (
    "a tier with fewer cables is one of slower cables here: what hashing does to few paths is not in it",
    "queues where operations of different roles meet; other jobs on the network",
    "a port that is down for good: the job ends, unless its library can do without",
)


@dataclass(frozen=True)
class ProvisionPair:
    """A workload on a fabric: what is asked of both; ``files`` are what the workloads lie in."""

    spec: ProvisionSpec
    gpus: int
    workload: str
    fabric: Topology
    files: tuple[Path, ...]


@dataclass(frozen=True)
class PairAnswer:
    """The row of a pair, what it assumes, and whether it has no answer."""

    row: ProvisionRow
    assumptions: list[str]
    refused: bool = False


def pair_name(pair: ProvisionPair) -> str:
    """Return a pair in words."""
    return f"{pair.workload} on {pair.fabric.name}"


def pairs(spec: ProvisionSpec, fabrics: Sequence[Topology]) -> tuple[list[ProvisionPair], str]:
    """Return every workload on every fabric, and how many GPUs that takes, in words.

    Raises UsageError where nothing or the same twice is asked, and for a workload that is none.
    """
    for what, names in (("fabric", [each.name for each in fabrics]), ("workload", list(spec.workloads))):
        if not names:
            raise UsageError(f"no {what} is named", remedy="ringwright provision llama3-70b --fabric dgx-h100:8")
        if len(set(names)) < len(names):
            raise UsageError(f"a {what} is named twice", remedy="each once")
    gpus, told = gpus_of(fabrics, spec.model.gpus)
    files = tuple(path for path in map(Path, spec.workloads) if path.exists())
    shared(_workloads, spec, gpus, files)  # what is none is refused before any is sized
    return [ProvisionPair(spec, gpus, name, topology, files) for name in spec.workloads for topology in fabrics], told


def _workloads(spec: ProvisionSpec, gpus: int, _files: tuple[Path, ...]) -> Workloads:
    """Return the workloads of a question, whose recordings lie in files."""
    return Workloads(spec, gpus)


def sized_answer(pair: ProvisionPair, *, strict: bool = False) -> tuple[PairAnswer, SizedNetwork | None]:
    """Return the answer of one pair, and its network where it has one; one that has no answer is a row with its reason.

    A pair that does not fit its devices has ``fits`` false. ``strict``: the error of one that has no answer is raised.
    """
    row, assumptions = ProvisionRow(pair.workload, pair.fabric.name), dict[str, None]()
    try:
        job = shared(_workloads, pair.spec, pair.gpus, pair.files).on(pair.workload, pair.fabric)
        assumptions |= dict.fromkeys(job.remarks)
        row, sized = _filled(row, job, pair.fabric, pair.spec, assumptions)
    except (UsageError, WorkloadError, InfeasibleError) as error:
        if strict:
            raise
        return PairAnswer(replace(row, declined=error.what), list(assumptions), refused=True), None
    return PairAnswer(row, list(assumptions)), sized


def joined(
    spec: ProvisionSpec,
    fabrics: Sequence[Topology],
    asked: Sequence[ProvisionPair],
    answers: Sequence[PairAnswer],
    told: str,
    account: WorkAccount,
) -> ProvisionDocument:
    """Return the answers as one object; the error of the first where none has an answer."""
    if all(each.refused for each in answers):
        sized_answer(asked[0], strict=True)
    assumptions = dict.fromkeys([told] if told else [])
    assumptions |= dict.fromkeys(each for answer in answers for each in answer.assumptions)
    if spec.prices is not None and spec.prices.free:
        assumptions[f"no price: {', '.join(spec.prices.free)}, taken as 0"] = None
    return ProvisionDocument(
        schema=SCHEMA,
        asked=asked_of(
            None,
            (spec.algorithm or LIBRARY,),
            policies=[spec.policy] if spec.policy else (),
            networks={each.name: each for each in fabrics},
        ),
        within=spec.within,
        reference=REFERENCE,
        rows=[each.row for each in answers],
        assumptions=list(assumptions),
        left_out=list(LEFT_OUT),
        executor=account.document(),
    )


def _filled(
    row: ProvisionRow, job: SizedJob, topology: Topology, spec: ProvisionSpec, assumptions: dict[str, None]
) -> tuple[ProvisionRow, SizedNetwork | None]:
    """Return the row with what is known of a job, all of it where the job fits, and its network then."""
    row = replace(
        row,
        parallel=job.parallel or None,
        gpus=job.ranks,
        micro_batches=job.micro_batches,
        samples=job.samples,
        fits=not job.refused,
        too_large=job.refused or None,
        peak_memory_bytes=job.peak_bytes,
        device_memory_bytes=job.device_bytes,
    )
    if job.refused:
        return row, None
    sized = SizedNetwork(job, topology, spec.within, spec.prices)
    held = peak(sized.result.workload)
    row = replace(row, peak_memory_bytes=held["peak_memory_bytes"])
    if why := too_large(job.parallel, held["peak_memory_bytes"], held["device_memory_bytes"]):
        return replace(row, fits=False, too_large=why), None
    row = _networked(_timed(row, sized), sized)
    if not sized.tiers.draws_nics:
        assumptions[f"{topology.name} draws no NICs: a rank's own links to the network are its ports"] = None
    assumptions |= dict.fromkeys(f"{topology.name}: {each}" for each in sized.said())
    return row, sized


def _timed(row: ProvisionRow, sized: SizedNetwork) -> ProvisionRow:
    """Return the row with the steps on the fabric as it is, without limit, and on the least network."""
    given, likely = sized.reference, sized.result.probable
    return replace(
        row,
        reference_us=sized.reference_s * 1e6,
        reference_us_p05=None if given is None else given.p05_us,
        reference_us_p50=None if given is None else given.p50_us,
        reference_us_p95=None if given is None else given.p95_us,
        unlimited_us=sized.unlimited_us(),
        most_us=sized.most_s * 1e6,
        step_us=sized.result.step_s * 1e6,
        step_us_p05=None if likely is None else likely.p05_us,
        step_us_p50=None if likely is None else likely.p50_us,
        step_us_p95=None if likely is None else likely.p95_us,
    )


def _networked(row: ProvisionRow, sized: SizedNetwork) -> ProvisionRow:
    """Return the row with the least network, and what is simulated on it; ``simulated`` counts last."""
    network, costs = sized.network(sized.plan), figures.carrier(sized)
    row = replace(
        row,
        given=sized.network(sized.tiers.given),
        nics_per_gpu=network.nics_per_gpu,
        nic_gbs=network.nic_gbs,
        rails=sized.of_plan(sized.plan).rails,
        oversubscription=network.oversubscription,
        cable_gbits=network.cable_gbits,
        cost=network.cost,
        edges=sized.edges(),
        buffers=(buffers := figures.buffer_row(sized, costs)),
        buffer_bytes=buffers.buffer_bytes,
        bursts=figures.burst_row(sized, costs),
        headroom=figures.headroom_row(sized),
        sensitivity=sensitivity(sized.machine, sized.result.step_s, sized.step_s),
    )
    return replace(row, simulated=sized.simulated)
