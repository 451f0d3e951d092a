"""What can be named on the command line and in Python, list by list: each name with its meaning and how it is spelled.

Every row is read from the room that owns the name (a folder, a registry, an entry point), never typed here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ringwright.ground.errors import PluginError, UsageError

if TYPE_CHECKING:
    from ringwright.model.registry import System

SCHEMA = "ringwright.list/1"
SIZES = ("8", "4x4", "4x4x4")  # of a fabric, as many numbers as it takes
MOST_WORDS = 24


@dataclass(frozen=True)
class NamedThing:
    """A name, what it stands for in one line, and a spelling that is accepted as it stands."""

    name: str
    meaning: str
    example: str


def listing(what: str | None = None) -> dict[str, Any]:
    """Return the object of schema ``ringwright.list/1``: the rows of one list, or without a name a row for each list.

    UsageError for a list that there is not.
    """
    if what is None:
        rows = [NamedThing(name, meaning, f"ringwright list {name}") for name, (meaning, _) in LISTS.items()]
        return {"schema": SCHEMA, "what": "lists", "rows": [asdict(row) for row in rows]}
    if what not in LISTS:
        near = difflib.get_close_matches(what, LISTS, 1)
        hint = f"ringwright list {near[0]}" if near else f"ringwright list; there are {', '.join(LISTS)}"
        raise UsageError(f"there is no list of '{what}'", remedy=hint)
    return {"schema": SCHEMA, "what": what, "rows": [asdict(row) for row in LISTS[what][1]()]}


def _fabrics() -> Iterator[NamedThing]:
    from ringwright.fabrics import families

    for name in families():
        with suppress(PluginError):
            yield NamedThing(name, _machine(name), f"--fabric {_buildable(name)}")


def _machine(name: str) -> str:
    """Return what a family is: the first sentence of its file, of one of others that of its function."""
    from ringwright.fabrics import family, plugin_of

    build = family(name)
    return _first(build.__doc__ if plugin_of(name) else import_module(build.__module__).__doc__)


def _buildable(name: str) -> str:
    """Return a family with sizes that make a machine; its name alone where none of the usual does."""
    from ringwright.fabrics import fabric

    for size in SIZES:
        with suppress(UsageError, PluginError):
            return fabric(f"{name}:{size}").name
    return name


def _models() -> Iterator[NamedThing]:
    from ringwright.workloads import models

    for name in models.names():
        with suppress(PluginError):
            card = models.model(name)
            count, active = models.parameters(card), models.active_parameters(card)
            of_token = f", {active / 1e9:,.3g} billion a token" if active != count else ""
            yield NamedThing(name, f"{card.family}: {count / 1e9:,.3g} billion parameters{of_token}", f"--model {name}")


def _policies() -> Iterator[NamedThing]:
    from ringwright.model import registry

    yield from _systems(registry.schedulers(), "--policy")


def _algorithms() -> Iterator[NamedThing]:
    from ringwright.model import registry

    yield from _systems(registry.systems(), "--algorithm")


def _systems(systems: tuple[System, ...], option: str) -> Iterator[NamedThing]:
    for system in systems:
        if not system.problem:
            idea = system.headings.get("Idea", "") or system.headings.get("Source", "")
            yield NamedThing(system.slug, _first(idea) or _first(system.load().__doc__), f"{option} {system.slug}")


def _gpus() -> Iterator[NamedThing]:
    from ringwright.costs.gpus import GPUS

    for name, gpu in GPUS.items():
        fastest = max(gpu.peak, key=lambda dtype: gpu.peak[dtype])
        figures = f"{gpu.capacity_bytes / 1e9:,.0f} GB at {gpu.memory / 1e12:.3g} TB/s, {gpu.peak[fastest] / 1e12:,.0f} TFLOP/s"
        yield NamedThing(name, f"{figures} ({fastest}); {gpu.provenance or 'data sheet'}", f"--gpu {name}")


def _faults() -> Iterator[NamedThing]:
    from ringwright.fabrics.faults import in_words

    for effect, line, meaning in in_words():
        yield NamedThing(effect, meaning, f"--fault '{line}'")


def _collectives() -> Iterator[NamedThing]:
    from ringwright.model.collective import MEANINGS

    for op, meaning in MEANINGS.items():
        yield NamedThing(op, meaning, f"simulate {op} --fabric switch:8")


def _formats() -> Iterator[NamedThing]:
    from ringwright.formats import exports

    options = {"trace": "convert --format", "workload": "workload --to"}
    for name, export in exports.exports(*exports.TAKES).items():
        about = import_module(export.module).__doc__ if export.plugin is None else export.load().__doc__
        yield NamedThing(
            name, f"of a {export.takes}: {_first(about)}", f"{options.get(export.takes, 'export --to')} {name}"
        )


def _sources() -> Iterator[NamedThing]:
    from ringwright.formats.sources.kinds import kinds

    for name, kind in kinds().items():
        yield NamedThing(name, kind.what, "found by looking: ringwright read FILE")


def _calibrations() -> Iterator[NamedThing]:
    from ringwright.costs import calibration

    for name in calibration.names():
        made = calibration.load(name)
        told = f"links of {made.fabric} from {made.source or 'measured tables'}, median error {made.error:.1%}"
        yield NamedThing(name, told, f"--calibration {name}")


def _fits() -> Iterator[NamedThing]:
    from ringwright.costs import fits

    for name in fits.names():
        yield NamedThing(name, fits.load(name).provenance, f"--fit {name}")


def _executors() -> Iterator[NamedThing]:
    from ringwright.executors.kinds import kinds

    for name, kind in kinds().items():
        yield NamedThing(name, kind.WHAT, f"--executor {kind.SPELLING}")


LISTS: dict[str, tuple[str, Callable[[], Iterator[NamedThing]]]] = {
    "fabrics": ("machines: families of networks and products, with a size", _fabrics),
    "models": ("models whose training or serving can be simulated", _models),
    "policies": ("schedulers: when a job communicates, and in which pieces", _policies),
    "gpus": ("devices, with the figures of their data sheets", _gpus),
    "faults": ("what can go wrong on a machine, and when", _faults),
    "algorithms": ("how a collective is done, and libraries that choose", _algorithms),
    "collectives": ("operations that a group of ranks does together", _collectives),
    "formats": ("files for other systems, and of a recording", _formats),
    "sources": ("kinds of recordings that are read", _sources),
    "calibrations": ("fitted link numbers that ship with the package", _calibrations),
    "fits": ("fitted device efficiencies that ship with the package", _fits),
    "executors": ("who works on what can be cut into tasks", _executors),
}


def _first(text: str | None) -> str:
    """Return the first sentence of a text, on one line, cut after so many words where it goes on."""
    words = (
        re.split(r"(?<=[.;])\s", " ".join((text or "").replace("``", "").split()), maxsplit=1)[0].rstrip(".;").split()
    )
    return " ".join(words[:MOST_WORDS]) + (" ..." if len(words) > MOST_WORDS else "")
