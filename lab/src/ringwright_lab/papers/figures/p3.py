"""P3's figures: the contrived example, gain against bandwidth on four machines, and what slices gain by themselves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial

from ringwright.engines.job.run import simulate
from ringwright.model.stages import ServerCosts, Stage
from ringwright.model.workload import Payload, Queue, Rewrite, Workload
from ringwright.schedulers.order import GRADIENTS
from ringwright.schedulers.priority.p3 import p3
from ringwright.workloads.layers import layerwise
from ringwright.workloads.models import model
from ringwright_lab.papers.figures import bytescheduler
from ringwright_lab.papers.figures.fit import crossing

MACHINES = 4  # each a worker and a server
RATES_GBPS = (1, 2, 4, 6, 8, 10, 12, 15, 20, 30)
COLOCATED = 1.5  # bytes that leave a machine for each byte of the model: 3/4 pushed, 3/4 sent back as a server
LARGE = 1_000_000  # parameters: above, MXNet cuts a tensor into a part for each server
SLICE = 50_000
STEPS = 3


def fig2(policy: str) -> float:
    """Return the step of ByteScheduler's contrived example in units, slices of one unit."""
    costs = ServerCosts(1.0)
    made = bytescheduler.example("push-pull")
    made = replace(made, payloads=tuple(replace(each, elements=each.size_bytes) for each in made.payloads))
    if policy == "p3":
        made = partial(p3, slice_elements=1)(made, costs)
    return simulate(made, costs).step_s


@cache
def gain(name: str, iteration_s: float, rate_gbps: float) -> float:
    """Return MXNet's step against P3's, with links of ``rate_gbps`` and ``iteration_s`` seconds of compute."""
    made = layerwise(model(name), iteration_s, MACHINES, op="push-pull")
    costs = ServerCosts(rate_gbps * 1e9 / 8 / COLOCATED)
    parts = Rewrite("parts", GRADIENTS, {"servers": MACHINES, "above_elements": LARGE})
    plain = made.with_policy("mxnet", rewrites=(parts,), queue=Queue(), boundary="barrier")
    return simulate(plain, costs, steps=STEPS).step_s / simulate(p3(made, costs), costs, steps=STEPS).step_s


def peak_gbps(name: str, iteration_s: float) -> float:
    """Return the rate of the largest gain."""
    return max(RATES_GBPS, key=lambda rate: gain(name, iteration_s, rate))


def peak(name: str, iteration_s: float) -> float:
    """Return the largest gain over all rates."""
    return max(gain(name, iteration_s, rate) for rate in RATES_GBPS)


# Compute times that follow from the testbed's GPU alone: a P4000's 5.3 TFLOP/s, half of them used (assumed), 32 images a step,
# backward twice forward; GFLOP of an image's forward pass.
P4000_FLOPS, USED, IMAGES = 5.3e12, 0.5, 32
FORWARD_GFLOP = {"vgg19": 39.26, "resnet50": 8.18}


def p4000_s(name: str) -> float:
    """Return the seconds of a step's compute on one P4000."""
    return 3 * FORWARD_GFLOP[name] * 1e9 * IMAGES / (P4000_FLOPS * USED)


def p4000_peak_gbps(name: str) -> float:
    """Return the rate of the largest gain with a P4000's compute time."""
    return peak_gbps(name, p4000_s(name))


def p4000_gain(name: str) -> float:
    """Return the largest gain over all rates with a P4000's compute time, as a share: 0 is none."""
    return peak(name, p4000_s(name)) - 1


def p4000_slicing_gain(rate_gbps: float) -> float:
    """Return what slices alone gain on VGG-19 with a P4000's compute time and sums that are free, as a share."""
    return slicing_gain(1e9, p4000_s("vgg19"), rate_gbps) - 1


# ------------------------------------------------------------------------------------------------------ slices by themselves
SERVERS = tuple(f"server{at}" for at in range(MACHINES))


@dataclass(frozen=True)
class SummedCosts:
    """Servers that share the workers' links, each adding up what all workers send it in one thread, ``sums`` bytes/s.

    The role of an operation is its server.
    """

    rate: float
    sums: float

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return push, sum and pull."""
        moved = size_bytes / self.rate
        return (
            Stage(moved, phase="push", loads=(("link.tx", 1.0),)),
            Stage(size_bytes * len(ranks) / self.sums, phase="sum", loads=((role, 1.0),)),
            Stage(moved, phase="pull", loads=(("link.rx", 1.0),)),
        )


@cache
def slicing_gain(sums_gb_s: float, iteration_s: float, rate_gbps: float) -> float:
    """Return VGG-19's step with whole parts against that with slices, both first come first served."""
    made = layerwise(model("vgg19"), iteration_s, MACHINES, op="push-pull")
    costs = SummedCosts(rate_gbps * 1e9 / 8 / COLOCATED, sums_gb_s * 1e9)
    whole, sliced = (simulate(_placed(made, sliced), costs, steps=STEPS).step_s for sliced in (False, True))
    return whole / sliced


def sums_for(wanted: float, iteration_s: float, rate_gbps: float) -> float:
    """Return the GB/s of a server's thread at which slices by themselves gain ``wanted``, coming down from plenty."""
    return crossing(lambda sums: slicing_gain(sums, iteration_s, rate_gbps), wanted, 2.0, 50.0)


def _placed(made: Workload, sliced: bool) -> Workload:
    """Return the workload with its tensors on servers: large ones, or with slices all, in equal parts on each."""
    payloads: list[Payload] = []
    for at, each in enumerate(made.payloads):
        if sliced or each.elements > LARGE:
            share = -(-each.elements // MACHINES)
            payloads += [
                replace(each, name=f"{each.name}@{role}", role=role, elements=share, size_bytes=4 * share)
                for role in SERVERS
            ]
        else:
            payloads.append(replace(each, role=SERVERS[at % MACHINES]))
    slices = (Rewrite("partition", SERVERS, {"elements": SLICE}),) if sliced else ()
    placed = replace(made, payloads=tuple(payloads))
    return placed.with_policy("mxnet", rewrites=slices, queue=Queue(), boundary="barrier")
