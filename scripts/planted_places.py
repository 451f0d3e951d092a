"""Prints how often the summary of a simulated job names the place of a fault that was put in."""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor

from ringwright_lab.testing.place_verdicts import PlantedVerdict, judged, table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first one; the rules were made on those below 100000")
    parser.add_argument("--kind", default="", help="of the fault; else drawn")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found: list[PlantedVerdict] = []
    with ProcessPoolExecutor(given.workers) as pool:
        seeds = range(given.seed, given.seed + given.jobs)
        for verdict in pool.map(judged, seeds, [given.kind] * given.jobs, chunksize=4):
            if verdict is None:
                continue
            found.append(verdict)
            if verdict.outcome not in ("named", "quiet"):
                print(f"{verdict.outcome}: seed {verdict.seed}: {verdict.said}", file=sys.stderr, flush=True)
    told = table(found)
    if given.json:
        json.dump(told, sys.stdout, indent=1)
        print()
    else:
        for row in told["rows"]:
            print("  ".join(f"{value:>12}" for value in row))
        print(f"precision {told['precision']:.3f}, recall {told['recall']:.3f}; not identified: {told['excluded']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
