"""What a row of a paper's file may prove: five kinds, told apart before the row is run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

PREDICTION, FORM, EXACT, FITTED, IDENTITY = KINDS = ("prediction", "form", "exact", "fitted", "identity")
MEANING = {
    PREDICTION: "a published number; nothing was fitted to it, and its tolerance can fail",
    FORM: "sign, order or shape only, often in a band of this project's own",
    EXACT: "a closed form or a count that must come out to the digit",
    FITTED: "an assumed constant was chosen so that this or a neighbouring row comes out: no evidence",
    IDENTITY: "true by construction, whatever the system does: no evidence",
}


def tally(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return kind, rows and how many pass, predictions first; kinds without a row are left out."""
    every = list(rows)
    tallied = []
    for kind in KINDS:
        mine = [row for row in every if row["kind"] == kind]
        if mine:
            tallied.append({"kind": kind, "rows": len(mine), "pass": sum(row["pass"] for row in mine)})
    return tallied


def sentence(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the tally in words: ``prediction 4 of 11, exact 9 of 9``; empty without rows."""
    return ", ".join(f"{each['kind']} {each['pass']} of {each['rows']}" for each in tally(rows))
