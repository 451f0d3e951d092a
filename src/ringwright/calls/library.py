"""What a library would choose for a collective, size by size, with the time it predicts where it predicts one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from ringwright.calls import arguments
from ringwright.calls.call_answer import answered, columns, first_of_hosts
from ringwright.calls.provenance import asked_of
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.costs import open_mpi
from ringwright.ground.errors import UsageError
from ringwright.model.registry import System, find, systems

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

SCHEMA = "ringwright.library/1"
# Libraries whose rules are held in one release; another one asked for gets these, and the answer says so.
RULES_OF = {
    "open-mpi": open_mpi.RELEASE,
    "mpich2": "5.1.0a1",
    "mvapich": "assumed: the library's tables are not public",
}
PLAIN = "switch:{ranks},rate=100Gb/s,latency_s=1.5us"  # where a library predicts nothing itself and no fabric is named


def choices(
    spelling: str, op: str, ranks: int, nodes: int, wanted: Sequence[int], fabric: str | None = None
) -> dict[str, Any]:
    """Return the object of schema ``ringwright.library/1``; raise UsageError for what is no library.

    ``time_us`` of a row is the library's own estimate, by which it chooses (where it makes none, a closed form: see
    ``predicted_by``); ``time_us_p50`` with its interval is the answer that every verb gives for the call.
    """
    slug, _, release = spelling.partition("@")
    system = find(slug)
    if system.kind != "library":
        libraries = [other.slug for other in systems() if other.kind == "library"]
        raise UsageError(f"{slug} is no library: it does not choose", remedy=f"one of: {', '.join(libraries)}")
    if ranks < 1 or nodes < 1 or nodes > ranks:
        raise UsageError(f"{ranks} ranks on {nodes} nodes", remedy="give at least one node, and one rank per node")
    if ranks % nodes:
        raise UsageError(
            f"{ranks} ranks do not lie equally on {nodes} nodes", remedy=f"--ranks {ranks // nodes * nodes}"
        )
    own = find_spec(f"{system.module}.choices")
    if own is not None:
        chooses = import_module(own.name)
        rows = chooses.choices(op, ranks, nodes, wanted, release=release, fabric=fabric)
        on, group = _placed(chooses.fabric_of(fabric, nodes), nodes, ranks)
    else:
        rows = _by_program(system, op, ranks, nodes, wanted, fabric)
        on, group = _machine(fabric, ranks, nodes), range(ranks)
    told = {} if on is None else answered(arguments.algorithm(spelling), SimulationSpec(op, on, group=group), wanted)
    return {
        "schema": SCHEMA,
        "asked": asked_of(on, (spelling,)),
        "library": slug,
        "release": release,
        "rules_of": RULES_OF.get(slug, release),
        "collective": op,
        "ranks": ranks,
        "nodes": nodes,
        "fabric": "" if on is None else on.name,
        "rows": [row | columns(told.get(row["size_bytes"])) for row in rows],
    }


def _placed(spelling: str, nodes: int, ranks: int) -> tuple[Topology | None, Sequence[int]]:
    """Return the fabric of a kind of node and the ranks of the call there; None where no fabric is made of such nodes."""
    try:
        on = arguments.machine(spelling)
        return on, first_of_hosts(on, nodes, ranks)
    except UsageError:
        return None, ()


def _machine(fabric: str | None, ranks: int, nodes: int) -> Topology:
    """Return the fabric that ranks without a cost model of their own lie on, equally on its hosts."""
    spelling = fabric or PLAIN.format(ranks=ranks)
    machine = dataclasses.replace(arguments.machine(spelling), hosts=np.arange(ranks) // (ranks // nodes))
    if machine.n_ranks != ranks:
        raise UsageError(
            f"{spelling} has {machine.n_ranks} ranks, not {ranks}", remedy="--fabric switch:N with as many ranks"
        )
    return machine


def _by_program(
    system: System, op: str, ranks: int, nodes: int, wanted: Sequence[int], fabric: str | None
) -> list[dict[str, Any]]:
    """Return the choices of a library without a cost model: what its program is, and that program's closed form."""
    from ringwright.engines.choose import simulate
    from ringwright.model.collective import Collective

    machine = _machine(fabric, ranks, nodes)
    rows = []
    for size in wanted:
        program = system.load()(Collective(op, range(ranks), size), machine)
        run = simulate(program, machine, engine="closed-form")
        rows.append(
            {
                "size_bytes": size,
                "algorithm": program.knobs.get("algorithm") or program.knobs.get("outer"),
                "protocol": program.protocol or None,
                "channels": program.channels,
                "time_us": run.time_ps * 1e-6,
                "knobs": {name: value for name, value in program.knobs.items() if name != "algorithm"},
                "predicted_by": f"closed form on {machine.name}",
            }
        )
    return rows
