"""Distributions of others, as they stand when installed: modules on the path beside their list of entry points."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ringwright.ground import plugins


def install(
    folder: Path,
    patch: pytest.MonkeyPatch,
    points: Mapping[str, Mapping[str, str]],
    *,
    name: str = "outside",
    **modules: str,
) -> None:
    """Install a distribution for the time of a test: ``points`` are group -> name -> value, ``modules`` name -> source."""
    for module, source in modules.items():
        (folder / f"{module}.py").write_text(source)
        patch.delitem(sys.modules, module, raising=False)
    notes = folder / f"{name}-1.2.dist-info"
    notes.mkdir()
    (notes / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    listed = [
        f"[ringwright.{group}]\n" + "".join(f"{key} = {value}\n" for key, value in rows.items())
        for group, rows in points.items()
    ]
    (notes / "entry_points.txt").write_text("\n".join(listed))
    patch.setattr(plugins, "_loaded", {})
    if str(folder) not in sys.path:
        patch.syspath_prepend(folder)
    plugins._installed.cache_clear()
