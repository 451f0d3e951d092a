"""What everything that plugs in must show: one suite for each interface, over small cases, without knowing who wrote it."""
