"""GC3's figures: gains over NCCL where both run in NCCL's kernels, and how many steps the public compiler makes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ringwright.engines import choose
from ringwright.fabrics import fabric as made_fabric
from ringwright.model.collective import Collective
from ringwright.model.registry import algorithm
from ringwright.model.threadblocks import Schedule

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

RELEASE = "2.12"  # of NCCL, when the paper was written
SIZES = tuple(1 << k for k in range(10, 27, 2))  # bytes
PROTOCOLS = {"ll": "LL", "ll128": "LL128", "simple": "Simple"}


def gain_over_nccl(collective: str, fabric: str, programs: Sequence[str], release: str = RELEASE) -> float:
    """Return how many times longer NCCL's own choice takes than the best program, at the size where that is the most.

    A program runs in NCCL's kernels: its start, its work a message and its flag bytes are those of NCCL's ring by the same
    protocol.
    """
    topology = made_fabric(fabric)
    return max(
        _nccl_s(collective, topology, size, release) / min(_best_s(collective, topology, size, programs, release))
        for size in SIZES
    )


def predicted_s(program: Program, topology: Topology) -> float:
    """Return the simulated seconds of a program."""
    return choose.simulate(program, topology).time_s


def _nccl_s(op: str, topology: Topology, size: int, release: str) -> float:
    _, make, knobs = algorithm(f"nccl-2-4@{release}")
    return predicted_s(make(Collective(op, range(topology.n_ranks), size), topology, **knobs), topology)


def _best_s(op: str, topology: Topology, size: int, programs: Sequence[str], release: str) -> list[float]:
    """Return the seconds of each program by each protocol."""
    collective = Collective(op, range(topology.n_ranks), size)
    _, nccl, knobs = algorithm(f"nccl-2-4@{release}")
    forced: list[tuple[str, dict[str, Any]]] = [("Simple", {})]  # grouped sends have no choice
    if op == "all-reduce":
        forced = [(ours, {"algorithm": "ring", "protocol": theirs}) for theirs, ours in PROTOCOLS.items()]
    times = []
    for protocol, choice in forced:
        software = nccl(collective, topology, **knobs, **choice).software
        for program in programs:
            _, make, _ = algorithm("gc3")
            made = make(collective, topology, program=program, protocol=protocol)
            times.append(predicted_s(dataclasses.replace(made, software=software), topology))
    return times


def steps(program: str, collective: str, ranks: int, node: int, instances: int = 1, channels: int = 1) -> int:
    """Return the instructions of a compiled program, those that only wait among them."""
    _, make, _ = algorithm("gc3")
    wanted = Collective(collective, range(ranks), 1 << 20)
    made = make(wanted, program=program, node=node, instances=instances, channels=channels, protocol="LL")
    assert isinstance(made.schedule, Schedule)  # noqa: S101 - every program of the language has one
    return len(made.schedule.code)
