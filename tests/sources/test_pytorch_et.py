"""PyTorch execution traces: four schemas, groups, ranks, no call counted twice."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ringwright.formats.sources.c10d import operation, sizes
from ringwright.formats.sources.detect import detect
from ringwright.formats.sources.gate.inputs import find
from ringwright.formats.sources.pytorch_et import read_pytorch_et
from ringwright.ground.errors import InputError
from shared_data import needs_shared_data, real
from written import sources, tar_of


def node(
    ident: int,
    name: str,
    values: list[Any],
    *,
    types: list[str] | None = None,
    outputs: list[Any] = [],  # noqa: B006
    parent: int = 2,
) -> dict[str, Any]:
    return {
        "id": ident,
        "name": name,
        "ctrl_deps": parent,
        "inputs": {"values": values, "shapes": [], "types": types or []},
        "outputs": {"values": outputs, "shapes": [], "types": []},
        "attrs": [],
    }


def tensor(elements: int, width: int = 4) -> list[Any]:
    return [1, 2, 0, elements, width, "cuda:0"]


def document(*nodes: dict[str, Any], schema: str = "1.0.3-chakra.0.0.4") -> bytes:
    return json.dumps({"schema": schema, "pid": 7, "nodes": list(nodes)}).encode()


def comms(
    ident: int, op: str, values: Any, *, seq: int, group: str = "0", rank: int = 0, size: int = 4, outputs: Any = None
) -> dict[str, Any]:
    said = [values, seq, [group, "default_pg"], rank, op, [], [], 0, 1, size]
    return node(ident, "record_param_comms", said, types=["Tensor(c10::BFloat16)"], outputs=outputs or [])


GROUPS = node(
    3,
    "## process_group:init ##",
    [
        json.dumps(
            [
                {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 4},
                {"pg_name": "7", "pg_desc": "tp", "ranks": [1, 3], "group_size": 2},
            ]
        )
    ],
)


def test_only_the_middle_one_of_three_nodes_counts(tmp_path: Path) -> None:
    data = document(
        node(4, "c10d::allreduce_", [[tensor(10, 2)]]),
        comms(5, "allreduce", [tensor(10, 2)], seq=9, rank=3),
        node(6, "nccl:all_reduce", [tensor(10, 2)]),
        node(7, "record_param_comms", [9, ["", ""], 3, "wait", [], [], -1, -1, 1]),
    )
    frame = read_pytorch_et(sources(tmp_path, {"et.json": data})).df
    assert frame.select("op", "rank", "sequence", "size_bytes", "datatype", "nranks").rows() == [
        ("all-reduce", 3, 9, 20, "bfloat16", 4)
    ]


def test_groups_and_ranks_come_from_the_init_node(tmp_path: Path) -> None:
    call = comms(5, "all_gather", [tensor(8, 2)], seq=1, group="7", rank=1, outputs=[[[tensor(8, 2), tensor(8, 2)]]])
    trace = read_pytorch_et(sources(tmp_path, {"et.json": document(GROUPS, call)}))
    row = trace.df.row(0, named=True)
    assert (row["rank"], row["comm_rank"], row["nranks"], row["size_bytes"], row["sent_bytes"]) == (3, 1, 2, 32, 16)
    assert trace.table("communicators").select("comm_id", "name", "members").rows() == [("7", "tp", [1, 3])]
    assert trace.meta["world"] == 4


def test_the_root_is_not_taken_for_the_rank(tmp_path: Path) -> None:
    nodes = comms(5, "broadcast", [tensor(4)], seq=1, rank=0), comms(6, "allreduce", [tensor(4)], seq=2, rank=2)
    frame = read_pytorch_et(sources(tmp_path, {"et.json": document(GROUPS, *nodes)})).df
    assert frame.select("op", "rank", "root").rows() == [("broadcast", 2, 0), ("all-reduce", 2, None)]


def test_coalesced_calls_that_share_a_number_are_counted(tmp_path: Path) -> None:
    files = {
        f"rank{rank}.json": document(
            GROUPS, *(comms(5 + k, "allreduce", [tensor(4)], seq=1, rank=rank) for k in range(3))
        )
        for rank in range(2)
    }
    trace = read_pytorch_et(sources(tmp_path, files))
    assert trace.df["sequence"].to_list() == [0, 1, 2, 0, 1, 2]
    assert any(claim["field"] == "sequence" for claim in trace.table("claims").to_dicts())


def test_points_have_peers_and_no_sequence(tmp_path: Path) -> None:
    nodes = comms(5, "send", [tensor(4)], seq=1, rank=3), comms(6, "recv", [tensor(4)], seq=2, rank=1)
    frame = read_pytorch_et(sources(tmp_path, {"rank0.json": document(GROUPS, *nodes)})).df
    assert frame.select("kind", "op", "peer", "sequence", "size_bytes").rows() == [
        ("p2p", "send", 3, None, 16),
        ("p2p", "recv", 1, None, 16),
    ]


def test_an_unknown_schema_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"schema '2\.0\.0'"):
        read_pytorch_et(sources(tmp_path, {"et.json": document(GROUPS, schema="2.0.0")}))


def test_a_cut_file_keeps_its_nodes(tmp_path: Path) -> None:
    data = document(GROUPS, *(comms(5 + k, "allreduce", [tensor(4)], seq=k) for k in range(20)))
    trace = read_pytorch_et(sources(tmp_path, {"et.json": data[: len(data) * 3 // 4]}))
    assert 10 <= trace.df.height < 20
    assert any("the rest not" in loss for loss in trace.meta["losses"])
    packed = gzip.compress(data, 0)
    again = read_pytorch_et(sources(tmp_path, {"et.json.gz": packed[: len(packed) // 2]}))
    assert 5 <= again.df.height < 20


def test_a_tar_with_one_bad_file(tmp_path: Path) -> None:
    good = document(GROUPS, comms(5, "allreduce", [tensor(4)], seq=1))
    packed = tar_of({"et/rank0.json": good, "et/rank1.json": b"{]", "et/._rank0.json": b"\0\1"})
    trace = read_pytorch_et(sources(tmp_path, {"et.tar": packed}))
    assert trace.df.height == 1
    assert len(trace.meta["losses"]) == 1


@pytest.mark.parametrize(
    ("spelled", "op"),
    [
        ("allreduce_coalesced", "all-reduce"),
        ("_reduce_scatter_base", "reduce-scatter"),
        ("all_to_allv", "all-to-all"),
        ("allgather_into_tensor_coalesced", "all-gather"),
        ("nccl:all_gather", "all-gather"),
        ("wait", None),
        ("init", None),
        ("barrier", "barrier"),
        ("c10d::broadcast_", "broadcast"),
        ("something", "unknown"),
    ],
)
def test_operations(spelled: str, op: str | None) -> None:
    assert operation(spelled) == op


def test_sizes_of_writers_that_give_one_peers_buffer() -> None:
    assert sizes("all-gather", 10, 40, 4).size == sizes("all-gather", 10, 10, 4).size == 40
    assert sizes("reduce-scatter", 40, 10, 4).size == sizes("reduce-scatter", 10, 10, 4).size == 40
    assert sizes("all-gather", 10, None, None).size is None


REAL = {
    "chakra/pytorch_et/1.0.2-chakra.0.0.4.tgz": {"all-gather": 10},
    "pytorch-et/param_1.0.3_resnet_1gpu_et.json.gz": {"all-reduce": 15, "broadcast": 6},
    "chakra/pytorch_et/resnet_2gpu_et.json.gz": {"all-reduce": 15, "broadcast": 6},
    "pytorch-et/param_dlrm_pytorch_et.tar.gz": {"all-reduce": 24, "all-to-all": 40},
    "chakra/pytorch_et/linear_et.json.gz": {},
    "chakra/pytorch_et/benchmark_simple_add_et.json.gz": {},
}


@needs_shared_data
@pytest.mark.parametrize("path", REAL)
def test_real_traces(path: str) -> None:
    found = find([str(real(f"real/{path}"))])
    assert detect(found[0]) == ("pytorch-et",)
    trace = read_pytorch_et(found)
    assert dict(trace.df.group_by("op").len().rows()) == REAL[path]
    if not REAL[path]:
        assert "no collective" in trace.meta["losses"][0]


@needs_shared_data
def test_real_sizes_ranks_and_phases() -> None:
    resnet = read_pytorch_et(find([str(real("real/chakra/pytorch_et/resnet_2gpu_et.json.gz"))])).df
    assert resnet["rank"].unique().to_list() == [1]
    assert resnet["sequence"].to_list() == list(range(33, 54))
    step = resnet.filter(pl.col("op") == "all-reduce")["size_bytes"].to_list()[:5]
    assert step == [8196000, 31502336, 26255360, 26550272, 9724160]  # as in the Chakra trace of the same model
    assert set(resnet.filter(pl.col("op") == "all-reduce")["phase"]) == {"backward"}
    dlrm = read_pytorch_et(find([str(real("real/pytorch-et/param_dlrm_pytorch_et.tar.gz"))]))
    assert dlrm.meta["world"] == 8
    assert dlrm.df.group_by("sequence").len()["len"].unique().to_list() == [8]  # every call joins all eight ranks
    uneven = dlrm.df.filter(pl.col("sequence") == 150).sort("rank")
    assert uneven["sent_bytes"].to_list() == [13568] * 8
    assert uneven["received_bytes"].sum() == uneven["sent_bytes"].sum()
