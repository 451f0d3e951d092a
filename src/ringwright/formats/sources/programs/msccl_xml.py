"""MSCCL XML: programs of MSCCL, RCCL, GC3, TACCL and TE-CCL, read with every rule that a runtime relies on.

Source: microsoft/msccl, Azure/msccl-scheduler, microsoft/msccl-tools (the writer). Files come from elsewhere: a document
type is refused (no entities), size and depth are bounded, and every rule that fails is told with its line.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.formats.settings.msccl_rules import (
    StepDependencies,
    check_gpu,
    check_step,
    check_threadblock,
    number,
)
from ringwright.formats.sources.elements import Element, read_elements
from ringwright.formats.sources.findings import MOST_RANKS, MOST_SLOTS, MOST_TOUCHED, FileFindings
from ringwright.ground.errors import ProgramError, UsageError
from ringwright.model.threadblocks import Blocks, Code, Opcode, Schedule, arrange, declared
from ringwright.model.threadblocks.buffers import OPS, OTHERS
from ringwright.model.threadblocks.msccl import DEPTH, DIALECT, LARGEST

if TYPE_CHECKING:
    from ringwright.model.program import Program


def read_msccl_xml(
    path: str | Path, *, size_bytes: int | None = None, in_place: bool | None = None, dtype: str = "float32"
) -> Program:
    """Return the program of a file; raise ProgramError naming the first broken rule and its line.

    ``size_bytes`` is the size of the call (of the longer buffer), a multiple of the file's chunks; without it the smallest
    one that the file's size window admits. ``in_place`` chooses for files that offer both (without it: out of place).
    What only shows when the program runs (matching, deadlock, results, races) is left to ``validity``.
    """
    findings = FileFindings(path)
    program = parse_msccl_xml(path, findings, size_bytes=size_bytes, in_place=in_place, dtype=dtype)
    if program is None:
        raise findings.error()
    return program


def parse_msccl_xml(
    path: str | Path,
    findings: FileFindings,
    *,
    size_bytes: int | None = None,
    in_place: bool | None = None,
    dtype: str = "float32",
) -> Program | None:
    """Return the program, or None with all that is wrong in ``findings``."""
    root = read_elements(path, findings, tags=("algo", "gpu", "tb", "step"))
    if root is None:
        return None
    if root.tag != "algo":
        findings.add("xml", f"the root is <{root.tag}>, not <algo>", root.line)
        return None
    reader = _Reader(root, findings)
    reader.read()
    if findings.errors:
        return None
    return reader.program(Path(path).stem, size_bytes, in_place, dtype)


class _Reader:
    """One file: attributes first, then thread blocks and steps as rows."""

    def __init__(self, root: Element, findings: FileFindings) -> None:
        self.root, self.findings = root, findings
        self.p = number(root, "ngpus", findings, least=1)
        self.loop = number(root, "nchunksperloop", findings, least=1)
        self.channels = number(root, "nchannels", findings, least=1)
        self.coll = root.attributes.get("coll", "")
        self.proto = root.attributes.get("proto", "")
        self.sizes: list[list[int]] = []
        self.blocks: list[tuple[int, int, int, int, int]] = []
        self.rows: list[list[int]] = []
        self.others: list[tuple[int, str, tuple[tuple[str, str], ...]]] = []

    def read(self) -> None:
        """Check all rules that one rank's part of the file can break."""
        self._algo()
        if self.findings.errors:
            return
        gpus: dict[int, Element] = {}
        for gpu in self.root.children:
            if gpu.tag != "gpu":
                self.findings.add("xml", f"<{gpu.tag}> in <algo>", gpu.line)
                continue
            rank = number(gpu, "id", self.findings)
            if rank in gpus or not 0 <= rank < self.p:
                what = "twice" if rank in gpus else f"with ngpus={self.p}"
                self.findings.add("gpus", f"gpu {rank} {what}", gpu.line, rank=rank)
            gpus.setdefault(rank, gpu)
        missing = next((rank for rank in range(min(self.p, len(gpus) + 1)) if rank not in gpus), None)
        if missing is not None:
            self.findings.add("gpus", f"no gpu has the id {missing}", self.root.line, rank=missing)
        if self.findings.errors:
            return
        for rank in range(self.p):
            self._gpu(rank, gpus[rank])

    # branches: a test for each attribute that a program may get wrong
    def _algo(self) -> None:
        attributes, line = self.root.attributes, self.root.line
        if self.proto not in DEPTH:
            self.findings.add("attribute", f"proto is '{self.proto}', not one of {', '.join(DEPTH)}", line)
        if self.coll not in OPS and self.coll not in OTHERS:
            known = ", ".join([*OPS, *OTHERS])
            self.findings.add("attribute", f"coll is '{self.coll}', not one of {known}", line)
        for name in ("inplace", "outofplace"):
            if name in attributes and attributes[name] not in ("0", "1"):
                self.findings.add("attribute", f"{name} is '{attributes[name]}', not 0 or 1", line)
        if attributes.get("inplace", "0") == "0" and attributes.get("outofplace", "1") == "0":
            self.findings.add("attribute", "neither in place nor out of place", line)
        low = number(self.root, "minBytes", self.findings, default=0, least=0)
        high = number(self.root, "maxBytes", self.findings, default=LARGEST, least=0)
        if high and low > high:
            self.findings.add("window", f"minBytes {low} is above maxBytes {high}", line)
        threads = number(self.root, "nthreads", self.findings, default=32, least=32)
        if threads % 32:
            self.findings.add("attribute", f"nthreads is {threads}, not a multiple of 32", line)
        if self.p > MOST_RANKS:
            self.findings.add("limits", f"ngpus is {self.p}, more than {MOST_RANKS}", line)
        if self.coll in OTHERS:
            self.findings.add("result", f"coll '{self.coll}': its result is not checked", line, severity="warning")
        if OPS.get(self.coll) in ("all-gather", "reduce-scatter", "all-to-all") and self.loop % max(self.p, 1):
            text = f"nchunksperloop {self.loop} is not a multiple of ngpus {self.p}"
            self.findings.add("chunks", text, line)

    def _gpu(self, rank: int, gpu: Element) -> None:
        for other in [child for child in gpu.children if child.tag != "tb"]:
            text = f"<{other.tag[:40]}> in <gpu> means nothing to a runtime"
            self.findings.add("xml", text, other.line, rank=rank, severity="warning")
            self.others.append((rank, other.tag, tuple(other.attributes.items())))
        gpu.children = [child for child in gpu.children if child.tag == "tb"]
        sizes = check_gpu(gpu, rank, self.coll, self.p, self.loop, self.findings)
        self.sizes.append(sizes)
        dependencies = StepDependencies(rank, self.findings)
        threadblocks = check_threadblock(gpu, rank, self.p, self.channels, self.findings)
        for threadblock, (element, send, recv, channel) in threadblocks.items():
            self.blocks.append((rank, threadblock, send, recv, channel))
            dependencies.lengths[threadblock] = len(element.children)
            dependencies.first[threadblock] = len(self.rows)
            for step_number, step in enumerate(element.children):
                if step.tag != "step":
                    self.findings.add("xml", f"<{step.tag[:40]}> in <tb>", step.line, rank=rank, step=step_number)
                    continue
                row, wanted = check_step(step, rank, threadblock, step_number, (send, recv), sizes, self.findings)
                if wanted is not None:
                    dependencies.wanted.append((len(self.rows), threadblock, step_number, *wanted, step.line))
                self.rows.append([len(self.blocks) - 1, step_number, *row])
        dependencies.resolve(self.rows)

    # ------------------------------------------------------------------------------------------------- the program
    def program(self, stem: str, size_bytes: int | None, in_place: bool | None, dtype: str) -> Program | None:
        """Return the program of the rows."""
        import numpy as np

        attributes = self.root.attributes
        if in_place is None:
            in_place = attributes.get("outofplace", "0" if attributes.get("inplace") == "1" else "1") == "0"
        op = OPS.get(self.coll, "")
        sizes = np.array(self.sizes, np.int64)
        whole = self.loop if op else self.p * max(int(sizes[:, :2].max()), 1)
        if (int(sizes.sum(axis=1).max()) + 2 * self.loop) * self.p > MOST_SLOTS:
            self.findings.add("limits", f"more than {MOST_SLOTS:,} chunks in all buffers", self.root.line)
        if sum(row[7] for row in self.rows if row[2] != Opcode.NOP) > MOST_TOUCHED:
            self.findings.add("limits", f"more than {MOST_TOUCHED:,} chunks moved in all", self.root.line)
        if self.findings.errors:
            return None
        size = call_size(whole, size_bytes, int(attributes.get("minBytes", "0")) if op else 0)
        placed = arrange(op, sizes, self.loop, in_place=in_place, size_bytes=size, dtype=dtype)
        blocks, code = Blocks.of(self.blocks), Code.of(self.rows)
        kept = {**attributes, "other elements": tuple(self.others)} if self.others else dict(attributes)
        schedule = Schedule(blocks, code, placed.bases, sizes, DEPTH[self.proto], dialect=DIALECT, attributes=kept)
        knobs = {"coll": self.coll, "in_place": in_place}
        return declared(attributes.get("name", stem) or stem, placed, schedule, protocol=self.proto, knobs=knobs)


def call_size(chunks: int, wanted: int | None, least: int, unit: int = 4) -> int:
    """Return the bytes of the call: as wanted, or the fewest from ``least`` on; raise UsageError where chunks do not fit."""
    if wanted is None:
        each = max(-(-least // chunks), unit)
        return chunks * (-(-each // unit) * unit)
    if wanted < 0 or wanted % chunks:
        remedy = f"for example {-(-max(wanted, 1) // chunks) * chunks}"
        raise UsageError(f"{wanted} B cannot be cut into {chunks} equal chunks", remedy=remedy)
    return wanted


def check_windows(paths: list[str | Path]) -> list[str]:
    """Return the pairs of files that claim the same sizes of the same collective, in words (both readings of maxBytes)."""
    windows: list[tuple[str, Mapping[str, str]]] = []
    claims: list[str] = []
    for path in paths:
        root = read_elements(path, FileFindings(path), tags=("algo", "gpu", "tb", "step"))
        if root is None or root.tag != "algo":
            raise ProgramError("is not an MSCCL program", where=str(path))
        for other, theirs in windows:
            if _overlap(root.attributes, theirs):
                claims.append(f"{Path(path).name} and {other} both claim sizes of {root.attributes.get('coll')}")
        windows.append((Path(path).name, root.attributes))
    return claims


def _overlap(ours: Mapping[str, str], theirs: Mapping[str, str]) -> bool:
    if any(ours.get(key) != theirs.get(key) for key in ("coll", "ngpus")):
        return False
    if not any(ours.get(key, "1") == theirs.get(key, "1") == "1" for key in ("inplace", "outofplace")):
        return False
    spans = []
    for each in (ours, theirs):
        low, high = int(each.get("minBytes", "0")), int(each.get("maxBytes", str(LARGEST)))
        spans.append((low, high or 1 << 62))
    return max(spans[0][0], spans[1][0]) < min(spans[0][1], spans[1][1])


__all__ = ["call_size", "check_windows", "parse_msccl_xml", "read_msccl_xml"]
