"""The kinds of rewrites, read from their folder, and a rewrite's settings in the types of its kind."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Protocol, cast

import msgspec

from ringwright.ground.errors import UsageError
from ringwright.model.rewrites import kinds
from ringwright.model.rewrites.operation import Operation
from ringwright.model.workload import Rewrite


class RewriteKind(Protocol):
    """What a file in ``kinds/`` offers; see ``ringwright.model.rewrites``."""

    Settings: type[msgspec.Struct]
    NEEDS: tuple[tuple[str, ...], ...]
    CARRIED_BY: tuple[str, ...]
    WHOLE: bool

    def rewritten(self, operations: Sequence[Operation], settings: Any) -> Iterable[Operation]:
        """Return the operations afterwards."""
        ...


KINDS: dict[str, RewriteKind] = {
    name: cast("RewriteKind", import_module(f"{kinds.__name__}.{name}"))
    for _, name, _ in pkgutil.iter_modules(kinds.__path__)
}


def kind_of(name: str) -> RewriteKind:
    """Return the kind of that name; UsageError for none."""
    if name not in KINDS:
        raise UsageError(f"'{name}' is no rewrite", remedy=f"one of: {', '.join(KINDS)}")
    return KINDS[name]


def settings_of(rewrite: Rewrite) -> Any:
    """Return the settings of a rewrite in the types of its kind; UsageError for a missing, unknown or wrong one."""
    kind = kind_of(rewrite.kind)
    try:
        settings = msgspec.convert(rewrite.settings, kind.Settings)
    except msgspec.ValidationError as error:
        known = ", ".join(kind.Settings.__struct_fields__)
        raise UsageError(f"a {rewrite.kind}: {error}", where="rewrite", remedy=f"its settings: {known}") from None
    if not any(all(rewrite.settings.get(name) is not None for name in names) for names in kind.NEEDS):
        needed = " or ".join(", ".join(names) for names in kind.NEEDS)
        raise UsageError(f"a {rewrite.kind} without {' and '.join(kind.NEEDS[0])}", remedy=f"settings: {needed}")
    return settings


def carried_by(where: str) -> tuple[str, ...]:
    """Return the kinds that run on real ranks by ``live``, ``hook`` or ``buckets``; see ``ringwright.model.rewrites``."""
    return tuple(name for name, kind in KINDS.items() if where in kind.CARRIED_BY)
