"""Trees against rings on every part of a DGX-1: ``python benchmarks/synthesis_blink.py [v100|p100] [broadcast|all-reduce]``."""

from __future__ import annotations

import math
import sys

from ringwright.fabrics._parts import MACHINES, connected_parts
from ringwright_lab.papers.figures.blink import outcome

OPS = ("broadcast", "all-reduce")


def main(gpus: list[str], ops: list[str]) -> None:
    """Print a row a part, and the geometric mean and the largest gain of each table."""
    for gpu in gpus:
        for op in ops:
            print(f"{op} on parts of a DGX-1 with {gpu}")
            print(
                f"{'GPUs':>16} {'rings':>5} {'trees':>5} {'trees GB/s':>10} {'rings us':>10} {'trees us':>10} {'gain':>6}"
            )
            gains = []
            for part in connected_parts(MACHINES[gpu][0]):
                each = outcome(op, gpu, part)
                gains.append(each.gain)
                times = f"{each.rings_us:>10.1f} {each.trees_us:>10.1f} {each.gain:>6.2f}"
                name = ",".join(map(str, part))
                print(f"{name:>16} {each.rings or 'PCIe':>5} {each.trees:>5} {each.rate_gbs:>10.1f} {times}")
            mean = math.exp(sum(map(math.log, gains)) / len(gains))
            print(f"{len(gains)} parts: geometric mean {mean:.2f}, largest {max(gains):.2f}\n")


if __name__ == "__main__":
    named = sys.argv[1:]
    main([gpu for gpu in MACHINES if gpu in named] or list(MACHINES), [op for op in OPS if op in named] or list(OPS))
