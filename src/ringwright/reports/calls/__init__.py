"""What was asked about single calls, for a terminal."""
