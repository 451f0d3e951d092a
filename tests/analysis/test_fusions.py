"""What counts as a fusion and what does not, in traces of a few events; and what is said of those that did not fire."""

from __future__ import annotations

from typing import Any

import pytest

from fusion_device import GEMM, NORM, POINTWISE, Device, Group
from fusion_made import DATA, SHARDS, TENSOR, UNNAMED
from kineto_traces import source
from ringwright.analysis.exposed.fusion_rows import Fusion, is_product
from ringwright.analysis.exposed.overlap import explained, overlap
from ringwright.analysis.exposed.overlap_remedies import of_fusion, remedy_of
from ringwright.formats.sources.kineto import read_kineto
from ringwright.formats.sources.kineto.marks import layer_of, pattern_of
from ringwright.graph.algebra import RULES
from ringwright.model.trace import Trace

MEGABYTE = 1 << 19  # elements of two bytes


def trace_of(device: Device) -> Trace:
    import msgspec

    return read_kineto([source(msgspec.json.encode(device.document()), "job/rank0.json")])


def told(device: Device) -> list[tuple[str, str, bool]]:
    return [(one.pattern, one.layer, one.fired) for one in explained(trace_of(device)).fusions.all]


def gathered(group: Group, *kernels: str, beside: float = 0.0) -> Device:
    """Return a device that gathers, computes beside it where asked to, waits, and runs kernels."""
    device = Device()
    with device.step(1):
        device.kernel(POINTWISE, 50)
        done = device.collective("all-gather", group, 200)
        if beside:
            device.kernel(POINTWISE, beside)
        device.wait(done)
        for kernel in kernels:
            device.kernel(kernel, 100)
    return device


def test_names_of_products() -> None:
    for kernel in (
        GEMM,
        "nvjet_tst_128x256_64x4",
        "Cijk_Alik_Bljk_BBS_BH",
        "triton_tem_fused_mm_0",
        "volta_sgemm_128x32_nt",
    ):
        assert is_product(kernel), kernel
    for kernel in (NORM, POINTWISE, "fbgemm_gpu::split_embedding_codegen_forward_kernel", "flash_fwd_kernel"):
        assert not is_product(kernel), kernel


def test_names_of_layers_and_of_fused_operations() -> None:
    assert layer_of("FSDP::post_backward_reduce (model.layers.11)") == "layers.11"
    assert layer_of("nn.Module: GPTNeoXLayer_7") == "GPTNeoXLayer_7"
    assert layer_of("nn.Module: LayerNorm_3") is None
    assert layer_of("## forward ##") is None
    assert pattern_of("symm_mem::fused_matmul_reduce_scatter") == "matmul-reduce-scatter"
    assert pattern_of("c10d::_allgather_base_") is None


@pytest.mark.parametrize(
    ("kernels", "beside", "expected"),
    [
        ((GEMM,), 0.0, [("all-gather-matmul", "", False)]),
        ((NORM, GEMM), 0.0, []),  # the product does not consume what was gathered
        ((GEMM,), 206.0, []),  # hidden anyway: a compiler leaves it alone
    ],
)
def test_a_pair_is_exposed_and_adjacent(kernels: tuple[str, ...], beside: float, expected: list[Any]) -> None:
    assert told(gathered(TENSOR, *kernels, beside=beside)) == expected


def test_a_product_launched_after_the_call_is_not_what_is_reduced() -> None:
    device = Device()
    with device.step(1):
        device.kernel(NORM, 100)
        first = device.collective("reduce-scatter", TENSOR, 300)
        device.kernel(NORM, 50)
        second = device.collective("reduce-scatter", TENSOR, 300)
        device.kernel(GEMM, 240)  # ends as the first reduction does, just before the second begins
        device.wait(first)
        device.wait(second)
        device.kernel(POINTWISE, 20)
    assert told(device) == []


def test_a_group_of_unknown_purpose_is_not_counted_but_told() -> None:
    device = gathered(UNNAMED, GEMM)
    assert told(device) == []
    (unknown, *_) = overlap(trace_of(device))["unknown"]
    assert unknown.startswith("cannot tell: rank 0: collectives of group 7 undefined beside products, 1 times")


def test_a_group_of_shards_gathers_parameters() -> None:
    assert told(gathered(SHARDS, GEMM)) == []


def test_one_gradient_alone_is_a_bucket_and_several_in_a_row_are_none() -> None:
    def reduced(*counts: int) -> list[bool]:
        device = Device()
        with device.step(1):
            with device.span("DistributedDataParallel.forward", "cpu_op"):
                device.kernel(GEMM, 50)
            with device.backward():
                for count in counts:
                    device.kernel(GEMM, 100)
                    device.gradients(count)
                    device.collective("all-reduce", DATA, 30, MEGABYTE // 8)
        return [fired for _, _, fired in told(device)]

    assert reduced(3, 3, 3) == [True] * 3
    assert reduced(1, 3, 3) == [True] * 3
    assert reduced(3, 1, 1, 1, 3) == [True, True, False]
    assert reduced(0, 3) == [True]  # no gradient came to be: a norm or a loss


def test_only_a_step_between_others_may_lack_a_bucket() -> None:
    def counted(*steps: int) -> list[tuple[int | None, bool]]:
        device = Device()
        for number, buckets in enumerate(steps, 1):
            with device.step(number):
                with device.span("DistributedDataParallel.forward", "cpu_op"):
                    device.kernel(GEMM, 50)
                with device.backward():
                    for _ in range(buckets):
                        device.kernel(GEMM, 100)
                        device.gradients(3)
                        device.collective("all-reduce", DATA, 30, MEGABYTE)
        every = explained(trace_of(device)).fusions.all
        return [(one.iteration, one.fired) for one in every if not one.fired]

    assert counted(3, 2, 3, 3) == [(2, False)]
    assert counted(2, 3, 3, 3) == []  # a profile may begin in the midst of a step
    assert counted(3, 3, 2) == []
    assert counted(1, 2, 3, 4) == []  # no number is usual


def test_a_layer_gathered_for_both_passes_is_two_buckets() -> None:
    device = Device()
    with device.step(1):
        for is_backward in (False, True):
            with device.backward() if is_backward else device.span("forward"):
                with device.span("FSDP::all_gather (layers.3)"):
                    device.wait(device.collective("all-gather", SHARDS, 100))
                device.kernel(NORM, 50)
                device.gradients(int(is_backward))
    assert told(device) == [("bucketed-all-gather", "layers.3", True)] * 2


def test_copies_within_a_fused_operation_are_no_collective_by_copy_engine() -> None:
    device = Device()
    with device.step(1):
        device.unseen("all-gather", TENSOR)
        with device.span("symm_mem::fused_all_gather_matmul", "cpu_op"):
            device.kernel("Memcpy PtoP (Device -> Device)", 40, 42, "gpu_memcpy")
            device.kernel(GEMM, 80)
    assert told(device) == [("all-gather-matmul", "", True)]


def test_a_reduction_on_a_stream_that_computes_is_so_whatever_follows() -> None:
    device = Device()
    with device.step(1):
        for _ in range(3):
            device.kernel(GEMM, 100)
            device.collective("all-reduce", DATA, 200, stream=7)
            device.now += 500  # the next kernel, on another stream, is launched late
            device.kernel(POINTWISE, 5, 9)
    assert {row["reason"] for row in overlap(trace_of(device))["audit"]} == {"same-stream"}


def test_an_operation_that_follows_long_after_another_did_not_stand_behind_it() -> None:
    def causes(pause: float) -> set[str]:
        device = Device()
        with device.step(1):
            device.kernel(GEMM, 50)
            device.collective("all-to-all", DATA, 200)
            done = device.collective("all-gather", DATA, 100)
            device.events[done.event]["ts"] += pause  # as if something else held it up
            device.hold(done.end + pause)
            device.kernel(POINTWISE, 300)
        return {row["reason"] for row in overlap(trace_of(device))["audit"]}

    assert "same-communicator" in causes(0.0)
    assert "same-communicator" not in causes(40.0)


def test_a_variable_that_is_set_to_something_harmless_is_not_blamed() -> None:
    device = Device(in_order=True, names={"CUDA_DEVICE_MAX_CONNECTIONS": "8"})
    with device.step(1), device.backward():
        for _ in range(16):
            device.kernel(GEMM, 120)
            device.collective("all-reduce", DATA, 400)
    (row,) = overlap(trace_of(device))["apart"]
    assert row["what"] == "one hardware queue, as CUDA_DEVICE_MAX_CONNECTIONS=1 makes it"


def test_what_a_call_launches_under_an_unknown_name_is_not_computation() -> None:
    device = Device()
    with device.step(1):
        device.kernel(GEMM, 100)
        device.collective("all-reduce", DATA, 200, name="void fast_transport::ring_step<float>(float*)")
        device.kernel(POINTWISE, 50)
    trace = trace_of(device)
    document = overlap(trace)
    assert (document["unknown_us"], document["compute_us"], document["comm_us"]) == (200, 150, 0)
    (claim,) = [row for row in trace.table("claims").to_dicts() if row["field"] == "kernels of unknown transports"]
    assert claim["value"] == "1"
    assert "fast_transport" in claim["note"]


def test_a_reduction_outside_a_data_parallel_wrapper_is_no_bucket() -> None:
    device = Device()
    with device.step(1), device.backward():
        device.kernel(GEMM, 100)
        device.gradients(4)
        device.collective("all-reduce", DATA, 30, MEGABYTE)
    assert told(device) == []


def test_the_most_that_a_loop_can_gain() -> None:
    def gain(comm: float, product: float | None, ranks: int | None) -> float | None:
        return Fusion("all-gather-matmul", 0, 1, "", 0, False, comm_us=comm, product_us=product, nranks=ranks).looped_us

    assert gain(100, 100, 16) == pytest.approx(200 - 100 - 12.5)
    assert gain(100, 10, 2) == 0.0  # 2 G / p is all of it: best left alone
    assert gain(100, None, 8) is None
    assert gain(100, 100, None) is None


def test_a_variable_is_blamed_only_where_order_was_kept() -> None:
    def said(*, in_order: bool) -> list[str]:
        device = Device(in_order=in_order, names={"CUDA_DEVICE_MAX_CONNECTIONS": "1"})
        with device.step(1), device.backward():
            for _ in range(16):
                device.kernel(GEMM, 120)
                device.collective("all-reduce", DATA, 400)
        document = overlap(trace_of(device))
        assert [row["name"] for row in document["environment"]] == ["CUDA_DEVICE_MAX_CONNECTIONS"]
        return [row["what"] for row in document["apart"]]

    assert said(in_order=True) == ["CUDA_DEVICE_MAX_CONNECTIONS=1"]
    assert said(in_order=False) == []


def test_barriers_of_a_fused_operation_are_no_operations_of_their_own() -> None:
    device = Device()
    with device.step(1), device.span("layers.0"):
        with device.span("symm_mem::fused_all_gather_matmul", "cpu_op"):
            device.kernel("Memcpy PtoP (Device -> Device)", 40, 42, "gpu_memcpy")
            device.kernel(GEMM, 80)
            device.kernel("void c10d::symmetric_memory::barrier_kernel(unsigned int**, int)", 4)
        device.kernel(POINTWISE, 30)
    document = overlap(trace_of(device))
    assert document["audit"] == []
    (row,) = document["fusions"]
    assert (row["pattern"], row["layer"], row["expected"], row["fired"]) == ("all-gather-matmul", "layers.0", 1, 1)


def test_a_fused_operation_that_fell_back_did_not_fire() -> None:
    device = Device()
    with device.step(1), device.span("layers.4"):
        device.kernel(POINTWISE, 30)
        with device.span("symm_mem::fused_all_gather_matmul", "cpu_op"):
            with device.span("symm_mem::fused_all_gather_matmul_native", "cpu_op"):  # inner ones are counted once
                device.wait(device.collective("all-gather", TENSOR, 200))
            device.kernel(GEMM, 300)
    assert told(device) == [("all-gather-matmul", "layers.4", False)]
    document = overlap(trace_of(device))
    assert [row["reason"] for row in document["audit"]] == ["fusion-not-matched"]
    assert "fell back" in document["fusions"][0]["why"]


def test_pieces_of_user_buffers_cannot_be_told_apart() -> None:
    device = Device()
    with device.step(1):
        device.kernel(GEMM, 300)
        for _ in range(3):
            device.kernel("void kuserbuffers_pushsendrecv<8>(int, int)", 20, 44)
    told_of = overlap(trace_of(device))["unknown"]
    assert "cannot tell: 3 kernels of user buffers: which products they belong to is not recorded" in told_of


def test_rewrites_that_are_named_are_rules() -> None:
    remedies = [
        of_fusion(name) for name in ("all-gather-matmul", "matmul-reduce-scatter", "gradient-bucket", "copy-engine")
    ]
    for cause in (
        "same-stream",
        "same-communicator",
        "bucket",
        "strict-order",
        "late-launch",
        "connections",
        "dependency",
    ):
        for op in ("all-reduce", "all-gather", "all-to-all", "reduce-scatter"):
            remedies += [remedy_of(cause, op, role, "backward", "") for role in ("tp", "dp", "ep", None)]
    named = {rule for one in remedies for rule in one.rewrite.split(", ") if rule}
    assert named <= set(RULES)
    assert {one.system for one in remedies} <= {
        "",
        "collective-einsum-overlap",
        "centauri",
        "dear",
        "oases",
        "pytorch-ddp",
    }


def test_the_cap_of_missed_buckets_is_what_they_carry() -> None:
    """A cap that would hold all of them, in whole MiB; none where a reduction does not say its size."""
    assert of_fusion("gradient-bucket", (7 << 20) + 1).switch == "DDP(bucket_cap_mb=8)"
    assert "bucket_cap_mb" not in of_fusion("gradient-bucket").switch
    assert of_fusion("copy-engine", 1 << 20) == of_fusion("copy-engine")
