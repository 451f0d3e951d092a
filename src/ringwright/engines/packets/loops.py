"""Which packet loop runs: the compiled one where a build is at hand, else its Python twin, with equal results."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ringwright.costs.protocols import ADAPTIVE, BBR, CUBIC, DCQCN, DELAY, FIXED, GO_BACK_N, ONE, RENO, SPRAY
from ringwright.engines.packets.loop import PacketRun, simulate_packets
from ringwright.ground.units import PS
from ringwright.native import packets as native

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np

    from ringwright.engines.packets.network import PacketNetwork

CONTROLS = (FIXED, RENO, CUBIC, BBR, DCQCN, DELAY)
ROUTINGS = (ONE, SPRAY, ADAPTIVE)
BUCKETS, PORTS = 16, 512  # of the queue of events in the time of a full packet; a bucket holds what so many ports do
twin = simulate_packets


def packets(net: PacketNetwork, *, acknowledged: bool, trains: bool, bin_ps: int) -> PacketRun:
    """Return the run of a network (see ``loop.PacketLoop``)."""
    if native is None:
        return simulate_packets(net, acknowledged=acknowledged, trains=trains, bin_ps=bin_ps)
    rules = {**_rules(net), "acknowledged": int(acknowledged), "trains": int(trains), "bin_ps": bin_ps}
    told = native.packets(_columns(net), rules)
    rows = told.pop("samples").reshape(-1, 3)
    return PacketRun(bin_ps=bin_ps, samples=rows, **told)


def _rules(net: PacketNetwork) -> dict[str, int]:
    used = net.protocol
    byte_ps = net.ports.byte_ps[net.ports.between]
    usual = float(byte_ps[byte_ps < float("inf")].min()) if (byte_ps < float("inf")).any() else 1.0
    buckets = BUCKETS * min(8, max(1, len(byte_ps) // PORTS))
    return {
        "goes_back": int(used.recovery == GO_BACK_N),
        "ordered": int(used.ordered),
        "is_tcp": int(used.transport == "tcp"),
        "routing": ROUTINGS.index(used.routing),
        "control": CONTROLS.index(used.control),
        "payload_bytes": used.payload_bytes,
        "header_bytes": used.header_bytes,
        "ack_bytes": used.ack_bytes,
        "acks_every": used.acks_every,
        "retries": used.retries,
        "buffer_bytes": used.buffer_bytes,
        "rto_ps": round(used.rto_s * PS),
        "most_rto_ps": round(used.most_rto_s * PS),
        "width_ps": max(1, int(usual * (used.payload_bytes + used.header_bytes) / buckets)),
        "seed": net.seed % (1 << 64),
        "burst_bytes": net.burst_bytes,
    }


def _columns(net: PacketNetwork) -> Any:
    """Return the network as the compiled loop reads it: contiguous columns of one type each."""
    import numpy as np

    ports, made = net.ports, net.connections
    columns: dict[str, tuple[Any, type]] = {
        **{name: (getattr(ports, name), np.uint8) for name in ("holds", "between", "gate")},
        **{name: (getattr(ports, name), np.int64) for name in ("latency", "buffer")},
        **{name: (getattr(made, name), np.int64) for name in ("path_starts", "first_path", "back_starts", "trip_ps")},
        **{name: (getattr(made, name), np.int32) for name in ("path_ports", "back_ports", "window")},
        **{
            name: (getattr(net, name), np.int32)
            for name in ("connection", "nexts", "waits", "front", "behind", "partner")
        },
        **{
            name: (getattr(net, name), np.int64)
            for name in ("size_bytes", "delay", "next_starts", "front_starts", "behind_starts")
        },
        "byte_ps": (ports.byte_ps, np.float64),
        "virtual_queues": (ports.virtual_queues, np.int32),
        "whole": (net.whole, np.uint8),
        "reliable": (made.reliable, np.uint8),
        "line_ps": (made.line_ps, np.float64),
    }
    listed: dict[str, np.ndarray] = {
        name: np.ascontiguousarray(column, kind) for name, (column, kind) in columns.items()
    }
    for name in ("rates", "delays", "losses", "buffers"):
        listed |= _table(name, getattr(ports, name))
    return SimpleNamespace(**listed)


def _table(name: str, rows: Iterable[tuple[float, ...]]) -> dict[str, np.ndarray]:
    import numpy as np

    padded = [(*row, 0.0)[:4] for row in rows]
    port, time, value, other = zip(*padded, strict=True) if padded else ((), (), (), ())
    return {
        f"{name}_port": np.array(port, np.int64),
        f"{name}_time": np.array(time, np.int64),
        f"{name}_value": np.array(value, np.float64),
        f"{name}_other": np.array(other, np.float64),
    }
