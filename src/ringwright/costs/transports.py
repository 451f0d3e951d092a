"""Transports by name: the numbers from which the closed form starts where nothing was measured.

What is learnt (``prior.json``) is how far systems are from these, so they need only be near: what a data sheet or a paper says.

Messages are of two classes. Up to ``eager_bytes`` a message goes at once; above, its sender asks first, and the bytes wait for
the receiver's word (rendezvous). Both numbers are fits to open tables; where these tell no classes apart, there is one.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

NVLINK, RDMA, TCP = "inside", "rdma", "tcp"
MEDIA = (NVLINK, RDMA, TCP)


@dataclass(frozen=True, slots=True)
class Transport:
    """A transport: seconds of a hop, seconds that a message occupies its sender, share of the NICs' rate that a stream reaches.

    ``medium`` is what is learnt together; ``source`` says where the numbers come from. A message of more than ``eager_bytes`` on
    the wire waits ``handshake_s`` for its receiver.
    """

    name: str
    medium: str
    hop_s: float
    message_s: float
    efficiency: float
    source: str
    eager_bytes: float = math.inf
    handshake_s: float = 0.0

    def waits_s(self, message_bytes: float) -> float:
        """Return the seconds that a message waits for its receiver's word before its bytes go."""
        return self.handshake_s if message_bytes > self.eager_bytes else 0.0


TRANSPORTS = {
    each.name: each
    for each in (
        Transport(
            "nvlink",
            NVLINK,
            1e-6,
            1e-7,
            1.0,
            "rates per link of NCCL's topology search (NVIDIA/nccl, src/graph/topo.h)",
        ),
        Transport(
            "infiniband",
            RDMA,
            8e-6,
            2e-6,
            0.85,
            "hop: NCCL's ring latency over a net, 14 us Simple and 6 us LL of which the wire is about 1.5 us"
            " (NVIDIA/nccl, src/graph/tuning.cc); share: 8b/10b-free links less headers and NCCL's 15 %",
        ),
        Transport("roce", RDMA, 8e-6, 2e-6, 0.85, "as InfiniBand"),
        Transport("efa", RDMA, 8e-6, 2e-6, 0.85, "as InfiniBand; how much slower it is, is learnt"),
        Transport(
            "slingshot",
            RDMA,
            8e-6,
            2e-6,
            0.85,
            "as InfiniBand; how much slower it is, is learnt; classes of messages: a fit to tables of NCCL on Alps and Polaris",
            eager_bytes=2048,
            handshake_s=4e-6,
        ),
        Transport(
            "tcp", TCP, 30e-6, 10e-6, 0.25, "a kernel's round trip; sockets reach a fraction of several fast NICs"
        ),
    )
}
NETWORKS = tuple(name for name, each in TRANSPORTS.items() if each.medium != NVLINK)  # that join nodes
USUAL_TRANSPORT = "infiniband"  # where a fabric does not say its own

# What joins the nodes of products, where it is not InfiniBand.
OF_PRODUCTS = {"p4d": "efa", "polaris": "slingshot", "mi250": "slingshot", "mi300": "roce"}

# Words of tables, and of NCCL's "Using network", that name a transport.
CARRIERS = (
    (r"TCP|[Ss]ocket", "tcp"),
    (r"Slingshot", "slingshot"),
    (r"EFA|AWS Libfabric", "efa"),
    (r"RoCE", "roce"),
    (r"InfiniBand|\bIB(?:ext\w*)?\b|NDR|HDR|EDR", "infiniband"),
    (r"Ethernet", "tcp"),
)


def carrier(words: str, usual: str) -> str:
    """Return the transport that words name ("InfiniBand HDR", "4 x Slingshot 11"), or the usual one."""
    if words in NETWORKS:
        return words
    return next((name for pattern, name in CARRIERS if re.search(pattern, words)), usual)


def waits_s(transport: str, message_bytes: float) -> float:
    """Return the seconds that a message over a transport waits for its receiver's word; none where the transport is not known."""
    return TRANSPORTS[transport].waits_s(message_bytes) if transport in TRANSPORTS else 0.0
