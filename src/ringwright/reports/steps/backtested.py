"""A back-test for a terminal: whether the prediction held, what was predicted, and what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from ringwright.advise.advice_view import BackTestView
from ringwright.ground.documents import read_json
from ringwright.reports import layout
from ringwright.reports.steps.jobs import milliseconds

if TYPE_CHECKING:
    from ringwright.advise.backtest import BackTest


def write_judged(judged: BackTest, file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.back-test/1`` for a terminal."""
    result = read_json(BackTestView, judged)
    out = layout.console(file, width=width)
    layout.line(out, _verdict(result), style="bold", indent=0)
    layout.heading(out, "Measured", result.job)
    layout.line(
        out,
        f"{milliseconds(result.before_us)} ms a step before ({result.before_steps} steps), "
        f"{milliseconds(result.after_us)} ms after ({result.after_steps} steps): "
        f"a gain of {result.measured_gain:.1%}",
    )
    layout.heading(out, "Predicted", result.what)
    if result.gain_p50 is None:
        layout.line(out, f"nothing: {result.why}")
        return
    layout.line(
        out,
        f"a measured gain of {result.gain_p50:.1%}, {result.gain_p05:.1%} to {result.gain_p95:.1%} in 90 % of "
        "draws, with what the means of so few steps differ by of themselves",
    )
    if result.change:
        layout.line(out, "advice would tell it" if result.is_told else "advice would not tell it: it may gain nothing")
    if result.fidelity is not None:
        layout.line(out, f"the replay, unchanged, is {result.fidelity:+.1%} off; seed {result.seed}")


def _verdict(result: BackTestView) -> str:
    whose = "The second half" if result.kind == "halves" else "The change"
    if result.is_inside is None:
        return f"Cannot tell: {result.why}"
    predicted = f"{result.gain_p50:.1%} in {result.gain_p05:.1%} to {result.gain_p95:.1%} was predicted"
    if result.is_inside and not result.is_telling:
        return f"Too wide to tell: {predicted}, and {result.measured_gain:.1%} was measured"
    if result.is_inside:
        return f"{whose} did what was predicted: {result.measured_gain:.1%} was measured, {predicted}"
    off = "less" if result.measured_gain < (result.gain_p05 or 0.0) else "more"
    return f"{whose} gained {off} than was predicted: {result.measured_gain:.1%}"
