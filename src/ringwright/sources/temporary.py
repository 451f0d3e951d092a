"""A folder that lives as long as the object that holds it, and goes silently with it."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path


class TemporaryFolder:
    """Hold this to keep ``path``; the folder is removed when the holder is gone or the interpreter ends."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="ringwright-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
