"""A Workload from our own JSON (``exports.workload_json``); what is not understood is refused with its place."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ringwright.ground.errors import InputError, SchemaError
from ringwright.model.values import Applied, Change, MatrixProduct, Placement, Value, Work, WorkPart
from ringwright.model.workload import (
    FORMAT,
    SCHEMA_VERSION,
    Edge,
    Gate,
    Mesh,
    Payload,
    Policy,
    Queue,
    RankClass,
    Resource,
    Rewrite,
    Task,
    Workload,
)

MOST_BYTES = 1 << 28
MOST_ITEMS = 4_000_000
MOST_COUNT = 1 << 62
MOST_DEPTH = 8  # of the settings of a rewrite
REMEDY = "write it with 'ringwright workload MODEL -o FILE.json' and change that"
Convert = Callable[[Any, str], Any]
Fields = dict[str, tuple[str, Convert]]  # key of the file -> field, converter


def read_workload(path: str | Path) -> Workload:
    """Return the workload in a file; InputError or SchemaError with the place of what is wrong. Rules are not checked."""
    file = Path(path)
    try:
        if file.stat().st_size > MOST_BYTES:
            raise InputError(f"{file} has more than {MOST_BYTES:,} B", where=str(file), remedy=REMEDY)
        return read_workload_json(file.read_bytes(), str(file))
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}", where=str(file), remedy=REMEDY) from error


def read_workload_json(data: bytes, name: str) -> Workload:
    """Return the workload; ``name`` is the file's, for messages."""
    try:
        document = json.loads(data, object_pairs_hook=_once, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        where = f"{name}:{error.lineno}:{error.colno}"
        raise InputError(f"{name} is not JSON: {error.msg}", where=where, remedy=REMEDY) from error
    except (RecursionError, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{name} is not JSON: {str(error)[:100]}", where=name, remedy=REMEDY) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f"{name} is no workload", where=name, remedy=f'"format": "{FORMAT}"; {REMEDY}')
    version = document.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        what = f"a workload of schema {str(version)[:20]}, this release reads {SCHEMA_VERSION}"
        raise SchemaError(
            what, where=name, remedy="read it with the release of ringwright that wrote it, or a later one"
        )
    try:
        made: Workload = _workload({k: v for k, v in document.items() if k not in ("format", "schema_version")}, "")
    except _Strange as error:
        raise InputError(f"{name}: {error.what}", where=f"{name} {error.where.strip()}", remedy=REMEDY) from None
    return made


class _Strange(Exception):  # noqa: N818 - never leaves this file
    """Something that is not understood, and its place within the file."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(what)
        self.what, self.where = what, where


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"'{twice[:40]}' is there twice in one object")
    return members


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


# ------------------------------------------------------------------------------------------------------------- values
def _word(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise _Strange(f"{_shown(value)} is no text", where)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Strange("a text with half a character", where) from None
    return value


def _number(value: Any, where: str) -> float:
    if value in ("inf", "-inf"):
        return float(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _Strange(f"{_shown(value)} is no number", where)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _Strange(f"{_shown(value)} is too large", where)
    return number


def _count(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > MOST_COUNT:
        raise _Strange(f"{_shown(value)} is no whole number", where)
    return value


def _truth(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise _Strange(f"{_shown(value)} is neither true nor false", where)
    return value


def _setting(value: Any, where: str, depth: int = 0) -> Any:
    """Return a setting of a rewrite: a list stays one, lists within it become tuples, as schedulers make them."""
    if depth > MOST_DEPTH:
        raise _Strange("nested too deeply", where)
    if isinstance(value, list):
        inner = (_setting(each, where, depth + 1) for each in value)
        return tuple(inner) if depth else list(inner)
    if isinstance(value, dict):
        return {key: _setting(each, f"{where} {key}", depth + 1) for key, each in value.items()}
    if value in ("inf", "-inf"):
        return float(value)
    return value


def _shown(value: Any) -> str:
    return f"'{str(value)[:40]}'" if not isinstance(value, dict | list) else f"a {type(value).__name__}"


def _optional(convert: Convert) -> Convert:
    return lambda value, where: None if value is None else convert(value, where)


def _listed(convert: Convert) -> Convert:
    def read(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) > MOST_ITEMS:
            raise _Strange(f"{_shown(value)} is no list of at most {MOST_ITEMS:,}", where)
        return tuple(convert(each, f"{where} {at}") for at, each in enumerate(value))

    return read


def _row(*converts: Convert) -> Convert:
    def read(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) != len(converts):
            raise _Strange(f"{_shown(value)} is no list of {len(converts)}", where)
        return tuple(convert(each, where) for convert, each in zip(converts, value, strict=True))

    return read


def _by_name(convert: Convert) -> Convert:
    def read(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _Strange(f"{_shown(value)} is no object", where)
        return {_word(key, where): convert(each, f"{where} {key[:60]}") for key, each in value.items()}

    return read


def _object(make: Callable[..., Any], known: Fields, needed: tuple[str, ...]) -> Convert:
    """Return what reads an object of exactly these keys."""

    def read(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise _Strange(f"{_shown(value)} is no object", where)
        strange = [key for key in value if key not in known]
        if strange:
            raise _Strange(f"no field is called '{strange[0][:40]}'; one of: {', '.join(known)}", where)
        missing = [key for key in needed if key not in value]
        if missing:
            raise _Strange(f"'{missing[0]}' is missing", where)
        named = f" '{value['name'][:60]}'" if isinstance(value.get("name"), str) and where else ""
        made = {known[key][0]: known[key][1](each, f"{where}{named} {key}") for key, each in value.items()}
        return make(**made)

    return read


def _same(**converts: Convert) -> Fields:
    return {name: (name, convert) for name, convert in converts.items()}


# ------------------------------------------------------------------------------------------------------------ objects
_words = _listed(_word)
_slots = _by_name(_listed(_row(_word, _count, _count)))
_order = _by_name(_listed(_row(_word, _count)))
_mesh = _object(Mesh, _same(axes=_listed(_row(_word, _count))), ())
_class = _object(RankClass, _same(name=_word, at=_by_name(_count)), ("name",))
_settings = _by_name(_setting)
_placement = _object(Placement, _same(axis=_word, how=_word, dim=_word), ("axis", "how"))
_product = _object(MatrixProduct, _same(m=_count, n=_count, k=_count, times=_count, cut=_word), ("m", "n", "k"))
_simple = {
    "flops": _number,
    "read_bytes": _count,
    "written_bytes": _count,
    "meaning": _word,
    "settings": _settings,
    "cuts": _by_name(_number),
    "products": _listed(_product),
}
_part = _object(
    WorkPart,
    _same(
        share=_number,
        work=_object(Work, _same(**_simple), ()),
        reads=_listed(_count),
        writes=_listed(_count),
        dims=_listed(_row(_word, _count)),
        layout=_listed(_placement),
        size_bytes=_count,
    ),
    ("share", "work"),
)
_work = _object(Work, _same(**_simple, parts=_listed(_part)), ())
_value = _object(
    Value,
    _same(
        name=_word,
        of=_word,
        size_bytes=_count,
        dims=_listed(_row(_word, _count)),
        layout=_listed(_placement),
        kind=_word,
        per=_word,
        dtype=_word,
    ),
    ("name", "of"),
)
_change = _object(
    Change,
    _same(
        wire_bytes=_by_name(_number),
        operations=_count,
        flops=_number,
        held_bytes=_count,
        launches=_count,
        traffic_bytes=_count,
        copied_bytes=_count,
    ),
    (),
)
_applied = _object(Applied, _same(rule=_word, at=_word, settings=_settings, change=_change), ("rule", "at"))
_task = _object(
    Task,
    _same(
        name=_word,
        of=_word,
        kind=_word,
        layer=_count,
        slot=_row(_word, _count),
        per=_word,
        stream=_word,
        tag=_word,
        demands=_listed(_row(_word, _number)),
        reads=_listed(_row(_word, _count)),
        writes=_words,
        work=_optional(_work),
        lag=_count,
    )
    | {"time_s": ("seconds", _number)},
    ("name", "of", "kind"),
)
_edge = _object(Edge, _same(src=_word, dst=_word, distance=_count), ("src", "dst"))
_payload = _object(
    Payload,
    _same(
        name=_word,
        of=_word,
        op=_word,
        size_bytes=_count,
        axes=_words,
        role=_word,
        producers=_words,
        consumers=_listed(_row(_word, _count)),
        per=_word,
        layer=_count,
        dtype=_word,
        elements=_count,
        merges=_word,
        peer=_word,
        joint=_words,
        factors=_optional(_row(_count, _count)),
        root=_count,
        samples=_count,
        source=_word,
        result=_word,
        hops=_count,
        lag=_count,
        network=_word,
        disturbed=_number,
    ),
    ("name", "of", "op", "size_bytes", "axes", "role", "producers", "consumers"),
)
_resource = _object(Resource, _same(name=_word, discipline=_word, capacity=_number), ("name",))
_rewrite = _object(Rewrite, _same(kind=_word, roles=_words, settings=_settings), ("kind",))


def _class_or_tag(value: Any, where: str) -> int | str:
    return _word(value, where) if isinstance(value, str) else _count(value, where)


_gate = _object(Gate, _same(closed=_count, by=_class_or_tag, state=_word), ("closed", "by"))
_queue = _object(
    Queue,
    _same(
        keys=_by_name(_count),
        windows=_by_name(_row(_number, _word)),
        traffic=_by_name(_count),
        gates=_listed(_gate),
        blocking=_truth,
        issue_s=_number,
        random=_optional(_count),
    ),
    (),
)
_policy = _object(
    Policy,
    _same(
        rewrites=_optional(_listed(_rewrite)),
        order=_optional(_order),
        queue=_optional(_queue),
        boundary=_optional(_word),
        agreement=_optional(_word),
        by=_by_name(_word),
    ),
    (),
)
_workload = _object(
    Workload,
    _same(
        name=_word,
        mesh=_mesh,
        classes=_listed(_class),
        tasks=_listed(_task),
        edges=_listed(_edge),
        payloads=_listed(_payload),
        resources=_listed(_resource),
        micro_batches=_count,
        order=_slots,
        policy=_policy,
        assumptions=_words,
        values=_listed(_value),
        applied=_listed(_applied),
    ),
    ("name", "mesh", "classes", "tasks"),
)
