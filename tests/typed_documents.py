"""Whether a value is what its type says: the keys of typed dictionaries and their order, and what stands under each."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict


def departures(value: Any, kind: Any, where: str = "document") -> Iterator[str]:
    """Yield a line for each part of ``value`` that is not of its declared kind."""
    if kind is Any:
        return
    origin, inner = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        yield from _keys(value, kind, where)
    elif is_dataclass(kind):
        yield from _fields(value, kind, where)
    elif origin in (Union, types.UnionType):
        if all([*departures(value, each, where)] for each in inner):
            yield f"{where}: {value!r:.80} is none of {inner}"
    elif origin in (list, dict, tuple):
        yield from _inside(value, origin, inner, where)
    elif not _is_plain(value, kind):
        yield f"{where}: {value!r:.80} is no {kind}"


def _inside(value: Any, origin: Any, inner: tuple[Any, ...], where: str) -> Iterator[str]:
    """Yield what departs within a list, a dictionary, or a tuple of so many parts."""
    if not isinstance(value, origin):
        yield f"{where}: {type(value).__name__} is no {origin.__name__}"
    elif origin is dict:
        for key, each in value.items():
            yield from departures(key, inner[0], f"{where} key")
            yield from departures(each, inner[1], f"{where}.{key}")
    elif origin is tuple and len(value) != len(inner):
        yield f"{where}: {value!r:.80} is no tuple of {len(inner)}"
    else:
        kinds = inner if origin is tuple else inner * len(value)
        for number, (each, one) in enumerate(zip(value, kinds, strict=True)):
            yield from departures(each, one, f"{where}[{number}]")


def _keys(value: Any, kind: Any, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: {value!r:.80} is no {kind.__name__}"
        return
    hints = get_type_hints(kind)
    told = [key for key in hints if key in value]
    marked = get_type_hints(kind, include_extras=True)
    needed = {key for key in kind.__required_keys__ if get_origin(marked[key]) is not NotRequired}
    if list(value) != told or needed - value.keys():
        yield f"{where}: keys {list(value)}, where {kind.__name__} has {list(hints)}"
        return
    for key in told:
        yield from departures(value[key], hints[key], f"{where}.{key}")


def _fields(value: Any, kind: Any, where: str) -> Iterator[str]:
    """Yield what departs in an object of a dataclass, or in the JSON object that it makes."""
    hints = get_type_hints(kind)
    told = value if isinstance(value, dict) else {name: getattr(value, name) for name in hints}
    if list(told) != list(hints):
        yield f"{where}: keys {list(told)}, where {kind.__name__} has {list(hints)}"
        return
    for key, each in told.items():
        yield from departures(each, hints[key], f"{where}.{key}")


def _is_plain(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind is float:  # as type checkers see it, a whole number is one
        return isinstance(value, int | float)
    return type(value) is kind or (kind is type(None) and value is None)
