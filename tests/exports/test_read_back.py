"""What had a way out and none back: buckets of DistributedDataParallel, and which MSCCL file serves a call of which size."""

from __future__ import annotations

from pathlib import Path

import pytest

import ringwright
from ringwright.formats.settings.ddp_buckets import ddp_plan, parse_ddp_buckets, read_ddp_buckets, text
from ringwright.formats.settings.msccl_config import msccl_config, read_msccl_config
from ringwright.graph.frameworks.buckets import BucketPlan
from ringwright.ground.errors import InputError, UsageError
from ringwright.model.stages import LinkCosts
from ringwright.model.threadblocks.msccl_load import MscclLoad
from ringwright.model.workload import Workload
from ringwright.schedulers.fifo.pytorch_ddp import pytorch_ddp
from ringwright.workloads.chain import ChainLayer, chain

pytestmark = pytest.mark.once


def bucketed() -> Workload:
    net = chain("net", [ChainLayer(0.1, 0.2, size << 18, name=f"l{at}") for at, size in enumerate((1, 2, 3, 8, 1))])
    return pytorch_ddp(net, LinkCosts(1e9), caps_mb=(1, 2))


def test_buckets_come_back(tmp_path: Path) -> None:
    made = bucketed()
    plan = ddp_plan(made)
    want = BucketPlan(tuple(plan["bucket_cap_mb_list"]), tuple(map(tuple, plan["buckets"])), "pytorch-ddp")
    (tmp_path / "b.json").write_text(text(made))
    assert read_ddp_buckets(tmp_path / "b.json") == {"": want}
    assert parse_ddp_buckets(text(made, "py")) == {"": BucketPlan(want.bucket_cap_mib, (), want.policy)}


def test_each_stage_of_a_pipeline_has_its_buckets() -> None:
    job = ringwright.job("gpt2", gpus=4, parallel="pp2", micro_batches=2)
    made = pytorch_ddp(job, LinkCosts(1e9), bucket_cap_mb=25)
    read = parse_ddp_buckets(text(made))
    assert set(read) == {"stage0", "stage1"}
    for of, plan in parse_ddp_buckets(text(made, "py")).items():
        assert plan.bucket_cap_mib == read[of].bucket_cap_mib
        assert plan.policy == "pytorch-ddp"


def test_names_in_a_workload_of_elsewhere_do_not_become_code() -> None:
    made = bucketed().with_policy("x\nraise SystemExit\u2028y", agreement="static")
    assert [line[:1] for line in text(made, "py").splitlines()] == ["#", "m"]


def test_a_script_of_ones_own_is_read_without_comments() -> None:
    read = parse_ddp_buckets("model = DDP(model, bucket_cap_mb_list=[1, 2.5])\n")
    assert read == {"": BucketPlan((1.0, 2.5))}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("{", "not JSON"),
        ("{}", "should stand here"),
        ('{"all": 3}', "is an object"),
        ('{"bucket_cap_mb_list": []}', "without a size"),
        ('{"bucket_cap_mb_list": [0]}', "without a size"),
        ('{"bucket_cap_mb_list": [NaN]}', "without a size"),
        ('{"bucket_cap_mb_list": [true]}', "list of numbers"),
        ('{"bucket_cap_mb_list": [1' + "0" * 400 + "]}", "too large"),
        ('{"bucket_cap_mb_list": [1], "buckets": ["a"]}', "lists of names"),
        ('{"bucket_cap_mb_list": [1], "buckets": [["a"], ["b"]]}', "1 sizes for 2 buckets"),
        ("DDP(model)\n", "a call with"),
        ("DDP(bucket_cap_mb_list=caps)\n", "neither JSON nor Python"),
        ("# 2 buckets by x\n# 3 buckets by y\nDDP(bucket_cap_mb_list=[1])\n", "each below its comment"),
    ],
)
def test_broken_buckets_say_what_is_wrong(said: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        parse_ddp_buckets(said)


LOADS = (MscclLoad("/opt/a.xml", 0, 1 << 20, "LL"), MscclLoad('b"&<c>.xml', 1 << 20, 0, "Simple"))


def test_a_configuration_of_msccl_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "c.xml"
    path.write_bytes(msccl_config(LOADS))
    assert read_msccl_config(path) == LOADS
    path.write_text('<msccl_algos><load path="a" maxBytes="9" minBytes="3" minbytes="4"/></msccl_algos>')
    assert read_msccl_config(path) == (MscclLoad("a", 4, 9, "Simple"),)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("<msccl_algos><load", "should stand here"),
        ("<other/>", "should stand here"),
        ("<msccl_algos><x/></msccl_algos>", "has a path"),
        ("<msccl_algos><load minbytes='1'/></msccl_algos>", "has a path"),
        ("<msccl_algos><load path='a' proto='TCP'/></msccl_algos>", "has a path"),
        ("<msccl_algos><load path='a' minbytes='-1'/></msccl_algos>", "no number of bytes"),
        ("<msccl_algos><load path='a' minbytes='" + "9" * 30 + "'/></msccl_algos>", "no number of bytes"),
        ("<msccl_algos><load path='a' minbytes='9' maxbytes='9'/></msccl_algos>", "no call is of 9"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><msccl_algos>&b;</msccl_algos>", "should stand here"),
    ],
)
def test_a_broken_configuration_of_msccl_says_where(said: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "c.xml").write_text(said)
    with pytest.raises(InputError, match=why):
        read_msccl_config(tmp_path / "c.xml")


def test_a_plan_without_buckets_or_with_odd_ones() -> None:
    with pytest.raises(UsageError, match="without a size"):
        BucketPlan(())
