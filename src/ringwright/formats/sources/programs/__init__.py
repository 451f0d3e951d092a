"""Files of programs and workloads: MSCCL, MSCCL++ and our own, read into the nouns."""
