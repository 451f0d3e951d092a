"""Packets against real TCP: predictions first, written to a file; then the same questions in network namespaces; then both.

    python benchmarks/lab_packets.py predict lab_packets.json
    python benchmarks/lab_packets.py measure lab_packets.json measured.jsonl [--seeds 10] [--only WORDS]
    python benchmarks/lab_packets.py judge lab_packets.json measured.jsonl

A prediction knows the fabric, the program, the fault and TCP; nothing of the machine that measures. Rounds follow each other on
the same connections, the first is not counted. Its interval is that of the drawn losses, a share of MODEL wider at both ends.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

MODEL = 0.03
CONTROL = "link rank3 loss 0.00001%"  # the same switch, losing nothing
LINES = (
    CONTROL,
    "link rank3 loss 0.1%",
    "link rank3 loss 1%",
    "link rank3 flap 100ms every 2s",
    "link rank3 rate 50%",
)
QUEUES = ("16KiB", "64KiB", "256KiB")


def cases() -> list[dict[str, Any]]:
    """Return the questions: name, fabric, collective, algorithm, bytes, fault, rounds, and the case it is compared with."""
    listed = []
    for algorithm in ("ring", "halving-doubling"):
        listed += [_case("switch:4,rate=20Mb/s", "all-reduce", algorithm, "1M", line, 6, CONTROL) for line in LINES]
    # A flow between two ranks that the program has no connection between: 1>3 in the ring, 1>2 in halving-doubling.
    for algorithm, flow in (("ring", "flow 1>3"), ("halving-doubling", "flow 1>2")):
        listed.append(_case("switch:4,rate=20Mb/s", "all-reduce", algorithm, "1M", flow, 6, CONTROL))
    fast = (CONTROL, "link rank3 loss 1%", "link rank3 rate 50%")
    listed += [_case("switch:4,rate=50Mb/s", "all-reduce", "ring", "2M", line, 6, CONTROL) for line in fast]
    later = ("link rank3 loss 0.1%", "link rank3 flap 100ms every 2s", "flow 1>3")
    listed += [_case("switch:4,rate=50Mb/s", "all-reduce", "ring", "2M", line, 6, CONTROL) for line in later]
    later = (CONTROL, "link rank3 loss 1%", "link rank3 rate 50%", "flow 1>2")
    listed += [
        _case("switch:4,rate=50Mb/s", "all-reduce", "halving-doubling", "2M", line, 6, CONTROL) for line in later
    ]
    later = (CONTROL, "link rank3 loss 1%", "link rank1 loss 2%", "flow 1>3")
    listed += [_case("switch:4,rate=20Mb/s", "all-gather", "ring", "1M", line, 6, CONTROL) for line in later]
    for op, algorithm, sizes in (("gather", "linear", ("5M", "20M")), ("all-to-all", "direct", ("1M", "4M"))):
        for size in sizes:
            for queue in QUEUES:
                line = f"switch * buffer {queue}"
                listed.append(
                    _case("switch:5,rate=20Mb/s", op, algorithm, size, line, 3, f"switch * buffer {QUEUES[-1]}")
                )
    return listed


def _case(fabric: str, op: str, algorithm: str, size: str, line: str, rounds: int, beside: str) -> dict[str, Any]:
    name = f"{op} {algorithm} {size}{'' if '=20Mb' in fabric else ' at 50 Mb/s'}: "
    return {
        "name": name + line,
        "control": name + beside,
        "fabric": fabric,
        "op": op,
        "algorithm": algorithm,
        "size": size,
        "fault": line,
        "rounds": rounds,
    }


def predicted_s(case: dict[str, Any]) -> np.ndarray:
    """Return the seconds of each round of each seed. float64 of shape (seeds, rounds)."""
    from ringwright.fabrics import fabric, faults
    from ringwright.ground.units import parse_size
    from ringwright.model.collective import Collective
    from ringwright.model.registry import algorithm
    from ringwright_lab.bench.by_packets import flow_programs, of_lab, rounds_s
    from ringwright_lab.network import script, spec

    top = of_lab(fabric(case["fabric"]), "reno")
    _, make, knobs = algorithm(case["algorithm"])
    program = make(Collective(case["op"], range(top.n_ranks), parse_size(case["size"])), top, **knobs)
    if case["fault"].startswith("flow"):
        flows = script.read(spec.read(top), [case["fault"]], horizon_s=300.0, seed=0).flows
        return rounds_s(program, top, case["rounds"], flow_programs(flows, program, top, case["rounds"]))
    return rounds_s(program, faults.apply(top, [case["fault"]], horizon_s=300.0), case["rounds"])


def predict(path: Path) -> None:
    """Write what is predicted."""
    rows = []
    for case in cases():
        times = predicted_s(case)
        low, high = np.quantile(times, (0.05, 0.95))
        row = case | {
            "mean_s": _mean(times),
            "low_s": float(low) * (1 - MODEL),
            "high_s": float(high) * (1 + MODEL),
        }
        rows.append(row)
        print(f"{case['name']:60} {row['mean_s'] * 1e3:9.1f} ms  {row['low_s'] * 1e3:.1f} to {row['high_s'] * 1e3:.1f}")
    path.write_text(json.dumps(rows, indent=1) + "\n")


def measure(path: Path, out: Path, seeds: int, only: str) -> None:
    """Append one line for each case and seed to ``out``; those that are there are not run again."""
    done = {(row["name"], row["seed"]) for row in _lines(out)}
    for seed in range(1, seeds + 1):
        for case in json.loads(path.read_text()):
            lottery = "loss" in case["fault"] or "flap" in case["fault"]
            if (case["name"], seed) in done or only not in case["name"] or (not lottery and seed > 3):
                continue
            row = measured(case, seed)
            with out.open("a") as file:
                file.write(json.dumps({"name": case["name"], "seed": seed} | row) + "\n")
            print(case["name"], seed, row["limit"], *(f"{each * 1e3:.0f}" for each in row["times_s"]), flush=True)


def measured(case: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return the seconds of each round of one run in the lab, and what limited it."""
    command = [sys.executable, "-m", "ringwright", "bench", case["op"], "--lab", case["fabric"], "--json"]
    command += ["--ranks", case["fabric"].split(",")[0].split(":")[1], "--algorithm", case["algorithm"]]
    command += ["-b", case["size"], "-n", str(case["rounds"]), "-w", "1", "--seed", str(seed), "--timeout", "300s"]
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "run"
        subprocess.run([*command, "--fault", case["fault"], "-o", str(kept)], check=True, stdout=subprocess.DEVNULL)
        told = json.loads((kept / "bench.json").read_text())
    (run,) = told["runs"]
    return {"times_s": run["time_s"], "limit": told["result"]["verdict"]["limit"]}


def judge(path: Path, out: Path) -> None:
    """Print predictions beside what was measured: the time, and what the disturbance adds to the control."""
    told = {row["name"]: row for row in json.loads(path.read_text())}
    rows = [row for row in _lines(out) if row["name"] in told]
    counted = [row for row in rows if row["limit"] == "wire"]
    print(f"runs {len(rows)}, limited by the wire {len(counted)} ({len(counted) / max(len(rows), 1):.0%})")
    print(f"{'case':58} {'measured':>9} {'predicted':>9} {'ratio':>6} {'added':>8} {'predicted':>9} {'inside':>7}")
    mean = {name: _mean(np.concatenate(times)) for name, times in _times(counted).items()}
    inside: list[bool] = []
    for name, times in _times(counted).items():
        case, every = told[name], np.concatenate(times)
        held = (every >= case["low_s"]) & (every <= case["high_s"])
        inside += held.tolist()
        added = ("", "")
        if case["control"] in mean and case["control"] != name:
            base = mean[case["control"]], told[case["control"]]["mean_s"]
            added = (f"{(mean[name] - base[0]) * 1e3:.0f}", f"{(case['mean_s'] - base[1]) * 1e3:.0f}")
        print(
            f"{name:58} {mean[name] * 1e3:9.1f} {case['mean_s'] * 1e3:9.1f} {mean[name] / case['mean_s']:6.3f}"
            f" {added[0]:>8} {added[1]:>9} {held.mean():7.0%}"
        )
    print(f"inside the intervals: {np.mean(inside):.0%} of {len(inside)} rounds")


def _times(rows: list[dict[str, Any]]) -> dict[str, list[list[float]]]:
    times: dict[str, list[list[float]]] = {}
    for row in rows:
        times.setdefault(row["name"], []).append(row["times_s"])
    return times


def _mean(times_s: np.ndarray) -> float:
    return float(np.exp(np.mean(np.log(times_s))))


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> None:
    """Do what is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("predict", "measure", "judge"))
    parser.add_argument("predictions", type=Path)
    parser.add_argument("measured", type=Path, nargs="?")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", default="", help="cases with these words in their name")
    given = parser.parse_args()
    if given.what == "predict":
        predict(given.predictions)
    elif given.measured is None:
        parser.error("where are the measured times?")
    elif given.what == "measure":
        measure(given.predictions, given.measured, given.seeds, given.only)
    else:
        judge(given.predictions, given.measured)


if __name__ == "__main__":
    main()
