"""A language for collective programs, and its compiler, after GC3 (MSCCLang).

Chunks move between named buffers of ranks, in ordinary Python; what comes out is a Program like any other::

    from ringwright.language import compiled

    def ring(script):
        for index in range(script.chunks):
            sum_ = script.chunk(index, "input", index)
            for step in range(1, script.ranks):
                sum_ = script.chunk((index + step) % script.ranks, "input", index).reduce(sum_)
            for step in range(script.ranks - 1):
                sum_ = sum_.copy((index + step) % script.ranks, "input", index)

    program = compiled(ring, ringwright.Collective("all-reduce", range(4), 1 << 20), instances=2)
"""

from __future__ import annotations

from ringwright.language.compiling import compile_script, compiled
from ringwright.language.script import Reference, Script

__all__ = ["Reference", "Script", "compile_script", "compiled"]
