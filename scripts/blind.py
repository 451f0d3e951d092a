"""Prints the blind accuracy of the diagnosis; real faults need PyTorch in the environment."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from ringwright_lab.testing import blind, campaigns
from ringwright_lab.testing.noise import HealthyNoise, from_recordings, ours


def _noise(folder: Path | None) -> HealthyNoise:
    """Return our noise, with that of a folder's recordings: the one named, or that of the tests' data where it is named."""
    named = os.environ.get("RINGWRIGHT_TEST_DATA")
    folder = folder or (Path(named) / "real" / "kineto" if named else None)
    own = ours()
    more = from_recordings(sorted(folder.iterdir())) if folder is not None and folder.is_dir() else None
    if more is None:
        return own
    return HealthyNoise((*own.late, *more.late), (*own.shared, *more.shared), f"{own.origin}; {more.origin}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--healthy", type=int, default=200)
    parser.add_argument("--real", type=int, default=60, help="of the faults, put into real gloo ranks")
    parser.add_argument("--real-healthy", type=int, default=30)
    parser.add_argument("--slow", type=int, default=60, help="simulated jobs of each manner in which ranks are slow")
    parser.add_argument("--seed", type=int, default=0, help="the first one; the rules were made on those below 100000")
    parser.add_argument("--noise", type=Path, help="folder of recordings whose ranks' noise is used, beside our own")
    parser.add_argument("--json", action="store_true")
    campaigns.add_executor(parser)
    given = parser.parse_args()

    def done(answer: blind.Verdict) -> None:
        if answer.outcome in ("wrong", "false-alarm", "silent"):
            print(
                f"{answer.outcome}: {answer.case}: put in {answer.truth}, said {answer.kind} {answer.said}",
                file=sys.stderr,
            )

    sizes = (given.faults, given.healthy, given.real, given.real_healthy)
    cases = blind.plan(*sizes, slow=given.slow, first_seed=given.seed)
    noise = _noise(given.noise)
    print(f"noise of healthy ranks: {noise.origin}", file=sys.stderr)
    with campaigns.resumable(given.executor) as fan:
        found = blind.document(blind.judge(cases, done, noise, fan))
    if given.json:
        json.dump(found, sys.stdout, indent=1)
        print()
    else:
        blind.write(found, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
