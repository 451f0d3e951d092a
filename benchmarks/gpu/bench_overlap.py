"""How communication and computation slow each other down on one GPU: python benchmarks/gpu/bench_overlap.py --out FOLDER

Compiles the CUDA sources beside this file, runs their sections one after the other, each in a process and a time of its own, and
writes one JSON file of plain rows. The file is written anew after every section, so a run that is cut off leaves what it has.
Needs nvcc, one NVIDIA GPU of compute capability 9.0 and cuBLAS, a toolkit's or a Python wheel's; no other Python package.
"""

from __future__ import annotations

import argparse
import bisect
import ctypes
import json
import os
import platform
import shutil
import site
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = ("main", "waves", "beside", "tiles", "launches", "bandwidth", "fused")
# Seconds of each section, most needed first; together with the compiler they stay below what --seconds says.
BUDGET_S = {"kernels": 12, "waves": 45, "beside": 90, "tiles": 60, "bandwidth": 25, "launches": 25, "fused": 10}
GRACE_S = 12  # for starting a process, and for the row that was begun within the budget
NEAR_S = 0.15  # a sample of the clocks tells of a row if it is no farther from it
UNITS = {
    "_us": "microseconds",
    "_gbs": "10^9 bytes a second; of payload, or of reads plus writes where the key says traffic",
    "_tflops": "10^12 operations a second, two for a multiply-add",
    "_mhz": "MHz",
    "_w": "watts",
    "_s": "seconds since 1970 (from_s, to_s) or seconds (took_s)",
    "KEY_us": "median; KEY_p10_us, KEY_p90_us, KEY_least_us, KEY_most_us, KEY_mean_us and KEY_samples tell the spread",
}
NVML_READS = {
    # name: (function, argument between device and result or None, scale)
    "sampled_sm_mhz": ("nvmlDeviceGetClockInfo", 1, 1),
    "sampled_memory_mhz": ("nvmlDeviceGetClockInfo", 2, 1),
    "sampled_power_w": ("nvmlDeviceGetPowerUsage", None, 1e-3),
    "sampled_temperature_c": ("nvmlDeviceGetTemperature", 0, 1),
}
SHOWN = {"1024x4096x4096", "8192x8192x8192", "8192x8192x1024"}  # in the table that is printed; the file has all
Row = dict[str, object]


class Clocks(threading.Thread):
    """Reads clocks, power and temperature while the sections run; it changes none of them."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.library: ctypes.CDLL | None = None
        self.device = ctypes.c_void_p()
        self.samples: list[tuple[float, Row]] = []
        self.stopped = threading.Event()
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        if library.nvmlInit_v2() == 0 and library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device)) == 0:
            self.library = library

    def text(self, function: str, *arguments: object) -> str | None:
        """Return what a function of the library writes into a buffer; None if it has nothing to say."""
        buffer = ctypes.create_string_buffer(96)
        if self.library is None or getattr(self.library, function)(*arguments, buffer, 96) != 0:
            return None
        return buffer.value.decode()

    def sample(self) -> Row:
        row: Row = {}
        for name, (function, argument, scale) in NVML_READS.items():
            value = ctypes.c_uint()
            between = () if argument is None else (argument,)
            if self.library and getattr(self.library, function)(self.device, *between, ctypes.byref(value)) == 0:
                row[name] = round(value.value * scale, 1)
        reasons, library = ctypes.c_ulonglong(), self.library
        if library and library.nvmlDeviceGetCurrentClocksThrottleReasons(self.device, ctypes.byref(reasons)) == 0:
            row["sampled_slowed_by_bits"] = reasons.value
        return row

    def run(self) -> None:
        while self.library and not self.stopped.wait(0.04):
            self.samples.append((time.time(), self.sample()))


def read_rows(path: Path) -> list[Row]:
    """Return the rows written so far; a last line that was cut off is left out."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def with_clocks(rows: list[Row], samples: list[tuple[float, Row]]) -> list[Row]:
    """Return rows that also carry the sample nearest to the middle of their time, if one is near."""
    times = [when for when, _ in samples]
    out = []
    for row in rows:
        first, last = float(str(row["from_s"])), float(str(row["to_s"]))
        middle = (first + last) / 2
        at = bisect.bisect(times, middle)
        near = min(samples[max(0, at - 1) : at + 1], key=lambda sample: abs(sample[0] - middle), default=None)
        close = near is not None and first - NEAR_S <= near[0] <= last + NEAR_S
        out.append({**row, **near[1]} if near is not None and close else row)
    return out


def cublas_folder() -> Path | None:
    """Return the folder of a cuBLAS: of a wheel this Python sees, or of the toolkit."""
    packages = [Path(entry) for entry in [*sys.path, *site.getsitepackages()] if entry]
    candidates = [hit.parent for folder in packages for hit in folder.glob("nvidia/*/lib/libcublas.so.1[23]")]
    compiler = shutil.which("nvcc")
    roots = [Path("/usr/local/cuda"), *([Path(compiler).resolve().parents[1]] if compiler else [])]
    for root in roots:
        for inside in ("lib64", "lib", "targets/x86_64-linux/lib"):
            candidates += [hit.parent for hit in (root / inside).glob("libcublas.so.1[23]")]
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    candidates += [Path(line.split("=>")[1].strip()).parent for line in listed.splitlines() if "libcublas.so.1" in line]
    return candidates[0] if candidates else None


def build(folder: Path) -> str:
    """Compile the sources side by side and link them; return what the compiler said if it failed, else nothing."""
    flags = ["-O3", "-std=c++17", "-gencode=arch=compute_90,code=sm_90"]

    def compiled(name: str) -> subprocess.CompletedProcess[str]:
        command = ["nvcc", *flags, "-c", str(HERE / f"{name}.cu"), "-o", str(folder / f"{name}.o")]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with ThreadPoolExecutor(len(SOURCES)) as pool:
        done = list(pool.map(compiled, SOURCES))
    failed = [one for one in done if one.returncode]
    if not failed:
        objects = [str(folder / f"{name}.o") for name in SOURCES]
        link = ["nvcc", *flags, *objects, "-o", str(folder / "overlap"), "-ldl"]
        failed = [one for one in [subprocess.run(link, capture_output=True, text=True, check=False)] if one.returncode]
    return "\n".join(one.stdout + one.stderr for one in failed)


def about(clocks: Clocks, libraries: Path | None) -> Row:
    """Return what was measured, with what."""
    limit = ctypes.c_uint()
    library = clocks.library
    known = library is not None and library.nvmlDeviceGetEnforcedPowerLimit(clocks.device, ctypes.byref(limit)) == 0
    nvcc = (
        subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=False).stdout.strip().splitlines()
    )
    return {
        "gpu": clocks.text("nvmlDeviceGetName", clocks.device),
        "driver": clocks.text("nvmlSystemGetDriverVersion"),
        "power_limit_w": limit.value / 1000 if known else None,
        "nvcc": nvcc[-2] if len(nvcc) > 1 else None,
        "cublas_from_wheel": libraries is not None and "nvidia" in libraries.parts,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def run_section(name: str, seconds: float, folder: Path, rows: Path, libraries: Path) -> Row:
    """Run one section within its seconds; a section that fails or hangs costs its own rows only."""
    command = [str(folder / "overlap"), name, str(rows), f"{seconds:.1f}", str(libraries)]
    search = [str(libraries), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    begin = time.time()
    try:
        environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(search)}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=seconds + GRACE_S, env=environment
        )
        status, said = done.returncode, done.stderr
    except subprocess.TimeoutExpired as error:
        status, said = None, f"stopped after {error.timeout:.0f} s"
    return {"name": name, "status": status, "took_s": round(time.time() - begin, 2), "said": said[-2000:]}


def table(rows: list[Row]) -> str:
    """Return the lines that show at a glance whether the figures make sense."""
    lines = []
    for row in rows:
        shape = f"{row.get('m')}x{row.get('n')}x{row.get('k')}"
        if row["section"] == "beside" and row["pass"] == 0 and row["sms"] in {0, 8, 32} and shape in SHOWN:
            neighbour = f"{row['neighbour']} on {row['sms']} (target {row['sm_target']})"
            rates = f"{row['neighbour_alone_gbs']} -> {row['neighbour_beside_gbs']} GB/s"
            lines.append(f"beside {shape:17} {neighbour:26} product x{row['slowdown']}  {rates}")
        if row["section"] == "tiles" and row["pieces"] in {4, 16} and shape == "8192x8192x4096":
            kind = f"{row['product']} {row['carrier']} {row['sms']} pieces {row['pieces']}"
            lines.append(
                f"tiles {shape:17} {kind:32} speed-up {row['speedup']} hidden {row['hidden']} error {row['relative_error']}"
            )
        if row["section"] == "sections":
            lines.append(f"section {row['name']}: {row['took_s']} s, rows left out {row['rows_left_out']}")
    return "\n".join(lines)


def main() -> int:
    """Measure and write; 0 if every section ended well, 1 if one did not, 2 if nothing could be run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(), help="folder of the results")
    parser.add_argument("--seconds", type=float, default=300, help="compiler and all sections together")
    parser.add_argument("--only", default=",".join(BUDGET_S), help="sections, comma between")
    parser.add_argument("--compile-only", action="store_true", help="stop after the compiler")
    given = parser.parse_args()
    begin = time.time()
    unknown = set(given.only.split(",")) - set(BUDGET_S)
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(BUDGET_S)}")
    if not shutil.which("nvcc"):
        print("nvcc is not on the PATH: install the CUDA toolkit, or add its bin folder", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        failed = build(Path(scratch))
        print(failed or f"compiled in {time.time() - begin:.1f} s", flush=True)
        if failed or given.compile_only:
            return 2 if failed else 0
        libraries = cublas_folder()
        if libraries is None:
            print("no cuBLAS: install the toolkit's, or the wheel nvidia-cublas into this Python", file=sys.stderr)
            return 2
        return measure(given, begin, Path(scratch), libraries)


def measure(given: argparse.Namespace, begin: float, folder: Path, libraries: Path) -> int:
    """Run the sections that were asked for and write the document after each."""
    given.out.mkdir(parents=True, exist_ok=True)
    clocks = Clocks()
    head = about(clocks, libraries)
    kind = next((name for name in ("h100", "h200") if name in str(head["gpu"]).lower()), "gpu")
    raw, target = given.out / "overlap-rows.jsonl", given.out / f"overlap-{kind}.json"
    raw.unlink(missing_ok=True)
    clocks.start()
    sections: list[Row] = []
    for name in [name for name in BUDGET_S if name in given.only.split(",")]:
        seconds = min(BUDGET_S[name], begin + given.seconds - GRACE_S - time.time())
        if seconds <= 1:
            sections.append({"name": name, "status": None, "took_s": 0, "said": "no time was left"})
            continue
        sections.append(run_section(name, seconds, folder, raw, libraries))
        print(f"{name}: status {sections[-1]['status']}, {sections[-1]['took_s']} s {sections[-1]['said']}", flush=True)
        rows = with_clocks(read_rows(raw), list(clocks.samples))
        document = {"about": head, "units": UNITS, "sections": sections, "rows": rows}
        text = json.dumps({**document, "rows": 0}, indent=1)
        lines = ",\n".join(json.dumps(row) for row in rows)
        target.write_text(text.replace('"rows": 0', f'"rows": [\n{lines}\n]'))
    clocks.stopped.set()
    rows = read_rows(raw)
    print(table(rows))
    print(f"{len(rows)} rows in {target.name}, {time.time() - begin:.0f} s")
    raw.unlink(missing_ok=True)
    return 1 if any(section["status"] != 0 for section in sections) else 0


if __name__ == "__main__":
    sys.exit(main())
