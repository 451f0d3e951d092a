"""MPICH's collective layer: its menu of algorithms and the ordered tests by which it picks one."""
