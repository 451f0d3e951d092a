"""The rooms whose systems have one case each: a fabric, a source, a number format, a law and the like are tried as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType

from ringwright.formats.exports import Export
from ringwright.ground import plugins
from ringwright.ground.errors import UsageError
from ringwright.ground.plugins import Plugin, origin_of
from ringwright.model.registry import ROOT
from ringwright_lab.contracts.codec import check_codec
from ringwright_lab.contracts.executor import check_executor
from ringwright_lab.contracts.export import check_export
from ringwright_lab.contracts.fabric import check_fabric
from ringwright_lab.contracts.family import check_family
from ringwright_lab.contracts.law import check_law
from ringwright_lab.contracts.outcome import Outcome
from ringwright_lab.contracts.pipeline import check_pipeline
from ringwright_lab.contracts.rewrite import check_rewrite
from ringwright_lab.contracts.source import check_source

ROOMS = ("fabrics", "sources", "families", "exports", "rewrites", "codecs", "pipelines", "laws", "executors")
Recordings = Mapping[str, tuple[str, ...]]  # kind of source -> files of that kind
NO_RECORDINGS: Recordings = MappingProxyType({})


OF_ROOM: dict[str, Callable[[str], list[Outcome]]] = {
    "fabrics": check_fabric,
    "families": check_family,
    "rewrites": check_rewrite,
    "codecs": check_codec,
    "pipelines": check_pipeline,
    "laws": check_law,
    "executors": check_executor,
}


@dataclass(frozen=True)
class RoomMember:
    """One system of such a room: ``module`` is where it is written, ``plugin`` the entry point of another distribution."""

    room: str
    slug: str
    module: str
    plugin: Plugin | None = None

    @property
    def origin(self) -> str:
        """Who adds it: ``house``, or the name of the distribution."""
        return origin_of(self.plugin)

    @property
    def lines(self) -> int:
        """Lines of what is written for it alone: a file, or the files of a package; nothing is imported."""
        if self.plugin is not None:
            return self.plugin.written()[0]
        place = ROOT.joinpath(*self.module.split(".")[1:])
        files = [place.with_suffix(".py")] if place.with_suffix(".py").is_file() else sorted(place.rglob("*.py"))
        return sum(len(file.read_text().splitlines()) for file in files)


@dataclass(frozen=True)
class RoomCase:
    """A system of such a room, tried on all that its contract has; ``files`` are recordings that a source is tried on."""

    room: str
    slug: str
    files: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return f"{self.room} {self.slug}"

    @classmethod
    def parsed(cls, text: str) -> RoomCase:
        """Return the case that ``str`` wrote; UsageError for anything else."""
        room, _, slug = text.partition(" ")
        if slug in {each.slug for each in members(room)}:
            return cls(room, slug)
        raise UsageError(f"'{text}' is not a case", remedy="as in: exports goal, or fabrics dgx-h100")


def members(room: str) -> tuple[RoomMember, ...]:
    """Return the systems of a room by name, those of other distributions last; none where the room is no such one."""
    listed = {
        "fabrics": _fabrics,
        "sources": _sources,
        "families": _families,
        "exports": _exports,
        "rewrites": _rewrites,
        "codecs": _codecs,
        "pipelines": _pipelines,
        "laws": _laws,
        "executors": _executors,
    }
    return tuple(listed[room]()) if room in listed else ()


def cases(room: str, recordings: Recordings = NO_RECORDINGS) -> Iterator[RoomCase]:
    """Yield a case for each system of a room; of sources those that there are recordings of."""
    for each in members(room):
        if room != "sources" or each.slug in recordings:
            yield RoomCase(room, each.slug, recordings.get(each.slug, ()))


def check(case: RoomCase) -> Outcome:
    """Return what the contract of its room says of a system, all of it in one outcome."""
    whole = Outcome(case)
    for each in _checked(case):
        what = getattr(each.case, "what", "")
        whole.passed += [f"{what}: {name}" for name in each.passed]
        whole.declined |= {f"{what}: {name}": why for name, why in each.declined.items()}
        whole.failed |= {f"{what}: {name}": why for name, why in each.failed.items()}
    return whole


def _checked(case: RoomCase) -> list[Outcome]:
    if case.room == "exports":
        return [outcome for export in _writers()[case.slug] for outcome in check_export(export)]
    if case.room == "sources":
        from ringwright.formats.sources.kinds import kinds

        return check_source(kinds()[case.slug].read, list(case.files))
    return OF_ROOM[case.room](case.slug)


def _fabrics() -> Iterator[RoomMember]:
    from ringwright import fabrics

    for name in fabrics.families():
        plugin = fabrics.plugin_of(name)
        if plugin is None or plugin.problem(plugin.knobs) is None:
            module = f"{fabrics.__name__}.{name.replace('-', '_')}" if plugin is None else plugin.module
            yield RoomMember("fabrics", name, module, plugin)


def _sources() -> Iterator[RoomMember]:
    from ringwright.formats.sources import kinds

    broken = {error.what for error in kinds.problems()}
    for name, kind in kinds.kinds().items():
        if kind.plugin is None:
            file = import_module(f"{kinds.__name__}.{name.replace('-', '_')}")
            yield RoomMember("sources", name, getattr(file, "READER", file.__name__).partition(":")[0])
        elif not any(f"'{name}'" in what for what in broken):
            yield RoomMember("sources", name, kind.plugin.module, kind.plugin)


def _families() -> Iterator[RoomMember]:
    from ringwright.workloads import families

    for name, module in families.of_house().items():
        yield RoomMember("families", name, module.__name__)
    outside = {each.name: each for each in plugins.points("families", families.of_house())}
    for name in families.of_others():
        yield RoomMember("families", name, outside[name].module, outside[name])


def _exports() -> Iterator[RoomMember]:
    for name, writers in _writers().items():
        yield RoomMember("exports", name, writers[0].module, writers[0].plugin)


def _writers() -> dict[str, list[Export]]:
    """Return the exports by name: several things may be written in one format."""
    from ringwright.calls import rules
    from ringwright.formats import exports

    house = (*exports.of_house(*exports.TAKES).values(), *exports.in_folder(rules.__name__))
    outside = (each for each in exports.exports(*exports.TAKES).values() if each.plugin is not None)
    writers_by_name: dict[str, list[Export]] = {}
    for each in (*house, *outside):
        writers_by_name.setdefault(each.name, []).append(each)
    return writers_by_name


def _rewrites() -> Iterator[RoomMember]:
    from ringwright.model.rewrites import KINDS, kinds

    for name in KINDS:
        yield RoomMember("rewrites", name, f"{kinds.__name__}.{name}")


def _codecs() -> Iterator[RoomMember]:
    from ringwright.model.codecs.formats import codecs

    for name, codec in codecs().items():
        yield RoomMember("codecs", name, codec.call.__module__, codec.plugin)


def _pipelines() -> Iterator[RoomMember]:
    from ringwright.graph import pipelines

    for name, schedule in pipelines.schedules().items():
        yield RoomMember("pipelines", name, schedule.of.__module__, pipelines.plugin_of(name))


def _laws() -> Iterator[RoomMember]:
    from ringwright.bounds.laws import law as laws

    for name in laws.LAWS:
        plugin = laws.plugin_of(name)
        yield RoomMember("laws", name, laws.home(name) if plugin is None else plugin.module, plugin)


def _executors() -> Iterator[RoomMember]:
    from ringwright.execute import executors, offered

    for name in executors.executors():
        plugin = executors.plugin_of(name)
        module = f"{offered.__name__}.{name.replace('-', '_')}" if plugin is None else plugin.module
        yield RoomMember("executors", name, module, plugin)
