"""Synthesis as a question: the best program for a collective on a machine, how good it provably is, and who else does it.

In: a collective, a machine, methods and a budget. Out: programs by size with their bound, rivals, and files.
Start reading: `study`; `question`, which methods can be asked; `proof`.
"""
