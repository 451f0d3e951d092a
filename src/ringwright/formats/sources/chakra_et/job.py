"""What is kept of a job's execution traces while they are read."""

from __future__ import annotations

from dataclasses import dataclass, field

from ringwright.formats.sources.chakra_et.edges import Edge
from ringwright.formats.sources.chakra_et.nodes import Head, Node
from ringwright.formats.sources.reader_rows import Gathered

KIND = "chakra-et"


@dataclass
class PendingCall:
    """A collective, send or receive, kept until the size of its group is known."""

    node: Node
    rank: int
    file: str
    number: int


@dataclass
class File:
    """One rank's file, read."""

    name: str
    rank: int
    head: Head = field(default_factory=Head)
    events: dict[int, int] = field(default_factory=dict)  # node -> row of a kernel
    calls: dict[int, int] = field(default_factory=dict)  # node -> index in the list of calls
    edges: list[Edge] = field(default_factory=list)
    twins: int = 0


@dataclass
class ChakraJob:
    """All files."""

    gathered: Gathered
    files: list[File] = field(default_factory=list)
    calls: list[PendingCall] = field(default_factory=list)
    groups: dict[str, list[int]] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
