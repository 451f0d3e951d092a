"""Knobs: what a user may set on a system, read from the system's own signature.

A keyword-only parameter is a knob. Its annotation says what may be typed::

    channels: Annotated[int, Range(1, 64)] = 1
    segment_bytes: Annotated[int, Range(0, 1 << 30, "B")] = 0        # 64K is understood
    variant: Literal["bandwidth", "latency"] = "bandwidth"
    factors: Sequence[Annotated[int, Range(1, 4096)]] | None = None   # typed 4x8x2
    inner: Algorithm = ring                                           # the name of another system

A parameter of a type that nobody can type (a table, a list of lists) is a knob for Python alone.
"""

from __future__ import annotations

import builtins
import inspect
import math
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from ringwright.ground.units import format_size

NONE = "none"
MOST_WORDS = 8  # in a brief line


@dataclass(frozen=True)
class Range:
    """From ``low`` to ``high``, both included. ``unit``: B (sizes), B/s (rates) and s (times) may be typed with theirs."""

    low: float
    high: float
    unit: str = ""


@dataclass(frozen=True)
class Choices:
    """One of these words; dashes and case do not matter. ``means`` knows other spellings: it returns a word, or None."""

    words: tuple[str, ...]
    means: Callable[[str], str | None] | None = None


@dataclass(frozen=True)
class Pattern:
    """A word of this shape; ``says`` describes it and ``examples`` are some."""

    shape: str
    says: str
    examples: tuple[str, ...]


class AnAlgorithm:
    """Stands for the type ``Algorithm`` in an annotation: the name of another system is typed."""


class Untypable:
    """Stands for a type that only Python can give."""


@dataclass(frozen=True)
class Form:
    """One way to type a value: ``kind`` is int, float, bool, text or algorithm; ``many``: a list of such, joined by x."""

    kind: str
    limits: Range | None = None
    choices: tuple[str, ...] = ()
    pattern: Pattern | None = None
    many: bool = False
    means: Callable[[str], str | None] | None = None

    def __str__(self) -> str:
        if self.kind == "algorithm":
            return "the name of an algorithm"
        if self.kind == "bool":
            return "true or false"
        if self.kind == "text":
            known = ", ".join(word or "(empty)" for word in self.choices)
            return " or ".join(each for each in (known, self.pattern.says if self.pattern else "") if each) or "a word"
        if self.limits is not None and self.limits.low == self.limits.high:
            return plain(self.limits.low)
        noun = {"int": ("a whole number", "whole numbers"), "float": ("a number", "numbers")}[self.kind][self.many]
        return noun + self._bounds() + (" joined by x" if self.many else "")

    @property
    def brief(self) -> str:
        """The form in a word or two."""
        if self.kind == "bool":
            return "true|false"
        if self.kind == "algorithm":
            return "SLUG"
        if self.kind == "text":
            words = (*(word or "(empty)" for word in self.choices), *([self.pattern.says] if self.pattern else []))
            return "|".join(words) if len(words) <= MOST_WORDS else f"{words[0]}|{words[1]}|..."
        ends = self._ends() if self.limits else self.kind
        return f"[{ends}]x..." if self.many else ends

    def _ends(self) -> str:
        assert self.limits is not None  # noqa: S101 - asked where there are some
        low, high, unit = self.limits.low, self.limits.high, self.limits.unit
        if low == high:
            return plain(low)
        if unit == "B" and math.isfinite(high):
            return f"{plain(low)}..{format_size(high).replace(' ', '')}"
        return f"{plain(low)}..{plain(high)}{unit}"

    def _bounds(self) -> str:
        if self.limits is None:
            return ""
        unit, (low, high) = self.limits.unit, (self.limits.low, self.limits.high)
        if unit == "B":
            return f" of bytes from {plain(low)} to {format_size(high) if math.isfinite(high) else 'inf'}"
        as_in = {"B/s": " (also as 50GB/s or 400Gb/s)", "s": " (also as 0.5us)"}.get(unit, "")
        return f" from {plain(low)} to {plain(high)}" + (f" {unit}{as_in}" if unit else "")


@dataclass(frozen=True)
class Knob:
    """One knob: its name, the ways to type it, its default, whether ``none`` may be typed, and what it means."""

    name: str
    forms: tuple[Form, ...]
    default: object
    is_optional: bool = False
    meaning: str = ""

    @property
    def can_be_typed(self) -> bool:
        """Whether a command line can set it."""
        return bool(self.forms)

    @property
    def expects(self) -> str:
        """What may be typed, in words."""
        if not self.forms:
            return "set from Python only"
        return " or ".join([*map(str, self.forms), *([NONE] if self.is_optional else [])])

    @property
    def brief(self) -> str:
        """What may be typed, in a word or two: ``1..64``, ``ll|ll128|simple``."""
        return "|".join(form.brief for form in self.forms)

    def document(self) -> dict[str, object]:
        """Return the knob as plain data, for JSON: name, type, default, low, high, unit, choices, meaning."""
        limits = next((form.limits for form in self.forms if form.limits), None)
        return {
            "name": self.name,
            "type": " or ".join(dict.fromkeys(f"{form.kind}s" if form.many else form.kind for form in self.forms)),
            "expects": self.expects,
            "default": spelled(self.default),
            "low": _finite(limits.low) if limits else None,
            "high": _finite(limits.high) if limits else None,
            "unit": limits.unit if limits else "",
            "choices": [word for form in self.forms for word in form.choices],
            "meaning": self.meaning,
        }


def spelled(value: object) -> str:
    """Return a default as it would be typed."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return "x".join(map(spelled, value))
    if isinstance(value, float):
        return plain(value)
    return getattr(value, "__name__", str(value)).replace("_", "-") if callable(value) else str(value)


def plain(value: float) -> str:
    """Return a bound or default without a needless fraction."""
    return f"{value:.0f}" if abs(value) < 1e13 and value == int(value) else f"{value:g}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# --------------------------------------------------------------------------------------------------------- signatures
class _Names(dict[str, Any]):
    """The names of an annotation: those that are imported for type checkers alone stand for what cannot be typed."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        super().__init__(Algorithm=AnAlgorithm, Sequence=Sequence)
        self.known = known

    def __missing__(self, name: str) -> Any:
        return self.known.get(name, getattr(builtins, name, Untypable))


def knobs_of(call: Callable[..., Any], meaning: Callable[[str], str] = lambda _: "") -> dict[str, Knob]:
    """Return the knobs of a callable by name: its keyword-only parameters, those of ``**options`` aside."""
    names = _Names(getattr(call, "__globals__", {}))
    found = {}
    for each in inspect.signature(call).parameters.values():
        if each.kind is each.KEYWORD_ONLY:
            found[each.name] = knob_of(each.name, each.annotation, each.default, names, meaning(each.name))
    return found


def knobs_of_fields(table: type, meaning: Callable[[str], str] = lambda _: "") -> dict[str, Knob]:
    """Return the fields of a dataclass as knobs: what ``**options`` takes."""
    names = _Names(vars(sys.modules[table.__module__]))
    return {each.name: knob_of(each.name, each.type, each.default, names, meaning(each.name)) for each in fields(table)}


def knob_of(
    name: str, annotation: object, default: object, names: Mapping[str, Any] | None = None, meaning: str = ""
) -> Knob:
    """Return the knob that an annotation describes, written out or as text."""
    if isinstance(annotation, str):
        annotation = eval(annotation, {}, names)  # noqa: S307 - source text of a loaded module
    members = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    forms = tuple(form for form in map(_form, members) if form is not None)
    return Knob(name, forms, default, types.NoneType in members or None in members, meaning)


def _form(annotation: Any) -> Form | None:
    if get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        made = _form(inner)
        return None if made is None else _noted(made, notes)
    if get_origin(annotation) is Literal:
        return Form("text", choices=tuple(map(str, get_args(annotation))))
    if get_origin(annotation) in (tuple, Sequence, list):
        one = _form(get_args(annotation)[0])
        is_single = one is not None and not one.many and one.kind != "algorithm"
        return None if one is None or not is_single else Form(one.kind, one.limits, one.choices, one.pattern, many=True)
    kinds = {bool: "bool", int: "int", float: "float", str: "text", AnAlgorithm: "algorithm"}
    return Form(kinds[annotation]) if annotation in kinds else None


def _noted(form: Form, notes: Sequence[object]) -> Form:
    ranges = [note for note in notes if isinstance(note, Range)]
    words = [word for note in notes if isinstance(note, Choices) for word in note.words]
    means = [note.means for note in notes if isinstance(note, Choices) and note.means]
    patterns = [note for note in notes if isinstance(note, Pattern)]
    return Form(
        form.kind,
        ranges[0] if ranges else form.limits,
        (*form.choices, *words),
        patterns[0] if patterns else form.pattern,
        form.many,
        means[0] if means else form.means,
    )


# What several systems have in common.
Channels = Annotated[int, Range(1, 64)]
Segments = Annotated[int, Range(1, 1024)]
Slots = Annotated[int, Range(1, 1 << 20)]
SegmentBytes = Annotated[int, Range(0, 1 << 40, "B")]
Radix = Annotated[int, Range(2, 64)]
Ranks = Annotated[int, Range(1, 65536)]
Ports = Annotated[int, Range(1, 1024)]  # of one switch
Seed = Annotated[int, Range(0, 999_999_999)]
Mebibytes = Annotated[float, Range(0, 65536, "MiB")]
Microseconds = Annotated[float, Range(0, 1e6, "us")]
Rate = Annotated[float, Range(1e3, 1e14, "B/s")]
RateOrNoLink = Rate | Annotated[float, Range(0, 0, "B/s")]
Seconds = Annotated[float, Range(0, 10, "s")]
Ratio = Annotated[float, Range(0.01, 1000)]
Elements = Annotated[int, Range(1, 10**12)]
Piece = Annotated[float, Range(0.001, 65536, "MiB")]  # what gradients are cut into
Dimension = Annotated[str, Pattern("[a-z][a-z0-9_.]{0,63}", "a dimension of the job's values", ("batch", "sequence"))]
Role = Annotated[str, Pattern("[a-z][a-z0-9_-]{0,31}", "a role of payloads", ("sparse", "dp"))]
RANDOM = Pattern("random(-[0-9]{1,9})?", "random-SEED", ("random-1", "random-7"))
