"""What the live page's server answers: the page, its numbers, and a stream of events."""

from __future__ import annotations

import ipaddress
import queue
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from .metrics import metrics

if TYPE_CHECKING:
    from .server import LivePage

PAGES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
POLICY = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; frame-ancestors 'none'"
BEAT = 10.0
"""Seconds after which a silent stream says that it is alive."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], page: LivePage) -> None:
        self.page = page
        super().__init__(address, _Handler)
        self.local = _is_local(address[0])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "unstraggle", ""
    timeout = 30

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if self.server.local and not _is_local(self.headers.get("Host", "")):
            self._answer(
                403, "text/plain", b"This page is for this machine.\n"
            )  # a foreign site may not read it by renaming itself
        elif path in PAGES:
            name, kind = PAGES[path]
            self._answer(200, kind, (files(__package__) / name).read_bytes())
        elif path == "/metrics":
            self._answer(200, "text/plain; version=0.0.4; charset=utf-8", metrics(self.server.page.state).encode())
        elif path == "/events":
            self._stream()
        else:
            self._answer(404, "text/plain", b"There are /, /events and /metrics.\n")

    do_HEAD = do_GET

    def _refuse(self) -> None:
        self.close_connection = True
        self._answer(405, "text/plain", b"This page can only be read.\n", Allow="GET, HEAD")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _refuse

    def _answer(self, status: int, kind: str, body: bytes, **more: str) -> None:
        self._head(status, kind, {"Content-Length": str(len(body)), **more})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: int, kind: str, more: dict[str, str]) -> None:
        self.send_response(status)
        safe = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
        for name, value in ({"Content-Type": kind, "Cache-Control": "no-store"} | safe | more).items():
            self.send_header(name, value)
        self.end_headers()

    def _stream(self) -> None:
        """Server-sent events until the run or the browser goes."""
        self.close_connection = True
        if self.command == "HEAD":
            return self._head(200, "text/event-stream", {})
        listener = self.server.page.listen()
        if listener is None:
            return self._answer(503, "text/plain", b"Too many are watching.\n")
        try:
            self._head(200, "text/event-stream", {"Connection": "close"})
            while (message := _wait(listener)) is not None:
                self.wfile.write(message)
                self.wfile.flush()
        except OSError:
            pass
        finally:
            self.server.page.leave(listener)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal belongs to the run."""


def _wait(listener: queue.SimpleQueue[bytes | None]) -> bytes | None:
    try:
        return listener.get(timeout=BEAT)
    except queue.Empty:
        return b": alive\n\n"


def _is_local(host: str) -> bool:
    """Whether a host, with or without a port, is this machine.

    >>> [_is_local(host) for host in ("localhost:80", "127.0.0.1", "[::1]:8000", "example.org", "10.0.0.1:80")]
    [True, True, True, False, False]
    """
    name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0] if host.count(":") < 2 else host
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
