"""Names made of content: equal values have one name in every process and on every machine; what cannot travel has none."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

_PLAIN = (type(None), bool, int, float, str, bytes)


def name_of(
    function: Callable[..., object], given: tuple[Any, ...], *more: str, seen: dict[int, bytes] | None = None
) -> str:
    """Return the name of a call: a hash of the function's name, of what it is given, and of ``more``.

    A path stands for the file that lies there: its size and the moment it was last written. ``seen`` has the hashes of objects
    that several calls are given, by their ``id``. TypeError for what is no data, such as a function within another.
    """
    seen = {} if seen is None else seen
    for each in given:
        if not isinstance(each, _PLAIN) and id(each) not in seen:
            seen[id(each)] = _digest(_parts(each))
    parts = [b"".join(_parts(each)) if isinstance(each, _PLAIN) else seen[id(each)] for each in given]
    return _digest([*(each.encode() for each in (*more, spelled(function))), *parts]).hex()


def _digest(parts: Iterable[bytes]) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def spelled(function: Callable[..., object]) -> str:
    """Return ``module:name`` of a function that a worker can import; TypeError for one that has no such name."""
    name = getattr(function, "__qualname__", "<locals>")
    if "<" in name:
        raise TypeError(f"{name} of {getattr(function, '__module__', '?')} cannot be imported by a worker")
    return f"{function.__module__}:{name}"


def _parts(value: object) -> Iterator[bytes]:
    """Yield what a value consists of."""
    kind = type(value).__qualname__.encode()
    if isinstance(value, enum.Enum):
        yield kind + value.name.encode()
    elif isinstance(value, _PLAIN):
        yield kind + repr(value).encode()
    elif isinstance(value, Path):
        facts = value.stat() if value.exists() else None
        yield repr((str(value), facts and (facts.st_size, facts.st_mtime_ns))).encode()
    elif isinstance(value, np.ndarray | np.generic):
        array = np.ascontiguousarray(value)
        yield repr((array.dtype.str, array.shape)).encode() + array.tobytes()
    elif isinstance(value, Mapping):
        yield kind
        yield from sorted(b"\1".join((*_parts(key), *_parts(each))) for key, each in value.items())
    elif isinstance(value, AbstractSet):
        yield kind
        yield from sorted(b"\1".join(_parts(each)) for each in value)
    elif isinstance(value, Sequence):
        yield kind + str(len(value)).encode()
        for each in value:
            yield from _parts(each)
    else:
        yield from _fields(value, kind)


def _fields(value: object, kind: bytes) -> Iterator[bytes]:
    """Yield the fields of a data class or a structure, and the name of a function."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in dataclasses.fields(value)]
    elif isinstance(value, msgspec.Struct):
        names = list(value.__struct_fields__)
    elif callable(value):
        yield spelled(value).encode()
        return
    else:
        raise TypeError(f"{type(value).__qualname__} is no data: it has no name made of content")
    yield kind
    for name in names:
        yield name.encode()
        yield from _parts(getattr(value, name))
