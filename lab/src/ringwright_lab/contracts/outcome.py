"""What a contract found: per case the checks that passed, those declined and those failed, each with its reason."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from ringwright.ground.errors import InfeasibleError, PluginError, RingwrightError, UsageError, WorkloadError

T = TypeVar("T")

Check = Callable[[], str | None]  # None: passed; "declined: reason"; any other text is what failed
DECLINED = "declined: "


class Tried(Protocol):
    """A case: the name of what is tried; its text replays it."""

    @property
    def slug(self) -> str:
        """The system, format or family that is tried."""
        ...


@dataclass
class Outcome:
    """Checks of one case: names of those passed, and the reason of each that was declined or failed.

    ``case`` has the ``slug`` of what was tried, and its text replays it.
    """

    case: Tried
    passed: list[str] = field(default_factory=list)
    declined: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def note(self, name: str, reason: str | None) -> bool:
        """Enter what a check answered; return whether it passed."""
        if reason is None:
            self.passed.append(name)
        elif reason.startswith(DECLINED):
            self.declined[name] = reason.removeprefix(DECLINED)
        else:
            self.failed[name] = reason
        return reason is None

    def run(self, name: str, check: Check) -> bool:
        """Run a check and enter what came of it, whatever it raises; return whether it passed."""
        return self.note(name, reason_of(check))


@dataclass(frozen=True)
class TriedInput:
    """What was tried, where a contract has no cases of its own: ``what`` is a file, a model, an input."""

    slug: str
    what: str = ""

    def __str__(self) -> str:
        return f"{self.slug} {self.what}".strip()


def reason_of(check: Check) -> str | None:
    """Return what a check answers; an error of ours is its text, any other exception is told with its last line of code."""
    try:
        return check()
    except RingwrightError as error:
        return f"{error.what} ({error.where})" if error.where else error.what
    except Exception as error:  # noqa: BLE001 - code of others may raise anything
        return raised(error)


def raised(error: BaseException) -> str:
    """Return one line about an exception: its type, its text, and where it came from."""
    steps = traceback.extract_tb(error.__traceback__)
    at = f" ({Path(steps[-1].filename).name}:{steps[-1].lineno})" if steps else ""
    return f"raised {type(error).__name__}: {' '.join(str(error).split())[:200]}{at}"


def made(call: Callable[[], T]) -> tuple[T | None, str]:
    """Return what a call gives, or None and why not: declined where it openly refuses, else what it raised."""
    try:
        return call(), ""
    except PluginError as error:
        return None, error.what
    except (UsageError, InfeasibleError, WorkloadError) as error:
        return None, f"{DECLINED}{error.what}" + (f" (try: {error.remedy})" if error.remedy else "")
    except RingwrightError as error:
        return None, str(error)
    except Exception as error:  # noqa: BLE001 - code of others may raise anything
        return None, raised(error)


def beside(call: Callable[..., object], name: str) -> tuple[str, ...]:
    """Return what is declared under a name (OPS, FABRICS, CHANGES): on a callable, else in its module; nothing where nowhere."""
    call = inspect.unwrap(call.func if isinstance(call, partial) else call)
    home = sys.modules.get(getattr(call, "__module__", ""))
    return tuple(getattr(call, name, getattr(home, name, ())))


def failures(outcomes: Iterable[Outcome]) -> list[str]:
    """Return a line for each failed check: the case, the check, and what is wrong. An empty list keeps the contract.

    Parameters
    ----------
    outcomes
        What a ``check_`` function returned.

    Returns
    -------
    list of str
        ``case: check: reason``.

    Examples
    --------
    >>> from ringwright_lab.testing import check_algorithm, failures
    >>> def lazy(collective, topology):
    ...     return None
    >>> failures(check_algorithm(lazy, ["all-reduce"], group_sizes=[2], sizes=["one"], fabrics=["switch"]))
    ['lazy all-reduce p=2 size=one fabric=switch root=0: program: it returned None, not a Program']
    """
    return [f"{each.case}: {name}: {reason}" for each in outcomes for name, reason in each.failed.items()]


def add(counts: dict[str, dict[str, int]], more: Mapping[str, Mapping[str, int]]) -> None:
    """Add the tallies of one part of a campaign to those of the others."""
    for slug, row in more.items():
        have = counts.setdefault(slug, dict.fromkeys(row, 0))
        for name, count in row.items():
            have[name] += count


def tally(outcomes: Iterable[Outcome], slugs: Iterable[str] = ()) -> dict[str, dict[str, int]]:
    """Return checks passed, declined and failed per slug; ``slugs`` are there even without any."""
    counts = {slug: {"passed": 0, "declined": 0, "failed": 0} for slug in slugs}
    for outcome in outcomes:
        row = counts.setdefault(outcome.case.slug, {"passed": 0, "declined": 0, "failed": 0})
        row["passed"] += len(outcome.passed)
        row["declined"] += len(outcome.declined)
        row["failed"] += len(outcome.failed)
    return counts
