"""A table of choices -> a rules file of Open MPI's ``coll/tuned``: classic text (versions 1 and 2) or JSON (version 3).

The classic text cannot say an upper end, gaps, a rank distribution or an algorithm by name: such a table is refused, not
bent. Use it with ``--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_dynamic_rules_filename FILE``.
Source of the format: open-mpi/ompi ``docs/tuning-apps/collectives/tuned.rst``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ringwright.costs.mpi_names import RULES_FILE_IDS, mpi_name
from ringwright.costs.selection import RanksRule, RuleTable, SizeRule
from ringwright.ground.errors import UsageError

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
