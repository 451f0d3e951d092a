"""Where the switch of an imported program stands: a file says that a switch adds, not which one."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ringwright.algorithms.blocks.nvls import switch_domains
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology


def seated(program: Program, topology: Topology) -> Program:
    """Return the program with its switch at the one that all its ranks are attached to; any other program as it is.

    Raises UsageError where the ranks of an imported program share no switch that adds.
    """
    if program.schedule is None or not program.aggregators or topology.aggregators.keys() >= {*program.aggregators}:
        return program
    domains = switch_domains(program.collective, topology)
    if len(domains) > 1:
        raise UsageError(
            f"{program.name} adds in one switch, its ranks are attached to {len(domains)}", remedy="--fabric dgx-h100:1"
        )
    node = domains[0][0]
    streams = tuple(dataclasses.replace(stream, node=node) for stream in program.streams)
    return dataclasses.replace(program, aggregators=(node,), streams=streams)
