"""MPICH's selection as the JSON tree that it reads."""

from __future__ import annotations

from ringwright.algorithms.libraries.mpich2.rules import selection
from ringwright.exports.mpich_json import to_mpich_json

EXPORTS = {"mpich-json": "tree"}


def tree(question: object, spelling: str) -> bytes:
    """Return the file's bytes; it is the same for every question."""
    del question, spelling
    return to_mpich_json(selection())
