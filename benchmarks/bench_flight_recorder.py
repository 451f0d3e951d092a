"""1,000 Flight Recorder dumps with stacks: seconds to read and to diagnose, in a fresh process, and peak memory.

python benchmarks/bench_flight_recorder.py [--world 1000]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from ringwright_lab.testing.flight_recorder import FlightJob

READ = """
import resource, sys, time
from ringwright.analysis.hangs.hang import hang
from ringwright.formats.sources import read
begin = time.perf_counter()
trace = read(sys.argv[1])
middle = time.perf_counter()
found = hang(trace)
end = time.perf_counter()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(f"read {middle - begin:.2f} s, {trace.df.height:,} events; diagnosis {end - middle:.2f} s: "
      f"{found[0]['kind'] if found else 'none'} {found[0]['ranks'] if found else ''}; peak {peak:.0f} MiB")
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", type=int, default=1000)
    given = parser.parse_args()
    job = FlightJob("stopped", seed=1, world=given.world, tp=4, pp=2, steps=6, layers=3, stacks=True)
    with tempfile.TemporaryDirectory() as folder:
        size = 0
        for name, data in job.files().items():
            (Path(folder) / name).write_bytes(data)
            size += len(data)
        print(f"{given.world:,} dumps, {size / 1e6:.0f} MB")
        print(
            subprocess.run([sys.executable, "-c", READ, folder], check=True, capture_output=True, text=True).stdout,
            end="",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
