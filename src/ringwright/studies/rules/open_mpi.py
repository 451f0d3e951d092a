"""Open MPI's fixed decisions as the files of dynamic rules that its tuned component reads."""

from __future__ import annotations

from ringwright.algorithms.libraries.open_mpi.rules import fixed_table
from ringwright.exports.ompi_rules import to_rules_json, to_rules_text

EXPORTS = {"ompi-rules": "text", "ompi-rules-json": "json"}


def text(question: object, spelling: str) -> bytes:
    """Return the file's bytes; it is the same for every question."""
    del question, spelling
    return to_rules_text(fixed_table())


def json(question: object, spelling: str) -> bytes:
    """Return the file's bytes; it is the same for every question."""
    del question, spelling
    return to_rules_json(fixed_table())
