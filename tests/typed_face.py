"""What a type checker sees of the public face: checked by mypy with the package, run by nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import ringwright
from ringwright.analysis.document import Summary
from ringwright.bounds.lower_bounds import Bound
from ringwright.calls.arguments import Algorithm
from ringwright.calls.calibrate import Size
from ringwright.calls.verify import Verified
from ringwright.capture.rank_run import Executed
from ringwright.capture.record import Recording
from ringwright.costs.calibration import Calibration
from ringwright.jobs.arguments import Scheduler
from ringwright.jobs.study import PolicyResult


def nouns() -> None:
    box = assert_type(ringwright.fabric("switch:8"), ringwright.Topology)
    collective = ringwright.Collective("all-reduce", range(8), 1024)
    ring = assert_type(ringwright.algorithm("ring"), Algorithm)
    program = assert_type(ring(collective, box), ringwright.Program)
    assert_type(ringwright.verify(program), Verified)
    assert_type(ringwright.bound(collective, box), Bound)
    assert_type(ringwright.simulate(program, box), ringwright.Run)
    assert_type(ringwright.simulate("all-reduce", "switch:8", size="1M"), ringwright.Run)
    assert_type(ringwright.export(program, "msccl-xml", "ring.xml"), list[Path])


def jobs() -> None:
    trace = assert_type(ringwright.read(ringwright.sample()), ringwright.Trace)
    assert_type(ringwright.summary(trace), Summary)
    assert_type(ringwright.metrics(trace), list[dict[str, float]])
    step = assert_type(ringwright.replay(trace), ringwright.Workload)
    order = assert_type(ringwright.scheduler("p3"), Scheduler)
    assert_type(order(step, "switch:8"), ringwright.Workload)
    assert_type(ringwright.job("vgg16", gpus=8), ringwright.Workload)
    assert_type(ringwright.simulate(step, "switch:8", policy=order), PolicyResult)
    assert_type(ringwright.simulate(trace), PolicyResult)
    assert_type(ringwright.simulate("job/"), ringwright.Run | PolicyResult)


def verbs(program: ringwright.Program) -> None:
    assert_type(ringwright.run(["true"]), Recording)
    assert_type(ringwright.run(program), Executed)
    assert_type(ringwright.bench("all-reduce"), dict[str, Any])
    assert_type(ringwright.calibrate(["table.txt"], "dgx-h100:2"), tuple[Calibration, list[Size]])
    assert_type(ringwright.systems(), dict[str, Any])
    assert_type(ringwright.survey("vgg16"), dict[str, Any])
    assert_type(ringwright.reproduce("accl"), dict[str, Any])
    assert_type(ringwright.errors.UsageError("what").what, str)
    assert_type(ringwright.__version__, str)
