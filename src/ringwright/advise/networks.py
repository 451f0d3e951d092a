"""The least network of provisioning: how sure its step is, by the draws of advice, and the network as a file of a fabric."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ringwright.advise import files_read_back
from ringwright.advise.evaluation import Evaluator
from ringwright.advise.exported import AdvisedFile
from ringwright.advise.files_read_back import Rates, rates
from ringwright.advise.folder import read_back
from ringwright.advise.interval import Draws
from ringwright.advise.provision.study import PairAnswer, ProvisionPair, joined, pair_name, pairs, sized_answer
from ringwright.advise.settings import MACHINE, Setting, Setup
from ringwright.advise.situation import MODEL, Situation
from ringwright.executors.fan_out import Chosen, fan_out
from ringwright.formats.exports.topology_json import topology_json
from ringwright.ground import drafts
from ringwright.jobs.model_job import GeneratedJobSpec
from ringwright.model.registry import scheduler
from ringwright.workloads.replay import GROUNDS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ringwright.advise.provision.document import ProvisionDocument, ProvisionRow
    from ringwright.advise.provision.least_network import SizedNetwork
    from ringwright.advise.provision.question import ProvisionSpec
    from ringwright.ground.stepwise import Advance
    from ringwright.jobs.study import Job
    from ringwright.model.topology import Topology

LEAST = Setup((Setting("fabric", MACHINE, "recommended", "the least network", "the machine"),))


def provisioned(
    spec: ProvisionSpec,
    fabrics: Sequence[Topology],
    *,
    drawn: bool = False,
    seed: int = 0,
    advance: Advance | None = None,
    executor: Chosen = None,
) -> tuple[ProvisionDocument, list[AdvisedFile]]:
    """Return the object of schema ``ringwright.provision/1``, and the recommended networks as files.

    ``drawn``: with ``longer_p05``, ``longer_p50`` and ``longer_p95`` of each row. ``executor`` answers the pairs. Raises the
    error of the first row where none can be answered, and UsageError where nothing or the same twice is asked.
    """
    asked, told = pairs(spec, fabrics)
    given = [(pair, seed if drawn else None) for pair in asked]
    with fan_out(executor) as fan:
        files = [str(each) for each in asked[0].files]
        answers = fan.map(networked, given, title=lambda pair, _: pair_name(pair), progress=advance, paths=files)
        result = joined(spec, fabrics, asked, [each.answer for each in answers], told, fan.account)
    named = [_file(each.answer.row, each.network) for each in answers if each.network is not None]
    return result, named


@dataclass(frozen=True)
class NetworkFile:
    """A recommended network as a file, and what must be read back from it."""

    data: bytes
    rates: Rates


@dataclass(frozen=True)
class NetworkAnswer:
    """The answer of a pair, and its network where it has one."""

    answer: PairAnswer
    network: NetworkFile | None


def networked(pair: ProvisionPair, seed: int | None) -> NetworkAnswer:
    """Return the answer of one pair with its network; with a seed also by how much its step may be longer."""
    answer, sized = sized_answer(pair)
    if sized is None:
        return NetworkAnswer(answer, None)
    file = NetworkFile(topology_json(sized.machine), rates(sized.machine))
    if seed is None:
        return NetworkAnswer(answer, file)
    low, middle, high = Draws(Evaluator(_situation(pair.spec, sized), inexact=True), seed=seed).gain(LEAST).ends
    row = replace(answer.row, longer_p05=0.0 - high, longer_p50=0.0 - middle, longer_p95=0.0 - low)
    return NetworkAnswer(replace(answer, row=row), file)


def write(files: Sequence[AdvisedFile], result: ProvisionDocument, output: Path) -> ProvisionDocument:
    """Write the networks into a claimed folder, each read back, and return the rows that name them.

    Raises OutputError for one that differs.
    """
    with drafts.alone(output):
        for file in files:
            with drafts.draft(output / file.name) as path:
                path.write_bytes(file.data)
                read_back(path, file)
    written = iter(files)
    rows = [
        row if row.nic_gbs is None else replace(row, export=str(output / next(written).name)) for row in result.rows
    ]
    return replace(result, rows=rows)


def _file(row: ProvisionRow, network: NetworkFile) -> AdvisedFile:
    name = re.sub(r"[^A-Za-z0-9.]+", "-", f"{row.workload}-on-{row.fabric}").strip("-.")
    return AdvisedFile(f"{name}.json", "", network.data, files_read_back.rates_read, network.rates)


def _situation(spec: ProvisionSpec, sized: SizedNetwork) -> Situation:
    """Return the job on its fabric as it is, and with LEAST on the network that is recommended."""
    job = sized.job

    def make(setup: Setup, iteration: int) -> Job:
        return job.at(sized.machine if len(setup) else sized.topology)

    return Situation(
        job.workload,
        MODEL if job.parallel else GROUNDS[1],
        scheduler(job.policy)[1],
        job.policy,
        sized.topology,
        make,
        spec=GeneratedJobSpec(spec.model, fit=spec.fit) if job.parallel else None,
    )
