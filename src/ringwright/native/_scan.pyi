from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from ringwright.native.twin import JoinTables, ScanResult

class Scanner:
    def __init__(self, needles: Sequence[bytes]) -> None: ...
    def scan(self, data: Buffer, first_line: int) -> ScanResult: ...
    def handles(self, first: int = 0) -> list[tuple[str, int, int]]: ...
    def ops(self) -> list[str]: ...

class Joiner:
    def __init__(self) -> None: ...
    def add(
        self,
        group: npt.NDArray[np.int32],
        member: npt.NDArray[np.int32],
        op: npt.NDArray[np.uint8] | npt.NDArray[np.int32],
        op_count: npt.NDArray[np.uint64],
        count: npt.NDArray[np.uint64],
        datatype: npt.NDArray[np.int16],
        redop: npt.NDArray[np.int16],
        root: npt.NDArray[np.int32],
    ) -> npt.NDArray[np.int64]: ...
    def export(self) -> JoinTables: ...
