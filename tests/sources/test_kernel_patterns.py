"""Rules of a user's own for kernels, and ranks from the names of files: through the command line and through ``read``."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from kineto_traces import Maker
from ringwright.cli import main
from ringwright.cli.application import explain
from ringwright.cli.recording_options import HELP, READING, told
from ringwright.cli.verbs import VERBS
from ringwright.formats.sources import read
from ringwright.formats.sources.kineto.catalogue import Kernel, load
from ringwright.formats.sources.ranks import compiled, named_by, rank_in_name
from ringwright.ground.errors import InputError, UsageError
from shared_data import data_folder, is_present, needs_shared_data

OURS = """
[[kernel]]
class = "ours"
pattern = "^my_moe_(?:dispatch|combine)"
op = "all-to-all"
"""
MANGLED = {
    "_ZN4vllm26cross_device_reduce_1stageIDF16bLi8EEEvPNS_8RankDataE": Kernel("custom-all-reduce", "all-reduce"),
    "_ZN7deep_ep9intranode8dispatchILi8ELi768EEEvP4int4": Kernel("deepep", "all-to-all"),
    "_ZN12_GLOBAL__N_126multimem_all_reduce_kernelIfEEvPT_": Kernel("multimem", "all-reduce"),
    "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bEEv": Kernel("compute"),
    "_Z9scale_addPfi": Kernel("compute"),
    "mori::moe::EpDispatchIntraNodeKernel<__hip_bfloat16>(x)": Kernel("mori", "all-to-all"),
    "void pplx::internode::combineKernel<4>(x)": Kernel("pplx", "all-to-all"),
    "rcclDevKernel_AllReduce(x)": Kernel("rccl", "all-reduce"),
}


@pytest.mark.parametrize("name", MANGLED)
def test_names_as_the_linker_has_them(name: str) -> None:
    assert load().classify(name) == MANGLED[name]


@pytest.mark.parametrize("name", ["_Z", "_ZN", "_ZN9999a", "_ZN4vllm" * 400, "_ZN0x", "_ZN3a::"])
def test_broken_names_are_no_error(name: str) -> None:
    assert load().classify(name).library in ("compute", "unknown-communication")


def trace_of(folder: Path, name: str, rank: int | None = None) -> Path:
    maker = Maker(rank=rank)
    maker.step(1, 0.0, 100.0)
    maker.collective(10.0, 20.0)
    maker.kernel("my_moe_dispatch<8>(int*)", 40.0, 10.0)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(maker.text())
    return folder / name


def test_rules_of_a_user_come_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, rules = trace_of(tmp_path, "rank0.json", 0), tmp_path / "mine.toml"
    rules.write_text(OURS)
    assert set(read(str(path)).df.filter(kind="collective")["op"]) == {"all-reduce"}
    trace = read(str(path), kernel_patterns=rules)
    assert trace.df.filter(kernel_class="ours")["op"].to_list() == ["all-to-all"]
    assert main(["summary", str(path), "--kernel-patterns", str(rules), "--json"]) == 0
    told_ops = {row["op"] for row in json.loads(capsys.readouterr().out)["operations"]}
    assert told_ops == {"all-reduce", "all-to-all"}
    assert not read(str(path)).df.filter(kernel_class="ours").height  # the rules hold for one reading


def test_rules_hold_for_nsight_exports_too(tmp_path: Path) -> None:
    from nsys_export import write

    path, rules = write(tmp_path / "rank0.sqlite"), tmp_path / "mine.toml"
    rules.write_text(OURS.replace("^my_moe_(?:dispatch|combine)", "^gemm"))
    assert read(str(path), kernel_patterns=rules).df.filter(kernel_class="ours")["op"].to_list() == ["all-to-all"]


@pytest.mark.parametrize(
    ("text", "what"), [("[[kernel]]\npattern = 3", "pattern"), ("x", "catalogue"), (None, "catalogue")]
)
def test_a_file_of_rules_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, what: str
) -> None:
    path, rules = trace_of(tmp_path, "rank0.json", 0), tmp_path / "mine.toml"
    if text is not None:
        rules.write_text(text)
    with pytest.raises(InputError, match=what):
        read(str(path), kernel_patterns=rules)
    assert main(["summary", str(path), f"--kernel-patterns={rules}"]) == 3
    assert what in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------- ranks from names
@pytest.mark.parametrize(
    ("pattern", "name", "rank"),
    [
        ("worker-{rank}-*.json", "/job/worker-12-n3.json", 12),
        ("dp{rank}/trace.json", "/job/dp3/trace.json", 3),
        ("dp{rank}/trace", "/job/dp3/trace.json.gz", 3),
        (r"tp(\d+)_", "/job/rank9_tp4_x.json", 4),
        (r"n\d+g(?P<rank>\d+)", "/job/n2g7.json", 7),
        ("{rank}", "/job/8/5.json", 5),
        (r"tp(\d+)_", "/job/rank9.json", 9),  # not in the name: what is usual
    ],
)
def test_ranks_by_a_pattern(pattern: str, name: str, rank: int) -> None:
    with named_by(pattern):
        assert rank_in_name(name) == rank
    assert rank_in_name("/job/rank9_tp4_x.json") == 9


@pytest.mark.parametrize("pattern", ["rank", "(a)(b)", "(", "{rank}-{rank}", ""])
def test_a_pattern_that_says_no_rank_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="--rank-from"):
        compiled(pattern)


def test_traces_without_a_rank_get_it_from_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (5, 3):
        trace_of(tmp_path, f"job/dp{rank}/trace.json")
    files = [str(tmp_path / f"job/dp{rank}/trace.json") for rank in (5, 3)]
    assert set(read(files).df["rank"].drop_nulls()) == {0, 1}
    assert set(read(files, rank_from="dp{rank}/trace.json").df["rank"].drop_nulls()) == {3, 5}
    assert (
        main(["query", "select distinct rank from events order by rank", *files, "--rank-from", r"dp(\d+)/", "--json"])
        == 0
    )
    out = capsys.readouterr().out
    assert "3" in out
    assert "5" in out


def test_a_pattern_that_no_name_has_is_refused_and_one_that_some_lack_is_told(tmp_path: Path) -> None:
    files = [str(trace_of(tmp_path, name)) for name in ("w1.json", "x.json")]
    with pytest.raises(UsageError, match="finds no rank in"):
        read(files, rank_from=r"dp(\d+)")
    assert any("x.json: --rank-from" in loss for loss in read(files, rank_from=r"w(\d+)").meta["losses"])


def test_options_stand_before_and_behind_a_verb_and_are_taken_once() -> None:
    with told(["summary", "a", "--rank-from=x{rank}", "--", "--rank-from", "y"]) as words:
        assert words == ["summary", "a", "--", "--rank-from", "y"]
    with told(["list", "--rank-from", "x"]) as words:  # a verb that reads nothing knows no such option
        assert words == ["list", "--rank-from", "x"]
    for wrong in (["summary", "--rank-from"], ["summary", "--rank-from", "x{rank}", "--rank-from", "x{rank}"]):
        with pytest.raises(UsageError), told(wrong):
            pass


def test_the_help_of_readers_tells_of_both() -> None:
    from ringwright.cli.application import app

    assert set(VERBS) >= READING
    application = app()
    explain(application, ["summary", "--help"])
    assert HELP in application["summary"].help_epilogue
    assert len(HELP) <= 120


@needs_shared_data
@pytest.mark.parametrize(
    ("name", "most"), [("vllm_decode_full_graph_execution", 15), ("sglang_Qwen3-8B_prefilldecode", 7)]
)
def test_inference_on_one_device_has_groups_of_one_and_no_kernel_that_communicates(name: str, most: int) -> None:
    if not is_present():
        pytest.skip("no real recordings")
    trace = read(str(data_folder() / f"real/more-profilers/tracelens_{name}.json.gz"))
    assert trace.table("communicators")["size"].to_list() == [1] * most
    classes = trace.df.filter(pl.col("kernel_class").is_not_null())["kernel_class"].unique().to_list()
    assert set(classes) <= {"compute", "memory"}
