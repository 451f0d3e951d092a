"""The requests of a rank as rows: phase, layer, stage, ranks of the group, quantiles of sizes; and the verb that prints them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import ringwright.cli
from ringwright.ground.errors import UsageError
from ringwright.jobs.model_workload import WorkloadSpec, workload
from ringwright.workloads.models import model
from ringwright.workloads.parallel import parse
from ringwright.workloads.requests import quantile, request_sizes, requests
from ringwright.workloads.step import StepSpec

LLAMA = "llama3-405b --gpus 16384 --parallel tp8,pp16,sp,zero1 --micro-batches 16"


def asked(name: str, text: str, gpus: int | None = None, **more: Any) -> list[dict[str, Any]]:
    return requests(model(name), StepSpec(parse(text, gpus), 1024, **more))


def of(rows: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def test_layers_that_ask_alike_are_one_row() -> None:
    rows = asked("deepseek-v3", "tp16", mode="decode")
    sums = of(rows, op="all-reduce")
    assert {(row["layer"], row["count"], row["bytes"]) for row in sums} == {
        ("each of 3", 6, 14_336),
        ("each of 58", 174, 14_336),
        ("embedding", 1, 14_336),
    }
    assert [(row["layer"], row["count"]) for row in of(rows, op="all-gather")] == [("logits", 1)]


def test_a_layer_by_itself_has_its_name_and_buckets_have_none() -> None:
    rows = asked("llama3-8b", "dp8,fsdp")
    assert {row["layer"] for row in rows} == {"root", "each of 32"}
    assert {row["layer"] for row in asked("llama3-8b", "dp8")} == {None}


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("tp4,pp2,dp2,sp,zero1", {"tp": 4, "pp": 2, "dp": 2}),
        ("cp2,dp4", {"cp": 2, "dp": 8}),
        ("ep4,dp8,pp2", {"ep": 4, "dp": 8, "edp": 2, "pp": 2}),
    ],
)
def test_groups_have_the_ranks_of_their_axes(text: str, ranks: dict[str, int]) -> None:
    rows = asked("mixtral-8x7b", text, micro_batches=4)
    assert {row["role"]: row["group_ranks"] for row in rows} == ranks


def test_a_tied_matrix_is_summed_by_two_ranks() -> None:
    first, last = (of(asked("gpt3-175b", "pp4", stage=stage), role="embedding") for stage in (0, 3))
    assert [(row["group_ranks"], row["layer"]) for row in (*first, *last)] == [(2, "embedding"), (2, "logits")]


def test_phases_say_when() -> None:
    rows = asked("llama3-8b", "tp2,dp4,zero1")
    assert {row["phase"] for row in of(rows, role="dp", op="all-gather")} == {"optimiser"}
    assert {row["phase"] for row in of(rows, role="dp", op="reduce-scatter")} == {"backward"}
    assert {row["phase"] for row in of(rows, role="tp")} == {"forward", "backward"}
    with_recomputation = asked("llama3-8b", "tp2", recompute="full")
    phases = Counter[str]()
    for row in of(with_recomputation, layer="each of 32"):
        phases[row["phase"]] += row["count"]
    assert phases == {"forward": 64, "backward": 128}


@pytest.mark.parametrize(("percent", "size"), [(50, 4), (90, 4), (91, 8), (99, 8), (100, 64)])
def test_quantiles_weigh_sizes_by_how_often_they_are_asked_for(percent: int, size: int) -> None:
    assert quantile({4: 90, 8: 9, 64: 1}, percent) == size


def test_quantiles_are_those_of_a_role_and_operation() -> None:
    rows = [
        {"role": "dp", "op": "all-reduce", "count": 94, "bytes": 4},
        {"role": "dp", "op": "all-reduce", "count": 4, "bytes": 8},
        {"role": "dp", "op": "all-reduce", "count": 2, "bytes": 16},
        {"role": "tp", "op": "all-reduce", "count": 1, "bytes": 2},
    ]
    assert request_sizes(rows, "training") == [
        {
            "mode": "training",
            "role": "tp",
            "op": "all-reduce",
            "count": 1,
            "p50_bytes": 2,
            "p95_bytes": 2,
            "p99_bytes": 2,
        },
        {
            "mode": "training",
            "role": "dp",
            "op": "all-reduce",
            "count": 100,
            "p50_bytes": 4,
            "p95_bytes": 8,
            "p99_bytes": 16,
        },
    ]
    with pytest.raises(ValueError, match="no requests"):
        quantile({}, 50)


@pytest.mark.parametrize("text", ["tp8,pp4,dp2,sp,zero1", "pp4,dp8,fsdp", "tp2,pp4,vp2,sg"])
def test_requests_are_the_collectives_phase_by_phase(text: str) -> None:
    answer = workload(WorkloadSpec("llama3-70b", None, text, 8, stage=3))
    split, whole = Counter[tuple[str, str, int]](), Counter[tuple[str, str, int]]()
    for row in answer["requests"]:
        split[row["role"], row["op"], row["bytes"]] += row["count"]
    for row in answer["collectives"]:
        whole[row["role"], row["op"], row["bytes"]] += row["count"]
    assert split == whole
    assert {row["stage"] for row in answer["requests"]} == {3}


def test_serving_is_both_passes_in_one_table() -> None:
    answer = workload(WorkloadSpec("deepseek-v3", 16, "tp16", seq=1024, mode="serve"))
    sizes = {(row["mode"], row["op"]): (row["count"], row["p50_bytes"]) for row in answer["request_sizes"]}
    assert sizes["prefill", "all-reduce"] == (181, 14_680_064)
    assert sizes["decode", "all-reduce"] == (181, 14_336)
    assert sizes["prefill", "all-gather"][0] == sizes["decode", "all-gather"][0] == 1
    for mode in ("prefill", "decode"):
        alone = workload(WorkloadSpec("deepseek-v3", 16, "tp16", seq=1024, mode=mode))
        assert of(answer["requests"], phase=mode) == alone["requests"]
    peaks = [
        workload(WorkloadSpec("deepseek-v3", 16, "tp16", seq=1024, mode=mode))["memory"][0]["peak_bytes"]
        for mode in ("prefill", "decode")
    ]
    assert answer["memory"][0]["peak_bytes"] == max(peaks)


def test_every_stage_is_in_one_table() -> None:
    one, every = (workload(WorkloadSpec("llama3-70b", 64, "tp4,pp4", all_stages=each)) for each in (False, True))
    assert {row["stage"] for row in every["requests"]} == {0, 1, 2, 3}
    assert of(every["requests"], stage=1) == one["requests"]
    assert one["collectives"] == every["collectives"]


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"mode": "serving"}, "'serving' does not exist"),
        ({"all_stages": True, "stage": 1}, "--stage 1 and --all-stages"),
        ({"mode": "serve", "parallel": "cp2"}, "cannot be cut over cp2"),
    ],
)
def test_what_cannot_be_asked_is_refused(more: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        workload(WorkloadSpec("llama3-8b", **{"gpus": 8, "parallel": "tp2,pp2", **more}))


def test_a_file_holds_one_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["workload", "llama3-8b", "--gpus", "2", "--parallel", "tp2", "-o", str(tmp_path / "job.json"), "--mode"]
    assert ringwright.cli.main([*words, "serve"]) == 2
    assert "--mode prefill, or --mode decode" in capsys.readouterr().err
    assert ringwright.cli.main([*words, "decode"]) == 0


def test_a_model_that_does_not_decode_is_not_served() -> None:
    with pytest.raises(UsageError, match="it does not decode"):
        workload(WorkloadSpec("bert-large", 8, mode="serve"))


@pytest.mark.parametrize(
    "words",
    [
        f"workload {LLAMA} --all-stages",
        "workload gpt3-175b --gpus 1024 --parallel tp8,pp8,sp --stage 0",
        "workload gpt2 --gpus 8",
    ],
)
def test_the_table_fits_eighty_columns_and_cuts_no_digit(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert ringwright.cli.main(words.split()) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert ringwright.cli.main([*words.split(), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    table = out.split("Request sizes")[0]
    for row in answer["requests"]:
        assert f"{row['count']:,}" in table
        assert f" {row['group_ranks']:,} " in table
    assert "…" not in out
    heads = [line for line in table.splitlines() if "phase" in line.split()]
    assert len(heads) == 1, "one table, not one below the other"


def test_stages_that_ask_alike_share_their_rows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert ringwright.cli.main(f"workload {LLAMA} --all-stages".split()) == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(line for line in lines if line.split()[:2] == ["stage", "phase"])
    assert head.split() == ["stage", "phase", "layer", "role", "op", "ranks", "count", "size", "in", "all"]
    assert {line.split()[2] for line in lines if " dp " in line and "training" not in line} == {"several"}
    assert {" ".join(line.split()[2:4]) for line in lines if " pp " in line and "training" not in line} == {
        "other stage"
    }
    assert {line.split()[0] for line in lines if " dp " in line and "training" not in line} >= {"0", "1-14", "15"}
