"""Synthesisers: algorithms that look at the links of a machine and search for the best program on it."""
