"""Logistic regression on 49,097 sensor readings of the space shuttle, without torch, by gradient descent on local workers.

python examples/shuttle.py
"""

import argparse
from itertools import islice

import numpy as np
from river.datasets import Shuttle

import unstraggle as us


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--code", default="fractional_repetition(4, s=1)")
    options.add_argument("--rows", type=int, help="how many readings, by default all")
    args = options.parse_args()

    rows = [(list(x.values()), y) for x, y in islice(Shuttle(), args.rows)]
    features, labels = np.array([x for x, _ in rows], dtype=float), np.array([y for _, y in rows])
    features = np.column_stack([np.ones(len(labels)), (features - features.mean(axis=0)) / features.std(axis=0)])

    code = us.parse_code(args.code)
    problem = us.problems.Logistic.split(features, labels, code.shares.tolist(), ridge=1e-4)
    params = np.zeros(features.shape[1])
    with us.Master(code, us.engines.Local(problem)) as master:
        for step in range(args.steps):
            estimate = master.gradient(params)
            params -= 2.0 / len(labels) * estimate.gradient
            if step % 50 == 0 or step == args.steps - 1:
                print(f"step {step}: loss {problem.loss(params):.4f}, exact {estimate.exact}, {estimate.messages} messages")
    print(f"accuracy {np.mean((features @ params > 0) == (labels == 1)):.4f}")


if __name__ == "__main__":
    main()
