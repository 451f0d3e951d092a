"""Two runs side by side, and a run against its limits."""
