"""Recordings of JAX on the CPU whose collectives are known; run in this folder, with jax and jaxlib (0.10.2 made the files here).

python record.py mesh          8 devices as 2 x 4: reductions along either axis, a shift, a gather   -> mesh.xplane.pb.gz
python record.py sharded       8 devices: what the compiler adds for weights that are sharded          -> sharded.xplane.pb.gz
python record.py two           two processes of two devices each, over Gloo                            -> two.N.xplane.pb.gz
"""

# ruff: noqa: E402 - what jax reads from the environment is set before it is imported
from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
from pathlib import Path

WHAT = sys.argv[1]
RANK = int(sys.argv[2]) if len(sys.argv) > 2 else None
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={2 if WHAT == 'two' else 8}"
if WHAT == "two" and RANK is None:
    ranks = [subprocess.Popen([sys.executable, "record.py", "two", str(rank)]) for rank in range(2)]
    sys.exit(max(rank.wait() for rank in ranks))

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

if WHAT == "two":
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize("127.0.0.1:29713", 2, RANK)
DEVICES = np.array(jax.devices())


def mesh():
    grid = Mesh(DEVICES.reshape(2, 4), ("dp", "tp"))

    def f(a):
        along, across = lax.psum(a, "tp"), lax.pmax(a[:16], "dp")
        shifted = lax.ppermute(a, "dp", [(0, 1)])
        every = lax.all_gather(a, ("dp", "tp"), tiled=True)
        part = lax.psum_scatter(every, "tp", tiled=True)
        return (along.sum() + across.sum() + shifted.sum() + part.sum())[None, None]

    step = jax.jit(jax.shard_map(f, mesh=grid, in_specs=P(("dp", "tp")), out_specs=P("dp", "tp")))
    return step, [jax.device_put(jnp.arange(8 * 256, dtype=jnp.float32), NamedSharding(grid, P(("dp", "tp"))))]


def sharded():
    line = Mesh(DEVICES, ("data",))
    rows, whole = NamedSharding(line, P("data", None)), NamedSharding(line, P())
    weights = [jax.device_put(jnp.full((256, 256), 0.01, jnp.float32), rows) for _ in range(2)]
    batch = jax.device_put(jnp.ones((64, 256), jnp.float32), rows)

    def loss(weights, x):
        for weight in weights:
            x = jnp.tanh(x @ lax.with_sharding_constraint(weight, whole))
        return (x**2).mean()

    def step(weights, x):
        value, slopes = jax.value_and_grad(loss)(weights, x)
        new = [lax.with_sharding_constraint(w - 0.1 * s, rows) for w, s in zip(weights, slopes, strict=True)]
        return value, new

    return jax.jit(step), [weights, batch]


def two():
    line = Mesh(DEVICES, ("x",))
    held = NamedSharding(line, P("x"))

    def f(a):
        return (lax.psum(a, "x").sum() + lax.all_gather(a, "x", tiled=True).sum())[None]

    step = jax.jit(jax.shard_map(f, mesh=line, in_specs=P("x"), out_specs=P("x")))
    return step, [jax.make_array_from_callback((4000,), held, lambda at: np.ones(1000, np.float32))]


step, given = {"mesh": mesh, "sharded": sharded, "two": two}[WHAT]()
jax.block_until_ready(step(*given))
options = jax.profiler.ProfileOptions()
options.python_tracer_level = 0
with tempfile.TemporaryDirectory() as folder:
    with jax.profiler.trace(folder, profiler_options=options):
        for number in range(3):
            with jax.profiler.StepTraceAnnotation("train", step_num=number):
                jax.block_until_ready(step(*given))
    (made,) = Path(folder).rglob("*.xplane.pb")
    name = WHAT if RANK is None else f"{WHAT}.{RANK}"
    Path(f"{name}.xplane.pb.gz").write_bytes(gzip.compress(made.read_bytes(), mtime=0))
