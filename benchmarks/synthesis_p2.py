"""How long P2 takes over all sequences of at most five instructions, in CPU seconds: ``python benchmarks/synthesis_p2.py``."""

from __future__ import annotations

import time

from ringwright.algorithms.synthesis.p2.language import Hierarchy
from ringwright.algorithms.synthesis.p2.search import Sequences

# Levels of 64 devices; a matrix of a machine of two levels has at most two for each axis that is reduced.
SIZES = ((64,), (4, 16), (8, 8), (4, 4, 4), (2, 2, 8, 2), (2, 2, 2, 2, 4), (2, 2, 2, 2, 2, 2))


def measure(sizes: tuple[int, ...], length: int = 5) -> tuple[int, int, float]:
    """Return how many sequences of an all-reduce there are, how many states were looked at, and CPU seconds."""
    began = time.process_time()
    made = Sequences(Hierarchy(sizes), "all-reduce", length)
    count = made.count()
    return count, len(made.successors), time.process_time() - began


def main() -> None:
    """Print a row a hierarchy."""
    print(f"{'levels':>14} {'sequences':>10} {'states':>8} {'CPU s':>8}")
    for sizes in SIZES:
        count, states, seconds = measure(sizes)
        print(f"{'x'.join(map(str, sizes)):>14} {count:>10,} {states:>8,} {seconds:>8.3f}")


if __name__ == "__main__":
    main()
