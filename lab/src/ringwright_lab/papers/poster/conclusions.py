"""The paper's conclusions, simulated: models on topologies of one size, healthy and disturbed, by the library and by others.

Every answer names its engine. A disturbance that no engine plays for a whole step is named in ``UNANSWERED``, not guessed. Each
model has one parallel form, the same on every topology, so that columns can be compared.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypedDict, TypeVar

from ringwright.advise.provision.buffers import Queued, RoleBurst, buffered_links, role_bursts, slowed_time
from ringwright.advise.provision.network import NetworkTiers
from ringwright.advise.provision.optics import some_cables
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import LANES_LEFT, apply
from ringwright.ground import drafts
from ringwright.ground.errors import RingwrightError
from ringwright.ground.stepwise import Advance
from ringwright.jobs import model_job, study
from ringwright.jobs.model_job import GeneratedJobSpec
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.jobs.pricing.costs import FabricCosts, on_fabric
from ringwright.model.topology import Topology

GPUS, DEVICE, POLICY = 64, "h100", "pytorch-ddp"
TOPOLOGIES = (
    "fat-tree:64",
    "rail-optimised:8",
    "leaf-spine:64,per_leaf=8,oversubscription=4",
    "torus:8x8",
    "dragonfly:4x4x4",
)
MODELS: dict[str, WorkloadSpec] = {
    "deepseek-v3 decode": WorkloadSpec("deepseek-v3", GPUS, "dp64,ep64", mode="decode"),
    "deepseek-v3 prefill": WorkloadSpec("deepseek-v3", GPUS, "dp64,ep64", mode="prefill"),
    "gpt3-175b": WorkloadSpec("gpt3-175b", GPUS, "tp8,pp8,sp"),
    "llama3-70b": WorkloadSpec("llama3-70b", GPUS, "tp8,pp4,dp2,sp"),
    "bert-large": WorkloadSpec("bert-large", GPUS, "dp64"),
    "resnet-50": WorkloadSpec("resnet-50", GPUS, "dp64"),
    "mixtral-8x7b": WorkloadSpec("mixtral-8x7b", GPUS, "pp2,dp32,ep8,zero1"),
}
IN_SHORT = (("resnet-50", "bert-large"), ("leaf-spine:64,per_leaf=8,oversubscription=4", "torus:8x8"))
HEALTHY, BUFFERS = "healthy", "small buffers"
SMALL_BUFFER = 32 << 10  # bytes of a port
FLAPPING = "flapping port"
EFFECTS = {  # on the cable of one port: the costliest of a few
    "loss 0.1 %": "loss 0.1%",
    "loss 1 %": "loss 1%",
    "degraded optic": f"rate {LANES_LEFT:.0%}",  # what its last step leaves
    "rate step": "rate 20%",
    FLAPPING: "flap 100ms every 2s",
}
# Of which a step can be run again as packets: an outage is of a step, not of an operation.
FOLLOWED = tuple(name for name in EFFECTS if name != FLAPPING)
UNANSWERED = {
    "competing traffic": "a neighbour repeats one collective, so that what it costs says more of the neighbour than of the fabric"
    " (simulate --beside has it)",
}
OTHERS = ("ring", "rabenseifner", "swing", "blueconnect")  # programs beside the library's own choice
LOSS_SEEDS = (0, 1, 2)
CHECKED, SEED = 20, 2507  # disturbed steps that are run again as packets, and what draws them
LEARNT, THINNER = "events, losses and queues by packets", "events, losses as thinner links"
JOBS = "events"
Kept = TypeVar("Kept", "ConclusionAnswer", "PacketCheck")


class ConclusionAnswer(TypedDict):
    """A step: of which model, where, under what, by which engine; ``why`` where there is none."""

    model: str
    fabric: str
    disturbance: str
    fault: str
    algorithm: str
    engine: str
    step_us: float | None
    slowdown: float | None
    why: str


class PacketCheck(TypedDict):
    """A disturbed step again, its largest operations as packets: both slow-downs, and packets over events; ``why`` without."""

    model: str
    fabric: str
    disturbance: str
    by_events: float | None
    by_packets: float | None
    ratio: float | None
    why: str


@dataclass(frozen=True)
class SimulatedModel:
    """One model on one topology."""

    model: str
    spelled: str

    @cached_property
    def topology(self) -> Topology:
        """The healthy fabric."""
        return fabric(self.spelled)

    def job(self, topology: Topology, algorithm: str = "") -> study.Job:
        """Return the step on a fabric, as ``simulate --model`` has it."""
        algorithms = {"": algorithm} if algorithm else {}
        return model_job.made(GeneratedJobSpec(MODELS[self.model], DEVICE, algorithms), topology)

    def step(self, topology: Topology, algorithm: str = "") -> study.PolicyResult:
        """Return a step."""
        return study.answer(self.job(topology, algorithm), POLICY)

    @cached_property
    def healthy(self) -> study.PolicyResult:
        """The undisturbed step."""
        return study.answer(self.job(self.topology), POLICY)

    @cached_property
    def cable(self) -> str:
        """The cable of the port that costs most at a fifth of its rate, as fault lines name it."""
        cables = some_cables(NetworkTiers(self.topology), MODELS[self.model].gpus or GPUS)
        rated = {each: self.step(apply(self.topology, [f"{each} {EFFECTS['rate step']}"])).step_s for each in cables}
        return max(rated, key=lambda each: rated[each])

    def answers(self) -> list[ConclusionAnswer]:
        """Return the healthy step, each disturbed one, and the step by each other program."""
        own = self.healthy.step_s
        told = [self._told(HEALTHY, "", "", JOBS, own)]
        for name, effect in EFFECTS.items():
            line = f"{self.cable} {effect}"
            told.append(self._tried(name, line, "", partial(self._disturbed, line)))
        others = (self._tried(HEALTHY, "", other, partial(self.step, self.topology, other)) for other in OTHERS)
        line = f"{buffered_links(self.topology)} * buffer {SMALL_BUFFER >> 10}KiB"
        return [*told, self._tried(BUFFERS, line, "", partial(self._disturbed, line)), *others]

    def _disturbed(self, line: str) -> study.PolicyResult:
        return self.step(apply(self.topology, [line]))

    def queued_s(self, factors: Mapping[str, float]) -> float:
        """Return the healthy step with the operations of some roles a factor longer, s."""
        job = self.job(self.topology)
        return study.answer(replace(job, costs=Queued(job.costs, factors)), POLICY).step_s

    def _tried(self, name: str, line: str, algorithm: str, step: Callable[[], study.PolicyResult]) -> ConclusionAnswer:
        try:
            result = step()
        except RingwrightError as error:
            return self._told(name, line, algorithm, JOBS, None, error.what)
        return self._told(name, line, algorithm, engine_of(result), result.step_s)

    def _told(
        self, name: str, line: str, algorithm: str, engine: str, step_s: float | None, why: str = ""
    ) -> ConclusionAnswer:
        return {
            "model": self.model,
            "fabric": self.spelled,
            "disturbance": name,
            "fault": line,
            "algorithm": algorithm,
            "engine": engine,
            "step_us": None if step_s is None else step_s * 1e6,
            "slowdown": None if step_s is None else step_s / self.healthy.step_s,
            "why": why,
        }

    def _slowed(self, burst: RoleBurst, faulty: Topology, disturbance: str) -> float:
        seeds = LOSS_SEEDS if "loss" in disturbance else LOSS_SEEDS[:1]
        return statistics.median(slowed_time(burst, self.topology, faulty, seed) for seed in seeds)

    def checked(self, answer: ConclusionAnswer) -> list[PacketCheck]:
        """Return one of its disturbed steps again, as packets."""
        return [self.as_packets(answer["disturbance"], answer["slowdown"])]

    def as_packets(self, disturbance: str, by_events: float | None) -> PacketCheck:
        """Return a disturbed step whose largest operations are followed packet by packet, healthy and disturbed."""
        told: PacketCheck = {
            "model": self.model,
            "fabric": self.spelled,
            "disturbance": disturbance,
            "by_events": by_events,
            "by_packets": None,
            "ratio": None,
            "why": "",
        }
        faulty = apply(self.topology, [f"{self.cable} {EFFECTS[disturbance]}"])
        try:
            result = study.answer(self.job(faulty), POLICY)
            costs = result.costs
            carrier = costs if isinstance(costs, FabricCosts) else on_fabric(faulty, result.workload)
            bursts = role_bursts(result, carrier)
            factors = {
                role: max(self._slowed(each, faulty, disturbance) for each in bursts if each.role == role)
                for role in dict.fromkeys(each.role for each in bursts)
            }
            told["by_packets"] = self.queued_s(factors) / self.healthy.step_s
        except RingwrightError as error:
            told["why"] = error.what
        if told["by_packets"] is not None and by_events:
            told["ratio"] = told["by_packets"] / by_events
        return told


def engine_of(result: study.PolicyResult) -> str:
    """Return which engine a job's step is by: losses are added by packets, or a lossy link is a thinner one."""
    followed = getattr(result.costs, "packets", None)
    if followed is None or not (followed.added or followed.declined):
        return JOBS
    return LEARNT if followed.added else THINNER


def pairs(*, short: bool) -> list[SimulatedModel]:
    """Return every model on every topology; in the short form two on two."""
    models, topologies = IN_SHORT if short else (tuple(MODELS), TOPOLOGIES)
    return [SimulatedModel(model, spelled) for model in models for spelled in topologies]


def drawn(answers: Sequence[ConclusionAnswer]) -> list[ConclusionAnswer]:
    """Return the disturbed steps that are run again as packets: half of them losses, drawn by a seed."""
    told: list[ConclusionAnswer] = []
    for losses in (True, False):
        names = [name for name in FOLLOWED if ("loss" in name) == losses]
        mine = [each for each in answers if each["disturbance"] in names and each["slowdown"] is not None]
        told += random.Random(SEED).sample(mine, min(len(mine), CHECKED // 2))  # noqa: S311 - a lottery, not a secret
    return told


def conclusions(
    out: Path, *, short: bool, fresh: bool = False, progress: Advance | None = None
) -> tuple[list[ConclusionAnswer], list[PacketCheck]]:
    """Simulate what does not lie in the folder yet, and return all answers and those that were followed as packets."""
    out.mkdir(parents=True, exist_ok=True)
    asked = pairs(short=short)
    answers: list[ConclusionAnswer] = []
    for done, pair in enumerate(asked):
        if progress is not None:
            progress(done, len(asked), f"{pair.model} on {pair.spelled}")
        answers += _kept(out, f"{pair.model} on {pair.spelled}", pair.answers, fresh=fresh)
    by_pair = {(each.model, each.spelled): each for each in asked}
    checks: list[PacketCheck] = []
    for number, each in enumerate(again := drawn(answers)):
        if progress is not None:
            progress(number, len(again), f"as packets: {each['model']} on {each['fabric']}, {each['disturbance']}")
        pair = by_pair[each["model"], each["fabric"]]
        name = f"packets, {each['disturbance']}, {each['model']} on {each['fabric']}"
        checks += _kept(
            out,
            name,
            partial(pair.checked, each),
            fresh=fresh,
        )
    return answers, checks


def _kept(out: Path, name: str, ask: Callable[[], list[Kept]], *, fresh: bool) -> list[Kept]:
    """Return what an earlier run left of an answer, or ask and leave it."""
    file = out / f"{''.join(mark if mark.isalnum() else '-' for mark in name)}.json"
    if file.is_file() and not fresh:
        return list(json.loads(file.read_text()))
    told = ask()
    drafts.write(file, json.dumps(told, indent=1) + "\n")
    return told
