#!/usr/bin/env python3
"""How far a question travels: files entered and returns to a file that was left, on the main line of six journeys.

scripts/journeys.py             a line for each journey
scripts/journeys.py --walk NAME the main line of one, call by call
scripts/journeys.py --json      as scripts/house holds it

The verbs are run, and every call of a function of ours is counted, generators and what is imported when it is needed as well. The
main line is the calls below which at least a tenth of all calls lie: counted, not timed, so that every machine gets the same. A
system that was looked up by name, an algorithm or a scheduler, is one stay: what it does inside is its own journey.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OURS = (str(ROOT / "src"), str(ROOT / "lab" / "src"))
SYSTEMS = ("/algorithms/", "/schedulers/")
SHARE = 10  # a call is on the main line where one in so many calls lies below it
JOURNEYS = {
    "summary": ["summary", "--sample"],
    "simulate a collective": "simulate all-reduce --fabric dgx-h100:2 -b 16M -e 16M".split(),
    "simulate a job": "simulate --model gpt3-125m --gpus 8 --fabric switch:8,rate=100Gb/s --policy p3".split(),
    "advise": "advise --model resnet-18 --gpus 2 --fabric switch:2,rate=10Gb/s".split(),
    "synthesise": "synthesise all-gather --fabric full:4 --size 1M".split(),
    "bench in the lab": "bench all-reduce --lab switch:4,rate=100Mb/s -b 64K -e 64K".split(),
}


@dataclass
class Call:
    """A function called from one place: its file and name, how many calls lie below it, and what it calls in turn."""

    file: str
    name: str
    calls: int = 0
    below: dict[tuple[str, str], Call] = field(default_factory=dict)

    def count(self) -> int:
        """Return the calls of this function and below it."""
        return self.calls + sum(each.count() for each in self.below.values())


class Walk:
    """Follows the calls of one journey."""

    def __init__(self) -> None:
        self.root = Call("", "")
        self.stack = [self.root]

    def called(self, frame: FrameType, _event: str, _: Any) -> Callable[[FrameType, str, Any], Any] | None:
        """Note a call of a function of ours, and ask for its return alone: builtins and lines would be most of the time."""
        code = frame.f_code
        if not code.co_filename.startswith(OURS):
            return None
        frame.f_trace_lines = False
        key = (code.co_filename, code.co_qualname)
        here = self.stack[-1].below.get(key)
        if here is None:
            here = self.stack[-1].below[key] = Call(*key)
        here.calls += 1
        self.stack.append(here)
        return self.returned

    def returned(self, _frame: FrameType, event: str, _: Any) -> None:
        """Note a return."""
        if event == "return" and len(self.stack) > 1:
            self.stack.pop()


def main() -> int:
    """Print the journeys."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--walk", default="", metavar="NAME", choices=JOURNEYS)
    given = parser.parse_args()
    if given.walk:
        for depth, call in main_line(walked(JOURNEYS[given.walk])):
            print(f"{'  ' * depth}{Path(call.file).relative_to(ROOT)}:{call.name}  {call.count()}")
        return 0
    found = measured()
    if given.json:
        print(json.dumps(found, indent=1))
    else:
        for each in found:
            print(f"{each['name']:24} {each['files']:3} files {each['returns']:3} returns, {each['depth']} deep")
    return 0


def measured() -> list[dict[str, Any]]:
    """Return files, returns and depth of each journey."""
    return [{"name": name, **lengths(main_line(walked(words)))} for name, words in JOURNEYS.items()]


def walked(words: list[str]) -> Call:
    """Run a verb, and return the tree of its calls."""
    from ringwright.cli import main as verb

    walk = Walk()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        before = sys.gettrace()
        sys.settrace(walk.called)
        try:
            verb(words)
        finally:
            sys.settrace(before)
    return walk.root


def main_line(root: Call) -> list[tuple[int, Call]]:
    """Return (depth, call) of the calls below which one in ``SHARE`` lies, in the order in which they are first made."""
    least = root.count() / SHARE
    line: list[tuple[int, Call]] = []

    def follow(call: Call, depth: int) -> None:
        for each in call.below.values():
            if each.count() >= least:
                line.append((depth, each))
                if not any(folder in each.file for folder in SYSTEMS):
                    follow(each, depth + 1)

    follow(root, 0)
    return line


def lengths(line: list[tuple[int, Call]]) -> dict[str, int]:
    """Return how many files are entered, how often a file that was left is come back to, and how deep the line goes."""
    path: list[str] = []  # where the calls on the way to the last one stand
    stays: list[str] = []
    for depth, call in line:
        back = path[depth - 1 : depth] if len(path) > depth else []  # the caller, to which it goes back in between
        path = [*path[:depth], call.file]
        stays += [*back, call.file]
    apart = [file for before, file in zip(["", *stays], stays, strict=False) if file != before]
    files = set(apart)
    return {
        "files": len(files),
        "returns": len(apart) - len(files),
        "depth": max((depth for depth, _ in line), default=0),
    }


if __name__ == "__main__":
    sys.exit(main())
