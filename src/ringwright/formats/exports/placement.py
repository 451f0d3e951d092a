"""Where an export may be written: never over something else without being told to."""

from __future__ import annotations

from pathlib import Path

from ringwright.ground.errors import UsageError


def claim_file(path: str | Path, *, force: bool) -> Path:
    """Return the path of a file to write; raise UsageError where one exists and ``force`` is not given."""
    target = Path(path)
    if target.is_dir():
        raise UsageError(f"{target} is a folder", remedy="name a file with -o")
    _free(target, force=force)
    if not target.parent.is_dir():
        raise UsageError(f"the folder {target.parent} does not exist", remedy=f"mkdir -p {target.parent}")
    return target


def claim_folder(path: str | Path, *, force: bool) -> Path:
    """Return the path of a folder to write into, made where it does not exist; raise UsageError like ``claim_file``."""
    target = Path(path)
    if target.is_file():
        raise UsageError(f"{target} is a file", remedy="name a folder with -o")
    _free(target, force=force)
    target.mkdir(parents=True, exist_ok=True)
    return target


def _free(target: Path, *, force: bool) -> None:
    if target.exists() and not force:
        raise UsageError(f"{target} exists", remedy="add --force to overwrite, or name another output with -o")
