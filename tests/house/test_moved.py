"""Old module paths: each gives the module that took its place, and says so once."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest

import ringwright
from ringwright.ground import moved

pytestmark = pytest.mark.once


@pytest.mark.parametrize("old", sorted(moved._homes()))
def test_an_old_path_has_a_module_in_its_place(old: str) -> None:
    now = moved.home(f"ringwright.{old}")
    assert now is not None
    assert find_spec(now) is not None
    assert moved.home(now) is None, "what a path is told to be now is no old path itself"


def test_old_paths_give_the_modules_of_today_and_warn_once() -> None:
    code = """
import sys, warnings
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always")
    import ringwright.topology
    import ringwright.topology
    import ringwright.studies.jobs.costs as costs
    from ringwright.sources import read
    from ringwright.costs.lower_bounds import bounds
import ringwright.bounds.lower_bounds, ringwright.jobs.pricing.costs, ringwright.model.topology
assert ringwright.topology is ringwright.model.topology and costs is ringwright.jobs.pricing.costs
assert bounds is ringwright.bounds.lower_bounds.bounds and read is ringwright.read
print(*(each.message for each in heard), sep="\\n")
print(*{each.filename for each in heard}, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    said = done.stdout.splitlines()
    assert len(said) == len(set(said))
    assert said[0] == "ringwright.topology is ringwright.model.topology now; the old path goes with the next release"
    assert [line.split()[0] for line in said] == [
        "ringwright.topology",
        "ringwright.studies",
        "ringwright.studies.jobs",
        "ringwright.studies.jobs.costs",
        "ringwright.sources",
        "ringwright.costs.lower_bounds",
    ]
    assert done.stderr.split() == ["<string>"], "the line that imports is blamed"


def test_public_modules_are_where_they_were_and_say_nothing() -> None:
    names = ("errors", "language", "pictures", "survey")
    code = "import ringwright.errors, ringwright.language, ringwright.pictures, ringwright.survey"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
    for name in names:
        assert import_module(f"ringwright.{name}") is getattr(ringwright, name)


def test_a_path_that_never_was_is_still_refused() -> None:
    with pytest.raises(ModuleNotFoundError):
        import_module("ringwright.nothing")
    with pytest.warns(DeprecationWarning, match="ringwright.calls"), pytest.raises(ModuleNotFoundError):
        import_module("ringwright.studies.nothing")


def test_what_is_saved_bears_the_name_that_it_had() -> None:
    """A module moves; a file that somebody saved before does not."""
    from ringwright.formats.sources.captures import FORMAT as TRACES
    from ringwright.model.workload import FORMAT as WORKLOADS

    assert (TRACES, WORKLOADS) == ("ringwright.trace", "ringwright.workload")
