#!/usr/bin/env python3
"""The fixed baseline: the reader anybody writes first. Do not improve it; numbers are reported against it.

One compiled regular expression on bytes, matched line by line, nothing repaired: lines cut in two are lost, and
so is everything the Init lines say. Prints records and bytes per (operation, count, datatype) of each communicator.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

COLL = re.compile(
    rb"(\S+):(\d+):(\d+) \[(\d+)\] NCCL INFO (\w+): opCount ([0-9a-f]+) sendbuff (\S+) recvbuff (\S+) "
    rb"count (\d+) datatype (\d+) op (\d+) root (\d+) comm (0x[0-9a-f]+) \[nranks=(\d+)\] stream (\S+)"
)


def read(path: str) -> Counter[tuple[bytes, bytes, bytes, bytes]]:
    counts: Counter[tuple[bytes, bytes, bytes, bytes]] = Counter()
    with Path(path).open("rb") as lines:
        for line in lines:
            match = COLL.search(line)
            if match is not None:
                counts[match[13], match[5], match[9], match[10]] += 1
    return counts


def main() -> None:
    counts = read(sys.argv[1])
    operations: Counter[str] = Counter()
    for (_comm, op, _count, _datatype), records in counts.items():
        operations[op.decode()] += records
    summary = {"records": sum(counts.values()), "keys": len(counts), "operations": dict(sorted(operations.items()))}
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
