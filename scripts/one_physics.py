"""Draw calls and jobs, and say which of them break the law of one physics (``ringwright_lab.testing.one_physics``).

It ends with 1 where any does. Each line names its seed: ``--first SEED --calls 1`` draws it again.
"""

from __future__ import annotations

import argparse
import sys

from ringwright_lab.testing import campaigns
from ringwright_lab.testing.one_physics import tried, tried_job


def main() -> int:
    """Draw, print what is broken as it is found, and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--calls", type=int, default=900)
    parser.add_argument("--jobs", type=int, default=100)
    campaigns.add_executor(parser)
    given = parser.parse_args()
    calls, jobs = ([(given.first + at,) for at in range(count)] for count in (given.calls, given.jobs))
    with campaigns.resumable(given.executor) as fan:
        told = fan.map(tried, calls, each=lambda _, came: _show(came[1]))
        broken = [each for _, each in told] + fan.map(tried_job, jobs, each=lambda _, came: _show(came))
    declined, failed = sum(not is_answered for is_answered, _ in told), sum(map(bool, broken))
    print(
        f"{given.calls} calls ({declined} declined by their algorithms) and {given.jobs} jobs: {failed} break the law"
    )
    return 1 if failed else 0


def _show(found: list[str]) -> None:
    for each in found:
        print(each, flush=True)


if __name__ == "__main__":
    sys.exit(main())
