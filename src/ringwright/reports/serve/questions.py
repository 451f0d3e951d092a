"""What can be asked from the page: for each question the verb that answers it, its options as fields, and the command line.

A server runs nothing but these verbs with these options. A value is a word of its own, never an option, and names no file: what
it may read are the jobs that were opened.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ringwright.ground.errors import UsageError

Kind = Literal["text", "choice", "flag", "lines"]
OPERATIONS = ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce", "all-to-all", "scan", "exscan")
SLUG = re.compile(r"[a-z][a-z0-9-]*")
LONGEST = 2000
MOST_LINES = 16


@dataclass(frozen=True)
class Field:
    """One option. ``option`` is empty for an argument without a name; ``listed`` is a topic of ``ringwright list``."""

    name: str
    label: str
    option: str = ""
    kind: Kind = "text"
    choices: Sequence[str] = ()
    listed: str = ""
    usual: str = ""
    example: str = ""
    needed: bool = False


@dataclass(frozen=True)
class AskForm:
    """A verb as a form. ``jobs`` says how many recordings it is about; ``page`` and ``trace`` are options that write files.

    ``rows``: its answer is a table in JSON. ``ends``: by itself; what does not is put to the recording, not to its Trace.
    """

    slug: str
    title: str
    says: str
    verb: str
    jobs: int = 0
    fields: Sequence[Field] = ()
    page: str = ""
    trace: str = ""
    fixed: Sequence[str] = ()
    rows: bool = False
    ends: bool = True


FABRIC = Field("fabric", "Fabric", "--fabric", listed="fabrics", example="dgx-h100:16", needed=True)
ALGORITHM = Field("algorithm", "Algorithms", "--algorithm", listed="algorithms", example="ring,blueconnect")
POLICY = Field("policy", "Scheduler", "--policy", listed="policies", example="p3")
FAULT = Field("fault", "Faults, one a line", "--fault", "lines", listed="faults", example="link * loss 0.1%")
OPERATION = Field("operation", "Collective", kind="choice", choices=OPERATIONS, usual="all-reduce", needed=True)
SIZES = (
    Field("begin", "Smallest size", "-b", usual="64K"),
    Field("end", "Largest size", "-e", usual="1G"),
    Field("factor", "Factor", "-f", usual="4"),
)
SEED = Field("seed", "Seed", "--seed", example="0")
BUDGET = Field("budget", "Search for at most", "--budget", usual="60s")
RANKS = Field("ranks", "Ranks", "--ranks", example="0-7,16")
MODEL = (
    Field("model", "Model", "--model", listed="models", usual="llama3-70b", needed=True),
    Field("gpus", "GPUs", "--gpus", usual="64", needed=True),
    Field("parallel", "Parallel", "--parallel", example="tp8,pp2,dp4,zero1"),
)

FORMS = (
    AskForm(
        "what-if",
        "What if?",
        "The recorded step on another fabric, with another algorithm, scheduler or fault.",
        "simulate",
        1,
        (FABRIC, ALGORITHM, POLICY, FAULT, SEED),
        page="--output",
        trace="--trace",
    ),
    AskForm(
        "advise",
        "What should I change?",
        "At most five changes with their gain and its interval, or why there is none.",
        "advise",
        1,
        (
            FABRIC,
            Field("may", "May be changed", "--may", example="nccl,algorithm,ddp"),
            BUDGET,
            Field("memory", "Memory of a rank", "--memory", example="80GiB"),
            SEED,
        ),
        page="--output",
    ),
    AskForm(
        "summary",
        "Summary",
        "Operations, sizes, communicators and findings, as the terminal shows them.",
        "summary",
        1,
    ),
    AskForm(
        "query",
        "SQL",
        "Any question to the tables: events, edges, communicators, topology, links, claims, ledger.",
        "query",
        1,
        (
            Field(
                "sql",
                "Query",
                usual="select op, sum(multiplicity) as calls, max(size_bytes) as largest from events group by op",
                needed=True,
            ),
        ),
        fixed=("--json",),
        rows=True,
    ),
    AskForm(
        "check",
        "Gate",
        "Would this recording pass as a gate in CI?",
        "check",
        1,
        (
            Field("ranks", "Ranks that must be seen", "--ranks"),
            Field("max_refused", "Share of lines that may be refused", "--max-refused", usual="1%"),
            Field("allow_verdict", "Pass with a verdict", "--allow-verdict", "flag"),
        ),
    ),
    AskForm(
        "diff",
        "What changed?",
        "Two runs: what changed, by the time that was lost.",
        "diff",
        2,
        (
            Field("fail_over", "Fail over", "--fail-over", example="5%"),
            Field("slower_only", "Only what became slower fails", "--slower-only", "flag"),
        ),
    ),
    AskForm(
        "collective",
        "A collective",
        "How long it takes on a fabric, algorithm by algorithm, in the columns of nccl-tests.",
        "simulate",
        0,
        (OPERATION, FABRIC, ALGORITHM, *SIZES, FAULT, RANKS, SEED),
        page="--output",
        trace="--trace",
    ),
    AskForm(
        "model",
        "A model's step",
        "A training step before it runs: a model, a parallel form, a fabric and schedulers.",
        "simulate",
        0,
        (*MODEL, FABRIC, POLICY, FAULT, SEED),
        page="--output",
    ),
    AskForm(
        "synthesise",
        "The fastest program",
        "Searched for one machine, with the bound that no program can beat.",
        "synthesise",
        0,
        (
            OPERATION,
            FABRIC,
            Field("size", "Size", "--size", usual="64M"),
            Field("method", "Methods", "--method", example="forest"),
            BUDGET,
        ),
        page="--html",
    ),
    AskForm(
        "bound",
        "The bound",
        "What no algorithm can beat, and the cut that proves it.",
        "bound",
        0,
        (OPERATION, FABRIC, Field("size", "Size", "--size", usual="64M")),
    ),
    AskForm(
        "live",
        "Live",
        "The growing files of a running job, look by look.",
        "live",
        1,
        (Field("interval", "Seconds between looks", "--interval", usual="2"),),
        fixed=("--json",),
        ends=False,
    ),
)
BY_SLUG = {question.slug: question for question in FORMS}
# A value that names a file, whole or behind what stands before a file in a value of ours.
_FILE = re.compile(r"(?:^|[^\w)*%])[/\\~]|\.\.?[/\\]|^~")


def of(slug: str) -> AskForm:
    """Return a question by its slug; UsageError where there is none."""
    if slug not in BY_SLUG:
        raise UsageError(f"{slug[:40]!r} is no question of this page", remedy="load the page again")
    return BY_SLUG[slug]


def command(question: AskForm, jobs: Sequence[str], answers: Mapping[str, object]) -> list[str]:
    """Return the words after ``ringwright`` for a form that was filled in; UsageError names the field that is wrong.

    ``jobs`` are the paths of the jobs that the question is about.
    """
    if len(jobs) != question.jobs:
        raise UsageError(
            f"{question.title!r} is about {question.jobs} recordings, {len(jobs)} were named",
            remedy="choose them at the top of the form",
        )
    stray = sorted({*answers} - {each.name for each in question.fields})
    if stray:
        raise UsageError(f"{question.verb} has no field {stray[0][:40]!r}", remedy="load the page again")
    named: list[str] = []
    unnamed: list[str] = []
    for each in question.fields:
        words = _words(each, answers.get(each.name))
        (named if each.option else unnamed).extend(words)
    return [question.verb, *unnamed, *jobs, *named, *question.fixed]


# branches: words of a command for each kind of field
def _words(asked: Field, value: object) -> list[str]:
    """Return the words of one field."""
    if asked.kind == "flag":
        if not isinstance(value, bool | None):
            raise _wrong(asked, "it is on or off")
        return [asked.option] if value else []
    if value is None or value == "":
        if asked.needed:
            raise _wrong(asked, "it is needed")
        return []
    if not isinstance(value, str) or len(value) > LONGEST:
        raise _wrong(asked, f"a text of at most {LONGEST:,} characters is meant")
    lines = [line.strip() for line in value.splitlines() if line.strip()]
    if len(lines) > (MOST_LINES if asked.kind == "lines" else 1) and asked.name != "sql":
        raise _wrong(asked, "it has too many lines")
    words = [" ".join(lines)] if asked.name == "sql" else lines
    for word in words:
        _check(asked, word)
    return [part for word in words for part in ((asked.option, word) if asked.option else (word,))]


def _check(asked: Field, word: str) -> None:
    if asked.kind == "choice" and word not in asked.choices:
        raise _wrong(asked, f"it is one of {', '.join(asked.choices)}")
    if word.startswith("-") or not word.isprintable():
        raise _wrong(asked, "it begins with a dash, or holds what cannot be printed")
    if asked.name != "sql" and _FILE.search(word):
        raise _wrong(asked, "it names a file; a server reads the jobs that were opened, and no other file")


def _wrong(asked: Field, why: str) -> UsageError:
    remedy = f"for example {asked.example or asked.usual}" if asked.example or asked.usual else "see the field's help"
    return UsageError(f"{asked.label}: {why}", remedy=remedy)
