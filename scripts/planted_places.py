"""Prints how often the summary of a simulated job names the place of a fault that was put in."""

from __future__ import annotations

import argparse
import json
import sys

from ringwright_lab.testing import campaigns
from ringwright_lab.testing.place_verdicts import PlantedVerdict, judged, table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first one; the rules were made on those below 100000")
    parser.add_argument("--kind", default="", help="of the fault; else drawn")
    campaigns.add_executor(parser)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()

    def tell(verdict: PlantedVerdict | None) -> None:
        if verdict is not None and verdict.outcome not in ("named", "quiet"):
            print(f"{verdict.outcome}: seed {verdict.seed}: {verdict.said}", file=sys.stderr, flush=True)

    seeds = range(given.seed, given.seed + given.jobs)
    every = campaigns.drawn(given.executor, judged, [(seed, given.kind) for seed in seeds], tell)
    found = [each for each in every if each is not None]
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
