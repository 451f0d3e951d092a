"""DeAR in the lab against plain overlap, predicted before it is measured: real ranks on links of a given rate.

The prediction knows what layers sleep, the bytes of their gradients, the rate of a link and what of it one TCP flow gets,
and takes rings for all operations. Nothing of the measured run enters it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median

from ringwright.fabrics import fabric
from ringwright.graph.algebra.account import totals
from ringwright.ground.errors import RanksFailedError
from ringwright.jobs import study
from ringwright.jobs.pricing.costs import FabricCosts
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose.dear import dear
from ringwright.workloads.chain import ChainLayer, chain
from ringwright_lab.judges.in_lab import OF_A_LINK
from ringwright_lab.live.halves import HalvesJob, HalvesResult
from ringwright_lab.network.ranks import run

RING, AHEAD = "ring", 2


@dataclass(frozen=True)
class HalvesQuestion:
    """Equal layers on ranks of a lab: all gradients together take ``times_forward`` as long as forward, backward twice."""

    link: str = "100Mb/s"
    ranks: int = 2
    layers: int = 10
    elements: int = 1 << 19
    times_forward: float = 4.0
    steps: int = 4
    optimizer: str = "sgd"
    timeout_s: float = 60.0

    @property
    def fabric(self) -> str:
        """The lab's fabric, as it is spelled."""
        return f"switch:{self.ranks},rate={self.link}"

    def forward_s(self) -> float:
        """Return what a layer sleeps forward: a part of the time of its gradient's all-reduce at the rate that a flow gets."""
        bytes_s = float(fabric(self.fabric).rate.max()) * OF_A_LINK
        return 2 * (self.ranks - 1) / self.ranks * 4 * self.elements / bytes_s / self.times_forward

    def step(self) -> Workload:
        """Return the step as a Workload."""
        each = ChainLayer(self.forward_s(), 2 * self.forward_s(), 4 * self.elements, self.elements)
        return chain("slept layers", [each] * self.layers, self.ranks)


@dataclass(frozen=True)
class HalvesRow:
    """Seconds of a step with plain overlap and with DeAR, and the bytes that a rank sends in a step, predicted and measured."""

    predicted_s: tuple[float, float]
    measured_s: tuple[float, float]
    declared_bytes: float
    sent_bytes: tuple[float, float]
    weights: tuple[str, ...] = field(repr=False)

    @property
    def predicted_gain(self) -> float:
        """Plain overlap's step over DeAR's, less 1, predicted."""
        return self.predicted_s[0] / self.predicted_s[1] - 1

    @property
    def measured_gain(self) -> float:
        """Plain overlap's step over DeAR's, less 1, measured."""
        return self.measured_s[0] / self.measured_s[1] - 1


def predict(question: HalvesQuestion) -> tuple[float, float]:
    """Return the seconds of a step with plain overlap and with DeAR, each layer alone, by simulation."""
    topology = fabric(question.fabric)
    topology = replace(topology, rate=topology.rate * OF_A_LINK, transport="tcp", protocol="tcp-reno")
    step = question.step()
    costs = FabricCosts(topology, step.mesh, algorithms={"": RING})
    job = study.Job(step, costs, {}, costs.marked)
    plain, halved = (study.answer(job, each).step_s for each in ("none", f"dear:neighbours=1:ahead={AHEAD}"))
    return plain, halved


def measure(question: HalvesQuestion) -> HalvesRow:
    """Return the row of a question; needs PyTorch and namespaces. RanksFailedError where a rank ends otherwise than well."""
    step = question.step()
    declared = sum(totals(dear(step, LinkCosts(1.0), neighbours=1)).wire_bytes.values())
    whole, halves = (_run(question, mode) for mode in ("whole", "halves"))
    sent = (whole.bytes_of_a_step, halves.bytes_of_a_step)
    return HalvesRow(predict(question), (whole.step_s, halves.step_s), declared, sent, (whole.weights, halves.weights))


@dataclass(frozen=True)
class _LabRun:
    step_s: float
    bytes_of_a_step: float
    weights: str


def _run(question: HalvesQuestion, mode: str) -> _LabRun:
    """Run one mode for its steps, and for one, so that what is sent besides steps is known."""
    (told, many), (_, one) = (_ran(question, mode, steps) for steps in (question.steps, 1))
    return _LabRun(median(told.times_s[2:]), (many - one) / (question.steps - 1), told.weights)


def _ran(question: HalvesQuestion, mode: str, steps: int) -> tuple[HalvesResult, int]:
    """Return what rank 0 measured, and the bytes that it sent by its interface's counter."""
    seconds = {"forward_s": question.forward_s(), "backward_s": 2 * question.forward_s()}
    job = HalvesJob(mode, question.optimizer, question.layers, question.elements, steps, AHEAD, **seconds)
    command = [sys.executable, "-W", "ignore", "-m", "ringwright_lab.live.halves", json.dumps([asdict(job)])]
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "lab"
        ran = run(question.fabric, command, out=out, timeout_s=question.timeout_s)
        if ran.code:
            said = " ".join(each.tail.strip()[-200:] for each in ran.ranks)
            raise RanksFailedError(
                f"ranks ended with {ran.code}: {said}", remedy="a larger timeout_s, if they were only slow"
            )
        told = json.loads((out / "rank-0.out").read_text().strip().splitlines()[-1])[0]
        links = {each["name"]: each["bytes"] for each in ran.document["totals"]}
        return HalvesResult(**told), int(links["rank0>switch"])
