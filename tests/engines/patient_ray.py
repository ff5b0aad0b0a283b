"""Ray gives its processes some seconds to start and ends otherwise, which is too little where others want the processors."""

import contextlib
import socket
import time

LIMIT = 600.0
"""Seconds after which a Ray that has not started never will."""
PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")
"""Ray waits seconds for each of them to be told, unless it is chosen before."""


def wait_for_ray():
    """Let `ray.init` in this process wait for Ray's own processes for as long as they take."""
    from ray._private import services
    from ray._private.parameter import RayParams

    if getattr(services.get_node, "waits", False):
        return
    look, prepare = services.get_node, RayParams.update_pre_selected_port

    def get_node(*arguments):
        limit = time.monotonic() + LIMIT
        while True:
            try:
                return look(*arguments)
            except RuntimeError:
                if time.monotonic() > limit:
                    raise
                time.sleep(0.1)

    def with_ports(params):
        for name, port in zip(PORTS, free_ports(len(PORTS)), strict=True):
            setattr(params, name, getattr(params, name) or port)
        prepare(params)

    get_node.waits = True
    services.get_node, RayParams.update_pre_selected_port = get_node, with_ports


def free_ports(count):
    """They differ, since all are open at once."""
    with contextlib.ExitStack() as closing:
        doors = [closing.enter_context(socket.create_server(("", 0))) for _ in range(count)]
        return [door.getsockname()[1] for door in doors]
