"""Prints how often advice was right; pairs of real ranks need PyTorch in the environment. See scripts/back-test."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from ringwright_lab.testing import back_tests, campaigns
from ringwright_lab.testing.back_tests import BackTestFigures, BackTestSizes, JudgedCause, JudgedPair

HALVED = "real/kineto/hta_trace_diff_control.json.gz"  # the one public recording here with times and several steps
FIRST = 1000


@dataclass
class _Told:
    """Says what was wrong, or could not be told; writes what is judged so far to a file, where one is named."""

    seed: int
    path: Path | None
    pairs: list[JudgedPair] = field(default_factory=list)
    causes: list[JudgedCause] = field(default_factory=list)

    def __call__(self, each: JudgedPair | JudgedCause) -> None:
        if "cause" in each:
            self.causes.append(each)
            if not each["is_right"]:
                _say(f"{each['cause'] or 'null'} {each['seed']}: costs {each['loss']:.1%}, told {each['told']}")
        else:
            self.pairs.append(each)
            if not each["is_inside"]:
                _say(
                    f"{each['kind']} {each['seed']} {each['change']}: measured {each['measured_gain']:.1%}, {_ends(each)}"
                )
        if self.path is not None:
            self.path.write_text(json.dumps(back_tests.counted(self.pairs, self.causes, self.seed), indent=1) + "\n")


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _ends(each: JudgedPair) -> str:
    true = "" if each["true_gain"] is None else f"{each['true_gain']:.1%} without noise, "
    ends = [each["gain_p05"], each["gain_p50"], each["gain_p95"]]
    return f"{true}predicted {each['why'] or ', '.join(f'{(one or 0.0):.1%}' for one in ends)}"


def _row(name: str, one: BackTestFigures) -> str:
    shares = [one["covered"], one["width"], one["cannot_tell"], one["cause_first"], one["planted_inside"]]
    text = "".join(f"{'-' if each is None else f'{each:.1%}':>12}" for each in shares)
    return f"{name:24}{one['pairs']:>6}{one['planted']:>8}{text}{one['false_promises']:>4} of {one['nulls']}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    usual = BackTestSizes()
    parser.add_argument(
        "--seed", type=int, default=back_tests.SEALED, help=f"the first one; {FIRST} and on are for fitting"
    )
    parser.add_argument(
        "--join", type=Path, nargs="+", help="files that parts of a campaign have written: nothing is run"
    )
    parser.add_argument("--drawn", type=int, default=usual.drawn, help="pairs of simulated jobs")
    parser.add_argument(
        "--live", type=int, default=usual.live, help="jobs of real ranks, each with halves and three changes"
    )
    parser.add_argument("--planted", type=int, default=usual.planted, help="recordings with a cause put in")
    parser.add_argument("--live-planted", type=int, default=usual.live_planted, help="of them by real ranks")
    parser.add_argument("--nulls", type=int, default=usual.nulls, help="jobs in which nothing gains")
    parser.add_argument("--json", type=Path, help="write all of it to a file")
    campaigns.add_executor(parser)
    given = parser.parse_args()
    sizes = BackTestSizes(given.drawn, given.live, given.planted, given.live_planted, given.nulls)
    named = os.environ.get("RINGWRIGHT_TEST_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    halved = [folder / HALVED] if given.live and (folder / HALVED).exists() else []
    if given.join:
        parts = [json.loads(path.read_text()) for path in given.join]
        listed = ([each for part in parts for each in part[name]] for name in ("pairs", "causes"))
        made = back_tests.counted(*listed, min(part["first_seed"] for part in parts))
    else:
        with campaigns.resumable(given.executor) as fan:
            made = back_tests.campaign(sizes, given.seed, _Told(given.seed, given.json), halved, fan)
    print(
        f"{'':24}{'pairs':>6}{'planted':>8}{'covered':>12}{'width':>12}{'cannot tell':>12}{'first':>12}{'holds':>12}  false"
    )
    for kind, one in made["by_kind"].items():
        print(_row(kind, one))
    print(_row("all", made["figures"]))
    if given.json is not None:
        given.json.write_text(json.dumps(made, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
