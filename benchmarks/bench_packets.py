"""How fast the packet engine is: packets that leave a port a second, a large all-to-all with its memory, and its Python twin.

    python benchmarks/bench_packets.py [--quick]

A packet-hop is one packet leaving one port, acknowledgements counted, without trains. Every row runs as a process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

INCAST = ("tcp-reno", "tcp-cubic", "tcp-bbr", "srd", "roce", "ib")


def network(spec: str, slug: str, op: str, size_bytes: int) -> Any:
    """Return a program's messages on ports and connections."""
    from ringwright.engines.flat import flatten
    from ringwright.engines.machine import machine
    from ringwright.engines.packets.carriage import spoken, without_losses
    from ringwright.engines.packets.layout import lay_out
    from ringwright.fabrics import fabric
    from ringwright.model.collective import Collective
    from ringwright.model.registry import algorithm

    top = fabric(spec)
    _, build, knobs = algorithm(slug)
    program = build(Collective(op, range(top.n_ranks), size_bytes), top, **knobs)
    made = machine(without_losses(top))
    return lay_out(flatten(program, made), made.carrying(program), spoken(top), top)


def measured(spec: str, slug: str, op: str, size_bytes: int, *, twin: bool) -> dict[str, Any]:
    """Return what one run costs, from nothing."""
    from ringwright.engines.packets import loops

    begin = time.process_time()
    net = network(spec, slug, op, size_bytes)
    laid = time.process_time()
    told = (loops.twin if twin else loops.packets)(net, acknowledged=False, trains=False, bin_ps=10_000_000)
    took = time.process_time() - laid
    return {
        "hops": told.hops,
        "loop_s": took,
        "all_s": time.process_time() - begin,
        "pending": told.most_pending,
        "drops": int(sum(told.drops)),
        "pauses": int(sum(told.pauses)),
        "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def in_process(*arguments: object) -> dict[str, Any]:
    """Return ``measured`` of a process of its own."""
    command = [sys.executable, __file__, "--one", json.dumps(arguments)]
    answer: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return answer


def row(title: str, told: dict[str, Any]) -> None:
    """Print one line."""
    rate = told["hops"] / max(told["loop_s"], 1e-9) / 1e6
    print(
        f"{title:34} {told['hops']:>12,} hops {told['loop_s']:7.2f} s {rate:6.2f} M/s  {told['pending']:>9,} pending"
        f"  {told['drops']:>9,} drops {told['pauses']:>7,} pauses  all {told['all_s']:6.1f} s {told['mib']:6.0f} MiB",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        *arguments, twin = json.loads(given.one)
        print(json.dumps(measured(*arguments, twin=twin)))
        return
    size = (1 if given.quick else 4) << 30
    for name in INCAST:
        row(
            f"incast of 256, {name}",
            in_process(f"switch:256,rate=50GB/s,transport={name}", "linear", "gather", size, False),
        )
    hosts = 256 if given.quick else 1024
    for name in ("roce", "tcp-reno"):
        spec = f"leaf-spine:{hosts},per_leaf=32,routing=ecmp,transport={name}"
        row(f"all-to-all of {hosts:,}, {name}", in_process(spec, "direct", "all-to-all", hosts << 16, False))
    for twin in (False, True):
        title = "the Python twin" if twin else "compiled"
        row(f"ring of 16, roce, {title}", in_process("switch:16,transport=roce", "ring", "all-reduce", 16 << 20, twin))


if __name__ == "__main__":
    main()
