"""What a search finds for more bytes is never faster than what it finds for fewer: over drawn machines, and as it was typed."""

from __future__ import annotations

import json
import os
import random

import numpy as np
import pytest

from ringwright.algorithms.searching import ALPHA_OF
from ringwright.cli import main
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.ground.errors import RingwrightError
from ringwright.model import registry
from ringwright.model.collective import Collective
from ringwright.model.program import Program

pytestmark = pytest.mark.once

DRAWS = int(os.environ.get("RINGWRIGHT_DRAWS", "2"))  # of each system; scripts/less-is-never-slower N
ROUNDING = 1.0005
SYSTEMS = {each.slug: each for each in registry.systems() if each.kind == "synthesis"}
FAMILIES = (
    "ring:{n}",
    "full:{n}",
    "switch:{n}",
    "mesh:{a}x{b}",
    "torus:{a}x{b}",
    "hypercube:8",
    "leaf-spine:6,per_leaf=3",
)
LARGEST = 4 << 20


def inverted(slug: str, seed: int) -> list[str]:
    """Return where one drawn question has an answer that is slower for fewer bytes.

    Counted are sizes at which the larger one's plan would be legal: none of its chunks gets less than an element.
    """
    rng, system = random.Random(f"{slug} {seed}"), SYSTEMS[slug]
    spelled = rng.choice(FAMILIES).format(n=rng.randint(3, 8), a=rng.randint(2, 3), b=rng.randint(2, 4))
    op, links = rng.choice(system.ops), rng.choice(tuple(ALPHA_OF))
    top = fabric(spelled)
    knobs = {"link_model": links} if "link_model" in system.knobs() else {}
    size = 4 * top.n_ranks * (top.n_ranks if op == "all-to-all" else 1)
    found: list[tuple[int, int, Program]] = []
    while size <= LARGEST:
        try:
            program = system.load()(Collective(op, range(top.n_ranks), size), top, **knobs)
            found.append((size, simulate(program, top, alpha=ALPHA_OF[links]).time_ps, program))
        except RingwrightError:
            pass
        size *= rng.choice((4, 8, 16, 32))
    return [
        f"{slug} {op} on {spelled}, {links} links: {less} B {slow_ps / 1e6} us, {more} B {quick_ps / 1e6} us"
        for at, (less, slow_ps, _) in enumerate(found)
        for more, quick_ps, plan in found[at + 1 :]
        if slow_ps > ROUNDING * quick_ps and _least_bytes(plan) * less >= more * plan.collective.unit_bytes
    ]


def _least_bytes(program: Program) -> int:
    sizes = program.layout.bytes_of(np.arange(program.layout.n_chunks))
    return int(min((each for each in sizes if each), default=0))


@pytest.mark.sampled(3, "*")
@pytest.mark.parametrize("slug", sorted(SYSTEMS))
@pytest.mark.parametrize("seed", range(DRAWS))
def test_a_search_is_never_slower_for_less(slug: str, seed: int) -> None:
    assert inverted(slug, seed) == []


@pytest.mark.parametrize(
    ("asked", "sizes"),
    [
        ("reduce-scatter --fabric mesh:3x3 --link-model blocking --algorithm expand", (36, 324, 589_824)),
        ("reduce-scatter --fabric mesh:3x3 --link-model blocking --algorithm forest", (36, 324, 589_824)),
        ("all-reduce --fabric full:6 --algorithm taccl", (512 << 10, 1 << 20)),
        ("reduce --fabric torus:3x3 --algorithm taccl", (55_296, 165_888)),
    ],
)
def test_searches_answer_for_the_links_that_are_asked_about(
    capsys: pytest.CaptureFixture[str], asked: str, sizes: tuple[int, ...]
) -> None:
    times = []
    for size in sizes:
        assert main(["simulate", *asked.split(), "-b", str(size), "--json"]) == 0
        times.append(json.loads(capsys.readouterr().out)["rows"][0]["time_us"])
    assert times == sorted(times)
