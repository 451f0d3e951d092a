"""What a row of a paper's file may prove: five kinds, told apart before the row is run, and what cannot be foreseen at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

PREDICTION, FORM, EXACT, FITTED, IDENTITY = KINDS = ("prediction", "form", "exact", "fitted", "identity")
NOT_PREDICTABLE = (
    "not predictable"  # no kind of evidence: it has a reason in place of an answer, and neither passes nor fails
)
MEANING = {
    PREDICTION: "a published number; nothing was fitted to it, and its tolerance can fail",
    FORM: "sign, order or shape only, often in a band of this project's own",
    EXACT: "a closed form or a count that must come out to the digit",
    FITTED: "an assumed constant was chosen so that this or a neighbouring row comes out: no evidence",
    IDENTITY: "true by construction, whatever the system does: no evidence",
    NOT_PREDICTABLE: "a claim that needs what no paper and no model gives; the row says what",
}


def tally(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return kind, rows and how many pass, predictions first; kinds without a row are left out.

    Rows that are not predictable come last and apart: None of them passes.
    """
    every = list(rows)
    tallied = []
    for kind in KINDS:
        mine = [row for row in every if row["kind"] == kind]
        if mine:
            tallied.append({"kind": kind, "rows": len(mine), "pass": sum(row["pass"] for row in mine)})
    unforeseen = sum(row["kind"] == NOT_PREDICTABLE for row in every)
    return [*tallied, *([{"kind": NOT_PREDICTABLE, "rows": unforeseen, "pass": None}] if unforeseen else [])]


def sentence(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the tally in words: ``prediction 4 of 11, exact 9 of 9, not predictable 1``; empty without rows."""
    return ", ".join(map(_counted, tally(rows)))


def _counted(kind: Mapping[str, Any]) -> str:
    how_many = f"{kind['pass']} of {kind['rows']}" if kind["pass"] is not None else str(kind["rows"])
    return f"{kind['kind']} {how_many}"
