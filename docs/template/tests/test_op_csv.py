"""A file with a good and a bad line; what is read, and what is told."""

import pathlib

import ringwright

ROWS = "rank,op,bytes,start_us,time_us\n0,all-reduce,1024,10,5\n1,all-reduce,1024,12,4\n1,all_reduce,1024,12,4\n"


def test_good_lines_are_read_and_bad_ones_counted(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "ops.csv"
    file.write_text(ROWS)
    trace = ringwright.read(file)
    [row] = ringwright.summary(trace)["operations"]
    assert (row["op"], row["count"], row["records"], row["bytes"]) == ("all-reduce", 1, 2, 1024)
    ledger = {line["outcome"]: line["lines"] for line in trace.table("ledger").iter_rows(named=True)}
    assert ledger == {"understood": 2, "refused": 1}
    assert trace.table("communicators")["size"].to_list() == [2]
