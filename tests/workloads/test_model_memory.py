"""Memory of training GPT-3 175B and Llama 3 70B against published formulas, written here from where they stand.

Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models (arXiv 2205.05198), table 2 and section 4.2;
Megatron-LM's report of theoretical memory (megatron/training/theoretical_memory_usage.py), whose terms for dropout and for keys
and values of every head fall away for Llama, and whose 4 f / h for one projection and its activation is 6 f / h for a gated
one: f the width of the middle. Of what both leave out, this account holds what one block has beside them at the peak.
"""

from __future__ import annotations

from functools import cache

import pytest

from ringwright.graph.algebra import RULES
from ringwright.graph.memory import ClassMemory, memory
from ringwright.jobs import model_job
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.model.validity.workloads import check

WITHIN = 0.03
S, B, H, A, L, V = 2048, 1, 12288, 96, 96, 51200  # GPT-3 175B, as table 3 of the paper has it
T, P = 8, 8


@cache
def accounts(
    model: str, gpus: int, form: str, recompute: str = "none", micro_batches: int = 16, flash: int = 1, **more: str
) -> tuple[ClassMemory, ...]:
    schedule = more.pop("schedule", "1f1b")
    asked = WorkloadSpec(model, gpus, form, micro_batches, recompute=recompute, **more)  # type: ignore[arg-type]
    question = model_job.GeneratedJobSpec(asked, schedule=schedule, compute={"flash": flash})
    return memory(model_job.workload(question))


def activations(account: ClassMemory) -> int:
    return account.by_kind["activation"]


def layer(form: str, recompute: str, *, flash: bool) -> float:
    """Table 2: bytes of one layer of GPT. Where scores stay on chip they are not kept; the paper's figures have them."""
    scores = 0.0 if flash or recompute == "selective" else 5 * A * S / H
    if recompute == "full":
        return 2.0 * S * B * H / (T if "sp" in form else 1)
    if "sp" in form:
        return S * B * H / T * (34 + scores)
    return S * B * H * (10 + 24 / T + scores / T)


def embedding(form: str) -> float:
    """Section 4.2.4: the dropout behind the embedding, a byte an element, and the numbers of the words in 8 bytes."""
    return S * B * H / (T if "sp" in form else 1) + 8 * S * B


@pytest.mark.sampled(4)
@pytest.mark.parametrize("flash", [True, False], ids=["scores-on-chip", "scores-kept"])
@pytest.mark.parametrize("recompute", ["none", "selective"])
@pytest.mark.parametrize("form", ["tp8,pp8", "tp8,pp8,sg", "tp8,pp8,sp"])
def test_gpt3_keeps_what_the_paper_counts_on_every_stage_but_the_last(form: str, recompute: str, flash: bool) -> None:
    found = accounts("gpt3-175b", 64, form, recompute, flash=int(flash))
    for stage, account in enumerate(found[:-1]):
        flying = P - stage
        expected = flying * (L / P * layer(form, recompute, flash=flash) + (embedding(form) if stage == 0 else 0))
        assert activations(account) == pytest.approx(expected, rel=WITHIN)


@pytest.mark.parametrize("form", ["tp8,pp8", "tp8,pp8,sg", "tp8,pp8,sp"])
def test_the_last_stage_keeps_the_probabilities_of_the_words_too(form: str) -> None:
    """Section 4.2.4: 4 s b h / t (1 + v / h): the inputs of the last norm and of the logits, and these in 4 bytes.

    Here the input of the logits stays whole, for it is not gathered once more.
    """
    last = accounts("gpt3-175b", 64, form, "selective")[-1]
    own = T if "sp" in form else 1
    ends = 2 * S * B * H / own + 2 * S * B * H + S * B * H / own + 4 * S * B * V / T
    assert activations(last) == pytest.approx(L / P * layer(form, "selective", flash=True) + ends, rel=WITHIN)


@pytest.mark.parametrize("form", ["tp8,pp8", "tp8,pp8,sg", "tp8,pp8,sp"])
def test_full_recomputation_keeps_inputs_and_holds_one_block_more_at_its_peak(form: str) -> None:
    """The paper counts 2 s b h a layer; while a block is run once more what it keeps is there beside that."""
    found = accounts("gpt3-175b", 64, form, "full")
    for stage, account in enumerate(found[:-1]):
        kept = (P - stage) * (L / P * layer(form, "full", flash=True) + (embedding(form) if stage == 0 else 0))
        once_more = layer(form, "selective", flash=True)
        own = 2 * S * B * H / (T if "sp" in form else 1)  # the block's input is of both
        assert activations(account) == pytest.approx(kept + once_more - own, rel=WITHIN)
    without = accounts("gpt3-175b", 64, form, "selective")
    assert activations(found[0]) < 0.2 * activations(without[0])


@pytest.mark.parametrize("form", ["tp8,pp8,vp3", "tp8,pp8,vp3,sp"])
def test_interleaving_costs_the_paper_s_factor(form: str) -> None:
    first = accounts("gpt3-175b", 64, form, "selective")[0]
    factor = 1 + (P - 1) / (P * 3)
    expected = factor * L * layer(form, "selective", flash=True) + P * embedding(form)
    assert activations(first) == pytest.approx(expected, rel=WITHIN)


def test_gpipe_keeps_every_micro_batch() -> None:
    found = accounts("gpt3-175b", 64, "tp8,pp8,sp", "selective", 16, schedule="gpipe")
    assert activations(found[3]) == pytest.approx(16 * L / P * layer("sp", "selective", flash=True), rel=WITHIN)


# ---------------------------------------------------------------------------------------------------------- Llama 3 70B
LS, LH, LF, LA, LG, LL, LV = 8192, 8192, 28672, 64, 8, 80, 128256


def llama_layer(t: int, own: int, *, lse: bool = True) -> float:
    """Megatron-LM's 18 + 4 f / h, less two masks of dropout, with keys and values of fewer heads, and a gated middle.

    2 x 2 of norms, 2 x 2 of their outputs, 2 of queries, 4 g / a of keys and values, 2 of attention, 6 f / h of gate, up and
    their product; besides, where scores stay on chip, 4 bytes a row and head.
    """
    scaled = 2 + 4 * LG / LA + 2 + 6 * LF / LH
    return LS * LH * (8 / own + scaled / t) + (4 * LS * LA / t if lse else 0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", ["tp8,pp4", "tp8,pp4,sg", "tp8,pp4,sp"])
@pytest.mark.parametrize("recompute", ["none", "selective"])
def test_llama_keeps_what_its_tensors_say(form: str, recompute: str) -> None:
    found = accounts("llama3-70b", 32, form, recompute)
    own = 8 if "sp" in form else 1
    for stage, account in enumerate(found[:-1]):
        expected = (4 - stage) * LL / 4 * llama_layer(8, own, lse=recompute == "none")
        assert activations(account) == pytest.approx(expected, rel=WITHIN)


@pytest.mark.parametrize("form", ["tp8,pp4", "tp8,pp4,sg", "tp8,pp4,sp"])
def test_llama_recomputed_keeps_inputs_and_one_block(form: str) -> None:
    own = 8 if "sp" in form else 1
    for stage, account in enumerate(accounts("llama3-70b", 32, form, "full")[:-1]):
        kept = (4 - stage) * LL / 4 * 2 * LS * LH / own
        once_more = max(size for name, _, size in account.line if name.endswith(".done")) - held(account)
        assert once_more == pytest.approx(kept + llama_layer(8, own) - 2 * LS * LH / own, rel=WITHIN)


# ----------------------------------------------------------------------------------------- parameters, gradients, states
def held(account: ClassMemory) -> int:
    return account.by_kind["parameter"] + account.by_kind["gradient"] + account.by_kind["optimizer"]


@pytest.mark.parametrize(
    ("form", "gradients", "each"),
    [
        ("tp8,pp4", "float32", 18),  # 2 + 4 + 12
        ("tp8,pp4", "bfloat16", 16),
        ("tp8,pp4,zero1", "float32", 6 + 12 / 4),  # the distributed optimizer, dp 4
        ("tp8,pp4,zero1", "bfloat16", 4 + 12 / 4),
    ],
)
def test_llama_holds_the_published_bytes_a_parameter(form: str, gradients: str, each: float) -> None:
    """Megatron-LM's report: all layers but norms are cut by tp; the first stage has the embedding besides its layers."""
    found = accounts("llama3-70b", 128, form, gradients=gradients)
    block = 2 * LH * LH * (1 + LG / LA) + 3 * LH * LF
    layers = LL / 4 * (block / 8 + 2 * LH)
    assert held(found[1]) == pytest.approx(each * layers, rel=WITHIN)
    assert held(found[0]) == pytest.approx(each * (layers + LV * LH / 8), rel=WITHIN)


def test_fully_sharded_a_rank_has_its_part_of_16_bytes_and_gathers_units_of_2() -> None:
    """Rajbhandari et al. (arXiv 1910.02054): all states over all ranks; here parameters in 4 bytes, gathered in 2."""
    (account,) = accounts("llama3-70b", 64, "fsdp", "full", 1)
    parameters = 70_553_706_496
    assert held(account) == pytest.approx(16 * parameters / 64, rel=WITHIN)
    block = 2 * (2 * LH * LH * (1 + LG / LA) + 3 * LH * LF)
    root = 2 * 2 * LV * LH
    assert account.by_kind["buffer"] > root + 2 * block  # one unit is worked on while the next one comes


# ------------------------------------------------------------------------------------------------------------- all models
@pytest.mark.sampled(6, "form")
@pytest.mark.parametrize(
    ("model", "gpus", "form"),
    [
        ("gpt2-small", 8, "tp2,pp2,vp2,sp"),
        ("bert-large", 8, "tp2,sp,pp2"),
        ("bert-large", 8, "tp2,sg,pp2"),
        ("gpt2-small", 8, "tp2,sg,pp2,vp2"),
        ("llama3-8b", 16, "cp2,pp2,tp2,sg"),
        ("mixtral-8x7b", 16, "tp2,sg,ep4,pp2"),
        ("transformer-big", 4, "tp2"),
        ("transformer-big", 4, ""),
        ("llama3-8b", 16, "cp2,pp2,tp2,sp"),
        ("llama3-8b", 16, "cp2,fsdp"),
        ("mixtral-8x7b", 16, "tp2,sp,pp2"),
        ("mixtral-8x7b", 16, "tp2,ep4"),
        ("qwen3-30b-a3b", 16, "ep8,tp2,sp"),
        ("deepseek-v3", 64, "tp2,ep32,pp2,sp,zero1"),
        ("resnet50", 4, ""),
        ("vgg16", 4, "fsdp"),
    ],
)
def test_every_task_says_what_it_computes_and_every_value_is_legal(model: str, gpus: int, form: str) -> None:
    for recompute in ("none", "full"):
        asked = WorkloadSpec(model, gpus, form, recompute=recompute, micro_batches=4)
        made = model_job.workload(model_job.GeneratedJobSpec(asked))
        assert check(made) == []
        assert all(task.work is not None for task in made.tasks if task.seconds)
        unsaid = {each.role for each in made.payloads if not (each.source or each.result)}
        assert unsaid <= {"embedding"}  # of two classes: no one value is summed
        flops = sum(task.work.flops for task in made.tasks if task.work and task.kind == "F")
        assert flops > 0
        assert all(each.peak_bytes > 0 for each in memory(made))


def test_images_keep_what_convolutions_and_norms_read() -> None:
    """ResNet-50 in 4 bytes: the inputs of convolutions and norms of 32 images are some 2.6 GB (22.2 M numbers an image)."""
    (account,) = accounts("resnet50", 8, "")
    assert 20e6 < activations(account) / 4 / 32 < 24e6


def test_a_model_that_answers_holds_the_cache_of_all_its_sequences() -> None:
    asked = WorkloadSpec("llama3-8b", 8, "tp8", 1, 4, mode="decode")
    (account,) = memory(model_job.workload(model_job.GeneratedJobSpec(asked)))
    cached = (
        32 * 4 * 8192 * 2 * 8 * 128 * 2 / 8
    )  # layers, sequences, tokens, keys and values of 8 heads in 2 bytes, tp 8
    assert account.by_kind["buffer"] == pytest.approx(cached, rel=WITHIN)
    assert account.by_kind["gradient"] == account.by_kind["optimizer"] == 0


def test_where_to_cut_says_what_a_part_more_costs() -> None:
    """Attention looks along the sequence, so only whole sequences can be cut off it; a matrix may be cut anywhere."""
    asked = WorkloadSpec("gpt3-1.3b", 2, "tp2,sp", 1, 2)
    made = model_job.workload(model_job.GeneratedJobSpec(asked))
    attention, middle = made.task["all.F.layer0.dense.2"].work, made.task["all.F.layer0.dense.6"].work
    assert attention is not None
    assert middle is not None
    assert set(attention.cuts) == {"batch"}
    assert set(middle.cuts) == {"batch", "sequence"}
    assert all(0 < seconds < made.task["all.F.layer0.dense.6"].seconds for seconds in middle.cuts.values())
    tokens, hidden = 2 * 2048, 2048
    assert middle.flops == 2 * 2 * tokens * hidden * 4 * hidden / 2


# ------------------------------------------------------------------------------------------------------------------- rules
def test_rules_apply_to_generated_steps_and_memory_follows() -> None:
    """The middle of an MLP of one layer recomputed: neither of the two micro-batches of the first stage is there at the peak."""
    made = model_job.workload(model_job.GeneratedJobSpec(WorkloadSpec("gpt3-1.3b", 4, "tp2,pp2", 4, 2)))
    up = made.value["stage0.layer0.dense.6.up"]
    assert up.size_bytes == 2 * 2 * 2048 * 4 * 2048 / 2  # 2 bytes, 2 sequences, tokens, the middle over tp 2
    again = RULES["recompute"](made, up.name)
    assert check(again) == []
    before, after = (activations(memory(each)[0]) for each in (made, again))
    assert before - after == 2 * up.size_bytes
    parts = RULES["cut"](made, "stage0.F.layer0.dense.6", dim="sequence", parts=2)
    assert check(parts) == []
    assert parts.task["stage0.F.layer0.dense.6.0"].reads[1:] == made.task["stage0.F.layer0.dense.6"].reads[1:]
    whole, half = made.task["stage0.F.layer0.dense.6"], parts.task["stage0.F.layer0.dense.6.0"]
    assert whole.work is not None
    assert half.work is not None
    assert half.work.flops == whole.work.flops / 2
