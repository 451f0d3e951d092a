"""Small tensor-parallel jobs of which every task is known, so that they can be carried out."""

from __future__ import annotations

from dataclasses import replace

from ringwright.graph.algebra.build import Build, partial, sliced
from ringwright.model.workload import Mesh, Workload


def blocks(p: int = 2, batches: int = 2, batch: int = 4) -> Workload:
    """Two blocks forward and back, each a product by columns, a point-wise step, a product by rows and its sum."""
    graph = Build(Mesh((("tp", p),)), b=batch, h=3, f=2 * p)
    at, made = graph.input("x", "b h"), []
    for layer in range(2):
        up, down = (
            graph.input(f"up{layer}", "h f", sliced("tp", "f")),
            graph.input(f"down{layer}", "f h", sliced("tp", "f")),
        )
        middle = graph.task(f"middle{layer}", "einsum", [at, up], "b f", sliced("tp", "f"))
        active = graph.task(f"active{layer}", "pointwise", [middle], "b f", sliced("tp", "f"), fn="relu")
        out = graph.task(f"out{layer}", "einsum", [active, down], "b h", partial("tp"))
        made.append((at, up, down, active))
        at = graph.send(f"sum{layer}", "AR", out, "tp")
    for layer in (1, 0):
        before, up, down, active = made[layer]
        back = graph.task(f"back{layer}", "einsum", [at, down], "b f", sliced("tp", "f"), kind="dO")
        through = graph.task(
            f"through{layer}", "pointwise", [back, active], "b f", sliced("tp", "f"), kind="dO", fn="multiply"
        )
        graph.task(
            f"weights{layer}", "einsum", [before, through], "h f", sliced("tp", "f"), kind="dW", value="gradient"
        )
        inputs = graph.task(f"inputs{layer}", "einsum", [through, up], "b h", partial("tp"), kind="dO")
        at = graph.send(f"back-sum{layer}", "AR", inputs, "tp")
    step = graph.step()
    once = {name for name in step.value if name.startswith(("up", "down", "weights"))}
    return replace(
        step,
        micro_batches=batches,
        tasks=tuple(replace(task, per="micro-batch") for task in step.tasks),
        payloads=tuple(replace(payload, per="micro-batch") for payload in step.payloads),
        values=tuple(replace(value, per="step" if value.name in once else "micro-batch") for value in step.values),
    )
