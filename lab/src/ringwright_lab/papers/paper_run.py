"""A paper by its slug, or its file: its rows, run and held against their tolerances."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ringwright.executors.fan_out import Chosen
from ringwright.ground.errors import UsageError
from ringwright.ground.notebook import rows_shown, shown
from ringwright_lab.papers import claims

_SEEN = rows_shown("claims of papers", "rows", "papers")


def reproduce(*names: str | Path, executor: Chosen = None) -> dict[str, Any]:
    """Run what papers claim and hold each row against its tolerance.

    Parameters
    ----------
    names
        Slugs such as ``blueconnect``, or TOML files of the form of ``papers/rows/blueconnect.toml``; none: all papers
        (minutes). Experiments, which run for hours, are for the command line.
    executor
        Who runs the papers: a spelling such as ``local:4``, or an object of ``concurrent.futures.Executor``.

    Returns
    -------
    dict
        Schema ``ringwright.reproduce/1``: in ``papers`` the rows: what is ``claimed``, what was ``got``, the ``tolerance``,
        whether they ``pass``, and the ``kind`` of evidence (prediction, form, exact, fitted or identity; not predictable: a
        reason, ``because``, and no answer); in ``kinds`` how many pass.

    Raises
    ------
    UsageError
        Nothing of that name; it names what there is.
    InputError
        A file that cannot be run; told before any is.

    Examples
    --------
    >>> import ringwright
    >>> answer = ringwright.reproduce("nccl-2-4")
    >>> {row["kind"]: row["pass"] for row in answer["rows"]}["exact"]
    True
    """
    paths = claims.find(str(name) for name in names)
    for path in paths:
        if claims.study_of(path) is not None:
            raise UsageError(f"{path.stem} is an experiment of hours", remedy=f"ringwright reproduce {path.stem}")
    return shown(claims.reproduce(paths, executor=executor), _SEEN)
