"""Drawn calls and jobs under drawn faults, held to the law of one physics.

An operation of a job alone on the wire takes what the collective verb says of the same call, with the same fault (2 %). No fault
makes a call faster; one that does nothing leaves the very answer of the healthy fabric; a severer one takes no less; two together
no less than each; and a failing optic is at no moment worse than the worst of its stages.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ringwright.calls.arguments import algorithm
from ringwright.calls.asked_faults import AskedFaults
from ringwright.calls.other_jobs import programs
from ringwright.calls.simulate import sweep
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.fabrics import fabric
from ringwright.fabrics._congestion import congestion, is_congestion
from ringwright.ground.errors import InfeasibleError, JobEndsError, UsageError
from ringwright.jobs.explained.exposed_operations import exposed_operations
from ringwright.jobs.model_job import GeneratedJobSpec, made
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.jobs.pricing.costs import FabricCosts
from ringwright.jobs.study import PolicyResult, answer
from ringwright.model.collective import Collective
from ringwright.model.workload import Mesh

Row = Mapping[str, Any]  # of the collective verb's answer
NEAR = 0.02  # a job's operation and the collective verb
DRAWS = 0.25  # means of a few dozen draws, of which a rare time-out is most
EQUAL = 1e-9
TRANSPORTS = ("tcp-reno", "tcp-cubic", "tcp-bbr", "roce", "ib", "srd")
FABRICS = {  # spelling -> link and switch that faults are about
    "switch:4,rate=10Gb/s": ("link rank3", "switch switch"),
    "switch:8,rate=100Gb/s": ("link rank3", "switch switch"),
    "leaf-spine:8,per_leaf=4,spines=2,rate=25Gb/s": ("link leaf1--spine0", "switch spine0"),
    "dgx-h100:2": ("nic node0/nic0", "switch leaf0"),
    "dgx-a100:2": ("nic node0/nic0", "switch leaf0"),
}
OPS = {
    "all-reduce": ("ring", "gc3", "rabenseifner", "nccl-2-4", "blueconnect"),
    "all-gather": ("ring", "bruck", "nccl-2-4"),
    "reduce-scatter": ("ring", "nccl-2-4"),
    "all-to-all": ("direct", "pairwise"),
    "broadcast": ("binomial", "nccl-2-4"),
}
# Faults of one kind, the mildest first; the last word of what they are about stands in the line.
CHAINS = {
    "rate": ("{link} rate 90%", "{link} rate 50%", "{link} rate 25%"),
    "loss": ("{link} loss 0.1%", "{link} loss 1%"),
    "ber": ("{link} ber 1e-4", "{link} ber 1e-3"),
    "latency": ("{link} latency +20us", "{link} latency +50us"),
    "buffer": ("switch * buffer 64KiB", "switch * buffer 16KiB"),
    "slow": ("rank 3 slow 2x", "rank 3 slow 4x"),
    "dead": ("{link} dead", "{switch} dead"),
    "late": ("{link} loss 1% from 10s", "{link} rate 50% from 10s"),
}
STAGES = ("{link} ber 1e-4", "{link} ber 5e-4", "{link} ber 1e-3", "{link} rate 75%", "{link} rate 50%")
OPTICS = "{link} optics degrade"
MODELS, POLICIES = ("resnet50", "bert-large", "gpt3-125m", "vgg16"), ("none", "pytorch-ddp", "p3", "dear")
LONE = ("ecmp unlucky", "congestion from all-to-all 1MiB")


@dataclass(frozen=True)
class CallUnderFaults:
    """A collective on a fabric, and the faults that befall it one by one; ``seed`` draws it again."""

    seed: int
    on: str
    op: str
    algorithm: str
    size_bytes: int
    kind: str  # of CHAINS, ``optics`` or ``lone``
    lines: tuple[str, ...]
    beside: str  # one more fault, of which two together take no less than each

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.op} by {self.algorithm}, {self.size_bytes} B on {self.on}: {'; '.join(self.lines)}"


@dataclass(frozen=True)
class JobUnderFaults:
    """A job on a fabric by a policy, and the faults that befall it one by one; ``seed`` draws it again."""

    seed: int
    on: str
    model: str
    algorithm: str
    policy: str
    kind: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        who = f"seed {self.seed}: {self.model} by {self.algorithm}, {self.policy} on {self.on}"
        return f"{who}: {'; '.join(self.lines)}"


def drawn_job(seed: int) -> JobUnderFaults:
    """Return the job of a seed."""
    draw = random.Random(f"job {seed}")  # noqa: S311 (a lottery, not a secret)
    spec, (link, switch) = draw.choice(list(FABRICS.items()))
    kind = draw.choice([each for each in CHAINS if each != "late"] + ["optics"])
    lines = CHAINS.get(kind, ("{link} rate 50%", OPTICS))
    named = tuple(each.format(link=link, switch=switch) for each in lines)
    on = f"{spec},transport={draw.choice(TRANSPORTS)}"
    algorithm = draw.choice(("ring", "gc3", "nccl-2-4"))
    return JobUnderFaults(seed, on, draw.choice(MODELS), algorithm, draw.choice(POLICIES), kind, named)


def broken_job(asked: JobUnderFaults) -> list[str]:
    """Return what of the law a job breaks."""
    well = _stepped(asked, None)
    breaches = list(_operations(asked, (), well))
    took_s: list[float] = []
    for line in asked.lines:
        try:
            ill = _stepped(asked, line)
        except JobEndsError:
            continue
        took_s.append(ill.step_s)
        breaches += _operations(asked, (line,), ill)
        if ill.step_s < well.step_s * (1 - EQUAL):
            breaches.append(f"{line}: a step of {ill.step_s:.6g} s, {well.step_s:.6g} without it")
    if asked.kind == "optics" and len(took_s) > 1 and took_s[1] > took_s[0] * (1 + EQUAL):
        breaches.append(f"a step of {took_s[1]:.6g} s, {took_s[0]:.6g} at half of the rate")
    slack = DRAWS if asked.kind in ("loss", "ber") else NEAR
    for mild_s, severe_s in pairwise(took_s if asked.kind != "optics" else ()):
        if severe_s < mild_s * (1 - slack):
            breaches.append(f"the severer makes a step of {severe_s:.6g} s, the milder {mild_s:.6g}")
    return [f"{asked}: {each}" for each in breaches]


def _stepped(asked: JobUnderFaults, line: str | None) -> PolicyResult:
    healthy = fabric(asked.on)
    top = healthy if line is None else AskedFaults((line,)).on(healthy)
    spec = WorkloadSpec(asked.model, healthy.n_ranks)
    return answer(made(GeneratedJobSpec(spec, algorithms={"": asked.algorithm}), top), asked.policy)


def _operations(asked: JobUnderFaults, lines: Sequence[str], result: PolicyResult) -> Iterator[str]:
    """Yield which operations of a job take another time alone than the collective verb says: of the two largest."""
    if asked.kind == "optics" and lines:
        return  # its steps are those after the last stage
    alike = sorted(exposed_operations(result).items(), key=lambda each: -each[0].size_bytes)
    for key, each in [pair for pair in alike if pair[0].op in OPS][:2]:
        call = CallUnderFaults(asked.seed, asked.on, key.op, asked.algorithm, key.size_bytes, "", tuple(lines), "")
        try:
            row = row_of(call, lines)
        except UsageError:  # left to the library in the job
            continue
        said_us = row["time_us"] if row["mean_us"] is None else row["mean_us"]
        if said_us is None or abs(each.alone_s * 1e6 / said_us - 1) > NEAR:
            yield f"{key.op} of {key.size_bytes} B takes {each.alone_s * 1e6:.6g} us, the collective {said_us}"


def drawn(seed: int) -> CallUnderFaults:
    """Return the call of a seed."""
    draw = random.Random(seed)  # noqa: S311 (a lottery, not a secret)
    spec, (link, switch) = draw.choice(list(FABRICS.items()))
    op = draw.choice(list(OPS))
    kind = draw.choice([*CHAINS, "optics", "lone"])
    lines = {"optics": (OPTICS,), "lone": (draw.choice(LONE),)}.get(kind) or CHAINS[kind]
    beside = draw.choice([each[-1] for name, each in CHAINS.items() if name not in ("dead", "late")])
    size = (16 << draw.randrange(10, 18)) + 1024 * draw.randrange(16) * draw.randrange(2)
    named = [each.format(link=link, switch=switch) for each in (*lines, beside)]
    on = f"{spec},transport={draw.choice(TRANSPORTS)}"
    return CallUnderFaults(seed, on, op, draw.choice(OPS[op]), size, kind, tuple(named[:-1]), named[-1])


def answers(call: CallUnderFaults) -> bool:
    """Return whether the algorithm of a call does it on that fabric at all."""
    try:
        algorithm(call.algorithm)(Collective(call.op, range(fabric(call.on).n_ranks), call.size_bytes), fabric(call.on))
    except UsageError:
        return False
    return True


def broken(call: CallUnderFaults) -> list[str]:
    """Return what of the law a call breaks, nothing where the algorithm declines the fabric."""
    if not answers(call):
        return []
    well = row_of(call, ())
    breaches = [f"{call}: {each}" for each in _as_job(call, (), well)]
    rows: list[Row] = []
    for line in call.lines:
        try:
            rows.append(row_of(call, (line,)))
        except UsageError:  # no flow has several routes
            continue
        told = (*_beside_healthy(well, rows[-1]), *_as_job(call, (line,), rows[-1]))
        breaches += [f"{call}: {line}: {each}" for each in told]
    breaches += [f"{call}: {each}" for each in _ordered(call, rows)]
    return breaches


def tried(seed: int) -> tuple[bool, list[str]]:
    """Return whether the drawn call of a seed has an answer, and what of it breaks the law: a task."""
    return answers(drawn(seed)), broken(drawn(seed))


def tried_job(seed: int) -> list[str]:
    """Return what of the drawn job of a seed breaks the law: a task."""
    return broken_job(drawn_job(seed))


def row_of(call: CallUnderFaults, lines: Sequence[str]) -> Row:
    """Return the row of the collective verb under some faults; UsageError where it declines."""
    healthy = fabric(call.on)
    others = tuple(congestion(line, healthy.n_ranks) for line in lines if is_congestion(line))
    faults = AskedFaults(tuple(line for line in lines if not is_congestion(line)))
    question = SimulationSpec(
        call.op,
        faults.on(healthy),
        healthy=healthy,
        faults=faults if faults.lines else None,
        beside=others,
    )
    row: Row = sweep(question, [call.algorithm], [call.size_bytes], sums_too=False)["rows"][0]
    return row


def _as_job(call: CallUnderFaults, lines: Sequence[str], row: Row) -> Iterator[str]:
    """Yield where a job's operation takes another time than the collective verb says, or ends otherwise."""
    healthy = fabric(call.on)
    top = AskedFaults(tuple(line for line in lines if not is_congestion(line))).on(healthy)
    if any(fault.time_s > 0 for fault in top.faults):
        return  # a job's steps are those after what begins late
    others = [congestion(line, healthy.n_ranks) for line in lines if is_congestion(line)]
    mesh = Mesh((("dp", healthy.n_ranks),))
    costs = FabricCosts(top, mesh, algorithms={"": call.algorithm}, others=tuple(programs(others, top)))
    try:
        seconds = sum(each.wire_s for each in costs.stages(call.op, call.size_bytes, tuple(range(mesh.size)), "dp"))
    except InfeasibleError as error:
        if (row["ends"] or {}).get("why") != getattr(error, "why", None):
            yield f"the job {error.what}, the collective {row['ends'] or row['time_us']}"
        return
    said_us = row["time_us"] if row["mean_us"] is None else row["mean_us"]
    if said_us is None:
        yield f"the collective ends ({row['declined']}), the job's operation takes {seconds * 1e6:.6g} us"
    elif abs(seconds * 1e6 / said_us - 1) > NEAR:
        yield f"a job's operation takes {seconds * 1e6:.6g} us, the collective {said_us:.6g}"


def _beside_healthy(well: Row, ill: Row) -> Iterator[str]:
    """Yield where a fault makes a call faster, or one that does nothing moves its answer."""
    if ill["ends"]:
        return
    well_us = well["time_us"]
    for name in ("time_us", "mean_us", "worst_us"):
        if ill[name] is not None and ill[name] < well_us * (1 - EQUAL):
            yield f"{name} is {ill[name]:.9g}, {well_us:.9g} without it"
    if ill["healthy_us"] is not None and abs(ill["healthy_us"] / well_us - 1) > EQUAL:
        yield f"healthy_us is {ill['healthy_us']:.9g}, the answer without faults {well_us:.9g}"
    if any(each["more_us"] == 0 for each in map(_plain, ill["unaffected"])) and ill["time_us"] != well_us:
        yield f"unaffected, yet {ill['time_us']:.9g} for {well_us:.9g}"


def _plain(each: Any) -> Row:
    return each if isinstance(each, dict) else {"more_us": each.more_us}


def _ordered(call: CallUnderFaults, rows: Sequence[Row]) -> Iterator[str]:
    """Yield where a milder fault takes longer, where two take less than one, and where an optic is worse than its stages."""
    times = [(each["time_us"], each["mean_us"]) for each in rows if each["time_us"] is not None]
    for (mild, mild_mean), (severe, severe_mean) in pairwise(times):
        if severe < mild * (1 - _slack(severe_mean)):
            yield f"the severer takes {severe:.6g}, the milder {mild:.6g}"
        if None not in (mild_mean, severe_mean) and severe_mean < mild_mean * (1 - DRAWS):
            yield f"the severer takes {severe_mean:.6g} in the mean, the milder {mild_mean:.6g}"
    if call.kind == "optics" and rows and rows[0]["worst_us"] is not None:
        yield from _within_stages(call, rows[0]["worst_us"])
    if call.kind not in ("dead", "lone", "optics") and rows and rows[-1]["time_us"] is not None:
        yield from _with_another(call, rows[-1]["time_us"])


def _within_stages(call: CallUnderFaults, worst_us: float) -> Iterator[str]:
    """Yield where a failing optic is worse at some moment than the worst of its stages."""
    link = call.lines[0].removesuffix(" optics degrade")
    stages = [row_of(call, (each.format(link=link),)) for each in STAGES]
    most = max(each["time_us"] for each in stages)
    drawn_too = any(each["mean_us"] is not None for each in stages)
    if worst_us > most * (1 + (NEAR if drawn_too else EQUAL)):
        yield f"at its worst moment {worst_us:.6g}, the worst of its stages {most:.6g}"


def _with_another(call: CallUnderFaults, alone_us: float) -> Iterator[str]:
    """Yield where two faults take less than one of them."""
    both, other = row_of(call, (call.lines[-1], call.beside)), row_of(call, (call.beside,))
    if both["time_us"] is None or other["time_us"] is None:
        return
    most = max(alone_us, other["time_us"])
    if both["time_us"] < most * (1 - _slack(both["mean_us"])):
        yield f"with {call.beside} too {both['time_us']:.6g}, one alone {most:.6g}"


def _slack(mean_us: float | None) -> float:
    """Return which part of a time is left to chance: medians of drawn losses, and in which order messages meet."""
    return NEAR if mean_us is None else DRAWS
