"""DistributedDataParallel's figures: what overlap saves, and the step against the size of a bucket."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ringwright.engines.job.run import simulate
from ringwright.model.rewrites import operations
from ringwright.model.stages import Costs, LinkCosts, Stage
from ringwright.model.workload import Workload
from ringwright.schedulers.fifo.pytorch_ddp import pytorch_ddp
from ringwright.workloads.layers import layerwise
from ringwright.workloads.models import model
from ringwright_lab.papers.figures.fit import crossing

# Fig. 6, read from the bars: forward, backward, communication and update without overlap, as shares of their sum.
PARTS = {
    ("resnet50", "nccl"): (0.15, 0.395, 0.445, 0.01),
    ("resnet50", "gloo"): (0.12, 0.275, 0.595, 0.01),
    ("bert-large", "nccl"): (0.09, 0.415, 0.485, 0.01),
    ("bert-large", "gloo"): (0.055, 0.25, 0.685, 0.01),
}
OVERLAPPED = {"nccl": 0.62, "gloo": 0.73}  # Fig. 6, ResNet-50: the step with overlap, against that sum
# Figs. 7 and 8, ResNet-50, read from the plots: seconds with each gradient alone, and of 25 MiB buckets on 32 GPUs.
ALONE_S = {("nccl", 16): 0.165, ("gloo", 16): 0.242, ("nccl", 32): 0.190, ("gloo", 32): 0.345}
MIB_25_S = {"nccl": 0.121, "gloo": 0.188}
CAPS_MB = (5, 10, 25, 50)
HOST_RATE = 12e9  # bytes/s of a copy between GPU and host, which Gloo needs on either side: PCIe 3.0 x16, assumed


def fig6(name: str, backend: str) -> float:
    """Return the simulated step in buckets against the sum of its parts, which is the step without overlap."""
    forward, backward, sent, update = PARTS[name, backend]
    made = _step(name, forward, backward, 32)
    costs = LinkCosts(_volume(made) / sent)
    return simulate(pytorch_ddp(made, costs), costs).step_s + update


# ---------------------------------------------------------------------------------------------------------- Figs. 7 and 8
@dataclass(frozen=True)
class HostCosts:
    """An all-reduce of what lies on a GPU among hosts: out, over the network, back; each phase a queue of its own."""

    network: LinkCosts
    copy_rate: float

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return the three phases."""
        copy_s = size_bytes / self.copy_rate
        (network,) = self.network.stages(op, size_bytes, ranks, role)
        return (Stage(copy_s, phase="out", loads=()), network, Stage(copy_s, phase="back", loads=()))


def bucket_step(backend: str, gpus: int, cap_mb: float) -> float:
    """Return the seconds of a ResNet-50 step with buckets of ``cap_mb`` (0: each gradient alone)."""
    return _bucketed(backend, gpus, cap_mb, fitted_alpha(backend, gpus))


def best_bucket(backend: str, gpus: int) -> int:
    """Return the size of bucket, of those in the figure, with the shortest step."""
    return min(CAPS_MB, key=lambda cap: bucket_step(backend, gpus, cap))


def bucket_ratio(backend: str, gpus: int, cap_mb: float, against_mb: float) -> float:
    """Return the step at one size of bucket against that at another."""
    return bucket_step(backend, gpus, cap_mb) / bucket_step(backend, gpus, against_mb)


@cache
def fitted_alpha(backend: str, gpus: int) -> float:
    """Return the seconds that each all-reduce takes whatever it carries: fitted to the step with each gradient alone."""
    return crossing(lambda alpha: _bucketed(backend, gpus, 0, alpha), ALONE_S[backend, gpus], 1e-5, 5e-3)


@cache
def _bucketed(backend: str, gpus: int, cap_mb: float, alpha_s: float) -> float:
    """Return the step; what it takes without overlap is that of Fig. 6, in seconds by the 25 MiB step on 32 GPUs."""
    unit_s = MIB_25_S[backend] / OVERLAPPED[backend]
    forward, backward, sent, update = (part * unit_s for part in PARTS["resnet50", backend])
    made = _step("resnet50", forward, backward, gpus)
    volume, buckets = _volume(made), len(operations(pytorch_ddp(made, LinkCosts(1.0))))
    copied = 2 * volume / HOST_RATE if backend == "gloo" else 0.0
    network = LinkCosts(volume / (sent - copied - buckets * alpha_s), overhead_s=alpha_s)
    costs: Costs = HostCosts(network, HOST_RATE) if backend == "gloo" else network
    return simulate(pytorch_ddp(made, costs, bucket_cap_mb=cap_mb), costs, steps=3).step_s + update


def _step(name: str, forward_s: float, backward_s: float, gpus: int) -> Workload:
    share = forward_s / (forward_s + backward_s)
    return layerwise(model(name), forward_s + backward_s, gpus, each="tensor", forward_share=share)


def _volume(made: Workload) -> int:
    return sum(payload.size_bytes for payload in made.payloads)
