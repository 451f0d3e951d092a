"""Systems that rewrite a step's graph: they split, cut, reorder, shift in time or recompute, and what is computed stays."""
