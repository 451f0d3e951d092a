"""Plug-ins: what other distributions add by entry point, found without importing any of it and loaded as it is written.

An entry point names an object of a module, in one of these groups::

    [project.entry-points."ringwright.algorithms"]
    my-ring = "outside:other_name"

``points`` lists what is installed; ``Plugin.load`` imports one. What cannot be loaded is a PluginError that names the
distribution and the entry point, and is met by those alone who ask for it.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ringwright.ground.errors import PluginError

if TYPE_CHECKING:
    from importlib.metadata import Distribution
    from types import FrameType

    from ringwright.ground.knobs import Knob

GROUPS = (
    "algorithms",
    "schedulers",
    "sources",
    "exports",
    "fabrics",
    "families",
    "codecs",
    "pipelines",
    "laws",
    "executors",
)
HOUSE = "house"  # the origin of what ships with Ringwright
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # what can be typed: no : @ + , or blank
_loaded: dict[Plugin, None] = {}  # those that were asked for, in that order


@dataclass(frozen=True)
class Plugin:
    """One entry point: ``value`` is as written, ``module:attribute``; ``refused`` is why its name cannot be used."""

    group: str
    name: str
    value: str
    distribution: str
    version: str = ""
    refused: str = ""

    @property
    def module(self) -> str:
        """The module that its value names."""
        return self.value.partition(":")[0].strip()

    @property
    def attribute(self) -> str:
        """The object in that module; empty where it names the module itself."""
        return self.value.partition(":")[2].partition("[")[0].strip()

    def load(self) -> Any:
        """Import and return the object; of a module named alone its object of the plug-in's name, if it has one.

        Raises PluginError for whatever goes wrong there.
        """
        if self.refused:
            raise self.error(self.refused)
        _loaded.setdefault(self)
        try:
            target: Any = import_module(self.module)
            for name in filter(None, self.attribute.split(".")):
                target = getattr(target, name)
        except (Exception, SystemExit) as error:
            raise self.error(f"{type(error).__name__}: {' '.join(str(error).split())}") from error
        if isinstance(target, ModuleType):
            return getattr(target, self.name.replace("-", "_"), target)
        return target

    def call(self) -> Any:
        """Return the object, which must be one that can be called; raises PluginError."""
        target = self.load()
        if not callable(target):
            what = "a module" if isinstance(target, ModuleType) else f"of type {type(target).__name__}"
            raise self.error(f"{self.value} is {what}, not a function")
        return target

    def knobs(self, meanings: Mapping[str, str] | None = None) -> dict[str, Knob]:
        """Return the knobs of what it names, from its signature; what each means is from ``Knobs:`` in its docstring.

        ``meanings``: of knobs that all of its kind have. Raises PluginError where the signature cannot be read.
        """
        from ringwright.ground.headings import clause, of_several
        from ringwright.ground.knobs import knobs_of

        call = self.call()
        text = of_several(self.written()[1]).get("Knobs", "")
        try:
            return knobs_of(inspect.unwrap(call), lambda name: (meanings or {}).get(name, "") or clause(text, name))
        except Exception as error:
            raise self.error(f"its signature cannot be read: {type(error).__name__}: {error}") from error

    def problem(self, use: Callable[[], object]) -> PluginError | None:
        """Return why it cannot be used, as ``use`` shows; None where it can."""
        if self.refused:
            return self.error(self.refused)
        try:
            use()
        except PluginError as error:
            return error
        return None

    def error(self, why: str, *, verb: str = "cannot be used", remedy: str = "") -> PluginError:
        """Return the error that says whose plug-in fails, where it was declared, and what can be done."""
        return PluginError(
            f"the plug-in '{self.name}' of {self.distribution} {self.version}".rstrip() + f" {verb}: {why}",
            where=f'entry point {self.name} = "{self.value}" in the group ringwright.{self.group}',
            remedy=remedy or f"mend it, or pip uninstall {self.distribution}",
        )

    def failed(self, error: BaseException, remedy: str) -> PluginError:
        """Return the error for an exception that came through its code, with the last line there."""
        steps = traceback.extract_tb(error.__traceback__)
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        mine = [step for step, frame in zip(steps, frames, strict=True) if _owner(frame) is not None]
        line = f" ({Path(mine[-1].filename).name}:{mine[-1].lineno})" if mine else ""
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}{line}"
        return self.error(what, verb="failed", remedy=remedy)

    def told(self, name: str, default: Any = ()) -> Any:
        """Return what is said of the object beside it: its attribute ``name``, else that of its module."""
        target = self.load()
        home = sys.modules.get(getattr(target, "__module__", self.module), sys.modules.get(self.module))
        return getattr(target, name, getattr(home, name, getattr(sys.modules[self.module], name, default)))

    def written(self) -> tuple[int, tuple[str, ...]]:
        """Return the lines of its module and the docstrings of module and object, of those that have one.

        Nothing is imported; (0, ()) where the source cannot be found.
        """
        try:
            source = Path(_file(self.module)).read_text()
            tree = ast.parse(source)
        except (ImportError, OSError, SyntaxError, ValueError, AttributeError):
            return 0, ()
        here = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef))
        mine = [ast.get_docstring(node) for node in here if node.name == self.attribute]
        return len(source.splitlines()), tuple(filter(None, [ast.get_docstring(tree), *mine]))


def origin_of(plugin: Plugin | None) -> str:
    """Return who adds a thing: ``house``, or the name of the distribution."""
    return HOUSE if plugin is None else plugin.distribution


def points(group: str, taken: Iterable[str] = ()) -> tuple[Plugin, ...]:
    """Return what is installed in a group, by name, of every path that Python looks in now; nothing of it is imported.

    ``taken``: names that the house has; they stay ours.
    """
    ours = frozenset(taken)
    return tuple(
        replace(each, refused=f"Ringwright has a '{each.name}' of its own") if each.name in ours else each
        for each in _installed(tuple(sys.path)).get(group, ())
    )


@cache
def _installed(_path: tuple[str, ...]) -> dict[str, tuple[Plugin, ...]]:
    from importlib.metadata import distributions

    by_group: dict[str, list[Plugin]] = {group: [] for group in GROUPS}
    owners: set[str] = set()
    for each in distributions():
        if _names_us(each) and each.name not in owners:  # of two of one name Python imports the first
            owners.add(each.name)
            for plugin in _entries(each):
                by_group[plugin.group].append(plugin)
    return {group: _by_name(listed) for group, listed in by_group.items()}


def _names_us(distribution: Distribution) -> bool:
    """Whether its list of entry points, unparsed, has a group of ours; most have not, and cost no more than this."""
    try:
        return "[ringwright." in (distribution.read_text("entry_points.txt") or "")
    except (OSError, ValueError):
        return False


def _entries(distribution: Distribution) -> list[Plugin]:
    owner = (distribution.name, distribution.version)
    try:
        listed = [(each.group.removeprefix("ringwright."), each) for each in distribution.entry_points]
    except Exception as error:  # noqa: BLE001 - what others wrote into their list spoils nothing but theirs
        why = f"the list of entry points cannot be read: {type(error).__name__}: {error}"
        return [Plugin("algorithms", "entry_points.txt", "", *owner, why)]
    return [
        Plugin(group, each.name, each.value, *owner)
        for group, each in listed
        if group in GROUPS and each.group != group
    ]


def _by_name(listed: list[Plugin]) -> tuple[Plugin, ...]:
    """Sort, and refuse names that cannot be typed and names that two distributions give."""
    made = []
    for each in sorted(set(listed), key=lambda one: (one.name, one.distribution, one.value)):
        others = [other.distribution for other in listed if other.name == each.name and other != each]
        if not _NAME.fullmatch(each.name):
            each = replace(each, refused="its name cannot be typed: letters, digits, dashes")  # noqa: PLW2901
        elif others:
            each = replace(each, refused=f"{others[0]} has one of the same name")  # noqa: PLW2901
        made.append(each)
    return tuple(made)


def _file(module: str) -> str:
    """Return where the source of a module lies, from the finders alone: no package on the way is imported."""
    top, *rest = module.split(".")
    spec: ModuleSpec | None = find_spec(top)
    name = top
    for part in rest:
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, spec.submodule_search_locations if spec else [])
    if spec is None or not spec.origin:
        raise ImportError(module)
    return spec.origin


def blame(error: BaseException) -> Plugin | None:
    """Return the plug-in whose code an error came through, the innermost; None where it is all our own."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][::-1]
    named = (_owner(frame, by_function=True) for frame in frames)
    owners = (_owner(frame) for frame in frames)
    return next(filter(None, named), None) or next(filter(None, owners), None)


def _owner(frame: FrameType, *, by_function: bool = False) -> Plugin | None:
    """Return the plug-in that names a frame's function, or else its module or package; none for our own code."""
    module = str(frame.f_globals.get("__name__", ""))
    top = module.partition(".")[0]
    if top == __name__.partition(".")[0]:
        return None
    if by_function:
        here = (each for each in _loaded if each.module == module)
        return next((each for each in here if each.attribute == frame.f_code.co_name), None)
    same = [each for each in _loaded if each.module == module]
    return next(iter(same or [each for each in _loaded if each.module.partition(".")[0] == top]), None)
