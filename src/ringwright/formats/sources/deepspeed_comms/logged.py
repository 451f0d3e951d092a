"""What one file of DeepSpeed's communication logger holds."""

from __future__ import annotations

from dataclasses import dataclass, field

from ringwright.formats.sources.deepspeed_comms.grammar import PrintedCall
from ringwright.formats.sources.deepspeed_comms.tables import SummaryTable, TableReader


@dataclass(slots=True)
class LoggedFile:
    """Calls and tables of one file.

    ``is_added``: latencies add up within a name, None: nothing tells; ``refused``: lines whose time is not used.
    """

    name: str
    calls: list[PrintedCall] = field(default_factory=list)
    reader: TableReader = field(default_factory=TableReader)
    release: str = ""
    world: int | None = None
    world_ground: str = "inferred"
    rank: int = 0
    is_added: bool | None = None
    is_exact: bool = False  # sizes, in the document
    refused: set[int] = field(default_factory=set)

    @property
    def tables(self) -> list[SummaryTable]:
        """The tables that were read."""
        return self.reader.tables
