"""What a gate says on the summary page of a workflow on GitHub: what failed, before and after, and the command to type.

The page is a Markdown file that the workflow names; each step adds its part at the end. Names come from recordings: nothing in
them is markup. A file that cannot be written is told on standard error, and changes nothing of what the gate says.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ringwright.analysis.compared.diff_document import RunDifference, TimedWhole
from ringwright.analysis.compared.gate_document import CheckResult, GateAnswer
from ringwright.ground import drafts
from ringwright.ground.errors import RingwrightError
from ringwright.ground.units import format_count, format_size
from ringwright.reports import layout
from ringwright.reports.layout import percent

PAGE_OF_STEP = "GITHUB_STEP_SUMMARY"
MOST_BYTES = 1 << 20  # of a step's page: GitHub shows nothing of a longer one
TOP_SIZES = 12
LONGEST = 600
_MARKUP = re.compile(r"([\\`*_\[\]|~#!])")
_LINK = re.compile(r"(?i)(https?|ftp)://|\b(www)\.")
_TIMED = {
    "step": "a step",
    "communication": "communication in a step",
    "waiting": "waiting for late ranks, of the time in collectives",
    "exposed": "not hidden behind compute, of communication",
}


def add(asked: Path | None, text: str, environment: Mapping[str, str] = os.environ) -> None:
    """Add a part to the page that was asked for, or else to that of the workflow's step; nothing where there is neither."""
    target = asked or (Path(named) if (named := environment.get(PAGE_OF_STEP)) else None)
    if target is None:
        return
    try:
        before = target.read_text(encoding="utf-8", errors="replace") if target.is_file() else ""
        whole = f"{before.rstrip()}\n\n{text}" if before.strip() else text
        if len(whole.encode()) > MOST_BYTES:
            raise OSError(
                f"with this part it would have more than {format_size(MOST_BYTES)}, which GitHub does not show"
            )
        drafts.write(target, whole)
    except (OSError, RingwrightError) as error:
        sys.stderr.write(f"the step summary was not written to {layout.printable(str(target))}: {_reason(error)}\n")


def of_check(result: GateAnswer, command: str) -> str:
    """Return the part of the verb ``check``: the checks that failed as a table, those that passed folded away."""
    failed = [each for each in result["checks"] if not each["passed"]]
    passed = [each for each in result["checks"] if each["passed"]]
    parts = [_heading("ringwright check", is_good=result["passed"])]
    if failed:
        parts.append(_table(("failed", "measured", "limit", "what"), map(_checked, failed)))
    if passed:
        parts.append(_folded(f"{len(passed)} passed", (each["detail"] for each in passed)))
    return "\n\n".join([*parts, _command(command)]) + "\n"


def of_difference(difference: RunDifference, failed: Sequence[str] | None, command: str) -> str:
    """Return the part of the verb ``diff``: what failed, times, calls and the sizes that changed most, before and after.

    ``failed``: a sentence each; None where nothing was judged.
    """
    parts = [_heading("ringwright diff", is_good=None if failed is None else not failed)]
    parts += ["\n".join(f"- **FAIL** {plain(each)}" for each in failed)] if failed else []
    parts.append(plain(difference["answer"]["sentence"]))
    rows = [*map(_whole, difference["times"]), *_counted(difference), *_sizes(difference)]
    parts.append(_table(("", "before", "after", "after / before"), rows))
    return "\n\n".join([*parts, _command(command)]) + "\n"


def plain(text: object) -> str:
    """Return a text as Markdown that shows it as it is, on one line: no markup, no link, nothing that ends a table's field."""
    line = " ".join(layout.printable(" ".join(str(text)[: LONGEST + 1].split())).split())
    line = line if len(line) <= LONGEST else f"{line[:LONGEST]} …"
    marked = _MARKUP.sub(r"\\\1", line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
    return _LINK.sub(lambda match: f"{match[1]}&#58;//" if match[1] else f"{match[2]}&#46;", marked)


def _heading(verb: str, *, is_good: bool | None) -> str:
    if is_good is None:
        return f"### {verb}"
    return f"### {'✅' if is_good else '❌'} {verb}: {'passed' if is_good else 'failed'}"


def _checked(each: CheckResult) -> tuple[str, ...]:
    return each["check"], _figure(each["measured"]), _figure(each["limit"]), each["detail"]


def _figure(value: float | str | None) -> str:
    return "–" if value is None else value if isinstance(value, str) else f"{value:,.6g}"


def _whole(row: TimedWhole) -> tuple[str, ...]:
    before, after = row["before_share"], row["after_share"]
    if before is not None and after is not None:
        return _TIMED[row["what"]], percent(before), percent(after), ""
    times = (f"{row[side] / 1e3:,.2f} ms" for side in ("before_us", "after_us"))
    return _TIMED[row["what"]], *times, "" if row["ratio"] is None else f"{row['ratio']:.2f}x"


def _counted(difference: RunDifference) -> list[tuple[str, ...]]:
    sides = difference["before"], difference["after"]
    if not any(side["count"] for side in sides):
        return []
    return [
        ("calls", *(format_count(side["count"]) for side in sides), ""),
        ("bytes in calls", *(format_size(side["bytes"]) for side in sides), ""),
    ]


def _sizes(difference: RunDifference) -> list[tuple[str, ...]]:
    changed = sorted((row for row in difference["bandwidth"] if row["changed"]), key=lambda row: -abs(row["ratio"] - 1))
    return [
        (
            f"{row['op']} of {format_size(row['size_bytes'])}",
            *(f"{time:,.2f} us" for time in (row["before_us"], row["after_us"])),
            f"{row['ratio']:.2f}x",
        )
        for row in changed[:TOP_SIZES]
    ]


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [names, ["---"] * len(names), *([plain(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if len(lines) > 2 else ""


def _folded(title: str, lines: Iterable[str]) -> str:
    listed = "\n".join(f"- {plain(line)}" for line in lines)
    return f"<details><summary>{title}</summary>\n\n{listed}\n\n</details>"


def _command(command: str) -> str:
    shown = layout.printable(" ".join(command.split()))
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", shown)), default=0))
    return f"{fence}sh\n{shown}\n{fence}"


def _reason(error: Exception) -> str:
    return layout.printable(error.what if isinstance(error, RingwrightError) else error.strerror or str(error))  # type: ignore[attr-defined]
