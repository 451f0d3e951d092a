"""Models in closed form: published parameters and operations, parallel forms and their collectives, and the verb that prints them.

Where PyTorch and the transformers library are installed, parameters are those of the models they build without memory, and the
operations those that PyTorch counts.
"""

from __future__ import annotations

import csv
import importlib.util
import itertools
import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import ringwright.cli
from ringwright.ground.errors import UsageError
from ringwright.jobs.model_workload import WorkloadSpec, workload
from ringwright.workloads.collectives import collectives, totals
from ringwright.workloads.expected.front import expected
from ringwright.workloads.expected.row import in_iteration
from ringwright.workloads.flops import attention_widths, flops_per_token, forward
from ringwright.workloads.layer_work import Gemm, LayerWork
from ringwright.workloads.model_cards import card
from ringwright.workloads.models import active_parameters, model, names, parameters, usual_sequence
from ringwright.workloads.parallel import Parallel, check, parse
from ringwright.workloads.shares import cut, elements, held
from ringwright.workloads.stage_layers import chunks
from ringwright.workloads.step import StepSpec
from shared_data import needs_shared_data, real

DOCS = Path(__file__).resolve().parents[2] / "docs"
MIB = 1 << 20
NO_TORCH = importlib.util.find_spec("torch") is None
NO_MODELS = importlib.util.find_spec("transformers") is None
PARAMETERS = {
    "vgg11": 132_863_336,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "vgg19-22k": 229_052_817,
    "alexnet": 61_100_840,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "inception-v3": 27_161_264,
    "inception-v3-no-aux": 23_834_568,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "mixtral-8x7b": 46_702_792_704,
    "deepseek-v3": 671_026_419_200,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "gpt-oss-120b": 116_829_156_672,
}


def step(text: str, sequence: int, gpus: int | None = None, **more: Any) -> StepSpec:
    return StepSpec(parse(text, gpus), sequence, **more)


def count(rows: list[dict[str, Any]], role: str, op: str = "", size: int = 0) -> int:
    return sum(
        row["count"] for row in rows if row["role"] == role and op in ("", row["op"]) and size in (0, row["bytes"])
    )


def of(name: str, text: str, gpus: int | None = None, sequence: int = 0, **more: Any) -> list[dict[str, Any]]:
    made = model(name)
    return totals(collectives(made, step(text, sequence or usual_sequence(made), gpus, **more)))


# --------------------------------------------------------------------------------------------------------- the models
@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_the_published_ones(name: str) -> None:
    assert parameters(model(name)) == PARAMETERS[name]


@pytest.mark.parametrize(
    ("name", "billions", "digits"),
    [("gpt3-175b", 174.6, 1), ("mixtral-8x7b", 12.879925248, 9), ("deepseek-v3", 37.55, 2), ("gpt3-13b", 12.9, 1)],
)
def test_active_parameters(name: str, billions: float, digits: int) -> None:
    assert round(active_parameters(model(name)) / 1e9, digits) == billions


def test_every_spelling_finds_the_same_model() -> None:
    for spellings in (
        ("vgg16", "vgg-16", "VGG16", "VGG_16"),
        ("resnet50", "resnet-50"),
        ("gpt2", "gpt-2", "gpt2-small"),
        ("llama3-70b", "llama-3-70b", "llama3.1-70b", "Llama-3.1-70B"),
        ("bert-large", "bertlarge"),
        ("mixtral-8x7b", "Mixtral-8x7B"),
        ("inception-v3", "inceptionv3"),
        ("vgg19-22k", "VGG19-22K"),
    ):
        assert len({model(each).size for each in spellings}) == 1, spellings
    assert model("gpt3-1.3b").size != model("gpt3-13b").size
    assert all(model(name).size == name for name in names())


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        model("lama3-70b")
    assert "llama3-70b" in caught.value.remedy
    with pytest.raises(UsageError, match="no dimension 'depths'"):
        model("llama3-8b", depths=3)


@pytest.mark.parametrize(
    ("name", "dims", "what"),
    [
        ("resnet50", {"depth": 34}, "depth of 34"),
        ("vgg16", {"depth": 13}, "depth of 13"),
        ("llama3-8b", {"layers": 0}, "layers: 0"),
        ("alexnet", {"image": 32}, "images of 224"),
        ("gpt3-175b", {"heads": 7}, "12288 places"),
    ],
)
def test_dimensions_that_make_no_model_are_refused(name: str, dims: dict[str, int], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        workload(WorkloadSpec(name, dims=dims))


def test_the_vocabulary_of_the_transformer_is_a_dimension() -> None:
    small, large = model("transformer", vocabulary=1000), model("transformer", vocabulary=2000)
    assert parameters(large) - parameters(small) == 1000 * 512


def test_bert_for_the_experiment_keeps_its_head() -> None:
    assert parameters(card("bert", "bert-base")) == 109_514_298
    assert "pooler" not in card("bert", "bert-base").dims


# ----------------------------------------------------------------------------------------------------- the operations
@pytest.mark.parametrize(
    ("name", "gflop"),
    [
        ("vgg16", 30.94),
        ("vgg19", 39.26),
        ("resnet50", 8.18),
        ("resnet101", 15.60),
        ("resnet152", 23.03),
        ("alexnet", 1.43),
        ("inception-v3-no-aux", 11.43),
    ],
)
def test_operations_of_an_image(name: str, gflop: float) -> None:
    assert round(flops_per_token(model(name)) / 3e9, 2) == gflop


@pytest.mark.parametrize(
    ("name", "sequence", "flops", "digits"),
    [
        ("llama3-70b", 8192, 4.492e11, 3),
        ("llama3-405b", 8192, 2.524e12, 3),
        ("deepseek-v3", 4096, 2.5999e11, 4),
        ("gpt3-175b", 2048, 1.062e12, 3),
        ("llama3-8b", 8192, 5.147e10, 3),
    ],
)
def test_operations_of_a_token(name: str, sequence: int, flops: float, digits: int) -> None:
    assert float(f"{flops_per_token(model(name), sequence):.{digits}e}") == flops


def test_one_more_predicted_token_is_one_more_block_and_logits() -> None:
    made = model("deepseek-v3")
    without, with_one = flops_per_token(made, 4096, mtp=0), flops_per_token(made, 4096)
    assert without == pytest.approx(2.49811e11, rel=1e-5)
    assert with_one == flops_per_token(made, 4096, mtp=1)


PUBLISHED = {
    "DeepSeekV3": "deepseek-v3",
    "GPT OSS 120B": "gpt-oss-120b",
    "Qwen3_30B_a3B": "qwen3-30b-a3b",
    "Qwen3_235B_a22B": "qwen3-235b-a22b",
    "LLAMA3.1_405B": "llama3.1-405b",
    "LLAMA3_70B": "llama3-70b",
}


def published() -> list[tuple[str, int, float, float]]:
    """Return model, sequence, tokens and operations per second of every row of pre-training.

    Llama 3 at 4,096 tokens is fine-tuned there. The rows of gpt-oss in BF16 come from a count that held neither logits nor
    attention (2.72e10 a token is six times the matrices of the blocks), which later releases mended.
    """
    found = []
    with real("overlap/megatron_bridge_performance_summary.csv").open() as file:
        for row in csv.DictReader(file):
            name, sequence = row["model"], row["Sequence Length"]
            tuned = name == "LLAMA3_70B" and sequence == "4096"
            if row["nemo_release"] == "25.09" or name not in PUBLISHED or tuned:
                continue
            if name.startswith("GPT") and row["Precision"] == "BF16":
                continue
            tokens, tera = (
                float(re.match(r"[\d.]+", row[key])[0]) for key in ("Tokens / sec / GPU", "Model TFLOP / sec / GPU")
            )  # type: ignore[index]
            found.append((PUBLISHED[name], int(sequence), tokens, tera))
    return found


@needs_shared_data
def test_operations_agree_with_published_throughput() -> None:
    rows = published()
    assert len(rows) == 144
    shares: dict[str, list[float]] = {}
    for name, sequence, tokens, tera in rows:
        mine = flops_per_token(model(name), sequence)
        shares.setdefault(name, []).append(tera * 1e12 / tokens / mine)
        # The figures are rounded: tokens a second often to 16 or 256, which the zeros at their end in binary give away.
        zeros = int(tokens) & -int(tokens)
        low, high = (tera - 0.5) * 1e12 / (tokens + zeros / 2 + 0.5), (tera + 0.5) * 1e12 / (tokens - zeros / 2 - 0.5)
        assert 0.998 * low <= mine <= 1.002 * high, (name, tokens, tera)
    for name, found in shares.items():
        assert sorted(found)[len(found) // 2] == pytest.approx(1, abs=0.002), name


@pytest.mark.parametrize("name", [each for each in names() if each != "deepseek-v3"])
def test_matrix_products_add_up_to_the_operations_and_hold_the_parameters(name: str) -> None:
    made = model(name)
    sequence = usual_sequence(made)
    works = [work for block in forward(made, 2, sequence).values() for work in block]
    counted = sum(work.flops for work in works if work.kind != "router")
    assert 3 * counted == pytest.approx(flops_per_token(made) * 2 * sequence, rel=1e-9)
    assert sum(work.parameters for work in works) == made.anatomy().elements


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("llama3-70b", "tp8,sp"),
        ("gpt3-175b", "tp8"),
        ("mixtral-8x7b", "ep8,dp8"),
        ("mixtral-8x7b", "tp4,sp"),
        ("llama3-8b", "cp4"),
        ("deepseek-v3", "ep64,dp64"),
        ("mixtral-8x7b", "tp2,sp,dp4,ep8"),
    ],
)
def test_ranks_share_the_products_out(name: str, text: str) -> None:
    """Ranks of one model copy together do what one rank does alone, but for what none of them cuts (the router)."""
    made, parallel = model(name), parse(text)
    sequence = usual_sequence(made)
    whole = {(b, w.name): w for b, works in forward(made, 1, sequence).items() for w in works}
    ranks = parallel.tp * parallel.cp
    for block, works in forward(made, 1, sequence, parallel).items():
        for work in works:
            alone = whole[block, work.name]
            if work.kind in ("attention", "experts", "logits") or work.cut in ("columns", "rows"):
                assert work.flops * ranks == pytest.approx(alone.flops, rel=1e-6), (block, work.name)


def test_gradients_of_a_product_have_its_operations() -> None:
    product = Gemm(128, 256, 512, 3)
    assert product.for_inputs() == Gemm(128, 512, 256, 3)
    assert product.for_weights() == Gemm(512, 256, 128, 3)
    assert product.flops == product.for_inputs().flops == product.for_weights().flops == 2 * 128 * 256 * 512 * 3


def test_a_block_of_llama_on_one_of_eight_ranks() -> None:
    works = {work.name: work for work in forward(model("llama3-70b"), 1, 8192, parse("tp8,sp"))["layer0"]}
    assert list(works) == ["input_norm", "q", "k", "v", "attention", "o", "post_norm", "gate", "up", "down"]
    assert works["q"].gemms == (Gemm(8192, 1024, 8192),)
    assert works["down"].gemms == (Gemm(8192, 8192, 3584),)
    assert works["attention"].attention_flops == 2 * 8192 * 4096 * 2 * 8192 // 8
    assert works["post_norm"] == LayerWork("post_norm", "norm", (), 0, 2 * 2 * 1024 * 8192, 8192)


def test_a_convolution_is_an_implicit_product() -> None:
    works = forward(model("resnet50"), 32, width_bytes=4)["stem"]
    assert works[0].gemms == (Gemm(32 * 112 * 112, 64, 3 * 7 * 7),)
    assert works[1].moved_bytes == 2 * 4 * 32 * 112 * 112 * 64


def test_decoding_reads_the_cache() -> None:
    made = model("llama3-8b")
    (work,) = (each for each in forward(made, 4, 8192, mode="decode")["layer0"] if each.kind == "attention")
    assert work.attention_flops == 4 * 2 * 8192 * 2 * 4096
    assert work.moved_bytes == 2 * (4 * 2 * 4096 + 4 * 8192 * 2 * 1024)
    assert attention_widths(made.dims) == (4096, 4096, 2048)


# ------------------------------------------------------------------------------------------------- the parallel form
def test_what_is_not_said_follows_from_the_gpus() -> None:
    made = parse("tp8,pp16,sp,zero1", 16384)
    assert (made.dp, made.world, made.sp, made.zero) == (128, 16384, True, 1)
    assert parse("tp8 pp2 fsdp") == Parallel(tp=8, pp=2, zero=3)
    assert parse("tp=4,ep:8", 64).dp == 16
    assert parse("", 8) == Parallel(dp=8)


@pytest.mark.parametrize("text", ["tp8,dp128,pp16,sp,zero1", "tp8,pp2,sg", "ep64,dp64,fsdp", "cp2,pp4,vp5", "tp2"])
def test_a_form_prints_as_it_is_read(text: str) -> None:
    assert parse(str(parse(text))) == parse(text)


@pytest.mark.parametrize(
    ("name", "text", "gpus", "what", "remedy"),
    [
        ("llama3-70b", "tp3", 63, "64 attention heads", "a tp of 1, 2, 4, 8"),
        ("llama3-70b", "tp16", 64, "8 key and value heads", "a tp of 1, 2, 4, 8"),
        ("llama3-70b", "pp96", 96, "80 layers of llama3-70b do not fill pp96", "pp80 or less"),
        ("llama3-70b", "pp24,vp4", 24, "80 layers", "pp20 or less with vp4"),
        ("llama3-70b", "tp8,pp4,dp4", 64, "is 128 ranks, not 64", "dp2, or --gpus 128"),
        ("llama3-70b", "tp8", 60, "60 GPUs are no multiple", "--gpus 64"),
        ("mixtral-8x7b", "ep3", 9, "8 experts", "divides 8"),
        ("mixtral-8x7b", "ep8", 4, "does not divide the 4 ranks", "dp8"),
        ("llama3-8b", "ep2", 8, "no experts", "leave ep out"),
        ("llama3-8b", "cp3", 6, "8192 tokens cannot be cut into 6 pieces", "--seq 8196"),
        ("gpt2-xl", "tp2", 2, "25 attention heads", "a tp of 1, 5, 25"),
        ("vgg16", "tp2", 2, "takes images", "dp2"),
        ("transformer", "pp2", 2, "an encoder", "dp1"),
        ("llama3-8b", "zero2", 8, "zero2", "fsdp"),
        ("llama3-8b", "tp2,tp4", 8, "said twice", "tp8"),
        ("llama3-8b", "xp2", 8, "'xp2' says no parallel form", "words like"),
        ("llama3-8b", "tp0", 8, "tp is 0", "1 or more"),
        ("llama3-8b", "tp2,sg", 2, "it needs tp and pp", "leave sg out"),
        ("llama3-8b", "pp2,sg", 2, "it needs tp and pp", "leave sg out"),
        ("llama3-8b", "tp2,pp2,sp,sg", 4, "is cut already", "leave sg out"),
        ("vgg16", "sg", 2, "takes images", "dp2"),
    ],
)
def test_what_cannot_be_is_refused_with_its_numbers(name: str, text: str, gpus: int, what: str, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        workload(WorkloadSpec(name, gpus, text, micro_batches=24))
    assert what in caught.value.what
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"micro_batches": 6, "parallel": "pp4,vp2"}, "6 micro-batches do not fill"),
        ({"micro_batch_size": 0}, "micro-batch size: 0"),
        ({"seq": 0}, "sequence: 0"),
        ({"stage": 3}, "no stage 3"),
        ({"mode": "serving"}, "'serving' does not exist"),
        ({"recompute": "some"}, "'some' does not exist"),
        ({"dtype": "fp8"}, "'fp8'"),
        ({"gpus": 0}, "--gpus is 0"),
        ({"parallel": "cp2", "mode": "decode"}, "one token a sequence"),
        ({"model": "bert-base", "seq": 1024}, "512 positions"),
        ({"model": "bert-base", "mode": "decode"}, "does not decode"),
    ],
)
def test_other_bad_questions(more: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=re.escape(what)):
        workload(WorkloadSpec(**{"model": "llama3-8b", **more}))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("llama3-70b", "pp8,vp5"),
        ("llama3-405b", "pp16"),
        ("llama3-405b", "pp8,vp8"),
        ("qwen3-235b-a22b", "pp8,vp3"),
        ("deepseek-v3", "pp4,vp4"),
        ("deepseek-v3", "pp16"),
        ("gpt3-175b", "pp8,vp3"),
    ],
)
def test_chunks_hold_every_layer_once_in_order(name: str, text: str) -> None:
    made, parallel = model(name), parse(text)
    spans = chunks(made, parallel)
    along = [spans[stage][chunk] for chunk in range(parallel.vp) for stage in range(parallel.pp)]
    assert list(itertools.chain(*along)) == list(range(made.dims["layers"]))
    assert max(map(len, along)) - min(map(len, along[1:-1])) == 0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("llama3-405b", "tp8,pp16"),
        ("deepseek-v3", "ep64,dp64,pp16"),
        ("mixtral-8x7b", "tp4,pp2"),
        ("gpt3-175b", "tp8,pp8"),
    ],
)
def test_the_parts_of_all_ranks_are_the_model(name: str, text: str) -> None:
    made, parallel = model(name), parse(text)
    total = 0
    for stage in range(parallel.pp):
        for block in held(made, parallel, stage):
            for layer, mine in zip(block.layers, cut(block, parallel).layers, strict=True):
                copies = parallel.ep * parallel.etp if layer.expert else parallel.tp if layer.cut else 1
                biases = layer.elements - math.prod(layer.shapes[0]) if layer.cut == "rows" and not layer.expert else 0
                total += (mine.elements - biases) * copies + biases
    tied = made.dims["vocabulary"] * made.dims["hidden"] if name == "gpt3-175b" else 0  # the last stage has a copy
    assert total - tied == made.anatomy().elements


# --------------------------------------------------------------------------------------------------- the collectives
def test_llama_405b_on_16384_gpus() -> None:
    rows = of("llama3-405b", "tp8,pp16,dp128,sp,zero1", micro_batches=16)
    assert count(rows, "tp", size=256 * MIB) == 1280 == 10 * 8 * 16
    assert count(rows, "tp", "all-gather", 256 * MIB) == 768
    assert count(rows, "pp", "send", 32 * MIB) == count(rows, "pp", "recv", 32 * MIB) == 32
    scattered = sum(row["count"] * row["bytes"] for row in rows if (row["role"], row["op"]) == ("dp", "reduce-scatter"))
    gathered = sum(row["count"] * row["bytes"] for row in rows if (row["role"], row["op"]) == ("dp", "all-gather"))
    mine = [cut(block, parse("tp8,pp16")) for block in held(model("llama3-405b"), parse("tp8,pp16"), 7)]
    assert scattered == 2 * gathered == 4 * elements(mine)
    assert round(scattered / 2**30, 1) == 11.9
    assert {row["bytes"] for row in rows if row["op"] == "reduce-scatter" and row["role"] == "dp"} >= {4 * 128_000_000}


@pytest.mark.parametrize(("text", "volume"), [("tp8", 8), ("tp8,sp", 10)])
def test_tensor_parallel_volume_of_a_layer(text: str, volume: int) -> None:
    rows = of("gpt3-175b", f"{text},pp8", micro_batches=8, stage=3)
    size, moved = 48 * MIB, 0.0
    for row in rows:
        if row["role"] == "tp" and row["bytes"] == size:
            moved += row["count"] * size * (2 if row["op"] == "all-reduce" else 1) * 7 / 8
    assert moved == 12 * 8 * volume * 7 / 8 * size


def test_full_recomputation_runs_the_forward_pass_once_more() -> None:
    plain, again = (
        of("gpt3-175b", "tp8,pp8,sp", micro_batches=8, recompute=each, stage=3) for each in ("selective", "full")
    )
    size = 48 * MIB
    assert count(again, "tp", "all-gather", size) - count(plain, "tp", "all-gather", size) == 2 * 12 * 8
    assert count(again, "tp", "reduce-scatter", size) - count(plain, "tp", "reduce-scatter", size) == 2 * 12 * 8
    assert count(of("gpt3-175b", "tp8,pp8", recompute="full", stage=3), "tp") == 6 * 12


def test_embedding_and_logits_at_both_ends() -> None:
    first, middle, last = (of("gpt3-175b", "tp8,pp8", micro_batches=8, stage=each) for each in (0, 3, 7))
    assert count(first, "tp", size=48 * MIB) == count(middle, "tp", size=48 * MIB) + 8
    assert count(last, "tp", size=4 * 2048) == 3 * 8
    shared = [row for row in first if row["role"] == "embedding"]
    assert shared == [{"role": "embedding", "op": "all-reduce", "count": 1, "bytes": 4 * 51200 * 12288 // 8}]
    assert shared == [row for row in last if row["role"] == "embedding"]
    assert not count(middle, "embedding")


@pytest.mark.parametrize("text", ["pp8", "pp8,vp3", "pp2,vp4"])
def test_what_a_pipeline_sends_arrives(text: str) -> None:
    parallel = parse(text)
    rows = [of("gpt3-175b", text, micro_batches=8, stage=stage) for stage in range(parallel.pp)]
    sent, taken = (sum(count(each, "pp", op) for each in rows) for op in ("send", "recv"))
    assert sent == taken == 2 * 8 * (parallel.pp * parallel.vp - 1)
    if parallel.pp > 2:
        assert count(rows[3], "pp", "send") == 2 * 8 * parallel.vp


def test_the_ring_of_context_parallelism() -> None:
    rows = of("llama3-70b", "tp4,cp4,sp", sequence=32768)
    assert count(rows, "cp", "send", 2 * 2 * 8192 * 8 * 128 // 4) == 80 * 3 * 3
    assert count(of("llama3-70b", "tp4,cp4", sequence=32768, recompute="full"), "cp", "send") == 80 * 4 * 3


@pytest.mark.parametrize(
    ("text", "size"), [("ep8,dp8", 64 * MIB), ("tp2,sp,dp8,ep8", 32 * MIB), ("tp2,dp4,ep8", 64 * MIB)]
)
def test_tokens_travel_to_experts(text: str, size: int) -> None:
    rows = of("mixtral-8x7b", text)
    assert count(rows, "ep", "all-to-all", size) == 4 * 32
    assert count(rows, "ep", "all-gather", 4 * 8 * 8) == 32


def test_deepseek_combines_448_mib() -> None:
    rows = of("deepseek-v3", "pp16,ep64,zero1", 2048, micro_batches=16)
    assert count(rows, "ep", "all-to-all", 448 * MIB) == 4 * 4 * 16
    assert {row["role"] for row in rows} == {"ep", "pp", "dp", "edp"}


def test_experts_are_shared_by_those_who_hold_the_same() -> None:
    parallel = parse("tp2,sp,dp16,ep8,pp2")
    assert (parallel.edp, parallel.replicas) == (4, 16)
    rows = of("mixtral-8x7b", "tp2,sp,dp16,ep8,pp2", stage=0)
    mine = [cut(block, parallel) for block in held(model("mixtral-8x7b"), parallel, 0)]
    for role, expert in (("dp", False), ("edp", True)):
        assert sum(row["count"] * row["bytes"] for row in rows if row["role"] == role) == 4 * elements(
            mine, expert=expert
        )


def test_fully_sharded_is_what_pytorch_does() -> None:
    """The rows are those that real ranks were seen to issue, micro-batch by micro-batch."""
    for family in ("llama", "mixtral", "vgg"):
        made = card(family)
        seen = expected(made, {"form": "fsdp", "dp": 4}, batch=2, sequence=32)
        rows = collectives(made, step("dp4,fsdp", 32, micro_batch_size=2, width_bytes=4, gradient_bytes=4))
        wanted: Counter[tuple[str, int]] = Counter()
        for row in seen:
            wanted[row.op, row.size_bytes] += row.count
        assert {(row["op"], row["bytes"]): row["count"] for row in totals(rows)} == wanted


@pytest.mark.parametrize("name", ["vgg16", "resnet50"])
def test_images_are_trained_with_the_buckets_of_ddp(name: str) -> None:
    made = model(name)
    seen = [
        row
        for row in in_iteration(expected(made, {"form": "ddp", "dp": 8}, batch=1, sequence=1), 2)
        if row.op == "all-reduce"
    ]
    rows = of(name, "dp8")
    assert {row["bytes"]: row["count"] for row in rows} == {row.size_bytes: row.count for row in seen}
    assert sum(row["bytes"] * row["count"] for row in rows) == 4 * parameters(made)


@pytest.mark.parametrize("name", ["llama3-8b", "bert-large", "alexnet", "transformer", "gpt-oss-120b"])
def test_plain_data_parallelism_adds_every_gradient_once(name: str) -> None:
    rows = of(name, "dp8")
    assert {row["role"] for row in rows} == {"dp"}
    assert sum(row["bytes"] * row["count"] for row in rows) == 4 * parameters(model(name))


def test_serving() -> None:
    prefill, decode = (
        of("llama3-70b", "tp8", sequence=1024, mode=mode, micro_batch_size=4) for mode in ("prefill", "decode")
    )
    assert (
        count(prefill, "tp", "all-reduce", 4 * 1024 * 8192 * 2)
        == count(decode, "tp", "all-reduce", 4 * 8192 * 2)
        == 161
    )
    assert count(prefill, "tp", "all-gather", 4 * 128256 * 2) == 1
    assert count(of("mixtral-8x7b", "ep8,dp8", mode="decode"), "ep", "all-to-all") == 64
    rows = of("llama3-70b", "pp4", sequence=1024, mode="decode", stage=1)
    assert rows == [{"role": "pp", "op": op, "count": 1, "bytes": 8192 * 2} for op in ("recv", "send")]


def test_with_scatter_gather_a_rank_sends_its_part_and_all_gather_the_whole() -> None:
    whole, parts = (of("gpt3-175b", text, micro_batches=8, stage=3) for text in ("tp8,pp8", "tp8,pp8,sg"))
    size = 2 * 2048 * 12288
    assert count(whole, "pp", "send", size) == count(parts, "pp", "send", size // 8) == 2 * 8
    assert count(parts, "tp", "all-gather", size) == 2 * 8
    assert count(whole, "tp", "all-gather") == 0


def test_scatter_gather_cuts_the_sequence_and_says_what_stages_send() -> None:
    for parallel in ("tp2,pp2,sg", "tp2,pp2,cp2,sg"):
        with pytest.raises(UsageError, match="cannot be cut into"):
            of("llama3-8b", parallel, sequence=4098 if "cp" in parallel else 4097, micro_batches=2, micro_batch_size=2)
    with pytest.raises(UsageError, match="3 decoded tokens cannot be cut over tp2"):
        of("llama3-8b", "tp2,pp2,sg", mode="decode", micro_batch_size=3)
    for words, said in (("tp2,pp2", "the whole output"), ("tp2,pp2,sg", "its part"), ("tp2", ""), ("tp2,pp2,sp", "")):
        sent = [
            each
            for each in workload(WorkloadSpec("llama3-8b", 8, words))["assumptions"]
            if "tensor parallel group sends" in each
        ]
        assert len(sent) == bool(said)
        assert said in "".join(sent)


def test_every_legal_combination_has_rows() -> None:
    combinations = itertools.product((1, 2), (1, 2), (1, 2), (1, 4), (0, 1, 3), (False, True))
    for tp, pp, cp, ep, zero, sp in combinations:
        parallel = Parallel(tp=tp, pp=pp, cp=cp, ep=ep, dp=4, zero=zero, sp=sp)
        for mode, recompute in (("training", "none"), ("training", "full"), ("prefill", "none")):
            rows = totals(collectives(model("mixtral-8x7b"), StepSpec(parallel, 4096, 4, 1, mode, recompute)))
            assert all(row["count"] > 0 and row["bytes"] > 0 for row in rows)  # type: ignore[operator]
            sums = {row["role"] for row in rows}
            wanted = {"tp": tp > 1, "pp": pp > 1, "cp": cp > 1, "ep": ep > 1, "dp": zero == 3 or mode == "training"}
            assert {role for role, there in wanted.items() if there} <= sums, (parallel, mode)


# -------------------------------------------------------------------------------------------------------- the verb
def test_the_verb_prints_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    words = "workload llama3-405b --gpus 16384 --parallel tp8,pp16,sp,zero1 --micro-batches 16 --json"
    assert ringwright.cli.main(words.split()) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "ringwright.workload/1"
    assert (found["model"], found["parameters"], found["gpus"]) == ("llama3-405b", 405_853_388_800, 16384)
    assert found["flops_per_token"] == pytest.approx(2.524e12, rel=1e-3)
    assert set(found["collectives"][0]) == {"role", "op", "count", "bytes"}
    assert found["collectives"] == of("llama3-405b", "tp8,pp16,dp128,sp,zero1", micro_batches=16)
    assert "dp128 follows from 16384 GPUs" in found["assumptions"]


def test_without_a_parallel_form_it_is_one_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert ringwright.cli.main(["workload", "resnet50", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["collectives"], found["gpus"], found["unit"]) == ([], 1, "image")
    assert "no parallel form was given: one GPU" in found["assumptions"]


def test_the_terminal_shows_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert ringwright.cli.main("workload mixtral-8x7b --gpus 64 --parallel pp4,ep8".split()) == 0
    out = capsys.readouterr().out
    assert "46,702,792,704" in out
    assert "12,879,925,248 per token" in out
    assert "all-to-all" in out
    assert ringwright.cli.main(["workload", "mixtrl"]) == 2
    assert "perhaps mixtral-8x7b" in capsys.readouterr().err
    assert ringwright.cli.main(["workload", "transformer", "--dims.vocabulary", "32000", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dims"]["vocabulary"] == 32000


def test_every_default_is_said() -> None:
    said = " / ".join(workload(WorkloadSpec("llama3-8b", 8, "tp2"))["assumptions"])
    for word in (
        "dp4",
        "micro-batches: 1",
        "micro-batch size: 1",
        "8192 tokens",
        "bfloat16",
        "float32",
        "sequence parallelism is off",
    ):
        assert word in said
    told = WorkloadSpec("llama3-8b", 8, "tp2,dp4,sp,zero1", 4, 1, 8192, "bfloat16", "float32", stage=0)
    assert not [line for line in workload(told)["assumptions"] if re.match("(micro|sequence:|data type|dp|GPUs)", line)]


def table() -> list[str]:
    """Return the lines of the page's table of models."""
    lines = []
    for name in names():
        made = model(name)
        active = active_parameters(made)
        of_them = f"{active:,}" if active != parameters(made) else ""
        what = "an image" if made.takes_samples else f"a token of {usual_sequence(made):,}"
        lines.append(f"| `{name}` | {parameters(made):,} | {of_them} | {flops_per_token(made):.4g} | {what} |")
    return lines


def test_the_page_has_every_model_with_its_figures() -> None:
    page = (DOCS / "reference" / "workloads.md").read_text().splitlines()
    assert [line for line in page if line.startswith("| `")] == table()


# ---------------------------------------------------------------------------------------------- models without memory
def built(name: str, dims: dict[str, int]) -> Any:
    """Return the model of the transformers library."""
    import transformers as library

    shape = {
        "num_hidden_layers": dims["layers"],
        "hidden_size": dims["hidden"],
        "num_attention_heads": dims["heads"],
        "vocab_size": dims["vocabulary"],
    }
    if name.startswith("bert"):
        return library.BertModel(library.BertConfig(**shape, intermediate_size=dims["intermediate"]))
    if name.startswith("gpt3"):
        config = library.GPT2Config(
            n_layer=dims["layers"],
            n_embd=dims["hidden"],
            n_head=dims["heads"],
            vocab_size=dims["vocabulary"],
            n_positions=dims["positions"],
        )
        return library.GPT2LMHeadModel(config)
    shape |= {"num_key_value_heads": dims["kv_heads"], "head_dim": dims["head"], "tie_word_embeddings": False}
    if name.startswith("llama"):
        return library.LlamaForCausalLM(library.LlamaConfig(**shape, intermediate_size=dims["intermediate"]))
    if name.startswith("qwen3"):
        config = library.Qwen3MoeConfig(
            **shape, moe_intermediate_size=dims["intermediate"], num_experts=dims["experts"]
        )
        return library.Qwen3MoeForCausalLM(config)
    config = library.GptOssConfig(**shape, intermediate_size=dims["intermediate"], num_local_experts=dims["experts"])
    return library.GptOssForCausalLM(config)


@pytest.mark.torch
@pytest.mark.skipif(NO_TORCH, reason="PyTorch is absent: no models to compare with")
@pytest.mark.skipif(NO_MODELS, reason="the transformers library is absent: no models to compare with")
@pytest.mark.parametrize(
    "name",
    [
        "bert-base",
        "bert-large",
        "gpt3-1.3b",
        "gpt3-175b",
        "llama2-7b",
        "llama2-70b",
        "llama3-405b",
        "qwen3-30b-a3b",
        "qwen3-235b-a22b",
        "gpt-oss-120b",
    ],
)
def test_parameters_are_those_of_the_library(name: str) -> None:
    import torch

    made = model(name)
    with torch.device("meta"):
        found = built(name, made.dims)
    assert sum(each.numel() for each in found.parameters()) == parameters(made)
    if name != "gpt-oss-120b":  # which stores its experts' matrices inputs first
        assert sorted(tuple(each.shape) for each in found.parameters()) == sorted(made.anatomy().shapes())


@pytest.mark.torch
@pytest.mark.skipif(NO_TORCH, reason="PyTorch is absent: no models to compare with")
@pytest.mark.parametrize("name", ["vgg16", "vgg19-22k", "resnet18", "resnet50", "resnet101", "resnet152"])
def test_images_are_what_pytorch_builds_and_counts(name: str) -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from ringwright_lab.models.families import family

    made = model(name)
    with torch.device("meta"):
        found = family(made.family).build(made.dims)
        images = torch.randn(1, 3, made.dims["image"], made.dims["image"])
    assert [tuple(each.shape) for each in found.parameters()] == made.anatomy().shapes()
    assert sum(each.numel() for each in found.buffers()) == sum(number for _, number in made.anatomy().buffers)
    with FlopCounterMode(display=False) as counter:
        found(images)
    assert 3 * counter.get_total_flops() == flops_per_token(made)


@pytest.mark.torch
@pytest.mark.skipif(NO_TORCH, reason="PyTorch is absent: no models to compare with")
def test_the_transformer_is_what_pytorch_builds() -> None:
    import torch

    made = model("transformer")
    dims = made.dims
    with torch.device("meta"):
        shape = (dims["hidden"], dims["heads"], dims["layers"], dims["layers"], dims["intermediate"])
        found = torch.nn.Transformer(*shape, batch_first=True)
    ends = 2 * 2 * dims["hidden"]  # a norm behind the last layer of each half, which the paper has not
    body = sum(each.numel() for each in found.parameters()) - ends
    assert parameters(made) == body + dims["vocabulary"] * dims["hidden"]


def test_checks_see_the_sequence() -> None:
    check(model("gpt2-xl"), parse("tp5"), sequence=1024)
    with pytest.raises(UsageError, match="1024 positions"):
        check(model("gpt2-xl"), parse("tp5"), sequence=2048)
