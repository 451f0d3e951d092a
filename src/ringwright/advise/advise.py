"""What should be changed in a job, by how much, and how sure that is: searched, taken apart, drawn, and told."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import mean
from typing import TYPE_CHECKING, cast, get_type_hints

from ringwright.advise.document import (
    CANNOT_TELL,
    CHANGES,
    NOTHING,
    SCHEMA,
    Advice,
    AdvisedChange,
    AdvisedStep,
    RefusedAdvice,
)
from ringwright.advise.evaluation import Evaluator
from ringwright.advise.exported import AdvisedFile, export_of, files_of, measure_of
from ringwright.advise.interval import Draws, Gain, mean_interval
from ringwright.advise.other_verbs import told_elsewhere
from ringwright.advise.ranking import RankedChange, ranked
from ringwright.advise.search import BY_CLOCK, COMPLETE, WORK, AdviceLimits, SearchedSetups, easiest, ended, searched
from ringwright.advise.settings import REPAIRS, Setup
from ringwright.advise.situation import MODEL
from ringwright.advise.software import library_of, nccl_release
from ringwright.advise.space import Space, space
from ringwright.algorithms.libraries.nccl_2_4 import NEWEST
from ringwright.calls.provenance import asked_of
from ringwright.executors.fan_out import Chosen, FanOut, WorkAccount, fan_out
from ringwright.graph.memory import peak_bytes
from ringwright.jobs.explained.remedies import IN_PRACTICE
from ringwright.jobs.memory import device_bytes, held_at_most
from ringwright.jobs.pricing.costs import LIBRARY
from ringwright.jobs.recorded_job import FAR
from ringwright.jobs.rows import NOT_EQUAL
from ringwright.workloads.replay import GROUNDS

if TYPE_CHECKING:
    from ringwright.advise.evaluation import Evaluation
    from ringwright.advise.situation import Situation
    from ringwright.ground.stepwise import Advance
    from ringwright.jobs.study import PolicyResult

LEAST_GAIN = 0.005  # of the step, half of the draws above it, for a change to be told
MOST_DECLINED = 0.2  # of the draws
MAKING = 0.3  # of the seconds: until when what may be set is made
MOST_DOUBTS = 5  # changes that are doubtful, after which no others are tried in their place
GROUND = {
    GROUNDS[0]: "replay of its dependencies, operations at their measured times",
    GROUNDS[1]: "replay of its times, operations at their measured times",
    MODEL: "simulated from a model",
}


@dataclass(frozen=True)
class AdviceSpec:
    """What is asked: the layers, for how many seconds and how much work to search at the most, and the seed.

    ``inexact``: whether gradients may be other numbers then.
    ``recording`` is how the recording is named on a command line, ``again`` the whole question (empty: there was none).
    """

    layers: Sequence[str]
    seconds: float = math.inf
    seed: int = 0
    memory_bytes: int | None = None
    release: str = ""
    inexact: bool = False
    recording: str = "PATH"
    again: str = ""
    work: int = WORK


@dataclass
class Advised:
    """The answer, with the changes that it tells of, the files that make each, and what simulated them."""

    document: Advice
    evaluator: Evaluator
    changes: list[RankedChange]
    files: list[list[AdvisedFile]]


def advise(situation: Situation, spec: AdviceSpec, advance: Advance | None = None, executor: Chosen = None) -> Advice:
    """Return the advice; whoever interrupts it gets the best so far."""
    return advised(situation, spec, advance, executor=executor).document


def advised(situation: Situation, spec: AdviceSpec, advance: Advance | None = None, executor: Chosen = None) -> Advised:
    """Return the advice with what it was made of, for files and pictures; setups are asked about by ``executor``."""
    began_s = time.monotonic()
    with fan_out(executor) as fan:
        made = _made(situation, spec, advance, fan)
    told, evaluator = made.document, made.evaluator
    evaluator.fan = None  # what is asked from now on is asked here
    told["evaluated"] = sum(each.step_s is not None for each in evaluator.known.values())
    told["work"], told["stopped"], told["executor"] = evaluator.work, told["ended"] != COMPLETE, fan.account.document()
    told["search_s"] = round(time.monotonic() - began_s, 3)
    return made


def _made(situation: Situation, spec: AdviceSpec, advance: Advance | None, fan: FanOut) -> Advised:
    """Return the advice, but for what it took."""
    limits = AdviceLimits(spec.work, time.monotonic() + spec.seconds)
    evaluator = Evaluator(situation, spec.memory_bytes, spec.inexact, fan)
    told = _unsaid(situation, spec)
    made = Advised(told, evaluator, [], [])
    result = evaluator.result(Setup()) if situation.is_timed else None
    if result is not None:
        evaluator.memory_bytes = evaluator.memory_bytes or device_bytes(result.workload)
        held = held_at_most(peak_bytes(result.workload), evaluator.memory_bytes)
        told["base"] = {**_base(told["base"], result, evaluator, spec.seed), **held}
    refusal = _refusal(situation, told["base"])
    if refusal is not None or result is None:
        told["refused"] = [refusal] if refusal else []
        told["why"] = refusal["why"] if refusal else ""
        return made
    release = spec.release or nccl_release(situation.trace)
    listed = space(situation, result, spec.layers, release, limits.share(MAKING, evaluator.work).until_s)
    search = searched(evaluator, listed.slots, limits=limits, seed=spec.seed, advance=advance)
    draws = Draws(evaluator, told["base"]["fidelity"] or 0.0, spec.seed, limits)
    _tell(made, listed, search, spec, draws)
    elsewhere, late = told_elsewhere(evaluator, result, spec.layers, spec.recording, limits.until_s)
    told["refused"] += elsewhere
    told["ended"] = ended(search.ended, draws.ended, BY_CLOCK if listed.stopped or late else COMPLETE)
    return made


def _unsaid(situation: Situation, spec: AdviceSpec) -> Advice:
    """Return the answer before anything was asked."""
    return {
        "schema": SCHEMA,
        "asked": asked_of(
            situation.topology,
            (f"{LIBRARY}@{spec.release}" if spec.release else library_of(situation.trace) or LIBRARY,),
            policies=(situation.policy,),
            seed=spec.seed,
        ),
        "job": situation.name,
        "fabric": situation.topology.name if situation.topology is not None else "",
        "ground": situation.ground,
        "verdict": CANNOT_TELL,
        "why": "",
        "stopped": False,
        "ended": COMPLETE,
        "base": {
            **cast(AdvisedStep, dict.fromkeys(get_type_hints(AdvisedStep))),
            **held_at_most(None, spec.memory_bytes),
            "steps": len(situation.measured_s),
            "iterations": situation.iterations,
            "policy": situation.policy,
        },
        "changes": [],
        "refused": [],
        "setups": 1,
        "bounded": 0,
        "evaluated": 0,
        "work": 0,
        "search_s": 0.0,
        "seed": spec.seed,
        "executor": WorkAccount("local:1").document(),
        "assumptions": list(situation.assumptions),
    }


def _base(known: AdvisedStep, result: PolicyResult, evaluator: Evaluator, seed: int) -> AdvisedStep:
    """Return the step as it is; its replays are all of those iterations that can be."""
    situation = evaluator.situation
    replays = [result.step_s] + [evaluator.result(Setup(), at).step_s for at in range(1, situation.iterations)]
    measured = situation.measured_s
    low, _, high = mean_interval(measured, seed)
    replayed_s = mean(replays)
    middle, likely, well = mean(measured) if measured else None, result.probable, result.healthy
    return {
        **known,
        "measured_us": None if middle is None else middle * 1e6,
        "measured_us_p05": low * 1e6 if measured else None,
        "measured_us_p95": high * 1e6 if measured else None,
        "replayed_us": replayed_s * 1e6,
        "step_us_p05": None if likely is None else likely.p05_us,
        "step_us_p50": None if likely is None else likely.p50_us,
        "step_us_p95": None if likely is None else likely.p95_us,
        "fidelity": None if not middle else replayed_s / middle - 1,
        "exposed_us": result.exposed_s * 1e6,
        "healthy_us": None if well is None else well.step_s * 1e6,
        "healthy_us_p50": None if well is None or well.probable is None else well.probable.p50_us,
    }


def step_today_us(base: AdvisedStep) -> float | None:
    """Return the step that advice begins from, in us: measured, else the most probable one, else as it was simulated."""
    told = (base["measured_us"], base["step_us_p50"], base["replayed_us"])
    return next((each for each in told if each is not None), None)


def _refusal(situation: Situation, base: AdvisedStep) -> RefusedAdvice | None:
    """Return why nothing can be advised; None where it can."""
    off = base["fidelity"]
    if situation.unusable is not None:
        why, remedy = situation.unusable
    elif not situation.is_timed:
        why = "the recording has no times, so that nothing tells what of its communication is exposed"
        remedy = "ringwright run -- COMMAND, or PyTorch's profiler"
    elif base["too_large"]:
        why = f"the job does not fit: {base['too_large']}"
        remedy = "more GPUs, another --parallel, a smaller --micro-batch-size"
    elif off is not None and abs(off) > FAR:
        why = f"the replay, unchanged, is {abs(off):.0%} {'longer' if off > 0 else 'shorter'} than the recording"
        remedy = "record every rank, and more steps: ringwright run -- COMMAND"
    else:
        return None
    return {"what": "every change", "why": why, "remedy": remedy}


def _tell(made: Advised, listed: Space, search: SearchedSetups, spec: AdviceSpec, draws: Draws) -> None:
    """Put what was found into an answer: the changes that are sure, and those that are not as refused."""
    told, evaluator = made.document, made.evaluator
    alike: dict[tuple[str, str], list[str]] = {}
    for layer, why, remedy in listed.refused:
        alike.setdefault((why, remedy), []).append(layer)
    refused: list[RefusedAdvice] = [
        {"what": ", ".join(layers), "why": why, "remedy": remedy} for (why, remedy), layers in alike.items()
    ]
    repairs = [each for slot in REPAIRS for each in listed.slots.get(slot, ())]
    doubtful: list[RankedChange] = []
    while True:  # what is doubtful is left out, with all that was built on it
        without = {setting for each in doubtful for setting in each.settings}
        easier = {slot: [each for each in listed.slots[slot] if each not in without] for slot in listed.slots}
        sure = ranked(evaluator, easiest(evaluator, without), [each for each in repairs if each not in without], easier)
        told_so_far = list(takewhile(lambda each: _is_told(draws, each), sure))
        if len(told_so_far) == len(sure) or len(doubtful) == MOST_DOUBTS:
            break
        doubtful.append(sure[len(told_so_far)])
    written = [files_of(evaluator.situation, each.settings) for each in told_so_far]
    made.changes, made.files = told_so_far, [files for files, _ in written]
    changes = [_change(made, at, draws, spec, why) for at, (_, why) in enumerate(written)]
    doubts = [_doubt(each, draws) for each in doubtful]
    told["changes"], told["refused"] = changes, [*refused, *doubts]
    told["setups"], told["bounded"] = listed.setups, search.bounded
    if changes:
        last = changes[-1]
        told["verdict"] = CHANGES
        told["why"] = f"a step {last['gain_p50']:.1%} shorter, {last['gain_p05']:.1%} to {last['gain_p95']:.1%}"
    elif doubts:
        told["why"] = doubts[0]["why"]
    elif search.ended != COMPLETE or listed.stopped:
        told["why"] = (
            f"stopped after {search.runs} runs and {search.bounded:,} of {search.considered:,} setups, none of them better"
        )
    else:
        told["verdict"] = NOTHING
        told["why"] = (
            f"of {search.considered:,} setups none is known to shorten the step by {LEAST_GAIN:.1%} or more"
            if listed.slots
            else "nothing of what may be changed applies to this job"
        )


def _alone(alone: Evaluation, base: Evaluation) -> float | None:
    """Return what settings gain without others, in the step that is searched with; None where they cannot be set alone."""
    return None if alone.step_s is None or not base.step_s else 1 - alone.step_s / base.step_s


def _release(situation: Situation, spec: AdviceSpec) -> str:
    """Say which release of NCCL was asked about, and why that one."""
    if spec.release:
        return f"NCCL {spec.release}, as asked"
    recorded = nccl_release(situation.trace)
    return f"NCCL {recorded}, as recorded" if recorded else f"NCCL {NEWEST}, the latest known: no release is recorded"


def _is_told(draws: Draws, each: RankedChange) -> bool:
    """Return whether a change is worth telling: all so far surely gain, and half of the draws gain more with it than without."""
    return is_sure(draws.gain(each.after)) and draws.gain(each.after, each.before).ends[1] > 0


def is_sure(gain: Gain) -> bool:
    """Return whether a gain is worth telling, and surely one."""
    return gain.declined <= MOST_DECLINED and gain.ends[1] >= LEAST_GAIN and gain.ends[0] > 0


def _change(made: Advised, at: int, draws: Draws, spec: AdviceSpec, fileless: Sequence[str]) -> AdvisedChange:
    """Return a change as it is told; ``fileless`` says why it has no file."""
    each, files, evaluator = made.changes[at], made.files[at], made.evaluator
    gain, adds = draws.gain(each.after), draws.gain(each.after, each.before)
    low, middle, high = gain.ends
    base = evaluator.run(Setup())
    after, alone = evaluator.run(each.after), evaluator.run(Setup.of(each.settings))
    held = (base.peak_bytes, after.peak_bytes)
    unequal = [] if after.exact else [NOT_EQUAL]
    software = [_release(evaluator.situation, spec)] if any(one.layer == "nccl" for one in each.settings) else []
    turned_on = [text.partition(IN_PRACTICE)[2] for text in after.decided if IN_PRACTICE in text]
    return {
        "what": _joined(one.what for one in each.settings),
        "where": _joined([*(one.where for one in each.settings), *turned_on, *fileless]),
        "layer": each.settings[0].layer,
        "ground": _joined([GROUND[evaluator.situation.ground], *after.unmeasured, *software]),
        "risk": _joined([*unequal, *(one.risk for one in each.settings)]),
        "step_us": (step_today_us(made.document["base"]) or 0.0) * (1 - middle),
        "gain_p05": low,
        "gain_p50": middle,
        "gain_p95": high,
        "adds_p05": adds.ends[0],
        "adds_p50": adds.ends[1],
        "adds_p95": adds.ends[2],
        "alone": middle if not each.before else _alone(alone, base),
        "memory_bytes": None if None in held else (held[1] or 0) - (held[0] or 0),
        "export": export_of(files) or (f"{spec.again} -o advice" if files and spec.again else None),
        "files": [],
        "measure": measure_of(evaluator.situation, each.after, spec.recording),
        "spelling": _joined(one.spelling for one in each.settings),
    }


def _doubt(each: RankedChange, draws: Draws) -> RefusedAdvice:
    gain = draws.gain(each.after)
    if is_sure(gain):
        gain = draws.gain(each.after, each.before)
    if gain.declined > MOST_DECLINED:
        why = f"it cannot be done in some of the recorded steps ({gain.declined:.0%} of the draws)"
    else:
        low, middle, high = gain.ends
        why = f"it would gain {middle:.1%}, but anything from {low:.1%} to {high:.1%}"
    return {
        "what": _joined(one.what for one in each.settings),
        "why": why,
        "remedy": "measure it, or record operations of the sizes that it would send",
    }


def _joined(words: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(each for each in words if each))
