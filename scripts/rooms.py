#!/usr/bin/env python3
"""Rooms and arrows: which module imports which, as the import contract in pyproject.toml and the source itself say.

An arrow is an import wherever it stands: at the head of a file, inside a function, or for type checkers alone.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TYPES, LATE, HEAD = "types", "late", "head"
NO_ROOMS = ("__init__", "__main__", "samples")  # the face, its door, and files that are data


@dataclass(frozen=True)
class Arrow:
    """One module imports another: at its head, inside a function, or for types alone."""

    source: str
    target: str
    kind: str


class Rooms:
    """The modules of both packages, and the arrows between them."""

    def __init__(self, folder: Path, trees: Mapping[Path, ast.Module] | None = None) -> None:
        """``trees``: of files that are parsed already."""
        self.folder, self._trees = folder, trees or {}
        self.package = folder / "src" / "ringwright"
        self.modules = {name: path for root in sources(folder) for name, path in modules(root)}
        self.arrows = sorted(self._arrows(), key=lambda each: (each.source, each.target, each.kind))

    def names(self) -> list[str]:
        """Return the rooms of the product, by name."""
        inside = [each for each in self.package.iterdir() if each.is_dir() or each.suffix == ".py"]
        return sorted(
            each.stem for each in inside if each.stem not in NO_ROOMS and not each.name.startswith(("_", "."))
        )

    def layers(self) -> list[list[str]]:
        """Return the floors of the import contract, the top one first."""
        contracts = tomllib.loads((self.folder / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
        layers = next(each["layers"] for each in contracts if each["id"] == "floors")
        return [re.findall(r"\w+", layer) for layer in layers]

    def arrows_up(self) -> list[Arrow]:
        """Return arrows that do not go down: to a higher floor, to a neighbour, or from the product to its laboratory."""
        floor = {name: number for number, names in enumerate(reversed(self.layers())) for name in names}
        up = []
        for arrow in self.arrows:
            source, target = room_of(arrow.source), room_of(arrow.target)
            if "" in (source, target) or source == target or source not in floor:
                continue
            if target.startswith("ringwright_lab") or floor.get(target, len(floor)) >= floor[source]:
                up.append(arrow)
        return up

    def circles(self) -> list[list[str]]:
        """Return modules that import each other in a circle, at their heads or inside functions; and rooms, types included."""
        loaded = [arrow for arrow in self.arrows if arrow.kind != TYPES]
        rooms = {(room_of(each.source), room_of(each.target)) for each in self.arrows}
        between = [Arrow(source, target, HEAD) for source, target in rooms if "" not in (source, target)]
        return [*_circles(loaded), *_circles(between)]

    def _arrows(self) -> Iterator[Arrow]:
        for name, path in self.modules.items():
            tree = self._trees.get(path) or ast.parse(path.read_text())
            for target, kind in imports(tree):
                known = target if target in self.modules else target.rpartition(".")[0]
                if known in self.modules and known != name:
                    yield Arrow(name, known, kind)


def sources(folder: Path) -> list[Path]:
    """Return the folders of the packages: the product's, and its laboratory's where there is one."""
    every = (folder / "src" / "ringwright", folder / "lab" / "src" / "ringwright_lab")
    return [each for each in every if each.is_dir()]


def modules(package: Path) -> Iterator[tuple[str, Path]]:
    """Yield each module of a package with its file."""
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def room_of(module: str) -> str:
    """Return the room of a module: its folder in the package; of the laboratory with the package's name; none for the faces."""
    package, _, rest = module.partition(".")
    room = rest.partition(".")[0]
    if package == "ringwright":
        return "" if room in NO_ROOMS else room
    return f"{package}.{room}" if room else ""


def imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (module or its member, kind) of each import of a file, wherever it stands."""
    yield from _imports(tree.body, HEAD)


def _imports(body: Iterable[ast.AST], kind: str) -> Iterator[tuple[str, str]]:
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((f"{node.module}.{alias.name}", kind) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, kind) for alias in node.names)
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            if isinstance(inside := getattr(node, part, ()), list):  # statements alone: expressions import nothing
                for_types = kind == TYPES or (
                    part == "body" and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
                )
                yield from _imports(inside, TYPES if for_types else LATE)


def _circles(arrows: Iterable[Arrow]) -> list[list[str]]:
    """Return the strongly connected parts of more than one node (Tarjan, without recursion)."""
    graph: dict[str, list[str]] = defaultdict(list)
    for each in arrows:
        if each.source != each.target:
            graph[each.source].append(each.target)
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    parts: list[list[str]] = []
    for root in list(graph):
        work = [(root, iter(graph[root]))] if root not in number else []
        while work:
            node, rest = work[-1]
            if node not in number:
                number[node] = low[node] = len(number)
                stack.append(node)
            after = next((each for each in rest if each not in number or each in stack), None)
            if after is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    place = stack.index(node)
                    parts.append(stack[place:])
                    del stack[place:]
            elif after in number:
                low[node] = min(low[node], number[after])
            else:
                work.append((after, iter(graph[after])))
    return [sorted(part) for part in parts if len(part) > 1]
