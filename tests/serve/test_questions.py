"""Forms become commands of the verbs they name, and nothing else: no option, no file, no other verb."""

from __future__ import annotations

import random
from typing import Any

import pytest
from cyclopts import CycloptsError

from ringwright.cli.application import app
from ringwright.ground.errors import UsageError
from ringwright.reports.serve import questions
from ringwright.reports.serve.questions import FORMS, AskForm, Field

pytestmark = pytest.mark.once
IDS = [question.slug for question in FORMS]


def filled(question: AskForm) -> dict[str, Any]:
    """Return an answer for every field."""
    return {each.name: True if each.kind == "flag" else each.usual or each.example or "3" for each in question.fields}


def jobs(question: AskForm) -> list[str]:
    return [f"job-{number}/nccl.log" for number in range(question.jobs)]


@pytest.mark.parametrize("question", FORMS, ids=IDS)
def test_every_field_is_an_option_of_its_verb(question: AskForm) -> None:
    """What the page offers is what the command line takes, page and trace included."""
    words = questions.command(question, jobs(question), filled(question))
    words += [question.page, "page.html"] if question.page else []
    words += [question.trace, "trace"] if question.trace else []
    verb, _, _ = app().parse_args(words, exit_on_error=False, print_error=False)
    assert verb.__name__ == question.verb
    with pytest.raises(CycloptsError):
        app().parse_args([*words, "--no-such-option", "1"], exit_on_error=False, print_error=False)


@pytest.mark.parametrize("question", FORMS, ids=IDS)
def test_fields_that_are_left_out_leave_no_word(question: AskForm) -> None:
    needed = {each.name: filled(question)[each.name] for each in question.fields if each.needed}
    words = questions.command(question, jobs(question), needed)
    assert len(words) == 1 + sum(
        2 if each.option else 1 for each in question.fields if each.needed
    ) + question.jobs + len(question.fixed)


@pytest.mark.parametrize(
    "value",
    [
        "-o", "--output=/etc/passwd", "/etc/passwd", "~/x", "../x", "a=/etc/passwd", "ring,/etc/passwd", "x:../../y", "./x",
        "file:" + "/etc/passwd", "a /etc/passwd", "a\x00b", "\x1b[2J", "(/etc/passwd)", "x" * 2001, "a\nb", "C:\\x", 7, ["a"], {"a": 1},
    ],
)  # fmt: skip
def test_a_value_names_no_file_and_is_no_option(value: object) -> None:
    question = questions.of("collective")
    with pytest.raises(UsageError):
        questions.command(question, [], {"operation": "all-reduce", "fabric": value})


@pytest.mark.parametrize(
    "value", ["switch:8,rate=100Gb/s", "torus:4x4", "dgx-h100:16,sharp=true", "node*/nic2", "10%/s"]
)
def test_spellings_with_a_slash_pass(value: str) -> None:
    question = questions.of("collective")
    words = questions.command(question, [], {"operation": "all-reduce", "fabric": value})
    assert words == ["simulate", "all-reduce", "--fabric", value]


def test_lines_are_options_each() -> None:
    words = questions.command(
        questions.of("what-if"), ["job"], {"fabric": "switch:8", "fault": "link * loss 1%\nrank 3 slow 2x"}
    )
    assert words == [
        "simulate",
        "job",
        "--fabric",
        "switch:8",
        "--fault",
        "link * loss 1%",
        "--fault",
        "rank 3 slow 2x",
    ]


@pytest.mark.parametrize(
    ("slug", "about", "answers"),
    [
        ("what-if", [], {"fabric": "switch:8"}),
        ("what-if", ["job"], {}),
        ("diff", ["job"], {}),
        ("collective", [], {"operation": "rm -rf", "fabric": "switch:8"}),
        ("collective", [], {"operation": "all-reduce", "fabric": "switch:8", "output": "x"}),
        ("check", ["job"], {"allow_verdict": "yes"}),
    ],
)
def test_forms_that_are_wrong_are_refused(slug: str, about: list[str], answers: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        questions.command(questions.of(slug), about, answers)


def test_a_question_that_is_none() -> None:
    with pytest.raises(UsageError, match="no question"):
        questions.of("convert")


def test_whatever_comes_becomes_words_of_its_own_or_is_refused() -> None:
    """No answer adds an option: those in a command are the form's, each as often as a field was filled in."""
    random_ = random.Random(7)
    letters = "-=/.~\\ ,:'\"%abc0\n\t\x00é"
    for _ in range(2000):
        question = random_.choice(FORMS)
        answers = {
            each.name: "".join(random_.choices(letters, k=random_.randint(0, 12)))
            for each in question.fields
            if each.kind != "flag"
        }
        try:
            words = questions.command(question, jobs(question), answers)
        except UsageError:
            continue
        options = {each.option for each in question.fields if each.option} | {*question.fixed}
        dashed = [word for word in words if word.startswith("-")]
        assert set(dashed) <= options
        read = words if question.slug != "query" else words[:1] + words[2:]
        assert not any(word.startswith(("/", "~", "../", "./")) for word in read)


def test_a_field_says_what_is_wrong_with_it() -> None:
    asked = Field("size", "Size", "--size", usual="64M")
    question = AskForm("x", "t", "s", "bound", 0, (asked,))
    with pytest.raises(UsageError) as told:
        questions.command(question, [], {"size": "-1"})
    assert "Size" in str(told.value)
    assert "64M" in str(told.value)
