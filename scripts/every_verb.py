"""Runs every verb of the installed package once, in one process, in a new folder: --help of each, then a cheap question of each.

PYTHON scripts/every_verb.py [--help-only | --of VERB,...] [--json]

PYTHON is that of the environment in which the package is installed.

The exit code is 1 when a verb ends otherwise than it should, when one has no question here, or when the package that answers is
that of a checkout and not an installed one (--anywhere lets it be). Nothing but the installed package and the standard library is
needed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

# Words of a command, after ``ringwright``, and the exit code that it must end with. Later ones read what earlier ones wrote.
QUESTIONS: dict[str, list[tuple[str, int]]] = {
    "summary": [("summary --sample", 0), ("summary --sample --json", 0)],
    "report": [("report --sample -o job.html", 0)],
    "convert": [("convert SAMPLE -o job.trace", 0), ("convert SAMPLE --redact --format log -o job.log", 0)],
    "diff": [("diff job.trace job.trace", 0)],
    "check": [("check job.trace --ranks 16", 0), ("check job.trace --ranks 17", 1)],
    "query": [("query 'select op, count(*) as n from events group by op' job.trace", 0)],
    "read": [("read job.log", 0)],
    "run": [("run -o recorded -- PYTHON -c pass", 0)],
    "live": [("live job.log --once", 0)],
    "serve": [("serve --port 70000", 2)],
    "doctor": [("doctor", 0)],
    "plugin": [("plugin env", 0)],
    "bench": [("bench all-reduce --ranks 2 -b 8 -n 1 -w 0", 0)],
    "sweep": [("sweep missing.toml -o sweep", 3)],
    "compare": [("compare --jobs steps.csv", 0)],
    "workload": [("workload llama3-8b --gpus 8 --parallel tp2,zero1", 0)],
    "simulate": [
        ("simulate all-reduce --fabric dgx-h100:2 -b 1M -o simulated.html", 0),
        ("simulate --model llama3-8b --gpus 8 --parallel tp8 --fabric dgx-h100:1 --policy pytorch-ddp,p3", 0),
    ],
    "advise": [("advise --sample", 0), ("advise --sample --may nonsense", 2)],
    "provision": [("provision resnet-18 --fabric switch:2", 0)],
    "synthesise": [("synthesise all-gather --fabric ring:4 --size 1M --method p2", 0)],
    "bound": [("bound all-gather --fabric dgx-a100:2", 0)],
    "library": [("library nccl-2-4@2.27 --ranks 16 --nodes 2 --fabric dgx-h100", 0)],
    "calibrate": [
        ("calibrate table.txt --fabric dgx-h100:2 --release 2.20 -o calibration.json", 0),
        ("calibrate --sample --fabric dgx-h100:2 --release 2.20", 0),
    ],
    "systems": [("systems", 0), ("systems ring", 0), ("systems --family published", 0)],
    "survey": [("survey", 0)],
    "list": [("list", 0), ("list fabrics --json", 0)],
    "reproduce": [("reproduce nccl-2-4 --json", 1), ("reproduce netai2020", 0), ("reproduce nothing", 2)],
    "export": [("export all-reduce --fabric switch:8 --algorithm ring --to msccl-xml -o ring.xml", 0)],
    "lab": [("lab --list", 0)],
    "switch": [("switch --listen 127.0.0.1:0 --for 0.1s", 0), ("switch --workers 33", 2)],
    "verify": [("verify ring.xml", 0)],
    "accuracy": [("accuracy measured_times.csv", 0), ("accuracy missing", 3)],
}


def main() -> int:
    """Ask every verb and print a line for each command that fails, then how many ran."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--help-only", action="store_true")
    parser.add_argument("--of", default="", metavar="VERB,...", help="the questions of these verbs alone")
    parser.add_argument("--anywhere", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    sys.path[:] = [each for each in sys.path if Path(each or ".").resolve() != Path(__file__).resolve().parent]
    with tempfile.TemporaryDirectory(prefix="verbs-") as folder:
        os.chdir(folder)
        write_inputs()
        failures, ran = ask(list(filter(None, given.of.split(","))) or list(QUESTIONS), help_only=given.help_only)
        os.chdir("/")
    if not given.anywhere:
        failures += installed()
    told = {
        "ran": ran,
        "laboratory": find_spec("ringwright_lab") is not None,
        "failures": failures,
        "compiled": compiled(),
        "python": sys.version.split()[0],
    }
    print(json.dumps(told, indent=1) if given.json else "\n".join([*failures, f"{len(ran)} commands ran"]))
    return int(bool(failures))


def write_inputs() -> None:
    """Write the inputs that the package does not ship: a table of nccl-tests and one of measured steps."""
    head = ["# all_reduce_perf", "# Using devices"]
    head += [
        f"#  Rank {rank:2} Pid 25{rank:02} on host{rank // 8} device {rank % 8} [0x0f] NVIDIA H100"
        for rank in range(16)
    ]
    head += ["#     size    count  type  redop  time  algbw  busbw  error  time  algbw  busbw  error"]
    head += ["#      (B)  (elements)               (us)  (GB/s)  (GB/s)        (us)  (GB/s)  (GB/s)"]
    rows = [row(size_bytes=1 << power, time_us=40 + (1 << power) / 1.5e5) for power in range(10, 28)]
    Path("table.txt").write_text("\n".join([*head, *rows, "# Out of bounds values : 0 OK"]) + "\n")
    Path("measured_cases.csv").write_text(
        "case,system,gpu,nodes,gpus_per_node,ranks,collective,intra_node,inter_node,software,settings\n"
        "one,here,H100,2,8,16,all_reduce,NVSwitch,8 x 400 Gb/s InfiniBand a node,NCCL 2.20,\n"
    )
    Path("measured_times.csv").write_text("case,bytes,time_us\none,1048576,120\none,1073741824,4400\n")
    columns = (
        "model,sequence,global_batch,micro_batch,gpus,tensor_parallel,pipeline_parallel,iteration_s,device,fabric\n"
    )
    Path("steps.csv").write_text(columns + "llama3-8b,8192,64,1,8,8,1,20.5,h100,dgx-h100:1\n")


def row(*, size_bytes: int, time_us: float) -> str:
    """Return a line of a table of nccl-tests: an all-reduce of 16 ranks."""
    algbw_gbs = size_bytes / time_us / 1e3
    half = f"{time_us:.1f} {algbw_gbs:.2f} {algbw_gbs * 30 / 16:.2f} 0e+00"
    return f"{size_bytes:12} {size_bytes // 4:12} float sum {half} {half}"


def ask(asked: Sequence[str], *, help_only: bool) -> tuple[list[str], list[dict[str, object]]]:
    """Run the commands; return what failed, and of each command its words, exit code and seconds."""
    from ringwright.cli import app
    from ringwright.ground import laboratory
    from ringwright.ground.errors import EXIT_USAGE

    verbs = [name for name in app() if not name.startswith("-")]
    failures = [
        f"{verb}: no question for this verb in {Path(__file__).name}" for verb in verbs if verb not in QUESTIONS
    ]
    commands = [(f"{verb} --help", 0) for verb in verbs]
    if not help_only:
        absent = (
            {} if laboratory.is_there() else dict.fromkeys(laboratory.VERBS, EXIT_USAGE)
        )  # they say what to install
        commands += [(words, absent.get(verb, code)) for verb in asked for words, code in QUESTIONS[verb]]
    ran = []
    for words, expected in [("--version", 0), ("--help", 0), *commands]:
        began = time.perf_counter()
        code, said = answer(words)
        ran.append({"command": words, "code": code, "seconds": round(time.perf_counter() - began, 2)})
        if code != expected:
            failures.append(f"ringwright {words}: exit code {code}, not {expected}\n{said[-2000:]}")
    return failures, ran


def answer(words: str) -> tuple[int, str]:
    """Return the exit code of one command, run in this process, and what it printed."""
    import ringwright
    from ringwright.cli import main as command_line

    sample = Path(ringwright.__file__).parent / "samples" / "job.log.gz"
    filled = {"PYTHON": sys.executable, "SAMPLE": str(sample)}
    given = [filled.get(word, word) for word in shlex.split(words)]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = command_line(given)
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
    return code, said.getvalue()


def installed() -> list[str]:
    """Return what is wrong with where the package lies."""
    import ringwright

    place = Path(ringwright.__file__).resolve()
    if place.parents[1].name in ("site-packages", "dist-packages"):
        return []
    return [f"{place} is not an installed package"]


def compiled() -> bool:
    """Return whether the compiled loops answered."""
    from ringwright import native

    return bool(native.NATIVE and native.engine and native.plain)


if __name__ == "__main__":
    sys.exit(main())
