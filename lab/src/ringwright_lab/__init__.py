"""Ringwright's laboratory: what runs and proves things beside the product that it proves.

Real ranks on networks of namespaces (`network`), benchmarks and sweeps over them (`bench`, `sweep`), training loops under a
schedule (`live`), every published claim beside ours (`papers`), contracts and generators for your tests (`testing`).
The verbs bench, sweep, lab, compare, systems, survey and reproduce of `ringwright` live here. Start reading: `bench.study`.
"""
