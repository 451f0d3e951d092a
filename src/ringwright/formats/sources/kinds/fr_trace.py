"""What PyTorch's analyser of Flight Recorder dumps (``torchfrtrace``, ``fr_trace``) prints."""

from __future__ import annotations

import re

from ringwright.formats.sources.kinds import by_words

WHAT = "text of PyTorch's Flight Recorder analyser"
RANK = 128
READER = "ringwright.formats.sources.fr_trace:read_fr_trace"
_LINES = re.compile(
    rb"Not all ranks joining collective|Collective (?:sequence number: )?\d+ (?:at entry \d+ )?has errors"
    rb"|Input/output mismatch in the collective|No errors found for this collective entry|issing dump files from ranks \{"
    rb"|missed FR dumps from ranks"
)
looks_like, _ = by_words(_LINES)
