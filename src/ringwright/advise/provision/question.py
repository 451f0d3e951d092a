"""What is asked of provisioning: workloads, fabrics, and the share by which a step may grow; each pair of them as a job."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.advise.provision.parallel_forms import chosen_form
from ringwright.ground.errors import UsageError
from ringwright.jobs import memory, model_job, recorded_job, study, workload_files
from ringwright.jobs.model_job import GeneratedJobSpec
from ringwright.jobs.model_workload import SERVE, WorkloadSpec, form
from ringwright.workloads.flops import MODES
from ringwright.workloads.models import model as known
from ringwright.workloads.replay import replayed

if TYPE_CHECKING:
    from ringwright.advise.provision.prices import Prices
    from ringwright.jobs.study import Job
    from ringwright.model.topology import Topology

WITHIN = 0.05
MOST_WITHIN = 1.0
POLICY = "pytorch-ddp"


@dataclass(frozen=True)
class ProvisionSpec:
    """What is asked; ``model`` holds what models have in common (its own name is not read), ``within`` is a share of the step."""

    workloads: Sequence[str]
    within: float = WITHIN
    model: WorkloadSpec = field(default_factory=lambda: WorkloadSpec(""))
    gpu: str | None = None
    fit: str | None = None
    algorithm: str = ""
    policy: str | None = None
    prices: Prices | None = None

    def __post_init__(self) -> None:
        if not self.workloads:
            raise UsageError("no workload is named", remedy="ringwright provision llama3-70b --fabric dgx-h100:8")
        if not 0 < self.within <= MOST_WITHIN:
            raise UsageError(
                f"a step within {100 * self.within:.4g} % of the reference keeps nothing, or asks for nothing",
                where="--within",
                remedy="a share above 0 % and up to 100 %: --within 5%",
            )


@dataclass(frozen=True)
class SizedJob:
    """A workload on one fabric, as a job on any network of that fabric; ``refused`` says why it does not fit its devices."""

    workload: str
    parallel: str
    ranks: int
    at: Callable[[Topology], Job] = field(repr=False)
    policy: str = POLICY
    samples: float | None = None  # sequences or images of a step
    micro_batches: int | None = None
    peak_bytes: int | None = None
    device_bytes: int | None = None
    refused: str = ""
    remarks: tuple[str, ...] = ()


def parse_share(text: str) -> float:
    """Return 0.05 for ``5%`` or ``0.05``; UsageError for what is no share."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"'{text}' is no share", where="--within", remedy="--within 5%")
    return value


def gpus_of(fabrics: Sequence[Topology], asked: int | None) -> tuple[int, str]:
    """Return how many GPUs a model takes, and how that is said: all that the smallest fabric has unless a number is asked."""
    if asked is not None:
        form(None, asked)
        return asked, ""
    fewest = min(fabrics, key=lambda each: each.n_ranks)
    if all(each.n_ranks == fewest.n_ranks for each in fabrics):
        return fewest.n_ranks, f"{fewest.n_ranks} GPUs: all of each fabric"
    told = f"{fewest.n_ranks} GPUs on every fabric, all that {fewest.name} has, so that rows can be compared"
    return fewest.n_ranks, f"{told}; --gpus asks for another number"


class Workloads:
    """The workloads that are asked about, by their names; recordings are read once."""

    def __init__(self, spec: ProvisionSpec, gpus: int) -> None:
        self.spec, self.gpus = spec, gpus
        self._makers = {name: self._maker(name) for name in spec.workloads}

    def on(self, name: str, topology: Topology) -> SizedJob:
        """Return a workload on a fabric; a RingwrightError where it cannot be there."""
        return self._makers[name](topology)

    def _maker(self, name: str) -> Callable[[Topology], SizedJob]:
        path = Path(name)
        if path.exists():
            return self._file(name, path)
        model, _, mode = name.partition(":")
        if mode and mode not in MODES:
            raise UsageError(
                f"'{mode}' in '{name}' is no mode", remedy=f"{model}:{MODES[-1]}; one of: {', '.join(MODES)}"
            )
        if self.spec.model.mode == SERVE:
            raise UsageError("both passes of serving are two workloads", remedy=f"{model}:prefill {model}:decode")
        asked = replace(self.spec.model, model=model, gpus=self.gpus, mode=mode or self.spec.model.mode)
        try:
            known(model)
        except UsageError as error:
            if "/" in name or path.suffix:
                raise UsageError(
                    f"'{name}' is neither a model nor a file",
                    remedy="ringwright list models, or the path of a recording",
                ) from error
            raise
        return partial(self._model, name, GeneratedJobSpec(asked, self.spec.gpu, self._algorithms, fit=self.spec.fit))

    @property
    def _algorithms(self) -> dict[str, str]:
        return {"": self.spec.algorithm} if self.spec.algorithm else {}

    def _model(self, name: str, question: GeneratedJobSpec, topology: Topology) -> SizedJob:
        if topology.n_ranks < self.gpus:
            raise UsageError(f"{self.gpus} ranks do not fit on {topology.name}, which has {topology.n_ranks}")
        policy = self.spec.policy or POLICY
        form = chosen_form(question, topology, policy)
        question = replace(
            question, card=replace(question.card, parallel=form.parallel, micro_batches=form.micro_batches)
        )
        return SizedJob(
            name,
            form.parallel,
            self.gpus,
            partial(_generated, question),
            policy,
            form.samples,
            form.micro_batches,
            form.peak_bytes,
            form.device_bytes,
            form.refused,
            form.remarks,
        )

    def _file(self, name: str, path: Path) -> Callable[[Topology], SizedJob]:
        """Return a recording, or a workload file, as it is on any fabric of enough ranks."""
        if workload_files.is_workload(path):
            workload = workload_files.read(path)

            def wrote(topology: Topology) -> SizedJob:
                peak = memory.peak(workload)
                return SizedJob(
                    name,
                    "",
                    workload.mesh.size,
                    partial(workload_files.job, workload, algorithm=self.spec.algorithm),
                    self.spec.policy or study.NONE,
                    peak_bytes=peak["peak_memory_bytes"],
                    device_bytes=peak["device_memory_bytes"],
                )

            return wrote
        from ringwright.formats.sources import read

        replay = replayed(read([name]))
        told = [f"{name}: {replay.ground}, {replay.step}", *recorded_job.ground(replay)["warnings"]]

        def replays(topology: Topology) -> SizedJob:
            def at(other: Topology) -> Job:
                return recorded_job.job(replay, recorded_job.Counterfactual(self.spec.algorithm, topology, other))

            was = recorded_job.ran_on(replay)
            network = f"the network that it ran on is {f'taken to be {topology.name}' if was is None else was.name}"
            ran = f"{name}: {network}; it ran, so its memory is not asked"
            return SizedJob(
                name, "", replay.workload.mesh.size, at, self.spec.policy or study.NONE, remarks=(*told, ran)
            )

        return replays


def _generated(question: GeneratedJobSpec, topology: Topology) -> Job:
    return model_job.made(question, topology)
