"""A workload as Chakra execution traces and back: the same operations, bytes and time."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pytest

from ringwright.costs.gpus import gpu
from ringwright.engines.job.run import simulate
from ringwright.formats.exports.chakra_workload import chakra_workload
from ringwright.formats.sources import read
from ringwright.ground.errors import RingwrightError, UsageError
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Rewrite, Workload
from ringwright.workloads.chain import ChainLayer, chain
from ringwright.workloads.job import job
from ringwright.workloads.models import model
from ringwright.workloads.parallel import parse
from ringwright.workloads.replay import Replay, replayed
from ringwright.workloads.step import StepSpec
from ringwright.workloads.times import Roofline

COSTS = LinkCosts(50e9, 1e-6, ring=True)


def three(**changed: object) -> Workload:
    made = chain(
        "three",
        [ChainLayer(2e-3, 2e-3, 3000000), ChainLayer(2.0111e-3, 2e-3, 6000000), ChainLayer(2e-3, 2e-3, 3000000)],
        ranks=4,
    )
    return dataclasses.replace(made, **changed)  # type: ignore[arg-type]


def there_and_back(workload: Workload, folder: Path, *, representatives: bool = False) -> Replay:
    for rank, data in chakra_workload(workload, representatives=representatives).items():
        (folder / f"job.{rank}.et").write_bytes(data)
    return replayed(read([str(folder)]))


def counts(workload: Workload) -> Counter[tuple[str, str, int]]:
    found: Counter[tuple[str, str, int]] = Counter()
    for payload in workload.payloads:
        times = workload.micro_batches if payload.per == "micro-batch" else 1
        found[payload.role, payload.op, payload.size_bytes] += times
    return found


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("representatives", [False, True])
def test_a_chain(batches: int, representatives: bool, tmp_path: Path) -> None:
    made = three(micro_batches=batches)
    again = there_and_back(made, tmp_path, representatives=representatives)
    assert again.ground == "dependencies"
    assert counts(again.workload) == counts(made)
    assert again.workload.mesh.size == 4
    assert simulate(again.workload, COSTS).step_s == simulate(made, COSTS).step_s


def test_what_a_policy_made_of_it_is_in_the_files(tmp_path: Path) -> None:
    cut = three().with_policy("x", rewrites=(Rewrite("partition", settings={"size_bytes": 2000000}),))
    again = there_and_back(cut, tmp_path)
    assert counts(again.workload) == {("dp", "all-reduce", 2000000): 5, ("dp", "all-reduce", 1000000): 2}
    assert simulate(again.workload, COSTS).step_s == pytest.approx(simulate(cut, COSTS).step_s, rel=1e-9)


@pytest.mark.sampled(2, "*")
@pytest.mark.parametrize(
    ("name", "form", "batches", "sequence"),
    [
        ("gpt2-medium", "tp2,pp2,dp2", 2, 1024),
        ("llama3-8b", "tp2,sp,dp2,zero1", 1, 1024),
        ("bert-large", "tp2,dp2", 1, 512),
    ],
)
@pytest.mark.parametrize("representatives", [False, True])
def test_generated_jobs(
    name: str, form: str, batches: int, sequence: int, representatives: bool, tmp_path: Path
) -> None:
    made = job(model(name), StepSpec(parse(form), sequence, batches), Roofline(gpu("h100")))
    again = there_and_back(made, tmp_path, representatives=representatives)
    assert counts(again.workload) == counts(made)
    assert len(again.workload.classes) == len(made.classes)
    assert simulate(again.workload, COSTS).step_s == simulate(made, COSTS).step_s


def test_what_chakra_has_no_type_for_is_refused() -> None:
    with pytest.raises(UsageError, match="no collective type for push-pull") as caught:
        chakra_workload(chain("three", [ChainLayer(1, 1, 8)], op="push-pull"))
    assert "layer0" in caught.value.where


def test_too_many_ranks_are_refused_with_the_remedy() -> None:
    large = chain("large", [ChainLayer(1, 1, 8)], ranks=4096)
    with pytest.raises(UsageError, match="4,096 files") as caught:
        chakra_workload(large)
    assert "representatives" in caught.value.remedy
    assert list(chakra_workload(large, representatives=True)) == [0]


def test_a_damaged_file_ends_in_an_error_of_the_tree_or_in_losses(tmp_path: Path) -> None:
    data, refused = chakra_workload(three())[0], []
    for at in range(1, len(data), 97):
        (tmp_path / "job.0.et").write_bytes(data[:at])
        try:
            found = read([str(tmp_path / "job.0.et")])
        except RingwrightError as error:
            refused.append(error.what)
            continue
        assert found.df.height < 16
    assert all(refused)
