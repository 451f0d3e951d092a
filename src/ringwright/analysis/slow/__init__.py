"""Who is slow: ranks, NICs, hosts and groups that hold a job up, and since when."""
