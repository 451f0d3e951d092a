"""Advice for a terminal: the answer first, the step of today, each change with its gain, what was refused and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from ringwright.reports import layout
from ringwright.reports.jobs import milliseconds
from ringwright.units import format_size

if TYPE_CHECKING:
    from rich.console import Console

    from ringwright.advise.document import Advice, AdvisedChange

VERDICTS = {"changes": "Change", "nothing": "Nothing here is worth a change", "cannot-tell": "Cannot tell"}


def write(result: Advice, file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.advise/1`` for a terminal."""
    out = layout.console(file, width=width)
    layout.line(out, f"{VERDICTS[result['verdict']]}: {result['why']}", style="bold", indent=0)
    _base(out, result)
    if result["changes"]:
        _changes(out, result["changes"])
        for number, each in enumerate(result["changes"], 1):
            _change(out, number, each)
    _refused(out, result)
    layout.heading(out, "How it was searched")
    layout.line(out, _searched(result))
    layout.heading(out, "Assumed")
    for text in result["assumptions"]:
        layout.line(out, text)


def _base(out: Console, result: Advice) -> None:
    base, on = result["base"], f" on {result['fabric']}" if result["fabric"] else ""
    layout.heading(out, "Today", f"{result['job']}{on}, policy {base['policy']}")
    if base["replayed_us"] is None or base["exposed_us"] is None:
        layout.line(out, "no time of a step is known")
        return
    if base["measured_us"] is not None and base["fidelity"] is not None:
        layout.line(
            out,
            f"measured {milliseconds(base['measured_us'])} ms a step, replayed {milliseconds(base['replayed_us'])} ms "
            f"({base['fidelity']:+.1%}) in {base['iterations']} iterations",
        )
    else:
        layout.line(out, f"simulated {milliseconds(base['replayed_us'])} ms a step")
    layout.line(out, f"{milliseconds(base['exposed_us'])} ms of it are exposed communication")


def _changes(out: Console, changes: list[AdvisedChange]) -> None:
    layout.heading(
        out, "Changes", "each with those above it; gains are shares of the step of today, 5 to 95 % of draws"
    )
    rows = [
        (
            f"{number} {each['what']}",
            milliseconds(each["step_us"]),
            layout.percent(each["gain_p50"]),
            f"{each['gain_p05']:.1%} to {each['gain_p95']:.1%}",
            "-" if each["alone"] is None else layout.percent(each["alone"]),
            "-" if each["memory_bytes"] is None else _memory(each["memory_bytes"]),
        )
        for number, each in enumerate(changes, 1)
    ]
    layout.table(out, ("change", "step ms", "gain", "interval", "alone", "memory"), rows, left=("change",))


def _memory(size_bytes: int) -> str:
    return f"{'+' if size_bytes >= 0 else '-'}{format_size(abs(size_bytes))}"


def _change(out: Console, number: int, each: AdvisedChange) -> None:
    layout.heading(out, f"{number}", each["what"])
    for name in ("where", "risk", "ground", "export", "measure"):
        text = each[name]
        if text:
            layout.line(out, f"{name}: {text}")


def _refused(out: Console, result: Advice) -> None:
    if not result["refused"]:
        return
    layout.heading(out, "Not advised")
    for each in result["refused"]:
        remedy = f" ({each['remedy']})" if each["remedy"] else ""
        layout.line(out, f"{each['what']}: {each['why']}{remedy}")


def _searched(result: Advice) -> str:
    stopped = "; stopped before its end, so that more may be found" if result["stopped"] else ""
    return (
        f"{result['setups']:,} setups, {result['bounded']:,} with a bound, {result['evaluated']:,} runs of the engine, "
        f"{result['search_s']:.1f} s, seed {result['seed']}{stopped}"
    )
