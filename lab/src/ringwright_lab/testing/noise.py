"""What healthy ranks do of themselves: how much longer than their peers each takes, step by step, measured on real jobs.

``noise.json`` holds tables that were recorded for this project: gloo ranks on a busy machine of two cores, whose own time (what
passes between calls) was compared with the median rank's. ``from_recordings`` makes such a table of any recording with timed
calls on several ranks. A simulated job draws whole stretches of a table, so that what belongs together stays together.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ringwright.ground.errors import RingwrightError

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

OURS = Path(__file__).with_name("noise.json")
STRETCH = 12  # steps that are drawn together
_FEWEST = 6  # steps of a table that is worth drawing from
_PER_MILLE = 1000

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class HealthyNoise:
    """``late``: tables of ranks x steps, a rank's own time beyond the median rank's in shares of a step. ``shared``: by how much
    the median rank's own time itself changes. ``origin``: where the tables come from."""

    late: tuple[Floats, ...]
    shared: tuple[Floats, ...]
    origin: str

    def ranks(self, p: int, steps: int, rng: np.random.Generator) -> Floats:
        """Return lateness of ``p`` ranks over ``steps`` steps, in shares of a step."""
        return np.stack([self._row(steps, rng) for _ in range(p)])

    def _row(self, steps: int, rng: np.random.Generator) -> Floats:
        table = self.late[rng.integers(len(self.late))]
        return _stretches(table[rng.integers(len(table))], steps, rng)

    def together(self, steps: int, rng: np.random.Generator) -> Floats:
        """Return the change of all ranks' own time, step by step, in shares of a step."""
        return _stretches(self.shared[rng.integers(len(self.shared))], steps, rng)


def _stretches(row: Floats, steps: int, rng: np.random.Generator) -> Floats:
    length = min(STRETCH, len(row))
    starts = rng.integers(0, len(row) - length + 1, -(-steps // length))
    return np.concatenate([row[start : start + length] for start in starts])[:steps]


def ours() -> HealthyNoise:
    """Return the noise that was recorded for this project."""
    document = json.loads(OURS.read_text())
    late = tuple(np.array(job["late"], float) / _PER_MILLE for job in document["jobs"])
    shared = tuple(np.array(job["shared"], float) / _PER_MILLE for job in document["jobs"])
    return HealthyNoise(late, shared, document["origin"])


def from_recordings(paths: Iterable[Path]) -> HealthyNoise | None:
    """Return the noise of recordings, None where none of them has timed calls on several ranks.

    What cannot be read is passed over.
    """
    from ringwright.formats.sources import read

    late, shared, names = [], [], []
    for path in paths:
        try:
            noise = _measured(read(str(path)))
        except (RingwrightError, OSError):
            continue
        if noise is not None:
            late.append(noise[0])
            shared.append(noise[1])
            names.append(path.name)
    return HealthyNoise(tuple(late), tuple(shared), ", ".join(names)) if late else None


def _measured(trace: Trace) -> tuple[Floats, Floats] | None:
    """Return lateness (ranks x steps) and the median's change, from what passes between matched calls of each rank."""
    import polars as pl

    wide = _own(trace)
    if wide is None or wide.height < _FEWEST:
        return None
    own = wide.drop("turn").to_numpy().T
    middle = np.median(own, axis=0)
    step_s = float(wide.select(pl.col("turn").struct.field("step_s")).to_series().median() or 0.0)  # type: ignore[arg-type]
    if step_s <= 0:
        return None
    return (own - middle) / step_s, (middle - np.median(middle)) / step_s


def _own(trace: Trace) -> pl.DataFrame | None:
    """Return seconds of their own per rank (columns) and turn: an iteration, or a call where no iterations are told."""
    import polars as pl

    mine = (
        trace.scan("events")
        .filter(
            (pl.col("kind") == "collective")
            & pl.col("start_s").is_not_null()
            & pl.col("duration_s").is_not_null()
            & pl.col("rank").is_not_null()
            & pl.col("sequence").is_not_null()
        )
        .collect()
    )
    if mine["rank"].n_unique() < 2:
        return None
    ends = pl.col("start_s") + pl.col("duration_s")
    mine = mine.sort("rank", "start_s").with_columns(
        (pl.col("start_s") - ends.shift(1)).over("rank").clip(0).alias("own_s"), ends.alias("end_s")
    )
    by = "iteration" if mine["iteration"].n_unique() > _FEWEST else "sequence"
    turns = (
        mine.filter(pl.col("own_s").is_not_null())
        .group_by("rank", by)
        .agg(
            pl.col("own_s").sum(), (pl.col("end_s").max() - (pl.col("start_s") - pl.col("own_s")).min()).alias("took_s")
        )
    )
    step_s = float(turns["took_s"].median() or 0.0) * (1 if by == "iteration" else turns[by].n_unique())  # type: ignore[arg-type]
    wide = turns.sort(by).pivot(on="rank", index=by, values="own_s").drop_nulls().slice(1)
    return wide.with_columns(pl.struct(pl.col(by), pl.lit(step_s).alias("step_s")).alias("turn")).drop(by)


def main() -> int:
    """Print the tables of recordings: ``python -m ringwright_lab.testing.noise CAPTURE ...``."""
    noise = from_recordings(Path(name) for name in sys.argv[1:])
    if noise is None:
        print("no recording with timed calls on several ranks", file=sys.stderr)  # noqa: T201 - its answer
        return 1
    jobs = [
        {
            "late": np.rint(late * _PER_MILLE).astype(int).tolist(),
            "shared": np.rint(shared * _PER_MILLE).astype(int).tolist(),
        }
        for late, shared in zip(noise.late, noise.shared, strict=True)
    ]
    origin = "gloo ranks recorded on a busy machine of two cores"
    print(json.dumps({"origin": origin, "unit": "thousandths of a step", "jobs": jobs}, separators=(",", ":")))  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
