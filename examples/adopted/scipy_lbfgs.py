"""Logistic regression by the L-BFGS of SciPy: `scipy.optimize.minimize` asks for the loss and the gradient of all samples."""

import numpy as np
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer

RIDGE = 1e-2


def data():
    features, labels = load_breast_cancer(return_X_y=True)
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    return np.column_stack([np.ones(len(labels)), features]), labels.astype(float)


def loss_of(params, features, labels):
    scores = features @ params
    return np.mean(np.logaddexp(0.0, scores) - labels * scores) + RIDGE / 2 * params @ params


def gradient_of(params, features, labels):
    right = 1 / (1 + np.exp(-(features @ params)))
    return features.T @ (right - labels) / len(labels) + RIDGE * params


def main(steps=12):
    features, labels = data()
    losses = []

    def both(params):
        losses.append(loss_of(params, features, labels))
        return losses[-1], gradient_of(params, features, labels)

    found = minimize(both, np.zeros(features.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": steps})
    print(f"loss {found.fun:.6f} after {found.nit} iterations and {found.nfev} gradients")
    return losses, found.x


if __name__ == "__main__":
    main()
