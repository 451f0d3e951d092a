"""What a timeline shows of one stretch: single events where few are in sight, shares of bins where many are; and search."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.analysis.timeline.event_levels import COARSEST, FULL
from ringwright.ground.errors import UsageError

Told = dict[str, object]  # an answer, as plain JSON values

if TYPE_CHECKING:
    import numpy as np

    from ringwright.analysis.timeline.event_levels import EventLevels

MOST_EVENTS = 6000  # single ones, in all rows of a view
MOST_ROWS = 256
MOST_PIXELS = 20_000
MOST_LINKS = 2000
WIDEST_BIN = 2  # pixels
WIDE_PIXELS = 40  # from here on an event has room for its name
MOST_SCANNED = (
    4_000_000  # events that a filter looks at one by one; a wider view is refused a filter by size or communicator
)


@dataclass(frozen=True)
class Sight:
    """A stretch, numbers of rows and what is left of them: ``operations`` (none: all), least size, one communicator."""

    begin_us: float
    end_us: float
    rows: Sequence[int] = ()
    pixels: int = 1000
    operations: frozenset[int] = frozenset()
    least_bytes: int = 0
    communicator: int = -1

    def __post_init__(self) -> None:
        if not (self.end_us > self.begin_us and 1 <= self.pixels <= MOST_PIXELS and len(self.rows) <= MOST_ROWS):
            raise UsageError(
                "no such stretch of a timeline", remedy=f"a begin before the end, at most {MOST_ROWS} rows"
            )

    @property
    def is_filtered(self) -> bool:
        """Whether single events have to be looked at."""
        return self.least_bytes > 0 or self.communicator >= 0


def view(levels: EventLevels, sight: Sight) -> Told:
    """Return what is in sight.

    Where at most MOST_EVENTS are in sight, ``events`` is a list for each row of [number, start in us after the view's begin,
    duration, operation, share that waited in %, communicator, call in it], and ``names`` has those of events wide enough. Else
    ``bins`` is a list for each row of [operations, busy, events]: base64 of a byte a bin, ``bin_us`` wide each, from
    ``origin_us`` on; 255 is busy all the time.
    """
    rows = [row for row in sight.rows if 0 <= row < len(levels.rows)]
    spans = [_span(levels, row, sight) for row in rows]
    told: Told = {"rows": rows, "begin_us": sight.begin_us, "end_us": sight.end_us}
    in_sight = sum(b - a for a, b in spans)
    if in_sight > MOST_EVENTS and sight.is_filtered:
        if in_sight > MOST_SCANNED:
            raise UsageError(
                "too much is in sight for a filter by size or communicator", remedy="zoom in, or fewer rows"
            )
        kept = [_kept(levels, span, sight) for span in spans]
        if sum(map(len, kept)) > MOST_EVENTS:
            return told | _counted(levels, kept, sight)
        return told | _events(levels, kept, sight)
    if in_sight > MOST_EVENTS:
        return told | _bins(levels, rows, sight)
    return told | _events(levels, [_kept(levels, span, sight) for span in spans], sight)


def _span(levels: EventLevels, row: int, sight: Sight) -> tuple[int, int]:
    """Return where the events of a row that may touch the stretch lie."""
    import numpy as np

    a, b = int(levels.first[row]), int(levels.first[row + 1])
    start = levels.columns["start_us"][a:b]
    low = np.searchsorted(start, sight.begin_us - levels.longest_us[row], "left")
    high = np.searchsorted(start, sight.end_us, "right")
    return a + int(low), a + int(high)


def _kept(levels: EventLevels, span: tuple[int, int], sight: Sight) -> np.ndarray:
    """Return the numbers of the events of a span that touch the stretch and pass the filters."""
    import numpy as np

    a, b = span
    columns = {name: array[a:b] for name, array in levels.columns.items()}
    kept = columns["start_us"] + columns["duration_us"] >= sight.begin_us
    if sight.operations:
        kept &= np.isin(columns["operation"], list(sight.operations))
    if sight.least_bytes:
        kept &= columns["size_bytes"] >= sight.least_bytes
    if sight.communicator >= 0:
        kept &= columns["communicator"] == sight.communicator
    return a + np.flatnonzero(kept)


def _events(levels: EventLevels, kept: Sequence[np.ndarray], sight: Sight) -> Told:
    import numpy as np

    rows, shown = [], set()
    names: dict[int, str] = {}
    wide_us = WIDE_PIXELS * (sight.end_us - sight.begin_us) / sight.pixels
    for numbers in kept:
        columns = {name: array[numbers] for name, array in levels.columns.items()}
        start = np.round(columns["start_us"] - sight.begin_us, 3)
        length = np.maximum(columns["duration_us"], 1e-9)
        waited = np.clip(np.maximum(columns["wait_us"], 0.0) / length, 0.0, 1.0) * 100.0
        rows.append(
            [
                list(each)
                for each in zip(
                    numbers.tolist(),
                    start.tolist(),
                    np.round(columns["duration_us"].astype(float), 3).tolist(),
                    columns["operation"].tolist(),
                    waited.astype(int).tolist(),
                    columns["communicator"].tolist(),
                    columns["sequence"].tolist(),
                    strict=True,
                )
            ]
        )
        shown.update(numbers.tolist())
        wide = columns["duration_us"] >= wide_us
        names |= {
            number: levels.names[name]
            for number, name in zip(numbers[wide].tolist(), columns["name"][wide].tolist(), strict=True)
        }
    links = (
        [pair for pair in levels.links.tolist() if pair[0] in shown and pair[1] in shown] if len(levels.links) else []
    )
    return {"events": rows, "names": names, "links": links[:MOST_LINKS]}


def _bins(levels: EventLevels, rows: Sequence[int], sight: Sight) -> Told:
    """Return the level whose bins are at most two pixels wide."""
    import numpy as np

    wanted = sight.pixels * levels.end_us / (sight.end_us - sight.begin_us) / WIDEST_BIN
    level = next((at for at, busy in enumerate(levels.busy) if busy.shape[2] >= wanted), len(levels.busy) - 1)
    busy, count = levels.busy[level], levels.count[level]
    bins = busy.shape[2]
    bin_us = levels.end_us / bins
    low = min(max(int(sight.begin_us / bin_us), 0), bins - 1)
    high = min(max(int(np.ceil(sight.end_us / bin_us)), low + 1), bins)
    shown = np.array([at for at in range(busy.shape[0]) if not sight.operations or at in sight.operations], np.uint8)
    answer = []
    for row in rows:
        part = np.asarray(busy[shown, row, low:high])
        most = shown[part.argmax(axis=0)] if len(shown) else np.zeros(high - low, np.uint8)
        share = np.minimum(part.sum(axis=0, dtype=np.int64), FULL)
        answer.append(_packed(most, share, int(count[row, low:high].sum())))
    return {"bins": answer, "bin_us": bin_us, "origin_us": low * bin_us}


def _counted(levels: EventLevels, kept: Sequence[np.ndarray], sight: Sight) -> Told:
    """Return bins of filtered events: a bin is as busy as the events that begin in it, and shows the last of them."""
    import numpy as np

    bins = min(sight.pixels, COARSEST * 4)
    bin_us = (sight.end_us - sight.begin_us) / bins
    answer = []
    for numbers in kept:
        start, length, of = (levels.columns[name][numbers] for name in ("start_us", "duration_us", "operation"))
        at = np.clip(((start - sight.begin_us) / bin_us).astype(np.int64), 0, bins - 1)
        share = np.clip(np.bincount(at, weights=length, minlength=bins) / bin_us * FULL, 1, FULL)
        last = np.zeros(bins, np.uint8)
        last[at] = of
        answer.append(_packed(last, np.where(np.bincount(at, minlength=bins) > 0, share, 0), len(numbers)))
    return {"bins": answer, "bin_us": bin_us, "origin_us": sight.begin_us}


def _packed(operation: np.ndarray, busy: np.ndarray, events: int) -> list[str | int]:
    """Return a row's bins as base64: a byte each for the operation and for how busy, then how many events begin in them."""
    return [*(b64encode(each.astype("uint8").tobytes()).decode("ascii") for each in (operation, busy)), events]


def event(levels: EventLevels, number: int) -> Told:
    """Return one event whole; UsageError where there is none of that number."""
    import numpy as np

    if not 0 <= number < len(levels.columns["start_us"]):
        raise UsageError(f"the timeline has no event {number}", remedy="load the page again")
    row = int(np.searchsorted(levels.first, number, "right")) - 1
    at = {name: array[number].item() for name, array in levels.columns.items()}
    return {
        "number": number,
        "row": row,
        "label": levels.rows[row].label,
        "host": levels.rows[row].host,
        "track": levels.rows[row].track,
        "name": levels.names[at["name"]],
        "operation": levels.operations[at["operation"]],
        "start_us": at["start_us"],
        "duration_us": at["duration_us"],
        "size_bytes": at["size_bytes"] if at["size_bytes"] >= 0 else None,
        "wait_us": at["wait_us"] if at["wait_us"] >= 0 else None,
        "communicator": at["communicator"] if at["communicator"] >= 0 else None,
        "sequence": at["sequence"] if at["sequence"] >= 0 else None,
    }


def search(levels: EventLevels, text: str, after_us: float, *, back: bool = False) -> Told:
    """Return how many events have a name that holds a text, and the next one after a moment, or the last one before it."""
    import numpy as np

    wanted = [at for at, name in enumerate(levels.names) if text.lower() in name.lower()]
    hits = np.flatnonzero(np.isin(levels.columns["name"], wanted)) if wanted else np.zeros(0, np.int64)
    if not len(hits):
        return {"hits": 0, "event": None}
    start = levels.columns["start_us"][hits]
    beyond = np.flatnonzero(start < after_us if back else start > after_us)
    if not len(beyond):  # begin again at the other end
        beyond = np.arange(len(hits))
    pick = beyond[start[beyond].argmax() if back else start[beyond].argmin()]
    return {"hits": len(hits), "event": event(levels, int(hits[pick]))}
