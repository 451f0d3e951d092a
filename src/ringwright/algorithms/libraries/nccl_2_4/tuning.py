"""NCCL's own tables put into a program: what a hop costs beside the wire, and the flags that LL and LL128 carry."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ringwright.costs.nccl import Choice, System, constants

if TYPE_CHECKING:
    from ringwright.program import Program

WIRE_FACTOR = {"ll": 2.0, "ll128": 128 / 120, "simple": 1.0}
INSIDE = ("nvlink", "xgmi", "pcie", "link")
FIRST = ("nvlink", "xgmi")  # classes between GPUs only: messages to the network take PCIe too
OUTSIDE = ("nic", "spine", "network", "rail")


def tuned(program: Program, chosen: Choice, system: System) -> Program:
    """Return the program with the release's base and hop latencies (us tables) and its protocol's bytes on the wire.

    The tables give one latency for a way through the network's switches and back: it counts once, before the first message.
    """
    held = constants(chosen.release)
    hardware = "nvlink" if system.graphs.of(chosen.algorithm).type_intra == "NVL" else "pcie"
    inside = held.hop_us(hardware, chosen.algorithm, chosen.protocol) * 1e-6
    outside = held.hop_us("net", chosen.algorithm, chosen.protocol) * 1e-6
    base = held.base_us(chosen.algorithm, chosen.protocol) * 1e-6
    overheads = dict.fromkeys(INSIDE, inside) | dict.fromkeys(OUTSIDE, outside)
    if chosen.algorithm == "nvls" and system.nodes > 1:
        overheads, base = {}, base + inside + outside
    elif chosen.algorithm.startswith("collnet"):
        overheads, base = dict.fromkeys(FIRST, inside), base + outside
    return dataclasses.replace(
        program,
        wire_factor=WIRE_FACTOR[chosen.protocol],
        overheads=overheads,
        base_s=base,
    )
