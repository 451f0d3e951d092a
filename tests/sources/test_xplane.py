"""Traces of XLA's profiler: programs whose collectives are known, recorded by JAX on the CPU, and made ones for what it has not."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ringwright.formats.sources import read
from ringwright.formats.sources.kinds import MAGIC, NO, xplane
from ringwright.formats.sources.wire import WireError
from ringwright.formats.sources.xplane import read_xplane
from ringwright.formats.sources.xplane.device_groups import Assignment, iota, mesh_axes, of_devices
from ringwright.formats.sources.xplane.program import shape as shape_of
from ringwright.ground.errors import InputError
from ringwright.model.trace import Trace
from ringwright.native import events, twin_events
from written import block, double, number, sources, varint
from xplane_file import (
    BF16,
    PlaneMaker,
    computation,
    groups,
    hlo,
    instruction,
    programs,
    shape,
    shapes,
    space,
    summing,
)

FOLDER = Path(__file__).parent / "xla"
MESH = FOLDER / "mesh.xplane.pb.gz"
COLUMNS = ("op", "size_bytes", "nranks", "reduce_op")
GLOBAL = number(26, 1) + number(71, 1)  # a channel, and groups of flattened numbers


def calls(trace: Trace) -> pl.DataFrame:
    return trace.df.filter(pl.col("kind").is_in(["collective", "p2p"]))


def table(trace: Trace) -> set[tuple[object, ...]]:
    """Return operation, size, ranks, reduction, rows and logical operations of each kind of call."""
    counted = calls(trace).group_by(COLUMNS).agg(pl.len(), pl.col("communicator").n_unique().alias("groups"))
    return set(counted.rows())


# ------------------------------------------------------------------------------------------- recorded, answers known
def test_a_mesh_has_the_groups_and_sizes_of_its_program() -> None:
    """256 floats a device on 2 x 4 devices, three steps: what ``record.py`` writes down, times three."""
    trace = read(str(MESH))
    assert table(trace) == {
        ("all-reduce", 4 * 256, 4, "sum", 24, 2),
        ("all-reduce", 4 * 16, 2, "max", 24, 4),
        ("all-gather", 8 * 4 * 256, 8, None, 24, 1),
        ("reduce-scatter", 8 * 4 * 256, 4, "sum", 24, 2),
        ("send", 4 * 256, 8, None, 12, 1),
        ("recv", 4 * 256, 8, None, 12, 1),
    }
    assert trace.meta["world"] == 8
    members = {tuple(row) for row in trace.table("communicators")["members"].to_list()}
    assert {(0, 1, 2, 3), (4, 5, 6, 7), (0, 4), (3, 7), (0, 1, 2, 3, 4, 5, 6, 7)} <= members
    assert not trace.meta["losses"]


def test_a_shift_sends_from_one_half_to_the_other() -> None:
    shifts = calls(read(str(MESH))).filter(op="send").select("rank", "peer").unique().sort("rank").rows()
    assert shifts == [(0, 4), (1, 5), (2, 6), (3, 7)]


def test_every_rank_counts_the_same_operations_alike() -> None:
    """A sequence number names one operation on every rank of the group: size and instruction agree, each rank has it once."""
    rows = calls(read(str(MESH))).filter(pl.col("kind") == "collective")
    alike = rows.group_by("communicator", "sequence").agg(
        pl.len(),
        pl.col("rank").n_unique().alias("ranks"),
        pl.col("task").n_unique(),
        pl.col("nranks").first(),
        "iteration",
    )
    assert alike.select((pl.col("len") == pl.col("nranks")) & (pl.col("ranks") == pl.col("nranks"))).to_series().all()
    assert alike["task"].to_list() == [1] * len(alike)
    assert all(len(set(steps)) == 1 for steps in alike["iteration"])


def test_everybody_is_in_a_collective_at_one_time() -> None:
    """On one clock the last to begin begins before the first to end: true of what synchronises, and of no wrong pairing."""
    rows = (
        calls(read(str(MESH)))
        .filter(pl.col("op") == "all-reduce")
        .with_columns((pl.col("start_s") + pl.col("duration_s")).alias("end_s"))
    )
    spans = rows.group_by("communicator", "sequence").agg(pl.col("start_s").max(), pl.col("end_s").min())
    assert (spans["start_s"] < spans["end_s"]).all()


def test_what_the_compiler_adds_for_sharded_weights() -> None:
    """Two weights of 256 x 256 floats are gathered; both gradients and the loss are summed in one operation."""
    trace = read(str(FOLDER / "sharded.xplane.pb.gz"))
    assert table(trace) == {
        ("all-gather", 4 * 256 * 256, 8, None, 48, 1),
        ("all-reduce", 2 * 4 * 256 * 256 + 4, 8, "sum", 24, 1),
    }
    gathers = calls(trace).filter(op="all-gather")
    assert gathers["sent_bytes"].unique().to_list() == [4 * 256 * 256 // 8]
    assert gathers["text"].str.contains("sharding_constraint").all()


def test_two_processes_are_one_job() -> None:
    """Devices 0, 1, 2048 and 2049 of two files are ranks 0 to 3 of one group, on one clock."""
    trace = read([str(FOLDER / f"two.{rank}.xplane.pb.gz") for rank in (0, 1)])
    assert table(trace) == {("all-reduce", 4000, 4, "sum", 12, 1), ("all-gather", 16000, 4, None, 12, 1)}
    assert trace.meta["world"] == 4
    devices = trace.table("topology").sort("rank")
    assert devices.select("rank", "device").rows() == [(0, 0), (1, 1), (2, 2048), (3, 2049)]
    assert devices["pid"].n_unique() == 2
    rows = calls(trace)
    per = rows.group_by("op", "sequence").agg(pl.len(), pl.col("rank").n_unique().alias("ranks"))
    assert set(per.select("len", "ranks").rows()) == {(4, 4)}
    spans = rows.group_by("op", "sequence").agg(
        pl.col("start_s").max(), (pl.col("start_s") + pl.col("duration_s")).min().alias("end_s")
    )
    assert (spans["start_s"] < spans["end_s"]).all()  # the wall clocks of the two files are one


def test_one_of_two_files_knows_its_ranks() -> None:
    trace = read(str(FOLDER / "two.1.xplane.pb.gz"))
    assert sorted(calls(trace)["rank"].unique()) == [2, 3]
    assert trace.meta["world"] == 4


def test_steps_and_runs_are_joined() -> None:
    trace = read(str(MESH))
    steps = trace.df.filter(kind="step")
    assert sorted(steps["iteration"].unique()) == [0, 1, 2]
    assert steps["rank"].n_unique() == 8
    bounds = {
        row["iteration"]: (row["start_s"], row["start_s"] + row["duration_s"]) for row in steps.iter_rows(named=True)
    }
    for row in calls(trace).iter_rows(named=True):
        low, high = bounds[row["iteration"]]
        assert low <= row["start_s"] <= row["start_s"] + row["duration_s"] <= high


def test_the_compiled_events_and_their_twin_agree() -> None:
    data = gzip.decompress(MESH.read_bytes())
    draw = np.random.default_rng(7)
    for _ in range(60):
        at = int(draw.integers(0, len(data) - 3000))
        piece = bytearray(data[at : at + int(draw.integers(0, 3000))])
        message = b"".join(block(4, bytes(piece[k : k + 40])) for k in range(0, len(piece), 40)) + bytes(piece[:30])
        one, other = events(message, [1, 2, 3, 11]), twin_events.events(message, [1, 2, 3, 11])
        assert one["is_whole"] == other["is_whole"]
        for name in ("name", "start_ps", "duration_ps", "is_count", "value", "form"):
            np.testing.assert_array_equal(one[name], other[name])


def test_values_of_every_form_agree_too() -> None:
    stats = [number(1, 1) + number(3, 2**63 + 5), number(1, 2) + number(4, 2**64 - 9), number(1, 3) + double(2, 1.5)]
    stats += [number(1, 11) + block(5, "text"), number(1, 1) + block(8, b"packed"), number(1, 2)]
    event = number(1, 2**64 - 1) + number(2, 7) + number(5, 3) + b"".join(block(4, stat) for stat in stats)
    message = number(1, 9) + block(4, event) + block(4, number(1, 5)) + b"\x25abcd" + b"\x21abcdefgh" + block(4, b"")
    one, other = events(message, [1, 2, 3, 11]), twin_events.events(message, [1, 2, 3, 11])
    assert one["is_whole"] is other["is_whole"] is True
    for name in ("name", "start_ps", "duration_ps", "is_count", "value", "form"):
        np.testing.assert_array_equal(one[name], other[name])
    assert one["form"].tolist()[:4] == [8, 0, 2, 5]


# ------------------------------------------------------------------------------------------------- made: GPU streams
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
OPERAND = instruction(200, "p", "parameter", shape(512, kind=BF16))
REDUCE = instruction(
    201, "all-reduce-start.3", "all-reduce-start", shape(512, kind=BF16), [200], [1], groups([0, 2], [1, 3]) + GLOBAL
)
STEP = hlo("jit_step", summing(1), computation(2, 201, OPERAND, REDUCE))


def gpu_file(count: int = 4, first_ns: int = 1000, **changed: bytes) -> bytes:
    planes = [programs((7, "jit_step", changed.get("program", STEP)))]
    for device in range(count):
        plane = PlaneMaker(f"/device:GPU:{device}")
        told: dict[str, int | str] = {"hlo_module": "jit_step", "program_id": 7}
        reduced = [
            plane.event(NCCL, 10**6 * k, 4 * 10**5, hlo_op="all-reduce-start.3", correlation_id=k, **told)
            for k in range(3)
        ]
        plane.line("Stream #20(Collective)", reduced, first_ns)
        others = [
            plane.event("loop_fusion", 10**6 * k + 500, 10**5, hlo_op="fusion.1", correlation_id=9, **told)
            for k in range(3)
        ]
        others += [
            plane.event("MemcpyD2D", 9, 5, memcpy_details="kind_src:device size:4096 dest:0"),
            plane.event("Memset", 1, 1),
        ]
        plane.line("Stream #13(Compute)", others, first_ns)
        plane.line("XLA Modules", [plane.event("jit_step(7)", 0, 10**7)], first_ns)
        planes.append(plane)
    return space(*planes)


def made(tmp_path: Path, *files: bytes) -> Trace:
    return read_xplane(sources(tmp_path, {f"h{n}.xplane.pb": data for n, data in enumerate(files)}))


def test_kernels_of_a_gpu_are_their_operations(tmp_path: Path) -> None:
    trace = made(tmp_path, gpu_file())
    assert table(trace) == {("all-reduce", 1024, 2, "sum", 12, 2)}
    row = calls(trace).filter(rank=3).row(0, named=True)
    assert (row["algorithm"], row["protocol"], row["kernel_class"], row["datatype"]) == (
        "ring",
        "ll",
        "nccl",
        "bfloat16",
    )
    assert (row["comm_rank"], row["stream"], row["duration_s"]) == (1, "Stream #20(Collective)", pytest.approx(4e-7))
    copies = trace.df.filter(kind="memory").select("op", "size_bytes").unique().sort("op").rows()
    assert copies == [("copy", 4096), ("set", None)]
    assert trace.df.filter(kind="compute")["kernel"].unique().to_list() == ["loop_fusion"]  # and no module
    assert trace.meta["library"] == "nccl"


def test_gpus_of_a_second_file_follow_on_and_say_so(tmp_path: Path) -> None:
    trace = made(tmp_path, gpu_file(2), gpu_file(2))
    assert sorted(calls(trace)["rank"].unique()) == [0, 1, 2, 3]
    claim = trace.table("claims").filter(field="rank").row(0, named=True)
    assert (claim["ground"], claim["value"]) == ("assumed", "2")
    assert sorted(trace.table("topology")["device"]) == [0, 0, 1, 1]


def test_a_kernel_without_its_program_has_no_size_and_says_so(tmp_path: Path) -> None:
    trace = made(tmp_path, gpu_file(program=hlo("another")))
    row = calls(trace).row(0, named=True)
    assert (row["op"], row["size_bytes"], row["ground"]) == ("all-reduce", None, "inferred")
    assert any("no size" in loss for loss in trace.meta["losses"])


def test_the_end_of_an_operation_is_that_of_its_done(tmp_path: Path) -> None:
    """A TPU's line shows start and done; the time between belongs to the operation, and containers are no operations."""
    done = instruction(202, "all-reduce-done.3", "all-reduce-done", shape(512), [201])
    loop = instruction(203, "while.1", "while", shape(1))
    proto = hlo("jit_step", summing(1), computation(2, 202, OPERAND, REDUCE, done, loop))
    planes = [programs((7, "jit_step", proto))]
    for device in range(4):
        plane = PlaneMaker(
            f"/device:TPU:{device}", shared={"%all-reduce-start.3 = bf16[512] all-reduce-start(%p)": {"program_id": 7}}
        )
        names = "%all-reduce-start.3 = bf16[512] all-reduce-start(%p)", "all-reduce-done.3", "while.1", "fusion.2"
        for name in names[1:]:
            plane.shared[name] = {"program_id": 7}
        times = [(0, 10), (100, 20), (0, 500), (20, 50)]
        plane.line("XLA Ops", [plane.event(name, *time) for name, time in zip(names, times, strict=True)])
        planes.append(plane)
    trace = made(tmp_path, space(*planes))
    rows = calls(trace)
    assert len(rows) == 4
    assert rows["duration_s"].to_list() == pytest.approx([120e-12] * 4)
    assert rows["size_bytes"].unique().to_list() == [1024]
    assert trace.df.filter(kind="compute")["kernel"].unique().to_list() == ["fusion.2"]


def test_a_wrapped_start_is_what_it_wraps(tmp_path: Path) -> None:
    inner = computation(
        3,
        301,
        instruction(300, "q", "parameter", shape(64)),
        instruction(301, "reduce-scatter.1", "reduce-scatter", shape(16), [300], [1], groups([0, 1, 2, 3]) + GLOBAL),
    )
    start = instruction(201, "reduce-scatter-start.1", "async-start", shapes(shape(64), shape(16)), [200], [3])
    proto = hlo("jit_step", summing(1, "maximum"), inner, computation(2, 201, OPERAND, start))
    plane = PlaneMaker("/device:GPU:1")
    told = {"hlo_op": "reduce-scatter-start.1", "hlo_module": "jit_step", "program_id": 7}
    plane.line("Stream #1", [plane.event("ncclDevKernel_ReduceScatter_Max_f32_RING_LL", 0, 5, **told)])
    trace = made(tmp_path, space(programs((7, "jit_step", proto)), plane))
    row = calls(trace).row(0, named=True)
    assert (row["op"], row["size_bytes"], row["received_bytes"], row["reduce_op"]) == ("reduce-scatter", 256, 64, "max")


# ------------------------------------------------------------------------------------------------------- groups
def packed(*values: int) -> bytes:
    return b"".join(varint(value) for value in values)


def test_groups_by_a_rule() -> None:
    form = number(1, 2) + number(2, 4) + block(3, packed(4, 2)) + block(4, packed(1, 0))
    assert iota(form) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert iota(number(1, 2) + number(2, 2)) == [[0, 1], [2, 3]]
    with pytest.raises(WireError):
        iota(number(1, 2) + number(2, 4) + block(3, packed(3, 2)))


def axis(name: str, size: int) -> bytes:
    return block(1, block(1, name) + number(2, size))


def test_groups_along_axes_of_a_mesh() -> None:
    mesh = block(1, axis("a", 2) + axis("b", 4))
    assert mesh_axes(mesh + block(2, number(1, 1))) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert mesh_axes(mesh + block(2, b"")) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert mesh_axes(mesh + block(2, number(1, 1)) + block(2, b"")) == [[0, 4, 1, 5, 2, 6, 3, 7]]
    part = block(2, number(1, 1) + block(2, number(1, 2) + number(2, 2)))  # the minor half of b
    assert mesh_axes(mesh + part) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    major = block(2, number(1, 1) + block(2, number(1, 1) + number(2, 2)))
    assert mesh_axes(mesh + major) == [[0, 2], [1, 3], [4, 6], [5, 7]]
    turned = block(1, axis("a", 2) + axis("b", 2) + block(2, packed(0, 2, 1, 3)))
    assert mesh_axes(turned + block(2, number(1, 1))) == [[0, 2], [1, 3]]
    with pytest.raises(WireError):
        mesh_axes(mesh + block(2, number(1, 9)))


def test_a_programs_numbers_become_devices() -> None:
    by = Assignment(2, 3, [[0, 10], [1, 11], [2, 12]])  # partition by partition
    assert by.every() == [0, 1, 2, 10, 11, 12]
    assert of_devices([[0, 4]], by, "flattened") == [[0, 11]]
    assert of_devices([[0, 2]], by, "partition") == [[0, 2], [10, 12]]
    assert of_devices([], by, "replica") == [[0, 10], [1, 11], [2, 12]]
    assert of_devices([[1, 0]], by, "replica of all") == [[10, 11, 12, 0, 1, 2]]
    assert of_devices([[0, 99]], by, "flattened") == [[0]]


def test_bytes_of_shapes() -> None:
    assert shape_of(shape(3, 5)).size_bytes == 60
    assert shape_of(shape()).size_bytes == 4
    assert shape_of(shapes(shape(2), shape(4, kind=BF16))).size_bytes == 16
    assert shape_of(shape(3, kind=21)).size_bytes == 2  # half a byte each
    assert shape_of(shape(3, kind=77)).size_bytes is None
    assert shape_of(shape(1 << 40, 1 << 40)).size_bytes is None


def test_a_ragged_exchange_has_no_size(tmp_path: Path) -> None:
    ragged = instruction(
        201, "all-reduce-start.3", "ragged-all-to-all", shape(512), [200], [], groups([0, 1, 2, 3]) + GLOBAL
    )
    trace = made(tmp_path, gpu_file(program=hlo("jit_step", computation(2, 201, OPERAND, ragged))))
    assert table(trace) == {("all-to-all", None, 4, None, 12, 1)}


# ----------------------------------------------------------------------------------------------------- damage
def test_kinds_of_files() -> None:
    head = gzip.decompress(MESH.read_bytes())[:4096]
    assert xplane.looks_like(head, "x") == MAGIC
    assert xplane.looks_like(gpu_file()[:100], "x") == MAGIC
    assert xplane.looks_like(b"\n\x10hello world, text", "x.txt") == NO


def test_a_cut_file_keeps_its_whole_planes(tmp_path: Path) -> None:
    data = gpu_file()
    trace = made(tmp_path, data[: len(data) - 200])
    assert sorted(calls(trace)["rank"].unique()) == [0, 1, 2]
    assert any("goes beyond" in loss for loss in trace.meta["losses"])


def test_a_broken_line_keeps_what_comes_before(tmp_path: Path) -> None:
    plane = PlaneMaker("/device:GPU:0")
    whole = plane.event("loop", 0, 5)
    plane.line("Stream #1", [whole, whole, whole + b"\x0f"])
    trace = made(tmp_path, space(plane))
    assert len(trace.df) == 2
    assert any("breaks off" in loss for loss in trace.meta["losses"])


def test_a_damaged_program_leaves_the_others(tmp_path: Path) -> None:
    trace = made(tmp_path, gpu_file(program=b"\x0a\x05abc"))
    assert len(calls(trace)) == 12
    assert any("cannot be read" in loss for loss in trace.meta["losses"])


@pytest.mark.parametrize("data", [b"", b"\x0a", space(PlaneMaker("/host:CPU")), b"\x0a\x03\x12\x01/"])
def test_nothing_to_read_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(InputError, match="no XLA profiler trace"):
        made(tmp_path, data)


def test_operations_without_a_device_have_no_rank(tmp_path: Path) -> None:
    """Four devices reduce twice; nobody says which thread was which, so the order of their beginnings tells the two apart."""
    plane = PlaneMaker("/host:CPU")
    told = {"hlo_op": "all-reduce-start.3", "hlo_module": "jit_step", "program_id": 7}
    one = hlo(
        "jit_step",
        summing(1),
        computation(2, 201, OPERAND, REDUCE.replace(groups([0, 2], [1, 3]), groups([0, 1, 2, 3]))),
    )
    for thread in range(4):
        plane.line(f"t{thread}", [plane.event("all-reduce-start.3", 100 * k + thread, 50, **told) for k in range(2)])
    trace = made(tmp_path, space(programs((7, "jit_step", one)), plane))
    rows = calls(trace).sort("start_s")
    assert rows["rank"].to_list() == [None] * 8
    assert rows["sequence"].to_list() == [0] * 4 + [1] * 4
    assert any("without their device" in loss for loss in trace.meta["losses"])
