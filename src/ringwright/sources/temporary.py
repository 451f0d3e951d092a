"""A folder that lives as long as the object that holds it, and goes silently with it."""

from __future__ import annotations

import weakref

from ringwright.scratch import Scratch

ROOM = "free some space there, or name a larger place: export TMPDIR=DIR"
PREFIX = "ringwright-read-"


class TemporaryFolder:
    """Hold this to keep ``path``; the folder is removed when the holder is gone or the interpreter ends.

    What a killed interpreter left is removed by the next holder.
    """

    def __init__(self) -> None:
        folder = Scratch(PREFIX)
        self.path = folder.path
        self.remove = weakref.finalize(self, folder.close)
