"""A scheme that the library does not have: in every group one fast worker stands in for several slow ones.

python examples/own_scheme.py
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

import unstraggle as us
from unstraggle.codes import cluster
from unstraggle.scheme.code import Code, Messages, Tasks
from unstraggle.scheme.decoders import Span
from unstraggle.scheme.rule import Need
from unstraggle.testing import check_code


def stand_ins(groups: int, slow: int) -> Code:
    """Groups of one fast worker and `slow` slow ones: each of these has a partition of its own, the fast one has them all.

    A group is complete when its fast worker is done, or when all its slow ones are. Meant for machines of which one is about
    `slow` times as fast as the others: then all have the same to do. Where workers are alike, use `fractional_repetition`.
    """
    if groups < 1 or slow < 1:
        raise us.Invalid(f"stand_ins needs groups >= 1 and slow >= 1, but got groups={groups}, slow={slow}.")
    return replace(cluster(_group(slow), times=groups), name=f"stand_ins({groups}, slow={slow})")


def _group(slow: int) -> Code:
    """Worker 0 is the fast one."""
    worker = [0] * slow + list(range(1, slow + 1))  # tasks: those of the fast worker, then one of each slow worker
    part = [*range(slow), *range(slow)]
    tasks = Tasks(worker, part, work=(slow + 1) / slow)  # a unit is the data over the workers, and there is a worker too many
    coef = np.vstack([np.ones(slow), np.eye(slow)])  # message 0: the sum of all; message i: the partition of worker i
    messages = Messages(np.arange(slow + 1), [slow] + [1] * slow, coef)
    rule = Need(1, (0, Need(slow, tuple(range(1, slow + 1)))))
    return Code("group", slow + 1, tasks, messages, Span(messages.coef, rule))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=50)
    args = options.parse_args()

    code = stand_ins(groups=3, slow=2)
    print(check_code(code))
    fast, slow = us.latency.Pareto(shape=2, scale=0.5), us.latency.Pareto(shape=2, scale=1)
    latency = us.latency.Heterogeneous([fast, slow, slow] * 3)
    for each in (us.codes.uncoded(9), us.codes.fractional_repetition(9, s=2), us.codes.uncoded_mmc(9, load=2), code):
        rounds = us.simulate(each, latency, rounds=20_000, rng=0)
        print(f"{rounds.time.mean:.2f} s and {rounds.messages.mean:4.1f} messages per round: {each.name}")

    problem = us.problems.Logistic.random(code, dim=20, samples=900)
    params = np.zeros(20)
    with us.Master(code, us.engines.Virtual(problem, latency, rng=0)) as master:
        for step in range(args.steps):
            estimate = master.gradient(params)
            params -= 0.005 * estimate.gradient
            if step in (0, args.steps - 1):
                print(f"step {step}: loss {problem.loss(params):.4f}, exact {estimate.exact}")


if __name__ == "__main__":
    main()
