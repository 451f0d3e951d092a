"""The table of what makes a Program legal, and what a broken rule looks like."""

from __future__ import annotations

from dataclasses import dataclass

RULES = {
    "range": "every rank and slot that a move names exists",
    "self": "a send goes to another node, a copy stays at its own; a sum is made at either",
    "aggregator": "only an aggregating node is contributed to, combines or emits",
    "undefined": "a move reads only what is there, and a sum is added only to what is there",
    "conflict": "in one step a slot is written once, or only added to",
    "stream": "every move at an aggregating node belongs to one stream that the program declares there",
    "slots": "a stream has room for the places that its moves use at the node, and for what a sender has under way",
    "memory": "the slots of all streams at a node fit into its memory",
    "payload": "a packet holds data, and no more than the node takes",
    "codec": "a number format that is known, that the node adds, and that holds type and operation",
    "capability": "a node adds by this operation, this type and this many, and copies, where it is asked to",
    "concurrency": "a node serves so many streams at a time",
    "loss": "a loss rule that is known, with the versions, timer and fallback that it needs and no others",
    "double": "each contribution is counted once",
    "order": "where the operation does not commute, neighbours in rank order are combined, at nodes that keep an order",
    "result": "every rank ends with every chunk that the collective promises it, whole",
    "steps": "the declared number of steps is the number of steps",
    "cost": "the bytes sent are the bytes declared",
    "deadlock": "a declared order can be run to its end with the FIFO depth it declares",
    "match": "both ends of a connection agree on what passes, in order",
    "race": "a declared order covers every hazard of the data",
}


@dataclass(frozen=True)
class Violation:
    """A broken rule and its place; -1 where a number does not apply.

    In a declared program ``step`` counts within the thread block that the message names, and ``chunk`` within the buffer.
    ``severity`` is ``error`` or ``warning``: what may go wrong on some machine, or was not checked.
    """

    rule: str
    message: str
    rank: int = -1
    step: int = -1
    chunk: int = -1
    severity: str = "error"

    def __str__(self) -> str:
        where = [f"{name} {number}" for name, number in self.place() if number >= 0]
        return f"{self.rule}: {self.message}" + (f" ({', '.join(where)})" if where else "")

    def place(self) -> tuple[tuple[str, int], ...]:
        """Return rank, step and chunk by name."""
        return ("rank", self.rank), ("step", self.step), ("chunk", self.chunk)
