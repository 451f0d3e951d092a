"""The least network that keeps a step within a share of the step on the fabric as it is: a row for each workload and fabric."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.advise.provision import figures
from ringwright.advise.provision.asked import ProvisionSpec, SizedJob, Workloads, gpus_of
from ringwright.advise.provision.document import SCHEMA, ProvisionDocument, ProvisionRow
from ringwright.advise.provision.sized import SizedNetwork
from ringwright.calls.asked import asked_of
from ringwright.ground import steps
from ringwright.ground.errors import InfeasibleError, RingwrightError, UsageError, WorkloadError
from ringwright.jobs.memory import peak, too_large
from ringwright.jobs.pricing.costs import LIBRARY

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

REFERENCE = "the step on each fabric as it is named"
LEFT_OUT = (
    "a tier with fewer cables is one of slower cables here: what hashing does to few paths is not in it",
    "queues where operations of different roles meet; other jobs on the network",
    "a port that is down for good: the job ends, unless its library can do without",
)


def provision(
    spec: ProvisionSpec,
    fabrics: Sequence[Topology],
    progress: steps.Advance | None = None,
    kept: Callable[[ProvisionRow, SizedNetwork], ProvisionRow] | None = None,
) -> ProvisionDocument:
    """Return the object of schema ``ringwright.provision/1``.

    A workload that cannot be on a fabric is a row with its reason in ``declined``; one that does not fit its devices has ``fits``
    false. ``kept`` returns each answered row, which it is shown with its network. Raises the error of the first row where none
    can be answered, and UsageError where nothing or the same twice is asked.
    """
    for what, names in (("fabric", [each.name for each in fabrics]), ("workload", list(spec.workloads))):
        if not names:
            raise UsageError(f"no {what} is named", remedy="ringwright provision llama3-70b --fabric dgx-h100:8")
        if len(set(names)) < len(names):
            raise UsageError(f"a {what} is named twice", remedy="each once")
    gpus, told = gpus_of(fabrics, spec.model.gpus)
    workloads = Workloads(spec, gpus)
    rows: list[ProvisionRow] = []
    assumptions = dict.fromkeys([told] if told else [])
    refused: list[RingwrightError] = []
    asked = [(name, topology) for name in spec.workloads for topology in fabrics]
    for name, topology in steps.told(asked, progress, lambda each: f"{each[0]} on {each[1].name}"):
        row = ProvisionRow(name, topology.name)
        try:
            job = workloads.on(name, topology)
            assumptions |= dict.fromkeys(job.remarks)
            told_row, sized = _filled(row, job, topology, spec, assumptions)
            rows.append(kept(told_row, sized) if sized is not None and kept is not None else told_row)
        except (UsageError, WorkloadError, InfeasibleError) as error:
            refused.append(error)
            rows.append(replace(row, declined=error.what))
    if len(refused) == len(rows):
        raise refused[0]
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
        rows=rows,
        assumptions=list(assumptions),
        left_out=list(LEFT_OUT),
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
        sensitivity=figures.sensitivity_rows(sized),
    )
    return replace(row, simulated=sized.simulated)
