"""What ranks of the tests do through a switch that adds; each case as in ``live_cases``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

import live_policies
from live_cases import refused
from ringwright.execute.switched.serving import SwitchServer, read_key
from ringwright.execute.switched.switch import SwitchSettings
from ringwright.ground.errors import RanksFailedError
from ringwright.model.codecs import block_exponent
from ringwright_lab.live import schedule

Loss = Callable[[nn.Module, int, int], Any]


@contextmanager
def served(rank: int, workers: int = 2, key_file: Path | None = None) -> Iterator[str]:
    """Have a switch run in a thread of rank 0, and give every rank its address."""
    said, stop = [""], threading.Event()
    if rank == 0:
        key = read_key(key_file) if key_file is not None else b""
        server = SwitchServer(SwitchSettings(workers, key=key), ("127.0.0.1", 0))
        said[0] = "{}:{}".format(*server.wire.address)
        threading.Thread(target=server.run, args=(stop.is_set,), daemon=True).start()
    dist.broadcast_object_list(said)
    yield said[0]
    dist.barrier()
    stop.set()


class Two(nn.Module):
    """Two layers of which neither sees the other: gradients are sums of what goes in, and whole where that is."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first, self.second = nn.Linear(30, 40), nn.Linear(30, 8)

    def forward(self, x: Any) -> Any:
        return self.first(x).sum() + 2 * self.second(x).sum()


def whole(model: nn.Module, rank: int, step: int) -> Any:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return model(torch.randint(1, 5, (8, 30), generator=generator).float())


def drawn(model: nn.Module, rank: int, step: int) -> Any:
    """The same gradient in every step, of numbers that no integer is; the second rank's are a tenth."""
    del step
    generator = torch.Generator().manual_seed(7 + rank)
    return model(torch.randn(8, 30, generator=generator) * 0.1**rank)


def trained(rank: int, each: Loss, steps: int, policy: Any = live_policies.priority, **settings: Any) -> np.ndarray:
    """Return all parameters after so many steps: float32, flat."""
    model = Two()
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    with schedule(model, optimizer, policy, timeout_s=20.0, **settings) as live:
        for step in range(steps):
            optimizer.zero_grad()
            each(model, rank, step).backward()
            optimizer.step()
        live.flush()
    return np.concatenate([one.detach().numpy().ravel() for one in model.parameters()])


def whole_numbers(rank: int, world: int) -> dict[str, Any]:
    del world
    plain = trained(rank, whole, 4)
    found = {"started": np.array_equal(plain, trained(rank, whole, 4, aggregate="switchml:codec=fixed-point"))}
    key = Path(__file__)  # any file is a secret
    with served(rank, key_file=key) as switch:
        asked = {"aggregate": "switchml:slots=4:payload=32:loss=0.02", "switch": switch, "key_file": key}
        found["given"] = np.array_equal(plain, trained(rank, whole, 4, **asked))
    return found


def rounded(rank: int, world: int) -> dict[str, Any]:
    """How far 20 equal steps are off with what int8 left over and without, in bounds of one step."""
    exact = Two()
    drawn(exact, rank, 0).backward()
    before = np.concatenate([one.detach().numpy().ravel() for one in exact.parameters()])
    mine = np.concatenate([one.grad.numpy().ravel() for one in exact.parameters()])
    total = torch.from_numpy(mine.astype(np.float64))
    dist.all_reduce(total)
    largest = torch.tensor([float(np.abs(mine).max())])
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    agreed = block_exponent.exponents(largest.numpy()[None])
    bound = float(block_exponent.error_bound(agreed, world, "int8")[0]) / world
    wanted = before - 20 * total.numpy() / world
    found = {}
    with served(rank) as switch:
        asked = {"aggregate": "switchml:codec=int8", "switch": switch, "policy": live_policies.fifo}
        for name, feedback in (("kept", True), ("dropped", False)):
            got = trained(rank, drawn, 20, error_feedback=feedback, **asked)
            found[name] = float(np.abs(got - wanted).max()) / bound
    return found


def switch_died(rank: int, world: int) -> str:
    del world
    model = Two()
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    try:
        with schedule(model, optimizer, live_policies.fifo, timeout_s=3.0, aggregate="switchml") as live:
            for step in range(6):
                if step == 3 and rank == 0:
                    live._exchange.traffic._sums._own.process.kill()
                optimizer.zero_grad()
                whole(model, rank, step).backward()
                optimizer.step()
    except RanksFailedError as error:
        return str(error)
    return "nothing"


def switch_refused(rank: int, world: int) -> dict[str, Any]:
    del world

    def asked(model: nn.Module | None = None, **settings: Any) -> str:
        made = model or Two()
        optimizer = torch.optim.SGD(made.parameters(), 1.0)
        policy = settings.pop("policy", live_policies.fifo)
        return refused(lambda: schedule(made, optimizer, policy, timeout_s=2.0, **{"aggregate": "switchml"} | settings))

    def poisoned(model: nn.Module, rank: int, step: int) -> Any:
        del step
        return model(torch.full((8, 30), float("nan") if rank else 1.0))

    found = {
        "silent": asked(switch="127.0.0.1:9"),
        "dtype": asked(Two().to(torch.bfloat16)),
        "link": asked(link_rate=1e6),
        "nothing": asked(aggregate=None, switch="127.0.0.1:9"),
        "other": asked(aggregate="ring"),
        "key": asked(key_file="switch.key"),
        "knob": asked(aggregate="switchml:codec=zip"),
        "differs": asked(aggregate=f"switchml:slots={4 + rank}"),
    }
    with served(rank, workers=1) as switch:
        found["ports"] = asked(switch=switch)
    with served(rank) as switch:
        found["nan"] = refused(lambda: trained(rank, poisoned, 1, aggregate="switchml", switch=switch))
    return found
