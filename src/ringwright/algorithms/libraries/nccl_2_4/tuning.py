"""NCCL's own tables put into a program: what a hop costs beside the wire, and the flags that LL and LL128 carry."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ringwright.algorithms.libraries.nccl_2_4.orders import DIRECT
from ringwright.costs.nccl import NcclChoice, NcclSystem, constants
from ringwright.costs.nccl.timing import P2P_PIECE_BYTES, channel_byte_s, nvls_copy_byte_s, senders
from ringwright.costs.nccl.transports import message_s
from ringwright.model.software import Software

if TYPE_CHECKING:
    from ringwright.model.program import Program

WIRE_FACTOR = {"ll": 2.0, "ll128": 128 / 120, "simple": 1.0}
INSIDE = ("nvlink", "xgmi", "pcie", "link")
OUTSIDE = ("nic", "spine", "network", "rail")
EXCHANGES = ("all-to-all", "send-recv")  # in which a GPU receives as often as it sends


def tuned(program: Program, chosen: NcclChoice, system: NcclSystem, nics: int) -> Program:
    """Return the program with the release's base and hop latencies (us tables) and its protocol's bytes on the wire.

    Where NVLink joins several hosts, NVLS copies all data into its buffers and out of them, which its channels do no faster.
    The tables give one latency for the route through the network's switches and back: it counts once, before the first message.
    """
    held = constants(chosen.release)
    algorithm, protocol = chosen.algorithm, chosen.protocol
    hardware = "nvlink" if system.graphs.of(algorithm).type_intra == "NVL" else "pcie"
    inside, outside = (held.hop_us(each, algorithm, protocol) * 1e-6 for each in (hardware, "net"))
    base = held.base_us(algorithm, protocol) * 1e-6
    messages = dict.fromkeys(INSIDE, inside) | dict.fromkeys(OUTSIDE, outside)
    beyond, copying, most = {}, {}, {}
    if algorithm in ("ring", "tree"):
        near, far = (held.beyond_us(each, algorithm, protocol) * 1e-6 for each in (hardware, "net"))
        beyond = dict.fromkeys(INSIDE, near) | dict.fromkeys(OUTSIDE, far)
        byte_s = channel_byte_s(held, system, protocol)
        copying = dict.fromkeys(OUTSIDE, byte_s) | dict.fromkeys(INSIDE if protocol == "simple" else (), byte_s)
    if algorithm in ("nvls", "nvls_tree"):  # one latency for the route to the switch and back
        messages, base = {}, base + inside + (outside if algorithm == "nvls" and system.nodes > 1 else 0.0)
        if system.mnnvl:
            most = {"nvlink": 1 / nvls_copy_byte_s(held, system, chosen.channels_used)}
    if algorithm == "nvls_tree":
        messages = dict.fromkeys(OUTSIDE, outside)
        beyond_us = held.hop_us("net", algorithm, protocol) - held.hop_us("net", "tree", "ll")
        beyond = dict.fromkeys(OUTSIDE, max(0.0, beyond_us) * 1e-6)
    elif algorithm.startswith("collnet"):  # messages to the network take PCIe too, whose hops count once
        messages, base = dict.fromkeys(DIRECT, inside), base + outside
    used = Software(
        base,
        messages,
        beyond,
        copying,
        WIRE_FACTOR[protocol],
        sharing=max(1.0, min(nics, chosen.channels_used) / senders(chosen.channels_used, system)),
        most_rate=most,
    )
    return dataclasses.replace(program, software=used)


def of_groups(op: str, system: NcclSystem, release: str, nics: int, parts: int = 1) -> Software:
    """Return the software of grouped sends and receives: one start, messages in pieces, Simple.

    Between nodes the proxies of both GPUs post each message, one after the other. In an exchange each GPU posts a receive for
    each send: both are counted with the send. ``parts``: messages of the program to one of NCCL's.
    """
    held = constants(release)
    hardware = "net" if system.nodes > 1 else "nvlink"
    base_s = (held.base_us("ring", "simple") + held.beyond_us(hardware, "ring", "simple")) * 1e-6
    # Every GPU has a proxy of its own; where GPUs share a NIC, theirs work side by side: what was measured there is shared.
    sharing = min(1.0, nics * system.nodes / system.ranks)
    both_s, exchanges = message_s(system) / sharing, op in EXCHANGES
    posted = dict.fromkeys(OUTSIDE, both_s if exchanges else both_s / 2) if both_s else {}
    return Software(
        base_s,
        sharing=sharing / parts,
        piece_bytes=P2P_PIECE_BYTES / parts,  # a part takes its share of a message's time
        post_s=posted,
        receive_s={} if exchanges else posted,
    )
