"""Recordings as people paste them: the same lines behind launchers, wrapped, quoted, with other ends, in another encoding.

What keeps the information must keep the answer. What loses some may lose the answer with the lines that decided it, and accuses
nobody else.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from typing import Any

Change = Callable[[list[str], random.Random], list[str]]
COLUMNS = (80, 100, 137)


def _each(change: Callable[[int, str], str]) -> Change:
    return lambda lines, _: [change(at, line) for at, line in enumerate(lines)]


def _wrapped(width: int, prefix: str = "") -> Change:
    """Return what cuts lines at a column, as terminals do, each piece behind the prefix."""

    def wrapped(lines: list[str], _: random.Random) -> list[str]:
        whole = [prefix + line for line in lines]
        return [line[at : at + width] for line in whole for at in range(0, max(1, len(line)), width)]

    return wrapped


def _progress_beside(lines: list[str], draw: random.Random) -> list[str]:
    made: list[str] = []
    for line in lines:
        if draw.random() < 0.1:
            share = draw.randrange(100)
            made.append(f"{share:3}%|{'#' * (share // 10):10}| {share}/100 [00:{share % 60:02}<01:00,  1.0it/s]")
        made.append(line)
    return made


LAUNCHERS: Mapping[str, Change] = {
    "[0] ": _each(lambda _, line: f"[0] {line}"),
    "0: ": _each(lambda _, line: f"0: {line}"),
    "mpirun": _each(lambda _, line: f"[1,0]<stdout>:{line}"),
    "kubectl": _each(lambda _, line: f"[pod/job-x7/main] {line}"),
    "kubectl with times": _each(lambda at, line: f"2024-05-01T12:{at // 60 % 60:02}:{at % 60:02}.123456789Z {line}"),
    "journald": _each(lambda at, line: f"May 01 12:{at // 60 % 60:02}:{at % 60:02} node1 docker[1234]: {line}"),
    "Ray": _each(lambda _, line: f"(RayTrainWorker pid=1234, ip=192.0.2.3) {line}"),
    "progress beside": _progress_beside,
}
DRESSES: Mapping[str, Change] = {
    "quoted": _each(lambda _, line: f"> {line}"),
    "fenced": lambda lines, _: ["It hangs:", "", "```", *lines, "```", "Any idea?"],
    "coloured": _each(lambda _, line: f"\x1b[32m{line}\x1b[0m"),
    "no-break spaces": _each(lambda _, line: line.replace("  ", " \u00a0")),
    "tabs": _each(lambda _, line: line.replace("        ", "\t")),
    "indented": _each(lambda _, line: f"    {line}"),
}
WRAPS: Mapping[str, Change] = {
    **{f"wrapped at {width}": _wrapped(width) for width in COLUMNS},
    "wrapped at 100 behind a prefix": _wrapped(100, "[1,0]<stdout>:"),
}
_PROCESS = re.compile(r"[\w.-]+:\d+:\d+ (?=\[\d+\] )")
LOSING: Mapping[str, Change] = {
    "stripped": _each(lambda _, line: _PROCESS.sub("", line, count=1)),
    "redacted": _each(lambda _, line: _PROCESS.sub("***:***:*** ", line, count=1)),
    "cut head": lambda lines, draw: lines[draw.randrange(1 + len(lines) // 2) :],
    "cut tail": lambda lines, draw: lines[: len(lines) - draw.randrange(1 + len(lines) // 2)],
}
ENDS = {"LF": "\n", "CRLF": "\r\n", "CR": "\r"}
KEEPING: Mapping[str, Change] = {**LAUNCHERS, **DRESSES, **WRAPS}
SAY_A_RANK = ("0: ", "mpirun", "wrapped at 100 behind a prefix")  # rank 0: what no rank was known of is its then
_AT = re.compile(r":(\d{1,9}): ")
OF_BYTES = ("CRLF", "CR", "BOM", "another name")


def pasted(text: bytes, change: str, draw: random.Random) -> bytes:
    """Return a recording as it is after a change, by its name in KEEPING, LOSING or OF_BYTES."""
    if change == "BOM":
        return b"\xef\xbb\xbf" + text
    lines = text.decode("utf-8", "replace").splitlines()
    alter = KEEPING.get(change) or LOSING.get(change)
    if alter is not None:
        lines = alter(lines, draw)
    return "".join(line + ENDS.get(change, "\n") for line in lines).encode()


def told(summary: Mapping[str, Any]) -> dict[str, object]:
    """Return what a person takes from a summary: kind of answer, ranks and hosts blamed, operations with their sizes."""
    return {
        "kind": (summary.get("answer") or {}).get("kind"),
        "blamed": sorted((each["kind"], tuple(each["ranks"])) for each in summary["culprits"]),
        "cause": (summary["verdict"] or {}).get("kind"),
        "ranks": summary["ranks_seen"],
        "operations": sorted(
            (row["op"], row["records"], row["unsized"], str(row["size_histogram"])) for row in summary["operations"]
        ),
    }


def agree(before: Mapping[str, object], after: Mapping[str, object], change: str) -> bool:
    """Say whether an answer is the same after a change; a launcher that names a rank may add it."""
    if change not in SAY_A_RANK:
        return after == before
    named = [[(kind, ranks or (0,)) for kind, ranks in told["blamed"]] for told in (before, after)]  # type: ignore[attr-defined]
    return named[0] == named[1] and {**before, "blamed": 0} == {**after, "blamed": 0}


def deciding(summary: Mapping[str, Any]) -> set[int]:
    """Return the numbers of the lines that an answer rests on, as its evidence names them; empty where it names none."""
    return {int(number) for each in (summary.get("answer") or {}).get("evidence", []) for number in _AT.findall(each)}


def survives(before: Mapping[str, object], after: Mapping[str, object], *, is_decided: bool) -> bool:
    """Say whether an answer after a loss is one that may be given: the same, or none where no line decides any more.

    ``is_decided``: whether the lines that the answer rested on are all left.
    """
    if after["kind"] == before["kind"]:
        ranks = [{rank for _, named in told["blamed"] for rank in named} for told in (before, after)]  # type: ignore[attr-defined]
        return ranks[1] <= ranks[0] or (not ranks[0] and not is_decided)
    return after["kind"] == "cannot-tell" and not is_decided
