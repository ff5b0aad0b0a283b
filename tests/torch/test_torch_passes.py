"""Passes over vectors of the gradient's size in a step, counted as the benchmark `way` counts them."""

from benchmarks import way_count


def test_the_master_passes_three_times_over_the_gradient_and_a_worker_once():
    """Parameters out, a look at them, the sum; and zeros to which the backward pass adds."""
    master = way_count.of_master(width=150)
    assert dict(master) == {"_foreach_copy_": 1, "look at parameters": 1, "weighted sum": 1}
    assert dict(way_count.of_worker(width=150)) == {"zeros in the slot": 1}
