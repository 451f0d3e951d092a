"""Which box and release each public table of measured times stands for: facts from the tables' sources, nothing fitted.

A release that a source does not name is the newest one at its date; that is an assumption and shown as such.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringwright.costs.nccl.timing import NcclOverride


@dataclass(frozen=True, slots=True)
class TableOrigin:
    """Cases whose name begins with ``prefix``: fabric ({n} nodes of {g} GPUs, {r} in all) and release ('': see the table)."""

    prefix: str
    fabric: str
    release: str
    assumed: bool = False
    forced: NcclOverride | None = None
    system: str = ""  # cases of one system may predict each other


KNOWN = (
    TableOrigin("polaris-", "polaris:{n}", "", system="polaris"),
    TableOrigin("sophia-", "dgx-a100:{n}", "2.18", assumed=True, system="sophia"),
    TableOrigin("azure-ndv4-", "dgx-a100:{n}", "2.18", assumed=True),
    TableOrigin("aws-p5-", "dgx-h100:{n}", "2.20", assumed=True, system="aws-p5"),
    TableOrigin("aws-p4d-", "p4d:{n}", "2.23"),
    TableOrigin("aws-p6-b200-", "dgx-b200:{n}", "2.27"),
    TableOrigin("oci-b4.8-", "dgx-a100:{n}", "2.29"),
    TableOrigin("oci-gb300-", "gb200-nvl72:1x{r}", "2.28", system="oci-gb300"),
    TableOrigin("gke-h200-", "dgx-h100:{n}x{g}", "2.23", assumed=True),
    TableOrigin("hgx-h100-", "dgx-h100:{n}", "2.26", system="hgx-h100"),
    TableOrigin("h100-128x8-allreduce-ring-ll128", "dgx-h100:{n}", "2.26", True, NcclOverride("ring", "ll128", 32)),
    TableOrigin("a100-1x8-allreduce-mpirun", "dgx-a100:1", "2.20", assumed=True),
    TableOrigin("a100-1x8-allreduce-meta", "dgx-a100:1", "2.16"),
    TableOrigin("h200-1x8-", "dgx-h100:{n}", "2.28", assumed=True),
    TableOrigin("vtrain-a100-", "dgx-a100:{n}x{g}", "2.18", assumed=True),
)


def known(case: str) -> TableOrigin | None:
    """Return what is known of a case, None for one that the model does not cover."""
    return next((entry for entry in KNOWN if case.startswith(entry.prefix)), None)
