"""Partitioned communication on real ranks: sums right, bytes as the rules say; gains are for ``benchmarks/lab_decompose.py``."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from ringwright_lab.judges.partitioned import in_lab
from ringwright_lab.judges.partitioned.ranks import RanksAsked
from ringwright_lab.network.network import network

pytestmark = [
    pytest.mark.once,
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.lab,
    pytest.mark.usefixtures("forked_ranks"),
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is absent"),
]


def test_levels_pass_fewer_bytes_than_a_ring() -> None:
    """2 x 2 ranks: a ring passes 1.5 of the bytes between the leaves, levels 1."""
    rows = in_lab.levels(("whole", "levels in chunks"), rounds=2)
    assert all(row.right for row in rows)
    assert rows[0].across_bytes / rows[1].across_bytes == pytest.approx(1.5, rel=0.05)
    assert rows[0].predicted_s / rows[1].predicted_s > 1.4


def test_a_sum_split_over_two_networks_is_right() -> None:
    with network(in_lab.NETWORKS, in_lab.SLOW_LINES, force=True) as net:
        net.start_faults()
        _, right = in_lab.carried_out(net, RanksAsked("split", 4, 1 << 15, 1, share=0.8))
    assert right


@pytest.mark.sampled(0, "*")  # a smaller sum, split alone: above
def test_sums_over_two_networks_are_right() -> None:
    whole, split = in_lab.split(rounds=2)
    assert whole.right
    assert split.right
    assert whole.predicted_s / split.predicted_s == pytest.approx(1.25)


def test_messages_beside_sums_arrive() -> None:
    whole, blocks = in_lab.messages(rounds=4)
    assert whole.right
    assert blocks.right
    assert whole.predicted_s > 5 * blocks.predicted_s
