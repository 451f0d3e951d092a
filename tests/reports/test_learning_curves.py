"""Loss curves as a picture: every curve and its row, within the frame, whatever the losses are."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import pytest

from ringwright.ground.errors import UsageError
from ringwright_lab.reports.learning_curves import HEIGHT, LEGEND, WIDTH, LearningCurve, learning_curves

pytestmark = pytest.mark.once


def test_every_curve_has_a_line_and_a_row_and_the_best_is_first() -> None:
    curves = [
        LearningCurve("slow", tuple(3 / (1 + at / 9) for at in range(20)), is_fed_back=True),
        LearningCurve("quick & <cheap>", tuple(3 / (1 + at) for at in range(20))),
        LearningCurve("lost", (3.0, math.inf, math.nan, 2.9)),
    ]
    text = learning_curves(curves, every=10, band=(0.2, 0.3), floor=0.1)
    drawn = ET.fromstring(text)
    lines = drawn.findall("{*}polyline")
    assert [line.find("{*}title").text for line in lines] == ["quick & <cheap>", "slow, fed back", "lost"]
    points = [tuple(map(float, point.split(","))) for line in lines for point in line.attrib["points"].split()]
    assert len(points) == 42
    assert all(0 <= x <= WIDTH - LEGEND and 0 <= y <= HEIGHT for x, y in points)
    rows = [each.text for each in drawn.findall("{*}text")]
    assert "quick & <cheap>: 0.168" in rows
    assert "200 steps" in rows
    assert "least possible: 0.100" in rows
    assert drawn.find("{*}rect").attrib["class"] == "band"


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(UsageError, match="no loss to draw"):
        learning_curves([LearningCurve("lost", (math.inf,))], every=10)
