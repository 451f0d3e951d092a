"""Kinds of recordings: one small file for each, which says what such a file looks like and who reads it.

The folder listing is the registry. A file here, and a module that an entry point of ``ringwright.sources`` names, has::

    WHAT = "operations as CSV"                 # in a few words
    RANK = 75                                  # of two that are equally sure the one asked first is taken (default: last)
    SUREST = kinds.KEYS                        # the surest it ever is, so that it need not be asked (default: MAGIC)
    READER = "ringwright.formats.sources.x:read_x"     # what reads it (default: the function ``read`` beside)
    PARSER = "ringwright.formats.sources.x.file:read_file"      # what reads one source alone, on any worker (default: none)
    GROWING = "ringwright.formats.sources.x.growing:GrowingX"   # what reads it while it grows (default: it is read anew)
    WITHIN = ("nccl-log",)                     # kinds whose files may hold it as well; then also ``lies_in(head)``

    def looks_like(head: bytes, name: str) -> int: ...    # how sure, of the first bytes and the file's name

They are imported to look at any file, so they import nothing heavy; readers are imported when they read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ringwright.ground import plugins
from ringwright.ground.errors import InputError, PluginError
from ringwright.ground.plugins import Plugin, origin_of

if TYPE_CHECKING:
    from ringwright.formats.sources.gate.rank_progress import Growing
    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

# How sure a kind can be that a file is of it. True is as good as words.
NO = 0
ANY_TEXT = 1  # nothing speaks against it
FIRST_LINE = 2  # the names of a table's columns
WORDS = 3  # words that nothing else prints
KEYS = 4  # the keys of a document, or how it is laid out
MAGIC = 5  # the first bytes, made to be known by

LAST = 1000
Progress = Callable[[int], None] | None


@dataclass(frozen=True)
class Kind:
    """A kind of recording: its name, what it is, how it is known, and what reads it."""

    name: str
    what: str
    rank: int
    surest: int
    looks_like: Callable[[bytes, str], int]
    reader: Callable[[], Callable[..., Trace]] = field(repr=False)
    plugin: Plugin | None = None
    grows: Callable[[], Growing] | None = field(default=None, repr=False)  # None: read anew whenever it has changed
    parser: str = ""  # what reads one source alone; empty: its sources are read together
    within: tuple[str, ...] = ()
    lies_in: Callable[[bytes], bool] | None = field(default=None, repr=False)

    @property
    def origin(self) -> str:
        """Who adds it: ``house``, or the name of the distribution."""
        return origin_of(self.plugin)

    def sure(self, head: bytes, name: str) -> int:
        """Return how sure it is of a file; a plug-in that fails is not, and is remembered."""
        if self.plugin is None:
            return self.looks_like(head, name)
        try:
            answer: Any = self.looks_like(head, name)
        except PluginError as error:
            _failed[self.plugin] = error
            return NO
        except Exception as error:  # noqa: BLE001 - whatever others do, their file alone is not read
            _failed[self.plugin] = self.plugin.failed(error, "ringwright systems")
            return NO
        return WORDS if answer is True else min(int(answer or NO), MAGIC)

    def read(self, sources: list[Source], **options: Any) -> Trace:
        """Return the Trace of some files of this kind; InputError where there is nothing, PluginError where a plug-in fails."""
        if self.plugin is None:
            return self.reader()(sources, **options)
        from ringwright.model.trace import Trace

        try:
            made: object = self.reader()(sources, **options)
        except (InputError, PluginError):
            raise
        except Exception as error:
            raise self.plugin.failed(error, "RINGWRIGHT_DEBUG=1 with the same command") from error
        if not isinstance(made, Trace):
            raise self.plugin.error(f"it returned {type(made).__name__}, not a Trace")
        return made


_failed: dict[Plugin, PluginError] = {}


def kinds() -> dict[str, Kind]:
    """Return every kind by name, in the order in which they are asked; nothing of a plug-in is imported."""
    house = _house()
    outside = [_outsider(each) for each in plugins.points("sources", house) if not each.refused]
    return {**house, **{kind.name: kind for kind in outside}}


def problems() -> list[PluginError]:
    """Return why readers of others cannot be used: those that failed when asked, and those that would."""
    listed = plugins.points("sources", _house())
    errors = [_failed.get(plugin) or plugin.problem(partial(_look, plugin)) for plugin in listed]
    return [error for error in errors if error is not None]


@cache
def _house() -> dict[str, Kind]:
    stems = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")
    made = [_kind(stem.replace("_", "-"), import_module(f"{__name__}.{stem}")) for stem in stems]
    return {kind.name: kind for kind in sorted(made, key=lambda kind: kind.rank)}


def _kind(name: str, module: ModuleType) -> Kind:
    where = getattr(module, "READER", f"{module.__name__}:read")

    def reader() -> Callable[..., Trace]:
        module_name, _, function = where.partition(":")
        read: Callable[..., Trace] = getattr(import_module(module_name), function)
        return read

    surest = getattr(module, "SUREST", KEYS)
    growing = getattr(module, "GROWING", "")

    def grows() -> Growing:
        module_name, _, kind = growing.partition(":")
        made: Growing = getattr(import_module(module_name), kind)()
        return made

    return Kind(
        name,
        module.WHAT,
        module.RANK,
        surest,
        module.looks_like,
        reader,
        grows=grows if growing else None,
        parser=getattr(module, "PARSER", ""),
        within=getattr(module, "WITHIN", ()),
        lies_in=getattr(module, "lies_in", None),
    )


def _look(plugin: Plugin) -> Callable[[bytes, str], int]:
    """Return how a plug-in looks at a file; PluginError where it does not, or reads nothing."""
    look: Callable[[bytes, str], int] | None = plugin.told("looks_like", None)
    if look is None or not callable(look):
        raise plugin.error("there is no looks_like(head, name) beside its reader")
    _read(plugin)
    return look


def _read(plugin: Plugin) -> Callable[..., Trace]:
    target = plugin.load()
    read: Callable[..., Trace] | None = getattr(target, "read", target)
    if read is None or not callable(read):
        raise plugin.error("it names no function that reads, and no module with a function read")
    return read


@cache
def _outsider(plugin: Plugin) -> Kind:
    def looks_like(head: bytes, name: str) -> int:
        return _look(plugin)(head, name)

    said = plugin.written()[1]
    what = said[-1].split("\n")[0].rstrip(".") if said else f"what {plugin.distribution} reads"
    return Kind(plugin.name, what, LAST, MAGIC, looks_like, lambda: _read(plugin), plugin=plugin)


# ---------------------------------------------------------------------------------------------- what several look at
# What launchers put before a line, in brackets as a list has: [1,0]<stdout>:, [default0]:, [rank0]:, [pod/a/b], [12:00:01].
_BRACKETS = re.compile(
    rb"\[(?:\d+,\d+\](?:<std|:)|default\d+\]:|[Rr]ank ?\d+\]|pod/|\d\d:\d\d:\d\d[\].,]|\d+\]:? +[^\s,\]])"
)
# How a list begins that is JSON: `[6:31 PM]` and `[<FunctionEvent` are text.
_LIST = re.compile(rb'\[\s*(?:[\[{"\]]|$|(?:-?\d[\d.eE+-]*|true|false|null|NaN|-?Infinity)\s*(?:[,\]]|$))')


@lru_cache(maxsize=2)
def document(head: bytes) -> bytes:
    """Return the text of what begins like JSON; nothing for all else."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return text if text[:1] == b"{" or (_LIST.match(text) and not _BRACKETS.match(text)) else b""


@lru_cache(maxsize=2)
def of_others(head: bytes) -> bytes:
    """Return the text of JSON that is not our own; nothing for all else."""
    text = document(head)
    return b"" if has(text, "ringwright") else text


def by_words(words: re.Pattern[bytes]) -> tuple[Callable[[bytes, str], int], Callable[[bytes], bool]]:
    """Return ``looks_like`` and ``lies_in`` of a kind of text that words tell which nothing else prints; JSON is none."""

    @lru_cache(maxsize=2)
    def lies_in(head: bytes) -> bool:
        return bool(words.search(head))

    return lambda head, _name: WORDS if not document(head) and lies_in(head) else NO, lies_in


def has(text: bytes, *keys: str) -> bool:
    """Whether all these words stand in a JSON text."""
    return all(f'"{key}"'.encode() in text for key in keys)


def is_ours(head: bytes, name: str) -> int:
    """Return KEYS for a file of a recorded job that we wrote under this schema."""
    text = document(head)
    return KEYS if has(text, "ringwright") and f'"{name}/'.encode() in text[:4096] else NO
