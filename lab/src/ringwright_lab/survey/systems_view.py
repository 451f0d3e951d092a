"""The list of systems as a report reads it: schemas ``ringwright.systems/1`` and ``ringwright.system/1``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ringwright.ground.documents import keyed


@dataclass(frozen=True, slots=True)
class ListedKnob:
    """A knob: what may be typed, and what it means."""

    name: str
    default: object
    expects: str
    meaning: str


@dataclass(frozen=True, slots=True)
class ListedSystem:
    """A system: whose it is, how many lines, its checks, and the figure of its paper."""

    slug: str
    family: str
    origin: str
    lines: int = 0
    conformance: dict[str, Any] = field(default_factory=dict)
    reproduced: str = ""
    figure: str = ""
    collectives: list[str] = field(default_factory=list)
    headings: dict[str, str] = field(default_factory=dict)
    knobs: list[ListedKnob] = field(default_factory=list)
    spelled: str = ""
    of_class: str = keyed("class")


@dataclass(frozen=True, slots=True)
class RefusedPlugin:
    """A plug-in that cannot be used, where it is, and what to try."""

    what: str
    where: str
    attempt: str = keyed("try")


@dataclass(frozen=True, slots=True)
class ListedSystems:
    """All systems; ``in_network``: rows of what those declare that add there."""

    systems: list[ListedSystem]
    ground: str
    in_network: list[dict[str, Any]]
    refused: list[RefusedPlugin]
