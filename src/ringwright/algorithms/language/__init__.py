"""A language for collective programs, and its compiler, after GC3 (MSCCLang).

Chunks move between named buffers of ranks, in ordinary Python; what comes out is a Program like any other, with a declared
order that was proved.

Examples
--------
>>> import ringwright
>>> from ringwright.language import compiled
>>> def ring(script):
...     for index in range(script.chunks):
...         ref = script.chunk(index, "input", index)
...         for step in range(1, script.ranks):
...             ref = script.chunk((index + step) % script.ranks, "input", index).reduce(ref)
...         for step in range(script.ranks - 1):
...             ref = ref.copy((index + step) % script.ranks, "output", index)
>>> wanted = ringwright.Collective("all-reduce", range(4), 1 << 20)
>>> compiled(ring, wanted, instances=2, protocol="LL")
Program(ring: all-reduce of 1 MiB over 4 ranks, 10 steps, in a declared order)
"""

from __future__ import annotations

from ringwright.algorithms.language.compiling import compile_script, compiled
from ringwright.algorithms.language.script import ChunkScript, Reference

__all__ = ["ChunkScript", "Reference", "compile_script", "compiled"]
