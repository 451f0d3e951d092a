"""Advice for a terminal: the answer first, the step of today, each change with its gain, what was refused and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ringwright.advise.advice_view import AdviceView, ChangeView
from ringwright.advise.entry import VERDICTS
from ringwright.advise.search import ENDS
from ringwright.ground.documents import read_json
from ringwright.ground.units import format_size
from ringwright.reports import layout
from ringwright.reports.calls.fault_costs import faults_asked
from ringwright.reports.steps.jobs import cost_of_faults, milliseconds

if TYPE_CHECKING:
    from rich.console import Console

    from ringwright.advise.document import Advice


def write(advice: Advice, file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.advise/1`` for a terminal."""
    result = read_json(AdviceView, advice)
    out = layout.console(file, width=width)
    layout.line(out, f"{VERDICTS[result.verdict]}: {result.why}", style="bold", indent=0)
    if faults_asked(result.asked):
        layout.line(out, faults_words(result), style="yellow", indent=0)
    _base(out, result)
    if result.changes:
        _changes(out, result.changes)
        for number, each in enumerate(result.changes, 1):
            _change(out, number, each)
    _refused(out, result)
    if result.evaluated:
        layout.heading(out, "How it was searched")
        layout.line(out, searched_words(result))
    if result.assumptions:
        layout.heading(out, "Assumed")
    for text in result.assumptions:
        layout.line(out, text)


def _base(out: Console, result: AdviceView) -> None:
    first, *rest = today_words(result)
    layout.heading(out, "Today", first)
    for each in rest:
        layout.line(out, each)


def faults_words(result: AdviceView) -> str:
    """Say which faults the machine has, and what they cost where that was simulated."""
    base, (line,) = result.base, faults_asked(result.asked)
    pairs = ((base.step_us_p50, base.healthy_us_p50), (base.replayed_us, base.healthy_us))
    known = next(((ill, well) for ill, well in pairs if ill is not None and well is not None), None)
    return line + (f": a step takes {cost_of_faults(*known)}" if known else "")


def today_words(result: AdviceView) -> list[str]:
    """Say what the job is and by which policy it runs, and how long its step takes, in a sentence each."""
    base, on = result.base, f" on {result.fabric}" if result.fabric else ""
    told = [f"{result.job}{on}, policy {base.policy}"]
    if base.replayed_us is None or base.exposed_us is None:
        return [*told, "no time of a step is known"]
    if base.measured_us is not None and base.fidelity is not None:
        mean = f", the mean of {base.steps} steps" if base.steps > 1 else ""
        told.append(
            f"measured {milliseconds(base.measured_us)} ms a step{mean}, replayed {milliseconds(base.replayed_us)} ms "
            f"({base.fidelity:+.1%}) in {base.iterations} iterations"
        )
    elif base.step_us_p50 is not None:
        known = (base.step_us_p50, base.step_us_p05, base.step_us_p95)  # of one step all are known or none
        middle, *ends = (milliseconds(each or 0.0) for each in known)
        told.append(f"most probable {middle} ms a step, {' to '.join(ends)} in 90 %, as simulate answers")
        told.append(f"the engine's own, simulated: {milliseconds(base.replayed_us)} ms")
    else:
        told.append(f"simulated {milliseconds(base.replayed_us)} ms a step")
    return [*told, f"{milliseconds(base.exposed_us)} ms of it are exposed communication"]


def _changes(out: Console, changes: list[ChangeView]) -> None:
    layout.heading(
        out, "Changes", "each with those above it; gains are shares of the step of today, 5 to 95 % of draws"
    )
    rows = [
        (
            f"{number} {each.what}",
            milliseconds(each.step_us),
            layout.percent(each.gain_p50),
            f"{each.gain_p05:.1%} to {each.gain_p95:.1%}",
            "-" if each.alone is None else layout.percent(each.alone),
            "-" if each.memory_bytes is None else memory_words(each.memory_bytes),
        )
        for number, each in enumerate(changes, 1)
    ]
    layout.table(out, ("change", "step ms", "gain", "interval", "alone", "memory"), rows, left=("change",))


def memory_words(size_bytes: int) -> str:
    """Return how many bytes a rank holds more, or fewer."""
    return f"{'+' if size_bytes >= 0 else '-'}{format_size(abs(size_bytes))}"


def gain_words(each: ChangeView) -> str:
    """Return a gain with its interval."""
    return f"{each.gain_p50:.1%}, {each.gain_p05:.1%} to {each.gain_p95:.1%}"


def _change(out: Console, number: int, each: ChangeView) -> None:
    layout.heading(out, f"{number}", each.what)
    for name, text in tells(each):
        for part in text.split("; ") if name == "export" else [text]:
            layout.line(out, f"{name}: {part}")


def tells(each: ChangeView) -> list[tuple[str, str]]:
    """Return what is told of a change beside its figures, a name and a text each."""
    told = (
        ("where", each.where),
        ("risk", each.risk),
        ("ground", each.ground),
        ("export", each.export),
        ("measure", each.measure),
    )
    return [(name, text) for name, text in told if text]


def _refused(out: Console, result: AdviceView) -> None:
    if not result.refused:
        return
    layout.heading(out, "Not advised")
    for each in result.refused:
        remedy = f" ({each.remedy})" if each.remedy else ""
        layout.line(out, f"{each.what}: {each.why}{remedy}")


def searched_words(result: AdviceView) -> str:
    """Say how many setups there were and what was done with them."""
    return (
        f"{result.evaluated:,} of {result.setups:,} setups simulated, {result.bounded:,} with a bound; {ENDS[result.ended]}; "
        f"{result.search_s:.1f} s, seed {result.seed}"
    )


def write_files(folder: Path, names: Sequence[str], file: TextIO, *, width: int | None = None) -> None:
    """Say what was written into a folder: the files of changes were read back."""
    out = layout.console(file, width=width)
    layout.heading(out, "Written", f"{folder}; each file of a change read back and held to the advice")
    for name in names:
        layout.line(out, name)
