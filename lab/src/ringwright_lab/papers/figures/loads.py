"""Bytes on links: what a program sends, added up along the routes of its messages."""

from __future__ import annotations

import numpy as np

from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.model import registry
from ringwright.model.program import Op, Program
from ringwright.model.topology import Topology


def link_bytes(program: Program, topology: Topology) -> np.ndarray:
    """Return the bytes that a program puts on each link, float64 of shape (links,); copies of a multicast count each."""
    nodes = np.concatenate((np.asarray(program.collective.group), np.array(program.aggregators, np.int64)))
    loads = np.zeros(topology.n_links)
    for step in program.steps():
        for block in step.blocks:
            src, dst, chunk, _ = block.arrays()
            away = (src != dst) & (block.op is not Op.COPY)
            if not away.any():
                continue
            size = program.layout.message_bytes(chunk[away], block.span)
            starts, links = topology.routes(nodes[src[away]], nodes[dst[away]])
            np.add.at(loads, links, np.repeat(size, np.diff(starts)).astype(float))
    return loads


def loads_of(collective: str, topology: Topology, size_bytes: int, algorithm: str) -> np.ndarray:
    """Return the bytes on each link of a collective over all ranks, ``algorithm`` as typed: float64 of shape (links,)."""
    _, make, knobs = registry.algorithm(algorithm)
    return link_bytes(make(SimulationSpec(collective, topology).collective(size_bytes), topology, **knobs), topology)


def busiest_s(collective: str, topology: Topology, size_bytes: int, algorithm: str) -> float:
    """Return the seconds that the busiest link is busy with a collective over all ranks, ``algorithm`` as typed."""
    return float((loads_of(collective, topology, size_bytes, algorithm) / topology.rate).max())
