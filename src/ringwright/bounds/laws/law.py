"""What a law is, the table of them, and how a refusal is written down.

The folder listing is the registry: a file here holds laws if it has them under ``LAWS``, and an entry point of
``ringwright.bounds.laws`` names a ``Law`` of another distribution. Nothing is imported before somebody asks for a law.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.ground import plugins
from ringwright.ground.errors import PluginError
from ringwright.ground.plugins import Plugin

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX = "law "


@dataclass(frozen=True, slots=True)
class Law:
    """A law: a name of one or two words, the sentence that must hold, where that is from, who judges, and examples.

    ``judge`` is a function, or ``module:function`` where it lies in a room above: it returns words on how the law is broken, and
    nothing where it holds or cannot be told. ``kept`` and ``broken`` are arguments for it, a tuple for each example.
    """

    name: str
    statement: str
    source: str = ""
    judge: Callable[..., str | None] | str = ""
    kept: tuple[tuple[Any, ...], ...] = ()
    broken: tuple[tuple[Any, ...], ...] = ()

    def load(self) -> Callable[..., str | None]:
        """Import and return the judge; AttributeError or ImportError where there is none of that name."""
        if callable(self.judge):
            return self.judge
        module, _, name = self.judge.partition(":")
        loaded: Callable[..., str | None] = getattr(import_module(module), name)
        return loaded


@cache
def _house() -> dict[str, Law]:
    """Return the laws of this folder by name."""
    return {law.name: law for module in _holders() for law in import_module(module).LAWS}


@cache
def _holders() -> tuple[str, ...]:
    """Return the modules of this folder that have laws under LAWS, by reading them; nothing is imported."""
    files = sorted(path for path in Path(__file__).parent.glob("*.py") if path.stem not in ("__init__", "law"))
    package = __name__.rpartition(".")[0]
    return tuple(f"{package}.{path.stem}" for path in files if "\nLAWS = " in path.read_text())


def home(name: str) -> str:
    """Return the module in which a law of our own stands; StopIteration for none."""
    return next(module for module in _holders() if any(law.name == name for law in import_module(module).LAWS))


class _Laws(Mapping[str, Law]):
    """Laws by name, those of other distributions last; those that cannot be used are left out (``problems``)."""

    def __init__(self) -> None:
        self.tried: dict[str, Law] = {}  # by ``trying``

    def _all(self) -> dict[str, Law]:
        outside = (each for each in plugins.points("laws", _house()) if _problem(each) is None)
        return {**_house(), **{each.name: _outsider(each) for each in outside}, **self.tried}

    def __getitem__(self, name: str) -> Law:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


LAWS = _Laws()


def problems() -> list[PluginError]:
    """Return why laws of others cannot be used."""
    listed = plugins.points("laws", _house())
    return [error for plugin in listed if (error := _problem(plugin)) is not None]


def plugin_of(name: str) -> Plugin | None:
    """Return the plug-in that adds a law; None for our own."""
    return next((each for each in plugins.points("laws", _house()) if each.name == name and not each.refused), None)


def _outsider(plugin: Plugin) -> Law:
    loaded = plugin.load()
    if not isinstance(loaded, Law):
        raise plugin.error(f"{plugin.value} is of type {type(loaded).__name__}, not a Law")
    return replace(loaded, name=plugin.name)


def _problem(plugin: Plugin) -> PluginError | None:
    return plugin.problem(lambda: _outsider(plugin))


@contextmanager
def trying(law: Law) -> Iterator[None]:
    """Have a law be known by its name for as long as the block lasts, as a contract needs one that nobody has installed."""
    before = dict(LAWS.tried)
    LAWS.tried[law.name] = law
    try:
        yield
    finally:
        LAWS.tried = before


def reason(law: str, detail: str = "") -> str:
    """Return how the ledger names a refusal: ``law busbw: 12.3 printed, 45.6 by size, time and ranks``.

    Raises KeyError for a law that is not in :data:`LAWS`.
    """
    return f"{PREFIX}{LAWS[law].name}: {detail or LAWS[law].statement}"


def told_by(said: str) -> tuple[str, str]:
    """Return the law and the detail that :func:`reason` put into words; empty words for what it did not."""
    name, colon, detail = said.removeprefix(PREFIX).partition(": ")
    return (name, detail) if said.startswith(PREFIX) and colon and name in LAWS else ("", "")


@dataclass
class Refusals:
    """Counts of what an analysis refused, by law, with the first example of each."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def refuse(self, law: str, example: str, count: int = 1) -> None:
        """Note that ``count`` values broke a law; KeyError for a law that is not in :data:`LAWS`."""
        self.counts[LAWS[law].name] += count
        self.examples.setdefault(law, example)

    def rows(self) -> list[dict[str, Any]]:
        """Return what ``summary.laws`` holds: ``law``, ``refused``, ``example``."""
        return [{"law": name, "refused": count, "example": self.examples[name]} for name, count in self.counts.items()]


def wrong_results(laws: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the row of ``summary.laws`` that says that a benchmark computed wrong values; None where it did not."""
    return next((row for row in laws if row["law"] == "correct"), None)


def of_ledger(ledger: Iterable[Mapping[str, Any]]) -> Refusals:
    """Return the refusals by law that stand in the rows of a Trace's ledger."""
    refused = Refusals()
    for row in ledger:
        name, detail = told_by(row["reason"] or "")
        if name and row["outcome"] in ("refused", "missing"):
            refused.refuse(name, row["example"] or detail, row["lines"] or 0)
    return refused
