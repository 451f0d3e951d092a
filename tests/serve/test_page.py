"""The page in a real browser: open, zoom, filter, search, compare, ask, send, follow, cancel; phone, dark, print; no barrier."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
import pytest

import ringwright
from browsing import browsing
from patience import HANG_S
from ringwright.model.trace import Trace
from ringwright_lab.testing.drawn_jobs import drawn
from ringwright_lab.testing.drawn_jobs import recorded as simulated
from serve_process import Served, serving

pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.once]
SLOWER = 2.0
SERIOUS = ("serious", "critical")


def recorded(folder: Path, slower: float = 1.0, calls: int = 400) -> Path:
    """Write a Trace of four ranks whose calls take a known time."""
    rows = [
        {
            "kind": kind, "op": "all-reduce" if kind == "collective" else None, "kernel": None if kind == "collective" else "gemm_kernel",
            "rank": rank, "communicator": 0 if kind == "collective" else None, "sequence": number if kind == "collective" else None,
            "size_bytes": 1 << 20 if kind == "collective" else None, "start_s": number * 1e-3 + (0.4e-3 if kind == "collective" else 0.0),
            "duration_s": 0.2e-3 * (slower if kind == "collective" else 1.0), "clock": "one", "multiplicity": 1, "nranks": 4,
        }
        for rank in range(4) for number in range(calls) for kind in ("collective", "compute")
    ]  # fmt: skip
    members = pl.DataFrame({"communicator": [0], "size": [4], "members": [[0, 1, 2, 3]]})
    frames = {"events": pl.DataFrame(rows, infer_schema_length=None), "communicators": members}
    return Trace.of(frames, {"source": "kineto", "world": 4}).save(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("given")
    recorded(where / "yesterday")
    recorded(where / "today", SLOWER)
    shutil.copy(ringwright.sample(), where / "job.log.gz")
    return where


@pytest.fixture(scope="module")
def served(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(
        tmp_path_factory.mktemp("keep"), str(folder / "yesterday"), str(folder / "today"), str(folder)
    ) as server:
        for name in ("yesterday", "today"):
            assert server.job(folder / name)["state"] == "done"
        yield server


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browsing() as browser:
        yield browser


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """Return a page that fails its test when it has an error."""
    yield from opened(chromium)


def opened(chromium: Any, **how: Any) -> Iterator[Any]:
    context = chromium.new_context(viewport={"width": 1200, "height": 900}, **how)
    context.set_default_timeout(HANG_S * 1000)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.wrong = wrong
    yield page
    context.close()
    assert wrong == []


def job_of(served: Served, name: str) -> str:
    state = served.json("GET", "/api/state")
    return str(next(job["id"] for job in state["jobs"] if job["name"].endswith(name)))


def show(page: Any, served: Served, address: str) -> None:
    page.goto(f"{served.url}#{address}")
    page.wait_for_selector("html[data-ready=yes]")


def timeline(page: Any, served: Served, job: str, more: str = "") -> None:
    show(page, served, f"job={job}&tab=timeline{more}")
    page.wait_for_selector(".timeline[data-drawn]")


def barriers(page: Any) -> list[str]:
    """Return what axe-core holds for serious or worse."""
    found = axe.Axe().run(page).response["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html'][:120]}" for each in found if each["impact"] in SERIOUS]


def wait_for_ink(page: Any, least: int) -> None:
    """Wait until so many pixels of the timeline's picture are drawn: it is painted in the frame after its data came."""
    page.wait_for_function(
        "least => { const c = document.querySelector('.drawing'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        " let n = 0; for (let i = 3; i < d.length; i += 4) if (d[i] > 0) n += 1; return n > least; }",
        arg=least,
    )


def test_the_report_is_shown_and_runs_its_script(page: Any, served: Served) -> None:
    show(page, served, f"job={job_of(served, 'yesterday')}")
    frame = page.frame_locator("iframe.report")
    assert "all-reduce" in frame.locator("#table-operations").inner_text()
    frame.locator("html[data-drawn=yes]").wait_for()
    assert page.title() == "yesterday – Ringwright"


def test_the_steps_of_a_report_play_under_the_policy_of_the_server(page: Any, served: Served, folder: Path) -> None:
    show(page, served, f"job={served.job(folder / 'job.log.gz')['id']}")
    player = page.frame_locator("iframe.report").locator(".play")
    player.locator("[aria-label='Next moment']").click()
    assert "step 2 of 30" in player.locator(".clock").inner_text()
    before = int(player.get_attribute("data-ticks") or "")
    player.locator("button:text-is('Play')").click()
    player.locator("xpath=self::*[@data-playing='true']").wait_for()
    player.locator("button:text-is('Pause')").click()
    assert int(player.get_attribute("data-ticks") or "") > before


def test_zoom_pan_and_the_link_that_shows_the_same_again(page: Any, served: Served) -> None:
    job = job_of(served, "yesterday")
    timeline(page, served, job)
    assert page.get_attribute(".timeline", "data-drawn") == "events"
    wait_for_ink(page, 10_000)
    page.focus(".track-view")
    for key in ("+", "+", "+", "ArrowRight"):  # one after the other: each is drawn, and in the address, before the next
        seen = page.evaluate(
            "() => { const at = document.querySelector('.timeline').dataset; return at.from + ' ' + at.to; }"
        )
        page.keyboard.press(key)
        page.wait_for_function(
            "seen => { const now = new URLSearchParams(location.hash.slice(1)); const at = document.querySelector('.timeline').dataset;"
            " return at.from + ' ' + at.to !== seen && now.get('from') === at.from && now.get('to') === at.to; }",
            arg=seen,
        )
    link = page.url
    assert "from=" in link
    assert "to=" in link
    shown = page.inner_text(".says")
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector(".timeline[data-drawn]")
    page.wait_for_function("shown => document.querySelector('.says').textContent === shown", arg=shown)
    page.keyboard.press("Tab")
    page.click("button:text-is('All')")
    page.wait_for_function("() => !location.hash.includes('from=')")


def test_filters_and_search(page: Any, served: Served) -> None:
    timeline(page, served, job_of(served, "yesterday"))
    page.fill("label:has-text('Ranks') input", "2")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.says').textContent.includes('2 of 8 rows')")
    page.select_option("label:has-text('Track') select", "calls")
    page.wait_for_function("() => document.querySelector('.says').textContent.includes('1 of 8 rows')")
    assert "shown: 400 events" in page.inner_text(".says")
    page.fill("label:has-text('At least') input", "2M")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.says').textContent.includes('shown: 0 events')")
    page.fill("label:has-text('At least') input", "")
    page.keyboard.press("Enter")
    page.select_option("label:has-text('Track') select", "")
    page.fill("input[type=search]", "GEMM")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.says').textContent.includes('gemm_kernel')")
    assert "1,600 events" in page.inner_text(".controls")
    page.click("button.chip:has-text('compute')")
    assert page.get_attribute("button.chip:has-text('compute')", "aria-pressed") == "false"


def test_events_are_reached_without_a_mouse(page: Any, served: Served) -> None:
    timeline(page, served, job_of(served, "yesterday"))
    page.focus(".track-view")
    page.keyboard.press("n")
    page.wait_for_function("() => document.querySelector('.says').textContent.includes('rank 0, calls: all-reduce')")
    assert "1 MiB" in page.inner_text(".says")
    assert "communicator 0, call 0" in page.inner_text(".says")
    page.keyboard.press("n")
    page.wait_for_function("() => document.querySelector('.says').textContent.includes('call 1')")
    page.click("summary:has-text('as a table')")
    page.wait_for_function("() => document.querySelectorAll('.in-sight tbody tr').length > 10")


def test_two_runs_side_by_side_with_their_difference(page: Any, served: Served) -> None:
    today, yesterday = job_of(served, "today"), job_of(served, "yesterday")
    show(page, served, f"job={today}&tab=timeline&other={yesterday}")
    page.wait_for_selector("html[data-timeline='2'][data-difference=drawn]")
    page.wait_for_function("() => /40[.]. %.*today, 20[.]. %/.test(document.querySelector('.timelines').textContent)")
    page.focus(".track-view >> nth=0")
    page.keyboard.press("+")
    page.wait_for_function(
        "() => new Set([...document.querySelectorAll('.says')].map((e) => e.textContent.split(',')[0])).size === 1"
    )


def test_what_changed_between_two_runs(page: Any, served: Served) -> None:
    show(page, served, f"job={job_of(served, 'yesterday')}&tab=ask&ask=diff")
    page.select_option("label:has-text('The later run') select", label="today")
    page.click("button:has-text('Ask') >> visible=true >> nth=-1")
    page.wait_for_selector("#answer[data-state=done]")
    assert "2.0" in page.inner_text("#answer pre.text")
    assert "ringwright diff" in page.inner_text("#answer .command")


def test_a_what_if_its_page_and_its_trace(page: Any, served: Served) -> None:
    show(page, served, "ask=collective")
    page.fill("#field-fabric", "switch:4,rate=100Gb/s")
    page.fill("#field-begin", "1M")
    page.fill("#field-end", "1M")
    page.click("form button[type=submit]")
    page.wait_for_selector("#answer[data-state=done]")
    assert "busbw" in page.inner_text("#answer pre.text")
    page.frame_locator("#answer iframe").locator("h1").wait_for()
    page.click("text=Open its trace as a job")
    page.wait_for_selector(".timeline[data-drawn=events]")


def test_a_wrong_answer_is_said_and_runs_nothing(page: Any, served: Served) -> None:
    show(page, served, "ask=collective")
    page.fill("#field-fabric", "/etc/passwd")
    page.click("form button[type=submit]")
    page.wait_for_function("() => document.querySelector('#notice').textContent.includes('names a file')")
    page.wrong[:] = [each for each in page.wrong if "400" not in each]


def test_rows_of_a_query_are_sorted_by_a_click(page: Any, served: Served) -> None:
    show(page, served, f"job={job_of(served, 'today')}&tab=ask&ask=query")
    page.fill("#field-sql", "select sequence, rank from events where kind = 'collective' and sequence < 3 and rank = 1")
    page.click("form button[type=submit]")
    page.wait_for_selector("#answer[data-state=done] table")
    page.click("#answer th button:has-text('sequence')")
    page.click("#answer th button:has-text('sequence')")
    assert page.locator("#answer tbody td:first-child").all_inner_texts() == ["2", "1", "0"]


def test_files_are_sent_and_opened(page: Any, served: Served, folder: Path) -> None:
    show(page, served, "")
    page.set_input_files("#files", str(folder / "job.log.gz"))
    page.wait_for_function("() => document.querySelector('h1').textContent.includes('job.log.gz')")
    page.wait_for_selector("html[data-shown=done] iframe.report")
    page.on("dialog", lambda dialog: dialog.accept())
    page.click("text=Forget")
    page.wait_for_function(
        "() => ![...document.querySelectorAll('#jobs a')].some((e) => e.textContent.includes('uploads'))"
    )


def test_a_folder_is_opened_and_followed_and_a_run_cancelled(page: Any, served: Served) -> None:
    show(page, served, "")
    page.click("#open-folder")
    page.click("#entries button:has-text('given')")
    page.click("#entries button:has-text('job.log.gz')")
    page.wait_for_selector("html[data-shown=done] iframe.report")
    page.click("button:has-text('Follow')")
    page.wait_for_selector("#jobs .state:has-text('followed')")
    page.click("#tab-ask")
    page.click(".questions button:has-text('Live')")
    page.click("form button[type=submit]")
    page.wait_for_selector("#answer table")
    page.click("#answer button:has-text('Cancel')")
    page.wait_for_selector("#answer[data-state=cancelled]")


def test_a_server_that_is_gone_is_said(page: Any, folder: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "keep", str(folder / "job.log.gz")) as server:
        server.job(folder / "job.log.gz")
        show(page, server, "")
        server.end(signal.SIGTERM)
        page.wait_for_function("() => document.querySelector('#link-state').textContent !== ''")
    page.wrong[:] = []


@pytest.mark.sampled(2, "address")
@pytest.mark.parametrize(
    ("address", "dark"),
    [("report", False), ("timeline", False), ("timeline", True), ("ask", False), ("answers", True), ("any", True)],
)
def test_no_barrier_by_axe(chromium: Any, served: Served, address: str, dark: bool) -> None:
    for page in opened(chromium, color_scheme="dark" if dark else "light"):
        where = "" if address == "any" else f"job={job_of(served, 'today')}&tab={address}"
        show(page, served, where or "ask=collective")
        if address == "timeline":
            page.wait_for_selector(".timeline[data-drawn]")
        assert barriers(page) == []


@pytest.mark.sampled(2, "*")
@pytest.mark.parametrize("address", ["report", "timeline", "ask", "answers"])
def test_a_phone_needs_no_sideways_scrolling(chromium: Any, served: Served, address: str) -> None:
    for page in opened(chromium):
        page.set_viewport_size({"width": 390, "height": 800})
        show(page, served, f"job={job_of(served, 'today')}&tab={address}")
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
        page.click("#menu")
        assert page.is_visible("#jobs")


def test_the_theme_is_the_readers_and_reaches_the_report(page: Any, served: Served) -> None:
    show(page, served, f"job={job_of(served, 'today')}")
    page.frame_locator("iframe.report").locator("html[data-drawn=yes]").wait_for()
    page.click("#theme")
    assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"
    page.frame_locator("iframe.report").locator("html[data-theme=dark]").wait_for()


def test_print_leaves_out_what_is_to_be_pressed(page: Any, served: Served) -> None:
    timeline(page, served, job_of(served, "today"))
    page.emulate_media(media="print")
    assert not page.is_visible("#side")
    assert not page.is_visible(".controls")
    assert page.is_visible(".drawing")
    assert len(page.pdf()) > 1000


# ---- many jobs

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve three recordings of one job, the last of them slower, and one with a name that would be a tag."""
    where = tmp_path_factory.mktemp("fleet")
    job = drawn(1)
    for run, slowed in enumerate(({}, {}, {1: 1.8})):
        trace = simulated(replace(job, slowed=slowed), job.workload, run).save(where / f"gpt-run-{run}")
        for file in trace.iterdir():
            os.utime(file, (1.76e9 + 3600 * run, 1.76e9 + 3600 * run))
    shutil.copytree(where / "gpt-run-0", where / HOSTILE)
    with serving(tmp_path_factory.mktemp("keep"), str(where), "--executor", "local:1") as server:
        server.until(lambda state: state["fleet"]["told"] == "" and len(server.json("GET", "/fleet.json")["rows"]) == 4)
        yield server


def test_many_jobs_are_a_table_and_a_name_is_a_history(page: Any, fleet: Served) -> None:
    page.goto(fleet.url)
    page.wait_for_selector("html[data-fleet='2']")
    rows = page.locator("#fleet tbody tr")
    assert rows.nth(0).locator("th").inner_text().split("\n") == ["gpt", "3 runs"]
    assert "slower" in rows.nth(0).inner_text()
    assert rows.nth(1).locator("th").inner_text() == HOSTILE
    page.locator("#fleet-every").check()
    page.wait_for_selector("html[data-fleet='4']")
    page.locator("#fleet-filter").fill("ONERROR")
    page.wait_for_selector("html[data-fleet='1']")
    page.locator("#fleet-filter").fill("")
    page.locator("#fleet thead button", has_text="Job").click()
    assert rows.nth(0).locator("th").inner_text() == HOSTILE
    page.locator("#fleet .history").first.click()
    page.wait_for_selector("html[data-fleet='3']")
    assert page.locator(".charts svg").count() == 2
    assert page.locator(".charts .mark.slower").count() == 2
    assert "Slower" in page.locator(".charts .mark.slower title").first.text_content()
    page.locator("#fleet tbody button.link").first.click()
    page.wait_for_selector("html[data-shown=done]")
    assert page.locator("h1").inner_text() == "gpt-run-2"


def test_a_link_with_a_moment_opens_the_recording_that_ran_then(page: Any, fleet: Served) -> None:
    page.goto(f"{fleet.url}job/gpt?at=1760000001")
    page.wait_for_selector("html[data-shown=done]")
    assert page.locator("h1").inner_text() == "gpt-run-1"
    page.goto(f"{fleet.url}job/{quote(HOSTILE + '?', safe='')}")
    page.locator("#fleet-told", has_text="No job has this name").wait_for()
    assert page.locator("h1").inner_text() == f"{HOSTILE}?"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("address", ["", "name=gpt"])
def test_no_barrier_among_many_jobs(chromium: Any, fleet: Served, address: str, dark: bool) -> None:
    for page in opened(chromium, color_scheme="dark" if dark else "light"):
        show(page, fleet, address)
        page.wait_for_selector("html[data-fleet]")
        assert barriers(page) == []


def test_many_jobs_on_a_phone(chromium: Any, fleet: Served) -> None:
    for page in opened(chromium):
        page.set_viewport_size({"width": 390, "height": 800})
        for address in ("", "name=gpt"):
            show(page, fleet, address)
            page.wait_for_selector("html[data-fleet]")
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
