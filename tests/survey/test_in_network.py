"""Systems that add in the network beside each other: each row is what the system's own program and fabric declare."""

from __future__ import annotations

import io
import runpy
from pathlib import Path

import pytest

from ringwright.model import registry
from ringwright_lab.reports.systems import write
from ringwright_lab.survey.catalogue import catalogue
from ringwright_lab.survey.in_network import FAMILY, compared

pytestmark = pytest.mark.once

REPOSITORY = Path(__file__).resolve().parents[2]


def test_every_system_that_adds_in_the_network_has_its_row_and_no_other() -> None:
    rows = {row["slug"]: row for row in compared((*registry.systems(), *registry.schedulers()))}
    assert set(rows) == {system.slug for system in registry.systems() if system.family == FAMILY}
    assert {slug for slug, row in rows.items() if row["mends_losses"] == "hosts' timer"} == {
        "allreduce-switch",
        "fpisa",
        "switchml",
    }
    assert [slug for slug, row in rows.items() if row["mends_losses"] == "transport"] == ["netreduce"]
    assert rows["sharp"]["mends_losses"] == "links"
    assert {slug: row["format"] for slug, row in rows.items() if row["format"] not in ("native", None)} == {
        "fpisa": "split-float",
        "switchml": "block-exponent",
    }
    assert (rows["camdoop"]["adds_in"], rows["camdoop"]["slots"], rows["camdoop"]["most_nodes"]) == ("ranks", None, 0)
    assert (rows["netagg"]["adds_in"], rows["netagg"]["results"]) == ("servers beside switches", "a stream each")
    assert (rows["netreduce"]["slots"], rows["netreduce"]["packet_bytes"]) == (8 * (64 << 10) // 1024, 1024)
    assert rows["switchml"]["versions"] == 2


def test_they_are_listed_where_they_alone_are_asked_for_and_the_docs_say_the_same() -> None:
    assert catalogue(family="published")["in_network"] == []
    assert catalogue()["in_network"] == []
    listed = catalogue(family="infiniband")
    assert [row["slug"] for row in listed["in_network"]] == ["sharp"]
    for width in (40, 200):
        out = io.StringIO()
        write(listed, out, width=width)
        assert "How they add" in out.getvalue()
        assert "4,096" in out.getvalue()
    out = io.StringIO()
    write(catalogue(family="fabric"), out, width=80)
    assert "How they add" not in out.getvalue()


def test_the_page_of_the_article_has_the_table() -> None:
    script = runpy.run_path(str(REPOSITORY / "scripts" / "readme"))
    page = (REPOSITORY / "docs" / "systems" / "inc-meets-distributed-ml.md").read_text()
    block = script["adding"](compared(registry.systems()))
    assert script["with_block"](page, "in-network", block) == page, "run scripts/readme"
