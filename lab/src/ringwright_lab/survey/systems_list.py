"""The list of systems, or one of them, as the verb ``systems`` gives it."""

from __future__ import annotations

from typing import Any

from ringwright.ground.notebook import rows_shown, shown
from ringwright_lab.survey.catalogue import catalogue, one

_LISTED = rows_shown("systems", "systems")


def systems(
    slug: str | None = None, *, family: str | None = None, check: bool = False, seed: int = 0
) -> dict[str, Any]:
    """List all systems and what each has shown, or say of one what it is and what can be set on it.

    Parameters
    ----------
    slug
        One algorithm, scheduler or fabric: ``ring``, ``p3``, ``dgx-h100``. None: all systems of all rooms.
    family
        Of all, only this family or class: ``collective-library``, ``building-block``, ``published``, ``priority``,
        ``fabric``, ``source``, ``export``, ``model-family``, ``rewrite`` ...
    check, seed
        Run a seeded part of the conformance campaign now (minutes) instead of showing the recorded one.

    Returns
    -------
    dict
        Plain JSON values: schema ``ringwright.systems/1`` with a row a system in ``systems``, of one
        ``ringwright.system/1`` with its ``headings`` and ``knobs``.

    Raises
    ------
    UsageError
        No such system or family; it names near ones.

    Examples
    --------
    >>> import ringwright
    >>> "ring" in [row["slug"] for row in ringwright.systems()["systems"]]
    True
    >>> [knob["name"] for knob in ringwright.systems("ring")["knobs"]]
    ['channels']
    """
    if slug is None:
        return shown(catalogue(family=family, check=check, seed=seed), _LISTED)
    return shown(one(slug), rows_shown(f"{slug}, its knobs", "knobs"))
