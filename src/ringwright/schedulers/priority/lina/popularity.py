"""Which experts will the next layer need? Estimated from the experts that tokens chose in the layers before."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

Path = tuple[int, ...]


@dataclass(frozen=True)
class Popularity:
    """Per layer and path of the last ``length`` experts: the ``keep`` most probable experts of the next layer, with shares."""

    experts: int
    length: int
    keep: int
    likely: dict[tuple[int, Path], tuple[tuple[int, float], ...]] = field(repr=False)

    def shares(self, layer: int, paths: np.ndarray) -> np.ndarray:
        """Return the expected share of the tokens of each expert of ``layer`` + 1.

        ``paths`` are the experts of each token (row) in the ``length`` layers up to ``layer``. Experts that no path makes
        likely have 0: nothing is known of them. Paths never seen count for nothing, so the sum may be below 1.

        float64 of shape (experts,).
        """
        import numpy as np

        shares = np.zeros(self.experts)
        for path, tokens in zip(*np.unique(paths, axis=0, return_counts=True), strict=True):
            for expert, share in self.likely.get((layer, tuple(path.tolist())), ()):
                shares[expert] += share * tokens
        return shares / max(len(paths), 1)


def profile(paths: np.ndarray, experts: int, *, length: int = 3, keep: int = 4) -> Popularity:
    """Return what sample tokens (rows) with their expert in each layer (columns) say; UsageError for too few layers."""
    import numpy as np

    layers = paths.shape[1]
    if not 1 <= length < layers:
        raise UsageError(f"paths of {length} layers cannot be followed in {layers}", remedy=f"length 1 to {layers - 1}")
    if paths.size and not 0 <= int(paths.min()) <= int(paths.max()) < experts:
        raise UsageError(f"the paths name an expert outside 0 to {experts - 1}")
    likely = {}
    for layer in range(length - 1, layers - 1):
        seen: dict[Path, np.ndarray] = defaultdict(lambda: np.zeros(experts, np.int64))
        for row in paths[:, layer - length + 1 : layer + 2].tolist():
            seen[tuple(row[:-1])][row[-1]] += 1
        for path, counts in seen.items():
            best = np.argsort(-counts, kind="stable")[:keep]
            total = int(counts.sum())
            likely[layer, path] = tuple((int(each), counts[each] / total) for each in best if counts[each])
    return Popularity(experts, length, keep, likely)


def most_wanted(shares: np.ndarray, gate: int = 1) -> frozenset[int]:
    """Return the 2 ``gate`` most popular experts, of equals the first."""
    import numpy as np

    return frozenset(np.argsort(-shares, kind="stable")[: 2 * gate].tolist())


def decide_again(estimated: np.ndarray, counted: np.ndarray, gate: int = 1) -> bool:
    """Say whether the plan of the estimate must be made anew once the gate (top ``gate``) has counted."""
    return most_wanted(estimated, gate) != most_wanted(counted, gate)
