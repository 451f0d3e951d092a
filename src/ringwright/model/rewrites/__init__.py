"""What a policy's rewrites mean: payloads become operations. The simulator, the real ranks and the exports all ask here.

One file in ``kinds/`` for each kind of rewrite; its name is the kind. Such a file has

- ``Settings``: what may stand in the rewrite's ``settings``, typed; anything else is refused;
- ``NEEDS``: sets of settings, of which one must be there;
- ``CARRIED_BY``: where it is done for real (``live``: ringwright's own schedule on PyTorch; ``hook``: a communication hook of
  DistributedDataParallel; ``buckets``: its plain buckets);
- ``WHOLE``: whether what travels afterwards are the payloads' own bytes, no more and no fewer;
- ``rewritten(operations, settings)``: the operations afterwards. Every byte of a payload lies in exactly one of them.
"""

from __future__ import annotations

from ringwright.model.rewrites.kind import KINDS, RewriteKind, kind_of
from ringwright.model.rewrites.operation import Operation
from ringwright.model.rewrites.operations import applied, is_sent_whole, operations

__all__ = ["KINDS", "Operation", "RewriteKind", "applied", "is_sent_whole", "kind_of", "operations"]
