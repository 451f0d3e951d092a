"""SHARP's figures: small all-reduces on 128 hosts, streams at the network's rate, NVLink SHARP on one host."""

from __future__ import annotations

import dataclasses

from ringwright.algorithms.innetwork.infiniband.sharp import sharp
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.model.collective import Collective
from ringwright.model.registry import algorithm

# B of 309 GB/s fits the algorithm bandwidths of 5 to 8 GPUs of a DGX H100, whose NVLinks bring 450 GB/s each way.
NVLS_OF_LINE = 309 / 450
NVLS = "nvls:segments=128"  # data follow in pieces far smaller than a message of gigabytes, as in NCCL
# Of 128 hosts: bytes/s and seconds of a port from the hosts' times of 8 B and 4 KiB, seconds of an adding switch from 8 B.
PORT_RATE, PORT_S, ADDING_S = 0.7e9, 0.338e-6, 0.855e-6


def seconds(spec: str, spelling: str, size_bytes: int, ranks: int = 0) -> float:
    """Return the seconds of an all-reduce over all ranks of a fabric, or over the first ``ranks``, by an engine."""
    machine = fabric(spec)
    _, make, knobs = algorithm(spelling)
    collective = Collective("all-reduce", range(ranks or machine.n_ranks), size_bytes)
    return simulate(make(collective, machine, **knobs), machine, engine="events").time_s


def gain(spec: str, size_bytes: int, spelling: str, baseline: str) -> float:
    """Return how many times shorter ``spelling`` takes than ``baseline``."""
    return seconds(spec, baseline, size_bytes) / seconds(spec, spelling, size_bytes)


def share_of_rate(spec: str, rate: float, spelling: str, size_bytes: int) -> float:
    """Return the share of a port's bytes/s at which an all-reduce takes in each rank's data."""
    return size_bytes / seconds(spec, spelling, size_bytes) / rate


def nvls_ratio(spec: str, few: int, many: int, size_bytes: int, spelling: str = "nvls") -> float:
    """Return the algorithm bandwidth of NVLink SHARP on few GPUs of a host over that on many."""
    return seconds(spec, spelling, size_bytes, many) / seconds(spec, spelling, size_bytes, few)


def nvls_form_ratio(few: int, many: int) -> float:
    """Return the same by B n/(n + 1): each GPU gives its data once and a share, and takes as much."""
    return few / (few + 1) * (many + 1) / many


def within_bound(spec: str, size_bytes: int) -> float:
    """Return the time of SHARP over what no program can beat on a fabric whose switches add."""
    from ringwright.bounds.lower_bounds import bound

    machine = fabric(spec)
    least = bound(Collective("all-reduce", range(machine.n_ranks), size_bytes), machine, in_network=True, exact=False)
    return seconds(spec, "sharp", size_bytes) / least.time_s


def nvls_bandwidth_gbs(
    family: str, line_rate: float, gpus: int, size_bytes: int, *, of_line: float = NVLS_OF_LINE, spelling: str = NVLS
) -> float:
    """Return the algorithm bandwidth in GB/s of NVLink SHARP on the first GPUs of one domain.

    ``line_rate`` is what a GPU's NVLinks bring each way in bytes/s, ``of_line`` the share of it that data get.
    """
    spec = f"{family}:1,nvlink_rate={line_rate * of_line:.0f}"
    return size_bytes / seconds(spec, spelling, size_bytes, gpus) / 1e9


def nvls_bus_gbs(
    family: str, line_rate: float, gpus: int, size_bytes: int, *, of_line: float = NVLS_OF_LINE, spelling: str = NVLS
) -> float:
    """Return the same as bus bandwidth, the figure of nccl-tests: 2(n-1)/n of the algorithm bandwidth."""
    made = nvls_bandwidth_gbs(family, line_rate, gpus, size_bytes, of_line=of_line, spelling=spelling)
    return made * 2 * (gpus - 1) / gpus


def small_us(spelling: str, size_bytes: int) -> float:
    """Return the microseconds of an all-reduce on 128 hosts whose ports and switches are fitted to three of four times."""
    machine = fabric(f"leaf-spine:128,per_leaf=16,rate={PORT_RATE:.0f},latency_s={PORT_S},sharp=true")
    adding = {node: dataclasses.replace(able, latency_s=ADDING_S) for node, able in machine.aggregators.items()}
    _, make, knobs = algorithm(spelling)
    program = make(Collective("all-reduce", range(machine.n_ranks), size_bytes), machine, **knobs)
    return simulate(program, dataclasses.replace(machine, aggregators=adding), engine="events").time_s * 1e6


def streaming_jobs(switches: str, jobs: int, hosts: int, size_bytes: int = 1 << 20) -> float:
    """Return how many of several jobs below one leaf have a streaming tree, all of them there at once."""
    machine = fabric(f"switch:{hosts},switches={switches}")
    have = 0
    for _ in range(jobs):
        made = sharp(Collective("all-reduce", range(hosts), size_bytes), machine, mode="sat", held=have)
        have += made.knobs["algorithm"] == "sat"
    return float(have)


def refused_over_granted(switches: str, hosts: int, size_bytes: int) -> float:
    """Return the time of a job whose leaf has no tree left over that of one that has it, both with all hosts of the leaf."""
    spec = f"switch:{hosts},switches={switches}"
    return seconds(spec, "sharp:mode=sat:held=1", size_bytes) / seconds(spec, "sharp:mode=sat", size_bytes)
