"""How much of the gain that there is does ``advise`` find on a large job, in how much time? Searched once, and run through.

    python benchmarks/bench_advise.py            # the search alone, by this process
    python benchmarks/bench_advise.py --exhaust  # then everything that it considered of some layers, with the engine

The search gets its work after the job as it is has been simulated once, and ``--executor`` does it. The run through is of
setups that the search considered, the first of them, as many as are asked for: all get a bound, and those are run, the least
bound first, whose bound is below the best step by then; so it ends with the best of them all.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time

from ringwright.advise.evaluation import Evaluator
from ringwright.advise.search import WORK, AdviceLimits, considered_setups, searched
from ringwright.advise.settings import Setup
from ringwright.advise.situation import of_model
from ringwright.advise.space import asked_layers, space
from ringwright.executors.fan_out import fan_out
from ringwright.fabrics import fabric
from ringwright.jobs.auto import SURE
from ringwright.jobs.model_job import GeneratedJobSpec
from ringwright.jobs.model_workload import WorkloadSpec

JOB = {"model": "llama3-70b", "gpus": 512, "parallel": "tp8,pp4,dp16,zero1", "fabric": "dgx-h100:64"}


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--work", type=int, default=WORK)
    asked.add_argument("--executor", default="local:1")
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--may", help="layers, as of advise")
    asked.add_argument("--exhaust", type=int, nargs="?", const=1000, default=0, help="setups that are all run")
    options = asked.parse_args()
    spec = GeneratedJobSpec(WorkloadSpec(JOB["model"], gpus=JOB["gpus"], parallel=JOB["parallel"]))
    situation = of_model(spec, fabric(JOB["fabric"]), "pytorch-ddp")
    with fan_out(options.executor) as fan:
        evaluator = Evaluator(situation, fan=fan)
        base = evaluator.result(Setup())
        began, cpu = time.monotonic(), time.process_time()
        listed = space(situation, base, asked_layers(options.may))
        made_s = time.monotonic() - began
        outcome = searched(evaluator, listed.slots, limits=AdviceLimits(options.work), seed=options.seed)
        took, used = time.monotonic() - began, time.process_time() - cpu
    evaluator.fan = None
    step_s, best_s = evaluator.run(Setup()).step_s, evaluator.run(outcome.best).step_s
    told: dict[str, object] = {
        **JOB,
        "seconds": round(took, 1),
        "cpu_s": round(used, 1),
        "executor": fan.account.document(),
        "space_s": round(made_s, 1),
        "setups": listed.setups,
        "considered": outcome.considered,
        "bounded": outcome.bounded,
        "runs": outcome.runs,
        "work": evaluator.work,
        "ended": outcome.ended,
        "step_ms": step_s * 1e3,
        "best_ms": best_s * 1e3,
        "gain": 1 - best_s / step_s,
        "best": [each.spelling for each in outcome.best],
    }
    if options.exhaust:
        told["exhaustion"] = exhausted(evaluator, listed.slots, options.exhaust, options.seed, step_s - best_s)
    told["memory_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(json.dumps(told, indent=2))
    return 0


def exhausted(evaluator: Evaluator, slots: dict, count: int, seed: int, gained_s: float) -> dict[str, object]:
    """Run the first setups that were considered, and say which share of the best gain the search found."""
    began, step_s = time.process_time(), evaluator.run(Setup()).step_s
    best, best_setup, refused, runs = step_s, Setup(), 0, 0
    setups = list(considered_setups(slots, seed))[:count]
    bounds = [evaluator.least_s(each) for each in setups]
    print(f"{len(setups)} bounds after {time.process_time() - began:.0f} CPU s", file=sys.stderr)
    for least, at in sorted((least, at) for at, least in enumerate(bounds)):
        if SURE * least >= best:
            break
        runs += 1
        done = evaluator.run(setups[at]).step_s
        refused += done is None
        if done is not None and done < best:
            best, best_setup = done, setups[at]
            print(f"{runs} runs, best {best * 1e3:.2f} ms", file=sys.stderr)
    return {
        "setups": len(setups),
        "excluded_by_bound": len(setups) - runs,
        "refused": refused,
        "runs": runs,
        "best_ms": best * 1e3,
        "best": [each.spelling for each in best_setup],
        "share_of_gain": gained_s / (step_s - best) if best < step_s else 1.0,
        "cpu_s": round(time.process_time() - began, 1),
    }


if __name__ == "__main__":
    raise SystemExit(main())
