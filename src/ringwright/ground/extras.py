"""What to type where a library is missing: a command that runs as it stands, whether ringwright came from an index or not.

An extra is named by its libraries, read from what is installed: ``ringwright[mpi]`` says something only to an index that
holds ringwright.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import sys
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ringwright.ground.invocation import NAME, PYTHONS, found_as

_REQUIREMENT = re.compile(r"(?P<wanted>[^;]+?)\s*(?:;\s*(?P<marker>.*))?")
_EXTRA = re.compile(r"extra\s*==\s*['\"](?P<extra>[^'\"]+)['\"]")


def install(extra: str = "", *only: str) -> str:
    """Return the command that installs the libraries of an extra, or of the core where none is named; ``only`` those named."""
    unknown = [f"{NAME}[{extra}]"] if extra else only or [NAME]
    return shlex.join([*_pip(), *(requirements(extra, *only) or unknown)])


def install_named(*libraries: str) -> str:
    """Return the command that installs libraries by their names."""
    return shlex.join([*_pip(), *libraries])


def requirements(extra: str = "", *only: str) -> list[str]:
    """Return what an extra asks for, such as ``mpi4py>=4.1``; empty where the package stands nowhere as installed."""
    try:
        declared = requires(NAME) or []
    except PackageNotFoundError:
        return []
    split = [match for each in declared if (match := _REQUIREMENT.fullmatch(each))]
    wanted = [match["wanted"] for match in split if _extra_of(match["marker"] or "") == extra]
    return [each for each in wanted if not only or re.split(r"[^\w.-]", each)[0] in only]


def laboratory() -> str:
    """Return the command that installs ringwright-lab, the repository's second package, beside this one."""
    folder, editable = _source()
    beside = ["ringwright-lab"] if folder is None else [*(["--editable"] if editable else []), str(folder / "lab")]
    return shlex.join([*_pip(), *beside])


def rebuild() -> str:
    """Return the command that builds the compiled loops, or words where nobody knows the folder of the source."""
    folder, editable = _source()
    if folder is None:
        return "install a C++17 compiler, then the package from its source, or a wheel for this platform"
    words = ["--force-reinstall", "--no-deps", *(["--editable"] if editable else []), str(folder)]
    return f"install a C++17 compiler, then {shlex.join([*_pip(), *words])}"


def _extra_of(marker: str) -> str:
    match = _EXTRA.search(marker)
    return match["extra"] if match else ""


def _source() -> tuple[Path | None, bool]:
    """Return the folder that the package was installed from, if it is still there, and whether in place."""
    try:
        told = json.loads(distribution(NAME).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None, False
    folder = Path(unquote(urlsplit(told.get("url", "")).path))
    usable = "dir_info" in told and (folder / "pyproject.toml").is_file()
    return (folder if usable else None), bool(told.get("dir_info", {}).get("editable"))


def _pip() -> list[str]:
    """Return what installs for the Python that runs this; an environment without pip is one of uv's."""
    if importlib.util.find_spec("pip") is None and shutil.which("uv"):
        return ["uv", "pip", "install", "--python", found_as(sys.executable, *PYTHONS)]
    return [found_as(sys.executable, *PYTHONS), "-m", "pip", "install"]
