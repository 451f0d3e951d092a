"""What every test shares: hypothesis profiles, and skips that cannot go unnoticed."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import shared_data
from campaigns import left_out

NO_BROWSER = "chromium is not installed"
NO_RANKS = ("PyTorch is absent", "the MPI wheels are absent", "the transformers library is absent")  # for real ranks

FEW_SEARCHES = 50_000  # new objects before garbage is searched for: with Python's 700 a quarter of the time goes there

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=40, print_blob=True)
settings.register_profile("campaigns", deadline=None, max_examples=200, print_blob=True)
settings.register_profile("fast", deadline=None, max_examples=25)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "fast"))


os.environ.pop("GITHUB_STEP_SUMMARY", None)  # gates that tests run add nothing to the page of the suite's own step


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests stay until the end: no search for garbage among them, neither now nor while they run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(FEW_SEARCHES)
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--campaigns", action="store_true", help="run every case of the long lists, and what only campaigns run"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--campaigns"):
        settings.load_profile("campaigns")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only a campaign runs, unless it is one, or a test is named itself."""
    if config.getoption("--campaigns"):
        return
    parts = (each.partition("::") for each in config.args if "::" in each)
    named = tuple(f"{Path(file).name}::{test}" for file, _, test in parts)
    out = left_out(
        each for each in items if not f"{each.path.name}::{each.nodeid.partition('::')[2]}".startswith(named)
    )
    if out:
        config.hook.pytest_deselected(items=out)
        gone = {id(item) for item in out}
        items[:] = [item for item in items if id(item) not in gone]


@pytest.fixture
def forked_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks are forks of one process that has loaded PyTorch, which takes each of them longer than most jobs."""
    from forked_ranks import Forks
    from ringwright.execute import launch, rank_processes

    monkeypatch.setattr(launch, "subprocess", Forks)
    monkeypatch.setattr(rank_processes, "subprocess", Forks)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a marked test whose precondition this machine lacks."""
    if item.get_closest_marker("shared_data") and not shared_data.is_present():
        pytest.skip(shared_data.REASON)
    if item.get_closest_marker("browser") and shutil.which("chromium") is None:
        pytest.skip(NO_BROWSER)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where the recordings are, a test that needs them may not skip: that would hide a lost file."""
    report = yield
    expected_failure = hasattr(report, "wasxfail")
    if report.skipped and not expected_failure and item.get_closest_marker("shared_data") and shared_data.is_present():
        report.outcome = "failed"
        report.longrepr = f"skipped although the recordings are present: {_reason(report)}"
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say aloud how much was not tested."""
    skipped = [_reason(report) for report in terminalreporter.stats.get("skipped", [])]
    for reason in (shared_data.REASON, NO_BROWSER, *NO_RANKS):
        count = sum(reason in text for text in skipped)
        if count:
            terminalreporter.section("NOT TESTED", sep="!", red=True, bold=True)
            terminalreporter.line(f"{count} tests skipped: {reason}", red=True, bold=True)


def _reason(report: pytest.TestReport) -> str:
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
