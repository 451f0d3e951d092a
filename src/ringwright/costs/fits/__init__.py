"""Fits: which share of its data sheet's peak a GPU generation reaches in whole training steps, and what each number rests on.

A fit holds changed figures of a ``Gpu``: one or two of them fitted to measured steps, the others stated with the software that
the steps were measured with. Peaks stay those of the data sheet.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import msgspec

from ringwright.ground import drafts
from ringwright.ground.errors import InputError, UsageError

SCHEMA = "ringwright.fit/1"
_LARGEST_FILE = 1 << 20


class Fit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``figures`` are fields of ``costs.gpus.Gpu``, ``fitted`` names those that were fitted, to ``rows`` steps.

    ``error`` and ``test_error`` are medians of abs(predicted / measured - 1) over the rows fitted and over those kept apart.
    """

    name: str
    gpu: str
    figures: dict[str, float | bool]
    fitted: tuple[str, ...]
    software: str
    source: str
    split: str
    rows: int
    error: float
    test_rows: int = 0
    test_error: float = 0.0

    @property
    def provenance(self) -> str:
        """One line for the assumptions of an answer."""
        numbers = ", ".join(f"{name} {self.figures[name]:.3g}" for name in self.fitted)
        return (
            f"fit {self.name}: {numbers} from {self.rows} measured steps ({self.source}); {self.software}; median error"
            f" {self.error:.1%}"
            + (f", {self.test_error:.1%} on {self.test_rows} other steps" if self.test_rows else "")
        )


def names() -> tuple[str, ...]:
    """Return the fits that ship with the package."""
    folder = resources.files("ringwright.costs.fits")
    return tuple(sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json")))


def load(name_or_path: str | Path) -> Fit:
    """Return the fit of that name, or in that file; UsageError for neither, InputError for a file unfit."""
    path = Path(name_or_path)
    if str(name_or_path) in names():
        data = (resources.files("ringwright.costs.fits") / f"{name_or_path}.json").read_bytes()
        return _parsed(data, str(name_or_path))
    if not path.is_file():
        raise UsageError(
            f"no fit and no file is called '{name_or_path}'",
            remedy=f"ringwright list fits; one of: {', '.join(names())}",
        )
    if path.stat().st_size > _LARGEST_FILE:
        raise InputError("a fit is not that large", where=str(path), remedy=f"one of: {', '.join(names())}")
    return _parsed(path.read_bytes(), str(path))


def save(fit: Fit, path: str | Path) -> None:
    """Write a fit as JSON."""
    drafts.write(path, json.dumps({"schema": SCHEMA, **msgspec.to_builtins(fit)}, indent=1) + "\n")


def _parsed(data: bytes, where: str) -> Fit:
    from dataclasses import fields

    from ringwright.costs.gpus import Gpu

    try:
        document = msgspec.json.decode(data)
        if not isinstance(document, dict) or document.pop("schema", None) != SCHEMA:
            raise InputError(f"the schema is not {SCHEMA}", where=where, remedy=f"one of: {', '.join(names())}")
        fit = msgspec.convert(document, Fit)
    except msgspec.MsgspecError as error:
        raise InputError(f"this is no fit: {error}", where=where, remedy=f"one of: {', '.join(names())}") from error
    strange = set(fit.figures) - {each.name for each in fields(Gpu)} | set(fit.fitted) - set(fit.figures)
    if strange or any(value < 0 for value in fit.figures.values()):
        raise InputError(
            f"'{min(strange, default='a negative number')}' is no figure of a device",
            where=where,
            remedy="efficiency, memory_efficiency, issue_s, flash, attention",
        )
    return fit
