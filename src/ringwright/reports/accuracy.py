"""The accuracy tables as text."""

from __future__ import annotations

from typing import Any, TextIO


def write(found: dict[str, Any], out: TextIO) -> None:
    """Write both tables with their summaries, and what is not covered."""
    print(f"engine: {found['engine']}; errors are geometric means of max(t_sim/t, t/t_sim) - 1, in percent", file=out)
    print("large: 64 KiB and more; small: below, for information. * NCCL's release is assumed", file=out)
    titles = {
        "sizes": "(a) fitted on every second size of the case, judged on the others",
        "nodes": "(b) fitted on the other node counts of the system, judged on all sizes",
    }
    for key, title in titles.items():
        target = found[f"{key}_target"]
        print(f"\n{title}; target {target:.0%}", file=out)
        print(f"{'case':<42} {'transport':<9} {'fitted on':>9} {'fit':>6} {'large':>6} {'small':>6}", file=out)
        for line in found[key]:
            _line(line, target, out)
        for transport, about in found[f"{key}_summary"].items():
            print(
                f"{transport}: {about['cases']} cases, mean {about['mean']:.1%}, median {about['median']:.1%}, "
                f"{about['reached']} within {target:.0%}",
                file=out,
            )
    if found["not_covered"]:
        print(f"\nnot covered (no NCCL model for the machine): {', '.join(found['not_covered'])}", file=out)


def _line(line: dict[str, Any], target: float, out: TextIO) -> None:
    name = line["case"] + ("*" if line["release_assumed"] else "")
    missed = " " if line["error"] is None or line["error"] <= target else "  over"
    columns = " ".join(_percent(line[key]) for key in ("fitted", "error", "small"))
    print(f"{name:<42} {line['transport']:<9} {line['trained_on']:>9} {columns}{missed}".rstrip(), file=out)


def _percent(value: float | None) -> str:
    return f"{'-':>6}" if value is None else f"{value * 100:6.1f}"
