"""Traces with fusions made by hand: tensor parallel, FSDP, DDP, copy engines, and what keeps communication apart."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from contextlib import AbstractContextManager

from fusion_device import COMPUTE_STREAM, GEMM, NORM, POINTWISE, Device, Done, Group
from fusion_truth import (
    BUCKETED_GATHER,
    COPIES,
    GATHER_MATMUL,
    GRADIENT_BUCKET,
    MATMUL_SCATTER,
    Document,
    KnownTrace,
    Truth,
)

TENSOR = Group("3", "mesh_tp", 8, 20)
SHARDS = Group("5", "mesh_dp_shard", 16, 24)
DATA = Group("0", "default_pg", 8, 28)
UNNAMED = Group("7", "undefined", 8, 32)
FUSED = {
    GATHER_MATMUL: ("symm_mem::fused_all_gather_matmul", "symm_mem::fused_all_gather_scaled_matmul"),
    MATMUL_SCATTER: ("symm_mem::fused_matmul_reduce_scatter", "symm_mem::fused_scaled_matmul_reduce_scatter"),
}
COPY_OUT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<c10::BFloat16, unsigned int, 3, 64, 64>(c10::BFloat16*)"
MIB = 1 << 19  # elements of two bytes

Recipe = Callable[[random.Random, int], tuple[Document, Truth]]  # the second: which of its kind


def made(draw: int = 0) -> list[KnownTrace]:
    """Return thirty traces, the same ones each time for a draw."""
    recipes: list[tuple[str, int, Recipe]] = [
        ("async-tp", 7, _async_tp),
        ("no-role", 1, _no_role),
        ("fsdp", 4, _fsdp),
        ("one-communicator", 3, _one_communicator),
        ("ddp", 3, _ddp),
        ("compute-stream", 3, _compute_stream),
        ("one-queue", 3, _one_queue),
        ("host-waits", 1, _host_waits),
        ("host-behind", 1, _host_behind),
        ("copy-engine", 3, _copy_engine),
        ("no-kernel", 1, _no_kernel),
    ]
    return [
        KnownTrace(
            f"{name}-{number}", _bound(recipe, f"{name}-{number}-{draw}" if draw else f"{name}-{number}", number)
        )
        for name, count, recipe in recipes
        for number in range(count)
    ]


def _bound(recipe: Recipe, seed: str, number: int) -> Callable[[], tuple[Document, Truth]]:
    return lambda: recipe(random.Random(seed), number)


def _layer(device: Device, number: int, style: int) -> AbstractContextManager[None]:
    """Mark a layer as frameworks do: by a label of the user, or by the name of a module."""
    if style == 0:
        return device.span(f"layers.{number}")
    return device.span(f"nn.Module: TransformerBlock_{number}", "python_function")


def _name(number: int, style: int) -> str:
    return f"layers.{number}" if style == 0 else f"TransformerBlock_{number}"


def _async_tp(chance: random.Random, number: int) -> tuple[Document, Truth]:
    """A tensor parallel model whose fusions fire at some sites; others are no sites, or hidden anyway."""
    device, truth, style = Device(), Truth(), chance.randrange(2)
    rate = (0.0, 0.3, 0.7, 1.0)[number % 4]
    hits = [[chance.random() < rate for _ in range(2)] for _ in range(4)]
    on = any(map(any, hits))
    for step in range(2):
        with device.step(step + 3):
            for layer, (gathers, scatters) in enumerate(hits):
                name = _name(layer, style)
                with _layer(device, layer, style):
                    if gathers:
                        _fused(device, GATHER_MATMUL, chance)
                    else:
                        _gathered(device, truth, chance, on=on)
                    device.kernel(POINTWISE, 60)
                    truth.expect(GATHER_MATMUL, step + 3, name, fired=gathers)
                    if scatters:
                        _fused(device, MATMUL_SCATTER, chance)
                    else:
                        _scattered(device, truth, chance, on=on)
                    device.kernel(NORM, 50)
                    truth.expect(MATMUL_SCATTER, step + 3, name, fired=scatters)
                    _no_site(device, chance)
    return device.document(), truth


def _gathered(device: Device, truth: Truth, chance: random.Random, *, on: bool, group: Group = TENSOR) -> None:
    """All-gather, then at once a product, perhaps behind the copy that puts the parts in order."""
    done = device.collective("all-gather", group, chance.uniform(150, 300), 4 * MIB)
    device.wait(done)
    if chance.random() < 0.3:
        device.kernel(COPY_OUT, 12)
    device.kernel(GEMM, chance.uniform(200, 400))
    truth.causes[done.event] = "fusion-not-matched" if on else "dependency"


def _scattered(device: Device, truth: Truth, chance: random.Random, *, on: bool) -> None:
    device.kernel(GEMM, chance.uniform(200, 400))
    done = device.collective("reduce-scatter", TENSOR, chance.uniform(150, 300), 4 * MIB)
    device.wait(done)
    truth.causes[done.event] = "fusion-not-matched" if on else "dependency"


def _no_site(device: Device, chance: random.Random) -> None:
    """Something that looks like a site and is none: no product follows, or enough else goes on beside."""
    kind = chance.randrange(3)
    if kind == 0:
        device.wait(device.collective("all-gather", TENSOR, 90, MIB))
        device.kernel(NORM, 40)
        device.kernel(GEMM, 200)
    elif kind == 1:
        done = device.collective("all-gather", TENSOR, 120, MIB)
        device.kernel(POINTWISE, 300)
        device.wait(done)
        device.kernel(GEMM, 200)
    else:
        device.kernel(GEMM, 150)
        device.kernel(NORM, 30)
        device.wait(device.collective("reduce-scatter", TENSOR, 80, MIB))
        device.kernel(POINTWISE, 20)


def _fused(device: Device, pattern: str, chance: random.Random) -> None:
    """A fused operation: pieces of a product beside copies from peer to peer, on two streams."""
    with device.span(chance.choice(FUSED[pattern]), "cpu_op"):
        for piece in range(4):
            stream = (COMPUTE_STREAM, 41)[piece % 2]
            device.kernel("Memcpy PtoP (Device -> Device)", 40, 42 + piece % 2, "gpu_memcpy")
            device.kernel(GEMM, 80, stream)
        device.kernel("void c10d::symmetric_memory::barrier_kernel(unsigned int**, int)", 4)


def _no_role(chance: random.Random, number: int) -> tuple[Document, Truth]:
    """Gathers before products by a group of which nothing says what it is for: no site for certain."""
    device, truth = Device(), Truth()
    for step, part in itertools.product(range(2), range(3)):
        with device.step(step) if part == 0 else device.span("more"):
            _gathered(device, Truth(), chance, on=False, group=UNNAMED)
            device.kernel(POINTWISE, 50)
    return device.document(), truth


def _fsdp(chance: random.Random, number: int) -> tuple[Document, Truth]:
    """Sharded layers, gathered in one piece or parameter by parameter; the next layer is gathered beside this one."""
    device, truth = Device(), Truth()
    whole = [chance.random() < 0.6 for _ in range(4)]
    for step in (1, 2):
        with device.step(step):
            for back in (False, True):
                order = [3, 2, 1, 0] if back else [0, 1, 2, 3]
                with device.backward() if back else device.span("forward"):
                    _sharded(device, truth, chance, order, whole, step, is_backward=back)
    return device.document(), truth


def _sharded(
    device: Device,
    truth: Truth,
    chance: random.Random,
    order: list[int],
    whole: list[bool],
    step: int,
    *,
    is_backward: bool,
) -> None:
    ready: dict[int, Done] = {}
    for index, layer in enumerate(order):
        for ahead in order[index : index + 2]:
            if ahead not in ready:
                ready[ahead] = _unsharded(device, chance, ahead, 1 if whole[ahead] else 5)
                truth.expect(BUCKETED_GATHER, step, f"layers.{ahead}", fired=whole[ahead])
        with device.span(f"FSDP::all_gather_copy_out (layers.{layer})"):
            device.wait(ready[layer])
            device.kernel("void at::native::split_with_sizes_copy_out_contiguous_no_cast_kernel<c10::BFloat16>", 20)
        for _ in range(4):
            device.kernel(GEMM, 250)
        if is_backward:
            device.gradients(6)
            with device.span(f"FSDP::post_backward_reduce (layers.{layer})"):
                device.collective("reduce-scatter", Group("6", "mesh_dp_shard_reduce", 16, 26), 300, 64 * MIB)


def _unsharded(device: Device, chance: random.Random, layer: int, pieces: int) -> Done:
    with device.span(f"FSDP::all_gather (layers.{layer})"):
        for _ in range(pieces):
            done = device.collective("all-gather", SHARDS, chance.uniform(200, 400) / pieces, 64 * MIB // pieces)
    return done


def _one_communicator(chance: random.Random, number: int) -> tuple[Document, Truth]:
    """A backward pass that gathers the next layer behind the reduction of the last, on one communicator or on two."""
    device, truth = Device(), Truth()
    is_one = number < 2
    reducing = SHARDS if is_one else Group("6", "mesh_dp_shard_reduce", 16, 26)
    with device.step(1), device.backward():
        for _ in range(2):
            device.kernel(GEMM, 400)
        ready = device.collective("all-gather", SHARDS, 200, 64 * MIB)
        asked = [ready]
        for layer in (5, 4, 3, 2, 1):
            device.kernel(GEMM, 300)
            device.kernel(GEMM, 200)
            device.gradients(4)
            with device.span(f"FSDP::post_backward_reduce (layers.{layer})"):
                asked.append(device.collective("reduce-scatter", reducing, chance.uniform(650, 900), 64 * MIB))
            device.wait(ready)
            with device.span(f"FSDP::all_gather (layers.{layer - 1})"):
                ready = device.collective("all-gather", SHARDS, 200, 64 * MIB)
            truth.expect(BUCKETED_GATHER, 1, f"layers.{layer - 1}", fired=True)
            asked.append(ready)
        device.wait(ready)
        device.kernel(GEMM, 400)
    for done in asked if is_one else []:  # in turn a gather and a reduction: what stands, stands behind the other kind
        if device.stood[done.event] > 20 and device.exposed_share(done.event) >= 0.2:
            truth.causes[done.event] = "same-communicator"
            truth.apart.add("communicator 5")
    return device.document(), truth


def _ddp(chance: random.Random, number: int) -> tuple[Document, Truth]:
    """Buckets of many gradients, and runs of gradients that are reduced one by one."""
    device, truth = Device(), Truth()
    for step in (1, 2):
        with device.step(step):
            _wrapped(device)
            with device.backward():
                previous = True
                for bucket in range(4):
                    is_whole = chance.random() < 0.6 or (bucket > 0 and not previous)
                    previous = is_whole
                    _bucket(device, is_whole=is_whole)
                    truth.expect(GRADIENT_BUCKET, step, fired=is_whole)
            device.synchronise(DATA.stream)
            device.kernel("void at::native::multi_tensor_apply_kernel<AdamFunctor>", 400)
    return device.document(), truth


def _bucket(device: Device, *, is_whole: bool, elements: int = 12 * MIB) -> None:
    for _ in range(6):
        device.kernel(GEMM, 120)
        device.gradients(1)
        if not is_whole:
            device.collective("all-reduce", DATA, 45, elements // 24)
    if is_whole:
        device.collective("all-reduce", DATA, 250, elements)


def _wrapped(device: Device) -> None:
    """Run a forward pass in the data parallel wrapper."""
    with device.span("DistributedDataParallel.forward", "cpu_op"):
        device.kernel(GEMM, 300)


def _compute_stream(chance: random.Random, number: int) -> tuple[Document, Truth]:
    """Reductions of gradients that were launched on the stream that computes."""
    device, truth = Device(), Truth()
    for step in (1, 2):
        _wrapped(device)
        with device.step(step), device.backward():
            for bucket in range(4):
                for _ in range(3):
                    device.kernel(GEMM, chance.uniform(100, 300))
                device.gradients(5)
                us = chance.uniform(100, 400)
                done = device.collective("all-reduce", DATA, us, 12 * MIB, stream=COMPUTE_STREAM)
                truth.expect(GRADIENT_BUCKET, step, fired=True)
                truth.causes[done.event] = "same-stream"
                if bucket == 3:
                    device.kernel(POINTWISE, 50)
    truth.apart.add(f"stream {COMPUTE_STREAM}")
    return device.document(), truth


def _one_queue(chance: random.Random, number: int) -> tuple[Document, Truth]:
    """One hardware queue holds computation up behind reductions that wait; or the variable is set and nothing is held up."""
    holds = number < 2
    names = {} if number == 1 else {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    device, truth = Device(in_order=holds, names=names), Truth()
    _wrapped(device)
    with device.step(1), device.backward():
        for bucket in range(16):
            device.kernel(GEMM, 120)
            device.gradients(3)
            done = device.collective("all-reduce", DATA, chance.uniform(350, 450) if holds else 90, 12 * MIB)
            truth.expect(GRADIENT_BUCKET, 1, fired=True)
            if holds and bucket < 14:  # the last have nothing behind them
                truth.causes[done.event] = "connections"
    if holds:
        truth.apart.add("CUDA_DEVICE_MAX_CONNECTIONS")
    return device.document(), truth


def _host_waits(chance: random.Random, number: int) -> tuple[Document, Truth]:
    device, truth = Device(), Truth()
    with device.step(1):
        for _ in range(5):
            device.kernel(GEMM, 200)
            done = device.collective("all-to-all", DATA, chance.uniform(200, 400))
            device.synchronise(DATA.stream)
            device.kernel(GEMM, 200)
            truth.causes[done.event] = "strict-order"
    return device.document(), truth


def _host_behind(chance: random.Random, number: int) -> tuple[Document, Truth]:
    device, truth = Device(), Truth()
    with device.step(1):
        for _ in range(5):
            device.kernel(GEMM, 50)
            done = device.collective("all-to-all", DATA, 200)
            device.now = done.end + chance.uniform(50, 200)
            device.kernel(GEMM, 100)
            truth.causes[done.event] = "late-launch"
    return device.document(), truth


def _copy_engine(chance: random.Random, number: int) -> tuple[Document, Truth]:
    """All-gathers by copies from peer to peer: all, some, or none of them."""
    device, truth = Device(), Truth()
    copied = [chance.random() < (1.0, 0.5, 0.0)[number] for _ in range(5)]
    for step in (1, 2):
        with device.step(step):
            for is_copied in copied:
                make = device.copies if is_copied else device.collective
                device.wait(make("all-gather", SHARDS, 200))
                device.kernel(NORM, 100)
                if any(copied):
                    truth.expect(COPIES, step, fired=is_copied)
    return device.document(), truth


def _no_kernel(chance: random.Random, number: int) -> tuple[Document, Truth]:
    """Reductions of which no kernel is in the trace: asked for, and nothing can be said of their time."""
    device, truth = Device(), Truth()
    _wrapped(device)
    with device.step(1), device.backward():
        for bucket in range(5):
            device.kernel(GEMM, 200)
            device.gradients(4)
            if bucket % 2:
                truth.causes[device.unseen("all-reduce", DATA).record] = "cannot tell"
            else:
                device.collective("all-reduce", DATA, chance.uniform(50, 100), 12 * MIB)
            truth.expect(GRADIENT_BUCKET, 1, fired=True)
        device.kernel(GEMM, 300)
    return device.document(), truth
