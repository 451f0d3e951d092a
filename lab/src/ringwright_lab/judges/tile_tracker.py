"""The tracker at a memory controller: it counts updates of tiles, and starts a prepared copy when a tile has them all.

A tile has an entry from its first update on, a local store or one that came from another GPU, whichever is sooner; so none is
lost that comes early. The entry is free again when the copy has been started: once, and never sooner than the last update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ringwright.ground.errors import InfeasibleError, UsageError

ENTRIES = 256
Tile = tuple[int, int]  # chunk, tile of the chunk


@dataclass
class Tracker:
    """Counts updates of at most ``entries`` tiles at once; ``thresholds``: how many each tile of a chunk waits for.

    A tile of a chunk without a threshold is not tracked.
    """

    thresholds: Mapping[int, int]
    entries: int = ENTRIES
    counted: dict[Tile, int] = field(default_factory=dict)
    started: set[Tile] = field(default_factory=set)

    def update(self, tile: Tile) -> bool:
        """Count an update of a tile; return whether its copy starts now.

        UsageError for an update of a tile whose copy has been started; InfeasibleError where no entry is free.
        """
        wanted = self.thresholds.get(tile[0])
        if wanted is None:
            return False
        if tile in self.started:
            raise UsageError(
                f"an update of tile {tile[1]} of chunk {tile[0]} comes after its {wanted}, when it has been sent on",
                remedy="thresholds that count every update",
            )
        if tile not in self.counted and len(self.counted) >= self.entries:
            raise InfeasibleError(
                f"{len(self.counted)} tiles wait for updates, and the tracker has {self.entries} entries",
                remedy="larger tiles, or fewer at once",
            )
        count = self.counted.get(tile, 0) + 1
        if count < wanted:
            self.counted[tile] = count
            return False
        self.counted.pop(tile, None)
        self.started.add(tile)
        return True
