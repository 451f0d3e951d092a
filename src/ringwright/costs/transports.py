"""Transports by name: the numbers from which the closed form starts where nothing was measured.

What is learnt (``prior.json``) is how far systems are from these, so they need only be near: what a data sheet or a paper says.
"""

from __future__ import annotations

from dataclasses import dataclass

NVLINK, RDMA, TCP = "inside", "rdma", "tcp"
MEDIA = (NVLINK, RDMA, TCP)


@dataclass(frozen=True, slots=True)
class Transport:
    """A transport: seconds of a hop, seconds that a message occupies its sender, share of the NICs' rate that a stream reaches.

    ``medium`` is what is learnt together; ``source`` says where the numbers come from.
    """

    name: str
    medium: str
    hop_s: float
    message_s: float
    efficiency: float
    source: str


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
        Transport("slingshot", RDMA, 8e-6, 2e-6, 0.85, "as InfiniBand; how much slower it is, is learnt"),
        Transport(
            "tcp", TCP, 30e-6, 10e-6, 0.25, "a kernel's round trip; sockets reach a fraction of several fast NICs"
        ),
    )
}
NETWORKS = tuple(name for name, each in TRANSPORTS.items() if each.medium != NVLINK)  # that join nodes
USUAL_TRANSPORT = "infiniband"  # where a fabric does not say its own
