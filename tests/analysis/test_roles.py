"""What communicators are for, on jobs whose groups are written down: by launch arguments, members, traffic, or as stated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ringwright.analysis.roles import Roles, infer

TALK = {
    "ep": {"all-to-all"},
    "tp": {"all-gather", "reduce-scatter"},
    "dp": {"all-reduce"},
    "pp": {"send", "recv"},
    "embedding": {"all-reduce"},
}


def groups(world: int, size: int, stride: int) -> list[list[int]]:
    """Return the groups of ``size`` ranks at a stride, which together are all ranks that fit."""
    period = size * stride
    return [
        [base + offset + stride * number for number in range(size)]
        for base in range(0, world - period + 1, period)
        for offset in range(stride)
    ]


class Job:
    """The communicators of a job as the analysis gets them, and the role that each group was made for."""

    def __init__(self, world: int, **launch: int) -> None:
        self.world, self.launch = world, launch
        self.communicators: list[dict[str, Any]] = []
        self.ops: dict[int, set[str]] = {}
        self.made: dict[int, str] = {}

    def add(self, kind: str, members: Iterable[list[int]], *, silent: bool = False, **stated: str) -> Job:
        """Add groups of a kind; ``silent``: what they send is not known."""
        for ranks in members:
            number = len(self.communicators)
            self.communicators.append({"communicator": number, "size": len(ranks), "members": ranks, **stated})
            if not silent:
                self.ops[number] = TALK.get(kind, set())
            self.made[number] = kind
        return self

    def roles(self) -> Roles:
        """Return what is inferred."""
        return infer(self.communicators, self.launch, self.ops, self.world)


def told(job: Job) -> dict[int, str]:
    return {number: role for number, (role, _) in job.roles().of.items()}


def degrees(job: Job) -> tuple[int | None, ...]:
    found = job.roles().degrees
    return found["tp"], found["pp"], found["dp"], found["ep"]


def test_three_degrees_of_which_the_launch_told_two() -> None:
    job = Job(32, tp=4, pp=2).add("tp", groups(32, 4, 1))
    assert degrees(job) == (4, 2, 4, None)
    job.add("dp", groups(16, 4, 4))
    assert degrees(job) == (4, 2, 4, None)
    job = Job(30, tp=4, pp=2)  # that do not fit: no third one is made up
    assert degrees(job) == (4, 2, None, None)


def test_members_and_traffic_alone() -> None:
    job = Job(16).add("world", [list(range(16))]).add("tp", groups(16, 2, 1))
    job.add("dp", [[a, a + 2] for a in (0, 1, 4, 5, 8, 9, 12, 13)]).add("pp", groups(16, 4, 4))
    assert told(job) == job.made
    assert degrees(job) == (2, 4, 2, None)


def test_a_pipeline_of_three_stages_has_groups_of_three() -> None:
    job = Job(12).add("tp", groups(12, 4, 1)).add("pp", [[a, a + 4] for a in range(8)])
    job.add("pp", groups(12, 3, 4), silent=True)
    assert told(job) == job.made
    assert degrees(job) == (4, 3, 1, None)


def test_pairs_that_are_most_are_neighbours_of_a_pipeline_where_nothing_says_what_they_send() -> None:
    job = Job(16, pp=4)
    job.add("pp", [[a, a + 4] for a in range(12)], silent=True).add(
        "embedding", [[a, a + 12] for a in range(4)], silent=True
    )
    assert told(job) == job.made


def test_only_first_and_last_stage_tie_their_embeddings() -> None:
    """Of two stages those four ranks apart are the neighbours; pairs eight ranks apart are replicas."""
    job = Job(16, tp=4, pp=2).add("pp", [[a, a + 4] for a in (0, 1, 2, 3, 8, 9, 10, 11)])
    job.add("dp", [[a, a + 8] for a in range(8)])
    assert told(job) == job.made


def test_groups_of_another_size_than_the_pipeline_are_no_pipeline() -> None:
    job = Job(16, tp=2, pp=2).add("dp", groups(8, 4, 2))
    assert told(job) == job.made
    assert job.roles().of[0][1] == "2 of size 4, stride 2: replicas of one tensor rank"


def test_consecutive_ranks_are_no_pipeline_even_if_as_many_as_its_stages() -> None:
    job = Job(16, tp=2, pp=4).add("", groups(16, 4, 1))
    assert told(job) == {}


def test_a_rank_per_stage_where_the_launch_told_the_stages() -> None:
    job = Job(16, tp=2, pp=4, dp=2).add("pp", groups(16, 4, 4))
    assert told(job) == job.made
    assert job.roles().of[0][1] == "4 of size 4, stride 4: one rank per stage"


def test_groups_as_large_as_the_pipeline_that_reduce_at_the_stride_of_replicas_are_replicas() -> None:
    job = Job(8, tp=2, pp=2, dp=2).add("dp", [[0, 2], [1, 3], [4, 6], [5, 7]])
    assert told(job) == job.made


def test_irregular_members_have_no_stride() -> None:
    job = Job(16).add("", [[0, 1, 5], [2, 9, 11]])
    assert told(job) == {}


def test_only_all_to_all_is_for_experts() -> None:
    job = Job(8)
    job.add("ep", groups(8, 4, 1))
    assert told(job) == job.made
    assert degrees(job)[3] == 4


def test_what_the_recording_states_is_taken_and_gives_the_degrees() -> None:
    job = Job(16).add("tp", groups(16, 8, 1), role="tp", role_evidence="named so")
    job.add("dp-cp", groups(16, 2, 8), role="dp-cp", role_evidence="")
    job.add("", groups(16, 4, 2))
    assert job.roles().of[0] == ("tp", "named so")
    assert job.roles().of[2] == ("dp-cp", "stated")
    assert 10 not in job.roles().of
    assert degrees(job) == (8, 1, 2, None)
    job.launch = {"tp": 4}
    assert degrees(job)[0] == 4
