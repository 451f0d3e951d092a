"""Draw calls and jobs, and say which of them break the law of one physics (``ringwright_lab.testing.one_physics``).

It ends with 1 where any does. Each line names its seed: ``--first SEED --calls 1`` draws it again.
"""

from __future__ import annotations

import argparse
import sys

from ringwright_lab.testing.one_physics import answers, broken, broken_job, drawn, drawn_job


def main() -> int:
    """Draw, print what is broken as it is found, and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--calls", type=int, default=900)
    parser.add_argument("--jobs", type=int, default=100)
    given = parser.parse_args()
    declined = failed = 0
    for seed in range(given.first, given.first + given.calls):
        declined += not answers(drawn(seed))
        failed += _shown(broken(drawn(seed)))
    for seed in range(given.first, given.first + given.jobs):
        failed += _shown(broken_job(drawn_job(seed)))
    print(
        f"{given.calls} calls ({declined} declined by their algorithms) and {given.jobs} jobs: {failed} break the law"
    )
    return 1 if failed else 0


def _shown(found: list[str]) -> bool:
    for each in found:
        print(each, flush=True)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
