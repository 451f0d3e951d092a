"""The contract of rewrites: settings of a kind are typed, no payload is lost, and what travels is what the kind says.

A step of three layers, whose gradients are summed, is rewritten with settings that change it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ringwright.ground.errors import UsageError
from ringwright.model.rewrites import kind_of, operations
from ringwright.model.rewrites.kind import settings_of
from ringwright.model.workload import Mesh, Payload, Policy, RankClass, Rewrite, Task, Workload
from ringwright_lab.contracts.outcome import Outcome, TriedInput

SETTINGS: dict[str, dict[str, Any]] = {  # of each kind, settings that change the step below
    "collective": {"op": "push-pull"},
    "fuse": {"caps_bytes": (4096, 8192)},
    "groups": {"names": (("g0", "g1"),)},
    "partition": {"size_bytes": 512},
    "parts": {"servers": 4, "above_elements": 100},
    "select": {"share": 0.5, "chunk_elements": 16},
    "substitute": {"names": ("g2",), "batch": 4},
    "threshold": {"size_bytes": 8192},
    "width": {"element_bytes": 2},
}
PLACES = {"live", "hook", "buckets"}


def step(*rewrites: Rewrite) -> Workload:
    """Return three layers whose gradients are summed, with a policy that rewrites them."""
    tasks = tuple(Task(f"B{at}", "all", "B", seconds=1e-3) for at in range(3))
    payloads = tuple(
        Payload(
            f"g{at}",
            "all",
            "all-reduce",
            4096,
            ("dp",),
            "dp",
            (f"B{at}",),
            (),
            elements=1024,
            merges="f32",
            factors=(32, 32),
        )
        for at in range(3)
    )
    return Workload(
        "step", Mesh((("dp", 4),)), (RankClass("all"),), tasks, (), payloads, policy=Policy(rewrites=rewrites)
    )


def shape(workload: Workload) -> list[tuple[object, ...]]:
    """Return what is sent: name, collective, bytes and piece of each operation."""
    return [(each.name, each.op, each.size_bytes, each.piece_bytes) for each in operations(workload)]


def changes(kind: str, settings: dict[str, Any]) -> str | None:
    """The payloads of its roles are sent in another way, those of others as they were."""
    if shape(step(Rewrite(kind, ("dp",), settings))) == shape(step()):
        return "it changes nothing"
    return (
        None if shape(step(Rewrite(kind, ("tp",), settings))) == shape(step()) else "it changes what has another role"
    )


def carried(kind: str, settings: dict[str, Any]) -> str | None:
    """Every payload is in exactly one operation."""
    sent = [payload.name for each in operations(step(Rewrite(kind, ("dp",), settings))) for payload in each.payloads]
    return None if sorted(sent) == ["g0", "g1", "g2"] else f"of g0, g1 and g2 it sends {', '.join(sent)}"


def whole(kind: str, settings: dict[str, Any]) -> str | None:
    """``WHOLE`` says whether the payloads' own bytes travel, no more and no fewer."""
    sent = operations(step(Rewrite(kind, ("dp",), settings)))
    kept = all(each.size_bytes == sum(payload.size_bytes for payload in each.payloads) for each in sent)
    return None if kept == kind_of(kind).WHOLE else f"WHOLE is {kind_of(kind).WHOLE}, what it sends is {kept}"


def typed(kind: str, settings: dict[str, Any]) -> str | None:
    """Unknown settings are refused, and none where some are needed."""
    for wrong in ({**settings, "nonsense": 1}, {}):
        try:
            settings_of(Rewrite(kind, ("dp",), wrong))
        except UsageError:
            continue
        return f"it takes the settings {wrong}"
    return None


def placed(kind: str, settings: dict[str, Any]) -> str | None:
    """``CARRIED_BY`` names places where rewrites are done for real."""
    del settings
    strange = set(kind_of(kind).CARRIED_BY) - PLACES
    return f"CARRIED_BY names '{min(strange)}', not {', '.join(sorted(PLACES))}" if strange else None


CHECKS: dict[str, Callable[[str, dict[str, Any]], str | None]] = {
    "changes": changes,
    "carried": carried,
    "whole": whole,
    "typed": typed,
    "placed": placed,
}


def check_rewrite(kind: str, settings: dict[str, Any] | None = None) -> list[Outcome]:
    """Return the outcome of every check on a kind of rewrite; ``failures`` of them lists what is wrong.

    Checked is that settings are typed, that no payload is lost, and that what travels is what the kind says, on a step of
    three layers whose gradients are summed.

    Parameters
    ----------
    kind
        Its name, of the house or of an entry point of ``ringwright.rewrites``: ``partition``, ``fuse`` ...
    settings
        Settings that change that step, such as ``{"size_bytes": 512}``; None: of a kind of the house those of ``SETTINGS``.

    Returns
    -------
    list of Outcome
        One: the step.

    Examples
    --------
    >>> from ringwright_lab.testing import check_rewrite, failures
    >>> failures(check_rewrite("partition", {"size_bytes": 1000}))
    []
    """
    outcome = Outcome(TriedInput(kind, "three layers"))
    settings = SETTINGS.get(kind) if settings is None else settings
    if settings is None:
        outcome.failed["settings"] = "nothing to try it with: give check_rewrite settings that change the step"
        return [outcome]
    for name, look in CHECKS.items():
        outcome.run(name, partial(look, kind, settings))
    return [outcome]
