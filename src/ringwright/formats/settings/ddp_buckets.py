"""Buckets for PyTorch's DistributedDataParallel: the fusion of a scheduled Workload as ``bucket_cap_mb_list``.

DistributedDataParallel appends gradients, in the order in which the first step made them, to a bucket until it has reached
its cap; a cap of exactly a bucket's bytes therefore makes that bucket (PyTorch 2.13 and later).

Read back, nothing of the Python is run: the list of ``bucket_cap_mb_list`` is read from each call. There buckets have sizes
and no names.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any, NoReturn

from ringwright.formats.sources.gate.small_file import read_whole
from ringwright.graph.frameworks.buckets import BucketPlan
from ringwright.ground.errors import InputError, UsageError
from ringwright.ground.units import MIB
from ringwright.model.rewrites import Operation, operations
from ringwright.model.rewrites.kind import carried_by
from ringwright.model.workload import Workload

EXPORTS = {"ddp-buckets": "as_json", "ddp-buckets-py": "as_python"}


def ddp_plan(workload: Workload, roles: tuple[str, ...] = ("dp",), of: str | None = None) -> dict[str, Any]:
    """Return ``bucket_cap_mb_list`` (MiB), and ``buckets``, the names of the gradients in each, of a kind of ranks.

    Raises UsageError, with the reason, for a policy that these buckets cannot carry out, or where kinds of ranks differ.
    """
    _refuse(workload)
    kinds = _kinds(workload, roles)
    if len(kinds) > 1 and of is None:
        raise UsageError(
            f"{len(kinds)} kinds of ranks have gradients of their own", remedy=f"one of: {', '.join(kinds)}"
        )
    if of is not None and of not in kinds:
        raise UsageError(f"no ranks '{of}' have gradients", where=workload.name, remedy=f"one of: {', '.join(kinds)}")
    of = of or next(iter(kinds), "")
    ops = [each for each in operations(workload) if each.role in roles and each.payloads[0].of == of]
    if not ops:
        raise UsageError(
            f"{workload.name} sends no gradients of role {', '.join(roles)}",
            remedy="data parallelism of two ranks or more",
        )
    other = next((each for each in ops if each.payloads[0].op != "all-reduce"), None)
    if other is not None:
        raise UsageError(f"{other.name} is a {other.payloads[0].op}: buckets are reduced to every rank", remedy="zero0")
    _in_order(ops, [payload.name for payload in workload.gradients(roles) if payload.of == of])
    return {
        "bucket_cap_mb_list": [each.size_bytes / MIB for each in ops],
        "buckets": [[payload.name for payload in each.payloads] for each in ops],
        "policy": workload.policy.label,
    }


def text(workload: Workload, form: str = "json") -> str:
    """Return the plan as JSON, or as the Python call (``py``); one for each kind of ranks, by name, where these differ."""
    if form not in ("json", "py"):
        raise UsageError(f"no form '{form}' of a bucket plan", remedy="json or py")
    if workload.gradients(("edp",)):
        raise UsageError(
            "gradients of experts go to other ranks than the rest: DistributedDataParallel reduces all in one group",
            where=workload.name,
            remedy="leave ep out, or ringwright.formats.settings.ddp_buckets.ddp_plan for one role",
        )
    kinds = _kinds(workload, ("dp",))
    plans = {of: ddp_plan(workload, of=of) for of in kinds} if len(kinds) > 1 else {"": ddp_plan(workload)}
    if form == "json":
        return json.dumps(plans if len(plans) > 1 else plans[""], indent=1) + "\n"
    return "".join(_call(plan, f" of {of}" if of else "") for of, plan in plans.items())


def as_json(workload: Workload) -> bytes:
    """Return the plan as JSON, UTF-8."""
    return text(workload, "json").encode()


def as_python(workload: Workload) -> bytes:
    """Return the plan as the Python call that makes the buckets, UTF-8."""
    return text(workload, "py").encode()


def _call(plan: dict[str, Any], whose: str) -> str:
    caps = ", ".join(repr(cap) for cap in plan["bucket_cap_mb_list"])
    said = f"{len(plan['buckets'])} buckets{whose} by {plan['policy']}"
    return (
        f"# {''.join(each if each.isprintable() else '?' for each in said)}\n"
        f"model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb_list=[{caps}])\n"
    )


def _kinds(workload: Workload, roles: tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys(each.of for each in workload.gradients(roles)))


def _refuse(workload: Workload) -> None:
    policy, queue = workload.policy, workload.policy.queue
    kinds = {rewrite.kind for rewrite in policy.rewrites or ()} - set(carried_by("buckets"))
    reasons = {
        "urgencies": (
            queue is not None and (bool(queue.keys) or queue.random is not None),
            "DistributedDataParallel starts bucket i only after bucket i - 1",
        ),
        "boundary 'layer'": (policy.boundary == "layer", "backward() returns only when every bucket has been reduced"),
        f"rewrite '{min(kinds, default='')}'": (
            bool(kinds),
            "a bucket holds whole gradients and is reduced in one piece",
        ),
        "order of compute": (bool(policy.order), "the program of the model fixes it"),
    }
    for part, (wrong, why) in reasons.items():
        if wrong:
            raise UsageError(
                f"buckets cannot carry out the {part} of {policy.label}: {why}",
                remedy="ringwright_lab.live.on_ranks, which can, or a policy that only fuses",
            )


def _in_order(ops: list[Operation], made: list[str]) -> None:
    """Raise UsageError unless the buckets one after another are the gradients in the order of backward."""
    sent = [payload.name for each in ops for payload in each.payloads]
    for want, have in zip(made, sent, strict=True):
        if want != have:
            raise UsageError(
                f"{have} is sent where backward makes {want}: buckets take gradients in the order they are made",
                remedy="groups of neighbours only",
            )
    mixed = next((each for each in ops if len({payload.dtype for payload in each.payloads}) > 1), None)
    if mixed is not None:
        raise UsageError(f"{mixed.name} mixes number formats; a bucket holds one")


# read back


_REMEDY = "compare with what ringwright.formats.settings.ddp_buckets writes"
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
