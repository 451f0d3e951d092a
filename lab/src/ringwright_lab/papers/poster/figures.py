"""What the study claims beside what was got here: the rows of ``reproduce collective-profiling-poster``.

The paper's own numbers could not be read; a row says where its claim comes from: the paper's text, a summary of it, or the public
model code that the paper profiles.
"""

from __future__ import annotations

import math
from typing import Any, TypedDict

from ringwright.analysis.request_shapes import FEW, LIKE, REDUCTIONS, UNKNOWN
from ringwright.analysis.slow.disturbance import NONE
from ringwright_lab.papers.figures.kinds import EXACT, FORM
from ringwright_lab.papers.poster.plan import ANOMALIES, MADE_ON, TRUE_SHAPE

CODE = "public DeepSeek-V3 inference code, configuration 671B: 61 layers, 3 dense; hidden 7168; vocabulary 129,280; 16 ranks"
PAPER = "arXiv 2507.07117, abstract and conclusion"
SUMMARY = "summary page of arXiv 2507.07117 (secondary)"
FORMULAS = "closed formulas of this package (docs/how-to/sweep.md), derived from the models' shapes"
ONE_SEED = "not judged: a model has one seed, which has no interval"
REQUEST, LOGITS, ALL_REDUCES = 14_336, 16_160, 181


# One row of the contract of ``reproduce``.
ExperimentRow = TypedDict(
    "ExperimentRow",
    {
        "figure": str,
        "kind": str,
        "claimed": Any,
        "got": Any,
        "tolerance": str,
        "pass": bool,
        "source": str,
        "note": str,
    },
)


def row(
    figure: str, claimed: Any, got: Any, tolerance: str, source: str, *, good: bool, note: str = "", kind: str = FORM
) -> ExperimentRow:
    """Return one row of the contract; ``pass`` is False where nothing was got.

    No row is a prediction: the study's own numbers could not be read.
    """
    return {
        "figure": figure,
        "kind": kind,
        "claimed": claimed,
        "got": got,
        "tolerance": tolerance,
        "pass": bool(good),
        "source": source,
        "note": note,
    }


def exact(figure: str, claimed: int, got: int | None, source: str) -> ExperimentRow:
    """Return a row that must be equal to the unit."""
    return row(figure, claimed, got, "exact", source, good=got == claimed, kind=EXACT)


def served(prompt: dict[str, Any] | None, token: dict[str, Any] | None) -> list[ExperimentRow]:
    """Return the rows of DeepSeek-V3's inference: ``prompt`` is the pattern of 1,024 tokens, ``token`` that of a decoded one."""
    of, first = _calls(token), _calls(prompt)
    reduced = sum(count for op, _, count in of if op == "all-reduce")
    share = _share(token, "all-reduce")
    return [
        exact("DeepSeek-V3 671B on 16 ranks: all-reduces per forward pass", ALL_REDUCES, reduced, CODE),
        exact("all-gathers per forward pass", 1, sum(count for op, _, count in of if op == "all-gather"), CODE),
        exact("bytes of each all-reduce, per token", REQUEST, _only(of, "all-reduce"), CODE),
        exact("bytes of all-reduces, one decoded token", ALL_REDUCES * REQUEST, _total(of, "all-reduce"), CODE),
        exact("bytes of each all-reduce, prompt of 1,024 tokens", 1024 * REQUEST, _only(first, "all-reduce"), CODE),
        exact("bytes of the logits' all-gather, per rank", LOGITS, _per_rank(of, "all-gather", 16), CODE),
        row(
            "all-reduce dominates DeepSeek-V3's inference: its share of bytes",
            "most",
            share,
            "above 0.5",
            SUMMARY + "; the original is a low-trust blog",
            good=(share or 0.0) > 0.5,
        ),
    ]


def _calls(pattern: dict[str, Any] | None) -> list[tuple[str, int, int]]:
    return [(each["op"], each["size_bytes"], each["calls"]) for each in (pattern or {}).get("sizes", [])]


def _only(calls: list[tuple[str, int, int]], op: str) -> int | None:
    sizes = {size for name, size, _ in calls if name == op}
    return sizes.pop() if len(sizes) == 1 else None


def _total(calls: list[tuple[str, int, int]], op: str) -> int:
    return sum(size * count for name, size, count in calls if name == op)


def _per_rank(calls: list[tuple[str, int, int]], op: str, ranks: int) -> int | None:
    whole = _only(calls, op)
    return whole // ranks if whole is not None else None


def _share(pattern: dict[str, Any] | None, op: str) -> float | None:
    if not pattern or not pattern["bytes"]:
        return None
    mine = sum(int(each["bytes"]) for each in pattern["operations"] if each["op"] == op)
    return round(mine / int(pattern["bytes"]), 4)


def agreed(checks: list[dict[str, Any]], failed: int) -> list[ExperimentRow]:
    """Return the row of counts and bytes: real ranks, the fake group and the formulas alike, for every grid point."""
    agree = sum(check["agrees"] for check in checks)
    got = f"{agree} of {len(checks)}" + (f", {failed} cells failed" if failed else "")
    figure = (
        "counts and bytes of set-up, first, second and later iterations: real ranks and fake group equal the formulas"
    )
    words = "; ".join(
        f"{check['cell']} {check['when']}: {check['difference']}" for check in checks if not check["agrees"]
    )
    return [
        row(
            figure,
            "all",
            got,
            "exact",
            FORMULAS,
            good=bool(checks) and agree == len(checks) and not failed,
            note=words[:600],
            kind=EXACT,
        )
    ]


def separated(patterns: list[dict[str, Any]]) -> list[ExperimentRow]:
    """Return the row of the rule on request shapes, over runs that it was not made on.

    It may say that it cannot tell where it says that it does: where fewer than :data:`FEW` requests hold the model.
    """
    made = {size for _, size in MADE_ON}
    judged = [each for each in patterns if not (each["size"] in made and not each["dims"])]
    right = [each for each in judged if each["like"] == TRUE_SHAPE.get(each["model"], "transformer-like")]
    wrong = [each for each in judged if each not in right and each["like"] != LIKE[UNKNOWN]]
    got = f"{len(right)} right, {len(wrong)} wrong, {len(judged) - len(right) - len(wrong)} cannot tell"
    few = [each for each in judged if each["like"] == LIKE[UNKNOWN] and _reductions(each) < FEW]
    good = bool(right) and not wrong and len(right) + len(few) == len(judged)
    words = "; ".join(f"{each['cell']}: {each['like']}" for each in judged if each not in right)
    figure = (
        f"sizes of requests tell VGG-like, ResNet-like and transformers apart, {len(judged)} runs not used for the rule"
    )
    return [
        row(
            figure,
            "patterns differ clearly between models",
            got,
            f"all right; cannot tell only below {FEW} requests",
            PAPER,
            good=good,
            note=words,
        )
    ]


def _reductions(pattern: dict[str, Any]) -> int:
    calls: int = sum(each["calls"] for each in pattern["sizes"] if each["op"] in REDUCTIONS)
    return calls


def disturbed(effects: list[dict[str, Any]]) -> list[ExperimentRow]:
    """Return a row per disturbance: it is seen in the step's time, and what it is was told right, or not at all."""
    rows = []
    for name in [*ANOMALIES, NONE]:
        mine = [effect for effect in effects if effect["anomaly"] == name]
        if not mine:
            continue
        runs, right, wrong = (sum(effect[what] for effect in mine) for what in ("seeds", "right", "wrong"))
        lows = [effect["step_ratio_low"] for effect in mine]
        got = f"{right} right, {wrong} wrong, {runs - right - wrong} cannot tell"
        if name == NONE:
            rows.append(
                row(
                    "undisturbed: no false alarm",
                    "none",
                    got,
                    "no verdict but none or cannot tell",
                    "requirement of this package",
                    good=not wrong,
                )
            )
            continue
        ratios = ", ".join(f"{effect['model']} {effect['step_ratio'] or math.nan:.2f}" for effect in mine)
        rows.append(
            row(
                f"{name} ({ANOMALIES[name]}): told by the recording",
                "named, or cannot tell",
                got,
                "none wrong",
                "requirement of this package",
                good=not wrong,
            )
        )
        judged = [low for low in lows if low is not None]
        whole = len(judged) == len(lows)
        rows.append(
            row(
                f"{name}: seen in collective behaviour (step over undisturbed step: {ratios})",
                "slower",
                round(min(judged), 3) if judged else None,
                "95 % interval over seeds above 1 for every model",
                PAPER,
                good=whole and min(judged) > 1.0,
                note="" if whole else ONE_SEED,
            )
        )
    return rows
