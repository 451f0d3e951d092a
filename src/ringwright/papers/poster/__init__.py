"""The communication of model workloads: real runs beside what the closed formulas say beforehand."""
