"""Type every knob at random and look at how it ends.

A declared value has to be accepted by its knob, and then ends in 0, or is declined with a reason (2, 4 or 5); any other value
ends in 2, 4 or 5. Nothing ends in 70, takes longer than the limit or prints a negative figure, and of every knob some value
that is accepted changes a figure.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import importlib
import io
import json
import math
import pkgutil
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ringwright
from ringwright.cli import main
from ringwright.fabrics import fabric, families
from ringwright.fabrics import knobs as knobs_of_fabric
from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright.ground.knobs import Knob
from ringwright.model import registry
from ringwright_lab.contracts.knob_values import Spelling, spellings
from ringwright_lab.testing import campaigns
from ringwright_lab.testing.knob_witnesses import WITNESS, figures

RANKS = 16
MACHINES = ("dgx-h100:2", "switch:16", "torus:4x4", "dgx-h100:2,sharp=true", "dgx-h100:1", "dgx-h100:3,sharp=true")
SIZES = ("4096", "1048576", "1048576", "16777216")
NETWORK = ("per_leaf", "spines", "oversubscription", "routing", "seed", "spine_latency_s", "sharp", "pxn")
RAILED = ("routing", "seed")  # of rails: where a message changes its rail inside the box, no spine is chosen
SIZES_OF = {
    "leaf-spine": "64",
    "fat-tree": "64",
    "switch": "16",
    "ring": "16",
    "full": "16",
    "hypercube": "16",
    "rail-optimised": "8",
    "torus": "4x4",
    "mesh": "4x4",
    "tpu": "4x4x4",
    "dragonfly": "3x2x2",
    "dragonfly-plus": "3x2x2",
}
LIMIT_S, LIMIT_BYTES = 30, 12 << 30  # of processor time
MODELS = (
    ("resnet50", "dgx-a100:2", ("--gpus", "16", "--parallel", "dp16")),
    ("vgg16", "switch:8,rate=1GB/s", ("--gpus", "8", "--parallel", "dp8")),
)
EXPERTS = ("mixtral", "dgx-h100:2", ("--gpus", "16", "--parallel", "ep8,dp16", "--seq", "512"))
SERVED = ("mixtral", "dgx-h100:1", ("--gpus", "8", "--parallel", "ep8", "--seq", "512", "--mode", "prefill"))
OF_INFERENCE = ("skew", "plan", "accuracy", "seed")


@dataclass
class Tally:
    """What a knob's spellings came to."""

    codes: collections.Counter[int] = field(default_factory=collections.Counter)
    accepted: int = 0
    effects: bool = False
    wrong: list[str] = field(default_factory=list)
    slowest_s: float = 0.0


class TooLong(BaseException):
    """A command passed the limit."""


def run(arguments: list[str]) -> tuple[int, Any, str, float]:
    """Run a command in this process; return exit code, its JSON, what it said, and seconds."""
    out, err = io.StringIO(), io.StringIO()
    began = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([*arguments, "--json"])
    except TooLong:
        code = 124
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    took_s = time.process_time() - began
    try:
        found = json.loads(out.getvalue())
    except ValueError:
        found = None
    return code, found, err.getvalue(), took_s


def negatives(found: Any, path: str = "") -> Iterator[str]:
    """Yield the figures below zero, those that may be aside."""
    if isinstance(found, dict):
        for key, value in found.items():
            yield from negatives(value, f"{path}.{key}")
    elif isinstance(found, list):
        for value in found:
            yield from negatives(value, path)
    elif isinstance(found, (int, float)) and (found < 0 or math.isnan(found)):
        yield f"{path}={found}"


Command = Callable[[str], list[str]]


def typed(owner: str, known: dict[str, Knob], mark: str = ":") -> list[tuple[str, Knob]]:
    """Return the knobs of a system that can be typed, with their whole names."""
    return [(f"{owner}{mark}{knob.name}", knob) for knob in known.values() if knob.can_be_typed]


def judge(tally: Tally, spelling: Spelling, label: str, command: Command, plain: str, accepts: bool) -> None:
    """Run one spelling and note what is wrong about its end."""
    code, found, said, took_s = run(command(label))
    tally.codes[code] += 1
    tally.slowest_s = max(tally.slowest_s, took_s)
    if code not in (0, 2, 4, 5) or (code and len(said.strip()) < 20 and not found):
        tally.wrong.append(
            f"exit {code} after {took_s:.0f} s: {label}: {said.strip()[:300]} | {' '.join(command(label))}"
        )
    if spelling.is_declared != accepts and spelling.is_declared:
        tally.wrong.append(f"refused although declared: {label}: {said.strip()[:200]}")
    bad = list(negatives(figures(found)))
    if bad:
        tally.wrong.append(f"below zero: {label}: {bad[:3]}")
    if code == 0:
        tally.accepted += 1
        tally.effects = tally.effects or figures(found) != plain_of(command, plain)


PLAIN: dict[str, Any] = {}


def plain_of(command: Command, plain: str) -> Any:
    """Return the figures of the system without knobs."""
    key = " ".join(command(plain))
    if key not in PLAIN:
        PLAIN[key] = figures(run(command(plain))[1])
    return PLAIN[key]


def accepted(parse: Callable[[], object]) -> bool:
    """Return whether a spelling is taken before anything is done with it."""
    try:
        parse()
    except (UsageError, InfeasibleError):
        return False
    return True


def of_algorithm(slug: str, knob: Knob, draw: random.Random, count: int) -> Tally:
    """Try a knob of a system that does collectives."""
    names = [system.slug for system in registry.systems()]
    system = next(each for each in registry.systems() if each.slug == slug)
    tally = Tally()
    for each in spellings(knob, draw, count, ranks=RANKS, algorithms=names):
        label = f"{slug}:{knob.name}={each.text}"
        asked = simulate(draw.choice(system.ops), draw.choice(MACHINES), draw.choice(SIZES))
        judge(tally, each, label, asked, slug, accepted(lambda: registry.algorithm(label)))  # noqa: B023
    for _ in range(20 * (not tally.effects)):
        each = next(spellings(knob, draw, 1, ranks=RANKS, algorithms=names))
        beside = companions(knob, system.knobs())
        asked = simulate(draw.choice(system.ops), draw.choice(MACHINES), draw.choice(SIZES))
        judge(tally, each, f"{slug}:{knob.name}={each.text}{beside}", asked, f"{slug}{beside}", True)
        if tally.effects:
            break
    return tally


def companions(knob: Knob, known: dict[str, Knob]) -> str:
    """Return a further knob of the same system without which this one has nothing to do."""
    found = {
        "chunk_elements": ":share=0.1",
        "servers": ":batch=256",
        "plan": ":skew=5",
        "accuracy": ":skew=5:plan=estimate",
        "seed": ":noise=0.3",
        "fanout": ":algorithm=tree",
        "max_requests": ":algorithm=linear_sync",
    }.get(knob.name, "")
    if knob.name == "seed" and "skew" in known:
        found = ":skew=5:plan=estimate"
    return found if found[1:].partition("=")[0] in known else ""


def simulate(op: str, machine: str, size: str) -> Command:
    """Return the command of a collective."""
    return lambda label: ["simulate", op, "--fabric", machine, "--algorithm", label, "-b", size, "-e", size]


def job(model: str, machine: str, more: tuple[str, ...]) -> Command:
    """Return the command of a job."""
    return lambda label: ["simulate", "--model", model, "--fabric", machine, *more, "--policy", label]


def of_policy(slug: str, knob: Knob, draw: random.Random, count: int) -> Tally:
    """Try a knob of a scheduler."""
    system = next(each for each in registry.schedulers() if each.slug == slug)
    tally = Tally()
    for each in spellings(knob, draw, count):
        plain = f"{slug}{companions(knob, system.knobs())}"
        label = f"{plain}:{knob.name}={each.text}"
        asked = job(*draw.choice(jobs(slug, knob.name)))
        judge(tally, each, label, asked, plain, accepted(lambda: registry.scheduler(label)))  # noqa: B023
    return tally


def jobs(scheduler: str, knob: str) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Return the jobs that a knob of a scheduler is asked about."""
    if scheduler != "lina":
        return MODELS
    return (SERVED,) if knob in OF_INFERENCE else (EXPERTS,)


def of_fabric(name: str, knob: Knob, draw: random.Random, count: int) -> Tally:
    """Try a knob of a family of fabrics."""
    tally, plain = Tally(), f"{name}:{SIZES_OF.get(name, '2')}{beside(name, knob.name)}"
    for each in spellings(knob, draw, count):
        label = f"{plain},{knob.name}={each.text}"
        taken = accepted(lambda: fabric(label)) or not each.is_declared or declines(label)  # noqa: B023
        judge(tally, each, label, ring_on, plain, taken)
    tally.effects = tally.effects or topology_differs(plain, knob, draw)
    return tally


def beside(name: str, knob: str) -> str:
    """Return further knobs without which this one has nothing to do."""
    known = knobs_of_fabric(name)
    if knob not in NETWORK or "routing" not in known:
        return ""
    if name == "fat-tree":
        return ",routing=ecmp" if knob == "seed" else ""
    if knob == "pxn":
        return ",layout=rails,per_leaf=1"
    layout = "" if name in ("leaf-spine", "rail-optimised") else ",layout=leaf-spine"
    if name == "rail-optimised" and knob in RAILED:
        layout = ",pxn=false"
    return layout + {"seed": ",routing=ecmp,spines=4", "routing": ",spines=4"}.get(knob, "")


def ring_on(label: str) -> list[str]:
    """Return the command of a ring on a fabric."""
    return ["simulate", "all-reduce", "--fabric", label, "--algorithm", "ring", "-b", "256K", "-e", "256K"]


def declines(label: str) -> bool:
    """Return whether the fabric itself, not its knob, says no."""
    try:
        fabric(label)
    except InfeasibleError:
        return True
    except UsageError as error:
        return "cannot have" not in error.what
    return True


def topology_differs(plain: str, knob: Knob, draw: random.Random) -> bool:
    """Return whether some declared value changes links, routes or capabilities."""
    for _ in range(20):
        text = next(spellings(knob, draw, 1)).text
        with contextlib.suppress(UsageError, InfeasibleError):
            if shape(fabric(plain)) != shape(fabric(f"{plain},{knob.name}={text}")):
                return True
    return False


def shape(top: Any) -> tuple[Any, ...]:
    """Return what a topology is."""
    import numpy as np

    src, dst = np.divmod(np.arange(min(top.n_ranks, 128) ** 2), min(top.n_ranks, 128))
    far = src != dst
    starts, links = top.routes(src[far], dst[far])
    return (
        top.n_ranks,
        top.n_nodes,
        top.rate.tobytes(),
        top.latency_s.tobytes(),
        starts.tobytes(),
        links.tobytes(),
        len(top.aggregators),
        len(top.groups),
    )


def witnessed(name: str) -> bool:
    """Return whether the knob's own question has another answer with it."""
    return name in WITNESS and WITNESS[name].changes(lambda words: run(words)[1])


def stop(*_: object) -> None:
    """Raise what no handler of ours takes for a bug."""
    raise TooLong


@functools.cache
def preload() -> None:
    """Import everything now: a campaign of an hour is not to change with the files beneath it."""
    for module in pkgutil.walk_packages(ringwright.__path__, "ringwright."):
        if not any(
            word in module.name for word in ("__main__", "plugin", ".live", ".models", "recorder", "torch", ".lab.")
        ):
            with contextlib.suppress(ImportError, SystemExit):
                importlib.import_module(module.name)


@functools.cache
def rooms() -> dict[str, dict[str, tuple[str, Knob]]]:
    """Return the knobs of each room by their whole names, each with whose it is."""
    systems, policies = (
        {each.slug: each.knobs() for each in listed} for listed in (registry.systems(), registry.schedulers())
    )
    machines = {name: knobs_of_fabric(name) for name in families()}
    listed = {"algorithms": (systems, ":"), "policies": (policies, ":"), "fabrics": (machines, ",")}
    return {
        room: {name: (owner, knob) for owner, known in owners.items() for name, knob in typed(owner, known, mark)}
        for room, (owners, mark) in listed.items()
    }


def tried(room: str, name: str, seed: int, count: int) -> dict[str, Any]:
    """Return what the spellings of a knob came to: a task."""
    preload()
    signal.signal(signal.SIGPROF, stop)
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, before[1]))
    try:
        owner, knob = rooms()[room][name]
        draw = random.Random(f"{seed} {room} {name}")  # noqa: S311 - spellings, no secrets
        tally = {"algorithms": of_algorithm, "policies": of_policy, "fabrics": of_fabric}[room](
            owner, knob, draw, count
        )
        asked = not tally.effects and witnessed(name)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    codes = {str(code): times for code, times in sorted(tally.codes.items())}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"name": name, **asdict(tally), "codes": codes, "by_question": asked, "peak_mib": peak}


def tell(came: dict[str, Any]) -> None:
    """Print the line of a knob, and what is wrong with it."""
    codes = " ".join(f"{code}:{times}" for code, times in came["codes"].items())
    note = "" if came["effects"] else "  by its own question" if came["by_question"] else "  CHANGES NOTHING"
    print(f"{came['name']:40} {codes:24} slowest {came['slowest_s']:4.1f} s{note}", flush=True)
    for each in came["wrong"]:
        print(f"    {each}", flush=True)


def campaign(arguments: argparse.Namespace) -> int:
    """Try the knobs that are asked for, print a line for each as it comes, and return 1 where something is wrong."""
    asked = set(arguments.knobs.split())
    given = [
        (room, name, arguments.seed, arguments.count)
        for room, named in rooms().items()
        for name in named
        if arguments.only in ("", room) and (not asked or name in asked)
    ]
    came = campaigns.scripted(arguments.executor, Path(__file__), tried, given, tell)
    total = sum((collections.Counter(each["codes"]) for each in came), collections.Counter())
    wrong = sum(len(each["wrong"]) for each in came)
    idle = [each["name"] for each in came if not each["effects"] and not each["by_question"]]
    print(
        f"{len(came)} knobs, {total.total()} spellings, exits {dict(sorted(total.items()))}, {wrong} wrong, "
        f"{sum(each['by_question'] for each in came)} bind in their own question only, "
        f"{len(idle)} change nothing: {', '.join(idle)}; peak {max((each['peak_mib'] for each in came), default=0):.0f} MiB"
    )
    return 1 if wrong or idle else 0


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--count", type=int, default=20)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", default="", choices=["", "algorithms", "policies", "fabrics"])
    options.add_argument("--knobs", default="", help="these alone, as mpich2:radix or fat-tree,seed, apart by blanks")
    campaigns.add_executor(options)
    sys.exit(campaign(options.parse_args()))
