"""Files of settings: what tuners, launchers and frameworks are told, read back into rules and workloads."""
