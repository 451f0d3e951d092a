"""The accuracy tables as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from ringwright_lab.judges.accuracy import summary

if TYPE_CHECKING:
    from ringwright_lab.judges.accuracy_engines import Against


def write(document: dict[str, Any], out: TextIO) -> None:
    """Write both tables with their summaries, and what is not covered."""
    print(
        f"engine: {document['engine']}; errors are geometric means of max(t_sim/t, t/t_sim) - 1, in percent", file=out
    )
    print("large: 64 KiB and more; small: below, for information. * NCCL's release is assumed", file=out)
    titles = {
        "sizes": "(a) fitted on every second size of the case, judged on the others",
        "nodes": "(b) fitted on the other node counts of the system, judged on all sizes",
    }
    for key, title in titles.items():
        target = document[f"{key}_target"]
        print(f"\n{title}; target {target:.0%}", file=out)
        print(f"{'case':<42} {'transport':<9} {'fitted on':>9} {'fit':>6} {'large':>6} {'small':>6}", file=out)
        for line in document[key]:
            _line(line, target, out)
        _summary(document[f"{key}_summary"], target, out)
    if document["refused"]:
        print(f"\nleft out, for a law refused them: {'; '.join(document['refused'])}", file=out)
    if document["not_covered"]:
        print(f"\nnot covered (no NCCL model for the machine): {', '.join(document['not_covered'])}", file=out)


def _line(line: dict[str, Any], target: float, out: TextIO) -> None:
    name = line["case"] + ("*" if line["release_assumed"] else "")
    missed = " " if line["error"] is None or line["error"] <= target else "  over"
    columns = " ".join(_percent(line[key]) for key in ("fitted", "error", "small"))
    print(f"{name:<42} {line['transport']:<9} {line['trained_on']:>9} {columns}{missed}".rstrip(), file=out)


def _summary(summary: dict[str, dict[str, float]], target: float, out: TextIO) -> None:
    for transport, about in summary.items():
        print(
            f"{transport}: {about['cases']} cases, mean {about['mean']:.1%}, median {about['median']:.1%}, "
            f"{about['reached']} within {target:.0%}",
            file=out,
        )


def _percent(value: float | None) -> str:
    return f"{'-':>6}" if value is None else f"{value * 100:6.1f}"


def write_engines(question: str, lines: Sequence[Against], target: float, out: TextIO) -> None:
    """Write an engine beside the closed form."""
    print(
        f"\nNCCL's programs on the calibrated fabric, the sizes of {question}; what the engine leaves out is in",
        file=out,
    )
    print("ringwright_lab.judges.accuracy_engines", file=out)
    print(f"{'case':<42} {'engine':<9} {'sizes':>5} {'error':>6} {'closed form':>11}", file=out)
    for line in lines:
        print(
            f"{line.case:<42} {line.engine:<9} {line.sizes:>5} {_percent(line.error)} {_percent(line.closed_form):>11}",
            file=out,
        )
    _summary(summary(lines, target), target, out)
