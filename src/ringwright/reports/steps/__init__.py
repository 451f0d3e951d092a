"""What was asked about whole steps of jobs, for a terminal."""
