"""Packets on the network's links: headers take of the rate, a switch that stores takes time; both by their closed forms."""

from __future__ import annotations

import numpy as np
import pytest

import ringwright
from ringwright.bounds.lower_bounds import bound
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.ground.errors import UsageError
from ringwright.model.collective import Collective

RATE, LATENCY_S, HOP_S = 50e9, 0.5e-6, 0.2e-6


def seconds(spec: str, src: int, dst: int, size: int = 1 << 20) -> float:
    """Return an engine's seconds of one message each way."""
    machine = fabric(spec)
    program = ringwright.algorithm("direct")(Collective("all-gather", [src, dst], 2 * size), machine)
    return simulate(program, machine, "events").time_s


@pytest.mark.parametrize(("dst", "hops", "latency_s"), [(1, 1, 2 * LATENCY_S), (63, 3, 2 * LATENCY_S + 2 * HOP_S)])
def test_a_message_takes_its_packets_headers_and_hops(dst: int, hops: int, latency_s: float) -> None:
    """One leaf, or leaf, spine and leaf; uplinks of the rate of a port."""
    plain, size = "leaf-spine:64", 1 << 20
    base_s = seconds(plain, 0, dst)
    assert base_s == pytest.approx(size / RATE + latency_s, rel=1e-6)
    headed = seconds(f"{plain},packet_bytes=1024,header_bytes=64", 0, dst)
    assert headed == pytest.approx(size * (1024 + 64) / 1024 / RATE + latency_s, rel=1e-6)
    stored = seconds(f"{plain},packet_bytes=1024,header_bytes=64,store_and_forward=true", 0, dst)
    assert stored == pytest.approx(headed + hops * (1024 + 64) / RATE, rel=1e-6)


@pytest.mark.parametrize("name", ["dgx-h100:4", "rail-optimised:8", "gb200-nvl72:2", "leaf-spine:16"])
def test_links_inside_a_box_carry_none(name: str) -> None:
    plain, packed = fabric(name), fabric(f"{name},header_bytes=82,store_and_forward=true")
    slower = {plain.classes[number] for number in plain.link_class[packed.rate < plain.rate].tolist()}
    assert slower <= {"nic", "spine"}
    assert "nic" in slower
    network = [number for number, each in enumerate(plain.classes) if each in ("nic", "spine")]
    assert packed.rate == pytest.approx(plain.rate * np.where(np.isin(plain.link_class, network), 4096 / 4178, 1.0))
    later = packed.latency_s > plain.latency_s
    assert {*plain.kinds[plain.src[later]].tolist()} == {2}  # switches alone take packets in
    assert (packed.latency_s >= plain.latency_s).all()


def test_more_headers_make_nothing_faster_and_raise_the_bound() -> None:
    collective = Collective("all-reduce", range(32), 64 << 20)
    before = (0.0, 0.0)
    for header in (0, 66, 500, 4096):
        machine = fabric(f"dgx-h100:4,header_bytes={header},packet_bytes=1024")
        ring = ringwright.algorithm("ring")(collective, machine)
        now = simulate(ring, machine, "events").time_s, bound(collective, machine).time_s
        assert now >= before
        assert now[1] > before[1]
        assert now[0] >= now[1]
        before = now


def test_a_packet_without_data_is_none() -> None:
    with pytest.raises(UsageError, match="packet_bytes"):
        fabric("leaf-spine:16,packet_bytes=0")
