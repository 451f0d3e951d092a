"""Where a user's cache is: one folder for each kind of thing that may be lost."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(kind: str, variable: str = "") -> Path:
    """Return the folder of a kind of thing: what ``variable`` names, else one of ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    given, cache = os.environ.get(variable, "") if variable else "", Path(os.environ.get("XDG_CACHE_HOME", ""))
    return Path(given) if given else (cache if cache.is_absolute() else Path.home() / ".cache") / "ringwright" / kind
