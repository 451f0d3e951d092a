"""A running job: its growing files followed, its rates, and alerts."""
