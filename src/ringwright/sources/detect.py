"""What kind of recording a file is, told by its first bytes and not by its name."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringwright.sources.source import Source

PEEK_BYTES = 256 << 10
NSYS = b"SQLite format 3\x00"
PLUGIN = b"RWNCCLPROF"  # our profiler plug-in's file
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_PROMETHEUS = re.compile(
    rb"^# (?:HELP|TYPE) \w+|^[a-zA-Z_:][\w:]*\{[^}\n]*\} [-+0-9.eEinfNa]+\s*(?:\d+)?$", re.MULTILINE
)
_BENCH = re.compile(rb"nThread \d+ nGpus|^#\s+size\s+count\s+type|algbw\s+busbw|out-of-place", re.MULTILINE)
_TORCH_BENCH = re.compile(rb"algo throughput: [\d.]+ bps|bandwidth of all_reduce (?:over|with)")
_PICO = re.compile(rb"\s*\{\d+ : [^\s{}]+ - \d+\}|highest\s+\d|[^\n]*\bcollective_type\b[^\n]*,[^\n]*\bmedian\b")
_TAR = slice(257, 262)
_LOG = re.compile(rb"NCCL (?:INFO|WARN|CALL|TRACE)|NCCL version|Watchdog caught collective|ProcessGroupNCCL")


@dataclass(frozen=True)
class Kind:
    """A kind of recording: its name, what it is, and the reader (module and function)."""

    name: str
    what: str
    reader: str


KINDS = {
    kind.name: kind
    for kind in (
        Kind("nccl-log", "NCCL or RCCL debug log", "ringwright.sources.nccl_log.reader:read_log"),
        Kind("kineto", "PyTorch profiler (Kineto) trace", "ringwright.sources.kineto:read_kineto"),
        Kind(
            "flight-recorder", "PyTorch Flight Recorder dump", "ringwright.sources.flight_recorder:read_flight_recorder"
        ),
        Kind("inspector", "NCCL Inspector records", "ringwright.sources.inspector:read_inspector"),
        Kind("prometheus", "Prometheus text of a profiler", "ringwright.sources.prometheus:read_prometheus"),
        Kind("chakra-et", "Chakra execution trace", "ringwright.sources.chakra_et:read_chakra_et"),
        Kind("pytorch-et", "PyTorch execution trace", "ringwright.sources.pytorch_et:read_pytorch_et"),
        Kind("param-comms", "PARAM communication trace", "ringwright.sources.param_comms:read_param_comms"),
        Kind("bench", "benchmark table", "ringwright.sources.bench:read_bench"),
        Kind("perf-table", "table of expected performance", "ringwright.sources.perf_table:read_perf_table"),
        Kind("nsys", "Nsight Systems export", "ringwright.sources.nsys:read_nsys"),
        Kind(
            "nccl-profiler", "file of the NCCL profiler plug-in", "ringwright.sources.nccl_profiler:read_nccl_profiler"
        ),
        Kind("calls", "calls of a recorded job", "ringwright.sources.calls:read_calls"),
        Kind("network", "network counters of a host", "ringwright.sources.network_counters:read_network_counters"),
        Kind("run", "what was recorded, and how the job ended", "ringwright.sources.run_manifest:read_run_manifest"),
    )
}


def detect(source: Source) -> tuple[str, ...]:
    """Return the kind of a source, nothing for what is no recording; a log may hold a benchmark's table as well."""
    head = source.head(PEEK_BYTES)
    kind = kind_of(head, source.name) if head else None
    if kind is None:
        return ()
    is_both = kind == "nccl-log" and (_BENCH.search(head) or _TORCH_BENCH.search(head))
    return (kind, "bench") if is_both else (kind,)


def kind_of(head: bytes, name: str = "", *, is_packed: bool = False) -> str | None:
    """Return the kind of a file that begins with ``head``; the name decides only between what bytes leave open.

    ``is_packed``: the file lies in a tar; archives in archives are not looked into.
    """
    if head.startswith((NSYS, PLUGIN)):
        return "nsys" if head.startswith(NSYS) else "nccl-profiler"
    if _PICKLE.match(head):
        return "flight-recorder"
    if head[:2] == b"\x1f\x8b" and not is_packed:  # .tgz, or compressed twice
        try:
            head = zlib.decompressobj(31).decompress(head, PEEK_BYTES)
        except zlib.error:
            return None
    if head[_TAR] == b"ustar" and not is_packed:
        return _tar(head)
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if _PICO.match(head):
        return "perf-table"
    if text[:1] in (b"{", b"["):
        return _json(text)
    if _chakra(head) or (name.endswith(".et") and b"\x00" in head):
        return "chakra-et"
    return _text(head, name)


def _tar(head: bytes) -> str | None:
    """Return the kind of the first file in a tar that is of one; its content may be cut by the end of ``head``."""
    at = 0
    while at + 512 < len(head):
        name = head[at : at + 100].split(b"\0", 1)[0].decode("utf-8", "replace").rsplit("/", 1)[-1]
        digits = head[at + 124 : at + 136].strip(b" \0")
        if not digits.isdigit():
            return None
        try:
            size = int(digits, 8)
        except ValueError:
            return None
        is_file = head[at + 156 : at + 157] in (b"0", b"\0") and not name.startswith("._")
        kind = kind_of(head[at + 512 : at + 512 + size], name, is_packed=True) if is_file and size else None
        if kind is not None and (kind != "nccl-log" or not name.endswith((".txt", ".csv"))):
            return kind
        at += 512 + -(-size // 512) * 512
    return None


def _json(text: bytes) -> str | None:
    def has(*keys: str) -> bool:
        return all(f'"{key}"'.encode() in text for key in keys)

    if has("ringwright"):
        return _own(text[:4096])
    if has("traceEvents") or has("deviceProperties") or has("distributedInfo") or has("ph", "ts"):
        return "kineto"
    if has("pg_config", "entries") or has("pg_status") or has("collective_seq_id") or has("profiling_name"):
        return "flight-recorder"
    if has("coll_perf") or has("coll_sn") or has("p2p_perf"):
        return "inspector"
    is_chakra = has("workload_graph") or has("NodeType", "ctrlDeps")
    if is_chakra or has("schema", "nodes") or (has("nodes") and b"record_param_comms" in text):
        return "chakra-et" if is_chakra else "pytorch-et"
    if (
        has("comms", "markers")
        or has("comms", "in_msg_size")
        or has("commsTrace")
        or has("comms", "startTime_ns")
        or has("comms", "pg_id")
    ):
        return "param-comms"
    is_superbench = b'"nccl-bw' in text or b'"rccl-bw' in text
    if has("ranks", "size", "time") or has("busbw") or has("busBw") or has("config", "out_of_place") or is_superbench:
        return "bench"
    return "nccl-log" if _LOG.search(text) else None


def _own(text: bytes) -> str | None:
    """What of a recorded job it is."""
    return next((kind for kind in ("calls", "run", "network") if f'"{kind}/'.encode() in text), None)


def _chakra(head: bytes) -> bool:
    """Whether the file begins with a length and a message of that length that starts as GlobalMetadata or Node does."""
    size, at, shift = 0, 0, 0
    while at < min(4, len(head)):
        size |= (head[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not head[at - 1] & 0x80:
            break
    else:
        return False
    starts = (b"\x0a", b"\x12", b"\x08")
    return 1 < size < 1 << 20 and head[at : at + 1] in starts and b"\x00" in head[:4096] and not head[:1].isspace()


def _text(head: bytes, name: str) -> str | None:
    if _LOG.search(head):
        return "nccl-log"
    if _BENCH.search(head) or _TORCH_BENCH.search(head):
        return "bench"
    if _PROMETHEUS.search(head):
        return "prometheus"
    first = head.split(b"\n", 1)[0].lower()
    if first.count(b",") >= 3 and (b"latency" in first or b"message_size" in first or b"mean" in first):
        return "perf-table"
    if first.count(b",") >= 2 and b"bytes" in first and b"time" in first:
        return "bench"
    if name.endswith((".xml", ".html", ".py", ".md", ".toml", ".csv", ".yml", ".yaml")) or b"\x00" in head:
        return None
    return "nccl-log"
