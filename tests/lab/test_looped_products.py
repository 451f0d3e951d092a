"""Looped products on four ranks with a limited link each: the same to the bit; on two, the gate refuses.

How much faster they are is measured by ``benchmarks/lab_decompose.py``.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from ringwright.schedulers.decompose.collective_einsum_overlap import collective_einsum_overlap
from ringwright_lab.papers.figures.collective_einsum_overlap import ring, site, site_gain

PREDICTED = 1.6  # (C + G) / (C / p + (p - 1) max(C / p, G / (p - 1))) at C = G, p = 4


def test_the_prediction_is_the_engines() -> None:
    assert site_gain(1.0, 4) == pytest.approx(PREDICTED, rel=1e-6)


@pytest.mark.parametrize("r", [0.01, 0.3, 1.0, 3.0])
def test_the_gate_refuses_two_ranks(r: float) -> None:
    """With two ranks one block is sent, and the gate counts it twice: nothing is left to gain."""
    step = site(2)
    assert not collective_einsum_overlap(step, ring(step, r), gate="published").applied


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.lab
@pytest.mark.usefixtures("forked_ranks")
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is absent")
def test_a_loop_is_equal_to_the_bit(tmp_path: Path) -> None:
    from ringwright.execute.looped_products import LoopedProduct, measure
    from ringwright_lab.network.network import network

    job = LoopedProduct(ranks=4, rows=64, width=256, product_s=0.02, rounds=2)
    with network("switch:4,rate=200Mb/s", out=tmp_path / "lab", force=True) as net:
        rows = measure(job, net.places)
    assert len(rows) == 2
    assert all(row.equal for row in rows)
