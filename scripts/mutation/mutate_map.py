"""A plugin of pytest: tells coverage which test is running, and writes down how long each test function took."""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

SECONDS = Path(__file__).resolve().parents[2] / "build" / "mutation" / "seconds.jsonl"
spent: dict[str, float] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Give the lines that run from here on to this test function; its parameters are not told apart."""
    name = item.nodeid.partition("[")[0]
    running = coverage.Coverage.current()
    if running is not None:
        running.switch_context(name)
    begin = time.process_time()
    result = yield
    spent[name] = spent.get(name, 0.0) + time.process_time() - begin
    return result


def pytest_sessionfinish() -> None:
    """Write the seconds of processor time of each test function."""
    with SECONDS.open("a") as stream:
        stream.writelines(json.dumps({"test": name, "seconds": value}) + "\n" for name, value in spent.items())
