"""A number format, a pipeline schedule, a law and an executor: each keeps the contract of its kind."""

from ringwright_template.one_by_one import SCHEDULE
from ringwright_template.polite import EXECUTOR
from ringwright_template.three_levels import three_levels
from ringwright_template.whole_elements import LAW

import ringwright
from ringwright_lab.testing import check_codec, check_executor, check_law, check_pipeline, failures


def test_the_number_format_keeps_its_contract() -> None:
    assert failures(check_codec(three_levels)) == []


def test_the_schedule_keeps_its_contract() -> None:
    assert failures(check_pipeline(SCHEDULE)) == []


def test_the_law_keeps_its_contract() -> None:
    assert failures(check_law(LAW)) == []


def test_the_executor_keeps_its_contract() -> None:
    assert failures(check_executor(EXECUTOR)) == []


def test_switches_add_in_the_format() -> None:
    able = ringwright.fabric("switch:4,switches=tofino").aggregators
    assert all("three-levels" in each.codecs for each in able.values())
