"""The one place that knows where the real recordings are.

They are not part of the repository: public logs, traces and tables, in a folder named by ``RINGWRIGHT_TEST_DATA`` or
found as ``shared/data`` beside the checkout. Without the folder the tests that need it skip, and the closing summary
says how many; with the folder such a test must not skip.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
REASON = "real recordings are absent (set RINGWRIGHT_TEST_DATA)"

needs_shared_data = pytest.mark.shared_data


def data_folder() -> Path:
    """Return where the recordings are, or would be."""
    named = os.environ.get("RINGWRIGHT_TEST_DATA")
    return Path(named) if named else REPOSITORY.parent / "shared" / "data"


def is_present() -> bool:
    return data_folder().is_dir()


def real(path: str) -> Path:
    """Return a recording, named relative to the folder: ``real("real/nccl-logs/SOURCES.md")``.

    Skips without the folder, so that it may also be called in a fixture; fails when only the file is missing.
    """
    if not is_present():
        pytest.skip(REASON)
    found = data_folder() / path
    if not found.exists():
        pytest.fail(f"{path} is missing from {data_folder()}", pytrace=False)
    return found
