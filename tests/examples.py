"""Codes that every contract test runs on: add an expression here for each new scheme."""

from functools import cache

from unstraggle import Code, parse_code

EXAMPLES = (
    "uncoded(5)",
    "uncoded(1)",
    "fractional_repetition(12, s=3)",
    "cyclic_repetition(9, s=4)",
    "cyclic_repetition(24, s=7)",
    "cyclic_repetition(10, s=3, construction='random')",
    "cyclic_repetition(12, s=11)",
    "reed_solomon(8, s=3)",
    "reed_solomon(10, s=3, field='real')",
    "reed_solomon(mask=[[1, 1, 0], [0, 1, 1], [1, 1, 1], [1, 0, 1]])",
    "partial_stragglers(10, s=2, slowdown=4)",
    "correlated_mmc(6, load=3, order=2)",
    "correlated_mmc(10, load=10, order=6)",
    "uncorrelated_mmc(6, load=3, orders=[2, 3])",
    "uncorrelated_mmc(10, load=10, orders=[6, 8, 10])",
    "uncoded_mmc(12, load=4)",
    "lagrange(12, load=4)",
    "lagrange(10, load=3)",
    "cluster(correlated_mmc(5, load=5, order=3), times=3)",
    "cluster(uncorrelated_mmc(5, load=5, orders=[3, 5]), times=2)",
    "cluster(cyclic_repetition(6, s=2), uncoded_mmc(4, load=2))",
    "cluster(lagrange(8, load=4), uncoded(3))",
    "stack(uncoded(6), cyclic_repetition(6, s=2), shares=[0.25, 0.75])",
    "blocks([1, 3, 2], uncoded(6), cyclic_repetition(6, s=2), cyclic_repetition(6, s=4))",
    "hybrid(uncorrelated_mmc(5, load=5, orders=[3, 5]))",
    "hybrid(cluster(correlated_mmc(5, load=5, order=3), times=2))",
    "hybrid(uncorrelated_mmc(8, load=4, orders=[2, 3, 4]))",
    "quantize(fractional_repetition(6, s=2), bits=[4, 4, 4, 8, 8, 32], bucket=512)",
)

APPROXIMATE_EXAMPLES = (
    "ignore_stragglers(6)",
    "ignore_stragglers(4, p=[0.1, 0.2, 0.3, 0.4])",
    "bernoulli(10, load=2)",
    "bernoulli(10, load=3, seed=1, decode='one_step')",
    "bernoulli(10, load=3, decode='least_squares')",
    "erasurehead(12, s=2)",
    "erasurehead(12, s=2, decode='sum')",
    "optimal_decoding(10, degree=3)",
    "expander(10, degree=3)",
    "expander(10, degree=3, decode='one_step')",
    "stochastic(8, p=0.3)",
    "stochastic(13, p=0.3, copies=4, placement='balanced')",
    "quantize(stochastic(8, p=0.3), bits=1)",
    "optimally_structured([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])",
    "optimally_structured([0.1, 0.2, 0.3], k=4, bits=[8, 4, 2], dim=1000, omega='qsgd', bucket=512)",
)
"""Codes whose gradient is not exact: they go with a deadline."""


@cache
def example(expression: str) -> Code:
    return parse_code(expression)
