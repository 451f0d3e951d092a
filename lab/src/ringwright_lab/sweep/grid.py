"""A grid as a TOML file: every combination of the axes, what all have in common, and single grid points besides.

[axes]
model = ["gpt2", "llama"]
parallel = ["ddp:dp=2", "fsdp:dp=2"]
[all]
steps = 4
[[cell]]
model = "vgg"
parallel = "ddp:dp=2"
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringwright.ground.errors import InputError, RingwrightError, UsageError
from ringwright_lab.sweep.checks import check
from ringwright_lab.sweep.environment import known
from ringwright_lab.sweep.point import GridPoint, point

MOST_CELLS = 100_000
EXAMPLE = """a TOML file such as: axes = {model = ["gpt2"], parallel = ["ddp:dp=2"]}, and below it all = {steps = 4}"""


@dataclass(frozen=True)
class Grid:
    """The grid points of a sweep, and combinations that are not legal with the reason for each."""

    points: tuple[GridPoint, ...]
    left_out: tuple[tuple[GridPoint, str], ...] = ()

    def __add__(self, other: Grid) -> Grid:
        """Return both grids, each grid point once."""
        return Grid(tuple(dict.fromkeys((*self.points, *other.points))), (*self.left_out, *other.left_out))


def read_grid(path: Path) -> Grid:
    """Return the grid of a TOML file; InputError where it cannot be read, UsageError where it asks for what does not exist."""
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"no grid: {error}", where=str(path), remedy=EXAMPLE) from error
    strange = sorted(set(document) - {"axes", "all", "cell"})
    if strange:
        raise UsageError(f"a grid has no part '{strange[0]}'", where=str(path), remedy="[axes], [all] and [[cell]]")
    common = document.get("all", {})
    grid = grid_of(document["axes"], common) if document.get("axes") else Grid(())
    singles = document.get("cell", [])
    points = grid + legal(known(point({**common, **each})) for each in singles)
    if not points.points:
        why = points.left_out[0][1] if points.left_out else "it has no axes and no cell"
        raise UsageError(f"nothing to run: {why}", where=str(path))
    return points


def grid_of(axes: Mapping[str, Iterable[Any]], common: Mapping[str, Any] | None = None) -> Grid:
    """Return the grid points of every combination of the axes' values; combinations that are not legal are listed, not run."""
    lists = {name: list(values) if not isinstance(values, str) else [values] for name, values in axes.items()}
    total = 1
    for values in lists.values():
        total *= len(values)
    if total > MOST_CELLS:
        raise UsageError(f"{total:,} combinations, at most {MOST_CELLS:,} are run", remedy="fewer values on an axis")
    made = (dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values()))
    return legal(known(point({**(common or {}), **each})) for each in made)


def legal(points: Iterable[GridPoint]) -> Grid:
    """Return the grid points that can be run, each once, and the others with the reason."""
    good: dict[GridPoint, None] = {}
    bad: list[tuple[GridPoint, str]] = []
    for each in points:
        try:
            check(each)
        except RingwrightError as error:
            bad.append((each, f"{error.what}; {error.remedy}" if error.remedy else error.what))
        else:
            good[each] = None
    return Grid(tuple(good), tuple(bad))
