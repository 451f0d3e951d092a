"""The groups of a job, named by what their ranks do together: a group's description is ``mesh_dp``, ``mesh_tp`` and so on."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from ringwright.ground.errors import UsageError
from ringwright_lab.models.spec import ExperimentSpec

ROLES = {
    "none": (),
    "ddp": ("dp",),
    "fsdp": ("dp",),
    "tp": ("tp",),
    "tp+fsdp": ("dp", "tp"),
    "ep": ("ep",),
    "pp": ("pp",),
}


def join(spec: ExperimentSpec) -> tuple[int, int]:
    """Enter the job's group (gloo, or the fake one) and return (rank, world)."""
    if spec.fake is not None:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        rank, world = spec.fake.get("rank", 0), spec.fake["world"]
        dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
        return rank, world
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1:
        store = dist.FileStore(spec.store, world) if spec.store else None
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    return rank, world


def roles(spec: ExperimentSpec, world: int) -> DeviceMesh | None:
    """Return the mesh with one dimension a role, the last one between neighbours; UsageError where ranks do not add up."""
    names = ROLES[spec.form]
    shape = tuple(spec.ranks(name) for name in names)
    wanted = 1
    for size in shape:
        wanted *= size
    if wanted != world:
        raise UsageError(
            f"{spec.form} of {dict(zip(names, shape, strict=True))} is {wanted} ranks, and the job has {world}",
            remedy=f"start {wanted} ranks",
        )
    if not names:
        return None
    if len(names) > 1:
        return init_device_mesh("cpu", shape, mesh_dim_names=names)
    return line(names[0], world)


def line(role: str, world: int) -> DeviceMesh:
    """Return a mesh of all ranks in one dimension, with a group of its own."""
    group = dist.new_group(list(range(world)), group_desc=f"mesh_{role}")
    return DeviceMesh.from_group(group, "cpu", mesh=torch.arange(world), mesh_dim_names=(role,))
