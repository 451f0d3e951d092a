"""The links of one host, found again at another."""

from __future__ import annotations

import numpy as np
import pytest

import ringwright
from ringwright.jobs.pricing.host_links import HostLinks


@pytest.mark.parametrize("fabric", ["ndv2:4", "dgx-h100:4", "dgx-a100:4,layout=switch"])
def test_a_link_has_its_like_at_every_host(fabric: str) -> None:
    machine = ringwright.fabric(fabric)
    at = HostLinks(machine)
    every = np.arange(machine.n_links)
    first = every[at.touch(every, np.array([0]))]
    assert 0 < len(first) < machine.n_links
    for by in (1, 3):
        there = at.moved(first, by)
        names = [(machine.label(int(machine.src[link])), machine.label(int(machine.dst[link]))) for link in first]
        moved = [(machine.label(int(machine.src[link])), machine.label(int(machine.dst[link]))) for link in there]
        assert moved == [tuple(name.replace("node0/", f"node{by}/") for name in ends) for ends in names]
        np.testing.assert_array_equal(at.moved(there, -by), first)
    assert at.moved(first[:1], 9).tolist() == [-1]


def test_links_between_switches_are_at_no_host() -> None:
    machine = ringwright.fabric("dgx-h100:4,layout=leaf-spine")
    at, every = HostLinks(machine), np.arange(machine.n_links)
    between = [link for link in every.tolist() if not at.touch(np.array([link]), np.arange(4)).any()]
    assert all("/" not in machine.label(int(machine.src[link])) for link in between)
