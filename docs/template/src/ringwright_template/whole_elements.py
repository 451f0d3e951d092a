"""The law of whole elements: what an operation moves is a whole number of its elements."""

from ringwright.bounds.laws import Law


def part_of_an_element(size_bytes: int, item_bytes: int) -> str:
    """Return how a size breaks the law; empty where it does not."""
    left = size_bytes % item_bytes
    return f"{size_bytes} B leave {left} B of an element of {item_bytes} B" if left else ""


LAW = Law(
    "elements",
    "what an operation moves is a whole number of its elements",
    "MPI 4.1, section 3.2.2: a message is a sequence of entries",
    part_of_an_element,
    kept=((4096, 4), (0, 8)),
    broken=((4097, 4), (4, 8)),
)
