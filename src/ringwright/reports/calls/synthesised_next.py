"""What to type after a search: commands that write its program, compare it, and run its method on real ranks."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.search.study import Synthesised

MOST_BENCHED = 16  # ranks that one computer runs


class NextCommand(NamedTuple):
    """What to type next, and what it does."""

    what: str
    command: str


def following(result: Synthesised, machine: Sequence[str], *, refused: str = "") -> list[NextCommand]:
    """Return what to type next: write the program, compare it over sizes, run it on real ranks.

    ``machine``: the words that name the machine on the command line; ``refused``: why MSCCL XML cannot carry the program, empty
    where it can.
    """
    row, question = result.largest, result.question
    root = ["--root", str(question.root)] if question.root else []
    model = [] if question.link_model == "pipelined" else ["--link-model", question.link_model]
    asked = [question.op, *machine, *root, *model]
    size, few = typed(row.size_bytes), typed(max(row.size_bytes >> 10, 1 << 10))
    sizes = ["-b", few, "-e", size, "-f", "8"]
    to, file = ("goal", "best.goal") if refused else ("msccl-xml", "best.xml")
    format_of = f"for LogGOPSim, as MSCCL XML cannot carry it ({refused})" if refused else "for MSCCL"
    rival = next((each.algorithm for each in result.rivals if each.time_us is not None), "ring")
    lines = [
        _next(
            f"Write the program {format_of}; it is kept, so nothing is searched again",
            *("synthesise", *asked, "--method", row.method, "--size", size, "--alone", "--to", to, "-o", file),
        ),
        _next(
            "The fastest that MSCCL can run at each size, with what picks them by size",
            *("synthesise", *asked, "--method", "best", *sizes, "--to", "msccl-xml", "-o", "best"),
        ),
        _next(
            "Beside another algorithm, size by size",
            *("simulate", *asked, "--algorithm", f"{row.method},{rival}", *sizes),
        ),
    ]
    ranks = question.collective(0).p
    if ranks <= MOST_BENCHED:
        what = "The same method on real ranks of this computer, whose links are not those above"
        counted = ("--ranks", str(ranks), *root, "--algorithm", row.method, "-b", "64K", "-e", "1M", "-f", "4")
        lines.append(_next(what, "bench", question.op, *counted))
    return lines


def _next(what: str, *words: str) -> NextCommand:
    return NextCommand(what, shlex.join(["ringwright", *words]))


def typed(size_bytes: int) -> str:
    """Return a size as it is typed: ``64M``."""
    for power, letter in ((30, "G"), (20, "M"), (10, "K")):
        if size_bytes and size_bytes % (1 << power) == 0:
            return f"{size_bytes >> power}{letter}"
    return str(size_bytes)
