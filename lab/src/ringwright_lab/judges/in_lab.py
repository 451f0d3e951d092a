"""Whole steps in the lab, predicted before they are measured: real ranks, a schedule, a network with faults.

The prediction knows the layers' times (they sleep), the lab's fabric with its faults, a ring for gloo's all-reduce, and that one
TCP flow gets 95.6 % of a link (1448 of 1514 bytes of a frame). Nothing of the measured run enters it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.jobs import study
from ringwright.jobs.pricing.costs import FabricCosts
from ringwright.workloads.chain import ChainLayer, chain
from ringwright_lab.live.on_ranks import named

if TYPE_CHECKING:
    from ringwright.model.topology import Topology
    from ringwright.model.workload import Workload

OF_A_LINK = 1448 / 1514
GLOO = "ring"
POLICIES = ("pytorch-ddp:bucket_cap_mb=1:first_bucket_mb=0.25", "bytescheduler:partition_mb=0.5:credit_mb=0.5")
CASES: dict[str, tuple[tuple[str, ...], dict[str, float]]] = {
    "none": ((), {}),
    "rate 50%": (("rate 50%",), {}),
    "slow link of rank 3": (("link rank3 rate 30%",), {}),
    "slow rank 3": ((), {"3": 1.5}),
    "control": (("link rank3 loss 0.00001%",), {}),  # the plane of the next two, losing nothing
    "loss 1% of rank 3": (("link rank3 loss 1%",), {}),
    "flapping port of rank 3": (("link rank3 flap 100ms every 2s",), {}),
}


@dataclass(frozen=True)
class LabRow:
    """One case: seconds of a step, predicted and measured (median of ``times_s``)."""

    model: str
    case: str
    policy: str
    predicted_s: float
    measured_s: float
    times_s: tuple[float, ...] = field(repr=False)

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True)
class LabStepsSpec:
    """A fabric of the lab, models of simulated layers (``vgg``, ``transformer``), and what their step computes and sends."""

    fabric: str = "switch:4,rate=100Mb/s"
    models: Sequence[str] = ("vgg", "transformer")
    cases: Sequence[str] = tuple(CASES)
    policies: Sequence[str] = POLICIES
    step_s: float = 1.2
    elements: int = 2_000_000
    steps: int = 6
    timeout_s: float = 100.0
    seed: int = 0  # of what the faults leave to chance


def rows(question: LabStepsSpec) -> Iterator[LabRow]:
    """Yield a row per model, case and policy; needs PyTorch and namespaces."""
    from ringwright_lab.live.bench import LiveJob, measure
    from ringwright_lab.network.network import network

    for case in question.cases:
        lines, slowdowns = CASES[case]
        with (
            tempfile.TemporaryDirectory() as folder,
            network(
                question.fabric, lines, out=Path(folder) / "lab", horizon_s=3600.0, force=True, seed=question.seed
            ) as net,
        ):
            net.start_faults()
            for model in question.models:
                for policy in question.policies:
                    function, knobs = named(policy)
                    asked = LiveJob(
                        model,
                        function,
                        len(net.places),
                        0,
                        0,
                        question.step_s,
                        question.elements,
                        question.steps,
                        knobs,
                        slowdowns=slowdowns,
                        timeout_s=question.timeout_s,
                    )
                    predicted = predict(model, question, lines, slowdowns, policy)
                    row = measure(asked, net.places)
                    yield LabRow(model, case, policy, predicted, row.step_s, tuple(row.times_s))


def predict(
    model: str, question: LabStepsSpec, lines: Sequence[str], slowdowns: Mapping[str, float], policy: str
) -> float:
    """Return the seconds of a step by simulation alone."""
    topology = _network(question.fabric, lines)
    workload = _layers(model, question, topology.n_ranks)
    costs = FabricCosts(topology, workload.mesh, algorithms={"": GLOO})
    slow = {int(rank): factor for rank, factor in slowdowns.items()}
    return study.answer(study.Job(workload, costs, slow, costs.marked), policy).step_s


def _network(spelling: str, lines: Sequence[str]) -> Topology:
    from ringwright.fabrics import fabric
    from ringwright.fabrics.faults import apply

    made = fabric(spelling)
    made = replace(made, rate=made.rate * OF_A_LINK, transport="tcp", protocol="tcp-reno")
    return apply(made, lines) if lines else made


def _layers(model: str, question: LabStepsSpec, ranks: int) -> Workload:
    from ringwright_lab.live.simulated_compute import layers

    simulated = layers(model, question.step_s, question.elements)
    links = [
        ChainLayer(each.forward_s, each.backward_s, 4 * each.elements, each.elements, name=each.name)
        for each in simulated
    ]
    return chain(f"slept {model}", links, ranks)
