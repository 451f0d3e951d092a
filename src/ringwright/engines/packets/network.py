"""What the packet loop reads: ports, connections and messages as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.costs.protocols import CREDIT, DROP, PAUSE

if TYPE_CHECKING:
    import numpy as np

    from ringwright.costs.protocols import Protocol

ENDLESS = 1 << 60  # bytes of a queue without a limit
GATES = (DROP, PAUSE, CREDIT)
PAUSE_AT, RESUME_AT = 0.5, 0.25  # of a buffer that one link has filled
MARK_FROM, MARK_ALL = 0.1, 0.4  # of a buffer: from where on packets are marked, and where all are
MARK_SHARE = 0.2  # of packets, just below that


@dataclass(frozen=True)
class Ports:
    """Ports by resource: arrays of shape (resources,), and what faults change, sorted by resource and time.

    ``byte_ps`` float64 ps a byte, ``latency`` int64 ps, ``holds`` whether it is busy for its latency too, ``between`` whether it
    joins hosts (a dead one loses what comes), ``gate`` index into ``GATES``, ``buffer`` int64 bytes, ``virtual_queues`` int32 of
    a gated port. ``rates`` (resource, ps, ps a byte), ``delays`` (resource, ps, ps), ``losses`` (resource, ps, share of data
    packets lost, share of acknowledgements lost), ``buffers`` (resource, ps, bytes).
    """

    byte_ps: np.ndarray
    latency: np.ndarray
    holds: np.ndarray
    between: np.ndarray
    gate: np.ndarray
    buffer: np.ndarray
    virtual_queues: np.ndarray
    rates: tuple[tuple[int, int, float], ...] = ()
    delays: tuple[tuple[int, int, int], ...] = ()
    losses: tuple[tuple[int, int, float, float], ...] = ()
    buffers: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True)
class Connections:
    """Connections: ``path_starts`` cuts ``path_ports`` by path, ``first_path`` (connections + 1) cuts paths by connection.

    The first path of a connection is its own, the others detours of equal length; ``back_starts`` cuts ``back_ports``, the way of
    acknowledgements. ``reliable`` whether packets are acknowledged (between hosts); ``window`` int32 most packets under way;
    ``trip_ps`` int64 the round trip of a packet on an idle path; ``line_ps`` float64 ps a byte of its narrowest port.
    """

    path_starts: np.ndarray
    path_ports: np.ndarray
    first_path: np.ndarray
    back_starts: np.ndarray
    back_ports: np.ndarray
    reliable: np.ndarray
    window: np.ndarray
    trip_ps: np.ndarray
    line_ps: np.ndarray


@dataclass(frozen=True)
class PacketNetwork:
    """All that the packet loop reads. ``connection`` int32 of each message (-1: it has no port on its way).

    ``front_starts``/``front`` and ``behind_starts``/``behind``: resources that serve a whole message in front of its ports and
    behind them. ``size_bytes``, ``delay``, ``next_starts``, ``nexts``, ``waits`` are those of the MessageGraph; ``whole`` by
    resource: takes a message when all of it has come. ``partner`` int32 by connection: the one in the other direction, whose
    answers its data carry (-1: none). ``burst_bytes`` that a link between hosts lets pass at once after it was idle.
    """

    protocol: Protocol
    ports: Ports
    connections: Connections
    connection: np.ndarray
    size_bytes: np.ndarray
    delay: np.ndarray
    next_starts: np.ndarray
    nexts: np.ndarray
    waits: np.ndarray
    front_starts: np.ndarray
    front: np.ndarray
    behind_starts: np.ndarray
    behind: np.ndarray
    whole: np.ndarray
    partner: np.ndarray
    seed: int = 0
    burst_bytes: int = 0
