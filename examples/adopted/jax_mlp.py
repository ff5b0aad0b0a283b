"""A two-layer network in JAX, trained by gradient descent on all samples, as JAX's first tutorial has it. Needs jax."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree


def data(samples=64):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((samples, 6)).astype(np.float32)
    return x, np.sin(x[:, :1]) + x[:, 1:2] ** 2


def init():
    rng = np.random.default_rng(1)
    sizes = ((6, 16), (16, 1))
    return [(0.3 * rng.standard_normal(size).astype(np.float32), np.zeros(size[1], np.float32)) for size in sizes]


def predict(params, x):
    (w1, b1), (w2, b2) = params
    return jnp.tanh(x @ w1 + b1) @ w2 + b2


def total(flat, x, y):
    """The squared error, summed over samples."""
    return jnp.sum((predict(ravel_pytree(init())[1](flat), x) - y) ** 2)


def main(steps=8):
    x, y = data()
    flat = np.array(ravel_pytree(init())[0])
    gradient = jax.jit(jax.grad(total))
    losses = []
    for step in range(steps):
        losses.append(float(total(flat, x, y)) / len(x))
        flat = flat - 0.05 * np.asarray(gradient(flat, x, y)) / len(x)
        print(f"step {step}: loss {losses[-1]:.4f}")
    return losses, flat


if __name__ == "__main__":
    main()
