"""Values of knobs as they are typed, drawn from what a knob declares and from what it does not."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ringwright.ground.knobs import NONE, Form, Knob, Range, plain

STRANGE = (
    "",
    "abc",
    "nonsense",
    "-1",
    "-7",
    "0.5",
    "nan",
    "-inf",
    "inf",
    "1e309",
    "1e99",
    "99999999999999999999",
    "0x10",
    "1x",
    "x",
    "1xx2",
    "2x-1",
    "None",
    "[1]",
    "{}",
    "1;2",
    "..",
    "%s",
    "é",
    "true false",
    "1_000",
    "+-3",
    "ring",
    "\x00",
    "٣",
)
MOST = 1e9  # where a range has no end


@dataclass(frozen=True)
class Spelling:
    """One value of a knob as text, and whether the knob declares it."""

    knob: str
    text: str
    is_declared: bool


def spellings(
    knob: Knob, draw: random.Random, count: int = 20, *, ranks: int = 16, algorithms: Sequence[str] = ("ring",)
) -> Iterator[Spelling]:
    """Yield ``count`` spellings of a knob, half of them declared; of a knob for Python alone none is."""
    for number in range(count):
        if number % 2 == 0 and knob.can_be_typed:
            yield Spelling(knob.name, declared(knob, draw, ranks, algorithms), is_declared=True)
        else:
            yield Spelling(knob.name, draw.choice((*STRANGE, *beyond(knob))), is_declared=False)


def declared(knob: Knob, draw: random.Random, ranks: int, algorithms: Sequence[str]) -> str:
    """Return a value that the knob declares: its ends too, small values oftener than large ones."""
    if knob.is_optional and draw.random() < 0.05:
        return NONE
    form = draw.choice(knob.forms)
    if not form.many:
        return _one(form, draw, algorithms)
    if form.kind == "int" and draw.random() < 0.5:
        return "x".join(map(str, factors(ranks, draw)))
    length = ranks if knob.name == "hosts" else draw.randint(1, 4)
    return "x".join(_one(form, draw, algorithms) for _ in range(length))


def settled(knob: Knob, algorithms: Sequence[str]) -> tuple[str, ...]:
    """Return the values that a knob declares by name: both ends of its ranges, its words, algorithms; none for lists."""
    values: list[str] = [NONE] if knob.is_optional else []
    for form in knob.forms:
        if form.many:
            continue
        if form.limits is not None:
            ends = (form.limits.low, min(form.limits.high, MOST) if math.isinf(form.limits.high) else form.limits.high)
            values += [
                f"{end:.0f}" if form.kind == "int" else repr(float(end)) for end in ends
            ]  # the end itself, unrounded
        values += ["true", "false"] if form.kind == "bool" else []
        values += [*form.choices, *(form.pattern.examples if form.pattern else ())]
        values += algorithms if form.kind == "algorithm" else []
    return tuple(dict.fromkeys(values))


def factors(ranks: int, draw: random.Random) -> list[int]:
    """Return numbers that multiply to a count of ranks."""
    parts = []
    while ranks > 1:
        part = draw.choice([divisor for divisor in range(2, ranks + 1) if ranks % divisor == 0])
        parts.append(part)
        ranks //= part
    return parts or [1]


def beyond(knob: Knob) -> tuple[str, ...]:
    """Return values just outside what a knob declares."""
    limits = [form.limits for form in knob.forms if form.limits]
    below = [plain(limit.low - 1) for limit in limits]
    above = [plain(limit.high * 2 + 1) for limit in limits if math.isfinite(limit.high)]
    return (*below, *above)


def _one(form: Form, draw: random.Random, algorithms: Sequence[str]) -> str:
    if form.kind == "algorithm":
        return draw.choice(algorithms)
    if form.kind == "bool":
        return draw.choice(("true", "false"))
    if form.kind == "text":
        return draw.choice((*form.choices, *(form.pattern.examples if form.pattern else ())) or ("any",))
    number = _between(form.limits or Range(-MOST, MOST), draw)
    return str(round(number)) if form.kind == "int" else repr(float(number))


def _between(limits: Range, draw: random.Random) -> float:
    low, high = limits.low, min(limits.high, MOST) if math.isinf(limits.high) else limits.high
    if draw.random() < 0.1:
        return draw.choice((low, high))
    small = max(low, min(1.0, high / 1e6), 1e-9)
    value = math.exp(draw.uniform(math.log(small), math.log(max(high, small))))
    return min(max(value, low), high)
