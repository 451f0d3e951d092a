"""Measured calls of NCCL run by an engine: NCCL's program on the fabric of its tables, with its own software or without."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.algorithms.libraries.nccl_2_4 import nccl_2_4
from ringwright.calls.asked_fabric import AskedFabric
from ringwright.calls.floors import Floors
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.costs.learnt import LibraryCall
from ringwright.costs.learnt.table_machine import MESH_GPUS
from ringwright.costs.nccl.timing import NcclOverride
from ringwright.fabrics import fabric
from ringwright.ground.errors import RingwrightError
from ringwright.model.collective import Collective

if TYPE_CHECKING:
    from ringwright.costs.nccl.node_types import NodeType
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

ENGINE, EVENTS, PROGRAM = "library", "events", "program"
MOST_RANKS = 128
MESH = "polaris"
NVLINK_SHEET_GBS = 25.0  # of a link, each way, from NVLink 2 on
FAMILIES = {"dgx1": "dgx-1", "dgx2": "dgx-2", "gb200": "gb200-nvl72"}  # of node types with another name


def fabric_of(call: LibraryCall) -> tuple[Topology, list[int]]:
    """Return the fabric that a measured call ran on, by the nearest product there is, and the ranks of the call."""
    nodes, kind = call.system.nodes, call.kind
    plain = fabric(f"{_family(kind)}:{nodes}")
    per_node = plain.n_ranks // nodes
    knobs = [f"transport={call.transport}"]
    if nodes > 1:
        nics = max(1, plain.nics_per_domain * kind.gpus // per_node)
        knobs.append(f"nic_rate={kind.nics * kind.nic_gbs / nics}GB/s")
    if _is_mesh(kind):
        knobs.append(f"nvlink_rate={kind.pair_links * NVLINK_SHEET_GBS}GB/s")
    top = fabric(",".join([plain.name, *knobs]))
    return top, [at * per_node + gpu for at in range(nodes) for gpu in range(kind.gpus)]


def _is_mesh(kind: NodeType) -> bool:
    """Return whether a node has GPUs joined pair by pair."""
    return bool(kind.nvlinks) and not kind.nvswitch and kind.gpus <= MESH_GPUS


def _family(kind: NodeType) -> str:
    return MESH if _is_mesh(kind) else FAMILIES.get(kind.name, kind.name)


def call_seconds(call: LibraryCall, engine: str) -> list[float] | str:
    """Return what an engine says of each size of a call; of the library's models the bounds that theirs cannot be below."""
    if engine in (EVENTS, PROGRAM):
        return engine_times_s(call, engine)
    return bounds_s(call) if engine == ENGINE else [0.0] * len(call.sizes_bytes)


def bounds_s(call: LibraryCall) -> list[float]:
    """Return the seconds that no answer may be below at each size, as of the fabric that a call ran on.

    Zeros where that fabric is a near one only: of nodes of GPUs that are joined pair by pair no product here is the same.
    """
    if _is_mesh(call.kind):
        return [0.0] * len(call.sizes_bytes)
    try:
        top, group = fabric_of(call)
        floors = Floors(SimulationSpec(call.op, top, group=group))
        return [_bound_s(call, Collective(call.op, group, size), top, floors) for size in call.sizes_bytes]
    except RingwrightError:  # nodes that no fabric is made of
        return [0.0] * len(call.sizes_bytes)


def _bound_s(call: LibraryCall, collective: Collective, top: Topology, floors: Floors) -> float:
    without, within = floors.of(collective)
    if within is None or call.system.ranks > MOST_RANKS:
        return without if within is None else min(without, within)
    return floors.under(_program(call, collective, top))[0]


def _program(call: LibraryCall, collective: Collective, top: Topology, *, tuning: bool = True) -> Program:
    forced = call.forced or NcclOverride()
    return nccl_2_4(
        collective,
        top,
        release=call.release,
        algorithm=forced.algorithm,
        protocol=forced.protocol,
        channels=forced.channels,
        tuning=tuning,
    )


def engine_times_s(call: LibraryCall, engine: str) -> list[float] | str:
    """Return an engine's seconds for each size of a call, or in words why there are none.

    ``events``: NCCL's program with NCCL's own software; ``program``: the same program as one that no library has, on links with
    the usual costs of the transport.
    """
    if call.system.ranks > MOST_RANKS:
        return f"{call.system.ranks} ranks; engines are judged up to {MOST_RANKS}"
    try:
        top, group = fabric_of(call)
        times = []
        for size in call.sizes_bytes:
            collective = Collective(call.op, group, size)
            program = _program(call, collective, top, tuning=engine == EVENTS)
            on = top if engine == EVENTS else AskedFabric(top, top).usual(collective)
            times.append(SimulationSpec(call.op, on, group=group).run(program, on).time_s)
    except RingwrightError as error:
        return f"{engine}: {error.what}"
    return times
