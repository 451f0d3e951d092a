"""Which gradients PACE merges: the compiled search finds the same cuts as the readable one."""

from __future__ import annotations

import random

import pytest

from ringwright.native import engine
from ringwright.schedulers.priority import _fusion
from ringwright.schedulers.priority._fusion import SlicedSeconds, Tensor, merge

compiled = pytest.mark.skipif(not hasattr(engine, "merged"), reason="needs the compiled search")


def drawn(seed: int) -> tuple[list[Tensor], SlicedSeconds]:
    """Return tensors in ready order; of small whole numbers in half of the draws, so that many groupings are equally good."""
    r = random.Random(f"merging {seed}")
    n, whole = r.randint(1, 40), r.random() < 0.5
    ready = sorted(r.randrange(n) if whole else r.random() * n for _ in range(n))
    tails = [r.randrange(n) if whole else r.random() * n for _ in range(n)]
    if r.random() < 0.5:
        tails.sort(reverse=r.random() < 0.5)
    sizes = [r.randrange(4) if whole else r.randrange(1 << 24) for _ in range(n)]
    listed = zip(ready, tails, sizes, strict=True)
    tensors = [Tensor(f"t{at}", float(when), float(tail), size) for at, (when, tail, size) in enumerate(listed)]
    unit = 1.0 if whole else 1 / (1 << 24)
    return tensors, SlicedSeconds(
        r.choice([0.0, 0.5, 1.0, 3.0]), r.choice([0.0, 0.5, 1.0]) * unit, r.choice([1, 3, 1 << 20])
    )


@compiled
@pytest.mark.parametrize("limits", [(24, 40, 400), (2, 40, 400), (24, 1, 400), (24, 40, 7)])
def test_the_compiled_search_finds_the_same_cuts(limits: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in zip(("MOST_STATES", "MOST_ROUNDS", "LARGEST_SEARCH"), limits, strict=True):
        monkeypatch.setattr(_fusion, name, limit)
    merged = 0
    for seed in range(150):
        tensors, seconds = drawn(seed)
        groups = merge(tensors, seconds)
        assert groups == merge(tensors, seconds, native=False), f"seed {seed}"
        merged += 1 < len(groups) < len(tensors)
    assert merged > 40


@compiled
def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="ready, tail or size"):
        merge([Tensor("t", -1.0, 0.0, 1)], SlicedSeconds(1.0, 1.0, 1))
    with pytest.raises(ValueError, match="slice"):
        merge([Tensor("t", 1.0, 0.0, 1)], SlicedSeconds(1.0, 1.0, 0))
