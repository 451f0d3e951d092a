"""Errors of sums in the number formats of switches, beside those of a prototype that others wrote from the papers' rules.

python benchmarks/codec_errors.py                     # 2^18 normal numbers a worker, 2, 8 and 32 workers
python benchmarks/codec_errors.py --elements 4096 --seed 3
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringwright.model.codecs.contributions import NodeSum
from ringwright.model.codecs.deviation import Deviation, deviation
from ringwright.model.codecs.formats import added

APPROXIMATE: dict[str, Any] = {"variant": "approximate"}
# What is printed, the format and its knobs.
FORMATS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("float32", "native", {}),
    ("split-float, full", "split-float", {}),
    ("split-float, approximate, wraps", "split-float", APPROXIMATE),
    ("split-float, approximate, saturates", "split-float", APPROXIMATE | {"overflow": "saturate"}),
    ("split-float, approximate, shift 4", "split-float", APPROXIMATE | {"shift": 4}),
    ("block-exponent", "block-exponent", {}),
    ("fixed-point", "fixed-point", {}),
    ("lookup-table, 4 bits", "lookup-table", {}),
    ("lookup-table, 4 bits, normal", "lookup-table", {"table": "normal"}),
    ("lookup-table, 8 bits, nearest", "lookup-table", {"bits": 8, "rounding": "nearest"}),
)
# Relative RMS of the prototype on normal numbers, 2^18 a worker: (workers, what is printed).
PROTOTYPE = {
    (2, "float32"): 2.7e-8,
    (2, "split-float, full"): 4.1e-8,
    (2, "block-exponent"): 2.7e-8,
    (8, "float32"): 5.6e-8,
    (8, "split-float, full"): 1.2e-7,
    (8, "block-exponent"): 2.6e-8,
    (8, "split-float, approximate, wraps"): 0.136,
    (8, "split-float, approximate, saturates"): 0.046,
    (32, "float32"): 1.1e-7,
    (32, "split-float, full"): 3.4e-7,
    (32, "block-exponent"): 3.5e-8,
}
# Of its additions at 8 workers in the approximate form: overwrites, and overflows where they wrap around.
PROTOTYPE_RATES = {"overwrites": 1.1e-3, "overflows": 1.3e-3}


@dataclass(frozen=True)
class Row:
    """A format at a number of workers."""

    workers: int
    name: str
    off: Deviation
    total: NodeSum
    additions: int


def table(elements: int, seed: int, workers: tuple[int, ...] = (2, 8, 32), scales: float = 0.0) -> Iterator[Row]:
    """Yield a row for each format and number of workers; ``scales``: sigma of the logarithm of each element's own scale."""
    generator = np.random.default_rng(seed)
    for count in workers:
        scale = np.exp(scales * generator.standard_normal(elements))
        given = (generator.standard_normal((count, elements)) * scale).astype(np.float32)
        exact = given.astype(np.float64).sum(axis=0)
        for name, codec, knobs in FORMATS:
            total = added(codec, given, **knobs)
            yield Row(count, name, deviation(total.values, exact), total, (count - 1) * elements)


def printed(rows: Iterator[Row], *, is_known: bool = True) -> None:
    """Print rows, beside what the prototype had where that is known."""
    heads = ("n", "format", "rel. RMS", "prototype", "largest", "99.9 %", "overflows", "overwrites")
    print("{:>3} {:36} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10}".format(*heads))
    for row in rows:
        known = PROTOTYPE.get((row.workers, row.name)) if is_known else None
        theirs = "" if known is None else f"{known:.2g}"
        rates = (count / row.additions for count in (row.total.overflows, row.total.overwrites))
        off = f"{row.off.relative_rms:9.2e} {theirs:>9} {row.off.largest:9.1e} {row.off.worst_relative:9.1e}"
        print(f"{row.workers:3} {row.name:36} {off}", *(f"{rate:10.2e}" for rate in rates))


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=1 << 18)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print("Normal numbers of one scale; overflows and overwrites are shares of all additions")
    printed(table(given.elements, given.seed))
    print("\nEvery element of a scale of its own, lognormal with sigma 1.5: small elements lie beside large ones")
    beside = ("float32", "split-float, full", "block-exponent")
    printed((row for row in table(given.elements, given.seed, (8,), 1.5) if row.name in beside), is_known=False)


if __name__ == "__main__":
    main()
