"""The machine that a recording tells of: rings, trees, NICs, and what one collective puts on each."""
