"""Recording live jobs."""
