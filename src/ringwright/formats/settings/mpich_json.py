"""A tree of ordered tests -> MPICH's collective selection file (JSON).

Load it with ``MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE=FILE``. Source of the format: pmodels/mpich ``maint/tuning/coll``.

The keys of the nested object are tests (``comm_size<8``, ``avg_msg_size=any``), tried in the order of the file; a key
``algorithm=NAME`` or ``composition=NAME`` ends the walk, and the keys of its object are parameters (``k=2``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from ringwright.costs.selection import Branch, Choice, Tree, parse_test
from ringwright.formats.sources.gate.small_file import read_whole
from ringwright.ground.errors import InputError, UsageError


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


# read back


KINDS = ("algorithm", "composition")
_DEEPEST = 40
_REMEDY = "compare with what ringwright.formats.settings.mpich_json writes"


def read_mpich_json(path: Path | str) -> Tree:
    """Return the tree of a selection file; InputError names the entry that is wrong."""
    path = Path(path)
    return parse_mpich_json(read_whole(path, "the selection file", _REMEDY), str(path))


def parse_mpich_json(text: str, where: str = "selection") -> Tree:
    """Return the tree of a selection file's text; ``where`` names it in errors."""
    try:
        document = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        _fail(f"not JSON: {error.msg}", f"{where}:{error.lineno}")
    except RecursionError:
        _fail("nested too deeply", where)
    except _TwiceError as error:
        _fail(f"the key '{error}' stands twice in one object; its first rules would be lost", where)
    tree = _outcome(document, where, 0)
    if isinstance(tree, Choice):
        return (Branch(parse_test("collective=any"), tree),)
    return tree


class _TwiceError(ValueError):
    """An object that names a key twice."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise _TwiceError(key[:80])
        members[key] = value
    return members


def _outcome(node: Any, where: str, depth: int) -> Choice | Tree:
    if not isinstance(node, dict) or not node:
        _fail("an object with tests or an algorithm should stand here", where)
    if depth > _DEEPEST:
        _fail("nested too deeply", where)
    first = next(iter(node))
    if first.partition("=")[0] in KINDS:
        return _choice(node, where)
    branches = []
    for key, inner in node.items():
        try:
            test = parse_test(key)
        except UsageError as error:
            _fail(error.what, where)
        branches.append(Branch(test, _outcome(inner, f"{where}: {key}", depth + 1)))
    return tuple(branches)


def _choice(node: dict[str, Any], where: str) -> Choice:
    if len(node) > 1:
        _fail("an algorithm stands beside other keys", where)
    (key, knobs), *_ = node.items()
    kind, _, name = key.partition("=")
    if not name or not isinstance(knobs, dict):
        _fail(f"'{key[:80]}' should be {kind}=NAME with an object of parameters", where)
    pairs = [knob.partition("=") for knob in knobs]
    return Choice(name, tuple((knob, value) for knob, _, value in pairs), kind)


def _fail(what: str, where: str) -> NoReturn:
    raise InputError(f"bad selection file: {what}", where=where, remedy=_REMEDY)
