"""Whether a setting of a rule is of the kind that the rule's signature says, before anything is done with it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a name", NoneType: "nothing"}


def is_of(value: object, hint: Any) -> bool:
    """Return whether a value is of a kind: of text, a number that is finite, a list or mapping of such, or one of several."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(is_of(value, each) for each in parts)
    if origin is Sequence:
        return (
            isinstance(value, Sequence) and not isinstance(value, str) and all(is_of(each, parts[0]) for each in value)
        )
    if origin is Mapping:
        kinds = zip(parts, ("keys", "values"), strict=True)
        return isinstance(value, Mapping) and all(is_of(e, kind) for kind, of in kinds for e in getattr(value, of)())
    if hint in (int, float):
        if isinstance(value, bool) or not isinstance(value, Integral if hint is int else Real):
            return False
        return math.isfinite(value)
    return isinstance(value, hint)


def kind_of(hint: Any) -> str:
    """Return a kind in words: a number, a name, a list of names ..."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(kind_of(each) for each in parts))
    if origin is Sequence:
        return "a list of " + {str: "names", int: "whole numbers"}.get(parts[0], "lists")
    if origin is Mapping:
        return "lists by name"
    return WORDS[hint]
