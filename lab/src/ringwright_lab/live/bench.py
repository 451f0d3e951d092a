"""How long do steps take on real ranks under a policy? Starts the ranks, bounded in time, and returns what they measured.

As a program (``python -m ringwright_lab.live.bench FOLDER RANK``) it is one of these ranks.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from ringwright.execute.rank_host import Place, here
from ringwright.execute.rank_processes import run_ranks
from ringwright.ground.errors import UsageError
from ringwright.model.workload import Workload
from ringwright_lab.live import profile


@dataclass(frozen=True)
class LiveJob:
    """What is measured: a model of ``simulated_compute``, a scheduler as ``module:function`` with its
    knobs, ranks and their link.

    ``step_s`` is the compute of a step, ``link_rate`` the emulated serial link in B/s (0: the link that there is); ``reverse``
    turns urgencies around; ``slowdowns`` (rank, as a word, -> factor) makes ranks sleep longer.
    """

    model: str
    scheduler: str
    ranks: int = 2
    link_rate: float = 12e6
    seed: int = 0
    step_s: float = 0.9
    elements: int = 3_000_000
    steps: int = 10
    knobs: Mapping[str, Any] = field(default_factory=dict)
    reverse: bool = False
    slowdowns: Mapping[str, float] = field(default_factory=dict)
    timeout_s: float = 120.0


@dataclass(frozen=True)
class LiveResult:
    """What rank 0 found: seconds of each step after warm-up, layers and link as measured, a hash of the parameters."""

    times_s: list[float]
    layers: list[dict[str, Any]]
    backward: list[str]
    parameters: list[dict[str, Any]]
    gap_s: float
    link: dict[str, Any]
    parameters_hash: str
    ranks: int

    @property
    def step_s(self) -> float:
        """Median seconds of a step."""
        return median(self.times_s)

    def workload(self) -> Workload:
        """Return the measured step, without a policy."""
        layers = [profile.ProfiledLayer(**{**each, "parameters": tuple(each["parameters"])}) for each in self.layers]
        named = {each["name"]: profile.Parameter(**{**each, "factors": None}) for each in self.parameters}
        return profile.workload("measured", layers, self.backward, named, self.ranks, gap_s=self.gap_s)

    def costs(self) -> profile.LinkTable:
        """Return the measured link."""
        return profile.LinkTable(tuple(self.link["sizes_bytes"]), tuple(self.link["times_s"]))


def scheduler(job: LiveJob) -> Any:
    """Return the job's scheduler, with its knobs."""
    module, _, name = job.scheduler.partition(":")
    if not name:
        raise UsageError(f"'{job.scheduler}' names no scheduler", remedy="module:function")
    function = getattr(import_module(module), name)

    def scheduled(workload: Workload, costs: Any) -> Workload:
        made: Workload = function(workload, costs, **job.knobs)
        return reversed_keys(made) if job.reverse else made

    return scheduled


def reversed_keys(workload: Workload) -> Workload:
    """Return it with the urgencies turned around: what forward needs first goes last."""
    from dataclasses import replace

    queue = workload.policy.queue
    if queue is None or not queue.keys:
        raise UsageError("there is no priority to turn around", where=f"policy {workload.policy.label}")
    last = max(queue.keys.values())
    keys = {name: last - key for name, key in queue.keys.items()}
    return workload.with_policy("reversed", queue=replace(queue, keys=keys))


def measure(job: LiveJob, places: Sequence[Place] = ()) -> LiveResult:
    """Return what the ranks of a job measured, here or at ``places``; RanksFailedError with their last words otherwise.

    However they end, or do not, they are ended after ``job.timeout_s``.
    """
    if places and len(places) != job.ranks:
        raise UsageError(f"{job.ranks} ranks, and {len(places)} places", remedy="one place a rank")
    with tempfile.TemporaryDirectory(prefix="ringwright-live-") as name:
        folder = Path(name)
        (folder / "job.json").write_text(json.dumps(asdict(job)))
        run_ranks(__spec__.name, folder, places or here(job.ranks), job.timeout_s)
        return LiveResult(**json.loads((folder / "found.json").read_text()))


@dataclass(frozen=True)
class LiveRow:
    """Measured and predicted seconds of a step, and gains over the first job of the comparison."""

    name: str
    step_s: float
    gain: float
    predicted_s: float
    predicted_gain: float
    parameters_hash: str

    @property
    def share(self) -> float:
        """Measured gain - 1 as a share of the predicted one; not a number where none is predicted."""
        return (self.gain - 1) / (self.predicted_gain - 1) if self.predicted_gain != 1 else float("nan")


def compare(jobs: Mapping[str, LiveJob], places: Sequence[Place] = (), *, rounds: int = 1) -> list[LiveRow]:
    """Measure each job, and predict each from what the first one measured of itself: its layers, its link.

    With several ``rounds`` jobs take turns, and the median of all their steps counts, so that a busy minute of the machine
    does not meet one policy alone; hashes of turns that differ are joined, so that they equal no other policy's.
    """
    from ringwright.engines.job.run import simulate

    turns = [{name: measure(job, places) for name, job in jobs.items()} for _ in range(rounds)]
    first, first_turn = next(iter(jobs)), turns[0]
    workload, link = first_turn[first].workload(), first_turn[first].costs()
    predicted = {name: simulate(scheduler(job)(workload, link), link).step_s for name, job in jobs.items()}
    step_s = {name: median(each for turn in turns for each in turn[name].times_s) for name in jobs}
    return [
        LiveRow(
            name,
            step_s[name],
            step_s[first] / step_s[name],
            predicted[name],
            predicted[first] / predicted[name],
            "+".join(sorted({turn[name].parameters_hash for turn in turns})),
        )
        for name in jobs
    ]


def _rank(folder: Path, rank: int) -> None:
    """Be one rank: train the model of simulated compute, and write down what was measured."""
    import hashlib

    import torch
    import torch.distributed as dist

    from ringwright_lab.live import schedule, simulated_compute

    job = LiveJob(**json.loads((folder / "job.json").read_text()))
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), job.ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=job.ranks)
    torch.manual_seed(job.seed)
    model = simulated_compute.model(
        simulated_compute.layers(job.model, job.step_s * job.slowdowns.get(str(rank), 1.0), job.elements)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    torch.manual_seed(job.seed * 1000 + rank)
    warmup, times_s = 3, []
    with schedule(
        model, optimizer, scheduler(job), link_rate=job.link_rate or None, warmup=warmup, timeout_s=job.timeout_s / 2
    ) as live:
        for step in range(warmup + 2 + job.steps):
            begin_s = time.perf_counter()
            optimizer.zero_grad()
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
            if step >= warmup + 2:
                times_s.append(time.perf_counter() - begin_s)
        live.flush()
        if rank == 0:
            made = live.measured()
            text = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
            (folder / "found.json").write_text(
                json.dumps(
                    {
                        **made,
                        "times_s": times_s,
                        "parameters_hash": hashlib.sha256(text).hexdigest(),
                        "ranks": job.ranks,
                    }
                )
            )


if __name__ == "__main__":
    _rank(Path(sys.argv[1]), int(sys.argv[2]))
