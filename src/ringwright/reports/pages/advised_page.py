"""Advice as one HTML page: the answer, each change with its interval and one step before and after, what was refused and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ringwright.advise.advice_view import AdviceView, ChangeView
from ringwright.advise.entry import VERDICTS
from ringwright.ground.documents import read_json
from ringwright.reports import html, layout, tables
from ringwright.reports.calls.fault_costs import faults_asked
from ringwright.reports.pages.job_page import TimelinePicture, timeline, timeline_legend
from ringwright.reports.steps.advised import (
    faults_words,
    gain_words,
    memory_words,
    searched_words,
    tells,
    today_words,
)
from ringwright.reports.steps.jobs import milliseconds

if TYPE_CHECKING:
    from ringwright.advise.document import Advice
    from ringwright.advise.pictures import DrawnStep

MARKS = 5  # of a scale of gains
COMMANDS: Final = ("export", "measure")


@dataclass(frozen=True, slots=True)
class IntervalBar:
    """A gain on a scale that all changes share, in percent of its width: 5 to 95 %, the middle, nothing; and in words."""

    left: float
    width: float
    middle: float
    nothing: float
    words: str


@dataclass(frozen=True, slots=True)
class ShownChange:
    """A change as the page has it: its interval, what it adds, the two steps, and lines of name and text."""

    number: int
    what: str
    bar: IntervalBar
    told: str
    steps: list[TimelinePicture]
    lines: list[tuple[str, str]]
    commands: list[tuple[str, str]]


def advice_page(advice: Advice, steps: Sequence[DrawnStep], command: str) -> str:
    """Return the page of a ``ringwright.advise/1`` object; ``steps``: today's, then one a change, none where nothing was run."""
    result = read_json(AdviceView, advice)
    on = f" on {result.fabric}" if result.fabric else ""
    verdict = VERDICTS[result.verdict]
    return html.render(
        "advised.html.j2",
        title=f"Advice: {result.job}{on}",
        verdict=f"{verdict}: {result.why}",
        ground="; ".join([*([faults_words(result)] if faults_asked(result.asked) else []), *today_words(result)]),
        figures=_figures(result),
        marks=_marks(result.changes),
        changes=_shown(result.changes, steps),
        legend=timeline_legend([each.timeline for each in steps]),
        today=timeline(steps[0].title, f"{steps[0].step_s * 1e3:,.1f} ms", steps[0].timeline, steps[0].step_s)
        if steps and not result.changes
        else None,
        refused=_refused(result),
        searched=searched_words(result),
        assumptions=result.assumptions,
        command=command,
    )


def _figures(result: AdviceView) -> list[tuple[str, str]]:
    base, changes = result.base, result.changes
    today = base.today_us
    figures = [
        ("Step today", "not known" if today is None else f"{milliseconds(today)} ms"),
        ("Exposed there", "not known" if base.exposed_us is None else f"{milliseconds(base.exposed_us)} ms"),
        ("Changes", str(len(changes))),
    ]
    if changes:
        last = changes[-1]
        figures += [
            ("Step then", f"{milliseconds(last.step_us)} ms"),
            ("Gain", layout.percent(last.gain_p50)),
            ("90 % of draws", f"{last.gain_p05:.1%} to {last.gain_p95:.1%}"),
        ]
    return figures


def _ends(changes: Sequence[ChangeView]) -> tuple[float, float]:
    """Return the least and the largest gain that a scale has to show."""
    low = min([0.0, *(each.gain_p05 for each in changes)])
    high = max([1e-6, *(each.gain_p95 for each in changes)])
    return low, high + 0.04 * (high - low)


def _marks(changes: Sequence[ChangeView]) -> list[str]:
    low, high = _ends(changes)
    return [f"{low + (high - low) * at / (MARKS - 1):.1%}" for at in range(MARKS)]


def _bar(each: ChangeView, ends: tuple[float, float]) -> IntervalBar:
    low, high = ends

    def at(gain: float) -> float:
        return round(100 * (gain - low) / (high - low), 2)

    return IntervalBar(
        left=at(each.gain_p05),
        width=round(at(each.gain_p95) - at(each.gain_p05), 2),
        middle=at(each.gain_p50),
        nothing=at(0.0),
        words=gain_words(each),
    )


def _shown(changes: Sequence[ChangeView], steps: Sequence[DrawnStep]) -> list[ShownChange]:
    ends = _ends(changes)
    longest = max((each.timeline.span_s for each in steps), default=0.0)
    drawn = {each.change: each for each in steps}
    listed: list[ShownChange] = []
    for number, each in enumerate(changes, 1):
        pair = [drawn[at] for at in (0, number) if at in drawn]
        listed.append(
            ShownChange(
                number=number,
                what=each.what,
                bar=_bar(each, ends),
                told=_told(each, is_first=number == 1),
                steps=[
                    timeline(one.title, f"{one.step_s * 1e3:,.1f} ms", one.timeline, longest)
                    for one in (pair if len(pair) == 2 else [])
                ],
                lines=[(name, text) for name, text in tells(each) if name not in COMMANDS],
                commands=[(name, text) for name, text in tells(each) if name in COMMANDS],
            )
        )
    return listed


def _told(each: ChangeView, *, is_first: bool) -> str:
    """Say what a change adds to those above it, and what it would gain without them."""
    adds = f"adds {each.adds_p50:.1%} to those above, {each.adds_p05:.1%} to {each.adds_p95:.1%}"
    alone = "cannot be made alone" if each.alone is None else f"alone it gains {each.alone:.1%}"
    memory = "" if each.memory_bytes is None else f"; memory of a rank {memory_words(each.memory_bytes)}"
    return f"{'nothing is above it' if is_first else f'{adds}; {alone}'}{memory}"


def _refused(result: AdviceView) -> tables.PageTable | None:
    if not result.refused:
        return None
    lines = [[*map(tables.text, (each.what, each.why, each.remedy))] for each in result.refused]
    return tables.table("refused", "Not advised", ["What", "Why", "What to do"], lines)
