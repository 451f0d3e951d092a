"""What Megatron-LM and torchtitan are told of a job: derived from a Workload, written, and read back as the same settings."""

from __future__ import annotations

import dataclasses
import itertools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringwright
from ringwright.formats.settings.megatron_flags import (
    as_flags,
    megatron_flags,
    parse_megatron_flags,
    read_megatron_flags,
)
from ringwright.formats.settings.torchtitan_toml import (
    as_toml,
    parse_torchtitan_toml,
    read_torchtitan_toml,
    torchtitan_toml,
)
from ringwright.graph.frameworks.framework_facts import settings_of
from ringwright.graph.frameworks.settings import RECOMPUTED, FrameworkSettings
from ringwright.ground.errors import InputError, UsageError
from ringwright.model.stages import LinkCosts
from ringwright.model.values import Applied
from ringwright.model.workload import Gate, Mesh, Queue, Rewrite, Workload
from ringwright.schedulers.decompose.collective_einsum_overlap import collective_einsum_overlap
from ringwright.workloads.chain import ChainLayer, chain
from ringwright.workloads.parallel import parse

pytestmark = pytest.mark.once
SMALL = "gpt2"


def job(parallel: str, gpus: int, **said: object) -> Workload:
    return ringwright.job(SMALL, gpus=gpus, parallel=parallel, **said)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------- what a job says of itself
FORMS = [
    ("tp2,pp2,sg", 8, {"micro_batches": 4}),
    ("tp2,pp2,vp2,cp2,zero1", 16, {"micro_batches": 4, "recompute": "full"}),
    ("fsdp,tp2,sp", 8, {}),
    ("tp4,sp", 4, {}),
    ("pp2", 4, {"micro_batches": 8, "schedule": "gpipe"}),
    ("pp2", 4, {"micro_batches": 2}),
    ("dp4", 4, {}),
    ("cp2,dp2", 4, {}),
]


@pytest.mark.parametrize(("parallel", "gpus", "said"), FORMS)
def test_the_form_of_a_job_is_the_one_it_was_made_with(parallel: str, gpus: int, said: dict[str, object]) -> None:
    made = settings_of(job(parallel, gpus, **said))
    assert parse(made.form, gpus) == parse(parallel, gpus)
    assert made.world == gpus
    assert made.recompute == said.get("recompute", "")
    assert made.schedule == said.get("schedule", "1f1b")
    assert made.micro_batches == said.get("micro_batches", 1)
    assert made.overlap_gradients == (made.dp > 1)


def test_experts_and_what_a_policy_lets_overlap() -> None:
    experts = ringwright.job("mixtral-8x7b", gpus=16, parallel="ep4,tp2,sp", micro_batch_size=2)
    made = settings_of(experts)
    assert (made.ep, made.dp, made.tp) == (4, 8, 2)
    assert made.micro_batches is None  # the size of a micro-batch was given, and no Workload holds it
    assert settings_of(experts, micro_batch_size=2).global_batch_size == 16
    written = as_flags(experts).decode().splitlines()
    assert "--expert-tensor-parallel-size 1" in written
    assert "# --micro-batch-size and --global-batch-size are left to you" in written
    assert settings_of(experts, recompute="selective").recompute == "selective"
    shared = job("tp2,zero1", 8)
    assert not settings_of(shared).overlap_parameters
    assert settings_of(shared.with_policy("p", boundary="layer")).overlap_parameters


def test_operations_in_blocks_are_an_overlap_of_tensor_parallelism() -> None:
    workload = job("tp2,sp", 2)
    assert not settings_of(workload).overlap_tensor
    gather = next(each for each in workload.payloads if each.role == "tp" and each.op == "all-gather")
    looped = dataclasses.replace(gather, name="turn", op="shift")
    made = dataclasses.replace(workload, payloads=(*workload.payloads, looped))
    assert settings_of(made).overlap_tensor
    assert settings_of(
        collective_einsum_overlap(workload, LinkCosts(1e9), gate="off", form="userbuffers")
    ) == settings_of(made)
    assert "--tp-comm-overlap\n" in as_flags(made).decode()
    assert '[compile]\nenable = true\ncomponents = ["model", "loss"]\n' in as_toml(made).decode()


def test_what_no_framework_has_a_setting_for_is_refused() -> None:
    with pytest.raises(UsageError, match="updates no parameters"):
        settings_of(job("tp2", 2, mode="prefill"))
    workload = job("dp2", 2)
    with pytest.raises(UsageError, match="q orders the passes"):
        settings_of(workload.with_policy("q", order={"all": (("a", 0),)}))
    with pytest.raises(UsageError, match="axis 'ring'"):
        settings_of(dataclasses.replace(workload, mesh=Mesh((("ring", 2),))))


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"queue": Queue(keys={"a": 1})}, "urgencies"),
        ({"queue": Queue(random=1)}, "urgencies"),
        ({"queue": Queue(gates=(Gate(0, 1),))}, "urgencies"),
        ({"queue": Queue(windows={"dp": (2, "operations")})}, "urgencies"),
        ({"rewrites": (Rewrite("partition", ("dp",), {"elements": 100}),)}, "the rewrite 'partition'"),
        ({"boundary": "layer"}, "the boundary 'layer' without sharing"),
    ],
)
def test_a_policy_that_no_framework_carries_out_is_refused(parts: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=f"p has {why}"):
        settings_of(job("dp2", 2).with_policy("p", **parts))


def test_rules_that_move_sums_of_gradients_are_refused() -> None:
    workload = job("dp2", 2)
    split = dataclasses.replace(workload, applied=(Applied("split-all-reduce", "all.layer0.q"),))
    with pytest.raises(UsageError, match="the rule 'split-all-reduce'"):
        settings_of(split)
    with pytest.raises(UsageError, match="the rule 'cut'"):
        settings_of(dataclasses.replace(workload, applied=(Applied("cut", "all.layer0.q"),)))


def test_buckets_are_one_number_where_one_number_makes_them() -> None:
    """A bucket takes gradients until it holds as many or more: the policy's own buckets come out again."""
    sizes = [3, 1, 4, 1, 5, 9, 2, 6]  # of layers, the last one first in the backward pass
    net = chain("net", [ChainLayer(0.1, 0.2, 4 * size, name=f"l{at}") for at, size in enumerate(sizes)])

    def groups(*names: str) -> Workload:
        listed = [[f"l{at}" for at in each] for each in names]
        return net.with_policy("p", rewrites=(Rewrite("groups", ("dp",), {"names": listed}),))

    made = settings_of(groups("76", "5", "432", "10"))
    assert made.bucket_elements == 8
    full, held = [], []
    for size in reversed(sizes):
        held.append(size)
        if sum(held) >= made.bucket_elements:
            full.append(held)
            held = []
    assert [*full, held] == [[6, 2], [9], [5, 1, 4], [1, 3]]
    assert "--ddp-bucket-size 8\n" in megatron_flags(made).decode()
    with pytest.raises(UsageError, match="not full at one size"):
        settings_of(groups("7", "6543210"))
    assert settings_of(groups("76543210")).bucket_elements == sum(sizes)
    assert settings_of(net).bucket_elements is None


# ------------------------------------------------------------------------------------------------------- there and back again
sizes = st.sampled_from([1, 2, 4])


@st.composite
def settings_drawn(draw: st.DrawFn) -> FrameworkSettings:
    """Draw any settings that are sound by themselves."""
    values = {name: draw(sizes) for name in ("tp", "pp", "vp", "cp", "ep", "dp")}
    values["vp"] = values["vp"] if values["pp"] > 1 else 1
    zero = draw(st.sampled_from([0, 1, 3]))
    batches = draw(st.sampled_from([(None, None), (1, 1), (8, 2)]))
    sp = values["tp"] > 1 and draw(st.booleans())
    return FrameworkSettings(
        **values,
        sp=sp,
        sg=values["tp"] > 1 and values["pp"] > 1 and not sp and draw(st.booleans()),
        zero=zero,
        schedule=draw(st.sampled_from(["1f1b", "gpipe"])) if values["pp"] > 1 else "1f1b",
        overlap_gradients=draw(st.booleans()),
        overlap_parameters=bool(zero) and draw(st.booleans()),
        overlap_tensor=values["tp"] > 1 and draw(st.booleans()),
        bucket_elements=draw(st.sampled_from([None, None, 40_000_000])),
        recompute=draw(st.sampled_from(RECOMPUTED)),
        micro_batches=batches[0],
        micro_batch_size=batches[1],
    )


def written_or_refused(write: Callable[[FrameworkSettings], bytes], made: FrameworkSettings) -> str | None:
    try:
        return write(made).decode()
    except UsageError:
        return None


def seen_by_megatron(made: FrameworkSettings) -> FrameworkSettings:
    """Return settings as flags can tell them apart: no recomputation is no flag, and FSDP overlaps by itself."""
    sharded = made.zero == 3
    overlaps = {"overlap_gradients": made.dp > 1, "overlap_parameters": made.dp > 1} if sharded else {}
    recompute = "" if made.recompute == "none" else made.recompute
    return dataclasses.replace(made, recompute=recompute, **overlaps)


@given(settings_drawn())
@settings(max_examples=80)
def test_flags_of_megatron_come_back_or_are_refused(made: FrameworkSettings) -> None:
    written = written_or_refused(megatron_flags, made)
    assert written is None or parse_megatron_flags(written) == seen_by_megatron(made)


@given(settings_drawn())
@settings(max_examples=80)
def test_keys_of_torchtitan_come_back_or_are_refused(made: FrameworkSettings) -> None:
    written = written_or_refused(torchtitan_toml, made)
    single = {} if made.dp > 1 else {"zero": 0, "overlap_gradients": False, "overlap_parameters": False}
    overlaps = {"overlap_parameters": made.zero == 3 and made.dp > 1}
    assert written is None or parse_torchtitan_toml(written) == dataclasses.replace(made, **{**overlaps, **single})


def test_the_flags_of_a_job_as_megatron_takes_them(tmp_path: Path) -> None:
    written = as_flags(job("tp2,pp2,vp2,zero1", 8, micro_batches=4, recompute="full")).decode()
    assert written == (
        "# GPUs: 8\n# tp2,pp2,vp2,dp2,zero1\n--tensor-model-parallel-size 2\n--pipeline-model-parallel-size 2\n"
        "--num-virtual-stages-per-pipeline-rank 2\n--overlap-grad-reduce\n--use-distributed-optimizer\n"
        "--no-scatter-gather-tensors-in-pipeline\n--recompute-granularity full\n--recompute-method uniform\n"
        "--recompute-num-layers 1\n--micro-batch-size 1\n--global-batch-size 8\n"
    )
    script = tmp_path / "train.sh"
    flags = " \\\n  ".join(shlex.split(written, comments=True))
    script.write_text(f"#!/bin/sh\ntorchrun pretrain_gpt.py --num-layers 12 \\\n  {flags} \\\n  --bf16\n")
    assert read_megatron_flags(script, gpus=8) == parse_megatron_flags(written)
    assert read_megatron_flags(script, gpus=16).dp == 4


def test_the_keys_of_a_job_as_torchtitan_takes_them(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_bytes(as_toml(job("fsdp,tp2,sp,pp2", 8, micro_batches=4)))
    assert (tmp_path / "t.toml").read_text() == (
        "# tp2,pp2,dp2,sp,fsdp on 8 GPUs\n\n[parallelism]\ntensor_parallel_degree = 2\npipeline_parallel_degree = 2\n"
        "context_parallel_degree = 1\nexpert_parallel_degree = 1\ndata_parallel_replicate_degree = 1\n"
        'data_parallel_shard_degree = 2\nenable_async_tensor_parallel = false\npipeline_parallel_schedule = "1F1B"\n'
        "pipeline_parallel_microbatch_size = 1\n\n[training]\nlocal_batch_size = 4\nglobal_batch_size = 8\n"
    )
    assert read_torchtitan_toml(tmp_path / "t.toml").form == "tp2,pp2,dp2,sp,fsdp"
    left = "[parallelism]\ntensor_parallel_degree = 2\n"
    assert parse_torchtitan_toml(left, gpus=16).dp == 8
    both = "[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 4\n"
    assert parse_torchtitan_toml(both).dp == 8


# ------------------------------------------------------------------------------------------------------------------ refused
@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"tp": 0}, "tp is 0"),
        ({"zero": 2}, "zero is '2'"),
        ({"recompute": "some"}, "recompute is 'some'"),
        ({"schedule": "zb"}, "schedule is 'zb'"),
        ({"vp": 2}, "without a pipeline"),
        ({"sp": True}, "without tensor parallelism"),
        ({"tp": 2, "pp": 2, "sp": True, "sg": True}, "whole between stages"),
        ({"overlap_parameters": True}, "nobody gathers"),
        ({"micro_batches": 2}, "go together"),
    ],
)
def test_settings_that_contradict_each_other(said: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        FrameworkSettings(**said)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("--tensor-model-parallel-size 2\n", "how many GPUs"),
        ("# GPUs: 6\n--tensor-model-parallel-size 4\n", "no multiple"),
        ("# GPUs: 4\n--tensor-model-parallel-size\n", "has no value"),
        ("# GPUs: 4\n--tensor-model-parallel-size --bf16\n", "has no value"),
        ("# GPUs: 4\n--tensor-model-parallel-size=0\n", "no whole number"),
        ("# GPUs: 4\n--tensor-model-parallel-size 2 --tensor-model-parallel-size 4\n", "said twice"),
        ("# GPUs: 4\n--sequence-parallel\n", "without tensor parallelism"),
        ("# GPUs: 4\n--recompute-granularity some\n", "recompute is 'some'"),
        ("# GPUs: 4\n--micro-batch-size 3 --global-batch-size 8\n", "no multiple of 3 x dp4"),
        ("# GPUs: 4\n--data-path 'a\n", "does not end"),
    ],
)
def test_broken_flags_say_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        parse_megatron_flags(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[parallelism\n", "not TOML"),
        ("parallelism = 4\n", "should be a table"),
        ("", "of how many"),
        ("[parallelism]\ntensor_parallel_degree = true\ndata_parallel_shard_degree = 1\n", "no whole number"),
        ("[parallelism]\ndata_parallel_shard_degree = 0\n", "no whole number"),
        ("[parallelism]\ndata_parallel_shard_degree = 1\npipeline_parallel_schedule = 'ZBV'\n", "is none of"),
        ("[parallelism]\ndata_parallel_shard_degree = 1\nenable_async_tensor_parallel = 1\n", "true or false"),
        ("[parallelism]\ndata_parallel_shard_degree = 1\n[activation_checkpoint]\nmode = ['x']\n", "is none of none"),
        ("[parallelism]\ndata_parallel_shard_degree = 2\n[training]\nglobal_batch_size = 3\n", "no multiple"),
    ],
)
def test_a_broken_configuration_says_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        parse_torchtitan_toml(text)
    with pytest.raises(InputError):
        parse_torchtitan_toml("[parallelism]\ntensor_parallel_degree = 4\n", gpus=6)


@given(st.text(max_size=120))
@settings(max_examples=40)
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (parse_megatron_flags, parse_torchtitan_toml):
        try:
            read(text, gpus=8)
        except InputError:
            continue


def test_every_refusal_names_what_would_do() -> None:
    """Over all small forms: what is refused has a remedy, and each of the two takes some."""
    refusals: list[UsageError] = []
    forms = [*itertools.product((1, 2), (1, 2), (1, 2), (0, 1, 3))]
    for write, name in ((megatron_flags, "Megatron-LM has no flags"), (torchtitan_toml, "torchtitan has no keys")):
        before = len(refusals)
        for tp, pp, dp, zero in forms:
            made = FrameworkSettings(tp=tp, pp=pp, dp=dp, sp=tp > 1, zero=zero, overlap_gradients=True)
            try:
                write(made)
            except UsageError as error:
                refusals.append(error)
        assert 0 < len(refusals) - before < len(forms)
        assert all(each.remedy and name in each.what for each in refusals[before:])


@pytest.mark.parametrize(
    ("schedule", "parallel", "why"),
    [("dualpipe", "pp4", "axis 'side'"), ("dualpipe-v", "pp2,vp2", "fed from both ends")],
)
def test_a_pipeline_fed_from_both_ends_has_no_flags(schedule: str, parallel: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        as_flags(job(parallel, 4, micro_batches=8, schedule=schedule))
