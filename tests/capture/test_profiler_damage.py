"""Recordings of the NCCL profiler plug-in with numbers that cannot be, behind check sums that are right."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import profiler_recording

from ringwright.analysis.summary import summarise
from ringwright.formats.sources import read
from ringwright.formats.sources.nccl_profiler import records
from ringwright.ground.errors import InputError

pytestmark = pytest.mark.once
HEAD_BYTES = records.HEADER_BYTES + 64  # of the file and of its first block


def resealed(data: bytes, kind: int, field: str, value: int) -> bytes:
    """Return the recording with a field of the first record of a kind overwritten, and the block's sums made right."""
    out = bytearray(data)
    at = HEAD_BYTES
    while out[at] != kind:
        at += 8 * out[at + 1]
    layout = records.LAYOUTS[kind]
    size = int.from_bytes(out[records.HEADER_BYTES + 4 : records.HEADER_BYTES + 8], "little")
    row = np.frombuffer(out, layout, 1, at)
    row[field][0] = np.array(value).astype(layout[field].base)
    payload = bytes(out[HEAD_BYTES : HEAD_BYTES + size])
    rest = profiler_recording._BLOCK.unpack_from(out, records.HEADER_BYTES)[3:-1]
    out[records.HEADER_BYTES : HEAD_BYTES] = profiler_recording._sealed_head(payload, rest)
    return bytes(out)


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (records.COLL, "count", 2**63),
        (records.COLL, "seq", -1),
        (records.COLL, "ns", 2**62),
        (records.KERNEL, "gpu_ns", 2**63 - 1),
        (records.PROXY_STOP, "wait_ns", 2**62),
        (records.P2P, "peer", 2**31 - 1),
    ],
)
def test_a_record_with_a_number_that_cannot_be_is_counted(kind: int, field: str, value: int, tmp_path: Path) -> None:
    whole, hurt = tmp_path / "a.rwprof", tmp_path / "b.rwprof"
    whole.write_bytes(profiler_recording.recording())
    hurt.write_bytes(resealed(whole.read_bytes(), kind, field, value))
    assert not summarise(read(str(whole)))["ledger"].get("refused")
    summary = summarise(read(str(hurt)))
    assert summary["ledger"]["refused"] == 1
    assert any(row["reason"] == "a number that cannot be" for row in summary["ledger_detail"])


def test_a_group_of_two_thousand_million_ranks_is_none(tmp_path: Path) -> None:
    data = resealed(profiler_recording.recording(), records.COMM, "nranks", 2**31 - 1)
    (tmp_path / "a.rwprof").write_bytes(data)
    summary = summarise(read(str(tmp_path / "a.rwprof")))
    assert summary["ledger"]["refused"] == 1
    assert summary["operations"]


@pytest.mark.parametrize(("before", "after"), [(b"events=127", b"events=all"), (b"nccl=22703", b"nccl=2.7.3")])
def test_a_header_whose_text_is_no_number_is_read(before: bytes, after: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.rwprof").write_bytes(profiler_recording.recording().replace(before, after))
    assert summarise(read(str(tmp_path / "a.rwprof")))["operations"]


def test_a_header_whose_clocks_tell_no_time_is_refused(tmp_path: Path) -> None:
    data = bytearray(profiler_recording.recording())
    data[48:56] = b"\xff" * 8
    (tmp_path / "a.rwprof").write_bytes(data)
    with pytest.raises(InputError, match="tell no time"):
        read(str(tmp_path / "a.rwprof"))


def test_records_that_come_again_and_again_are_no_more_rows_than_records(tmp_path: Path) -> None:
    """Numbers of operations that repeat are met once each: what they are joined to does not grow with their square."""
    data = profiler_recording.recording()
    heights = []
    for times in (1, 20, 40):
        path = tmp_path / f"{times}.rwprof"
        path.write_bytes(data * times)
        heights.append(read(str(path)).df.height)
    assert heights[2] - heights[1] == pytest.approx((heights[1] - heights[0]) * 20 / 19, rel=0.1)
    assert heights[2] < 50 * heights[0]
