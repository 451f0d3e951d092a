"""The least network that keeps a step within a share of the step on the fabric as it is: a row for each workload and fabric."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ringwright.advise.provision import figures
from ringwright.advise.provision.asked import ProvisionSpec, SizedJob, Workloads, gpus_of
from ringwright.advise.provision.document import SCHEMA, ProvisionDocument, ProvisionRow, empty_row
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
    kept: Callable[[ProvisionRow, SizedNetwork], None] | None = None,
) -> ProvisionDocument:
    """Return the object of schema ``ringwright.provision/1``.

    A workload that cannot be on a fabric is a row with its reason in ``declined``; one that does not fit its devices has ``fits``
    false. ``kept`` is shown each answered row with its network. Raises the error of the first row where none can be answered, and
    UsageError where nothing or the same twice is asked.
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
        row = empty_row(name, topology.name)
        try:
            job = workloads.on(name, topology)
            assumptions |= dict.fromkeys(job.remarks)
            sized = _fill(row, job, topology, spec, assumptions)
            if sized is not None and kept is not None:
                kept(row, sized)
        except (UsageError, WorkloadError, InfeasibleError) as error:
            refused.append(error)
            row = empty_row(name, topology.name)
            row["declined"] = error.what
        rows.append(row)
    if len(refused) == len(rows):
        raise refused[0]
    if spec.prices is not None and spec.prices.free:
        assumptions[f"no price: {', '.join(spec.prices.free)}, taken as 0"] = None
    return {
        "schema": SCHEMA,
        "asked": asked_of(
            None,
            (spec.algorithm or LIBRARY,),
            policies=[spec.policy] if spec.policy else (),
            networks={each.name: each for each in fabrics},
        ),
        "within": spec.within,
        "reference": REFERENCE,
        "rows": rows,
        "assumptions": list(assumptions),
        "left_out": list(LEFT_OUT),
    }


def _fill(
    row: ProvisionRow, job: SizedJob, topology: Topology, spec: ProvisionSpec, assumptions: dict[str, None]
) -> SizedNetwork | None:
    """Put what is known of a job into its row, all of it where the job fits; return its network then."""
    row["parallel"], row["gpus"], row["micro_batches"] = job.parallel or None, job.ranks, job.micro_batches
    row["samples"], row["fits"], row["too_large"] = job.samples, not job.refused, job.refused or None
    row["peak_memory_bytes"], row["device_memory_bytes"] = job.peak_bytes, job.device_bytes
    if job.refused:
        return None
    sized = SizedNetwork(job, topology, spec.within, spec.prices)
    held = peak(sized.result.workload)
    row["peak_memory_bytes"] = held["peak_memory_bytes"]
    if why := too_large(job.parallel, held["peak_memory_bytes"], held["device_memory_bytes"]):
        row["fits"], row["too_large"] = False, why
        return None
    network, likely = sized.network(sized.plan), sized.result.probable
    row["given"] = sized.network(sized.tiers.given)
    row["reference_us"], row["most_us"] = sized.reference_s * 1e6, sized.most_s * 1e6
    row["unlimited_us"] = sized.unlimited_us()
    row["step_us"] = sized.result.step_s * 1e6
    if (given := sized.reference) is not None:
        row["reference_us_p05"], row["reference_us_p50"], row["reference_us_p95"] = (
            given.p05_us,
            given.p50_us,
            given.p95_us,
        )
    if likely is not None:
        row["step_us_p05"], row["step_us_p50"], row["step_us_p95"] = likely.p05_us, likely.p50_us, likely.p95_us
    row["nics_per_gpu"], row["nic_gbs"] = network["nics_per_gpu"], network["nic_gbs"]
    row["rails"], row["oversubscription"] = sized.of_plan(sized.plan).rails, network["oversubscription"]
    row["cable_gbits"], row["cost"] = network["cable_gbits"], network["cost"]
    row["edges"] = sized.edges()
    costs = figures.carrier(sized)
    buffers = figures.buffer_row(sized, costs)
    row["buffers"], row["buffer_bytes"] = buffers, buffers["buffer_bytes"]
    row["bursts"] = figures.burst_row(sized, costs)
    row["headroom"] = figures.headroom_row(sized)
    row["sensitivity"] = figures.sensitivity_rows(sized)
    row["simulated"] = sized.simulated
    if not sized.tiers.draws_nics:
        assumptions[f"{topology.name} draws no NICs: a rank's own links to the network are its ports"] = None
    assumptions |= dict.fromkeys(f"{topology.name}: {each}" for each in sized.said())
    return sized
