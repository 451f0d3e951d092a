"""What a small transformer learns whose gradients a switch adds: the benchmark of loss curves, on a few steps."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import pytest

from ringwright.model.codecs.formats import FORMATS

pytestmark = [
    pytest.mark.once,
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is absent"),
]


@pytest.fixture(scope="module")
def benchmark() -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    return run_path(str(Path(__file__).resolve().parents[2] / "benchmarks" / "codec_training.py"))


def test_no_symbol_is_told_by_what_comes_after_it(benchmark: dict[str, Any]) -> None:
    import torch

    generator = torch.Generator().manual_seed(0)
    named = benchmark["parts_of"](benchmark["initial"](0))
    numbers = torch.randn(2, benchmark["LENGTH"], benchmark["WIDTH"], generator=generator)
    altered = numbers.clone()
    altered[:, -1] += 1
    one, other = (benchmark["attended"](each, named["attend 0"], named["join 0"]) for each in (numbers, altered))
    assert torch.equal(one[:, :-1], other[:, :-1])
    assert not torch.equal(one[:, -1], other[:, -1])


def test_each_worker_has_the_gradient_of_its_own_words(benchmark: dict[str, Any]) -> None:
    import torch

    likely, weights = benchmark["source"](), benchmark["initial"](0)
    np.testing.assert_allclose(likely.sum(axis=-1), 1)
    given = torch.from_numpy(benchmark["words"](likely, 6, np.random.default_rng(0))).view(2, 3, -1)
    every = benchmark["gradients"](weights, given)
    leaf = weights.clone().requires_grad_()
    benchmark["loss_of"](leaf, given[1]).backward()
    torch.testing.assert_close(every[1], leaf.grad, atol=1e-6, rtol=1e-4)
    assert benchmark["least_loss"](likely, given.view(6, -1).numpy()) < np.log(benchmark["SYMBOLS"])


def test_near_sums_learn_what_exact_ones_do_and_coarse_ones_do_not(benchmark: dict[str, Any]) -> None:
    def last(name: str, *, is_fed_back: bool = False) -> float:
        return float(benchmark["trained"](name, workers=2, steps=20, is_fed_back=is_fed_back).losses[-1])

    assert {codec for codec, _ in benchmark["FORMATS"].values()} == set(FORMATS)
    plain = last("float32")
    assert plain < np.log(benchmark["SYMBOLS"]) - 0.05
    assert last("block-exponent") == pytest.approx(plain, rel=1e-3)
    coarse, mended = (last("fixed-point, hundredths", is_fed_back=is_fed_back) for is_fed_back in (False, True))
    assert coarse > mended
    assert benchmark["keeps"]("float32")
    assert not benchmark["keeps"]("block-exponent")
