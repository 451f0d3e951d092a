"""What a user typed for a knob, as a value; what is no value of it is refused by name, range and command."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import NONE, Form, Knob, Range
from ringwright.ground.units import parse_rate, parse_size, parse_time

MOST_ITEMS = 4096  # of a list in a spelling
TRUE, FALSE = ("true", "yes", "on"), ("false", "no", "off")
_INT = re.compile(r"[+-]?[0-9]{1,18}")
_FLOAT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]{1,3})?|inf", re.IGNORECASE)


def parse(
    owner: str, knob: Knob, text: str, *, where: str = "", named: Callable[[str], object] | None = None
) -> object:
    """Return the value that was typed; ``named`` finds an algorithm by name.

    Raises UsageError that says what was typed, what is expected and which command lists it.
    """
    if knob.is_optional and text.strip().lower() == NONE:
        return None
    why = ""
    for form in knob.forms:
        try:
            return _items(form, text.strip(), named)
        except ValueError as error:
            why = f" ({error})" if form.kind == "algorithm" and str(error) else ""
    raise UsageError(
        f"{owner} cannot have {knob.name}={text}: {knob.name} is {knob.expects}{why}",
        where=where,
        remedy=f"ringwright systems {owner}",
    )


def unknown(owner: str, name: str, known: Mapping[str, Knob], *, where: str = "") -> UsageError:
    """Return the error for a knob that a system does not have."""
    has = f"it has {', '.join(known)}" if known else "it has none"
    return UsageError(f"{owner} has no knob '{name}': {has}", where=where, remedy=f"ringwright systems {owner}")


def _items(form: Form, text: str, named: Callable[[str], object] | None) -> object:
    if not form.many:
        return _value(form, text, named)
    items = text.split("x")
    if len(items) > MOST_ITEMS:
        raise ValueError(text)
    return tuple(_value(form, item.strip(), named) for item in items)


def _value(form: Form, text: str, named: Callable[[str], object] | None) -> object:
    if form.kind == "text":
        return _word(form, text)
    if form.kind == "algorithm":
        if named is None or not text:
            raise ValueError
        return _found(named, text)
    if form.kind == "bool":
        if text.lower() not in (*TRUE, *FALSE):
            raise ValueError(text)
        return text.lower() in TRUE
    return _number(form, text)


def _found(named: Callable[[str], object], text: str) -> object:
    try:
        return named(text)
    except UsageError as error:
        raise ValueError(f"{error.what}; {error.remedy.rpartition('; ')[2]}") from error


def _word(form: Form, text: str) -> str:
    if not form.choices and form.pattern is None:
        return text
    alike = {_folded(word): word for word in form.choices}
    if _folded(text) in alike:
        return alike[_folded(text)]
    if form.means and (meant := form.means(text)) in form.choices:
        return str(meant)
    if form.pattern and re.fullmatch(form.pattern.shape, text):
        return text
    raise ValueError(text)


def _folded(word: str) -> str:
    return word.lower().replace("-", "_")


def _number(form: Form, text: str) -> float:
    limits = form.limits or Range(-math.inf, math.inf)
    value = _measured(form.kind, text, limits.unit)
    if not limits.low <= value <= limits.high:
        raise ValueError(text)
    return value


def _measured(kind: str, text: str, unit: str) -> float:
    """Return a number, with its unit where it has one; ValueError for anything else."""
    reads: dict[str, Callable[[str], float]] = {"B": parse_size, "B/s": parse_rate, "s": parse_time}
    if kind == "int" and _INT.fullmatch(text):
        return int(text)
    if kind == "int" and _FLOAT.fullmatch(text) and (value := float(text)).is_integer():
        return int(value)  # as 5e4
    if kind == "float" and _FLOAT.fullmatch(text):
        return float(text)
    if unit in reads:
        try:
            return reads[unit](text)
        except UsageError as error:
            raise ValueError(text) from error
    raise ValueError(text)
