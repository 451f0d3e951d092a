"""The glossary and the source agree: a word of the field's table that was a name is gone, or kept with its reason."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GONE = {
    "Lanes",
    "Desk",
    "Keeper",
    "Conductor",
    "Brake",
    "Slept",
    "Paces",
    "Cells",
    "BoxPaths",
    "Card",
    "cards_per_host",
    "Beat",
    "JobPaces",
}
MODULES = {
    "lanes",
    "crew",
    "desk",
    "meeting",
    "keeper",
    "conductor",
    "brakes",
    "slept",
    "cards",
    "paces",
    "pacing",
    "mpi_door",
}
KEPT = ("place", "arena", "adder", "box, boxes", "card", "cell", "found", "way", "lanes")


def test_replaced_names_do_not_come_back() -> None:
    defined = re.compile(rf"^\s*(?:class|def) ({'|'.join(GONE)})\b", re.MULTILINE)
    paths = [*(ROOT / "src" / "ringwright").rglob("*.py"), *(ROOT / "lab" / "src" / "ringwright_lab").rglob("*.py")]
    assert not [(path.name, name) for path in paths for name in defined.findall(path.read_text())]
    assert not [path for path in paths if path.stem in MODULES or path.parent.name in MODULES]


def test_the_compiled_loops_use_the_same_words() -> None:
    texts = [path.read_text() for path in (ROOT / "src" / "ringwright" / "native").glob("*.[ch]pp")]
    assert texts
    assert not [text for text in texts if re.search(r"\bpaces?\b|_paces?\b|\bpace_|Paces?\b", text)]


def test_a_word_that_stayed_has_its_reason() -> None:
    stayed = (ROOT / "docs" / "reference" / "glossary.md").read_text().partition("## Words that stayed")[2]
    assert not [word for word in KEPT if not re.search(rf"^\| {word} \|", stayed, re.MULTILINE)]
