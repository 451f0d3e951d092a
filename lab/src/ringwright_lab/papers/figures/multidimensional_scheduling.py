"""TriRace's figures: an asynchronous pipeline with two weight versions, its messages, sparse rows and dense gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from ringwright.engines.job.run import JobRun, simulate
from ringwright.ground.units import MIB, PS
from ringwright.model.stages import LinkCosts, Stage, seconds
from ringwright.model.workload import Edge, Gate, Mesh, Payload, Queue, RankClass, Task, Workload
from ringwright.schedulers.decompose.multidimensional_scheduling import link_seconds, multidimensional_scheduling

REPLICAS, LAYERS = 4, 2
FORWARD_S, BACKWARD_S = 0.02, 0.04
RATE = 25e9 / 8 / 4  # one NIC of 25 Gb/s for 4 GPUs, in bytes/s of one of them
MESSAGE_MIB, DENSE_MIB = 2.0, 200.0  # what a stage hands on for a micro-batch; gradients of a stage
STEPS, FROM = 16, 8


@dataclass(frozen=True)
class AsyncPipeline:
    """Stages, micro-batches of a batch, and how many a stage is ahead of the next one with its forward passes.

    Messages take time: with one ahead they would be exposed.
    """

    stages: int = 4
    micro_batches: int = 16
    ahead: int = 2

    def behind(self, stage: int, batch: int) -> int:
        """Return how many batches later, in the order of its stage, a micro-batch's backward pass comes."""
        return (batch + self.in_flight(stage)) // self.micro_batches

    def in_flight(self, stage: int) -> int:
        """Return how many micro-batches a stage is ahead with its forward passes."""
        return self.ahead * (self.stages - 1 - stage)

    @property
    def work_s(self) -> float:
        """The seconds of a batch's work on a stage."""
        return self.micro_batches * (FORWARD_S + BACKWARD_S)


FOUR, LONG = AsyncPipeline(), AsyncPipeline(2, 64, 1)


@dataclass(frozen=True)
class ApartCosts:
    """Links as given, but messages between stages have links of their own."""

    links: LinkCosts

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return one phase."""
        (stage,) = self.links.stages(op, size_bytes, ranks, role)
        return (replace(stage, loads=(("stage.tx", 1.0), ("stage.rx", 1.0))),) if op == "send-recv" else (stage,)


def two_versions(
    message_mib: float = MESSAGE_MIB, dense_mib: float = DENSE_MIB, rows_mib: float = 0.0, shape: AsyncPipeline = FOUR
) -> Workload:
    """Return a steady batch of PipeDream-2BW: gradients of batch k are due at the forward pass of batch k + 2.

    Passes of all micro-batches are tasks of their own, one forward, one backward in turn, over the ends of batches. The first
    stage has rows of an embedding: those of the next look-up, and others, due a batch later.
    """
    tasks: list[Task] = []
    edges: list[Edge] = []
    payloads: list[Payload] = []
    stages, last = shape.stages, shape.micro_batches - 1
    for stage in range(stages):
        of = f"stage{stage}"
        for at in range(shape.micro_batches):
            forward = [f"F{stage}.{at}.{layer}" for layer in range(LAYERS)]
            tasks += [
                Task(name, of, "F", FORWARD_S / LAYERS, layer, ("F", 0), "step") for layer, name in enumerate(forward)
            ]
            back = (at - shape.in_flight(stage)) % shape.micro_batches
            backward = [f"B{stage}.{back}.{layer}" for layer in reversed(range(LAYERS))]
            tasks += [
                Task(name, of, "B", BACKWARD_S / LAYERS, LAYERS - 1 - at, ("B", 0), "step")
                for at, name in enumerate(backward)
            ]
        top = LAYERS - 1
        for at in range(shape.micro_batches):
            edges.append(Edge(f"F{stage}.{at}.{top}", f"B{stage}.{at}.{top}", shape.behind(stage, at)))
            if stage + 1 < stages:
                later = shape.behind(stage, at) - shape.behind(stage + 1, at)
                there = (f"F{stage}.{at}.{top}",), ((f"F{stage + 1}.{at}.0", 0),)
                back_ = (f"B{stage + 1}.{at}.0",), ((f"B{stage}.{at}.{top}", later),)
                payloads.append(_message(f"activations{stage}.{at}", stage, stage + 1, message_mib, *there))
                payloads.append(_message(f"gradients{stage + 1}.{at}", stage + 1, stage, message_mib, *back_))
        swap = 2 - shape.behind(stage, last)
        for layer in range(LAYERS):
            made, update = (f"B{stage}.{last}.{layer}",), f"U{stage}.{layer}"
            tasks.append(Task(update, of, "U", 0.0, layer, ("U", 0), "step"))
            edges.append(Edge(update, f"F{stage}.0.{layer}", swap))
            size = round(dense_mib * MIB / LAYERS)
            payloads.append(_sum(f"dense{stage}.{layer}", of, "dp", "all-reduce", size, made, ((update, 0),)))
        if rows_mib and not stage:
            for name, due in (("next", swap), ("other", swap + 1)):
                used = ((f"F{stage}.0.0", due),)
                made = (f"B{stage}.{last}.0",)
                payloads.append(_sum(f"{name} rows", of, "sparse", "all-gather", round(rows_mib * MIB), made, used))
    classes = tuple(RankClass(f"stage{at}", {"pp": at}) for at in range(stages))
    mesh = Mesh((("dp", REPLICAS), ("pp", stages)))
    return Workload("two weight versions", mesh, classes, tuple(tasks), tuple(edges), tuple(payloads))


def _message(
    name: str, stage: int, peer: int, mib: float, made: tuple[str, ...], used: tuple[tuple[str, int], ...]
) -> Payload:
    return Payload(
        name, f"stage{stage}", "send-recv", max(1, round(mib * MIB)), (), "pp", made, used, peer=f"stage{peer}"
    )


def _sum(
    name: str, of: str, role: str, op: str, size: int, made: tuple[str, ...], used: tuple[tuple[str, int], ...]
) -> Payload:
    return Payload(name, of, op, size, ("dp",), role, made, used, elements=size // 4)


def fifo(workload: Workload) -> Workload:
    """Return the workload on one communicator: whole operations, one at a time, first come first served."""
    roles = dict.fromkeys(each.role for each in workload.payloads)
    queue = Queue(traffic=dict.fromkeys(roles, 1), gates=(Gate(1, 1), Gate(1, 1, "running")))
    return workload.with_policy("fifo", queue=queue, boundary="layer")


def costs(*, apart: bool = False, rate: float = RATE) -> LinkCosts | ApartCosts:
    """Return the links: a share of one NIC for all that a rank sends, or messages on links of their own."""
    links = LinkCosts(rate, ring=True)
    return ApartCosts(links) if apart else links


@dataclass(frozen=True)
class SharedLinkSetup:
    """A batch that is simulated: policy, MiB of messages, gradients and rows, MiB of a block, links, and the pipeline."""

    policy: str = "trirace"
    message_mib: float = MESSAGE_MIB
    dense_mib: float = DENSE_MIB
    rows_mib: float = 0.0
    block_mb: float = 1.0
    apart: bool = False
    shape: AsyncPipeline = FOUR


@cache
def _run(asked: SharedLinkSetup) -> JobRun:
    step, wires = (
        two_versions(asked.message_mib, asked.dense_mib, asked.rows_mib, asked.shape),
        costs(apart=asked.apart),
    )
    if asked.policy == "fifo":
        made = fifo(step)
    elif asked.policy == "plain":
        made = step.with_policy("plain", queue=Queue(), boundary="layer")
    else:
        made = multidimensional_scheduling(step, wires, block_mb=asked.block_mb)
    return simulate(made, wires, steps=STEPS)


def batch_s(asked: SharedLinkSetup) -> float:
    """Return the seconds of a steady batch."""
    run = _run(asked)
    return (run.finished(STEPS - 1) - run.finished(FROM - 1)) / (STEPS - FROM) / PS


def exposed_share(policy: str = "trirace", *, dense_mib: float = DENSE_MIB) -> float:
    """Return the share of a batch in which its stages wait."""
    return 1 - FOUR.work_s / batch_s(SharedLinkSetup(policy, dense_mib=dense_mib))


def times_shorter(*, dense_mib: float = DENSE_MIB, rows_mib: float = 0.0) -> float:
    """Return how many times shorter a batch is than first come first served on one communicator."""
    plain, ours = (
        batch_s(SharedLinkSetup(each, dense_mib=dense_mib, rows_mib=rows_mib)) for each in ("fifo", "trirace")
    )
    return plain / ours


def gain_apart() -> float:
    """Return the gain over plain queues where messages have links of their own."""
    return batch_s(SharedLinkSetup("plain", apart=True)) / batch_s(SharedLinkSetup(apart=True))


def never_longer() -> float:
    """Return 1 where no batch of 10 to 400 MiB of gradients is longer than first come first served."""
    return float(all(times_shorter(dense_mib=mib) >= 1 - 1e-9 for mib in (10, 50, 100, 200, 300, 400)))


def switch(load: float) -> float:
    """Return a batch's seconds over the longer of its work and its busiest link, where links are used ``load`` of the work."""
    message_mib, links = 0.01, costs()
    whole_s = 2 * LONG.micro_batches * seconds(links, "send-recv", round(message_mib * MIB), (0, 1), "pp")
    dense_mib = (load * LONG.work_s - whole_s) / seconds(links, "all-reduce", MIB, tuple(range(REPLICAS)))
    busiest_s = max(link_seconds(two_versions(message_mib, dense_mib, 0.0, LONG), links).values())
    return batch_s(SharedLinkSetup("trirace", message_mib, dense_mib, shape=LONG)) / max(LONG.work_s, busiest_s)


def longest_wait_blocks(block_mb: float = 1.0, rows_mib: float = 4.0) -> float:
    """Return the longest that a message waits besides for other messages, in blocks of gradients."""
    run, links = _run(SharedLinkSetup(rows_mib=rows_mib, block_mb=block_mb)), costs()
    block_s = seconds(links, "all-reduce", round(block_mb * MIB), tuple(range(REPLICAS)))
    waits = [
        (int(start) - int(ready)) / PS
        for row in run.laid.rows
        if row.role == "pp"
        for at in range(FROM, STEPS)
        for start, ready in zip(run.starts(row, at), run.times.ready[run.span(row, at)], strict=True)
    ]
    return max(waits) / block_s
