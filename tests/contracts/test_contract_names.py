"""The contracts are where a stranger looks for them, and cost nothing to who only generates inputs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ringwright_lab import testing
from ringwright_lab.contracts import conformance


@pytest.mark.parametrize("name", testing.CONTRACTS)
def test_a_contract_is_a_name_of_the_public_room(name: str) -> None:
    assert getattr(testing, name) is getattr(conformance, name)
    assert name in testing.__all__


def test_generators_load_no_engine() -> None:
    code = "import sys, ringwright_lab.testing; sys.exit('ringwright.engines' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_is_no_contract_is_no_name() -> None:
    with pytest.raises(AttributeError, match="check_nothing"):
        testing.check_nothing  # noqa: B018
