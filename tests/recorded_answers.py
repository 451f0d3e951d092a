"""What the analysis answers over recordings, made and published, so that a change of any answer is seen.

``python tests/recorded_answers.py`` writes ``analysis/recorded_answers.json``: a digest of each key of each answer.
``python tests/recorded_answers.py "slow straggler"`` prints one answer: two commits compared show what changed.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import shared_data
from ringwright.analysis.compared import diff
from ringwright.analysis.compared.gate import check
from ringwright.analysis.metrics import metrics
from ringwright.analysis.summary import summarise
from ringwright.formats.sources import read
from ringwright.ground.errors import RingwrightError
from ringwright.model.trace import Trace
from ringwright_lab.testing import faulty_fabric, noise, slow_ranks

RECORD = Path(__file__).parent / "analysis" / "recorded_answers.json"
SAMPLES = Path(str(files("ringwright") / "samples" / "job.log.gz")).parent
PUBLISHED = (
    "chakra",
    "flight-recorder",
    "inspector",
    "kineto",
    "metrics",
    "more-profilers",
    "nccl-logs",
    "nccl-tests",
    "perf-db",
    "pytorch-et",
)
LIMITS = {"max_refused_share": 0.01, "min_ranks": 2}


def plain(value: Any) -> Any:
    """Return a value with floats to nine digits: enough for every change, few enough for the libraries of other machines."""
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


@cache
def summary(case: str) -> Any:
    return summarise(made()[case]())


def answer(case: str) -> dict[str, Any]:
    """Return the answers about a case by key, or its refusal; what names the folder it was read from is left out."""
    try:
        told = dict(summary(case))
    except RingwrightError as error:
        told = {"refused": type(error).__name__}
    else:
        told["metrics"] = metrics(made()[case]())
        told["gate"] = check(summary(case))
    told.pop("inputs", None)
    return placeless(told)


def placeless(told: dict[str, Any]) -> dict[str, Any]:
    """Return an answer without the folders of this machine, which it names where it names its inputs."""
    text = json.dumps(plain(told), default=str)
    for folder in (str(SAMPLES), str(shared_data.data_folder())):
        text = text.replace(folder, "")
    return json.loads(text)  # type: ignore[no-any-return]


def compared(before: str, after: str) -> dict[str, Any]:
    """Return the differences between the summaries of two cases."""
    return placeless({"diff": diff.diff(summary(before), summary(after))})


def made() -> dict[str, Callable[[], Trace]]:
    """Return the cases that need nothing but this checkout."""
    cases: dict[str, Callable[[], Trace]] = {}
    for path in sorted(SAMPLES.iterdir()):
        cases[f"sample {path.name}"] = partial(read, str(path))
    for mechanism in ("none", *faulty_fabric.LINK_FAULTS, *faulty_fabric.RANK_FAULTS):
        cases[f"fabric {mechanism}"] = lambda mechanism=mechanism: faulty_fabric.job(mechanism, 3)[0]
    for mechanism in ("none", *slow_ranks.MECHANISMS):
        cases[f"slow {mechanism}"] = lambda mechanism=mechanism: slow_ranks.job(mechanism, 5, noise.ours())[0]
    if shared_data.is_present():
        for path in published():
            cases[f"published {path.parent.name}/{path.name}"] = partial(read, str(path))
    return cases


def published() -> Iterator[Path]:
    """Yield the published recordings, each a file or a folder."""
    for kind in PUBLISHED:
        yield from (path for path in sorted(shared_data.real(f"real/{kind}").iterdir()) if path.name != "SOURCES.md")


def pairs() -> list[tuple[str, str]]:
    """Return cases to compare: each with the one before it of its kind."""
    names = list(made())
    return [(one, two) for one, two in pairwise(names) if one.split("/")[0].split()[0] == two.split("/")[0].split()[0]]


def digests(told: dict[str, Any]) -> dict[str, str]:
    """Return six hexadecimal digits for each key that holds anything."""
    return {key: hashlib.sha256(json.dumps(value).encode()).hexdigest()[:6] for key, value in told.items() if value}


def all_answers(*, whole: bool = True) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every case and every pair with its answers; where not whole, those of two neighbours of every ten, in order."""
    kept = [case for at, case in enumerate(made()) if whole or at % 10 < 2]
    for case in kept:
        yield case, answer(case)
    for before, after in pairs():
        if not {before, after} <= {*kept}:
            continue
        try:
            yield f"{before} > {after}", compared(before, after)
        except RingwrightError as error:
            yield f"{before} > {after}", {"refused": type(error).__name__}


if __name__ == "__main__":
    if sys.argv[1:]:
        told = compared(*sys.argv[1].split(" > ")) if " > " in sys.argv[1] else answer(sys.argv[1])
        print(json.dumps(told, indent=1))
    else:
        RECORD.write_text(json.dumps({case: digests(told) for case, told in all_answers()}, indent=0) + "\n")
