"""A table of choices -> a rules file of Open MPI's ``coll/tuned``: classic text (versions 1 and 2) or JSON (version 3).

The classic text cannot say an upper end, gaps, a rank distribution or an algorithm by name: such a table is refused, not
bent. Use it with ``--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_dynamic_rules_filename FILE``.
Source of the format: open-mpi/ompi ``docs/tuning-apps/collectives/tuned.rst``.

Read back: in the classic text a communicator size holds from itself up to the next one, as in Open MPI 5.0; below the first
size no rule stands. What a size means depends on the collective; see
``costs.open_mpi.rules_file_bytes``. Every number is bounded, so a file cannot ask for more memory than
it has text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from ringwright.costs.mpi_names import OUR_NAMES, RULES_FILE_IDS, RULES_FILE_OPS, mpi_name
from ringwright.costs.selection import DISTRIBUTIONS, RanksRule, RuleTable, SizeRule
from ringwright.formats.sources.gate.small_file import read_whole
from ringwright.ground.errors import InputError, UsageError

_REMEDY = "write version 3 (JSON, Open MPI 6.0 and later) instead"


def to_rules_text(table: RuleTable, version: int = 2) -> bytes:
    """Return the classic text; version 1 has no ``max_requests`` and is what releases before 5.0.7 read."""
    if version not in (1, 2):
        raise UsageError(f"classic rules files have version 1 or 2, not {version}", remedy="use to_rules_json for 3")
    lines = [f"rule-file-version-{version}"] if version > 1 else []
    lines.append(f"{len(table.rules)} # collectives")
    for op, groups in table.rules.items():
        _check_ranks(op, groups)
        lines += [f"{RULES_FILE_IDS[op]} # {mpi_name(op)}", f"{len(groups)} # communicator sizes"]
        for group in groups:
            _check_sizes(op, group)
            lines += [f"{group.ranks_min} # ranks", f"{len(group.rules)} # rules: bytes algorithm fanout segment"]
            lines += [_line(op, rule, version) for rule in group.rules]
    return ("\n".join(lines) + "\n").encode()


def to_rules_json(table: RuleTable) -> bytes:
    """Return the JSON text of version 3."""
    collectives = {mpi_name(op): [_group(group) for group in groups] for op, groups in table.rules.items()}
    document = {"rule_file_version": 3, "module": "tuned", "collectives": collectives}
    return (json.dumps(document, indent=1) + "\n").encode()


# ------------------------------------------------------------------------------------------------------- classic text
def _line(op: str, rule: SizeRule, version: int) -> str:
    if isinstance(rule.algorithm, str):
        raise UsageError(f"{op}: the classic text names algorithms by number, not '{rule.algorithm}'", remedy=_REMEDY)
    if rule.max_requests and version < 2:
        raise UsageError(f"{op}: max_requests needs version 2 of the rules file", remedy="write version 2 or 3 instead")
    numbers = [rule.size_min_bytes, rule.algorithm, rule.fanout, rule.segment_bytes]
    return " ".join(str(number) for number in (*numbers, *([rule.max_requests] if version > 1 else [])))


def _check_ranks(op: str, groups: Sequence[RanksRule]) -> None:
    for group, after in zip(groups, [*groups[1:], None], strict=True):
        end = None if after is None else after.ranks_min - 1
        if group.ranks_max != end or group.distribution != "any":
            raise UsageError(f"{op}: the rules for {group.ranks_min} ranks stop short of the next", remedy=_REMEDY)


def _check_sizes(op: str, group: RanksRule) -> None:
    if not group.rules or group.rules[0].size_min_bytes != 0:
        raise UsageError(f"{op}: the rules for {group.ranks_min} ranks do not begin at size 0", remedy=_REMEDY)
    for rule, after in zip(group.rules, [*group.rules[1:], None], strict=True):
        if rule.size_max_bytes != (None if after is None else after.size_min_bytes - 1):
            raise UsageError(f"{op}: the rule from {rule.size_min_bytes} B stops short of the next", remedy=_REMEDY)


# --------------------------------------------------------------------------------------------------------------- JSON
def _group(group: RanksRule) -> dict[str, Any]:
    written: dict[str, Any] = {"comm_size_min": group.ranks_min}
    if group.ranks_max is not None:
        written["comm_size_max"] = group.ranks_max
    if group.distribution != "any":
        written["comm_rank_distribution"] = group.distribution
    return {**written, "rules": [_rule(rule) for rule in group.rules]}


def _rule(rule: SizeRule) -> dict[str, Any]:
    end: int | str = "inf" if rule.size_max_bytes is None else rule.size_max_bytes
    optional = {"faninout": rule.fanout, "seg_size": rule.segment_bytes, "reqs": rule.max_requests}
    written = {"msg_size_min": rule.size_min_bytes, "msg_size_max": end, "alg": rule.algorithm}
    return {**written, **{name: value for name, value in optional.items() if value}}


# read back


_VERSION = "rule-file-version-"
_LARGEST = 2**63 - 1
_COMPARE = "compare with what ringwright.formats.settings.ompi_rules writes"


def read_ompi_rules(path: Path | str) -> RuleTable:
    """Return the table of a rules file; InputError names the line (classic) or the entry (JSON) that is wrong."""
    path = Path(path)
    return parse_ompi_rules(read_whole(path, "the rules file", _COMPARE), str(path))


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
        raise InputError(f"bad rules file: {what}", where=f"{self.where}:{self.line}", remedy=_COMPARE)


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
        return InputError(f"bad rules file: {what}", where=f"{self.where}{where}", remedy=_COMPARE)
