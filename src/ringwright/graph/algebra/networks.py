"""N: an operation goes over a network that it names. What it computes stays; ranks that have one network cannot carry it."""

from __future__ import annotations

from ringwright.graph.algebra.editing import StepGraph
from ringwright.graph.algebra.rule import Refused, payload_at, rule
from ringwright.model.values import Change
from ringwright.model.workload import OPS


@rule("on-network", "an operation on one network = the same on another")
def on_network(graph: StepGraph, at: str, network: str) -> Change:
    """Let ``network`` carry an operation."""
    payload = payload_at(graph, at, *OPS)
    if not network or network != network.strip() or " on " in network:
        raise Refused(f"'{network}' is no name of a network", "network: a word")
    graph.change(payload, network=network)
    return Change()
