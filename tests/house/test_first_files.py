"""Ten questions that a reader should answer from the names of the files alone: what answers each is still where it was."""

from __future__ import annotations

import ast
import json
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
QUESTIONS = json.loads(Path(__file__).with_name("first_files.json").read_text())


def test_each_question_names_files_that_hold_its_answer() -> None:
    assert len(QUESTIONS) == 10
    for asked in QUESTIONS:
        for path, name in asked["files"].items():
            tree = ast.parse((REPOSITORY / path).read_text())
            assert name in {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}, (
                asked["question"]
            )
