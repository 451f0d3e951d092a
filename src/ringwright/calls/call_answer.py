"""A library's call as every verb answers it: the most probable time and its interval, beside what else a verb tells of the call.

A call of NCCL on a fabric as it comes needs no run of an engine; any other is answered as ``simulate`` answers it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ringwright.calls.without_faults import AskedOnce
from ringwright.costs.nccl import placed
from ringwright.fabrics import fabric
from ringwright.ground.errors import RingwrightError, UsageError

if TYPE_CHECKING:
    from ringwright.calls.arguments import Algorithm
    from ringwright.calls.simulation_spec import SimulationSpec
    from ringwright.costs.probable_time import Probable
    from ringwright.model.topology import Topology

ENDS = ("p05", "p50", "p95")


def answered(algorithm: Algorithm, question: SimulationSpec, sizes_bytes: Iterable[int]) -> dict[int, Probable]:
    """Return the answer at each size in bytes; without the sizes that the algorithm declines, or that carry no data."""
    wanted = sorted({size for size in sizes_bytes if size > 0})
    asked = AskedOnce(question, wanted)
    told: dict[int, Probable] = {}
    for size in wanted:
        try:
            told[size] = _answer(algorithm, asked, size)
        except RingwrightError:
            continue
    return told


def _answer(algorithm: Algorithm, asked: AskedOnce, size_bytes: int) -> Probable:
    collective = asked.question.collective(size_bytes)
    program = algorithm(collective, asked.question.topology)
    said = asked.answers.of_call(algorithm, program)
    if said is None:
        return asked.answer(algorithm, size_bytes).said
    return said.at_least(asked.floors.under(program)[0] * 1e6)


def columns(said: Probable | None) -> Mapping[str, float | None]:
    """Return an answer as keys of a row, in us: ``time_us_p05``, ``time_us_p50``, ``time_us_p95``; null where there is none."""
    return {f"time_us_{end}": None if said is None else getattr(said, f"{end}_us") for end in ENDS}


def first_of_hosts(topology: Topology, nodes: int, ranks: int) -> Sequence[int]:
    """Return the ranks of a group on the first hosts of a fabric, as many on each; UsageError where they do not fit."""
    hosts = np.arange(topology.n_ranks) if topology.hosts is None else topology.hosts[: topology.n_ranks]
    each = ranks // nodes
    of_host = [np.flatnonzero(hosts == host)[:each] for host in np.unique(hosts)[:nodes]]
    group: list[int] = np.concatenate(of_host).tolist()
    if len(group) < ranks and nodes == 1:  # a node is an NVLink domain of several hosts
        group = list(range(min(ranks, topology.n_ranks)))
    if len(group) != ranks:
        raise UsageError(f"{ranks} ranks on {nodes} nodes do not fit on {topology.name}", remedy="fewer ranks")
    return group


def laid_out(spec: str) -> tuple[Topology, list[int]]:
    """Return the fabric of ``dgx-a100:2`` or ``dgx-a100:2x4``, and the ranks that take part: the first GPUs of each box."""
    kind, system = placed(spec)
    top = fabric(f"{spec.partition(':')[0]}:{system.nodes}")
    boxed = top.n_ranks // system.nodes
    return top, [node * boxed + gpu for node in range(system.nodes) for gpu in range(kind.gpus)]
