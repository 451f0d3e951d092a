"""Workloads as files: write one that was made from a model, simulate one that somebody wrote or changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.calls.provenance import asked_of
from ringwright.formats import exports
from ringwright.formats.exports.placement import claim_file, claim_folder
from ringwright.formats.sources.programs.workload_json import read_workload
from ringwright.ground import drafts
from ringwright.jobs import faults
from ringwright.jobs.model_job import LEFT_OUT
from ringwright.jobs.pricing.costs import LIBRARY, stages_of
from ringwright.jobs.pricing.networks import on_networks, said_of
from ringwright.jobs.study import Job
from ringwright.model.validity.workloads import require
from ringwright.model.workload import FORMAT, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringwright.model.topology import Topology

HEAD_BYTES = 400
BY_NAME = {
    ".json": "json",
    ".py": "ddp-buckets-py",
    ".csv": "pipeline-csv",
    ".toml": "torchtitan-toml",
}  # what a file's name asks for; any other is a folder of Chakra traces


def is_workload(path: Path) -> bool:
    """Say whether a file is one of ours with a workload in it."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return FORMAT.encode() in file.read(HEAD_BYTES)


def save(workload: Workload, path: Path, form: str | None = None, *, force: bool = False) -> list[Path]:
    """Write an export of a workload and return the files: ``path`` itself, or one a rank in a folder of that name.

    Without a form the name of the file decides.
    """
    traces = exports.find(form or BY_NAME.get(path.suffix, "chakra"), "workload").files(workload)
    if isinstance(traces, list) and len(traces) == 1:
        drafts.write(claim_file(path, force=force), traces[0])
        return [path]
    traces = traces if isinstance(traces, dict) else {**dict(enumerate(traces))}
    claim_folder(path, force=force)
    stem = workload.name.replace(" ", "-")
    made = [path / (each if isinstance(each, str) else f"{stem}.{each}.et") for each in traces]
    with drafts.alone(path):
        for file, data in zip(made, traces.values(), strict=True):
            drafts.write(file, data)
    return made


def read(path: Path) -> Workload:
    """Return a legal workload; InputError for a file that cannot be read, WorkloadError for rules that it breaks."""
    return require(read_workload(path))


def job(
    workload: Workload, topology: Topology, algorithm: str = "", networks: Mapping[str, Topology] | None = None
) -> Job:
    """Return the workload on a fabric, and on ``networks`` beside it by name; UsageError where it does not fit."""
    networks = networks or {}
    algorithms = {"": algorithm} if algorithm else {}
    costs = on_networks(networks, topology, workload.mesh, stages_of(workload), algorithms)
    own = [f"none is the file's own policy: {workload.policy.label}"] if workload.policy.by else []
    told = (
        *workload.assumptions,
        *own,
        f"collectives by {algorithm or LIBRARY} on {topology.name}",
        *said_of(networks),
    )
    return Job(
        workload,
        costs,
        faults.slowdowns(costs.topology),
        costs.marked,
        assumptions=told,
        fabric=topology.name,
        left_out=LEFT_OUT,
        remarks=costs.told,
        asked=asked_of(topology, (algorithm or LIBRARY,), networks=networks),
    )
