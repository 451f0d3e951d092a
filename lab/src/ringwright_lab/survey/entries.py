"""The survey's systems in the order of its tree, each as it declares itself; those that are not built yet from ``unbuilt.json``.

What exists in the registry is read from its own docstring and constants, so a system that is added fills its row by existing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from importlib import import_module
from importlib.resources import files

from ringwright.ground.headings import headings
from ringwright.model import registry
from ringwright.model.registry import System
from ringwright_lab.papers import poster

UNBUILT = "unbuilt.json"
PROFILER = "profiler"
OURS = ("expand", "flow-all-to-all", "forest")  # ways to search that no system of the survey is
# class of the survey -> its family, and the rooms of the registry that are read for it
TREE = {
    "pre-defined": ("collective-library", ("published", "library")),
    "synthesised": ("collective-library", ("synthesis",)),
    "fifo": ("communication-scheduling", ("fifo",)),
    "priority": ("communication-scheduling", ("priority",)),
    "decomposition": ("communication-scheduling", ("decompose",)),
    "ethernet": ("in-network-aggregation", ("ethernet",)),
    "infiniband": ("in-network-aggregation", ("infiniband",)),
    PROFILER: ("profiling", (PROFILER,)),
}
_YEAR = re.compile(r"\b(?:19|20)\d\d\b(?!\.\d)")
_PREPRINT = re.compile(r"arXiv (\d\d)\d\d\.\d")
_SENTENCE = re.compile(r"(?<=[.])\s+(?=[A-Z])")


@dataclass(frozen=True)
class Entry:
    """One system: what it declares of itself. ``system`` is None where it is not built.

    ``equal_bits`` is what the data file says of one that is not built: whether the sums are those of plain adding, to the
    bit, wherever adding is exact.
    """

    slug: str
    kind: str  # class of the survey
    title: str
    year: int | None
    mechanism: str
    needs: tuple[str, ...]
    collectives: tuple[str, ...]
    declines: str = ""
    equal_bits: bool | None = None
    system: System | None = field(default=None, repr=False)

    @property
    def family(self) -> str:
        """The survey's family."""
        return TREE[self.kind][0]

    @property
    def built(self) -> bool:
        """Whether it is here."""
        return self.system is not None


def entries() -> list[Entry]:
    """Return all systems, in the order of the tree."""
    unbuilt = {each.slug: each for each in not_built()}
    rooms = {room: kind for kind, (_, rooms) in TREE.items() for room in rooms}
    by_slug: dict[str, Entry] = {}
    for system in (*registry.systems(), *registry.schedulers(), _profiler()):
        waiting = unbuilt.get(system.slug)
        kind = rooms.get(system.kind) or (waiting.kind if waiting else None)
        if kind is not None and system.problem is None and system.slug not in OURS:
            by_slug[system.slug] = _entry(system, kind)
    every = [*by_slug.values(), *(each for each in unbuilt.values() if each.slug not in by_slug)]
    return sorted(every, key=lambda entry: list(TREE).index(entry.kind))


def not_built() -> list[Entry]:
    """Return what the data file holds."""
    listed = json.loads((files("ringwright_lab") / "survey" / UNBUILT).read_text())["systems"]
    return [
        Entry(
            each["slug"],
            each["class"],
            each["title"],
            each["year"],
            each["mechanism"],
            tuple(each["needs"]),
            tuple(each["collectives"]),
            equal_bits=each["equal_bits"],
        )
        for each in listed
    ]


def _profiler() -> System:
    """Return the profiler paper, which is what the whole package does: no callable, but an experiment with headings."""
    told = headings(poster.__doc__ or "")
    return System(poster.SLUG, TREE[PROFILER][0], PROFILER, poster.__name__, 0, told)


def _entry(system: System, kind: str) -> Entry:
    told = system.headings
    title, mechanism = _first_line(system)
    return Entry(
        system.slug,
        kind,
        title,
        _year(told.get("Source", "")),
        mechanism or _first_sentence(told.get("Idea", "")),
        system.needs,
        system.ops,
        told.get("Declines", ""),
        system=system,
    )


def _first_line(system: System) -> tuple[str, str]:
    """Return the name that a system's docstring begins with, and what it says behind a colon."""
    own = import_module(system.module).__doc__ if system.plugin is None else next(iter(system.plugin.written()[1]), "")
    first = (own or "").strip().split("\n")[0]
    name, _, mechanism = first.partition(": ")
    return name.rstrip(".") or system.slug, _first_sentence(mechanism)


def _year(source: str) -> int | None:
    """Return the year that a source names, else that of its preprint; None for neither."""
    named, preprint = _YEAR.search(source), _PREPRINT.search(source)
    return int(named[0]) if named else 2000 + int(preprint[1]) if preprint else None


def _first_sentence(text: str) -> str:
    """Return what a text begins with, a full sentence."""
    whole = _SENTENCE.split(text.replace("``", ""))[0]
    return whole[:1].upper() + whole[1:]
