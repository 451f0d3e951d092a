"""What a comparison of two runs says first: slower, faster, changed or equal, by the figure that tells it best."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.analysis import remedies
from ringwright.analysis.answer_document import Figure, FirstAnswer, Kind
from ringwright.ground.units import format_size, format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.analysis.compared.diff_document import CountChange, RunCounts, TimedSize, TimedWhole

Told = tuple[Kind, str, list[tuple[str, str]]]


def diff_answer(
    after: RunCounts,
    times: Sequence[TimedWhole],
    sizes: Sequence[TimedSize],
    changes: Sequence[CountChange],
    changed_share: float,
    *,
    is_other_job: bool = False,
) -> FirstAnswer:
    """Return the answer to "what changed?": of steps where both runs have them, else of the largest size that changed.

    Parameters
    ----------
    after
        The later run.
    times, sizes
        What was timed in both runs: the whole job's, and each operation's and size's.
    changes, changed_share
        What was called otherwise, and the share of calls or bytes that it makes.
    is_other_job
        Whether not one operation and size is in both runs: then no time of one says anything of the other.
    """
    kind, sentence, figures = (
        _of_results(after)
        or (_of_other_jobs(changed_share) if is_other_job else None)
        or _of_steps(times)
        or _of_sizes(sizes)
        or _of_counts(times, sizes, changes, changed_share)
    )
    told: list[Figure] = [{"name": name, "value": value} for name, value in figures]
    return {
        "kind": kind,
        "sentence": sentence,
        "figures": told,
        "command": remedies.report({"inputs": after["inputs"]}),
    }


def _of_results(after: RunCounts) -> Told | None:
    if not after["wrong_results"]:
        return None
    return "wrong", f"The results of the later run are wrong: {after['wrong_results']}.", []


def _of_other_jobs(share: float) -> Told:
    figures = [("calls or bytes that changed", f"{share:.1%}"), ("operations and sizes in both", "0")]
    sentence = "These are different jobs: not one operation and size is in both, so no time says which is faster."
    return "cannot-tell", sentence, figures


def _of_steps(times: Sequence[TimedWhole]) -> Told | None:
    step = next((row for row in times if row["what"] == "step" and row["changed"]), None)
    if step is None or not step["ratio"]:
        return None
    figures = [
        ("step before", format_time(step["before_us"] * 1e-6)),
        ("step after", format_time(step["after_us"] * 1e-6)),
        ("it varies by", f"{step['noise'] or 0.0:.1%}"),
    ]
    kind, word = _direction(step["ratio"])
    return kind, f"{word}: a step takes {step['ratio']:.2f}x as long.", figures


def _of_sizes(sizes: Sequence[TimedSize]) -> Told | None:
    changed = [row for row in sizes if row["changed"]]
    if not changed:
        return None
    row = max(changed, key=lambda row: (row["size_bytes"], row["ratio"]))
    kind, word = _direction(row["ratio"])
    slower = sum(row["ratio"] > 1.0 for row in changed)
    if 0 < slower < len(changed):
        kind, word = "changed", "Slower at some sizes, faster at others"
    figures = [
        ("sizes slower", f"{slower} of {len(sizes)}"),
        ("before", _rate(row["before_us"], row["before_busbw_gbs"])),
        ("after", _rate(row["after_us"], row["after_busbw_gbs"])),
    ]
    name = row["op"] or row["kind"]
    return kind, f"{word}: {name} of {format_size(row['size_bytes'])} takes {row['ratio']:.2f}x as long.", figures


def _of_counts(
    times: Sequence[TimedWhole], sizes: Sequence[TimedSize], changes: Sequence[CountChange], share: float
) -> Told:
    timed = bool(sizes) or any(row["what"] == "step" for row in times)
    figures = [("calls or bytes that changed", f"{share:.1%}"), ("sizes timed in both", f"{len(sizes)}")]
    ending = "no time changed by more than it varies by itself" if timed else "times are not in both runs"
    if changes:
        return "changed", f"Calls changed: {share:.1%} of calls or bytes; {ending}.", figures
    if timed:
        return "equal", f"Equal: the calls are the same, and {ending}.", figures
    return "cannot-tell", f"The calls are the same; whether it was slower nobody can tell: {ending}.", figures


def _direction(ratio: float) -> tuple[Kind, str]:
    return ("slower", "Slower") if ratio > 1.0 else ("faster", "Faster")


def _rate(time_us: float, busbw_gbs: float | None) -> str:
    rate = "" if busbw_gbs is None else f", {busbw_gbs:.3g} GB/s"
    return f"{format_time(time_us * 1e-6)}{rate}"
