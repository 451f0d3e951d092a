"""Documents with declared fields: a frozen dataclass inside, plain JSON values outside.

A report reads the fields; `as_json` is the one place where they become keys, `read_json` the one where keys become fields.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Document = TypeVar("Document")
_Reader = Callable[[Any], Any]
MERGED = "merged"  # metadata of a field whose own fields are keys of the object that holds it: of which class it is


def keyed(key: str, default: object = "") -> Any:
    """Return a field whose key in JSON is another word: one that no field can have, or should not."""
    return field(default=default, metadata={"key": key})


def keys(kind: type[Any]) -> Iterator[str]:
    """Yield the keys of a document in JSON, in their order."""
    for each in fields(kind):
        yield from keys(part) if (part := each.metadata.get(MERGED)) else (each.metadata.get("key", each.name),)


def as_json(value: Any) -> Any:
    """Return a document as JSON values: a dictionary of its fields in their order, and so all that it holds."""
    if is_dataclass(value):
        made: dict[str, Any] = {}
        for each in fields(value):
            part = as_json(getattr(value, each.name))
            made |= part if MERGED in each.metadata else {each.metadata.get("key", each.name): part}
        return made
    if isinstance(value, list | tuple):
        return type(value)(map(as_json, value))
    return {key: as_json(part) for key, part in value.items()} if isinstance(value, dict) else value


def read_json(kind: type[Document], value: Mapping[str, Any] | Document) -> Document:
    """Return the document of ``kind`` that a JSON object holds; keys that it does not declare are passed over.

    A key that is missing takes the default of its field; KeyError where it has none.
    """
    of: Any = kind
    return value if isinstance(value, kind) else _of_class(of)(value)


def read_rows(kind: type[Document], rows: Sequence[Mapping[str, Any]]) -> list[Document]:
    """Return a document for each JSON object of a list."""
    return [read_json(kind, each) for each in rows]


@cache
def _of_class(kind: Hashable) -> _Reader:
    """Return what reads an object of ``kind``, a dataclass."""
    made: Any = kind
    hints = get_type_hints(made)
    parts = [
        (each.name, each.metadata.get("key", each.name), _reader(hints[each.name]), _is_needed(each))
        for each in fields(made)
        if MERGED not in each.metadata
    ]
    whole = [(each.name, each.metadata[MERGED]) for each in fields(made) if MERGED in each.metadata]

    def read(value: Any) -> Any:
        if isinstance(value, made):
            return value
        given = {name: _of_class(of)(value) for name, of in whole}
        given |= {
            name: value[key] if of is None or value[key] is None else of(value[key])
            for name, key, of, needed in parts
            if needed or key in value
        }
        return made(**given)

    return read


def _is_needed(each: Field[Any]) -> bool:
    return each.default is MISSING and each.default_factory is MISSING


@cache
def _reader(hint: Any) -> _Reader | None:
    """Return what reads a value of this type; None where it stays as it is."""
    if is_dataclass(hint):
        of_class: Any = hint
        return _of_class(of_class)
    origin, inner = get_origin(hint), [_reader(each) for each in get_args(hint) if each is not Ellipsis]
    if origin in (Union, types.UnionType):
        kinds = [each for each in get_args(hint) if is_dataclass(each)]
        return _one_of(kinds) if len(kinds) > 1 else next((each for each in inner if each is not None), None)
    of = inner[-1] if inner else None
    if of is None or origin not in (list, tuple, dict, Mapping):
        return None
    if origin in (list, tuple):
        return lambda value: origin(map(of, value))
    return lambda value: {key: of(part) for key, part in value.items()}


def _one_of(kinds: list[Any]) -> _Reader:
    """Return what reads an object as the first of some classes whose fields it fills: none is null that may not be."""
    filled = {each: [name for name, of in get_type_hints(each).items() if not _takes_none(of)] for each in kinds}
    for each, names in filled.items():
        filled[each] = [part.name for part in fields(each) if part.name in names and _is_needed(part)]

    def read(value: Any) -> Any:
        if type(value) in filled:
            return value
        kind = next(each for each, names in filled.items() if all(value.get(name) is not None for name in names))
        return _of_class(kind)(value)

    return read


def _takes_none(hint: Any) -> bool:
    return hint is type(None) or type(None) in get_args(hint)
