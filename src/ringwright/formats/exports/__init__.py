"""Exports: what other systems read, as files. The folder listing is the registry, with that of ``formats.settings``.

A module here says which exports it has and which of its functions writes them; its first parameter says of what::

    EXPORTS = {"goal": "goal", "goal-binary": "goal_binary"}

    def goal(program: Program) -> bytes: ...             # bytes, or several files: list[bytes], dict[int | str, bytes]
    def csv(trace: Trace, path: str, *, force: bool = False) -> list[Path]: ...    # of a trace: writes, returns the files

Other distributions add theirs by entry point of ``ringwright.exports``: its name is the export, the function what it names.
"""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from ringwright.ground import plugins
from ringwright.ground.errors import PluginError, UsageError
from ringwright.ground.plugins import Plugin, origin_of

TAKES = ("program", "collective", "topology", "question", "trace", "workload")
FOLDERS = (__name__, "ringwright.formats.settings")  # the second: what is read back, too


@dataclass(frozen=True)
class Export:
    """One export: its name, of what it is (a word of ``TAKES``), and where the function is that writes it."""

    name: str
    takes: str
    module: str
    function: str
    plugin: Plugin | None = None

    @property
    def origin(self) -> str:
        """Who adds it: ``house``, or the name of the distribution."""
        return origin_of(self.plugin)

    def load(self) -> Callable[..., Any]:
        """Import and return the function."""
        function: Callable[..., Any] = (
            getattr(import_module(self.module), self.function) if self.plugin is None else self.plugin.call()
        )
        return function

    def files(self, *given: Any) -> list[bytes] | dict[int | str, bytes]:
        """Return what it writes: one file, or several, by rank or by name; PluginError for a plug-in that gives no bytes."""
        made = self.load()(*given)
        listed = [made] if isinstance(made, bytes) else made
        if self.plugin is not None and not _are_files(listed):
            raise self.plugin.error(f"it returned {type(made).__name__}, not bytes or a list of them")
        files: list[bytes] | dict[int | str, bytes] = listed
        return files

    def write(self, trace: object, path: str | Path, *, force: bool = False) -> list[Path]:
        """Write a trace and return the files; PluginError for a plug-in that does not say which."""
        made = self.load()(trace, path, force=force)
        listed = [made] if isinstance(made, str | Path) else made
        if self.plugin is None or (isinstance(listed, list) and all(isinstance(one, str | Path) for one in listed)):
            return [Path(one) for one in listed]
        raise self.plugin.error(f"it returned {type(made).__name__}, not the files that it wrote")


def _are_files(made: object) -> bool:
    each = made.values() if isinstance(made, dict) else made
    return isinstance(each, Iterable) and not isinstance(each, str) and all(isinstance(one, bytes) for one in each)


def exports(*takes: str) -> dict[str, Export]:
    """Return the exports of something by name, in the order of ``takes``, those of other distributions last.

    Of our own nothing is imported; those of others are, and what cannot be used is left out (``problems``).
    """
    house = of_house(*takes)
    outside = (_outsider(each) for each in plugins.points("exports", _taken()) if _problem(each) is None)
    return {**house, **{each.name: each for each in outside if each.takes in takes}}


def of_house(*takes: str) -> dict[str, Export]:
    """Return our own exports of something by name."""
    listed = [each for folder in FOLDERS for each in in_folder(folder)]
    return {each.name: each for what in takes for each in listed if each.takes == what}


def find(name: str, *takes: str, also: Sequence[Export] = ()) -> Export:
    """Return the export of that name; UsageError with the names there are, PluginError for one of others that cannot be used.

    ``also``: further ones that count as our own.
    """
    house = {**of_house(*takes), **{each.name: each for each in also}}
    if name in house:
        return house[name]
    plugin = next((each for each in plugins.points("exports", _taken()) if each.name == name), None)
    if plugin is not None and (found := _outsider(plugin)).takes in takes:
        return found
    if plugin is not None:
        raise UsageError(
            f"'{name}' is an export of a {found.takes.capitalize()}, not of a {_either(takes)}",
            remedy=REMEDY[found.takes],
        )
    known = [*house, *exports(*takes)]
    near = difflib.get_close_matches(name, known, 3)
    hint = f"; perhaps {', '.join(near)}" if near else ""
    raise UsageError(
        f"'{name}' is no export of a {_either(takes)}",
        remedy=f"ringwright list formats; one of: {', '.join(dict.fromkeys(known))}{hint}",
    )


def _either(takes: Sequence[str]) -> str:
    return " or ".join(each.capitalize() for each in takes if each not in ("collective", "question"))


REMEDY = {
    **dict.fromkeys(
        ("program", "collective", "topology", "question"), "ringwright export COLLECTIVE --to NAME -o FILE"
    ),
    "trace": "ringwright convert LOG --format NAME -o FILE",
    "workload": "ringwright workload MODEL --to NAME -o FILE",
}


def problems() -> list[PluginError]:
    """Return why exports of others cannot be used."""
    return [error for plugin in plugins.points("exports", _taken()) if (error := _problem(plugin)) is not None]


@cache
def in_folder(package: str) -> tuple[Export, ...]:
    """Return what the modules of a package say under EXPORTS, by reading them; nothing is imported."""
    folder = Path(str(import_module(package).__file__)).parent
    exports = []
    for path in sorted(folder.glob("*.py")):
        source = path.read_text()
        if path.stem != "__init__" and "\nEXPORTS = " in source:
            exports += _said(ast.parse(source), f"{package}.{path.stem}")
    return tuple(exports)


def _said(tree: ast.Module, module: str) -> list[Export]:
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    listed: dict[str, str] = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "EXPORTS"
    )
    return [Export(name, functions[call].args.args[0].arg, module, call) for name, call in listed.items()]


def _taken() -> tuple[str, ...]:
    return tuple(of_house(*TAKES))


def _problem(plugin: Plugin) -> PluginError | None:
    return plugin.problem(lambda: _outsider(plugin))


def _outsider(plugin: Plugin) -> Export:
    """Return an export of others; PluginError where its first parameter does not say of what it is."""
    call = plugin.call()
    try:
        first = next(iter(inspect.signature(call).parameters), "")
    except (TypeError, ValueError) as error:
        raise plugin.error(f"its signature cannot be read: {error}") from error
    if first not in TAKES:
        raise plugin.error(f"its first parameter is '{first}', which is none of {', '.join(TAKES)}")
    return Export(plugin.name, first, plugin.module, plugin.attribute, plugin)
