"""Which kernel names are communication, of which library and operation; and how users add their own."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from kineto_traces import Maker, claims, collectives, read, source
from ringwright.formats.sources.datatypes import datatype
from ringwright.formats.sources.kineto import read_kineto
from ringwright.formats.sources.kineto.catalogue import Kernel, bare, load
from ringwright.formats.sources.kineto.names import operation
from ringwright.ground.errors import InputError

KNOWN = {
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)": Kernel(
        "nccl", "all-reduce", "ring", "ll", "sum", "float32"
    ),
    "ncclDevKernel_AllReduce_Sum_bf16_NVLS_TREE_SIMPLE(ncclDevKernelArgsStorage<4096ul>)": Kernel(
        "nccl", "all-reduce", "nvls-tree", "simple", "sum", "bfloat16"
    ),
    "ncclDevKernel_ReduceScatter_Max_f16_TREE_LL128(x)": Kernel(
        "nccl", "reduce-scatter", "tree", "ll128", "max", "float16"
    ),
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)": Kernel("nccl", "all-gather", "ring", "ll"),
    "ncclKernel_Broadcast_RING_LL_Sum_int8_t(x)": Kernel("nccl", "broadcast", "ring", "ll"),
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)": Kernel("nccl", "send-recv"),
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl)": Kernel("nccl", "all-reduce", "ring", "ll", "sum", "float32"),
    "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_bf16(x)": Kernel("nccl", "all-reduce", "agxll_r", None, "sum", "bfloat16"),
    "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)": Kernel("rccl"),
    "ncclNewThing(x)": Kernel("nccl"),
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(x)": Kernel("custom-all-reduce", "all-reduce"),
    "void sglang::cross_device_reduce_2stage<half, 4>(x)": Kernel("custom-all-reduce", "all-reduce"),
    "void quickreduce::allreduce_prototype_twoshot<x>(y)": Kernel("custom-all-reduce", "all-reduce"),
    "void (anonymous namespace)::multimem_all_reduce_kernel<float>(x)": Kernel("multimem", "all-reduce"),
    "void multimem_one_shot_all_reduce_kernel<c10::BFloat16, 16>(x)": Kernel("multimem", "all-reduce"),
    "void c10d::symmetric_memory::(anonymous namespace)::two_shot_all_reduce_kernel_inplace<x>(y)": Kernel(
        "symmetric-memory", "all-reduce"
    ),
    "void deep_ep::intranode::dispatch<8, 768, 8192>(x)": Kernel("deepep", "all-to-all"),
    "void deep_ep::internode_ll::combine<3, 10, 7168>(x)": Kernel("deepep", "all-to-all"),
    "deep_ep::intranode::notify_dispatch<8>(x)": Kernel("deepep", "barrier"),
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<a, b>(c)": Kernel(
        "flashinfer", "all-reduce"
    ),
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8>(x)": Kernel("tensorrt-llm", "all-reduce"),
    "void nvshmemi_barrier_threadgroup(x)": Kernel("nvshmem", "barrier"),
    "void mscclpp::allreduce7<x>(y)": Kernel("mscclpp", "all-reduce"),
    "mscclKernel_Sum_half_Simple_false(x)": Kernel("msccl"),
}
SUSPECTS = ["void my_moe_dispatch_kernel<3>(x)", "triton_all_gather_gemm", "fused_a2a_kernel", "my_put_signal(x)"]
COMPUTE = [
    "void flash::flash_fwd_splitkv_combine_kernel<x>(y)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(x)",
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(x)",
    "ampere_bf16_s16816gemm_bf16_128x64_tn",
    "void cub::DeviceReduceKernel<cub::DispatchReduce<a>::Policy>(x)",
    "",
]


@pytest.mark.parametrize(("name", "kernel"), KNOWN.items())
def test_known_kernels(name: str, kernel: Kernel) -> None:
    assert load().classify(name) == kernel


def test_suspects_and_computation() -> None:
    assert {load().classify(name).library for name in SUSPECTS} == {"unknown-communication"}
    assert {load().classify(name).library for name in COMPUTE} == {"compute"}


def test_bare_names() -> None:
    assert bare("void at::native::reduce_kernel<512, 1>(at::ReduceOp)") == "at::native::reduce_kernel"
    assert bare("void Foo<int>::all_reduce<3>(x)") == "Foo::all_reduce"
    assert load().classify("void f<" + "a<" * 100_000).library == "compute"


def test_suspects_are_listed_and_not_counted_as_nothing() -> None:
    job = Maker()
    job.kernel("my_moe_dispatch_kernel", 100, 30)
    job.kernel("my_moe_dispatch_kernel", 200, 30)
    trace = read(job)
    assert trace.df["kernel_class"].to_list() == ["unknown-communication"] * 2
    (claim,) = claims(trace, "unknown communication kernel")
    assert claim["value"] == "my_moe_dispatch_kernel"
    assert "2 kernels, 60 us" in claim["note"]


def test_copies_between_devices_are_pointed_out() -> None:
    job = Maker()
    job.add("gpu_memcpy", "Memcpy PtoP (Device -> Device)", 120, 50, stream=9)
    job.collective(300, 10)
    trace = read(job)
    (claim,) = claims(trace, "copies between devices")
    assert claim["value"] == "1"
    assert "50 us" in claim["note"]


def test_metadata_makes_a_suspect_communication() -> None:
    job = Maker()
    job.kernel(
        "my_moe_dispatch_kernel", 100, 30, **{"Collective name": "all_to_allv", "In msg nelems": 5, "dtype": "Half"}
    )
    (row,) = collectives(read(job))
    assert (row["op"], row["kernel_class"], row["size_bytes"]) == ("all-to-all", "custom", 10)


def test_own_kernels_by_argument_and_by_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kernels.toml"
    path.write_text(
        '[[kernel]]\nclass = "ours"\npattern = "^my_moe_(?:dispatch|combine)"\nop = "all-to-all"\n'
        '[suspects]\nwords = "teleport"\nbut = "quantum"\n'
    )
    job = Maker()
    for place, name in enumerate(("my_moe_dispatch_kernel", "teleport_rows", "quantum_teleport")):
        job.kernel(name, 100 * place + 100, 30)

    def classes(**more: Path) -> list[str]:
        return sorted(read_kineto([source(job.text())], **more).df["kernel_class"].to_list())  # type: ignore[arg-type]

    wanted = ["compute", "ours", "unknown-communication"]
    assert classes(kernels=path) == wanted
    assert classes() == ["compute", "compute", "unknown-communication"]
    monkeypatch.setenv("RINGWRIGHT_KERNELS", str(path))
    assert classes() == wanted


@pytest.mark.parametrize(
    "text",
    [
        "not toml [",
        '[[kernel]]\nclass = "x"\n',
        '[[kernel]]\nclass = "x"\npattern = "("\n',
        '[[kernel]]\nclass = "x"\npattern = "a"\nop = "teleport"\n',
        '[[kernel]]\nclass = 5\npattern = "a"\n',
        "kernel = 5\n",
        "[suspects]\nwords = 5\n",
        "suspects = 5\n",
    ],
)
def test_a_bad_catalogue_is_an_error_with_its_place(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kernels.toml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        load(path)
    assert str(path) in error.value.where
    assert error.value.remedy


def test_a_missing_catalogue() -> None:
    with pytest.raises(InputError, match="no kernel catalogue"):
        load("nowhere.toml")


def test_spellings() -> None:
    ops = {
        "allreduce": "all-reduce",
        "nccl:all_reduce": "all-reduce",
        "_allgather_base": "all-gather",
        "all_to_allv": "all-to-all",
        "c10d::_reduce_scatter_base_": "reduce-scatter",
        "nccl:recv 3<-1": "recv",
        "wait": None,
        "init": None,
        "": None,
        "ALLTOALL_BASE": "all-to-all",
        "gloo:barrier": "barrier",
        "allreduce_coalesced": "all-reduce",
    }
    assert {said: operation(said) for said in ops} == ops
    assert operation(5) is None
    types = {
        "BFloat16": "bfloat16",
        "c10::BFloat16": "bfloat16",
        "Float": "float32",
        "torch.int64": "int64",
        "Float8_e4m3fn": "float8e4m3",
    }
    assert {said: datatype(said) for said in types} == types
    assert datatype(None) is None


def test_no_rule_hides_another() -> None:
    libraries = {load().classify(name).library for name in KNOWN}
    assert len(libraries) >= 11
    job = Maker()
    for place, name in enumerate(KNOWN):
        job.kernel(name, 100 * place + 100, 30)
    trace = read(job)
    assert trace.df.filter(pl.col("kind").is_in(["collective", "p2p"])).height == len(KNOWN)
