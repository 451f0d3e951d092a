"""A tree of ordered tests -> MPICH's collective selection file (JSON).

Load it with ``MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE=FILE``. Source of the format: pmodels/mpich ``maint/tuning/coll``.
"""

from __future__ import annotations

import json
from typing import Any

from ringwright.costs.selection import Choice, Tree
from ringwright.ground.errors import UsageError


def to_mpich_json(tree: Tree) -> bytes:
    """Return the file's text; UsageError where two tests of one list are the same, for a JSON object cannot hold both."""
    return (json.dumps(_node(tree), indent=4) + "\n").encode()


def _node(tree: Choice | Tree) -> dict[str, Any]:
    if isinstance(tree, Choice):
        return {f"{tree.kind}={tree.name}": {f"{knob}={value}": {} for knob, value in tree.knobs}}
    written: dict[str, Any] = {}
    for branch in tree:
        if str(branch.test) in written:
            raise UsageError(f"the test '{branch.test}' stands twice in one list", remedy="leave out the second")
        written[str(branch.test)] = _node(branch.then)
    return written
