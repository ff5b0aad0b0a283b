"""Run by `test_engine_codes` on MPI: one job serves all codes, one engine after the other."""

from unstraggle.engines import MPI
from unstraggle.testing import check_engine

from ..examples import APPROXIMATE_EXAMPLES, EXAMPLES, example

if __name__ == "__main__":
    report = check_engine(
        MPI, [example(text) for text in (*EXAMPLES, *APPROXIMATE_EXAMPLES)], rounds=2, samples=100, faults=False
    )
    assert report.worst_error < 1e-9
    print(f"{report.codes} codes")
