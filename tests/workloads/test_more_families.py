"""Families besides language models and convolutions: vision transformers, diffusion models, state spaces, recommenders.

Parameters are those of a model that PyTorch builds without memory: the transformers library's, or one written apart from the
closed form in ``published_models``.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from ringwright.ground.errors import UsageError
from ringwright.jobs.model_workload import WorkloadSpec, workload
from ringwright.workloads.families.dlrm import KAGGLE, tables
from ringwright.workloads.flops import flops_per_token, forward
from ringwright.workloads.models import model, parameters, usual_sequence
from ringwright_lab.contracts.family import check_family
from ringwright_lab.contracts.outcome import failures

NO_TORCH = importlib.util.find_spec("torch") is None
NO_MODELS = importlib.util.find_spec("transformers") is None
needs_torch = pytest.mark.skipif(NO_TORCH, reason="PyTorch is absent: no models to compare with")
needs_models = pytest.mark.skipif(NO_MODELS, reason="the transformers library is absent: no models to compare with")
PARAMETERS = {
    "vit-b-16": 86_567_656,
    "vit-l-16": 304_326_632,
    "vit-l-32": 306_535_400,
    "vit-h-14": 632_045_800,
    "dit-b-2": 130_512_416,
    "dit-xl-2": 675_129_632,
    "stable-diffusion-1.5": 859_520_964,
    "dlrm-kaggle": 540_677_217,
    "dlrm-mlperf": 24_036_595_969,
    "mamba-130m": 129_135_360,
    "mamba-1.4b": 1_372_178_432,
    "mamba-2.8b": 2_768_345_600,
}
BOTTOM = {"dlrm-kaggle": [13, 512, 256, 64], "dlrm-mlperf": [13, 512, 256]}  # as the public scripts give them
TOP = {"dlrm-kaggle": [512, 256], "dlrm-mlperf": [1024, 1024, 512, 256]}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_the_published_ones(name: str) -> None:
    assert parameters(model(name)) == PARAMETERS[name]


def without_memory(name: str) -> Any:
    """Return the model on PyTorch's meta device."""
    import torch

    family, dims = model(name).family, model(name).dims
    with torch.device("meta"):
        if family == "vit":
            return vit(dims)
        if family == "mamba":
            return mamba(dims)
        from published_models import DLRM, DiT, UNet

        if family == "dlrm":
            return DLRM([*tables(dims)], dims["width"], BOTTOM[name], TOP[name])
        return DiT(dims) if "patch" in dims else UNet(dims)


def vit(dims: dict[str, int]) -> Any:
    import transformers as library

    config = library.ViTConfig(
        num_hidden_layers=dims["layers"],
        hidden_size=dims["hidden"],
        intermediate_size=dims["intermediate"],
        num_attention_heads=dims["heads"],
        image_size=dims["image"],
        patch_size=dims["patch"],
        num_labels=dims["classes"],
    )
    return library.ViTForImageClassification(config)


def mamba(dims: dict[str, int]) -> Any:
    import transformers as library

    config = library.MambaConfig(
        num_hidden_layers=dims["layers"],
        hidden_size=dims["hidden"],
        expand=dims["inner"] // dims["hidden"],
        state_size=dims["state"],
        conv_kernel=dims["taps"],
        time_step_rank=dims["rank"],
        vocab_size=dims["vocabulary"],
        tie_word_embeddings=True,
    )
    return library.MambaForCausalLM(config)


@pytest.mark.torch
@needs_torch
@needs_models
@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_those_of_a_model_without_memory(name: str) -> None:
    made, built = model(name), without_memory(name)
    assert sum(each.numel() for each in built.parameters()) == parameters(made)
    trained = [tuple(each.shape) for each in built.parameters() if each.requires_grad]
    assert sorted(trained) == sorted(made.anatomy().shapes())


@pytest.mark.parametrize("family", ["vit", "diffusion", "mamba", "dlrm"])
def test_families_keep_their_contract(family: str) -> None:
    assert failures(check_family(family)) == []


@pytest.mark.torch
@needs_torch
@needs_models
@pytest.mark.parametrize(("family", "dims", "size"), [("vit", vit, "vit-b-16"), ("mamba", mamba, "mamba-130m")])
def test_the_contract_counts_the_model_itself(family: str, dims: Any, size: str) -> None:
    import torch

    def meta(changed: dict[str, int]) -> Any:
        with torch.device("meta"):
            return dims(changed)

    tried = {str(each.case): each for each in check_family(family, meta=meta)}
    assert "meta" in tried[f"{family} {size}"].passed


def counted(name: str, *inputs: Any) -> int:
    """Return the operations that PyTorch counts in a forward pass on such inputs."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        without_memory(name)(*inputs)
    return int(counter.get_total_flops())


@pytest.mark.torch
@needs_torch
@needs_models
def test_operations_are_those_that_pytorch_counts() -> None:
    import torch

    with torch.device("meta"):
        image, time, label = torch.zeros(1, 4, 64, 64), torch.zeros(1, 320), torch.zeros(1, dtype=torch.long)
        words, small, step = torch.zeros(1, 77, 768), torch.zeros(1, 4, 32, 32), torch.zeros(1, 256)
        photo = torch.zeros(1, 3, 224, 224)
    assert 3 * counted("stable-diffusion-1.5", image, time, words) == flops_per_token(model("stable-diffusion-1.5"))
    assert 3 * counted("dit-xl-2", small, step, label) == pytest.approx(
        256 * flops_per_token(model("dit-xl-2")), rel=1e-12
    )
    with torch.device("meta"):
        indices = [torch.zeros(1, 1, dtype=torch.long) for _ in range(26)]
    assert 3 * counted("dlrm-kaggle", torch.zeros(1, 13, device="meta"), indices) == flops_per_token(
        model("dlrm-kaggle")
    )
    one_more_patch = 2 * 1024 * 3 * 16 * 16  # the class token is looked up, not projected
    whole = 197 * flops_per_token(model("vit-l-16")) / 3
    assert counted("vit-l-16", photo) == pytest.approx(whole - one_more_patch, rel=1e-12)


def test_a_state_space_counts_its_matrices() -> None:
    made = model("mamba-2.8b")
    block = 2 * (2560 * 10240 + 5120 * 192 + 160 * 5120 + 5120 * 2560)
    assert flops_per_token(made) == 3 * (64 * block + 2 * 50280 * 2560)
    works = {work.name: work for work in forward(made, 2, 128)["layer0"]}
    assert list(works) == ["norm", "in", "taps", "selection", "step", "scan", "out"]
    assert works["taps"].moved_bytes == 2 * 256 * 2 * 5120
    assert works["scan"].moved_bytes == 2 * 256 * (4 * 5120 + 2 * 16)
    assert works["scan"].flops == works["taps"].flops == 0


def test_an_image_has_as_many_tokens_as_patches() -> None:
    assert usual_sequence(model("vit-l-16")) == 197
    assert usual_sequence(model("vit-h-14")) == 257
    assert usual_sequence(model("dit-xl-2", image=64)) == 1024
    assert usual_sequence(model("stable-diffusion-1.5")) == 1
    assert parameters(model("vit-l-16", image=384)) - parameters(model("vit-l-16")) == (577 - 197) * 1024


@pytest.mark.parametrize(
    ("name", "text", "what", "remedy"),
    [
        ("mamba-2.8b", "tp2", "has no tp2: its public code", "fsdp"),
        ("mamba-2.8b", "pp2", "has no pp2", "fsdp"),
        ("mamba-2.8b", "cp2", "has no cp2", "fsdp"),
        ("dit-xl-2", "pp2", "has no pp2: every block needs", "fsdp"),
        ("dit-xl-2", "tp2,sp", "has no sp", "tp alone"),
        ("dit-xl-2", "cp2", "has no cp2", "fsdp"),
        ("stable-diffusion-1.5", "tp2", "tp2 does not go with it", "dp2"),
        ("dlrm-mlperf", "tp2", "has no tp2: its tables", "dp alone"),
        ("dlrm-mlperf", "dp8,fsdp", "has no zero3", "dp alone"),
        ("dlrm-mlperf", "dp4,ep4", "has no ep4", "dp alone"),
        ("dlrm-mlperf", "pp2", "has no pp2", "dp alone"),
        ("dlrm-kaggle", "dp32", "dp32 cannot share 26 tables", "--dims.tables 32"),
        ("vit-l-16", "tp2,sp", "197 tokens cannot be cut into 2", "leave cp, sp and sg out"),
        ("vit-l-16", "tp3", "16 attention heads", "a tp of 1, 2, 4, 8, 16"),
    ],
)
def test_what_a_family_has_not_is_refused_with_its_reason(name: str, text: str, what: str, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        workload(WorkloadSpec(name, None, text))
    assert what in caught.value.what
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "more", "what"),
    [
        ("vit-l-16", {"seq": 200}, "is 197 tokens, not 200"),
        ("vit-h-14", {"dims": {"image": 225}}, "cannot be cut into pieces of 14"),
        ("stable-diffusion-1.5", {"dims": {"image": 60}}, "pieces of 8"),
        ("dit-xl-2", {"mode": "decode"}, "does not decode"),
        ("vit-l-16", {"mode": "serve"}, "does not decode"),
    ],
)
def test_what_no_image_has_is_refused(name: str, more: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        workload(WorkloadSpec(name, 8, **more))


@pytest.mark.parametrize("text", ["dp8", "dp8,zero1", "dp8,fsdp"])
@pytest.mark.parametrize("name", ["vit-l-16", "dit-xl-2", "stable-diffusion-1.5", "mamba-130m"])
def test_gradients_are_added_once(name: str, text: str) -> None:
    """Bytes of gradients that travel are those of the trained parameters; fully sharded, with padding."""
    answer = workload(WorkloadSpec(name, None, text))
    rows = [row for row in answer["requests"] if row["phase"] == "backward" and row["op"] != "all-gather"]
    sent, trained = sum(row["count"] * row["bytes"] for row in rows) / 4, model(name).anatomy().elements
    assert trained <= sent <= trained * (1.01 if "fsdp" in text else 1)
    assert answer["memory"][0]["peak_bytes"] > 14 * trained / (1 if text == "dp8" else 8)


def test_a_cut_block_is_summed_twice_each_way() -> None:
    answer = workload(WorkloadSpec("vit-l-16", 16, "tp4", micro_batch_size=8))
    sums = [row for row in answer["requests"] if row["role"] == "tp"]
    assert {(row["phase"], row["layer"], row["count"], row["bytes"]) for row in sums} == {
        ("forward", "each of 24", 48, 8 * 197 * 1024 * 2),
        ("backward", "each of 24", 48, 8 * 197 * 1024 * 2),
    }


def test_a_state_space_serves_from_a_state_that_does_not_grow() -> None:
    held = [
        workload(WorkloadSpec("mamba-2.8b", 1, mode="decode", seq=tokens, micro_batch_size=16))["memory"][0][
            "peak_bytes"
        ]
        for tokens in (128, 8192)
    ]
    assert held[0] == held[1]
    other = workload(WorkloadSpec("llama3-8b", 1, mode="decode", seq=8192, micro_batch_size=16))["memory"][0]["buffers"]
    assert (
        other
        > workload(WorkloadSpec("llama3-8b", 1, mode="decode", seq=128, micro_batch_size=16))["memory"][0]["buffers"]
    )


# -------------------------------------------------------------------------------------------------------- recommenders
def test_vectors_travel_and_mlps_are_summed() -> None:
    answer = workload(WorkloadSpec("dlrm-mlperf", 8))
    vectors = [row for row in answer["requests"] if row["role"] == "mp"]
    assert [(row["phase"], row["op"], row["count"], row["group_ranks"], row["layer"]) for row in vectors] == [
        ("forward", "all-to-all", 1, 8, "tables"),
        ("backward", "all-to-all", 1, 8, "tables"),
    ]
    assert {row["bytes"] for row in vectors} == {
        4 * 2048 * 8 * 4 * 128
    }  # of 26 tables four ranks of eight have 3, two more 4
    sums = [row for row in answer["requests"] if row["role"] == "dp"]
    tables_alone = sum(layer.elements for layer in model("dlrm-mlperf").anatomy().layers() if layer.cut == "tables")
    assert sum(row["count"] * row["bytes"] for row in sums) == 4 * (parameters(model("dlrm-mlperf")) - tables_alone)
    assert {row["phase"] for row in sums} == {"backward"}


def test_each_mlp_has_buckets_of_its_own() -> None:
    sums = [row["bytes"] for row in workload(WorkloadSpec("dlrm-kaggle", 4))["requests"] if row["role"] == "dp"]
    bottom = 14 * 512 + 513 * 256 + 257 * 64 + 65 * 16
    top = 368 * 512 + 513 * 256 + 257
    assert sorted(sums) == sorted([4 * bottom, 4 * top])


def test_one_rank_sends_no_vectors() -> None:
    assert workload(WorkloadSpec("dlrm-kaggle"))["requests"] == []


def test_memory_is_that_of_the_largest_tables_and_only_touched_rows_have_gradients() -> None:
    (one,) = workload(WorkloadSpec("dlrm-mlperf", 8))["memory"]
    largest = 128 * 4 * (25641295 + 39664984 + 585935)  # three neighbours
    assert largest < one["parameters"] < largest * 1.001
    assert one["gradients"] < one["parameters"] / 500
    assert one["optimizer"] < one["parameters"] / 500
    more = workload(WorkloadSpec("dlrm-mlperf", 8, dims={"lookups": 4}))["memory"][0]
    assert more["gradients"] > 3 * one["gradients"]


def test_tables_of_another_number_are_even() -> None:
    assert tables(model("dlrm-kaggle").dims) == KAGGLE
    even = tables(model("dlrm-kaggle", rows=1_000_001, tables=8).dims)
    assert (sum(even), max(even) - min(even), len(even)) == (1_000_001, 1, 8)
    with pytest.raises(UsageError, match="do not fill"):
        workload(WorkloadSpec("dlrm-kaggle", dims={"rows": 5}))


def test_lookups_of_all_samples_are_made_where_the_table_is() -> None:
    from ringwright.workloads.parallel import parse

    alone, spread = (
        {work.name: work for work in forward(model("dlrm-mlperf"), 16, 1, parse(text), width_bytes=4)["tables"]}
        for text in ("", "dp8")
    )
    assert len(alone) == 26
    assert list(spread) == ["table20", "table21", "table22"]
    name = "table20"
    assert spread[name].moved_bytes == 8 * alone[name].moved_bytes == 2 * 4 * 8 * 16 * 128
