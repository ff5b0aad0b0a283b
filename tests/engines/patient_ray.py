"""Ray gives itself half a minute to start, which is too little where six other programs want the processors."""

import time

LIMIT = 600.0
"""Seconds after which a Ray that has not started never will."""


def wait_for_ray():
    """Let `ray.init` in this process wait for its own processes for as long as they take."""
    from ray._private import services

    once = services.get_node

    def get_node(*arguments):
        limit = time.monotonic() + LIMIT
        while True:
            try:
                return once(*arguments)
            except RuntimeError:
                if time.monotonic() > limit:
                    raise
                time.sleep(0.1)

    services.get_node = get_node
