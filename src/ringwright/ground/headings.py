"""What a docstring says under headings: ``Idea:``, ``Cost:``, ``Knobs:`` and so on, each at the start of a line."""

from __future__ import annotations

import re

HEADINGS = ("Idea", "Cost", "Knobs", "Holds", "Figure", "Source", "Declines")
_HEADING = re.compile(rf"^({'|'.join(HEADINGS)}):\s*", re.MULTILINE)
_BETWEEN = re.compile(r";(?![^(]*\))")  # semicolons outside brackets


def headings(docstring: str) -> dict[str, str]:
    """Return the sections of a docstring by heading, white space folded."""
    parts = _HEADING.split(docstring)
    return {name: " ".join(text.split()) for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def of_several(docstrings: tuple[str, ...]) -> dict[str, str]:
    """Return the sections of a module's and its function's docstring; without an idea their first sentences are it."""
    said = {key: text for docstring in docstrings for key, text in headings(docstring).items()}
    if "Idea" in said or not docstrings:
        return said
    return {"Idea": " ".join(docstrings[-1].split("\n\n")[0].split()), **said}


def clause(text: str, name: str) -> str:
    """Return what the section of knobs says of one: the clause, between semicolons, that names it first."""
    clauses = [each.strip(" .") for each in _BETWEEN.split(text.replace("``", ""))]
    return next((each for each in clauses if re.search(rf"\b{name}\b", each)), "")
