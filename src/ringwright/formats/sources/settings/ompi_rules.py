"""A rules file of Open MPI's ``coll/tuned`` -> a table of choices: classic text (versions 1 and 2) or JSON (version 3).

In the classic text a communicator size holds from itself up to the next one, as in Open MPI 5.0; below the first size no
rule stands. What a size means depends on the collective; see ``algorithms.libraries.open_mpi.rules.rules_file_bytes``.
Every number is bounded, so a file cannot ask for more memory than it has text.
Source of the format: open-mpi/ompi ``docs/tuning-apps/collectives/tuned.rst``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from ringwright.costs.mpi_names import OUR_NAMES, RULES_FILE_OPS
from ringwright.costs.selection import DISTRIBUTIONS, RanksRule, RuleTable, SizeRule
from ringwright.formats.sources.gate.whole import read_whole
from ringwright.ground.errors import InputError

_VERSION = "rule-file-version-"
_LARGEST = 2**63 - 1
_REMEDY = "compare with what ringwright.formats.exports.ompi_rules writes"


def read_ompi_rules(path: Path | str) -> RuleTable:
    """Return the table of a rules file; InputError names the line (classic) or the entry (JSON) that is wrong."""
    path = Path(path)
    return parse_ompi_rules(read_whole(path, "the rules file", _REMEDY), str(path))


def parse_ompi_rules(text: str, where: str = "rules") -> RuleTable:
    """Return the table of a rules file's text; ``where`` names it in errors."""
    if text.lstrip().startswith("{"):
        return _Document(where).table(text)
    return _Classic(text, where).table()


# ------------------------------------------------------------------------------------------------------- classic text
class _Classic:
    """A walk over the numbers of a classic file; comments run from # to the end of the line."""

    def __init__(self, text: str, where: str) -> None:
        self.where = where
        self.version = 1
        self.words: list[tuple[str, int]] = []
        for line, written in enumerate(text.splitlines(), start=1):
            self.words += [(word, line) for word in written.split("#", 1)[0].split()]
        self.words.reverse()
        self.line = 1

    def table(self) -> RuleTable:
        if self.words and self.words[-1][0].startswith(_VERSION):
            word, self.line = self.words.pop()
            self.version = self.integer(word.removeprefix(_VERSION), "the version")
            if self.version not in (1, 2):
                self.fail(f"version {self.version} of the classic text is not known")
        rules: dict[str, tuple[RanksRule, ...]] = {}
        for _ in range(self.count("the number of collectives")):
            number = self.next("a collective's id")
            if number not in RULES_FILE_OPS:
                self.fail(f"no collective has the id {number}")
            op = RULES_FILE_OPS[number]
            if op in rules:
                self.fail(f"{op} (id {number}) is given twice")
            rules[op] = self.groups()
        if self.words:
            word, self.line = self.words[-1]
            self.fail(f"'{word}' follows the last rule: a count above is too small")
        return RuleTable(rules)

    def groups(self) -> tuple[RanksRule, ...]:
        groups: list[tuple[int, tuple[SizeRule, ...]]] = []
        for _ in range(self.count("the number of communicator sizes")):
            ranks = self.next("a communicator size")
            if groups and ranks <= groups[-1][0]:
                self.fail(f"communicator size {ranks} does not follow {groups[-1][0]} in ascending order")
            groups.append((ranks, self.sizes()))
        ends = [ranks - 1 for ranks, _ in groups[1:]]
        return tuple(RanksRule(low, high, rules) for (low, rules), high in zip(groups, [*ends, None], strict=False))

    def sizes(self) -> tuple[SizeRule, ...]:
        rows: list[list[int]] = []
        for _ in range(self.count("the number of rules")):
            row = [self.next(what) for what in ("bytes", "an algorithm", "a fan-out", "a segment size")]
            if not rows and row[0] != 0:
                self.fail(f"the first rule must start at 0 bytes, not {row[0]}")
            if rows and row[0] <= rows[-1][0]:
                self.fail(f"{row[0]} bytes do not follow {rows[-1][0]} in ascending order")
            rows.append([*row, self.requests()])
        ends = [row[0] - 1 for row in rows[1:]]
        return tuple(SizeRule(row[0], high, *row[1:]) for row, high in zip(rows, [*ends, None], strict=False))

    def requests(self) -> int:
        """Return the fifth number of a version 2 rule, which must stand on the line of the others."""
        if self.version < 2 or not self.words or self.words[-1][1] != self.line:
            return 0
        return self.next("a number of requests")

    def count(self, what: str) -> int:
        number = self.next(what)
        if number > len(self.words):
            self.fail(f"{what} is {number}, more than the file has left")
        return number

    def next(self, what: str) -> int:
        if not self.words:
            self.fail(f"the file ends where {what} should stand")
        word, self.line = self.words.pop()
        return self.integer(word, what)

    def integer(self, word: str, what: str) -> int:
        if not (word.isascii() and word.isdecimal()) or len(word) > 19 or int(word) > _LARGEST:
            self.fail(f"'{word[:40]}' is not a number, where {what} should stand")
        return int(word)

    def fail(self, what: str) -> NoReturn:
        raise InputError(f"bad rules file: {what}", where=f"{self.where}:{self.line}", remedy=_REMEDY)


# --------------------------------------------------------------------------------------------------------------- JSON
class _Document:
    """The entries of a JSON file, each named by its path in errors."""

    def __init__(self, where: str) -> None:
        self.where = where

    def table(self, text: str) -> RuleTable:
        try:
            document = json.loads(text)
        except json.JSONDecodeError as error:
            raise self.error(f"not JSON: {error.msg}", f":{error.lineno}") from None
        except RecursionError:
            raise self.error("nested too deeply", "") from None
        if self.integer(document, "rule_file_version", 3, "") != 3:
            raise self.error("only version 3 is written as JSON", ": rule_file_version")
        collectives = document.get("collectives")
        if not isinstance(collectives, dict):
            raise self.error("'collectives' should be an object", ": collectives")
        unknown = [name for name in collectives if name not in OUR_NAMES]
        if unknown:
            raise self.error(f"no collective is called '{unknown[0]}'", ": collectives")
        usual = self.distribution(document, "any", "")
        return RuleTable({OUR_NAMES[name]: self.groups(groups, usual, name) for name, groups in collectives.items()})

    def groups(self, value: Any, usual: str, name: str) -> tuple[RanksRule, ...]:
        groups = []
        for index, entry in enumerate(self.items(value, name)):
            at = f"{name}[{index}]"
            low = self.integer(entry, "comm_size_min", 0, at) or 0
            high = self.integer(entry, "comm_size_max", None, at)
            rules = tuple(
                self.rule(rule, f"{at}.rules[{number}]")
                for number, rule in enumerate(self.items(entry.get("rules"), f"{at}.rules"))
            )
            groups.append(RanksRule(low, high, rules, self.distribution(entry, usual, at)))
        return tuple(groups)

    def rule(self, entry: dict[str, Any], at: str) -> SizeRule:
        algorithm = entry.get("alg")
        if isinstance(algorithm, bool) or not isinstance(algorithm, int | str):
            raise self.error("'alg' should be a number or a name", f": {at}.alg")
        knobs = [self.integer(entry, name, 0, at) or 0 for name in ("faninout", "seg_size", "reqs")]
        low = self.integer(entry, "msg_size_min", 0, at) or 0
        return SizeRule(low, self.integer(entry, "msg_size_max", None, at), algorithm, *knobs)

    def items(self, value: Any, at: str) -> list[dict[str, Any]]:
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise self.error("should be a list of objects", f": {at}")
        return value

    def integer(self, entry: Any, name: str, default: int | None, at: str) -> int | None:
        """Return a number, ``default`` where it is absent, None for ``inf``."""
        value = entry.get(name, default) if isinstance(entry, dict) else None
        if isinstance(value, str) and value.lower() == "inf":
            return None
        if value is default:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
            raise self.error(f"'{name}' should be a number of 0 or more, or inf", f": {at}.{name}")
        return value

    def distribution(self, entry: dict[str, Any], default: str, at: str) -> str:
        value = entry.get("comm_rank_distribution", default)
        if value not in DISTRIBUTIONS:
            raise self.error(f"the rank distribution is one of {', '.join(DISTRIBUTIONS)}", f": {at}")
        return str(value)

    def error(self, what: str, where: str) -> InputError:
        return InputError(f"bad rules file: {what}", where=f"{self.where}{where}", remedy=_REMEDY)
