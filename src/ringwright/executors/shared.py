"""What the tasks of a question share, such as its job: a process makes it once, and keeps it until it is asked for another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ringwright.executors.content import name_of

R = TypeVar("R")
_latest: dict[Callable[..., Any], tuple[str, Any]] = {}  # by what makes it: of what it was made, and it


def shared(make: Callable[..., R], *given: Any, name: str = "") -> R:
    """Return what ``make`` makes of what it is given; ``name`` says of what, where that has none of its content."""
    name = name or name_of(make, given)
    if make not in _latest or _latest[make][0] != name:
        _latest[make] = name, make(*given)
    made: R = _latest[make][1]
    return made


def share(made: R, make: Callable[..., R], *given: Any) -> None:
    """Let the tasks that this process does itself have what whoever asks has already, in place of what ``make`` would make."""
    _latest[make] = name_of(make, given), made


def let_go(make: Callable[..., Any]) -> None:
    """Keep no longer what ``make`` made last."""
    _latest.pop(make, None)
