"""Random cases by packets, compiled loop against Python twin: are all times, counts and queues equal?

    python benchmarks/packet_cases.py [--cases 1000] [--first 0]

The cases are those of the test suite (programs, fabrics, transports, faults, buffers); a number is a seed. The compiled loop runs
each with trains and without, the twin without. What differs is named, and the command ends with 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))


def main() -> None:
    """Compare case after case; print what was met."""
    from engines.packets.packet_cases import case
    from engines.packets.test_packet_twins import BIN_PS, differences
    from ringwright.engines.packets import loops

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    if loops.native is None:
        sys.exit("the compiled loop is not built")
    met: Counter[str] = Counter()
    spoken: Counter[str] = Counter()
    apart, hops, begin = 0, 0, time.monotonic()
    for seed in range(given.first, given.first + given.cases):
        asked = case(seed)
        net, how = asked.network(), {"acknowledged": asked.acknowledged, "bin_ps": BIN_PS}
        twin = loops.twin(net, trains=False, **how)
        spoken[net.protocol.name] += 1
        hops += twin.hops
        met.update(name for name in ("drops", "lost", "marked", "pauses") if np.sum(getattr(twin, name)))
        met.update(["time-outs"] * bool(twin.timeouts) + ["given up"] * (twin.gave_up[0] >= 0))
        for trains in (False, True):
            if differs := differences(loops.packets(net, trains=trains, **how), twin):
                apart += 1
                print(f"seed {seed}, trains {'on' if trains else 'off'}: {', '.join(differs)} differ", flush=True)
    print(f"{given.cases:,} cases, {hops:,} packets at ports, {time.monotonic() - begin:.0f} s: {apart} runs differ")
    for title, counts in (("transports", spoken), ("cases with", met)):
        print(f"{title}: {', '.join(f'{name} {count}' for name, count in sorted(counts.items()))}")
    sys.exit(1 if apart else 0)


if __name__ == "__main__":
    main()
