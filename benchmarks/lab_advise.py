"""Advice on real ranks: of six changes the one that is predicted best, and what it gains, beside what all of them take.

    python benchmarks/lab_advise.py record FOLDER [--set b] [--only WORDS]       # each job as it is today
    python benchmarks/lab_advise.py predict FOLDER [--set b] [--only WORDS]      # its changes, from the recording alone
    python benchmarks/lab_advise.py measure FOLDER [--set b] [--only WORDS]      # all of them, in turn with today's
    python benchmarks/lab_advise.py judge FOLDER [--set b] [-o lab_advise.json]
    python benchmarks/lab_advise.py judge benchmarks/lab_advise.json [--set b]   # results that are kept
    python benchmarks/lab_advise.py design [--set b]

Each case of ``lab_advise_cases.json`` is a training job on real gloo ranks behind limited links, recorded by ``ringwright run``.
``design`` prints what the layers' times and the links say, by which cases were chosen: no recording and no advice is in it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

APART = 0.08  # of its step, by which the best setting must be ahead of the next
CASES = Path(__file__).with_name("lab_advise_cases.json")
JOB = Path(__file__).with_name("lab_advise_job.py")
RECORDED_STEPS, STEPS, WARMUP, ROUNDS = 10, 4, 3, 2
TIMEOUT = "400s"
DRAWS = 16


@dataclass(frozen=True)
class AdviceCase:
    """A job (seconds of compute and elements of its model), its links, its setting of today, and six changes."""

    name: str
    fabric: str
    model: str
    compute_s: float
    elements: int
    today: str
    changes: tuple[str, ...]

    @property
    def slug(self) -> str:
        """Its name as that of a folder."""
        return self.name.replace(",", "").replace(" ", "-")

    @property
    def settings(self) -> tuple[str, ...]:
        """Today's, and the changes."""
        return (self.today, *self.changes)


@dataclass(frozen=True)
class CaseVerdict:
    """What was predicted best and what is, and how far ahead of the next; the gain of the best change, and its interval."""

    name: str
    limit: str
    predicted: str
    best: str
    ahead: float
    change: str
    gain: float
    interval: tuple[float, float, float] | None

    @property
    def is_right(self) -> bool:
        """Whether the predicted best is the measured best."""
        return self.predicted == self.best

    @property
    def is_inside(self) -> bool:
        """Whether the gain lies in its interval."""
        return self.interval is not None and self.interval[0] <= self.gain <= self.interval[2]


def cases(which: str) -> list[AdviceCase]:
    """Return the cases of a set."""
    listed = json.loads(CASES.read_text())[which]
    return [AdviceCase(**{**each, "changes": tuple(each["changes"])}) for each in listed]


def spelled(setting: str) -> str:
    """Return a setting as policies are spelled: a cap that is given is the first bucket's too."""
    kind, _, cap = setting.partition(":")
    if kind != "ddp":
        return setting
    return f"pytorch-ddp:bucket_cap_mb={cap}:first_bucket_mb={cap}" if cap else "pytorch-ddp"


# ------------------------------------------------------------------------------------------------------------- running
def record(case: AdviceCase, folder: Path) -> None:
    """Record a case as it is today."""
    recorder = [sys.executable, "-m", "ringwright", "run", "--no-summary", "-o", str(folder / "job"), "--"]
    _keep(folder / "recorded.json", _run(case, folder / "today", recorder, (case.today,), RECORDED_STEPS, 1))


def predict(case: AdviceCase, folder: Path) -> None:
    """Write down what each change of a case is predicted to make of it."""
    from ringwright.advise.situation import of_recording
    from ringwright.formats.sources import read
    from ringwright_lab.judges.predicted import predicted

    situation = of_recording(read(str(folder / "job")), None)
    told = predicted(situation, [spelled(each) for each in case.changes], most=DRAWS)
    _keep(
        folder / "predicted.json",
        {setting: asdict(each) for setting, each in zip(case.changes, told, strict=True)},
    )


def measure(case: AdviceCase, folder: Path) -> None:
    """Run all settings of a case in turn."""
    _keep(folder / "measured.json", _run(case, folder / "after", (), case.settings, STEPS, ROUNDS))


def _run(
    case: AdviceCase, folder: Path, before: Sequence[str], settings: Sequence[str], steps: int, rounds: int
) -> dict[str, Any]:
    """Run settings in a lab; return seconds of steps by setting, and what limited the run."""
    folder.mkdir(parents=True)
    question = {
        "model": case.model,
        "compute_s": case.compute_s,
        "elements": case.elements,
        "settings": list(settings),
        "warmup": WARMUP,
        "steps": steps,
        "rounds": rounds,
    }
    _keep(folder / "question.json", question)
    lab = [sys.executable, "-m", "ringwright", "lab", case.fabric, "--timeout", TIMEOUT, "-o", str(folder / "lab")]
    job = [sys.executable, str(JOB), str(folder / "question.json"), str(folder / "steps.jsonl")]
    done = subprocess.run([*before, *lab, "--", *job], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{case.name}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    times_s: dict[str, list[float]] = {}
    for line in (folder / "steps.jsonl").read_text().splitlines():
        row = json.loads(line)
        times_s.setdefault(row["setting"], []).extend(row["times_s"])
    return {"times_s": times_s, "limit": json.loads((folder / "lab" / "lab.json").read_text())["limit"]["what"]}


def _keep(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document) + "\n")


def collected(folder: Path, which: str) -> list[dict[str, Any]]:
    """Return a row of results for each case that was recorded, predicted and measured."""
    rows = []
    for case in cases(which):
        parts = [folder / which / case.slug / f"{each}.json" for each in ("recorded", "predicted", "measured")]
        if all(each.exists() for each in parts):
            recorded, told, after = (json.loads(each.read_text()) for each in parts)
            rows.append(
                {
                    "set": which,
                    "case": case.name,
                    "today": case.today,
                    "limits": {"recorded": recorded["limit"], "measured": after["limit"]},
                    "predicted": told,
                    "recorded_s": recorded["times_s"][case.today],
                    "measured_s": after["times_s"],
                }
            )
    return rows


# ------------------------------------------------------------------------------------------------------------- judging
def judged(row: dict[str, Any]) -> CaseVerdict:
    """Return the verdict on one row of results; of each setting the median step counts.

    The gain that is judged is that of the best change; where none gains, of the one that loses least.
    """
    today = row["today"]
    measured = {setting: median(times) for setting, times in row["measured_s"].items()}
    order = sorted(measured, key=lambda each: measured[each])
    told = {today: 0.0} | {
        setting: each["gain"][1] for setting, each in row["predicted"].items() if each["gain"] is not None
    }
    change = next(each for each in order if each != today)
    gain = row["predicted"][change]["gain"]
    limits = set(row["limits"].values())
    return CaseVerdict(
        row["case"],
        limits.pop() if len(limits) == 1 else " and ".join(sorted(limits)),
        max(told, key=lambda each: told[each]),
        order[0],
        measured[order[1]] / measured[order[0]] - 1,
        change,
        1 - measured[change] / measured[today],
        None if gain is None else tuple(gain),
    )


def coverage(rows: Sequence[dict[str, Any]]) -> tuple[int, int, float]:
    """Return how many gains of all changes lie in their interval, of how many, and by how much steps are off: the median."""
    inside, off = [], []
    for row in rows:
        today_s = median(row["measured_s"][row["today"]])
        for setting, each in row["predicted"].items():
            if each["gain"] is not None:
                step_s = median(row["measured_s"][setting])
                inside.append(each["gain"][0] <= 1 - step_s / today_s <= each["gain"][2])
                off.append(abs((1 - each["gain"][1]) * today_s / step_s - 1))
    return sum(inside), len(inside), median(off) if off else 0.0


def tell(rows: Sequence[dict[str, Any]]) -> None:
    """Print a line a case, and what all of them come to."""
    verdicts = [judged(row) for row in rows]
    print(f"{'case':44} {'limit':6} {'today ms':>8} {'predicted best':40} {'measured best':40} {'ahead':>6}")
    for row, each in zip(rows, verdicts, strict=True):
        today_ms = 1e3 * median(row["measured_s"][row["today"]])
        names = [_said(one, row["today"]) for one in (each.predicted, each.best)]
        print(f"{each.name:44} {each.limit:6} {today_ms:8.0f} {names[0]:40} {names[1]:40} {each.ahead:6.1%}")
        told = "refused" if each.interval is None else "{1:.1%}, {0:.1%} to {2:.1%}".format(*each.interval)
        print(f"    {each.change}: {each.gain:.1%} gained, {told} predicted: {'in' if each.is_inside else 'OUT'}")
    inside, of, off = coverage(rows)
    print(
        f"the predicted best is the measured best in {sum(each.is_right for each in verdicts)} of {len(verdicts)}, "
        f"its gain in its interval in {sum(each.is_inside for each in verdicts)}; no change is best in "
        f"{sum(each.best == row['today'] for row, each in zip(rows, verdicts, strict=True))}; the best is ahead by "
        f"{APART:.0%} in {sum(each.ahead >= APART for each in verdicts)}; the wire was the limit in "
        f"{sum(each.limit == 'wire' for each in verdicts)}"
    )
    print(f"of all changes: {inside} of {of} gains in their interval, steps off by {off:.1%} (median)")


def _said(setting: str, today: str) -> str:
    return "no change" if setting == today else setting


# ------------------------------------------------------------------------------------------------------------ choosing
def design(case: AdviceCase) -> dict[str, float]:
    """Return the seconds of a step by setting, from the layers' times, the links, a ring and TCP's share of a link alone."""
    from ringwright.fabrics import fabric
    from ringwright_lab.judges import in_lab

    ranks = fabric(case.fabric).n_ranks
    question = in_lab.LabStepsSpec(fabric=case.fabric, step_s=case.compute_s, elements=case.elements)
    told = {each: in_lab.predict(case.model, question, (), {}, spelled(each)) for each in case.settings}
    order = sorted(told, key=lambda each: told[each])
    ahead = told[order[1]] / told[order[0]] - 1
    print(f"{case.name}: {ranks} ranks, {_said(order[0], case.today)} best, {ahead:.1%} ahead")
    for setting, step_s in told.items():
        print(f"    {setting:46} {step_s * 1e3:7.0f} ms {1 - step_s / told[case.today]:+7.1%}")
    return told


def main() -> None:
    """Do what is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=(*PHASES, "judge", "design"))
    parser.add_argument("path", type=Path, nargs="?", help="folder of a campaign; judge: or a file of results")
    parser.add_argument("--set", default="b", dest="which")
    parser.add_argument("--only", default="", help="cases with these words in their name")
    parser.add_argument("-o", type=Path, dest="out", help="judge: add the results to this file")
    given = parser.parse_args()
    if given.what != "design" and given.path is None:
        parser.error("which folder?")
    if given.what == "judge":
        whole = json.loads(given.path.read_text()) if given.path.is_file() else collected(given.path, given.which)
        rows = [row for row in whole if row["set"] == given.which]
        tell(rows)
        if given.out:
            kept = json.loads(given.out.read_text()) if given.out.exists() else []
            kept = [row for row in kept if row["set"] != given.which]
            given.out.write_text("[\n" + ",\n".join(json.dumps(row) for row in [*kept, *rows]) + "\n]\n")
        return
    for case in cases(given.which):
        done = (
            given.path is not None and (given.path / given.which / case.slug / f"{DONE.get(given.what)}.json").exists()
        )
        if given.only in case.name and not done:
            if given.what == "design":
                design(case)
            else:
                PHASES[given.what](case, given.path / given.which / case.slug)
                print(f"{given.what}: {case.name}", flush=True)


DONE = {"record": "recorded", "predict": "predicted", "measure": "measured"}
PHASES = {each.__name__: each for each in (record, predict, measure)}


if __name__ == "__main__":
    main()
