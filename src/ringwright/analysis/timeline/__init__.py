"""Events of all ranks on one clock, at the detail that a picture can show."""
