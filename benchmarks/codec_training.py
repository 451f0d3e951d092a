"""Loss curves of a small transformer whose gradients a switch adds in each number format, with error feedback and without.

python benchmarks/codec_training.py                        # 8 workers, 300 steps, three seeds of plain float32 beside
python benchmarks/codec_training.py --steps 100 --svg curves.svg

Two blocks of four heads learn which symbol comes next in words of a source that looks two symbols back; its own loss, below
which nobody gets, is known. Each worker has a batch of its own; the switch adds the gradients of all; Adam. Needs PyTorch.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ringwright.ground.drafts import draft
from ringwright.model.codecs.formats import added
from ringwright_lab.reports.learning_curves import LearningCurve, learning_curves

SYMBOLS, LENGTH, WIDTH, HEADS, BLOCKS = 8, 24, 32, 4, 2
PARTS = {
    "attend": (WIDTH, 3 * WIDTH),
    "join": (WIDTH, WIDTH),
    "widen": (WIDTH, 4 * WIDTH),
    "narrow": (4 * WIDTH, WIDTH),
}
SHAPES = {
    "symbol": (SYMBOLS, WIDTH),
    "where": (LENGTH, WIDTH),
    **{f"{part} {block}": shape for block in range(BLOCKS) for part, shape in PARTS.items()},
    "say": (WIDTH, SYMBOLS),
}
RATE, BATCH, HELD_OUT, EVERY = 1e-2, 8, 256, 10
APPROXIMATE: dict[str, Any] = {"variant": "approximate"}
FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    "float32": ("native", {}),
    "split-float, full": ("split-float", {}),
    "split-float, approximate, shift 0": ("split-float", APPROXIMATE | {"shift": 0}),
    "split-float, approximate, shift 4": ("split-float", APPROXIMATE | {"shift": 4}),
    "split-float, approximate, saturates": ("split-float", APPROXIMATE | {"overflow": "saturate"}),
    "split-float, approximate, wraps": ("split-float", APPROXIMATE),
    "block-exponent": ("block-exponent", {}),
    "block-exponent, int8": ("block-exponent", {"element": "int8", "packet": 1024}),
    "fixed-point": ("fixed-point", {}),
    "fixed-point, hundredths": ("fixed-point", {"scale": 100}),
    "lookup-table, 4 bits": ("lookup-table", {}),
    "lookup-table, 4 bits, normal": ("lookup-table", {"table": "normal"}),
    "lookup-table, 2 bits": ("lookup-table", {"bits": 2}),
    "lookup-table, 2 bits, nearest": ("lookup-table", {"bits": 2, "rounding": "nearest"}),
}


def source() -> np.ndarray:
    """Return how likely each symbol is after each two: float64 of shape (before last, last, next)."""
    return np.random.default_rng(99).dirichlet(np.full(SYMBOLS, 0.2), (SYMBOLS, SYMBOLS))


def words(likely: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """Return drawn words: int64 of shape (count, length + 1), the first two symbols by lot."""
    drawn = generator.integers(0, SYMBOLS, (count, LENGTH + 1))
    upto = likely.cumsum(axis=-1)
    for at in range(2, LENGTH + 1):
        share = generator.random((count, 1))
        below = (upto[drawn[:, at - 2], drawn[:, at - 1]] < share).sum(axis=-1)
        drawn[:, at] = np.minimum(below, SYMBOLS - 1)
    return drawn


def least_loss(likely: np.ndarray, given: np.ndarray) -> float:
    """Return the loss of whoever knows the source, on these words."""
    shares = [likely[given[:, at - 2], given[:, at - 1], given[:, at]] for at in range(2, LENGTH + 1)]
    return float(-np.log(shares).mean())


def parts_of(weights: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return flat weights by name, each a view of its shape."""
    sizes = [rows * columns for rows, columns in SHAPES.values()]
    pieces = zip(SHAPES.items(), weights.split(sizes), strict=True)
    return {name: piece.view(shape) for (name, shape), piece in pieces}


def normed(numbers: torch.Tensor) -> torch.Tensor:
    """Return rows of one mean square."""
    return numbers * torch.rsqrt(numbers.square().mean(dim=-1, keepdim=True) + 1e-6)


def attended(numbers: torch.Tensor, attend: torch.Tensor, join: torch.Tensor) -> torch.Tensor:
    """Return what each symbol takes of those before it and of itself."""
    heads = (normed(numbers) @ attend).unflatten(-1, (3, HEADS, WIDTH // HEADS)).movedim(-3, 0).movedim(-2, -3)
    asks, says, gives = heads
    scores = asks @ says.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
    later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    taken = scores.masked_fill(later, -1e9).softmax(dim=-1) @ gives
    return taken.transpose(-2, -3).flatten(-2) @ join


def loss_of(weights: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    """Return the mean loss of all symbols but the first two; ``given``: int64 of shape (words, length + 1)."""
    named = parts_of(weights)
    numbers = named["symbol"][given[:, :-1]] + named["where"]
    for block in range(BLOCKS):
        numbers = numbers + attended(numbers, named[f"attend {block}"], named[f"join {block}"])
        numbers = numbers + (normed(numbers) @ named[f"widen {block}"]).relu() @ named[f"narrow {block}"]
    says = (normed(numbers) @ named["say"]).log_softmax(dim=-1)
    return -says[:, 1:].gather(-1, given[:, 2:, None]).mean()


# Of every worker at once: the gradient of each on words of its own, of shape (workers, weights).
gradients = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0))


def initial(seed: int) -> torch.Tensor:
    """Return random weights, float32 and flat."""
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(shape, generator=generator) / shape[0] ** 0.5 for shape in SHAPES.values()]
    return torch.cat([each.flatten() for each in drawn])


def trained(name: str, *, workers: int, steps: int, is_fed_back: bool, seed: int = 0) -> LearningCurve:
    """Train once; ``seed`` draws batches and first weights, the source is always the same."""
    codec, knobs = FORMATS[name]
    likely, generator, weights = source(), np.random.default_rng(seed), initial(seed)
    probe = torch.from_numpy(words(likely, HELD_OUT, np.random.default_rng(98)))
    adam = torch.optim.Adam([weights], lr=RATE)
    left = np.zeros((workers, len(weights)), np.float32)
    losses = []
    for step in range(steps):
        given = torch.from_numpy(words(likely, workers * BATCH, generator)).view(workers, BATCH, -1)
        own = gradients(weights, given).numpy() + left
        total = added(codec, own, **(knobs | ({"seed": step} if codec == "lookup-table" else {})))
        if is_fed_back:
            left = own - total.sent
        weights.grad = torch.from_numpy(total.values / np.float32(workers))
        adam.step()
        if step % EVERY == EVERY - 1:
            losses.append(float(loss_of(weights, probe)))
    return LearningCurve(name, tuple(losses), is_fed_back=is_fed_back)


def keeps(name: str) -> bool:
    """Whether what workers send is what they have, so that there is nothing to feed back."""
    return FORMATS[name][0] in ("native", "split-float")


def every_curve(workers: int, steps: int, seed: int, tell: Callable[[LearningCurve], None]) -> list[LearningCurve]:
    """Train in each format, where something can be fed back with and without it."""
    curves = []
    for name in FORMATS:
        for is_fed_back in (False,) if keeps(name) else (False, True):
            curves.append(trained(name, workers=workers, steps=steps, is_fed_back=is_fed_back, seed=seed))
            tell(curves[-1])
    return curves


def main() -> None:
    """Print the last losses, and draw the curves where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--svg", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    asked: dict[str, Any] = {"workers": given.workers, "steps": given.steps}
    plain = [trained("float32", **asked, is_fed_back=False, seed=given.seed + turn).last for turn in range(3)]
    band = (min(plain), max(plain))
    floor = least_loss(source(), words(source(), HELD_OUT, np.random.default_rng(98)))
    print(f"float32, three seeds: last loss {band[0]:.4f} to {band[1]:.4f}; of the source itself {floor:.4f}")
    print(f"{'format':36} {'fed back':8} {'first':>8} {'half':>8} {'last':>8}  within the seeds")

    def tell(curve: LearningCurve) -> None:
        half, inside = curve.losses[len(curve.losses) // 2], "yes" if curve.last <= band[1] else "no"
        fed = "yes" if curve.is_fed_back else ""
        print(f"{curve.name:36} {fed:8} {curve.losses[0]:8.4f} {half:8.4f} {curve.last:8.4f}  {inside}", flush=True)

    curves = every_curve(given.workers, given.steps, given.seed, tell)
    if given.svg:
        with draft(given.svg) as path:
            path.write_text(learning_curves(curves, every=EVERY, band=band, floor=floor))


if __name__ == "__main__":
    main()
