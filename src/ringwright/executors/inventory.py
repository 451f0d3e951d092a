"""What a worker must have in common with the one who asks: this release to the byte, and the libraries that numbers come from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from ringwright.ground.version import VERSION

LIBRARIES = ("numpy", "polars", "msgspec")
PACKAGES = ("ringwright", "ringwright_lab")
ABSENT = "none"


@cache
def inventory() -> Mapping[str, str]:
    """Return by name what this process has: the version, a digest of each package's source, the libraries' versions."""
    sources = {f"source of {name}": _digest(name) for name in PACKAGES}
    return {"ringwright": VERSION, **sources, **{name: _version(name) for name in LIBRARIES}}


def differences(mine: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Return in words where a worker (``theirs``) differs from the one who asks; empty where it does not."""
    apart = [
        f"{name} {theirs.get(name, ABSENT)} (here {mine.get(name, ABSENT)})"
        for name in dict.fromkeys((*mine, *theirs))
        if mine.get(name, ABSENT) != theirs.get(name, ABSENT)
    ]
    return ", ".join(apart)


def lacking(paths: Iterable[str]) -> list[str]:
    """Return the paths that are not there."""
    return [each for each in paths if not Path(each).exists()]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ABSENT


def _digest(package: str) -> str:
    """Return a digest of a package's Python source, short enough to read aloud."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return ABSENT
    digest = hashlib.sha256()
    for folder in map(Path, spec.submodule_search_locations):
        for path in sorted(folder.rglob("*.py")):
            digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]
