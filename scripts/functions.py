#!/usr/bin/env python3
"""Functions above a limit: too long, with too many parameters, nested too deeply, or with too many branches.

A function keeps what it is above by a reason: a comment directly above its ``def``, ``# long: ...``, ``# parameters: ...``,
``# nested: ...`` or ``# branches: ...``; one reason for two limits names both, ``# long, branches: ...``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
LIMITS = {"long": 50, "parameters": 12, "nested": 5, "branches": 15}
NAMES = {
    "long": f"functions longer than {LIMITS['long']} lines",
    "parameters": f"functions with more than {LIMITS['parameters']} parameters",
    "nested": f"functions nested deeper than {LIMITS['nested']}",
    "branches": f"functions with a complexity above {LIMITS['branches']}",
}
_REASON = re.compile(r"\s*# ([a-z]+(?:, [a-z]+)*): (.+)")
_BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case, ast.IfExp)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Oversize:
    """A function above a limit: which, by how much, where, and the reason beside it (or none)."""

    limit: str
    value: int
    path: Path
    line: int
    name: str
    reason: str


def everything(tree: ast.AST) -> list[ast.AST]:
    """Return what a tree holds, as ``ast.walk`` yields it but for contexts: whoever reads all files waits for this."""
    found = [tree]
    for node in found:
        found += _children(node)
    return found


def _children(node: ast.AST) -> list[ast.AST]:
    """Return the nodes directly in one, but for contexts."""
    held: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if type(value) is list:
            held += [each for each in value if isinstance(each, ast.AST)]
        elif name != "ctx" and isinstance(value, ast.AST):
            held.append(value)
    return held


def oversized(nodes: Mapping[Path, Iterable[ast.AST]], texts: Mapping[Path, str]) -> Iterator[Oversize]:
    """Yield each function above each limit, whether it has a reason or not; ``nodes``: everything in each file."""
    for path, held in nodes.items():
        for node in held:
            if not isinstance(node, Function):
                continue
            for limit, measure in MEASURES.items():
                if limit in ("long", "nested") and (node.end_lineno or 0) - node.lineno < LIMITS[limit]:
                    continue  # each block is on a line of its own
                if (value := measure(node)) > LIMITS[limit]:
                    reason = reasons(texts[path].splitlines(), node).get(limit, "")
                    yield Oversize(limit, value, path, node.lineno, node.name, reason)


def reasons(lines: list[str], node: Function) -> dict[str, str]:
    """Return the reasons in the comment directly above a function, by limit."""
    given: dict[str, str] = {}
    above = min([node.lineno, *(each.lineno for each in node.decorator_list)]) - 2
    while above >= 0 and lines[above].lstrip().startswith("#"):
        if match := _REASON.fullmatch(lines[above]):
            given |= dict.fromkeys(match[1].split(", "), match[2])
        above -= 1
    return given


def length(node: Function) -> int:
    """Return the lines from ``def`` to the end, the docstring left out."""
    first, lines = node.body[0], (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node, clean=False) is not None and first.end_lineno is not None:
        lines -= first.end_lineno - first.lineno + 1
    return lines


def parameters(node: Function) -> int:
    """Return how many parameters a function has, ``self`` and what is starred left out."""
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return sum(each.arg not in ("self", "cls") for each in every)


def nesting(node: ast.AST) -> int:
    """Return how many blocks lie within each other at most; ``elif`` is no block of its own, nor is a function inside."""
    deepest = 0
    for name, value in ast.iter_fields(node):
        each = [child for child in (value if isinstance(value, list) else [value]) if isinstance(child, ast.AST)]
        is_elif = isinstance(node, ast.If) and name == "orelse" and len(each) == 1 and isinstance(each[0], ast.If)
        for child in each:
            if not isinstance(child, (*_DEFINITIONS, ast.expr)):  # no block is inside an expression
                deepest = max(deepest, nesting(child) + (isinstance(child, _BLOCKS) and not is_elif))
    return deepest


def complexity(node: Function) -> int:
    """Return the cyclomatic complexity: one more than its branches, loops, handlers, cases, conditions and filters."""
    total = 1
    for each in _inside(node):
        if isinstance(each, _BRANCHES):
            total += 1
        elif isinstance(each, ast.BoolOp):
            total += len(each.values) - 1
        elif isinstance(each, ast.comprehension):
            total += len(each.ifs)
    return total


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a function holds, functions and classes inside left out: they are measured by themselves."""
    left: list[ast.AST] = [node]
    while left:
        inside = [child for child in _children(left.pop()) if not isinstance(child, _DEFINITIONS)]
        yield from inside
        left += inside


MEASURES: dict[str, Callable[[Function], int]] = {
    "long": length,
    "parameters": parameters,
    "nested": nesting,
    "branches": complexity,
}
