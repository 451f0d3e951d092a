"""Open MPI's ``coll/tuned``: its menu of algorithms and the rules by which it picks one."""
