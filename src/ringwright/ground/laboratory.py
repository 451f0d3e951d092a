"""The second package of the repository, ringwright-lab, which runs and proves things: whether it is there."""

from __future__ import annotations

from importlib.util import find_spec

from ringwright.ground.errors import MissingExtraError
from ringwright.ground.extras import laboratory

PACKAGE = "ringwright_lab"
VERBS = ("bench", "sweep", "lab", "compare", "survey", "systems", "reproduce")  # its verbs of the command line


def is_there() -> bool:
    """Whether the package is installed."""
    return find_spec(PACKAGE) is not None


def require(what: str) -> None:
    """Raise MissingExtraError where the package is not installed.

    Parameters
    ----------
    what
        The verb or name that somebody asked for, as it was typed.
    """
    if not is_there():
        raise MissingExtraError(f"{what} comes with ringwright-lab, which is not installed", remedy=laboratory())
