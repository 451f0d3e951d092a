"""What ranks of the tests do. Each case is a function (rank, world) -> something that JSON can hold."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import live_policies
from ringwright.ground.errors import RingwrightError
from ringwright.model.workload import Policy, Rewrite
from ringwright_lab.live import schedule

OPTIMISERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda ps: torch.optim.SGD(ps, 0.1),
    "momentum": lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9, nesterov=True, foreach=True),
    "adam": lambda ps: torch.optim.Adam(ps, 0.01, fused=True),
    "adamw": lambda ps: torch.optim.AdamW(ps, 0.01, weight_decay=0.1, amsgrad=True),
}
LIMITS = {"timeout_s": 20.0}


def run(name: str, rank: int, world: int, store: str) -> Any:
    torch.set_num_threads(1)
    if name != "no_group":
        dist.init_process_group("gloo", store=dist.FileStore(store, world), rank=rank, world_size=world)
    own = globals().get(name)
    return (own or getattr(import_module("live_switched"), name))(rank, world)


def net(seed: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(20, 50), nn.Tanh(), nn.Linear(50, 50), nn.Tanh(), nn.Linear(50, 7))


def batch(rank: int, step: int, part: int = 0) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(1000 * step + 10 * part + rank)
    return torch.randn(8, 20, generator=generator), torch.randn(8, 7, generator=generator)


def loss(model: nn.Module, rank: int, step: int, part: int = 0) -> Any:
    x, y = batch(rank, step, part)
    return (model(x) - y).square().mean()


def synchronise(model: nn.Module, world: int, pieces: int = 0) -> None:
    """Average gradients tensor by tensor, or in pieces of so many bytes; nobody's gradient stays as it is."""
    for each in model.parameters():
        used = torch.tensor([float(each.grad is not None)])
        dist.all_reduce(used)
        if not used:
            continue
        if each.grad is None:
            each.grad = torch.zeros_like(each)
        flat = each.grad.view(-1)
        for part in flat.split(pieces // 4 if pieces else flat.numel()):
            dist.all_reduce(part)
        each.grad.div_(world)


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def refused(call: Callable[[], Any]) -> str:
    """Return the words of the error of ours that a call raises."""
    try:
        call()
    except RingwrightError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def against(
    rank: int,
    world: int,
    optimiser: str,
    policy: Any,
    *,
    make: Callable[[], nn.Module] = net,
    steps: int = 4,
    pieces: int = 0,
    each: Callable[[nn.Module, int, int], Any] = loss,
    **settings: Any,
) -> dict[str, Any]:
    """Train twice, synchronously and scheduled; return whether all is bitwise equal, and close."""
    plain, ours = make(), make()
    first, second = (OPTIMISERS[optimiser](model.parameters()) for model in (plain, ours))
    for step in range(steps):
        first.zero_grad()
        each(plain, rank, step).backward()
        synchronise(plain, world, pieces if step else 0)  # the first step is the warm-up, in whole tensors
        first.step()
    with schedule(ours, second, policy, **LIMITS, **settings) as live:
        for step in range(steps):
            second.zero_grad()
            each(ours, rank, step).backward()
            second.step()
        plan = [(one.name, one.pieces) for one in live.plan.operations]
    off = max(float((a - b).detach().abs().max()) for a, b in zip(plain.parameters(), ours.parameters(), strict=True))
    return {"same": same(plain, ours), "off": off, "plan": plan}


# ------------------------------------------------------------------------------------------------------------- equality
def equal(rank: int, world: int) -> dict[str, Any]:
    found = {}
    for name in OPTIMISERS:
        found[f"{name} priority"] = against(rank, world, name, live_policies.priority)
    for name, policy in {
        "fifo": live_policies.fifo,
        "fused": live_policies.fused,
        "static": lambda w, c: live_policies.priority(w, c, agreement="static"),
        "window": lambda w, c: live_policies.priority(w, c, window=(2500, "bytes")),
        "buckets in pieces": lambda w, c: live_policies.priority(w, c, cap=4000),
        "barrier": lambda w, c: live_policies.priority(w, c, boundary="barrier"),
        "policy": Policy(boundary="layer", agreement="program"),
    }.items():
        found[name] = against(rank, world, "momentum", policy)
    return found


def four(rank: int, world: int) -> dict[str, Any]:
    return {
        "pieces": against(rank, world, "momentum", live_policies.priority, pieces=1000),
        "tensors": against(rank, world, "momentum", live_policies.priority),
        "fifo": against(rank, world, "adam", live_policies.fifo),
    }


def systems(rank: int, world: int) -> dict[str, Any]:
    """Each published scheduler, small enough to have several pieces."""
    from ringwright.schedulers.decompose.dear import dear
    from ringwright.schedulers.fifo.gradientflow import gradientflow
    from ringwright.schedulers.fifo.poseidon import poseidon
    from ringwright.schedulers.fifo.pytorch_ddp import pytorch_ddp
    from ringwright.schedulers.priority.bytescheduler import bytescheduler
    from ringwright.schedulers.priority.p3 import p3
    from ringwright.schedulers.priority.pace import pace
    from ringwright.schedulers.priority.tictac import tictac

    small = 1 / 512  # MiB: 2 KiB
    listed: dict[str, tuple[Any, dict[str, Any]]] = {
        "pytorch_ddp": (pytorch_ddp, {"bucket_cap_mb": small, "first_bucket_mb": small}),
        "gradientflow": (gradientflow, {"theta_mb": small}),
        "wide gradientflow": (gradientflow, {"theta_mb": small, "element_bytes": 4}),
        "poseidon": (poseidon, {"scheme": "dense"}),
        "p3": (p3, {"slice_elements": 500}),
        "bytescheduler": (bytescheduler, {"partition_mb": small, "credit_mb": 2 * small}),
        "tictac": (tictac, {}),
        "random": (tictac, {"random": 5}),
        "pace": (pace, {"slice_mb": small}),
        "dear": (dear, {"threshold_mb": small}),
    }
    return {
        name: against(rank, world, "momentum", slug, knobs=knobs, link_rate=20e6)
        for name, (slug, knobs) in listed.items()
    }


class Counting(nn.Module):
    """Its gradients are whole numbers that depend on rank and step, and on the signs of its parameters."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(size) % 7 - 3.0)
        self.bias = nn.Parameter(torch.ones(5))

    def forward(self, x: Any) -> Any:
        for each in (self.weight, self.bias):
            numbers = torch.arange(each.numel()) % 5 + torch.sign(each.detach())
            x = x + (each * numbers).sum()
        return x


def counted(model: nn.Module, rank: int, step: int, part: int = 0) -> Any:
    return model(torch.tensor(1.0)) * float(rank + 2 * step + part + 1)


def counting() -> nn.Module:
    return nn.Sequential(*[Counting(size) for size in (11, 64, 3, 40)])


def halved(rank: int, world: int) -> dict[str, Any]:
    """DeAR: scatters beside backward, gathers beside the next forward; in buckets whose blocks are not all as large."""
    from ringwright.schedulers.decompose.dear import dear

    same = {"make": counting, "each": counted, "steps": 5}
    knobs: dict[str, dict[str, Any]] = {
        "sgd": {"neighbours": 1},
        "momentum": {"neighbours": 3, "ahead": 2},
        "adam": {"neighbours": 2, "conserving": True},
        "adamw": {},
    }
    found: dict[str, Any] = {name: against(rank, world, name, dear, knobs=each, **same) for name, each in knobs.items()}
    return {**found, "accumulated": gathered_late(rank, world), "saved": saved_by_one(rank, world)}


def gathered_late(rank: int, world: int) -> dict[str, Any]:
    """Two backward passes a step, a declared clip, and what ranks have sent, in bytes, by step."""
    from ringwright.schedulers.decompose.dear import dear

    plain, ours = counting(), counting()
    first, second = (OPTIMISERS["momentum"](model.parameters()) for model in (plain, ours))
    sent = []
    with schedule(ours, second, dear, knobs={"neighbours": 3}, accumulate=2, **LIMITS) as live:
        for step in range(4):
            for model, optimiser in ((plain, first), (ours, second)):
                optimiser.zero_grad()
                for part in range(2):
                    counted(model, rank, step, part).backward()
                if model is plain:
                    synchronise(plain, world)
                if step == 2:
                    nn.utils.clip_grad_norm_(plain.parameters(), 40.0) if model is plain else live.clip(40.0)
                optimiser.step()
            live.flush()
            sent.append(live._exchange.traffic.halves.sent_bytes)
    ranks: list[Any] = [None] * world
    dist.all_gather_object(ranks, [after - before for before, after in pairwise(sent)])
    return {"same": same(plain, ours), "bytes": [sum(each) for each in zip(*ranks, strict=True)]}


def saved_by_one(rank: int, world: int) -> bool:
    """One rank reads all parameters between steps while the others wait for it."""
    from ringwright.schedulers.decompose.dear import dear

    plain, ours = counting(), counting()
    first, second = (OPTIMISERS["sgd"](model.parameters()) for model in (plain, ours))
    with schedule(ours, second, dear, knobs={"neighbours": 1}, **LIMITS):
        for step in range(3):
            for model, optimiser in ((plain, first), (ours, second)):
                optimiser.zero_grad()
                counted(model, rank, step).backward()
                if model is plain:
                    synchronise(plain, world)
                optimiser.step()
            held = ours.state_dict() if rank == 1 else {}
            dist.barrier()
    return all(torch.equal(value, plain.state_dict()[name]) for name, value in held.items())


class Branches(nn.Module):
    """``odd`` is used by odd ranks in odd steps only, ``never`` never; ``tied`` shares the weight of ``first``."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first, self.odd, self.last = nn.Linear(20, 20), nn.Linear(20, 20), nn.Linear(20, 7)
        self.never, self.tied = nn.Linear(4, 4), nn.Linear(20, 20)
        self.tied.weight = self.first.weight
        self.scale = nn.Parameter(torch.ones(7))

    def forward(self, x: Any, odd: bool) -> Any:
        x = self.tied(self.first(x).tanh()).tanh()
        return self.last(self.odd(x) if odd else x) * self.scale


def branches(rank: int, world: int) -> dict[str, Any]:
    def each(model: nn.Module, rank: int, step: int) -> Any:
        x, y = batch(rank, step)
        return (model(x, bool(rank % 2 and step % 2)) - y).square().mean()

    policies = {"priority": live_policies.priority, "fifo": live_policies.fifo}
    found = {
        name: against(rank, world, "adamw", policy, make=Branches, each=each, steps=6)
        for name, policy in policies.items()
    }
    return {**found, "never zeroed": left_over(rank, world)}


def left_over(rank: int, world: int) -> dict[str, Any]:
    """Gradients that nobody zeroes: what is not used in a step is stepped with again, as without a schedule."""
    plain, ours = Branches(), Branches()
    optimisers = [OPTIMISERS["momentum"](model.parameters()) for model in (plain, ours)]
    with schedule(ours, optimisers[1], live_policies.priority, **LIMITS):
        for step in range(5):
            x, y = batch(rank, step)
            for model, optimiser in zip((plain, ours), optimisers, strict=True):
                before = [None if each.grad is None else each.grad.clone() for each in model.parameters()]
                (model(x, step % 2 == 0) - y).square().mean().backward()
                if model is plain:
                    for each, old in zip(model.parameters(), before, strict=True):
                        if each.grad is not None and (old is None or not torch.equal(old, each.grad)):
                            dist.all_reduce(each.grad)
                            each.grad.div_(world)
                optimiser.step()
    wrong = [n for (n, a), b in zip(plain.named_parameters(), ours.parameters(), strict=True) if not torch.equal(a, b)]
    return {"same": same(plain, ours), "wrong": wrong}


class Reached(nn.Module):
    """Uses a submodule's parameters without calling it, as attention does with its projection."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.attention = nn.MultiheadAttention(20, 4, batch_first=True)
        self.inner = nn.Linear(20, 7)
        self.norm = nn.BatchNorm1d(20)

    def forward(self, x: Any) -> Any:
        x = self.norm(x)
        x = x + self.attention(x[:, None], x[:, None], x[:, None])[0][:, 0]
        return nn.functional.linear(x, self.inner.weight, self.inner.bias)


def reached(rank: int, world: int) -> dict[str, Any]:
    return against(rank, world, "momentum", live_policies.priority, make=Reached)


def accumulated(rank: int, world: int) -> dict[str, Any]:
    plain, ours, third = net(), net(), net()
    optimisers = [OPTIMISERS["momentum"](model.parameters()) for model in (plain, ours, third)]
    for step in range(3):
        optimisers[0].zero_grad()
        for part in range(3):
            loss(plain, rank, step, part).backward()
        synchronise(plain, world)
        optimisers[0].step()
    with schedule(ours, optimisers[1], live_policies.priority, accumulate=3, **LIMITS) as live:
        for step in range(3):
            for part in range(3):
                loss(ours, rank, step, part).backward()
            optimisers[1].step()
            optimisers[1].zero_grad(set_to_none=False)
        rounds = live._round
    with schedule(third, optimisers[2], live_policies.priority, **LIMITS) as live:
        for step in range(3):
            third.zero_grad(set_to_none=False)
            with live.no_sync():
                for part in range(2):
                    loss(third, rank, step, part).backward()
            loss(third, rank, step, 2).backward()
            optimisers[2].step()
    return {"accumulate": same(plain, ours), "no_sync": same(plain, third), "rounds": rounds}


def between(rank: int, world: int) -> dict[str, Any]:
    """Between steps: a schedule of the learning rate, an evaluation, a checkpoint, gradients read, a step left out."""
    plain, ours = net(), net()
    first, second = (OPTIMISERS["adam"](model.parameters()) for model in (plain, ours))
    rates = [torch.optim.lr_scheduler.StepLR(each, 1, 0.5) for each in (first, second)]
    found: dict[str, Any] = {"kept": [], "graded": []}
    with schedule(ours, second, live_policies.priority, **LIMITS):
        for step in range(6):
            for model, optimiser, rate in ((plain, first, rates[0]), (ours, second, rates[1])):
                optimiser.zero_grad()
                loss(model, rank, step).backward()
                if model is plain:
                    synchronise(plain, world)
                if step != 3:
                    optimiser.step()
                rate.step()
            if step == 1:
                with torch.inference_mode():
                    found["evaluated"] = torch.equal(plain(batch(0, 0)[0]), ours(batch(0, 0)[0]))
            if step == 2:
                found["kept"] = same(plain, ours)
                state = [each.state_dict()["state"] for each in (first, second)]
                found["state"] = all(torch.equal(state[0][at]["exp_avg"], state[1][at]["exp_avg"]) for at in state[0])
    found["end"] = same(plain, ours)
    found["graded"] = all(
        torch.equal(a.grad, b.grad) for a, b in zip(plain.parameters(), ours.parameters(), strict=True)
    )
    found["restored"] = "zero_grad" not in second.__dict__ and "zero_grad" not in ours.__dict__
    return found


def clipped(rank: int, world: int) -> dict[str, Any]:
    plain, barrier, declared = net(), net(), net()
    optimisers = [OPTIMISERS["momentum"](model.parameters()) for model in (plain, barrier, declared)]
    norms = []
    with (
        schedule(barrier, optimisers[1], live_policies.fifo, **LIMITS),
        schedule(declared, optimisers[2], live_policies.priority, **LIMITS) as live,
    ):
        for step in range(4):
            for model, optimiser in zip((plain, barrier, declared), optimisers, strict=True):
                optimiser.zero_grad()
                loss(model, rank, step).backward()
                if model is plain:
                    synchronise(plain, world)
                norms.append(
                    float(live.clip(0.1) if model is declared else nn.utils.clip_grad_norm_(model.parameters(), 0.1))
                )
                optimiser.step()
    return {"barrier": same(plain, barrier), "declared": same(plain, declared), "norms": norms}


# ------------------------------------------------------------------------------------------------------------- refusals
def begun(world: int, policy: Any = live_policies.priority, make: Any = None, **settings: Any) -> Any:
    """Return a model two steps into its schedule, with its optimiser."""
    model = net()
    optimiser = (make or OPTIMISERS["momentum"])(model.parameters())
    live = schedule(model, optimiser, policy, **{**LIMITS, **settings})
    for step in range(2):
        optimiser.zero_grad()
        loss(model, 0, step).backward()
        optimiser.step()
    return model, optimiser, live


def together(live: Any) -> None:
    """Return when every rank is here with nothing under way, so that what is done wrong from now on meets all at one place."""
    live.flush()
    dist.barrier()


def edits(rank: int, world: int) -> dict[str, str]:
    found = {}

    def clip(model: Any, optimiser: Any) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    def value(model: Any, optimiser: Any) -> None:
        nn.utils.clip_grad.clip_grad_value_(model.parameters(), 1.0)

    def scaler(model: Any, optimiser: Any) -> None:
        torch.amp.GradScaler("cpu", init_scale=2.0).unscale_(optimiser)

    def own(model: Any, optimiser: Any) -> None:
        model[0].weight.grad.mul_(0.5)
        optimiser.step()

    def replaced(model: Any, optimiser: Any) -> None:
        model[0].weight.grad = model[0].weight.grad.clone()
        optimiser.step()

    def closure(model: Any, optimiser: Any) -> None:
        optimiser.step(lambda: loss(model, rank, 0))

    def again(model: Any, optimiser: Any) -> None:
        loss(model, rank, 3).backward()

    def hooks(model: Any, optimiser: Any) -> None:
        optimiser.register_step_post_hook(lambda *_: None)
        optimiser.step()

    for edit in (clip, value, scaler, own, replaced, closure, again, hooks):
        model, optimiser, _ = begun(world)
        optimiser.zero_grad()
        loss(model, rank, 2).backward()
        found[edit.__name__] = refused(lambda edit=edit, model=model, optimiser=optimiser: edit(model, optimiser))
    return found


def unfit(rank: int, world: int) -> dict[str, str]:
    """Models, optimisers and policies that cannot be scheduled."""
    from ringwright.model.workload import Queue

    found = {}
    first = nn.Linear(3, 3)
    for name, policy in {
        "order": Policy(order={"all": (("F", 0),)}),
        "select": Policy(rewrites=(Rewrite("select", ("dp",), {"share": 0.1, "chunk_elements": 8}),)),
        "boundary": Policy(boundary="none"),
        "agreement": Policy(agreement="votes"),
        "piece": Policy(rewrites=(Rewrite("partition", ("dp",), {"size_bytes": 2}),), queue=Queue()),
    }.items():
        found[name] = refused(lambda policy=policy: begun(world, policy))
    layered = Policy(boundary="layer", agreement="leader")
    found["lbfgs"] = refused(lambda: begun(world, layered, lambda ps: Lbfgs(list(ps))))
    found["stranger"] = refused(
        lambda: begun(world, layered, lambda ps: torch.optim.SGD([*ps, nn.Parameter(torch.ones(2))], 0.1))
    )
    found["both links"] = refused(lambda: begun(world, layered, link_rate=1e6, link=object()))
    found["frozen"] = refused(lambda: schedule(nn.Tanh(), torch.optim.SGD([torch.ones(1)], 0.1), layered))
    wrapped = nn.parallel.DistributedDataParallel(first)
    found["ddp"] = refused(lambda: schedule(wrapped, torch.optim.SGD(first.parameters(), 0.1), layered))
    meta = nn.Linear(3, 3, device="meta")
    found["device"] = refused(lambda: schedule(meta, torch.optim.SGD(meta.parameters(), 0.1), layered))
    return found


class Lbfgs(torch.optim.LBFGS):
    """The optimiser with a step that needs no closure, so that the warm-up goes through."""

    def step(self, closure: Any = None) -> Any:
        return None


def no_group(rank: int, world: int) -> str:
    model = net()
    return refused(lambda: schedule(model, torch.optim.SGD(model.parameters(), 0.1), Policy()))


# ------------------------------------------------------------------------------------------------------------- failures
def other_model(rank: int, world: int) -> str:
    model = nn.Sequential(nn.Linear(20, 50 + rank), nn.Linear(50 + rank, 7))
    return refused(lambda: schedule(model, torch.optim.SGD(model.parameters(), 0.1), Policy(), **LIMITS))


def other_policy(rank: int, world: int) -> str:
    size = 1000 if rank else 2000
    return refused(lambda: begun(world, lambda w, c: live_policies.priority(w, c, size_bytes=size)))


def other_order(rank: int, world: int) -> str:
    """One rank's fixed order is changed after all have been found equal."""
    model, optimiser, live = begun(world, live_policies.fifo)
    together(live)
    if rank == 1:
        live._exchange.control._fixed.order.reverse()

    def go() -> None:
        for step in range(2, 5):
            optimiser.zero_grad()
            loss(model, rank, step).backward()
            optimiser.step()

    return refused(go)


def other_issue(rank: int, world: int) -> str:
    """One rank issues something else than it was told, of equal size: only the hash can see it."""
    model, optimiser, live = begun(world, live_policies.priority, check_every=4)
    together(live)
    if rank == 1:
        control, issued = live._exchange.control, live._exchange.control.issued
        live._exchange.traffic._issued = lambda step, operation, piece: issued(step, operation, piece + 1)
        assert control.rank == 1

    def go() -> None:
        for step in range(2, 5):
            optimiser.zero_grad()
            loss(model, rank, step).backward()
            optimiser.step()
            time.sleep(0.2)
        live.flush()

    return refused(go)


def missing(rank: int, world: int) -> dict[str, Any]:
    """One rank runs no backward in a step: who waits says which rank lacks which operation."""
    found = {}
    for name, policy in (("leader", live_policies.priority), ("static", live_policies.fifo)):
        model, optimiser, live = begun(world, policy, timeout_s=2.0)
        together(live)

        def go(model: Any = model, optimiser: Any = optimiser, live: Any = live) -> None:
            if rank == 1:
                while True:  # until it is told that others wait for it
                    live._exchange.check()
                    time.sleep(0.05)
            loss(model, rank, 2).backward()
            optimiser.step()
            live.flush()

        found[name] = refused(go)
    return found


def died(rank: int, world: int) -> str:
    model, optimiser, live = begun(world)
    together(live)
    if rank == 1:
        time.sleep(0.5)
        os._exit(7)

    def go() -> None:
        loss(model, rank, 2).backward()
        optimiser.step()
        live.flush()

    return refused(go)


def led_away(rank: int, world: int) -> str:
    """Rank 0, which leads, stops answering."""
    model, optimiser, live = begun(world, timeout_s=2.0)
    together(live)
    if rank == 0:
        live._exchange.control._lock.acquire()
        time.sleep(6.5)
        return "held"

    def go() -> None:
        loss(model, rank, 2).backward()
        optimiser.step()
        live.flush()

    return refused(go)


def thrown(rank: int, world: int) -> dict[str, str]:
    """An exception in backward, then training goes on there; the other rank hears of it."""
    model, optimiser, live = begun(world)
    together(live)
    handle = model[0].register_full_backward_hook(lambda *_: 1 / 0) if rank else None
    found = {}

    def go() -> None:
        loss(model, rank, 2).backward()
        optimiser.step()
        loss(model, rank, 3).backward()

    try:
        found["first"] = refused(go)
    except ZeroDivisionError:
        found["first"] = "ZeroDivisionError"
        handle.remove()
    found["then"] = refused(lambda: loss(model, rank, 3))
    return found


def left(rank: int, world: int) -> str:
    """One rank's training ends in an error inside the schedule's block."""

    def go() -> None:
        model, optimiser, live = begun(world)
        together(live)
        with live:
            if rank:
                raise ValueError("no more data")
            for step in range(2, 9):
                loss(model, rank, step).backward()
                optimiser.step()

    try:
        return refused(go)
    except ValueError as error:
        return f"ValueError: {error}"


def stale(rank: int, world: int) -> str:
    """A parameter used outside of any module that was seen to use it."""
    model, optimiser, _ = begun(world)
    optimiser.zero_grad()
    x, _ = batch(rank, 2)
    old = nn.functional.linear(x, model[0].weight).sum()
    return refused((old + model[2](torch.zeros(8, 50)).sum()).backward)


# ------------------------------------------------------------------------------------------------------------- measured
def profiled(rank: int, world: int) -> dict[str, Any]:
    from ringwright.engines.job.run import simulate

    model, optimiser, live = begun(world, lambda w, c: live_policies.priority(w, c, size_bytes=4000), link_rate=1e6)
    with live:
        for step in range(2, 6):
            optimiser.zero_grad()
            loss(model, rank, step).backward()
            optimiser.step()
        live.flush()
        trace, workload, costs = live.profile(), live.workload(), live.costs()
    events = trace.df
    sent = events.filter(events["kind"] == "collective")
    step = sent.filter(sent["iteration"] == 4)
    return {
        "kinds": sorted(set(events["kind"].to_list())),
        "step_bytes": int(step["size_bytes"].sum()),
        "longest_s": float(step["duration_s"].max()),
        "bytes": sum(each.size_bytes for each in workload.payloads),
        "layers": [task.name for task in workload.tasks if task.kind == "F"],
        "step_s": simulate(live_policies.priority(workload, costs, size_bytes=4000), costs).step_s,
        "early": [
            task
            for task, ready, start in step.select("task", "enqueue_s", "start_s").iter_rows()
            if start < ready - 1e-3
        ],
    }


# -------------------------------------------------------------------------------------- inside DistributedDataParallel
def wide() -> nn.Module:
    torch.manual_seed(9)
    sizes = (64, 256, 128, 512, 64, 7)
    return nn.Sequential(*(layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.Tanh())))


def wide_loss(model: nn.Module, rank: int, step: int) -> Any:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return model(torch.randn(4, 64, generator=generator)).square().mean()


def trained(model: nn.Module, wrapped: nn.Module, rank: int, steps: int = 5, optimiser: Any = None) -> nn.Module:
    optimiser = optimiser or torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for step in range(steps):
        optimiser.zero_grad()
        wide_loss(wrapped, rank, step).backward()
        optimiser.step()
    return model


def buckets(rank: int, world: int) -> dict[str, Any]:
    """The buckets of a plan, and those that DistributedDataParallel makes of it."""
    from ringwright.formats.settings.ddp_buckets import ddp_plan

    model = wide()
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    with schedule(model, optimiser, live_policies.fifo, **LIMITS) as live:
        trained(model, model, rank, 3, optimiser)
        made = live_policies.fused(live.workload(), None, cap=300_000)
    plan, other = ddp_plan(made), wide()
    names = {id(each): name for name, each in other.named_parameters()}
    wrapped = nn.parallel.DistributedDataParallel(other, bucket_cap_mb_list=plan["bucket_cap_mb_list"])
    seen: list[list[str]] = []

    def look(state, bucket):  # type: ignore[no-untyped-def]  # an annotation would be looked at
        seen.append([names[id(each)] for each in bucket.parameters()])
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    wrapped.register_comm_hook(None, look)
    for step in range(3):
        seen.clear()
        wide_loss(wrapped, rank, step).backward()
    return {"plan": [sorted(each) for each in plan["buckets"]], "made": [sorted(each) for each in seen]}


def hooked(rank: int, world: int) -> dict[str, Any]:
    """A policy as a hook against DistributedDataParallel alone."""
    from ringwright_lab.live import ddp

    def run(policy: Any) -> tuple[nn.Module, Any]:
        model = wide()
        wrapped = nn.parallel.DistributedDataParallel(model, bucket_cap_mb_list=[0.3, 0.5])
        state = None
        if policy is not None:
            workload = schedule_free(model)
            state = ddp.state(policy(workload))
            wrapped.register_comm_hook(state, ddp.hook)
        return trained(model, wrapped, rank), state

    alone, _ = run(None)
    whole, _ = run(lambda w: live_policies.fifo(w, None))
    cut, state = run(
        lambda w: w.with_policy(
            "cut", rewrites=(Rewrite("partition", ("dp",), {"size_bytes": 50_000}),), boundary="barrier"
        )
    )
    refusals = {
        "layer": refused(lambda: ddp.state(live_policies.priority(schedule_free(wide()), None))),
        "keys": refused(lambda: ddp.state(live_policies.priority(schedule_free(wide()), None, boundary="barrier"))),
    }
    return {
        "whole": same(alone, whole),
        "cut": same(alone, cut),
        "largest": max(max(sizes) for _, sizes in state.sent),
        "several": max(len(sizes) for _, sizes in state.sent),
        **refusals,
    }


def schedule_free(model: nn.Module) -> Any:
    """Return a model's workload without running anything."""
    from ringwright.workloads.chain import ChainLayer, chain

    return chain(
        "model", [ChainLayer(0.0, 0.0, 4 * each.numel(), name=name) for name, each in model.named_parameters()]
    )


# ------------------------------------------------------------------------------------------------------------- numerics
def pooled(rank: int, world: int) -> dict[str, Any]:
    """The pool at several thresholds: cuts, and sums against those of each tensor alone."""
    from ringwright_lab.live.pool import Pool

    model = wide()
    wide_loss(model, rank, 0).backward()
    mine = {name: each.grad.clone() for name, each in model.named_parameters()}
    synchronise(model, 1)
    order = list(mine)[::-1]
    alone = {name: each.clone() for name, each in mine.items()}
    for name in order:
        dist.all_reduce(alone[name])
    found: dict[str, Any] = {}
    for theta in (0, 200_000, float("inf")):
        pool = Pool(
            {n: g.shape for n, g in mine.items()}, order, theta, lambda part: dist.all_reduce(part, async_op=True)
        )
        for step in range(2):
            pool.begin()
            late = order[3] if rank == 0 and step else order[0]  # the cuts must not depend on who is early
            for name in [each for each in order if each != late] + [late]:
                pool.put(name, mine[name])
            sums = pool.finish()
        found[str(theta)] = {"cuts": pool.cuts, "same": all(torch.equal(sums[name], alone[name]) for name in order)}
    found["tensors"] = [mine[name].numel() for name in order]
    return found


def add_up(tensor: Any) -> None:
    dist.all_reduce(tensor)


def chunks(rank: int, world: int) -> dict[str, Any]:
    """What coarse sparsity sends and keeps, against the dense sums."""
    from ringwright_lab.live.sparse import Coarse

    def gradients(step: int, who: int) -> Any:
        generator = torch.Generator().manual_seed(50 * step + who)
        return torch.randn(1000, generator=generator) * torch.linspace(0, 1, 1000)

    coarse = Coarse(1000, world, add_up, shares=(1.0, 0.25), chunk_elements=64)
    dense = Coarse(1000, world, add_up, shares=(1.0,), chunk_elements=64, momentum=0.9)
    weights = nn.Parameter(torch.zeros(1000))
    optimiser = torch.optim.SGD([weights], 1.0, momentum=0.9)
    sent, total, chosen, bitwise = torch.zeros(1000), torch.zeros(1000), [], True
    taken = torch.zeros(1000)
    for step in range(12):
        mean = gradients(step, rank)
        dist.all_reduce(mean)
        mean.div_(world)
        total += mean
        update = coarse.update(gradients(step, rank))
        sent += update
        chosen.append(list(coarse.chosen))
        weights.grad = mean
        optimiser.step()
        taken -= dense.update(gradients(step, rank))
        bitwise = bitwise and torch.equal(taken, weights.detach())
    kept = coarse.residue[:1000].clone()
    dist.all_reduce(kept)
    return {
        "chosen": chosen,
        "conserved": float((sent + kept / world - total).abs().max()),
        "bitwise": bitwise,
        "bytes": coarse.sent_bytes,
        "kept": float(kept.abs().sum()) > 0,
    }


def converges(rank: int, world: int) -> dict[str, float]:
    """A small classifier on data that can be learnt, dense and with a tenth of the chunks."""
    from ringwright_lab.live.sparse import Coarse

    teacher = torch.Generator().manual_seed(77)
    truth = torch.randn(32, 5, generator=teacher)

    def data(step: int, who: int) -> tuple[Any, Any]:
        generator = torch.Generator().manual_seed(10_000 + 31 * step + who)
        x = torch.randn(32, 32, generator=generator)
        return x, (x @ truth + 0.5 * torch.randn(32, 5, generator=generator)).argmax(1)

    def run(shares: tuple[float, ...], steps: int = 300) -> tuple[float, float, int]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 5))
        members = list(model.parameters())
        coarse = Coarse(
            sum(each.numel() for each in members), world, add_up, shares=shares, chunk_elements=16, momentum=0.9
        )
        first = 0.0
        for step in range(steps):
            x, y = data(step, rank)
            model.zero_grad()
            value = nn.functional.cross_entropy(model(x), y)
            first = first or float(value.detach())
            value.backward()
            update = coarse.update(torch.cat([each.grad.view(-1) for each in members]))
            with torch.no_grad():
                for each, part in zip(members, update.split([each.numel() for each in members]), strict=True):
                    each.sub_(0.02 * part.view_as(each))
        with torch.no_grad():
            losses = [nn.functional.cross_entropy(model(x), y) for x, y in (data(50_000 + at, 0) for at in range(50))]
        return float(torch.stack(losses).mean()), first, coarse.sent_bytes

    dense, first, dense_bytes = run((1.0,))
    warm = (1.0,) * 10 + (0.75,) * 10 + (0.5,) * 10 + (0.25,) * 10 + (0.1,)
    sparse, _, sparse_bytes = run(warm)
    return {"dense": dense, "sparse": sparse, "first": first, "bytes": sparse_bytes / dense_bytes}


def factors(rank: int, world: int) -> dict[str, Any]:
    """Gradients rebuilt from factors against the mean of the whole ones, and the bytes of both."""
    from ringwright_lab.live.factors import Factors

    whole, ours = wide(), wide()
    rebuilt = Factors(ours, ["0", "6"])
    for model in (whole, ours):
        wide_loss(model, rank, 1).backward()
        if model is ours:
            rebuilt.exchange()
    synchronise(whole, world)
    off = {}
    for name in ("0.weight", "0.bias", "6.weight", "6.bias"):
        a, b = whole.get_parameter(name).grad, ours.get_parameter(name).grad
        off[name] = float((a - b).abs().max() / a.abs().max())
    text = b"".join(ours.get_parameter(name).grad.numpy().tobytes() for name in off)
    return {
        "off": max(off.values()),
        "bytes": rebuilt.sent_bytes,
        "hash": hashlib.sha256(text).hexdigest(),
        "twice": refused(rebuilt.exchange),
        "other": refused(lambda: Factors(ours, ["1"])),
    }
