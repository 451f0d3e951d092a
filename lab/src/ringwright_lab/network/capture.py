"""The folder in which a lab tells what it did; every line is written whole and at once, so that a killed lab's folder is complete
up to that moment.

``lab.json``: what was asked, on what, and in the end the verdict. ``timeline.jsonl``: what happened when. ``counters.jsonl``:
bytes, packets and drops of every link, ten times a second. ``rank-N.out``, ``rank-N.err``: what the ranks printed.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from ringwright.ground import drafts
from ringwright.ground.errors import UsageError

SCHEMA = "ringwright.lab/1"
NAMES = ("lab.json", "timeline.jsonl", "counters.jsonl")


class Capture:
    """Appends to the files of a folder; with ``folder`` None, keeps the timeline in memory alone."""

    def __init__(self, folder: Path | None, *, force: bool = False) -> None:
        self.folder = folder
        self.timeline: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._files: dict[str, int] = {}
        if folder is not None:
            self._make(folder, force=force)

    def _make(self, folder: Path, *, force: bool) -> None:
        ours = [*(folder / name for name in NAMES), *folder.glob("rank-*.out"), *folder.glob("rank-*.err")]
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is no folder", remedy="--output DIR")
        if not force and folder.exists() and any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty", remedy="name another --output, or --force")
        folder.mkdir(parents=True, exist_ok=True)
        for path in ours:
            path.unlink(missing_ok=True)

    def event(self, event: str, **words: object) -> dict[str, Any]:
        """Write one line of the timeline, stamped with wall-clock and monotonic seconds; return it."""
        line = {"t_wall_s": time.time(), "t_mono_s": time.monotonic(), "event": event, **words}
        self.timeline.append(line)
        self.line("timeline.jsonl", line)
        return line

    def line(self, name: str, words: dict[str, Any]) -> None:
        """Append one object to a file of lines, past every buffer of this process."""
        if self.folder is None:
            return
        with self._lock:
            if name not in self._files:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._files[name] = os.open(self.folder / name, flags, 0o644)
            os.write(self._files[name], json.dumps(words, separators=(",", ":")).encode() + b"\n")

    def head(self, document: dict[str, Any]) -> None:
        """Write ``lab.json`` whole, by renaming: a reader finds the old one or the new one."""
        if self.folder is not None:
            drafts.write(self.folder / "lab.json", json.dumps({"schema": SCHEMA, **document}, indent=1) + "\n")

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            for number in self._files.values():
                os.close(number)
            self._files.clear()
