"""A server that sends exact bytes, including malformed answers that no HTTP library would send."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Script = Callable[[socket.socket], None]


class Loopback:
    """Reads the requests of each connection and lets the script answer them."""

    def __init__(self, script: Script, context: ssl.SSLContext | None = None) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self._script = script
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}" if context is None else f"https://localhost:{self.port}"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        # The client hangs up in the middle of many of these answers.
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.enter_context(connection)
            if self._context is not None:
                connection.settimeout(30)
                connection = stack.enter_context(self._context.wrap_socket(connection, server_side=True))
                self._open.append(connection)
            while request := read_request(connection):
                self.requests.append(request)
                self._script(connection)

    def wait_until_it_has_hung_up(self) -> None:
        """Close every connection, so that the next request on one fails."""
        end = time.monotonic() + 30
        while any(connection.fileno() >= 0 for connection in self._open):
            assert time.monotonic() < end, "it still listens to somebody"
            time.sleep(0.002)

    def close_listener(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def close(self) -> None:
        self.close_listener()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)


@contextmanager
def loopback(script: Script, context: ssl.SSLContext | None = None) -> Iterator[Loopback]:
    server = Loopback(script, context)
    try:
        yield server
    finally:
        server.close()


def read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = connection.recv(65536)
        if not chunk:
            return b""
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.splitlines() if line.lower().startswith(b"content-length:")),
        0,
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def http(body: bytes = b'{"data": []}', status: str = "200 OK", *headers: str, length: int | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def in_turn(*scripts: Script) -> Script:
    """The first request gets the first script, whatever its connection; the last one repeats."""
    left = list(scripts)

    def script(connection: socket.socket) -> None:
        (left.pop(0) if len(left) > 1 else left[0])(connection)

    return script


def sends(data: bytes) -> Script:
    return lambda connection: connection.sendall(data)


def hangs_up_after(data: bytes) -> Script:
    def script(connection: socket.socket) -> None:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_RDWR)

    return script


def resets_after(data: bytes) -> Script:
    def script(connection: socket.socket) -> None:
        connection.sendall(data)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        raise ConnectionResetError

    return script


def drips(data: bytes, at_once: int, pause: float = 0.1) -> Script:
    """Send the first bytes at once and the others one by one."""

    def script(connection: socket.socket) -> None:
        connection.sendall(data[:at_once])
        for index in range(at_once, len(data)):
            time.sleep(pause)
            connection.sendall(data[index : index + 1])

    return script


def is_silent_after(data: bytes, seconds: float = 60.0) -> Script:
    def script(connection: socket.socket) -> None:
        connection.sendall(data)
        connection.settimeout(seconds)
        connection.recv(1)

    return script
