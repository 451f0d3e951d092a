"""What a library would choose for a collective, size by size, with the time it predicts where it predicts one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from ringwright.errors import UsageError
from ringwright.registry import System, find, systems

SCHEMA = "ringwright.library/1"
# Libraries whose rules are held in one release; another one asked for gets these, and the answer says so.
RULES_OF = {"open-mpi": "6.1.0a1", "mpich2": "5.1.0a1", "mvapich": "assumed: the library's tables are not public"}
PLAIN = "switch:{ranks},rate=100Gb/s,latency_s=1.5us"  # where a library predicts nothing itself and no fabric is named


def choices(
    spelling: str, op: str, ranks: int, nodes: int, wanted: Sequence[int], fabric: str | None = None
) -> dict[str, Any]:
    """Return the object of schema ``ringwright.library/1``; raise UsageError for what is no library."""
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
        rows = import_module(own.name).choices(op, ranks, nodes, wanted, release=release, fabric=fabric)
    else:
        rows = _by_program(system, op, ranks, nodes, wanted, fabric)
    return {
        "schema": SCHEMA,
        "library": slug,
        "release": release,
        "rules_of": RULES_OF.get(slug, release),
        "collective": op,
        "ranks": ranks,
        "nodes": nodes,
        "rows": rows,
    }


def _by_program(
    system: System, op: str, ranks: int, nodes: int, wanted: Sequence[int], fabric: str | None
) -> list[dict[str, Any]]:
    """Return the choices of a library without a cost model: what its program is, and that program's closed form."""
    from ringwright.collective import Collective
    from ringwright.engines.choose import simulate
    from ringwright.fabrics import fabric as build

    spelling = fabric or PLAIN.format(ranks=ranks)
    machine = dataclasses.replace(build(spelling), hosts=np.arange(ranks) // (ranks // nodes))
    if machine.n_ranks != ranks:
        raise UsageError(
            f"{spelling} has {machine.n_ranks} ranks, not {ranks}", remedy="--fabric switch:N with as many ranks"
        )
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
                "predicted_by": f"closed form on {spelling}",
            }
        )
    return rows
