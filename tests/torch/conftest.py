"""What tests of training share."""

import pytest
import torch


@pytest.fixture(scope="module")
def one_thread():
    """torch computes with one thread, as workers do: for tests that compare with them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
