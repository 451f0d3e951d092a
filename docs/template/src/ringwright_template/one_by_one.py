"""One by one: a micro-batch goes there and back before the next one enters. A stage's inputs are held once."""

from ringwright.graph.pipelines import Order, PipelineSchedule, Shape


def one_by_one(shape: Shape, device: int) -> Order:
    """Return forward and backward of each micro-batch in turn."""
    del device
    return tuple((phase, 0, batch) for batch in range(shape.micro_batches) for phase in "FB")


def held(shape: Shape, group: int) -> int:
    """Return for how many micro-batches a device holds inputs at the most."""
    del shape, group
    return 1


SCHEDULE = PipelineSchedule("one-by-one", one_by_one, chunks=1, held=held)
