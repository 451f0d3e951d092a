"""The page in a real browser: no error, every chart drawn, no sideways scrolling, light and dark, nothing executed."""

from __future__ import annotations

import html as escaping
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from advice_made import drawn, made_advice
from fixtures_summary import empty_summary, job_summary
from patience import HANG_S
from ringwright.analysis.summary import summarise
from ringwright.reports import html
from ringwright.reports.pages import advised_page
from ringwright_lab.testing import faulty_fabric

pytestmark = [pytest.mark.browser, pytest.mark.slow]
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --enable-logging=stderr --v=0 --virtual-time-budget=3000"
)


def chromium(address: str, profile: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Open a page in headless Chromium and return what it printed."""
    return subprocess.run(
        ["chromium", *_FLAGS.split(), f"--user-data-dir={profile}", *arguments, address],
        capture_output=True,
        check=True,
        timeout=HANG_S,
        text=True,
    )


def opened(summary: dict[str, Any], folder: Path, fragment: str = "", prologue: str = "") -> str:
    """Return the document after its script ran; fail on any console message of an error."""
    page = folder / "job.html"
    page.write_text(html.page(summary) + prologue, encoding="utf-8")
    done = chromium(f"{page.as_uri()}{fragment}", folder / "profile", "--dump-dom")
    assert not re.findall(r".*CONSOLE.*", done.stderr)
    return done.stdout


def marks(document: str) -> str:
    """Return the attributes of the root element, where the page's script leaves its marks."""
    found = re.search(r"<html[^>]*>", document)
    assert found
    return found[0]


@pytest.mark.parametrize(
    "summary",
    [job_summary(), job_summary(hostile=True), job_summary(hosts=64)],
    ids=["job", "hostile", "512 ranks"],
)
def test_everything_is_drawn_without_an_error(summary: dict[str, Any], tmp_path: Path) -> None:
    document = opened(summary, tmp_path)
    assert 'data-drawn="yes"' in marks(document)
    assert "data-errors" not in marks(document)
    for canvas in ("heat", "map"):
        found = re.search(rf'<canvas id="{canvas}"[^>]*data-drawn="(\d+)"', document)
        assert found, canvas
        assert int(found[1]) > 0
    for name in ("size-1", "size-2", "time"):
        assert re.search(rf'id="chart-{name}".*?<rect class="f\d"', document, re.DOTALL), name
    for name in ("operations", "sizes", "pairs", "hosts", "nics", "communicators", "algorithms", "claims", "ledger"):
        assert f'id="table-{name}"' in document
    assert "<img" not in document


def test_a_heat_map_of_nearly_equal_bytes_does_not_use_the_whole_scale(tmp_path: Path) -> None:
    summary = job_summary()
    for key in ("pair_bytes", "host_pair_bytes"):
        summary[key] = [row | {"bytes": (64 + 8 * (at % 2)) << 20} for at, row in enumerate(summary[key])]
    document = opened(summary, tmp_path)
    scale = [re.search(rf'id="ramp-{end}">([^<]*)<', document) for end in ("low", "high")]
    assert [found and found[1] for found in scale] == ["4.50 MiB", "72 MiB"]


def test_a_page_of_advice_opens_without_an_error(tmp_path: Path) -> None:
    page = tmp_path / "advice.html"
    page.write_text(advised_page.advice_page(made_advice(), drawn(), "ringwright advise job/"), encoding="utf-8")
    done = chromium(page.as_uri(), tmp_path / "profile", "--dump-dom")
    assert not re.findall(r".*CONSOLE.*", done.stderr)
    assert "data-errors" not in marks(done.stdout)
    assert "<title>Advice: &lt;script&gt;" in done.stdout
    assert done.stdout.count('class="plot timeline"') == 4


def test_an_empty_job_opens_without_an_error(tmp_path: Path) -> None:
    document = opened(empty_summary(), tmp_path)
    assert 'data-drawn="yes"' in marks(document)
    assert "data-errors" not in marks(document)


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("of", ["recording", "advice"])
def test_nothing_scrolls_sideways(width: int, of: str, tmp_path: Path) -> None:
    """The page stands in a frame of the width asked, as a window cannot be as narrow as a telephone."""
    advice = advised_page.advice_page(made_advice(), drawn(), "ringwright advise job/ " + "z" * 200)
    page = escaping.escape(advice if of == "advice" else html.page(job_summary(hostile=True)))
    measure = (
        "addEventListener('load', () => { const inner = document.querySelector('iframe').contentDocument.documentElement;"
        "document.documentElement.dataset.width = inner.scrollWidth; })"
    )
    frame = tmp_path / "frame.html"
    frame.write_text(
        f"<!doctype html><meta charset=utf-8><script>{measure}</script>"
        f'<iframe style="width:{width}px;height:900px;border:0" srcdoc="{page}"></iframe>'
    )
    document = chromium(frame.as_uri(), tmp_path / "profile", "--dump-dom", "--window-size=1400,1000").stdout
    found = re.search(r'data-width="(\d+)"', marks(document))
    assert found
    assert int(found[1]) == width


def test_a_click_sorts_and_the_theme_turns(tmp_path: Path) -> None:
    """The page's policy forbids foreign scripts, so a frame around it does the clicking."""
    page = escaping.escape(html.page(job_summary()))
    act = """
    addEventListener('load', () => {
      const inner = document.querySelector('iframe').contentDocument;
      const root = document.documentElement;
      const column = () => Array.from(inner.querySelectorAll('#table-operations tbody tr'), r => r.cells[4].dataset.v).join();
      inner.querySelectorAll('#table-operations th button')[4].click();
      root.dataset.down = column();
      inner.querySelectorAll('#table-operations th button')[4].click();
      root.dataset.up = column();
      root.dataset.sort = inner.querySelectorAll('#table-operations th')[4].getAttribute('aria-sort');
      const colour = () => inner.defaultView.getComputedStyle(inner.body).backgroundColor;
      root.dataset.before = colour();
      inner.getElementById('theme').click();
      root.dataset.after = colour();
      const heat = inner.getElementById('heat');
      const box = heat.getBoundingClientRect();
      const [left, top, side] = ['left', 'top', 'side'].map((name) => Number(heat.dataset[name]));
      const [x, y] = [box.left + left + side / 16 * 1.5, box.top + top + 4];
      heat.dispatchEvent(new inner.defaultView.PointerEvent('pointermove', {clientX: x, clientY: y}));
      root.dataset.says = inner.getElementById('heat-says').textContent;
    });"""
    frame = tmp_path / "frame.html"
    frame.write_text(
        f"<!doctype html><meta charset=utf-8><script>{act}</script>"
        f'<iframe style="width:1200px;height:900px;border:0" srcdoc="{page}"></iframe>'
    )
    root = marks(chromium(frame.as_uri(), tmp_path / "profile", "--dump-dom", "--window-size=1400,1000").stdout)
    data = dict(re.findall(r'data-(\w+)="([^"]*)"', root))
    down = [int(value) for value in data["down"].split(",")]
    assert down == sorted(down, reverse=True)
    assert data["up"].split(",") == data["down"].split(",")[::-1] or sorted(down) == [
        int(v) for v in data["up"].split(",")
    ]
    assert data["sort"] == "ascending"
    assert data["before"] != data["after"]
    assert data["says"] == "rank 0 (node00) → rank 1 (node00): 44.7 GiB (48,000,000,000 bytes)"


def test_light_and_dark_are_different_pictures(tmp_path: Path) -> None:
    page = tmp_path / "job.html"
    page.write_text(html.page(job_summary()), encoding="utf-8")
    pictures = []
    for theme in ("light", "dark"):
        picture = tmp_path / f"{theme}.png"
        chromium(f"{page.as_uri()}#{theme}", tmp_path / "profile", f"--screenshot={picture}", "--window-size=1280,1600")
        pictures.append(picture.read_bytes())
    assert pictures[0][:8] == pictures[1][:8] == b"\x89PNG\r\n\x1a\n"
    assert min(len(picture) for picture in pictures) > 40_000
    assert pictures[0] != pictures[1]


def test_a_script_that_slips_in_cannot_run(tmp_path: Path) -> None:
    """Were there a hole in the escaping, the policy would still stop the script."""
    page = tmp_path / "job.html"
    intruder = "<script>document.documentElement.dataset.owned = 'yes'</script><img src=x onerror=\"document.documentElement.dataset.owned='yes'\">"
    page.write_text(html.page(job_summary()).replace("</main>", intruder + "</main>"), encoding="utf-8")
    done = chromium(page.as_uri(), tmp_path / "profile", "--dump-dom")
    assert "data-owned" not in marks(done.stdout)
    assert "Content Security Policy" in done.stderr


def test_ranks_over_time_are_drawn(tmp_path: Path) -> None:
    late = summarise(faulty_fabric.job("late", 3)[0])
    document = opened(late, tmp_path)
    assert "data-errors" not in marks(document)
    figure = re.search(r'id="rank-timeline".*?</figure>', document, re.DOTALL)
    assert figure
    assert 'data-drawn="events"' in figure[0]
    ranks = len({(bar["rank"], bar["lane"]) for bar in late["bars"]["bars"]})
    assert f"{ranks} of {ranks} rows; shown: {late['bars']['shown']:,} events" in figure[0]
    for name in ("waits", "bandwidth"):
        assert f'id="table-{name}"' in document
    assert late["verdict"]["evidence"][0] in escaping.unescape(document)
    assert 'id="table-culprits"' not in document, "who is the verdict is not told twice"
