"""How fast the engines are: events a second against a hand-written loop, and the scale targets with their memory.

    python benchmarks/bench_engines.py [--rounds 5] [--quick]

Needs a C++ compiler for the hand-written loop (``CXX``, else g++) and counts instructions where valgrind is installed.
Every scale target runs as a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
COLUMNS = ("hop_starts", "hops", "next_starts", "nexts", "waits", "size_bytes")


def programs() -> dict[str, Callable[[], Any]]:
    from ringwright.algorithms.blocks.direct import direct
    from ringwright.algorithms.blocks.rabenseifner import rabenseifner
    from ringwright.algorithms.blocks.ring import ring
    from ringwright.model.collective import Collective

    def all_reduce(p: int) -> Collective:
        return Collective("all-reduce", range(p), p << 20)

    return {
        "ring": lambda: ring(all_reduce(512)),
        "halving-doubling": lambda: rabenseifner(all_reduce(512)),
        "all-to-all": lambda: direct(Collective("all-to-all", range(512), 512 << 12)),
    }


def laid_out(name: str) -> tuple[Any, Any]:
    from ringwright.engines.flat import flatten
    from ringwright.engines.machine import machine
    from ringwright.fabrics import fabric

    made = machine(fabric("switch:512"))
    return flatten(programs()[name](), made), made


def compiled(source: str, folder: Path) -> Path:
    target = folder / Path(source).stem
    command = [
        os.environ.get("CXX", "g++"),
        "-O3",
        "-std=c++17",
        "-ffp-contract=off",
        str(HERE / source),
        "-o",
        str(target),
    ]
    subprocess.run(command, check=True)
    return target


def instructions(command: list[str], folder: Path) -> int | None:
    """Count what one process executes, or None without valgrind."""
    if shutil.which("valgrind") is None:
        return None
    out = folder / "callgrind.out"
    tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", *command]
    text = subprocess.run(tool, check=True, capture_output=True, text=True).stderr
    found = re.search(r"Collected : (\d+)", text)
    return int(found[1]) if found else None


def loops(rounds: int, *, count: bool) -> None:
    from ringwright.engines.loops import events

    print(f"\nThe event loop, 512 ranks on a switch, laid out ({rounds} rounds, least)")
    heads = (
        ("events", 10),
        ("M events/s", 12),
        ("by hand", 10),
        ("ratio", 8),
        ("instr/event", 13),
        ("by hand", 9),
        ("layout s", 10),
    )
    print(f"{'program':18}" + "".join(f"{head:>{width}}" for head, width in heads))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        hand, ours = compiled("bucket_loop.cpp", folder), compiled("engine_loop.cpp", folder)
        for program in programs():
            begin = time.process_time()
            flat, made = laid_out(program)
            layout_s = time.process_time() - begin
            columns = {each: getattr(flat, each) for each in COLUMNS} | {
                "latency": made.latency,
                "pace": made.ps_per_byte,
            }
            for each, values in columns.items():
                np.ascontiguousarray(values).tofile(folder / each)
            took = []
            for _ in range(rounds):
                begin = time.process_time()
                _, end = events(flat, made)
                took.append(time.process_time() - begin)
            lines = subprocess.run(
                [hand, folder, str(rounds)], check=True, capture_output=True, text=True
            ).stdout.split("\n")
            answers = [line.split() for line in lines if line]
            if int(answers[0][1]) != int(end.max()):
                raise SystemExit(f"{program}: the loops disagree: {answers[0][1]} and {end.max()} ps")
            by_hand_s = min(float(answer[0]) for answer in answers)
            counts = [instructions([str(each), name], folder) if count else None for each in (ours, hand)]
            per_event = [f"{value / flat.n_hops:.0f}" if value else "-" for value in counts]
            print(
                f"{program:18}{flat.n_hops:>10,}{flat.n_hops / min(took) / 1e6:>12.1f}{flat.n_hops / by_hand_s / 1e6:>10.1f}"
                f"{by_hand_s / min(took):>8.2f}{per_event[0]:>13}{per_event[1]:>9}{layout_s:>10.2f}"
            )


def fairness(rounds: int) -> None:
    from ringwright.engines.loops import engine
    from ringwright.fabrics import fabric

    top = fabric("leaf-spine:4096,oversubscription=2", routing="ecmp", seed=1)
    target = np.random.default_rng(0).permutation(4096)
    starts, ways = top.routes(np.arange(4096), target)
    took = []
    for _ in range(max(rounds, 20)):
        begin = time.perf_counter()
        rates = engine.fair_rates(starts, ways.astype(np.int32), (top.rate * 2**10).astype(np.int64))
        took.append(time.perf_counter() - begin)
    print(
        f"\nMax-min rates of 4,096 flows over {top.n_links:,} links: {min(took) * 1e3:.2f} ms, {len(np.unique(rates))} rates"
    )


# ------------------------------------------------------------------------------------------------ the scale targets
TARGETS = {
    "ring 4,096 on a switch": ("ring", "switch:4096", "events", 0.5, 100),
    "ring 131,072 on a switch": ("ring", "switch:131072", "auto", 10, 500),
    "BlueConnect on 16,384 boxes of 8": ("levels", "dgx-h100:16384", "auto", 10, 500),
    "BlueConnect 8x128x128 on a switch": ("blueconnect", "switch:131072", "auto", 10, 500),
    "CollNet-Direct 1,024, SHARP": ("collnet-direct", "dgx-h100:128,sharp=true", "auto", 1, 500),
    "the same, 4,096": ("collnet-direct", "dgx-h100:512,sharp=true", "auto", 2, 1000),
    "the same, one NIC slow": ("collnet-direct fault", "dgx-h100:128,sharp=true", "auto", 1, 500),
    "NVLS over SHARP 1,024": ("nvls-collnet", "dgx-h100:128,sharp=true", "auto", 1, 500),
    "ring 4,096, one link slows down": ("ring fault", "switch:4096", "auto", 60, 1000),
    "all-to-all 512, leaf-spine 4:1": ("all-to-all", "leaf-spine:512,oversubscription=4", "flows", 2, None),
    "the same, paths by hash": ("all-to-all", "leaf-spine:512,oversubscription=4,routing=ecmp", "flows", 2, None),
}
QUICK_S = 1  # CPU seconds that a target of a quick run may take


def peak_mb() -> float:
    """Peak resident memory since this program was loaded (the kernel's rusage also counts what the parent had)."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.findall(r"VmHWM:\s+(\d+)", status.read_text())[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def slow_link(top: Any) -> int:
    """Return the sixth link of a NIC, or of the fabric where there are none."""
    nics = np.flatnonzero(top.link_class == top.classes.index("nic")) if "nic" in top.classes else np.arange(6)
    return int(nics[5])


def target(name: str) -> None:
    """Run one target; called in a process of its own."""
    from ringwright.algorithms.blocks.direct import direct
    from ringwright.algorithms.blocks.ring import ring
    from ringwright.algorithms.published.blueconnect import blueconnect
    from ringwright.engines.choose import simulate
    from ringwright.fabrics import fabric
    from ringwright.model.collective import Collective
    from ringwright.model.registry import algorithm
    from ringwright.model.topology import Fault

    which, where, engine, _, _ = TARGETS[name]
    begin = time.process_time()
    top = fabric(where)
    p, made_s = top.n_ranks, time.process_time() - begin
    if which == "all-to-all":
        program = direct(Collective("all-to-all", range(p), p << 12))
    elif which == "levels":
        program = blueconnect(Collective("all-reduce", range(p), p << 12), top)
    elif which == "blueconnect":
        program = blueconnect(Collective("all-reduce", range(p), p << 12), factors=(8, 128, 128))
    elif which.startswith(("collnet-direct", "nvls-collnet")):
        program = algorithm(which.split()[0])[1](Collective("all-reduce", range(p), 1 << 30), top)
    else:
        program = ring(Collective("all-reduce", range(p), p << 12))
    if which.endswith("fault"):
        top = dataclasses.replace(top, faults=(Fault(1e-6, "link", slow_link(top), "rate_factor", 0.5),))
    begin = time.process_time()
    run = simulate(program, top, engine)
    print(
        json.dumps(
            {
                "cpu_s": time.process_time() - begin,
                "fabric_s": made_s,
                "time_us": run.time_ps / 1e6,
                "engine": run.engine,
                "parts": run.parts,
                "events": run.events,
                "why": run.unfolded_because,
                "peak_mb": peak_mb(),
            }
        )
    )


def targets(most_s: float) -> None:
    """Run the targets whose goal is at most ``most_s`` CPU seconds."""
    print("\nScale, each as a process of its own (CPU seconds of simulate; peak memory of the process)")
    print(f"{'case':36}{'CPU s':>7}{'goal':>6}{'MB':>7}{'goal':>6}{'fabric s':>10}  {'answer us':>13}  how")
    for name, (_, _, _, goal_s, most_mb) in TARGETS.items():
        if goal_s > most_s:
            continue
        command = [sys.executable, __file__, "--target", name]
        found = subprocess.run(command, check=False, capture_output=True, text=True)
        if found.returncode:
            print(f"{name:36} {found.stderr.strip().splitlines()[-1]}")
            continue
        got = json.loads(found.stdout)
        how = f"{got['engine']}, {got['events']:,} events, " + (
            f"folded {got['parts']:,}" if got["parts"] > 1 else got["why"]
        )
        print(
            f"{name:36}{got['cpu_s']:>7.2f}{goal_s:>6}{got['peak_mb']:>7.0f}{most_mb or '-':>6}{got['fabric_s']:>10.2f}"
            f"  {got['time_us']:>13,.1f}  {how}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="no instruction counts, small targets alone")
    parser.add_argument("--target", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.target:
        target(asked.target)
        return
    from ringwright.engines.loops import engine

    if engine is None:
        print("There is no compiled engine here: only the Python twins could be measured, and their speed is no goal.")
        return
    loops(asked.rounds, count=not asked.quick)
    fairness(asked.rounds)
    targets(QUICK_S if asked.quick else float("inf"))


if __name__ == "__main__":
    main()
