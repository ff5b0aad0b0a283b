"""Ray gives its processes some seconds to start and ends otherwise, which is too little where others want the processors."""

import contextlib
import socket
import time

LIMIT = 600.0
"""Seconds after which a Ray that has not started never will."""
PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")
"""Ray waits seconds for each of them to be told, unless it is chosen before, and for a file with the third even then."""


def wait_for_ray():
    """Let `ray.init` in this process wait for Ray's own processes for as long as they take."""
    from ray._private import services
    from ray._private.node import Node
    from ray._private.parameter import RayParams
    from ray._raylet import DASHBOARD_AGENT_LISTEN_PORT_NAME, persist_port

    if getattr(services.get_node, "waits", False):
        return
    look, prepare, start = services.get_node, RayParams.update_pre_selected_port, Node.start_ray_processes

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

    def with_file(node):
        port = node._ray_params.dashboard_agent_listen_port
        persist_port(node._session_dir, node._node_id, DASHBOARD_AGENT_LISTEN_PORT_NAME, port)
        start(node)

    get_node.waits = True
    services.get_node, RayParams.update_pre_selected_port, Node.start_ray_processes = get_node, with_ports, with_file


def free_ports(count):
    """They differ, since all are open at once."""
    with contextlib.ExitStack() as closing:
        doors = [closing.enter_context(socket.create_server(("", 0))) for _ in range(count)]
        return [door.getsockname()[1] for door in doors]
