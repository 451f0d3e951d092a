"""Pictures as a notebook has them, in a real browser: drawn inside their frames, which reach neither the notebook nor a network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import ringwright
from browsing import browsing
from patience import HANG_S
from test_pictures import EVIL, MADE, timed

pytest.importorskip("playwright.sync_api")

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.once]
MARK = "document.documentElement.dataset"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browsing() as browser:
        yield browser


@pytest.fixture(params=[(1200, "light"), (390, "dark")], ids=["wide light", "narrow dark"])
def notebook(chromium: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return a page that fails its test when it, or a frame in it, has an error or asks a network for something."""
    width, scheme = request.param
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(HANG_S * 1000)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith(("about:", "data:")) else None)
    yield page
    context.close()
    assert not wrong


def shown(notebook: Any, picture: ringwright.pictures.Picture) -> Any:
    """Put a picture into the page as a notebook does, and return its frame once it is drawn."""
    notebook.set_content(f"<h1>my notebook</h1>{picture._repr_html_()}")
    frame = notebook.frames[1]
    frame.locator("html[data-drawn=yes]").wait_for(
        state="attached"
    )  # functions that wait are refused by the page's policy
    assert frame.evaluate(f"{MARK}.errors || ''") == ""
    return frame


@pytest.mark.parametrize("name", ["timeline", "matrix", "machine", "load", "curves", "steps", "step", "report"])
def test_a_picture_is_drawn_in_its_frame(notebook: Any, name: str) -> None:
    frame = shown(notebook, MADE[name]())
    assert frame.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sideways"
    assert frame.evaluate(
        "[...document.querySelectorAll('svg,canvas')].every((each) => each.getBoundingClientRect().height > 12)"
    )


def test_a_timeline_is_moved_zoomed_and_searched_without_an_address(notebook: Any) -> None:
    frame = shown(notebook, ringwright.pictures.timeline(timed()))
    timeline = frame.locator("#rank-timeline .timeline")
    frame.locator("#rank-timeline .timeline[data-to]").wait_for()
    whole = timeline.get_attribute("data-to")
    frame.get_by_label("Zoom in").click()
    frame.locator(f"#rank-timeline .timeline:not([data-to='{whole}'])").wait_for()
    assert float(timeline.get_attribute("data-to")) < float(whole)
    frame.get_by_placeholder("all_gather").fill("gemm")
    frame.get_by_label("Next match").click()
    frame.get_by_placeholder("0-7,16").fill("1-2")
    frame.get_by_placeholder("0-7,16").press("Enter")
    frame.locator("#rank-timeline .says", has_text="4 of 8 rows").wait_for()
    frame.locator("#theme").click()
    assert frame.evaluate(f"['light', 'dark'].includes({MARK}.theme)")


def test_a_frame_reaches_nothing_around_it(notebook: Any) -> None:
    frame = shown(notebook, ringwright.pictures.matrix(timed(name=EVIL)))
    assert notebook.locator("h1").inner_text() == "my notebook"
    reached = "try { return parent.document.title + 'x' } catch (error) { return error.name }"
    assert frame.evaluate(f"() => {{ {reached} }}") == "SecurityError"
    assert frame.evaluate("self.origin") == "null"
