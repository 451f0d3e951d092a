"""Axes of a sweep for the library between ranks: backend, nodes, settings, library; what does not run here is simulated and says so."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ringwright.ground.errors import UsageError
from ringwright_lab.reports import swept
from ringwright_lab.sweep import run, simulated
from ringwright_lab.sweep.checks import check
from ringwright_lab.sweep.environment import knobs, library_of, settings
from ringwright_lab.sweep.grid import grid_of, legal
from ringwright_lab.sweep.point import GridPoint
from ringwright_lab.sweep.run import sweep
from ringwright_lab.sweep.table import gather

pytestmark = pytest.mark.once

NCCL = GridPoint("llama", parallel="ddp:dp=8", backend="nccl")
MPI = GridPoint("llama", parallel="ddp:dp=4", backend="mpi")
ALLREDUCE = "OMPI_MCA_coll_tuned_use_dynamic_rules=1 OMPI_MCA_coll_tuned_allreduce_algorithm"


@cache
def time_us(point: GridPoint) -> float:
    """Return the simulated communication of an iteration."""
    (row,) = (row for row in simulated.rows(point) if row["what"] == "communication")
    return float(row["time_us_p50"])


# ------------------------------------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("point", "what", "remedy"),
    [
        (replace(NCCL, backend="ncll"), "'ncll' is no backend", "gloo, nccl, mpi"),
        (replace(NCCL, library="nccl"), "'nccl' is no library", "nccl-2-4, open-mpi"),
        (replace(NCCL, library="open-mpi"), "no library of backend 'nccl'", "nccl-2-4"),
        (replace(NCCL, backend="gloo", library="nccl-2-4"), "no library of backend 'gloo'", "leave library out"),
        (replace(NCCL, env="NCCL_ALGO"), "'NCCL_ALGO' is no setting", "NCCL_ALGO=Ring"),
        (replace(NCCL, env="NCCL_ALGO=Rign"), "NCCL_ALGO=Rign is not understood", "ring"),
        (replace(NCCL, env="NCCL_PROTO=LL256"), "NCCL_PROTO=LL256 is not understood", "ll128"),
        (replace(NCCL, env="NCCL_ALGO=Ring NCCL_ALGO=Tree"), "set twice", "once"),
        (replace(NCCL, env="NCCL_NTHREADS=256"), "a cell has no setting 'NCCL_NTHREADS'", "NCCL_MAX_NCHANNELS"),
        (replace(NCCL, env="NCCL_MIN_NCHANNELS=0"), "no number of 1 or more", "NCCL_MIN_NCHANNELS=4"),
        (replace(NCCL, env="NCCL_MIN_NCHANNELS=8 NCCL_MAX_NCHANNELS=4"), "at least 8 and at most 4", "the larger"),
        (replace(NCCL, env="NCCL_BUFFSIZE=1024"), "no number of 65536 or more", "NCCL_BUFFSIZE=65536"),
        (replace(NCCL, env="GLOO_SOCKET_IFNAME=lo"), "no setting 'GLOO_SOCKET_IFNAME'", "NCCL_ALGO"),
        (replace(NCCL, nodes=3), "do not lie evenly on 3 nodes", "nodes that divide"),
        (replace(NCCL, parallel="ddp:dp=64", nodes=2), "has no 32 ranks on each of 2 nodes", "nodes = 8"),
        (replace(NCCL, nodes=0), "nodes = 0", "1 or more"),
        (replace(NCCL, world=8), "it has no world", "leave world out"),
        (replace(NCCL, fault="link rank0 loss 1%"), "it has no fault", "gloo"),
        (replace(NCCL, parallel="none"), "communicates with nobody", "ddp:dp=2"),
        (replace(MPI, library="nccl-2-4"), "no library of backend 'mpi'", "open-mpi, mpich2, mvapich"),
        (replace(MPI, env="OMPI_MCA_btl=tcp"), "no setting 'OMPI_MCA_btl'", "allreduce_algorithm"),
        (replace(MPI, env=ALLREDUCE.split()[1] + "=3"), "dynamic rules alone", "use_dynamic_rules=1"),
        (replace(MPI, env=ALLREDUCE + "=ring"), "no number of 1 or more", "=4"),
        (replace(MPI, library="mpich2", env=ALLREDUCE + "=3"), "no settings of mpich2", "leave env out"),
        (replace(MPI, parallel="pp:pp=2", micro_batches=2), "collectives alone", "nccl"),
        (
            GridPoint("llama", parallel="ddp:dp=2", env="NCCL_ALGO=Ring"),
            "gloo has no setting 'NCCL_ALGO'",
            "GLOO_SOCKET",
        ),
        (GridPoint("llama", parallel="ddp:dp=2", nodes=2), "this machine is one node", "switch:2"),
        (
            GridPoint("llama", parallel="ddp:dp=4", nodes=2, fabric="switch:4,rate=100Mb/s"),
            "each of 4 ranks of a lab is a node",
            "nodes = 4",
        ),
        (
            GridPoint("llama", parallel="ddp:dp=2", world=2, env="GLOO_SOCKET_IFNAME=lo"),
            "a fake job has no library",
            "leave out env",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(point: GridPoint, what: str, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        check(point)
    assert what in caught.value.what
    assert remedy in caught.value.remedy


def test_what_goes_together_is_taken() -> None:
    for point in (
        NCCL,
        MPI,
        replace(NCCL, nodes=2, env="NCCL_ALGO=Tree NCCL_PROTO=LL128 NCCL_MIN_NCHANNELS=2", library="nccl-2-4@2.21"),
        replace(NCCL, fabric="dgx-a100:2", nodes=2),
        replace(MPI, env=f"{ALLREDUCE}=4", nodes=2),
        GridPoint("llama", parallel="ddp:dp=4", nodes=4, fabric="switch:4,rate=100Mb/s"),
        GridPoint("llama", parallel="ddp:dp=2", env="GLOO_SOCKET_IFNAME=lo TORCH_GLOO_LAZY_INIT=1"),
    ):
        check(point)


def test_axes_make_combinations() -> None:
    axes = {
        "model": ["llama"],
        "parallel": ["ddp:dp=8"],
        "backend": ["nccl"],
        "nodes": [1, 2, 3],
        "env": ["", "NCCL_ALGO=Ring"],
    }
    grid = grid_of(axes)
    assert {(point.nodes, point.env) for point in grid.points} == {
        (nodes, env) for nodes in (1, 2) for env in ("", "NCCL_ALGO=Ring")
    }
    assert {point.nodes for point, _ in grid.left_out} == {3}


@pytest.mark.parametrize(
    ("axis", "value"), [("backend", "ncll"), ("env", "NCCL_ALGO=Rign"), ("env", "NCCL_ALGOS=Ring"), ("library", "nccl")]
)
def test_a_value_that_does_not_exist_ends_the_sweep_before_it_begins(axis: str, value: str) -> None:
    axes = {"model": ["llama"], "parallel": ["ddp:dp=8"], "backend": ["nccl"]}
    with pytest.raises(UsageError):
        grid_of({**axes, axis: [*axes.get(axis, []), value]})


def test_what_is_left_out_says_what_helps() -> None:
    grid = grid_of(
        {"model": ["llama"], "parallel": ["ddp:dp=2"], "backend": ["gloo", "nccl"], "env": ["NCCL_ALGO=Ring"]}
    )
    assert [point.backend for point in grid.points] == ["nccl"]
    ((_, why),) = grid.left_out
    assert "gloo has no setting 'NCCL_ALGO'; one of: GLOO_SOCKET_IFNAME" in why


# ----------------------------------------------------------------------------------------------- what settings mean
def test_settings_are_knobs_of_the_model() -> None:
    assert settings("A=1 B=x,y") == {"A": "1", "B": "x,y"}
    asked = replace(NCCL, env="NCCL_ALGO=NVLSTree NCCL_PROTO=Simple")
    assert knobs(asked, "all-reduce") == {"algorithm": "nvls_tree", "protocol": "simple"}
    assert knobs(asked, "all-to-all") == {}
    assert knobs(replace(NCCL, env="NCCL_BUFFSIZE=8388608"), "all-reduce") == {"buffer_bytes": 8 << 20}
    limited = replace(NCCL, env="NCCL_MIN_NCHANNELS=4 NCCL_MAX_NCHANNELS=8")
    assert [knobs(limited, "all-reduce", channels) for channels in (2, 6, 16)] == [{"channels": 4}, {}, {"channels": 8}]
    tuned = replace(MPI, env=f"{ALLREDUCE}=4 OMPI_MCA_coll_tuned_allreduce_algorithm_segmentsize=65536")
    assert knobs(tuned, "all-reduce") == {"algorithm": 4, "segment_bytes": 65536}
    assert knobs(tuned, "broadcast") == {}
    assert library_of(NCCL) == "nccl-2-4"
    assert library_of(replace(MPI, library="mvapich")) == "mvapich"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "other",
    [
        {"env": "NCCL_ALGO=Ring"},
        {"env": "NCCL_PROTO=LL"},
        {"env": "NCCL_MAX_NCHANNELS=1"},
        {"env": "NCCL_BUFFSIZE=65536"},
        {"nodes": 4},
        {"library": "nccl-2-4@2.18"},
        {"fabric": "dgx-a100:2"},
    ],
)
def test_each_axis_is_noticed(other: dict[str, Any]) -> None:
    asked = replace(NCCL, size="llama3-8b", nodes=2)
    assert time_us(replace(asked, **other)) != time_us(asked)


def test_settings_of_open_mpi_are_noticed() -> None:
    times = [time_us(replace(MPI, env=env)) for env in ("", f"{ALLREDUCE}=1", f"{ALLREDUCE}=3", f"{ALLREDUCE}=4")]
    assert len(set(times)) >= 3
    assert time_us(replace(MPI, library="mpich2")) > 0
    spread = replace(MPI, library="mvapich", parallel="ddp:dp=8")
    assert time_us(replace(spread, nodes=2)) != time_us(spread)


def test_groups_lie_on_the_machine() -> None:
    both = replace(NCCL, parallel="tp+fsdp:tp=4,dp=4", nodes=2)
    _, ranks = simulated.machine(both)
    assert ranks == (*range(8), *range(8, 16))
    assert simulated.group(both, "tp", ranks) == (0, 1, 2, 3)
    assert simulated.group(both, "dp", ranks) == (0, 4, 8, 12)
    half = replace(NCCL, nodes=2)
    _, ranks = simulated.machine(half)
    assert ranks == (0, 1, 2, 3, 8, 9, 10, 11)
    assert simulated.group(replace(half, parallel="pp:pp=8"), "pp", ranks) == (0, 1)


# ------------------------------------------------------------------------------------------------ what is written
def test_a_simulated_cell_is_never_passed_off_as_measured(tmp_path: Path) -> None:
    import polars as pl

    grid = legal([replace(NCCL, nodes=2), replace(MPI, mode="training")])
    assert sweep(grid, tmp_path).counts == {"run": 2, "kept": 0, "failed": 0}
    result = gather(tmp_path)
    assert {cell["ground"] for cell in result["cells"]} == {"simulated"}
    assert (result["checked"], result["patterns"]) == (0, [])
    table = pl.read_parquet(result["table"])
    assert set(table["ground"]) == {"simulated"}
    assert set(table["what"]) == {"collective", "communication"}
    assert "step" not in set(table["what"])
    assert set(table["simulated_by"]) == {"nccl-2-4", "open-mpi"}
    facts = json.loads((tmp_path / "cells" / replace(NCCL, nodes=2).key / "cell.json").read_text())
    assert (facts["ground"], facts["simulated_by"]) == ("simulated", "nccl-2-4")
    assert "CPUs" in facts["simulated_for"]
    out = io.StringIO()
    swept.write(result | {"counts": {"run": 2, "kept": 0, "failed": 0}, "left_out": []}, out, width=80)
    words = " ".join(out.getvalue().split())
    assert "nothing of it was measured" in words
    assert max(map(len, out.getvalue().splitlines()[:-1])) <= 80
    page = swept.page(result, "ringwright sweep")
    assert "Simulated, not measured" in page


def test_a_recording_that_is_not_ours_is_not_read(tmp_path: Path) -> None:
    point = replace(NCCL, nodes=2)
    sweep(legal([point]), tmp_path)
    (tmp_path / "cells" / point.key / "simulated.json").write_text('[{"ground": "measured"}]')
    assert [cell["outcome"] for cell in gather(tmp_path)["cells"]] == ["unreadable"]


def test_what_a_prompt_and_a_token_cost() -> None:
    served = GridPoint("llama", parallel="tp:tp=4", mode="inference", backend="nccl", sequence=64)
    rows = simulated.rows(served)
    assert {row["turn"] for row in rows} == {"prompt", "token"}
    prompt, token = (
        next(row for row in rows if row["turn"] == turn and row["what"] == "communication")
        for turn in ("prompt", "token")
    )
    assert prompt["bytes_per_iteration"] > token["bytes_per_iteration"]
    assert prompt["calls"] == token["calls"]


def test_settings_of_gloo_reach_the_ranks(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    def ask(given: dict[str, Any]) -> dict[str, Any]:
        asked.append(given)
        return {"codes": [0, 0], "is_late": False, "cpu_s": 0.0}

    point = GridPoint("llama", parallel="ddp:dp=2", env="GLOO_SOCKET_IFNAME=lo")
    run.run_point(point, tmp_path / "cell", ask, timeout_s=1.0)
    assert asked[0]["environment"]["GLOO_SOCKET_IFNAME"] == "lo"


def test_only_real_ranks_need_the_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise AssertionError("no library is needed")

    monkeypatch.setattr(run, "_check_libraries", missing)
    assert sweep(legal([NCCL]), tmp_path).counts["run"] == 1
    with pytest.raises(AssertionError):
        sweep(legal([GridPoint("llama", parallel="ddp:dp=2")]), tmp_path)


def test_folders_of_older_sweeps_keep_their_names() -> None:
    assert GridPoint("llama", parallel="ddp:dp=2").key == "llama_tiny_ddp-dp2_training_3b2e6cdd98"
    assert GridPoint("llama", parallel="ddp:dp=2", nodes=2).key != GridPoint("llama", parallel="ddp:dp=2").key
