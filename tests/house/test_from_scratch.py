"""The page that shows the whole product on one screen runs, and prints what it says; so does every name of the page beside it."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import ringwright

DOCS = Path(__file__).resolve().parents[2] / "docs"
ONE_SCREEN, ONE_PAGE = 50, 90  # lines of code; letters of a line that a page shows
pytestmark = pytest.mark.once


def test_the_page_runs() -> None:
    [code] = re.findall(r"```pycon\n(.*?)```", (DOCS / "tutorials" / "from-scratch.md").read_text(), re.DOTALL)
    assert len(code.splitlines()) <= ONE_SCREEN
    assert max(map(len, code.splitlines())) <= ONE_PAGE
    told: list[str] = []
    page = doctest.DocTestParser().get_doctest(code, {}, "from-scratch.md", "from-scratch.md", 0)
    doctest.DocTestRunner(verbose=False).run(page, out=told.append)
    assert len(page.examples) > 10
    assert not told, "".join(told)


def test_the_page_of_names_has_each_once() -> None:
    page = (DOCS / "reference" / "python.md").read_text()
    shown = re.findall(r"^\.\. auto\w+:: ringwright(?:_lab)?(?:\.\w+)*\.(\w+)$", page, re.MULTILINE)
    assert sorted(shown) == sorted(name for name in ringwright.__all__ if name not in ("__version__", "errors"))
    table = set(re.findall(r"`(\w+)`", page.partition("| to | use |")[2].partition("\n\n")[0]))
    assert table == {name for name in ringwright.__all__ if name != "__version__"}
