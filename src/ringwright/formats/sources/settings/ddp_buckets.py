"""Buckets of DistributedDataParallel, as ``exports.ddp_buckets`` writes them: JSON, or the Python call.

Nothing of the Python is run: the list of ``bucket_cap_mb_list`` is read from each call. There buckets have sizes and no names.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import NoReturn

from ringwright.formats.sources.gate.whole import read_whole
from ringwright.graph.frameworks.buckets import BucketPlan
from ringwright.ground.errors import InputError, UsageError

_REMEDY = "compare with what ringwright.formats.exports.ddp_buckets writes"
_CAPS = "bucket_cap_mb_list"
_SAID = re.compile(r"^# \d+ buckets(?: of (?P<of>.+?))? by (?P<policy>.+)$", re.MULTILINE)


def read_ddp_buckets(path: Path | str) -> dict[str, BucketPlan]:
    """Return the plans of a file by the kind of ranks ("" where there is one); InputError says what is wrong."""
    path = Path(path)
    return parse_ddp_buckets(read_whole(path, "the buckets", _REMEDY), str(path))


def parse_ddp_buckets(text: str, where: str = "buckets.json") -> dict[str, BucketPlan]:
    """Return the plans of a file's text; ``where`` names it in errors."""
    if not text.lstrip().startswith("{"):
        return _of_python(text, where)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        _fail(f"not JSON: {str(error)[:60]}", where)
    plans = {"": document} if _CAPS in document else document
    if not plans:
        _fail(f"an object with '{_CAPS}' should stand here", where)
    return {str(of): _of_json(plan, f"{where}: {str(of)[:40]}") for of, plan in plans.items()}


def _of_json(plan: object, where: str) -> BucketPlan:
    if not isinstance(plan, dict):
        _fail("a plan is an object", where)
    buckets, policy = plan.get("buckets", []), plan.get("policy", "none")
    named = isinstance(buckets, list) and all(
        isinstance(each, list) and all(isinstance(name, str) for name in each) for each in buckets
    )
    if not named or not isinstance(policy, str):
        _fail("'buckets' should be lists of names, 'policy' a text", where)
    return _made(plan.get(_CAPS), tuple(tuple(each) for each in buckets), policy, where)


def _of_python(text: str, where: str) -> dict[str, BucketPlan]:
    try:
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        lists = [ast.literal_eval(word.value) for call in calls for word in call.keywords if word.arg == _CAPS]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        _fail(f"neither JSON nor Python: {str(error)[:60]}", where)
    said = [*_SAID.finditer(text)]
    if not lists or (said and len(said) != len(lists)):
        _fail(f"a call with {_CAPS} should stand here, each below its comment", where)
    heads = [(each["of"] or "", each["policy"]) for each in said] or [
        (str(at or ""), "none") for at in range(len(lists))
    ]
    return {of: _made(caps, (), policy, where) for (of, policy), caps in zip(heads, lists, strict=True)}


def _made(caps: object, buckets: tuple[tuple[str, ...], ...], policy: str, where: str) -> BucketPlan:
    if not isinstance(caps, list) or any(isinstance(cap, bool) or not isinstance(cap, int | float) for cap in caps):
        _fail(f"{_CAPS} should be a list of numbers", where)
    try:
        return BucketPlan(tuple(float(cap) for cap in caps), buckets, policy)
    except (UsageError, OverflowError) as error:
        _fail(getattr(error, "what", str(error)), where)


def _fail(what: str, where: str) -> NoReturn:
    raise InputError(f"bad buckets: {what}", where=where, remedy=_REMEDY)
