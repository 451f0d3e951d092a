"""Logs of backward passes: those that ship are read whole, what cannot be read is named with its line."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from ringwright.formats.sources.backward_log import backward_log, table
from ringwright.ground.errors import InputError
from ringwright_lab.papers.figures import netai2020

GOOD = "head\n1\n2\n5.5,400\n0,8\n"


@pytest.mark.parametrize(
    ("name", "tensors", "backward_ms", "parameters"),
    [("vgg16", 58, 111.6, 138_365_992), ("resnet50", 161, 64.8, 25_557_032), ("resnet101", 314, 106.4, 44_549_160)],
)
def test_what_ships_is_whole(name: str, tensors: int, backward_ms: float, parameters: int) -> None:
    read = netai2020.log(name)
    assert len(read.gaps_s) == tensors
    assert read.backward_s * 1e3 == pytest.approx(backward_ms, abs=0.05)
    assert sum(read.sizes_bytes) == 4 * parameters


def test_what_ships_says_where_it_is_from() -> None:
    notice = (files("ringwright") / "samples" / "netai2020" / "NOTICE").read_text()
    assert "netx-repo/training-bottleneck" in notice
    assert "Apache License 2.0" in notice


def test_additions_lie_on_straight_lines_between_measured_sizes() -> None:
    assert netai2020.addition_s(5242880) == pytest.approx(2.89296e-05)
    assert netai2020.addition_s((5242880 + 10485760) / 2) == pytest.approx((2.89296e-05 + 4.82224e-05) / 2)
    assert netai2020.addition_s(1) == pytest.approx(1.04448e-05), "the smallest size stands for smaller ones"


def test_units(tmp_path: Path) -> None:
    path = tmp_path / "x.bk.log"
    path.write_text(GOOD)
    read = backward_log(path)
    assert (read.name, read.gaps_s, read.sizes_bytes) == ("x", (pytest.approx(5.5e-6), 0.0), (400, 8))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "0 tensors"),
        ("head\n1\n", "0 tensors"),
        ("head\n1\n3\n5,4\n", "third line says '3'"),
        (GOOD.replace("0,8", "0;8"), ":5"),
        (GOOD.replace("5.5", "-1"), ":4"),
        (GOOD.replace("400", "4.5"), ":4"),
        (GOOD.replace("400", "nan"), ":4"),
        (GOOD.replace("5.5", "inf"), ":4"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.bk.log"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        backward_log(path)
    assert said in str(caught.value)


def test_no_file_and_no_row(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        backward_log(tmp_path / "absent")
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(InputError):
        table(tmp_path / "empty")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError):
        table(tmp_path / "binary")
