"""An egress proxy: CONNECT, with or without a password, or an answer of another kind."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.unit.client.loopback import Loopback, Script, loopback


@contextmanager
def proxy(password: str = "") -> Iterator[Loopback]:
    """``password``: what Proxy-Authorization must have, encoded."""

    def connect(connection: socket.socket) -> None:
        request = server.requests[-1].decode()
        if password and f"Proxy-Authorization: Basic {password}" not in request:
            connection.sendall(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")
            return
        host, _, port = request.split()[1].partition(":")
        with socket.create_connection((host, int(port)), timeout=30) as other:
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            back = threading.Thread(target=pass_on, args=(other, connection))
            back.start()
            pass_on(connection, other)
            back.join(30)

    script: Script = connect
    with loopback(script) as server:
        yield server


def pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
