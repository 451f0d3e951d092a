"""The player and the labels of a matrix in a real browser: play, step, keyboard, links, a reader's words, phone, print, no barrier."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from browsing import browsing
from fixtures_summary import job_summary
from patience import HANG_S
from ringwright.analysis.summary import summarise
from ringwright.cli import main
from ringwright.formats.sources import read
from ringwright.reports import html
from ringwright_lab.testing.nccl_job import make_job
from ringwright_lab.testing.nccl_log import write_log

pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.once]
# Marks that are neither on a link that is under way nor beside a node, where what waits stands.
FAR_FROM_ITS_LINK = """() => {
  const near = (at, points, by) => points.some(([x, y]) => Math.hypot(at[0] - x, at[1] - y) <= by);
  const lit = [...document.querySelectorAll('.play svg .under:not(.k0)')].flatMap((path) =>
    Array.from({ length: 65 }, (_, at) => { const point = path.getPointAtLength(path.getTotalLength() * at / 64); return [point.x, point.y]; }));
  const nodes = [...document.querySelectorAll('.play svg g[role=img] rect')].map((each) => [each.x.baseVal.value + each.width.baseVal.value / 2, each.y.baseVal.value + each.height.baseVal.value / 2]);
  return [...document.querySelectorAll('.play svg .marks path:not([hidden])')].map((mark) => mark.getAttribute('transform').match(/[-\\d.]+/g).map(Number))
    .filter((at) => !near(at, lit, 8) && !near(at, nodes, 24));
}"""
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the page of a simulation, of a search, and of a log that names rings and trees."""
    folder = tmp_path_factory.mktemp("pages")
    on = ["all-reduce", "--fabric", "dgx-a100:2", "-b", "1M", "-e", "1M"]
    assert main(["simulate", *on, "--algorithm", "ring,double-binary-tree", "-o", str(folder / "run.html")]) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RINGWRIGHT_PROGRAMS", str(folder / "programs"))
        search = ["all-gather", "--fabric", "torus:2x3", "-b", "1M", "-e", "1M", "--method", "forest"]
        assert main(["synthesise", *search, "--html", str(folder / "search.html")]) == 0
    log = write_log(make_job(2, 8), "2.19", subsystems=("INIT", "GRAPH", "NET"))
    (folder / "job.log").write_bytes(log.text)
    (folder / "log.html").write_text(html.page(summarise(read([str(folder / "job.log")]))), encoding="utf-8")
    for hosts in (1, 8, 64):
        (folder / f"matrix-{hosts}.html").write_text(html.page(job_summary(hosts=hosts)), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browsing() as browser:
        yield browser


def opened(chromium: Any, width: int = 1200, **how: Any) -> Iterator[Any]:
    context = chromium.new_context(viewport={"width": width, "height": 900}, **how)
    context.set_default_timeout(HANG_S * 1000)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    yield page
    context.close()
    assert wrong == []


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    yield from opened(chromium)


def show(page: Any, file: Path, address: str = "") -> None:
    page.goto("about:blank")
    page.goto(f"{file.as_uri()}{address}")
    page.wait_for_selector("html[data-drawn=yes]")


def ticks(page: Any) -> int:
    return int(page.get_attribute(".play", "data-ticks"))


def first_run(page: Any) -> Any:
    return page.evaluate("JSON.parse(document.getElementById('data').textContent).play.runs[0]")


def barriers(page: Any) -> list[str]:
    """Return what axe-core holds for serious or worse."""
    told = axe.Axe().run(page).response["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html'][:160]}" for each in told if each["impact"] in SERIOUS]


def test_it_plays_and_pauses_and_steps_from_moment_to_moment(page: Any, pages: Path) -> None:
    show(page, pages / "run.html")
    first = ticks(page)
    begins = list(accumulate(first_run(page)["messages"]["start"]))
    assert first == begins[0]
    assert int(page.get_attribute(".play", "data-drawn")) == begins.count(first)
    page.click("button:text-is('Play')")
    page.wait_for_function("first => Number(document.querySelector('.play').dataset.ticks) > first", arg=first)
    assert page.inner_text(".play [role=status]") == "", "nothing is read out while it plays"
    page.click("button:text-is('Pause')")
    stopped = ticks(page)
    page.click("[aria-label='Next moment']")
    assert ticks(page) > stopped
    page.click("[aria-label='Previous moment']")
    assert ticks(page) <= stopped
    assert "messages have arrived" in page.inner_text(".play [role=status]")


def test_what_is_said_and_drawn_at_a_moment_is_what_the_data_say(page: Any, pages: Path) -> None:
    show(page, pages / "run.html")
    run = first_run(page)
    columns = run["messages"]
    begins = list(accumulate(columns["start"]))
    ends = [begin + length for begin, length in zip(begins, columns["length"], strict=True)]
    moments = sorted({0, *begins, *ends})
    page.focus(".play input[type=range]")
    page.keyboard.press("Home")
    for moment in moments[1:6]:
        page.keyboard.press("ArrowRight")
        assert ticks(page) == moment
    routes = [run["routes"][route] for route in columns["route"]]
    for moment in (moments[7], moments[len(moments) // 2] + 1, moments[-2]):
        page.evaluate("at => { location.hash = `#t=${at}`; }", moment / 1e6)
        page.wait_for_function("at => document.querySelector('.play').dataset.ticks === at", arg=str(moment))
        now = [number for number, begin in enumerate(begins) if begin <= moment < ends[number]]
        assert page.inner_text(".play .clock").endswith(f": {len(now)} under way")
        arrived = sum(end <= moment for end in ends)
        assert page.inner_text(".play .says >> nth=0").endswith(f"{arrived} of {len(ends)} messages have arrived.")
        passing, first = set(), 0
        for number, route in enumerate(routes):
            for at, link in enumerate(route["links"]):
                enters = begins[number] + columns["passes"][first + 2 * at]
                if number in now and enters <= moment < enters + columns["passes"][first + 2 * at + 1]:
                    passing.add(link >> 1)
            first += 2 * len(route["links"])
        lit = page.eval_on_selector_all(
            ".play svg .under", "all => all.flatMap((each, at) => (each.classList.contains('k0') ? [] : [at]))"
        )
        assert set(lit) == passing
        assert page.evaluate(FAR_FROM_ITS_LINK) == []
    page.keyboard.press("End")
    page.hover(".play svg g.rank >> nth=5")
    got = sum(size for size, route in zip(columns["bytes"], routes, strict=True) if route["names"][1] == "rank 5")
    assert f"{got / 2**20:.3g} MiB have arrived here so far" in page.inner_text(".play .says >> nth=1")


def test_keys_and_the_link_that_shows_the_moment_again(page: Any, pages: Path) -> None:
    show(page, pages / "run.html")
    page.focus(".play input[type=range]")
    page.keyboard.press("End")
    end = ticks(page)
    assert "Nothing is under way. 480 of 480 messages have arrived." in page.inner_text(".play")
    page.keyboard.press("ArrowLeft")
    assert 0 < ticks(page) < end
    page.keyboard.press("ArrowLeft")
    at, words = ticks(page), page.inner_text(".play .says >> nth=0")
    address = page.evaluate("location.hash")
    assert re.fullmatch(r"#t=[\d.]+", address)
    show(page, pages / "run.html", address)
    assert ticks(page) == at
    assert page.inner_text(".play .says >> nth=0") == words
    page.focus(".play input[type=range]")
    page.keyboard.press("Home")
    assert ticks(page) == 0
    page.keyboard.press(" ")
    page.wait_for_selector(".play[data-playing=true]")
    page.keyboard.press(" ")
    page.wait_for_selector(".play[data-playing=false]")
    page.select_option(".play label:has-text('Run') select", "double-binary-tree")
    assert "run=2" in page.evaluate("location.hash")
    for wrong in ("#t=nonsense", "#t=-5", "#t=1e999&run=77", "#t=99999999"):
        show(page, pages / "run.html", wrong)
        assert 0 <= ticks(page) <= max(end, at)


def test_a_rank_and_a_link_say_what_passes(page: Any, pages: Path) -> None:
    show(page, pages / "run.html")
    run = first_run(page)
    sent = [run["routes"][route]["names"][0] == "rank 3" for route in run["messages"]["route"]]
    begin = list(accumulate(run["messages"]["start"]))[sent.index(True)]
    show(page, pages / "run.html", f"#t={begin / 1e6}")
    said = ".play .says >> nth=1"
    page.hover(".play svg g.rank >> nth=3")
    assert page.inner_text(said).startswith("Rank 3: sends to rank 4 (64 KiB, chunk 3, to be added)")
    page.select_option(".play label:has-text('Look at') select", "n3")
    assert "Rank 3: sends to rank 4" in page.inner_text(".play [role=status]")
    page.focus(".play svg [tabindex='0']")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.item") == "n4"
    assert page.inner_text(said).startswith("Rank 4")
    page.select_option(".play label:has-text('Look at') select", "l0")
    assert page.inner_text(said).startswith("Link between ")
    assert "Busy in this part of the time" in page.inner_text(said)


def test_who_asks_for_no_motion_gets_steps_alone(chromium: Any, pages: Path) -> None:
    for page in opened(chromium, reduced_motion="reduce"):
        show(page, pages / "run.html")
        assert not page.is_visible("button:text-is('Play')")
        at = ticks(page)
        page.focus(".play input[type=range]")
        page.keyboard.press(" ")
        assert page.get_attribute(".play", "data-playing") == "false"
        page.keyboard.press("ArrowRight")
        assert ticks(page) > at
        assert "asks for no motion" in page.inner_text(".play")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["run", "search", "log"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_barrier_is_left(name: str, theme: str, chromium: Any, pages: Path) -> None:
    for page in opened(chromium, color_scheme=theme):
        show(page, pages / f"{name}.html")
        page.click("[aria-label='Next moment']")
        assert int(page.get_attribute(".play", "data-drawn")) > 0
        assert barriers(page) == []


@pytest.mark.parametrize("name", ["run", "search", "log", "matrix-8"])
def test_a_telephone_scrolls_the_picture_and_not_the_page(name: str, chromium: Any, pages: Path) -> None:
    for page in opened(chromium, width=390):
        show(page, pages / f"{name}.html")
        assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_print_holds_the_moment_and_no_buttons(page: Any, pages: Path) -> None:
    show(page, pages / "run.html")
    page.emulate_media(media="print")
    assert not page.is_visible(".play .controls")
    assert page.is_visible(".play svg")
    assert page.is_visible(".play .clock")
    assert not page.is_visible(".play .hint")


def test_the_steps_of_a_log_play_on_each_ring_and_tree(page: Any, pages: Path) -> None:
    show(page, pages / "log.html")
    runs = page.eval_on_selector_all(".play label:has-text('Run') option", "all => all.map((each) => each.textContent)")
    assert {run.split()[0] for run in runs} == {"ring", "tree"}
    assert "step 1 of 30" in page.inner_text(".play .clock")
    for number, run in enumerate(runs):
        page.select_option(".play label:has-text('Run') select", index=number)
        assert (
            page.eval_on_selector_all(".play svg .k2.under, .play svg .k3.under", "all => all.length") > 0
            or "tree" in run
        )
        if run.startswith("tree"):
            inside = page.eval_on_selector_all(".play svg g[data-inside='2']", "all => all.length")
            assert inside > 0, "sums inside hosts come first"
        page.focus(".play input[type=range]")
        page.keyboard.press("End")
        assert "Nothing is under way" in page.inner_text(".play")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("hosts", [1, 8, 64])
@pytest.mark.parametrize("width", [390, 1200])
def test_a_matrix_has_room_for_its_labels(hosts: int, width: int, chromium: Any, pages: Path) -> None:
    for page in opened(chromium, width=width):
        show(page, pages / f"matrix-{hosts}.html")
        frame = {name: float(page.get_attribute("#heat", f"data-{name}")) for name in ("left", "top", "side")}
        whole = page.evaluate("document.getElementById('heat').clientWidth")
        assert frame["left"] > 10
        assert frame["top"] > 10
        assert frame["side"] > 0.6 * whole
        assert max(frame["left"], frame["top"]) + frame["side"] <= whole + 1
        inked = (
            "([left, top, side]) => { const c = document.getElementById('heat'); const s = c.width / c.clientWidth; const d = c.getContext('2d');"
            " const count = (x, y, w, h) => { const p = d.getImageData(x * s, y * s, Math.max(w * s, 1), Math.max(h * s, 1)).data; let n = 0;"
            " for (let i = 3; i < p.length; i += 4) if (p[i]) n += 1; return n; };"
            " return [count(0, top + side * 0.75, left - 3, side / 4), count(left + side * 0.75, 0, side / 4, top - 3)]; }"
        )
        beside, above = page.evaluate(inked, [frame["left"], frame["top"], frame["side"]])
        assert beside > 20
        assert above > 20
        cell = frame["side"] / {1: 8, 8: 64, 64: 64}[hosts]
        page.evaluate("document.getElementById('heat').scrollIntoView({ behavior: 'instant' })")
        at = page.evaluate(
            "(() => { const b = document.getElementById('heat').getBoundingClientRect(); return [b.left, b.top]; })()"
        )
        page.mouse.move(at[0] + 1 + frame["left"] + 1.5 * cell, at[1] + 1 + frame["top"] + 2.5 * cell)
        labels = page.evaluate("JSON.parse(document.getElementById('data').textContent).matrix.labels")
        assert page.inner_text("#heat-says").startswith(f"{labels[2]} \u2192 {labels[1]}: ")
        assert "pairs send" in page.get_attribute("#heat", "aria-label")
        assert barriers(page) == []


@pytest.mark.sampled(2, "*")
@pytest.mark.parametrize(
    ("passes", "moment", "x"),
    [
        ([0, 40, 60, 40], 20, 50.0),  # half of it is past the middle of the first link
        ([0, 40, 60, 40], 50, 115.0),  # it waits before the second link, beside the node
        ([0, 40, 60, 40], 80, 150.0),
        ([0, 80, 20, 80], 20, 62.5),  # its head is on the second link, a quarter of it past the first one
        ([0, 80, 20, 80], 90, 168.75),
    ],
)
def test_a_mark_is_the_middle_of_its_message(
    passes: list[int], moment: int, x: float, page: Any, pages: Path, tmp_path: Path
) -> None:
    """Two links in a row, each 100 long: the mark is between the first and the last byte, and beside a node before a wait."""
    nodes = [
        {"x": at - 10, "y": 40, "width": 20, "height": 20, "text": name, "kind": "rank", "title": f"rank {name}"}
        for at, name in ((0, "<b>0</b>"), (100, "1"), (200, "2"))
    ]
    links = [
        {"path": f"M{at} 50L{at + 100} 50", "width": 2, "ends": [number, number + 1], "title": f"link {number}"}
        for number, at in enumerate((0, 100))
    ]
    columns = {"start": [0], "length": [100], "route": [0], "bytes": [8], "adds": [0], "chunk": [-1], "passes": passes}
    run = {
        "name": "one", "note": "by hand", "picture": 0, "tick_us": 1e-6, "end": 100, "messages": columns, "chunks": [], "load": None,
        "routes": [{"names": ["rank 0", "rank 2"], "nodes": [0, 2], "links": [0, 2]}],
    }  # fmt: skip
    play = {"pictures": [{"width": 220, "height": 100, "frames": [], "nodes": nodes, "links": links}], "runs": [run]}
    text = (pages / "run.html").read_text(encoding="utf-8")
    held = re.compile(r'(<script type="application/json" id="data">).*?(</script>)', re.DOTALL)
    file = tmp_path / "made.html"
    file.write_text(held.sub(lambda hit: hit[1] + html.safe_json({"play": play}) + hit[2], text), encoding="utf-8")
    show(page, file, f"#t={moment / 1e6:.6f}")
    mark = page.get_attribute(".play .marks path", "transform")
    at = [float(each) for each in re.findall(r"[-\d.]+", mark)]
    assert at == pytest.approx([x, 54.0], abs=0.06)
    assert page.text_content(".play svg g.rank >> nth=0") == "<b>0</b>"
