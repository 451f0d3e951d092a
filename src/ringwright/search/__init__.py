"""Synthesis as a question: the best program for a collective on a machine, how good it provably is, and who else does it."""
