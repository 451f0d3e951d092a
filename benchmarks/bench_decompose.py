"""What each strategy of the survey makes of a step: time with its interval, exposed communication, peak memory; pairs of them.

    python benchmarks/bench_decompose.py                          # every decomposition on four models
    python benchmarks/bench_decompose.py --recordings FOLDER      # on recordings, which have no values: what applies there
    python benchmarks/bench_decompose.py --pairs                  # every two schedulers joined: runs, or names its conflict

Figures of the event engine for jobs; the interval is that of such steps on GPUs (docs/how-to/jobs.md).
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ringwright.fabrics import fabric
from ringwright.formats.sources import read
from ringwright.ground.units import format_size
from ringwright.jobs import model_job, recorded_job, rows
from ringwright.jobs.memory import limited
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.jobs.study import Job
from ringwright.model.registry import schedulers
from ringwright.workloads.replay import replayed

# model: GPUs, form, fabric, micro-batches; forms as their makers published them, on fewer GPUs where that is said
MODELS = {
    "llama3-70b": (64, "tp8,pp4,vp5,sp", "dgx-h100:8", None),
    "llama3-405b": (1024, "tp8,pp8,vp2,cp2,sp,zero1", "dgx-h100:128", None),
    "mixtral-8x7b": (64, "pp4,vp2,ep8", "dgx-h100:8", None),
    "deepseek-v3": (256, "pp4,vp2,ep64", "dgx-h100:32", None),
}
SMALL = ("gpt3-1.3b", 16, "tp2,pp2,sp", "dgx-a100:2", 4)  # of the pairs


def job(model: str, gpus: int, form: str, machine: str, micro_batches: int | None = None) -> Job:
    """Return the job of a model on a fabric."""
    asked = WorkloadSpec(model, gpus, form, micro_batches)
    return model_job.made(model_job.GeneratedJobSpec(asked), fabric(machine))


def table(name: str, of: Job, policies: Sequence[str], memory_bytes: int | None) -> None:
    """Print a row per policy."""
    if memory_bytes is not None:
        of = replace(of, workload=limited(of.workload, memory_bytes))
    print(f"\n## {name}: {of.workload.name} on {of.fabric}, {of.workload.mesh.size:,} ranks\n")
    print("| policy | step ms (5 % to 95 %) | exposed ms | idle ms | peak | against none | rules | CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    base = None
    for policy in policies:
        began = time.process_time()
        try:
            row = rows.document(of, [policy], memory_bytes=memory_bytes)["rows"][0]
        except rows.DECLINES as error:
            print(
                f"| {policy} | declined: {error.what} ({error.where}) | | | | | | {time.process_time() - began:.1f} |"
            )
            continue
        base = base or row["step_us"]
        spent = time.process_time() - began
        print(f"| {policy} | {_step(row)} | {row['exposed_comm_us'] / 1e3:,.1f} | {row['idle_us'] / 1e3:,.1f}"
              f" | {_peak(row)} | {base / row['step_us']:.3f} x | {_rules(row)} | {spent:.1f} |")  # fmt: skip


def _step(row: dict[str, Any]) -> str:
    ends = (
        "" if row["step_us_p05"] is None else f" ({row['step_us_p05'] / 1e3:,.0f} to {row['step_us_p95'] / 1e3:,.0f})"
    )
    return f"{row['step_us'] / 1e3:,.1f}{ends}"


def _peak(row: dict[str, Any]) -> str:
    return "not known" if row["peak_memory_bytes"] is None else format_size(row["peak_memory_bytes"])


def _rules(row: dict[str, Any]) -> str:
    return ", ".join(f"{rule} {n}" for rule, n in Counter(each["rule"] for each in row["applied"]).items()) or "-"


def pairs(of: Job, slugs: Sequence[str], others: Sequence[str]) -> None:
    """Print how every two schedulers join: what the pair takes, or what declines where."""
    ran, declined = 0, 0
    print("\n| outer+inner | step ms | declined by rule, site, why |")
    print("|---|---|---|")
    for outer in [*slugs, *others]:
        for inner in [*slugs, *others]:
            if outer == inner or (outer in others and inner in others):
                continue
            told = rows.document(of, ["none", f"{outer}+{inner}"])["rows"][1]
            if told["declined"] is None:
                ran += 1
                print(f"| {outer}+{inner} | {told['step_us'] / 1e3:,.2f} | |")
            else:
                declined += 1
                by = told["declined_by"]
                print(f"| {outer}+{inner} | | {by['rule']}, {by['site']}: {by['why']} |")
    print(f"\n{ran} pairs run, {declined} decline")


def main() -> None:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="models, comma separated")
    parser.add_argument("--policies", help="instead of every decomposition")
    parser.add_argument("--memory", type=int, help="bytes that a rank may hold")
    parser.add_argument("--recordings", type=Path, help="a folder of recordings, each of which is replayed")
    parser.add_argument("--pairs", action="store_true")
    asked = parser.parse_args()
    slugs = [each.slug for each in schedulers() if each.kind == "decompose"]
    others = [each.slug for each in schedulers() if each.kind != "decompose"]
    policies = asked.policies.split(",") if asked.policies else ["none", "pytorch-ddp", *slugs]
    if asked.pairs:
        pairs(job(*SMALL), slugs, others)
        return
    if asked.recordings:
        for path in sorted(asked.recordings.iterdir()):
            replay = replayed(read(path))
            machine = fabric(f"switch:{max(replay.workload.mesh.size, 2)},rate=100Mb/s")
            table(
                path.name,
                recorded_job.job(replay, recorded_job.Counterfactual("", machine, machine)),
                policies,
                asked.memory,
            )
        return
    for model, (gpus, form, machine, batches) in MODELS.items():
        if asked.only is None or model in asked.only.split(","):
            table(model, job(model, gpus, form, machine, batches), policies, asked.memory)


if __name__ == "__main__":
    main()
