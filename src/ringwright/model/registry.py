"""All systems, by listing the folders they live in: one slug = one module or package = one callable.

Other distributions add theirs by entry point (``plugins``): an algorithm or scheduler is the callable that it names, with
``OPS`` and ``FABRICS`` beside it and the headings in its docstring.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.ground import plugins
from ringwright.ground.errors import PluginError, UsageError
from ringwright.ground.headings import HEADINGS, clause, headings, of_several
from ringwright.ground.knobs import Knob, knobs_of
from ringwright.ground.plugins import Plugin, origin_of
from ringwright.ground.spellings import parse, unknown

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.workload import Workload

__all__ = ["HEADINGS", "System", "algorithm", "find", "refused", "scheduler", "schedulers", "systems"]
ROOT = Path(__file__).resolve().parents[1]
# folder -> (family, class)
FOLDERS = {
    "algorithms/blocks": ("building-block", "block"),
    "algorithms/published": ("collective-library", "published"),
    "algorithms/libraries": ("collective-library", "library"),
    "algorithms/synthesis": ("collective-library", "synthesis"),
    "algorithms/innetwork/ethernet": ("in-network-aggregation", "ethernet"),
    "algorithms/innetwork/infiniband": ("in-network-aggregation", "infiniband"),
}
SCHEDULERS = {
    "schedulers/fifo": ("communication-scheduling", "fifo"),
    "schedulers/priority": ("communication-scheduling", "priority"),
    "schedulers/decompose": ("communication-scheduling", "decompose"),
}
ALSO_CALLED = {"halving-doubling": "rabenseifner"}  # what the literature calls them besides
_BESIDE_NUMBERS = re.compile(r"\+(?![0-9])")  # joins schedulers; that of 1e+06 does not


@dataclass(frozen=True)
class System:
    """One system: where it lives, what its docstring says, how long it is; ``plugin`` where another distribution adds it."""

    slug: str
    family: str
    kind: str
    module: str
    lines: int
    headings: dict[str, str] = field(repr=False)
    plugin: Plugin | None = field(default=None, repr=False)

    @property
    def origin(self) -> str:
        """Who adds it: ``house``, or the name of the distribution."""
        return origin_of(self.plugin)

    @property
    def problem(self) -> PluginError | None:
        """Why it cannot be used; None where it can, as all of our own."""
        return None if self.plugin is None else self.plugin.problem(self.knobs)

    @property
    def ops(self) -> tuple[str, ...]:
        """Collectives it offers; none where it cannot be loaded."""
        return self._told("OPS")

    @property
    def fabrics(self) -> tuple[str, ...]:
        """Fabrics to check it on besides, or instead of, the plain ones: those with what it needs."""
        return self._told("FABRICS")

    def _told(self, name: str) -> tuple[str, ...]:
        if self.plugin is None:
            return tuple(getattr(import_module(self.module), name, ()))
        return () if self.plugin.group != "algorithms" or self.problem else tuple(self.plugin.told(name))

    @property
    def needs(self) -> tuple[str, ...]:
        """What it needs of a job and a machine besides a collective that it does: names of ``survey.needs``."""
        if self.plugin is None:
            return tuple(getattr(import_module(self.module), "NEEDS", ()))
        return () if self.problem else tuple(self.plugin.told("NEEDS"))

    @property
    def hardware(self) -> str:
        """What it needs that no machine has yet, in words; empty for what can be switched on today."""
        return "" if self.plugin is not None else str(getattr(import_module(self.module), "HARDWARE", ""))

    @property
    def rounds(self) -> bool:
        """Whether its numbers travel in a format that rounds, so that its sums are not the plain ones to the bit."""
        return self.plugin is None and bool(getattr(import_module(self.module), "ROUNDS", False))

    def knobs(self) -> dict[str, Knob]:
        """Its knobs by name, from the callable's signature; what each means is from its docstring."""
        if self.plugin is not None:
            return self.plugin.knobs()
        text = self.headings.get("Knobs", "")
        return knobs_of(self.load(), lambda name: clause(text, name))

    def load(self) -> Callable[..., Any]:
        """Import and return the callable: an algorithm makes a Program, a scheduler a Workload; PluginError for neither."""
        if self.plugin is not None:
            return _checked(self.plugin)
        function: Callable[..., Any] = getattr(import_module(self.module), self.slug.replace("-", "_"))
        return function


def _checked(plugin: Plugin) -> Callable[..., Any]:
    """Return the callable of a plug-in, which answers with a Program or a Workload or not at all."""
    call = plugin.call()
    wanted = "Program" if plugin.group == "algorithms" else "Workload"

    @wraps(call)
    def checked(*given: Any, **knobs: Any) -> Any:
        from ringwright.model.program import Program
        from ringwright.model.workload import Workload

        made = call(*given, **knobs)
        if not isinstance(made, Program if wanted == "Program" else Workload):
            raise plugin.error(f"it returned {type(made).__name__}, not a {wanted}")
        return made

    return checked


def systems() -> tuple[System, ...]:
    """Return every system that does collectives, in the order of the folders, plug-ins last; nothing is imported."""
    return _with_outsiders("algorithms")


def schedulers() -> tuple[System, ...]:
    """Return every system that orders communication, in the order of the folders, plug-ins last; nothing is imported."""
    return _with_outsiders("schedulers")


def refused() -> tuple[Plugin, ...]:
    """Return the plug-ins whose names cannot be used, each with its reason."""
    listed = (plugins.points(group, _slugs(group)) for group in ("algorithms", "schedulers"))
    return tuple(each for group in listed for each in group if each.refused)


@cache
def _house(group: str) -> tuple[System, ...]:
    places = FOLDERS if group == "algorithms" else SCHEDULERS
    return tuple(system for folder, kind in places.items() for system in _list(folder, kind))


def _slugs(group: str) -> tuple[str, ...]:
    return (*(system.slug for system in _house(group)), *(ALSO_CALLED if group == "algorithms" else ()))


def _with_outsiders(group: str) -> tuple[System, ...]:
    outside = plugins.points(group, _slugs(group))
    return (*_house(group), *(_outsider(each) for each in outside if not each.refused))


def _list(folder: str, kind: tuple[str, str]) -> Iterator[System]:
    here = ROOT / folder
    if not here.is_dir():
        return
    for path in sorted(here.iterdir()):
        name = path.stem
        front = path / "__init__.py" if path.is_dir() else path
        if name.startswith("_") or not front.is_file() or front.suffix != ".py":
            continue
        tree = ast.parse(front.read_text())
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        names |= {
            alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
        }
        if name not in names:
            raise UsageError(
                f"{folder}/{path.name} has no function '{name}': it is no system",
                remedy=f"name the function like the file, or the file _{path.name} where several systems share it",
            )
        files = path.rglob("*.py") if path.is_dir() else [path]
        lines = sum(len(file.read_text().splitlines()) for file in files)
        module = ".".join(("ringwright", *folder.split("/"), name))
        yield System(name.replace("_", "-"), *kind, module, lines, headings(ast.get_docstring(tree) or ""))


@cache
def _outsider(plugin: Plugin) -> System:
    lines, docstrings = plugin.written()
    return System(plugin.name, "plug-in", "outside", plugin.module, lines, of_several(docstrings), plugin)


def find(name: str, among: Callable[[], tuple[System, ...]] = systems) -> System:
    """Return the system of that slug; raise UsageError with the nearest names."""
    found = {system.slug: system for system in among()}
    name = ALSO_CALLED.get(name, name)
    if name in found:
        return found[name]
    for plugin in refused():
        if plugin.name == name:
            raise plugin.error(plugin.refused)
    other = {system.slug for system in (schedulers if among is systems else systems)()}
    if name in other:
        what = (
            "orders communication, it does no collective" if among is systems else "does collectives, it orders nothing"
        )
        raise UsageError(f"'{name}' {what}", remedy=f"--{'policy' if among is systems else 'algorithm'} {name}")
    near = difflib.get_close_matches(name, found, 3) or list(found)[:8]
    listed = "algorithms" if among is systems else "policies"
    raise UsageError(f"no system is called '{name}'", remedy=f"ringwright list {listed}; perhaps {', '.join(near)}")


def composed(spelling: str) -> list[str]:
    """Return the schedulers that a spelling joins, the outer one first."""
    return _BESIDE_NUMBERS.split(spelling)


def scheduler(spelling: str) -> tuple[str, Callable[..., Workload]]:
    """Return (label, scheduler) of ``slug``, ``slug:knob=value`` or ``outer+inner``, the knobs already given."""
    from functools import partial

    compose = import_module("ringwright.schedulers.compose").compose  # by name, as all that lies in a folder of systems
    made: list[Callable[..., Workload]] = []
    for part in composed(spelling):
        system, knobs = typed(part, schedulers)
        made.append(partial(system.load(), **knobs))
    outer = made.pop()
    while made:
        outer = compose(made.pop(), outer)
    return spelling, outer


def algorithm(spelling: str) -> tuple[str, Callable[..., Program], dict[str, Any]]:
    """Return (slug, callable, knobs) of ``slug``, ``slug@release`` or ``slug:knob=value:knob=value``.

    A release becomes the knob ``release``. Raises UsageError for a knob that the system does not have and a value that
    the knob cannot have.
    """
    system, knobs = typed(spelling, systems)
    return system.slug, system.load(), knobs


def typed(spelling: str, among: Callable[[], tuple[System, ...]]) -> tuple[System, dict[str, Any]]:
    """Return the system of ``slug@release:knob=value:...`` and its knobs' values, each of its type and in its range."""
    name, *settings = spelling.split(":")
    slug, _, release = name.partition("@")
    system = find(slug, among)
    said = [f"release={release}", *settings] if release else settings
    if release and "release" not in system.knobs():
        has = ", ".join(each.name for each in system.knobs().values() if each.can_be_typed)
        what = f"'@' names a release of a library; {slug} has none" + (
            f", but knobs, {slug}:KNOB=VALUE: {has}" if has else ""
        )
        raise UsageError(what, where=spelling, remedy=f"ringwright systems {slug}")
    return system, values(system.slug, system.knobs(), said, where=spelling)


def values(owner: str, known: Mapping[str, Knob], settings: Iterable[str], *, where: str) -> dict[str, Any]:
    """Return the value of each ``knob=value`` of ``owner``; UsageError for one that it does not have or cannot have."""
    chosen: dict[str, Any] = {}
    for key, value in (_pair(setting, owner, known, where) for setting in settings):
        if key not in known or not known[key].can_be_typed:
            raise unknown(owner, key, {each.name: each for each in known.values() if each.can_be_typed}, where=where)
        if key in chosen:
            raise UsageError(f"{key} is given twice", where=where, remedy=f"ringwright systems {owner}")
        chosen[key] = parse(owner, known[key], value, where=where, named=_named)
    return chosen


def _pair(setting: str, owner: str, known: Mapping[str, Knob], where: str) -> tuple[str, str]:
    key, equals, value = setting.partition("=")
    if not equals:
        some = next(iter(known), "knob")
        raise UsageError(
            f"'{setting}' in '{where}' is no knob=value, as {some}=... would be", remedy=f"ringwright systems {owner}"
        )
    return key.strip().replace("-", "_"), value


def _named(slug: str) -> Callable[..., Program]:
    """Return the algorithm that a knob names; UsageError with near names for none."""
    return find(slug).load()
