"""Models that several rooms need."""
