"""A switch that adds, carried out: UDP packets with SwitchML's header, a program that sums them slot by slot, and its workers."""
