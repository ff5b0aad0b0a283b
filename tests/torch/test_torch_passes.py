"""Passes over vectors of the gradient's size in a step, counted as the benchmark `way` counts them."""

from benchmarks import way_count


def test_the_master_passes_twice_over_the_gradient_and_a_worker_once():
    """Parameters out with a look at them, and the sum; and gradients to the place where the master reads them."""
    master = way_count.of_master(width=150)
    assert dict(master) == {"parameters out, and a look at them": 1, "weighted sum": 1}
    assert dict(way_count.of_master(width=150, shared=True)) == {"weighted sum": 1}, "the model lives where workers read it"
    assert dict(way_count.of_worker(width=150)) == {"gradients over what stood in the slot": 1}
