"""The contract of laws: a sentence with a source, that refuses what breaks it, says why, and lets pass what does not.

A law brings examples of both kinds; a law that refuses none of what breaks it is no law.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from ringwright.bounds.laws import LAWS, Law, Refusals, of_ledger, reason, told_by
from ringwright.bounds.laws.law import trying
from ringwright_lab.contracts.outcome import Outcome, TriedInput

LEAST_WORDS = 6  # of a sentence
_NAME = re.compile(r"[a-z]+( [a-z]+)?")


def well_named(law: Law) -> str | None:
    """Its name is one word or two, in small letters."""
    return None if _NAME.fullmatch(law.name) else f"'{law.name}' is not one word or two, in small letters"


def stated(law: Law) -> str | None:
    """It is a sentence, and says where it is from."""
    if len(law.statement.split()) < LEAST_WORDS:
        return f"'{law.statement}' is no sentence: say what must hold"
    return None if law.source.strip() else "it has no source: who says that this must hold?"


def kept(law: Law) -> str | None:
    """What keeps it is let pass."""
    if not law.kept:
        return "it has no example that keeps it"
    for example in law.kept:
        if said := law.load()(*example):
            return f"it refuses {_shown(example)}, which keeps it: {said}"
    return None


def refuses(law: Law) -> str | None:
    """What breaks it is refused."""
    if not law.broken:
        return "it has no example that breaks it: it may never refuse anything"
    for example in law.broken:
        if not law.load()(*example):
            return f"it lets {_shown(example)} pass, which breaks it"
    return None


def says_why(law: Law) -> str | None:
    """A refusal says why, in words on one line, and the same each time."""
    for example in law.broken:
        said = law.load()(*example)
        if not isinstance(said, str) or len(said.split()) < 2 or "\n" in said:
            return f"of {_shown(example)} it says {said!r}, not why it is refused, in one line"
        if law.load()(*example) != said:
            return f"of {_shown(example)} it says something else each time"
    return None


def counted(law: Law) -> str | None:
    """A refusal is found again in a ledger, with its reason."""
    said = str(law.load()(*law.broken[0]))
    if told_by(reason(law.name, said)) != (law.name, said):
        return f"'{reason(law.name, said)}' is not told as a refusal of it"
    row = {"reason": reason(law.name, said), "outcome": "refused", "example": "", "lines": 3}
    wanted = Refusals()
    wanted.refuse(law.name, said, 3)
    return None if of_ledger([row]).rows() == wanted.rows() else "a ledger's line is not counted as a refusal of it"


CHECKS: dict[str, Callable[[Law], str | None]] = {
    "named": well_named,
    "stated": stated,
    "kept": kept,
    "refuses": refuses,
    "why": says_why,
    "counted": counted,
}


def _shown(example: tuple[Any, ...]) -> str:
    text = ", ".join(map(repr, example))
    return text if len(text) < 90 else text[:87] + "..."


def check_law(law: str | Law) -> list[Outcome]:
    """Return the outcome of every check on a law; ``failures`` of them lists what is wrong.

    Checked is that it is a sentence with a source, that its judge refuses the examples that break it and no others, and that a
    refusal says why and is counted.

    Parameters
    ----------
    law
        Its name, of the house or of an entry point of ``ringwright.bounds.laws``, or a ``ringwright.bounds.laws.Law``.

    Returns
    -------
    list of Outcome
        One: the law with its examples.

    Examples
    --------
    >>> from ringwright_lab.testing import check_law, failures
    >>> failures(check_law("busbw"))
    []
    """
    if isinstance(law, str):
        if law not in LAWS:
            why = f"'{law}' is no law that is known: {', '.join(LAWS)}"
            return [Outcome(TriedInput(law), failed={"known": why})]
        law = LAWS[law]
    outcome = Outcome(TriedInput(law.name))
    with trying(law):
        for name, look in CHECKS.items():
            outcome.run(name, partial(look, law))
    return [outcome]
