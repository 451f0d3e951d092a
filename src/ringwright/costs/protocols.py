"""Protocols: how a transport sends packets, notices what is lost, slows down, and gives up.

A fabric names its transport (``Topology.transport``); the packet engine plays the protocol of that name on every link between
hosts. Inside a host NVLink and PCIe lose nothing and have no protocol here.
"""

from __future__ import annotations

from dataclasses import dataclass

SELECTIVE, GO_BACK_N = "selective", "go-back-n"
DROP, PAUSE, CREDIT = "drop", "pause", "credit"
RENO, CUBIC, BBR, DCQCN, DELAY, FIXED = "reno", "cubic", "bbr", "dcqcn", "delay", "fixed"
ONE, SPRAY, ADAPTIVE = "one", "spray", "adaptive"
NO_LAB = "none"


@dataclass(frozen=True, slots=True)
class Protocol:
    """How packets of one transport are sent.

    Parameters
    ----------
    name, transport
        What a user types, and the transport whose costs it has (``ringwright.costs.transports``).
    payload_bytes, header_bytes, ack_bytes
        Data of a full packet, what goes with it on the wire, and the size of an acknowledgement.
    acks_every
        Packets that one acknowledgement answers; the last of a message is answered at once.
    recovery
        ``selective`` (what is missing is sent again) or ``go-back-n`` (all from there on).
    gate
        What a full queue does: ``drop`` packets, ``pause`` the link that fills it (PFC), or take nothing without ``credit``.
    control
        How the sender slows down: ``reno``, ``cubic``, ``bbr``, ``dcqcn``, ``delay`` (by round trips) or ``fixed`` (never).
    routing
        ``one`` path, a ``spray`` of packets over all, or the least loaded (``adaptive``).
    ordered
        Whether the receiver hands on packets in their order alone.
    window_rtts, window_bytes
        Most data under way: so many round trips at the rate of the path, and no less than so many bytes.
    rto_s, most_rto_s, retries
        Least and greatest seconds to a retransmission without an answer, and how many of them in a row end the connection.
    buffer_bytes
        Queue of a port where the fabric does not say its own.
    ends
        What the library prints when a connection is given up.
    lab
        How the laboratory forms it; ``none`` where it cannot.
    source
        Where the figures come from.
    """

    name: str
    transport: str
    payload_bytes: int
    header_bytes: int
    ack_bytes: int
    acks_every: int
    recovery: str
    gate: str
    control: str
    routing: str
    ordered: bool
    window_rtts: float
    window_bytes: int
    rto_s: float
    most_rto_s: float
    retries: int
    buffer_bytes: int
    ends: str
    lab: str
    source: str

    @property
    def loses(self) -> bool:
        """Whether a full queue drops packets."""
        return self.gate == DROP


_TCP_ENDS = "socketProgress: Connection closed by remote peer, or recv failed: Connection timed out"
_IB_ENDS = "NET/IB: Got completion with status=12 (IBV_WC_RETRY_EXC_ERR): transport retry counter exceeded"
_TCP_SOURCE = (
    "Linux: net/ipv4/tcp*.c (RTO of 200 ms to 120 s, 15 retries, SACK, RACK, tail loss probe, 4 MiB of tcp_wmem); a frame of"
    " 1,514 B carries 1,448 B, as the kernel's queues count it: on a wire 24 B of preamble, check sum and gap, 1.6 %, go with it"
)
_ROCE_SOURCE = (
    "RoCEv2 over Ethernet: 14 + 20 + 8 + 12 + 4 B of headers, 24 B of preamble, check sum and gap; go-back-N, 7 retries"
    " (NCCL_IB_RETRY_CNT), a time-out that adapts from about 4 ms to 134 ms as measured on ConnectX (Lumina, SIGCOMM 2023);"
    " DCQCN and PFC (SIGCOMM 2015)"
)


def _tcp(name: str, control: str) -> Protocol:
    return Protocol(
        name,
        "tcp",
        1448,
        66,
        66,
        2,
        SELECTIVE,
        DROP,
        control,
        ONE,
        True,
        8.0,
        4 << 20,
        0.2,
        120.0,
        15,
        1 << 20,
        _TCP_ENDS,
        "TCP between namespaces",
        _TCP_SOURCE,
    )


PROTOCOLS = {
    each.name: each
    for each in (
        _tcp("tcp-reno", RENO),
        _tcp("tcp-cubic", CUBIC),
        _tcp("tcp-bbr", BBR),
        Protocol(
            "roce",
            "roce",
            4096,
            82,
            86,
            4,
            GO_BACK_N,
            PAUSE,
            DCQCN,
            ONE,
            True,
            4.0,
            0,
            4.194304e-3,
            0.134217728,
            7,
            1 << 20,
            _IB_ENDS,
            "go-back-N over UDP between our own ranks: recovery alone",
            _ROCE_SOURCE,
        ),
        Protocol(
            "ib",
            "infiniband",
            4096,
            30,
            34,
            4,
            SELECTIVE,
            CREDIT,
            FIXED,
            ADAPTIVE,
            False,
            4.0,
            0,
            4.194304e-3,
            0.134217728,
            7,
            1 << 17,
            _IB_ENDS,
            NO_LAB,
            "InfiniBand: 8 + 12 + 4 + 2 B of headers and 4 B between packets; credits of a 128 KiB input buffer; adaptive"
            " routing by the shortest queue; time-outs as RoCE's",
        ),
        Protocol(
            "srd",
            "efa",
            8192,
            90,
            90,
            1,
            SELECTIVE,
            DROP,
            DELAY,
            SPRAY,
            False,
            4.0,
            0,
            1e-3,
            1.0,
            15,
            1 << 20,
            "NET/OFI: Request completed with error: unresponsive remote",
            NO_LAB,
            "Scalable Reliable Datagram: packets over all paths, out of order, retransmitted one by one (Shalev et al., IEEE"
            " Micro 2020); its control is not published: windows by delay (Swift, SIGCOMM 2020) stand in",
        ),
    )
}
_OF_TRANSPORT = {"infiniband": "ib", "slingshot": "ib", "efa": "srd", "roce": "roce", "tcp": "tcp-cubic"}
USUAL_PROTOCOL = "roce"  # of a fabric that names no transport


def protocol(transport: str) -> Protocol:
    """Return the protocol that a transport's name stands for: its own, or the one that the transport usually has."""
    return PROTOCOLS[transport if transport in PROTOCOLS else _OF_TRANSPORT.get(transport, USUAL_PROTOCOL)]


def transport_of(name: str) -> str:
    """Return the transport whose costs a fabric's ``transport`` has: itself, or that of a protocol (``tcp-reno``: tcp)."""
    return PROTOCOLS[name].transport if name in PROTOCOLS else name
