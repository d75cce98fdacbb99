"""A way to the broker on which connections can die without a word, as over a firewall or after a failover."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType


class Proxy:
    """Listens on its own port and passes everything on, until :meth:`silence` or :meth:`cut`."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._silent: set[socket.socket] = set()
        self._is_cut = False
        self._threads: list[threading.Thread] = []

    def silence(self) -> int:
        """The connections that there are stay open and carry nothing any more; returns how many. New ones work."""
        alive = {connection for connection in self._open if connection.fileno() >= 0}
        self._silent |= alive
        return len(alive) // 2

    def cut(self) -> None:
        """New connections carry nothing either, until :meth:`mend`."""
        self._is_cut = True
        self.silence()

    def mend(self) -> None:
        self._is_cut = False

    def lead_to(self, target: int) -> None:
        """New connections go there from now on."""
        self._target = target

    def __enter__(self) -> Proxy:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for opened in (self._listener, *self._open):
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()
        for thread in self._threads:
            thread.join(5)

    def _start(self, run: object, *arguments: object) -> None:
        assert callable(run)
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            except OSError:
                client.close()
                continue
            broker.settimeout(None)
            self._open += [client, broker]
            if self._is_cut:
                self._silent |= {client, broker}
            self._start(self._pass_on, client, broker)
            self._start(self._pass_on, broker, client)

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if source not in self._silent:
                    sink.sendall(data)
        if source not in self._silent:
            with suppress(OSError):
                sink.shutdown(socket.SHUT_RDWR)
