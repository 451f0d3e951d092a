"""The native scanner and joiner and their Python twin: what they mean, and that they agree to the bit."""

from __future__ import annotations

import importlib
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringwright.native import twin, twin_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

try:
    native: Any = importlib.import_module("ringwright.native._scan")
except ImportError:
    native = None

IMPLEMENTATIONS = [twin] + ([native] if native else [])
NEEDLES = [b"nranks=", b"opCount", b"x", b"RANK_", b"stream 0x"]
PREFIX = b"host-1:314:315 [2]"
CLEAN = (
    PREFIX + b" NCCL INFO AllReduce: opCount 1a sendbuff 0x7f00 recvbuff 0x7f00 count 25 datatype 7 op 0 root 3"
    b" comm 0x55aa [nranks=8] stream 0xfe"
)


@pytest.fixture(params=IMPLEMENTATIONS, ids=lambda module: module.__name__.rsplit(".", 1)[-1])
def made(request: pytest.FixtureRequest) -> Any:
    """Either implementation, as a module with ``Scanner`` and ``Joiner``."""
    return request.param


def plain(value: Any) -> Any:
    """Turn results into plain values that compare, keeping dtypes and bits (NaN included)."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return value.dtype.name, value.shape, value.tobytes()
    return value


def scan(made: Any, data: bytes, first_line: int = 1) -> tuple[Any, dict[str, Any]]:
    scanner = made.Scanner(NEEDLES)
    result = scanner.scan(data, first_line)
    rows = len(result["line"])
    assert all(len(result[name]) == rows for name, _ in twin._COLUMNS)
    assert result["lines"] == rows + len(result["careful"]) + result["blank"] + result["other"]
    return scanner, result


def rows_of(made: Any, data: bytes) -> int:
    return len(scan(made, data)[1]["line"])


def test_a_clean_line_becomes_a_row(made: Any) -> None:
    scanner, result = scan(made, b"\n" + CLEAN + b"\n", first_line=100)
    row = {name: result[name].tolist()[0] for name, _ in twin._COLUMNS}
    assert math.isnan(row.pop("time_s"))
    assert row == {
        "handle": 0,
        "op": 0,
        "op_count": 26,
        "count": 25,
        "datatype": 7,
        "redop": 0,
        "root": 3,
        "global_rank": -1,
        "launch_rank": -1,
        "line": 101,
        "stream": 254,
        "inplace": 1,
    }
    assert (result["lines"], result["blank"], result["other"]) == (2, 1, 0)
    assert scanner.handles() == [("host-1:314:315 [2]", 0x55AA, 8)]
    assert scanner.ops() == ["AllReduce"]
    assert {name: result[name].dtype for name, _ in twin._COLUMNS} == {name: np.dtype(of) for name, of in twin._COLUMNS}


@pytest.mark.parametrize(
    ("stamp", "time_s"),
    [
        (b"[1970-01-01 00:00:01] ", 1.0),
        (b"[2000-02-29 23:59:59.5] ", 951868799.5),
        (b"[2025-06-30 12:00:00.123456789] ", 1751284800.1234567),
        (b"[0001-01-01 00:00:00] ", -62135596800.0),
        (b"[9999-12-31 23:59:59] ", 253402300799.0),
    ],
)
def test_time_stamps(made: Any, stamp: bytes, time_s: float) -> None:
    assert scan(made, stamp + CLEAN)[1]["time_s"].tolist() == [time_s]


@pytest.mark.parametrize(
    "stamp",
    [
        b"[2025-02-29 00:00:00] ",
        b"[2025-13-01 00:00:00] ",
        b"[2025-01-01 24:00:00] ",
        b"[2025-01-01 00:00:60] ",
        b"[2025-01-01 00:00:00.] ",
        b"[2025-01-01 00:00:00.1234567890] ",
        b"[2025-01-01 00:00:00]",
        b"[0000-01-01 00:00:00] ",
        b"[2025-00-01 00:00:00] ",
        b"[2025-01-00 00:00:00] ",
        b"[2025-1-01 00:00:00] ",
        b"[",
        b" ",
    ],
)
def test_a_strange_time_stamp_asks_for_care(made: Any, stamp: bytes) -> None:
    assert scan(made, stamp + CLEAN)[1]["careful"].tolist() == [[1, 0, len(stamp + CLEAN)]]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"0xfe", b"0xfe \r"),
        (b"0xfe", b"0"),
        (b"0xfe", b"(nil)"),
        (b"0xfe", b"0xfe task 3 globalrank 17"),
        (b" count", b" acc (nil) count"),
        (b" count", b" acc 0x7f78 count"),
        (b"count 25", b"count 18446744073709551615"),
        (b"1a", b"ffffffffffffffff"),
        (b"datatype 7", b"datatype 32767"),
        (b"root 3", b"root 2147483647"),
        (b"0x55aa", b"0xFFFFFFFFFFFFFFFF"),
        (b"host-1", b"h" * 255),
        (b"AllReduce", b"A" * 32),
    ],
)
def test_still_clean(made: Any, old: bytes, new: bytes) -> None:
    assert rows_of(made, CLEAN.replace(old, new)) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"count 25", b"count 18446744073709551616"),
        (b"count 25", b"count 99999999999999999999"),
        (b"count 25", b"count 000000000000000000025"),
        (b"count 25", b"count -1"),
        (b"count 25", b"count "),
        (b"1a", b"10000000000000000"),
        (b"1a", b"0x1a"),
        (b"1a", b"1g"),
        (b"datatype 7", b"datatype 32768"),
        (b"datatype 7", b"datatype 000007"),
        (b"op 0", b"op 40000"),
        (b"root 3", b"root 2147483648"),
        (b"root 3", b"root -1"),
        (b"0x55aa", b"0x10000000000000000"),
        (b"0x55aa", b"0x"),
        (b"0x55aa", b"55aa"),
        (b"0xfe", b"(nil"),
        (b"0xfe", b"0xfe\t"),
        (b"0xfe", b"0xfe task 3"),
        (b"0xfe", b"0xfe task 3 globalrank"),
        (b"0xfe", b"0xfe globalrank 3"),
        (b"host-1", b"ho st"),
        (b"host-1", b"h" * 256),
        (b"host-1", b""),
        (b"host-1", b"(x) h"),
        (b"AllReduce", b"A" * 33),
        (b"AllReduce", b"All2"),
        (b"[2]", b"[-1]"),
        (b":314:", b":2147483648:"),
        (b"INFO", b"WARN"),
        (b"0xfe", b"0xfe NCCL "),
        (b"host", b"ho\0st"),
        (b"host", b"ho\xffst"),
        (b"  ", b" "),
        (b" [nranks=8]", b""),
        (b" comm", b"  comm"),
        (b" count", b" acc count"),
        (b" count", b" acc 12 count"),
        (b" count", b" acc (nil) acc (nil) count"),
    ],
)
def test_a_deviation_asks_for_care(made: Any, old: bytes, new: bytes) -> None:
    line = CLEAN.replace(old, new) if old in CLEAN else CLEAN + b" ?"
    assert scan(made, line)[1]["careful"].tolist() == [[1, 0, len(line)]]


def test_every_cut_of_a_line_is_careful_or_counted(made: Any) -> None:
    shorter_stream = {len(CLEAN) - 1, len(CLEAN) - 3}  # 0xf and 0: what is lost there cannot be seen
    shorter_host = range(len(b"host-1"))
    for cut in range(len(CLEAN)):
        assert rows_of(made, CLEAN[:cut]) == int(cut in shorter_stream)
        assert rows_of(made, CLEAN[cut:]) == int(cut in shorter_host)


def test_careful_spans_point_into_the_chunk(made: Any) -> None:
    data = b"noise\n count 1 [nranks=8] z\r\n" + CLEAN + b"\r\n \r\nNCCL\nNCC"
    _, result = scan(made, data, first_line=10)
    assert [data[at : at + size] for _, at, size in result["careful"].tolist()] == [b" count 1 [nranks=8] z\r", b"NCCL"]
    assert result["careful"][:, 0].tolist() == [11, 14]
    assert (result["lines"], result["blank"], result["other"]) == (6, 1, 2)


def test_a_very_long_line_is_careful_whatever_it_holds(made: Any) -> None:
    longest = CLEAN + b" " * (twin_lines.LONGEST_LINE_BYTES - len(CLEAN))
    data = b"\n".join([longest, longest + b" ", b" " * 65537, b"-" * 65537, b"-" * 65536])
    _, result = scan(made, data)
    assert result["line"].tolist() == [1]
    assert result["careful"][:, 0].tolist() == [2, 3, 4]
    assert result["other"] == 1


def test_empty_data(made: Any) -> None:
    _, result = scan(made, b"")
    assert (result["lines"], result["careful"].shape, result["handle"].dtype) == (0, (0, 3), np.int32)


def test_names_stay_known_across_chunks_and_their_number_is_bounded(made: Any) -> None:
    scanner = made.Scanner([])
    names = [b"A" + bytes([97 + i // 26, 97 + i % 26]) for i in range(257)]
    chunk = b"\n".join(CLEAN.replace(b"AllReduce", name) for name in names)
    first, second = scanner.scan(chunk, 1), scanner.scan(chunk, 258)
    assert first["op"].tolist() == second["op"].tolist() == list(range(256))
    assert first["careful"][:, 0].tolist() == [257]
    assert scanner.handles() == [("host-1:314:315 [2]", 0x55AA, 8)]


def test_another_thread_communicator_or_size_is_another_handle(made: Any) -> None:
    changes = [(b":315", b":316"), (b"0x55aa", b"0x55ab"), (b"=8", b"=9"), (b"[2]", b"[3]"), (b"", b"")]
    scanner, result = scan(made, b"\n".join(CLEAN.replace(old, new, 1) for old, new in changes))
    assert result["handle"].tolist() == [0, 1, 2, 3, 4]
    assert len(scanner.handles()) == 5


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_any_bytes_like_object_is_read(made: Any, wrap: Callable[[bytes], Any]) -> None:
    assert made.Scanner([]).scan(wrap(CLEAN), 1)["line"].tolist() == [1]


@pytest.mark.parametrize("needle", [b"", b"a\nb"])
def test_an_impossible_needle_is_refused(made: Any, needle: bytes) -> None:
    with pytest.raises(ValueError, match="needle"):
        made.Scanner([needle])


def test_threads_may_share_a_scanner(made: Any) -> None:
    chunks = [b"\n".join(CLEAN.replace(b"-1", b"-%d" % ((at + i) % 97)) for i in range(500)) for at in range(8)]
    scanner = made.Scanner([])
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda chunk: scanner.scan(chunk, 0), chunks))
    names = [handle[0] for handle in scanner.handles()]
    for at, result in enumerate(results):
        assert [names[handle] for handle in result["handle"]] == [
            f"host-{(at + i) % 97}:314:315 [2]" for i in range(500)
        ]


@pytest.mark.parametrize(("value", "native_wanted"), [("", True), ("1", False)])
def test_an_environment_variable_chooses_the_twin(value: str, native_wanted: bool) -> None:
    code = "import ringwright.native as n; print(n.NATIVE, n.Scanner.__module__, n.Joiner.__module__)"
    environment = {**os.environ, "RINGWRIGHT_PURE_PYTHON": value, "PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    serves = native_wanted and native is not None
    home = "ringwright.native._scan" if serves else "ringwright.native.twin"
    assert answer.stdout.split() == [str(serves), home, home]


def records(rows: Sequence[tuple[int, ...]]) -> list[Any]:
    """Columns for ``Joiner.add`` from rows (group, member, op, op_count, count, datatype, redop, root)."""
    dtypes = (np.int32, np.int32, np.int32, np.uint64, np.uint64, np.int16, np.int16, np.int32)
    columns = list(zip(*rows, strict=True)) or [()] * 8
    return [np.array(column, dtype=dtype) for column, dtype in zip(columns, dtypes, strict=True)]


def members_of(tables: Any, entry: int) -> set[int]:
    offsets = tables["member_bits"]["offsets"]
    words = tables["member_bits"]["words"][offsets[entry] : offsets[entry + 1]]
    return {64 * at + bit for at, word in enumerate(words.tolist()) for bit in range(64) if word >> bit & 1}


def test_members_meet_in_one_entry_and_repeats_open_new_ones(made: Any) -> None:
    joiner = made.Joiner()
    rows = [(0, member, 1, 5, 100, 7, 0, 0) for member in (0, 70, 0, 70, 0, 1)]
    assert joiner.add(*records(rows)).tolist() == [0, 0, 1, 1, 2, 0]
    tables = joiner.export()
    assert [members_of(tables, entry) for entry in range(3)] == [{0, 1, 70}, {0, 70}, {0}]
    assert tables["entries"]["members_seen"].tolist() == [3, 2, 1]
    assert tables["entries"]["occurrence"].tolist() == [0, 1, 2]
    assert tables["member_bits"]["offsets"].tolist() == [0, 2, 4, 5]
    assert tables["totals"]["records"].tolist() == [3, 2, 1]


def test_totals_keep_the_first_and_last_op_count(made: Any) -> None:
    joiner = made.Joiner()
    for op_count in (9, 2**64 - 1, 4):
        joiner.add(*records([(3, 1, 0, op_count, 2**64 - 1, 0, 0, 0)]))
    totals = joiner.export()["totals"]
    assert (totals["first_op_count"].tolist(), totals["last_op_count"].tolist()) == ([9], [4])


def test_a_constant_op_count_is_counted_by_occurrence(made: Any) -> None:
    joiner = made.Joiner()
    ids = [joiner.add(*records([(0, member, 0, 0, 1, 7, 0, 0)] * 5000)).tolist() for member in range(3)]
    assert ids == [list(range(5000))] * 3


def test_a_wide_group_keeps_its_bits_as_it_widens(made: Any) -> None:
    joiner = made.Joiner()
    order = [5, 63, 64, 4095, 128, 1000, 1 << 19]
    for member in order:
        joiner.add(*records([(0, member, 0, op_count, 1, 7, 0, 0) for op_count in range(20)]))
    tables = joiner.export()
    assert all(members_of(tables, entry) == set(order) for entry in range(20))


def test_the_joiner_refuses_what_it_cannot_hold(made: Any) -> None:
    good = records([(0, 0, 0, 0, 1, 7, 0, 0)])
    joiner = made.Joiner()
    for at, column in [(1, np.array([-1], np.int32)), (1, np.array([1 << 20], np.int32)), (0, np.zeros(2, np.int32))]:
        with pytest.raises(ValueError, match=r"member is not|different lengths"):
            joiner.add(*good[:at], column, *good[at + 1 :])
    for at, column in [(0, np.zeros(1, np.int64)), (2, np.zeros(1, np.float64)), (3, np.zeros((1, 1), np.uint64))]:
        with pytest.raises(TypeError):
            joiner.add(*good[:at], column, *good[at + 1 :])
    assert len(joiner.export()["entries"]["signature"]) == 0


def test_the_joiner_takes_views_and_byte_ops(made: Any) -> None:
    columns = records([(0, member % 2, 1, member // 2, 1, 7, 0, 0) for member in range(8)])
    columns[2] = columns[2].astype(np.uint8)
    views = [column[::-1] for column in columns]
    views[0].flags.writeable = False
    assert made.Joiner().add(*views).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


LAUNCHED = [
    (b"[1,12]<stdout>:", 12, None),
    (b"[1,12]: ", 12, None),
    (b"12: ", 12, None),
    (b"[rank3]:", 3, None),
    (b"[3] [rank3]:", 3, None),
    (b"[default3]:[rank3]: ", 3, None),
    (b"(RayTrainWorker pid=615, ip=10.0.0.1) ", -1, None),
    (b"worker-0 | ", -1, None),
    (b"\x1b[36m", -1, None),
    (b"2025-06-30T12:00:00.123456789Z stdout F ", -1, 1751284800.123456),
    (b"2025-06-30 14:00:00,5+0200: ", -1, 1751284800.5),
    (b"2025-06-30T12:00:00 [1,4]<stderr>:", 4, 1751284800.0),
]


@pytest.mark.parametrize(("prefix", "rank", "time_s"), LAUNCHED)
def test_launcher_prefixes_are_peeled(made: Any, prefix: bytes, rank: int, time_s: float | None) -> None:
    from ringwright.formats.sources.launchers import peel

    _, result = scan(made, prefix + CLEAN)
    assert result["launch_rank"].tolist() == [rank]
    assert [None if math.isnan(each) else each for each in result["time_s"].tolist()] == [time_s]
    patient = peel((prefix + CLEAN).decode())
    assert (patient.rank, patient.stamp_s, patient.text) == (rank if rank >= 0 else None, time_s, CLEAN.decode())


OTHER = CLEAN.replace(b"host-1:314:315", b"host-2:7:7")


@pytest.mark.parametrize("between", [b"", OTHER + b"\n", b"words\n\n" + OTHER + b"\n"])
def test_cut_lines_are_put_together(made: Any, between: bytes) -> None:
    for cut in range(1, len(CLEAN) - 3):
        scanner, result = scan(made, b"\n".join([CLEAN, OTHER, CLEAN[:cut] + OTHER, between + CLEAN[cut:]]) + b"\n")
        if cut <= len(b"host-1"):  # a host of that name may exist
            continue
        assert result["repaired"][:, 0].tolist() == [3, 4 + between.count(b"\n")]
        assert sorted(result["handle"].tolist()) == [0, 0] + [1] * (2 + between.count(b"INFO"))
        assert len(scanner.handles()) == 2


@pytest.mark.parametrize(
    "lines",
    [
        [CLEAN, CLEAN[:90] + OTHER, CLEAN[90:]],  # the other is not known yet
        [OTHER, CLEAN[:90] + OTHER, CLEAN[90:]],  # the cut one is not
        [CLEAN, OTHER, CLEAN[:90] + OTHER, b"x NCCL", CLEAN[90:]],  # another doubtful line comes first
        [CLEAN, OTHER, CLEAN[:90] + OTHER, *[CLEAN] * 6, CLEAN[90:]],  # too far
        [CLEAN, OTHER, CLEAN[:-1] + OTHER, CLEAN[-1:]],  # whole without its end
    ],
)
def test_doubtful_cuts_ask_for_care(made: Any, lines: list[bytes]) -> None:
    _, result = scan(made, b"\n".join(lines))
    assert len(result["repaired"]) == 0
    assert len(result["careful"]) >= 1


# --- both implementations against each other ---

_DAMAGE = [b"", b" ", b"\r", b"\n", b"\0", b"\xff", b"NCCL ", b"0", b"9", b"x", b"[", b":", b"(nil)", b"-1", b"nranks="]
_COUNTS = st.one_of(st.integers(0, 3), st.sampled_from([2**63, 2**64 - 1, 2**64, 10**20 - 1, 10**21]))
_ADDRESSES = st.sampled_from(
    [b"0", b"(nil)", b"0x0", b"0x7f00", b"0xABC", b"0xffffffffffffffff", b"0x11112222333344445"]
)
_STAMPS = st.sampled_from(
    [b"", b"", b"[2025-02-28 01:02:03] ", b"[2024-02-29 01:02:03.25] ", b"[2023-02-29 01:02:03] "]
)


_ACC = st.sampled_from([b"", b"", b" acc (nil)", b" acc 0x7f", b" acc"])


@st.composite
def coll_lines(draw: st.DrawFn) -> bytes:
    """A COLL line with hostile numbers, then cut, spliced and damaged."""
    addresses = [draw(_ADDRESSES) for _ in range(4)]
    numbers = [b"%d" % draw(_COUNTS) for _ in range(4)]
    host = draw(st.sampled_from([b"a", b"node-1.x_y", b"no de", b""]))
    line = draw(_STAMPS) + host + b":%d:22 [%d] NCCL INFO " % (draw(st.integers(0, 2)), draw(st.integers(0, 2)))
    line += draw(st.sampled_from([b"AllReduce", b"Send", b"Recv"])) + b": opCount %x" % draw(_COUNTS)
    line += (
        b" sendbuff "
        + addresses[0]
        + b" recvbuff "
        + addresses[1]
        + draw(_ACC)
        + b" count "
        + numbers[0]
        + b" datatype "
    )
    line += numbers[1] + b" op 0 root " + numbers[2] + b" comm " + addresses[2] + b" [nranks=4] stream " + addresses[3]
    line += draw(st.sampled_from([b"", b"", b" task 1 globalrank " + numbers[3], b" \r", b"\t"]))
    if draw(st.integers(0, 3)) == 0:
        cut, resume = sorted(draw(st.tuples(st.integers(0, len(line)), st.integers(0, len(line)))))
        line = line[:cut] + draw(st.sampled_from(_DAMAGE)) + line[resume:]
    return line


@st.composite
def cut_lines(draw: st.DrawFn) -> bytes:
    """A launcher's prefix, or a line cut by another whose rest comes soon."""
    if draw(st.booleans()):
        return draw(st.sampled_from([prefix for prefix, _, _ in LAUNCHED])) + draw(
            st.sampled_from([CLEAN, b"x", OTHER])
        )
    cut = draw(st.integers(0, len(CLEAN)))
    stamp = draw(_STAMPS)
    between = draw(st.sampled_from([b"", b"", OTHER + b"\n", b"words\n", b"NCCL\n"]))
    return b"\n".join([CLEAN, OTHER, CLEAN[:cut] + stamp + OTHER, between + CLEAN[cut:]])


_LINES = st.lists(
    st.one_of(
        coll_lines(), cut_lines(), st.binary(max_size=30), st.sampled_from([CLEAN, b"", b"  \r", b"NCC", b"RANK_"])
    )
)
_NEEDLES = st.lists(st.binary(min_size=1, max_size=6).filter(lambda needle: b"\n" not in needle), max_size=12)


@pytest.mark.skipif(native is None, reason="the native module is not built")
@given(chunks=st.lists(_LINES, max_size=4), needles=_NEEDLES, first_line=st.integers(0, 2**40), newline=st.booleans())
def test_scanners_agree(chunks: list[list[bytes]], needles: list[bytes], first_line: int, newline: bool) -> None:
    scanners = [module.Scanner([*needles, b"nranks="]) for module in IMPLEMENTATIONS]
    for lines in chunks:
        data = b"\n".join(lines) + b"\n" * newline
        results = [plain(scanner.scan(data, first_line)) for scanner in scanners]
        assert results[0] == results[1]
    assert scanners[0].handles() == scanners[1].handles()
    assert scanners[0].ops() == scanners[1].ops()


@pytest.mark.skipif(native is None, reason="the native module is not built")
@given(text=st.binary(max_size=200), needles=_NEEDLES, at=st.integers(0, 200))
def test_needles_agree(text: bytes, needles: list[bytes], at: int) -> None:
    data = text[:at] + b"".join(needles[:1]) + text[at:]
    results = [plain(module.Scanner(needles).scan(data, 0)) for module in IMPLEMENTATIONS]
    assert results[0] == results[1]


_BIG = st.sampled_from([0, 1, 2, 2**64 - 1])
_RECORD = st.tuples(
    st.integers(0, 2),
    st.sampled_from([0, 1, 2, 63, 64, 200, 1000]),
    st.integers(0, 2),
    _BIG,
    _BIG,
    st.sampled_from([0, 7, -1]),
    st.sampled_from([0, 4]),
    st.sampled_from([0, 2**31 - 1]),
)


@pytest.mark.skipif(native is None, reason="the native module is not built")
@given(batches=st.lists(st.lists(_RECORD, max_size=100), max_size=4))
def test_joiners_agree(batches: list[list[tuple[int, ...]]]) -> None:
    joiners = [module.Joiner() for module in IMPLEMENTATIONS]
    for batch in batches:
        ids = [plain(joiner.add(*records(batch))) for joiner in joiners]
        assert ids[0] == ids[1]
    assert plain(joiners[0].export()) == plain(joiners[1].export())


@given(order=st.permutations([(member, op_count) for member in range(3) for op_count in (0, 0, 1)]))
def test_the_order_of_arrival_does_not_matter(order: list[tuple[int, int]]) -> None:
    for module in IMPLEMENTATIONS:
        joiner = module.Joiner()
        joiner.add(*records([(0, member, 0, op_count, 1, 7, 0, 0) for member, op_count in order]))
        entries = joiner.export()["entries"]
        keys = zip(entries["op_count"].tolist(), entries["occurrence"].tolist(), strict=True)
        assert dict(zip(keys, entries["members_seen"].tolist(), strict=True)) == {(0, 0): 3, (0, 1): 3, (1, 0): 3}
