"""Expected against fired fusions of a trace: pairs of collective and product, buckets, collectives by copy engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from ringwright.analysis.exposed.bucket_fusions import bucket_fusions
from ringwright.analysis.exposed.copied_collectives import copied_collectives, copies_of
from ringwright.analysis.exposed.fusion_rows import Fusion, FusionRows
from ringwright.analysis.exposed.product_fusions import product_fusions


@dataclass
class Fusions:
    """All fusions that were due, and what cannot be told, a sentence each."""

    all: list[Fusion] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)

    @property
    def fired(self) -> set[str]:
        """The patterns of which at least one fired."""
        return {one.pattern for one in self.all if one.fired}


def fusions(ranks: list[FusionRows], names: dict[int, str]) -> Fusions:
    """Return the fusions of all ranks; ``names``: what the recording calls a communicator."""
    made = Fusions()
    for rows in ranks:
        pairs, unknown = product_fusions(rows)
        buckets = bucket_fusions(rows)
        made.all += [*pairs, *buckets.fusions, *copied_collectives(rows, copies_of(rows))]
        made.unsure += buckets.unsure
        made.unsure += [
            f"rank {rows.rank}: collectives of group {names.get(group, group)} beside products, {count} times: "
            "nothing says whether it carries activations or parameters"
            for group, count in unknown.items()
        ]
    return made
