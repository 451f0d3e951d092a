"""Gradients in halves on real ranks: weights equal to the bit, bytes in the lab; gains are for ``benchmarks/lab_decompose.py``."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from patience import HANG_S
from ringwright.ground.errors import UsageError
from ringwright_lab.live.halves import HalvesJob

SOURCE = str(Path(__file__).parents[2] / "src")


OPTIMIZERS = ("sgd", "adam")
MODES = ("whole", "halves", "sliced")


def trained(jobs: Sequence[HalvesJob], ranks: int = 2) -> list[list[dict[str, Any]]]:
    """Run jobs on ranks of this machine and return what each rank measured of each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    started = []
    for rank in range(ranks):
        told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": str(rank), "WORLD_SIZE": str(ranks)}
        environment = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1", **told}
        asked = json.dumps([asdict(job) for job in jobs])
        command = [sys.executable, "-W", "ignore", "-m", "ringwright_lab.live.halves", asked]
        started.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
    try:
        return [json.loads(each.communicate(timeout=HANG_S)[0].decode().strip().splitlines()[-1]) for each in started]
    finally:
        for each in started:
            each.kill()


@pytest.mark.torch
@pytest.mark.once
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is absent")
def test_weights_are_equal_to_the_bit() -> None:
    """Six steps with SGD and Adam, the last update flushed; five steps give others. A large layer with Adam, two ranks."""
    alike = [HalvesJob(mode, each, layers=3, elements=64, steps=6) for each in OPTIMIZERS for mode in MODES]
    fewer = [HalvesJob("halves", each, layers=3, elements=64, steps=5) for each in OPTIMIZERS]
    large = [HalvesJob(mode, "adam", layers=1, elements=1 << 20, steps=1) for mode in ("whole", "sliced")]
    for ran in trained([*alike, *fewer, *large]):
        weights = [each["weights"] for each in ran]
        assert len(set(weights[:3])) == len(set(weights[3:6])) == 1
        assert len({weights[0], weights[3], weights[6], weights[7]}) == 4
        assert all(each["updates"] == [6, 6, 6] for each in ran[:6])
        assert weights[8] == weights[9]


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.once
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is absent")
@pytest.mark.sampled(0, "*")  # halves alone: below; weights of both: test_weights_are_equal_to_the_bit
def test_the_lab_counts_the_bytes_of_an_all_reduce_and_headers_either_way() -> None:
    from ringwright_lab.judges.halves_in_lab import HalvesQuestion, measure

    row = measure(HalvesQuestion(layers=4, steps=4))
    assert len(set(row.weights)) == 1
    assert all(1.0 < sent / row.declared_bytes < 1.07 for sent in row.sent_bytes)


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.once
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is absent")
def test_the_lab_counts_the_bytes_of_an_all_reduce_and_headers() -> None:
    from ringwright.graph.algebra.account import totals
    from ringwright.model.stages import LinkCosts
    from ringwright.schedulers.decompose.dear import dear
    from ringwright_lab.judges import halves_in_lab

    question = halves_in_lab.HalvesQuestion(layers=3, elements=1 << 17, steps=3)
    declared = sum(totals(dear(question.step(), LinkCosts(1.0), neighbours=1)).wire_bytes.values())
    ran = halves_in_lab._run(question, "halves")
    assert 1.0 < ran.bytes_of_a_step / declared < 1.07


def test_the_prediction_in_the_lab() -> None:
    """Closed forms: 1 + 2 / L + 4 of plain overlap, 4 + 3 / L of DeAR, in forward passes; a flow gets 95.6 % of the link."""
    from ringwright_lab.judges.halves_in_lab import HalvesQuestion, predict

    question = HalvesQuestion()
    forward_s = question.forward_s() * question.layers
    plain, halved = predict(question)
    assert plain == pytest.approx((5 + 2 / question.layers) * forward_s, rel=0.01)
    assert halved == pytest.approx((4 + 3 / question.layers) * forward_s, rel=0.01)
    assert plain / halved > 1.2


@pytest.mark.parametrize("wrong", [{"mode": "thirds"}, {"optimizer": "lamb"}, {"layers": 0}, {"ahead": 0}])
def test_jobs_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        HalvesJob(**wrong)
    assert "mode" in caught.value.remedy
