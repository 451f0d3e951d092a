"""Tables of benchmarks: what nccl-tests and its kin print, row by row."""
