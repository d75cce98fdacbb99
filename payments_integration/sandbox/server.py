"""Serve HTTP/1.1 with threads and keep-alive, and reset, truncate and slow down connections on demand."""

from __future__ import annotations

import io
import logging
import os
import socket
import struct
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from types import TracebackType
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from django.conf import ENVIRONMENT_VARIABLE, settings

from .application import SandboxApplication
from .engine import Engine
from .protocol import MAX_BODY_BYTES, ConnectionFault
from .validation import is_loopback
from .views import CONNECTION_FAULT_KEY

logger = logging.getLogger("payments_integration.sandbox")

KEEP_BYTES: Final = MAX_BODY_BYTES + 1  # one byte more than allowed is enough to refuse a body
DRAIN_BYTES: Final = 32 * 1024 * 1024  # read and discarded, so that the client receives the error response
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)  # SO_LINGER of zero seconds: close() sends RST
IDLE_SECONDS: Final = 60.0


class SandboxServer:
    """Serves an engine on a port of this machine (0: a free one) and delivers its events, until it is stopped.

    With ``deliver=False``, call ``engine.deliver_due()`` and ``engine.tick()`` yourself. Use the server as a context
    manager, or with start() and stop().
    """

    def __init__(self, engine: Engine, host: str = "127.0.0.1", port: int = 0, *, deliver: bool = True) -> None:
        self.engine = engine
        self._address = (host, port)
        self._deliver = deliver
        self._server: SandboxTCPServer | None = None
        self._thread: threading.Thread | None = None
        self._owns_base_url = False

    @property
    def url(self) -> str:
        """The address without ``/v1``, such as ``http://127.0.0.1:4567``. Raises RuntimeError if it does not run."""
        if self._server is None:
            raise RuntimeError("the sandbox's server is not running")
        host, port = self._server.server_address[:2]
        shown = host.decode() if isinstance(host, (bytes, bytearray)) else str(host)
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(shown, f"[{shown}]" if ":" in shown else shown)  # noqa: S104
        return f"http://{shown}:{port}"

    def start(self) -> SandboxServer:
        """Listen and serve in background threads. Raises OSError if the port is in use."""
        if self._server is not None:
            raise RuntimeError("the sandbox's server is running already")
        if not settings.configured and ENVIRONMENT_VARIABLE not in os.environ:
            settings.configure(USE_I18N=False)  # Django's defaults are enough for a process without settings
        self.engine.gateway.closing.clear()
        application = SandboxApplication(self.engine, loopback_only=is_loopback(self._address[0]))
        self._server = SandboxTCPServer(self._address, application)
        if self.engine.base_url is None:
            self.engine.base_url = self.url
            self._owns_base_url = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, name="payments-sandbox", daemon=True
        )
        self._thread.start()
        if self._deliver:
            self.engine.start_scheduler()
        return self

    def stop(self) -> None:
        """Stop delivering and serving, close open connections and join every thread. Does nothing if not running."""
        if self._server is None or self._thread is None:
            return
        self.engine.gateway.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.close_all()
        if self._deliver:
            self.engine.stop_scheduler()
        self._server = self._thread = None
        if self._owns_base_url:
            self.engine.base_url = None
            self._owns_base_url = False

    def __enter__(self) -> SandboxServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


class UnreadableBodyError(Exception):
    """The request's body is not valid HTTP."""


class SandboxTCPServer(TCPServer):
    """A server with one daemon thread per connection. All connections can be closed and all threads joined."""

    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], application: SandboxApplication) -> None:
        self.application = application
        self._connections_lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._to_reset: set[socket.socket] = set()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, SandboxRequestHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a new connection in a thread."""
        thread = threading.Thread(
            target=self._serve, args=(request, client_address), name="payments-sandbox-connection", daemon=True
        )
        with self._connections_lock:
            self._connections[request] = thread
        thread.start()

    def reset(self, connection: socket.socket) -> None:
        """End this connection with a TCP reset."""
        with self._connections_lock:
            self._to_reset.add(connection)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, with a TCP reset if it was marked for one."""
        with self._connections_lock:
            resetting = request in self._to_reset
            self._to_reset.discard(request)
        if resetting:
            request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            request.close()
        else:
            super().shutdown_request(request)

    def close_all(self) -> None:
        """Stop listening, close every connection and join its thread."""
        self.server_close()
        with self._connections_lock:
            connections = dict(self._connections)
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # the client has closed the connection
        for thread in connections.values():
            thread.join()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log errors, unless a client has closed the connection."""
        if not isinstance(sys.exc_info()[1], OSError):
            logger.exception("A connection to the sandbox failed")

    def _serve(self, request: socket.socket, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except Exception:
            self.handle_error(request, client_address)
        finally:
            self.shutdown_request(request)
            with self._connections_lock:
                del self._connections[request]


class SandboxRequestHandler(BaseHTTPRequestHandler):
    """The requests of one connection, one after the other."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    timeout = IDLE_SECONDS
    server: SandboxTCPServer

    def handle_one_request(self) -> None:
        """Read and answer one request, and apply a connection fault."""
        try:
            self.raw_requestline = self.rfile.readline(65_537)
            if not self.raw_requestline:
                self.close_connection = True
                return
            if len(self.raw_requestline) > 65_536 or not self.parse_request():
                self.close_connection = True
                return
            body = self._read_body()
        except UnreadableBodyError as error:
            self.close_connection = True
            self.send_error(400, str(error))
            return
        except TimeoutError:
            self.close_connection = True
            return
        environ = self._environ(body)
        answered: list[Any] = []
        content = b"".join(
            self.server.application(environ, lambda status, headers: answered.extend((status, headers)))
        )
        self._write(answered[0], answered[1], content, environ.get(CONNECTION_FAULT_KEY))

    def finish(self) -> None:
        """Close both streams, and ignore errors if the client has closed the connection."""
        for stream in (self.wfile, self.rfile):
            with suppress(OSError):
                stream.close()

    def handle_expect_100(self) -> bool:
        """Send ``100 Continue`` without delay."""
        proceed = super().handle_expect_100()
        self.wfile.flush()
        return proceed

    def log_message(self, format: str, *args: Any) -> None:
        """Log at debug level, not to stderr."""
        logger.debug(format, *args)

    # reading

    def _read_body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return self._read_chunks()
        text = self.headers.get("Content-Length", "0").strip()
        if not text.isascii() or not text.isdigit():
            raise UnreadableBodyError("Content-Length is not a number")
        length = int(text)
        kept = self._read_exactly(min(length, KEEP_BYTES))
        self._drain(length - len(kept))
        return kept

    def _read_exactly(self, count: int) -> bytes:
        data = self.rfile.read(count)
        if len(data) < count:
            raise UnreadableBodyError("the body is shorter than its Content-Length")
        return data

    def _drain(self, count: int) -> None:
        if count > DRAIN_BYTES:
            self.close_connection = True
            return
        while count > 0:
            count -= len(self._read_exactly(min(count, 65_536)))

    def _read_chunks(self) -> bytes:
        kept = bytearray()
        total = 0
        while True:
            size_text = self.rfile.readline(1_024).split(b";")[0].strip()
            try:
                size = int(size_text, 16)
            except ValueError as error:
                raise UnreadableBodyError("a chunk has no size") from error
            total += size
            if size < 0 or total > DRAIN_BYTES:
                raise UnreadableBodyError("the chunks are too large")
            chunk = self._read_exactly(size)
            kept += chunk[: max(0, KEEP_BYTES - len(kept))]
            while (line := self.rfile.readline(1_024)) not in (b"\r\n", b"\n", b""):
                if size:
                    raise UnreadableBodyError(f"a chunk is followed by {line[:20]!r}")
            if size == 0:
                return bytes(kept)

    def _environ(self, body: bytes) -> dict[str, Any]:
        path, _, query = self.path.partition("?")
        environ: dict[str, Any] = {
            "REQUEST_METHOD": self.command,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
            "QUERY_STRING": query,
            "SERVER_NAME": str(self.server.server_address[0]),
            "SERVER_PORT": str(self.server.server_address[1]),
            "SERVER_PROTOCOL": self.request_version,
            "REMOTE_ADDR": self.client_address[0],
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(body),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            "payments_sandbox.server": True,
        }
        for name, value in self.headers.items():
            key = name.upper().replace("-", "_")
            if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
                environ[f"HTTP_{key}"] = value
        return environ

    # writing

    def _write(
        self, status: str, headers: list[tuple[str, str]], content: bytes, fault: ConnectionFault | None
    ) -> None:
        if fault is not None and fault.kind == "reset":
            self.close_connection = True
            # Send a few bytes first. A client may repeat a request by itself if its connection ends before the first
            # byte of the answer.
            with suppress(OSError):
                self.wfile.write(b"HTTP/1.1 ")
                self.wfile.flush()
            self.server.reset(self.connection)
            return
        code, _, reason = status.partition(" ")
        self.send_response_only(int(code), reason)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection or (fault is not None and fault.kind == "truncate"):
            self.close_connection = True
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command == "HEAD":
            content = b""
        if fault is not None and fault.kind == "truncate":
            content = content[: len(content) // 2]
        if fault is not None and fault.kind == "drip":
            self._drip(content, fault)
        else:
            self.wfile.write(content)
        self.wfile.flush()

    def _drip(self, content: bytes, fault: ConnectionFault) -> None:
        closing = self.server.application.engine.gateway.closing
        size = max(1, -(-len(content) // max(1, fault.count)))
        for start in range(0, len(content), size):
            self.wfile.flush()
            closing.wait(fault.delay)
            self.wfile.write(content[start : start + size])
