"""A threaded HTTP/1.1 server for the sandbox, whose connections can be cut on purpose."""

from __future__ import annotations

import threading
from types import TracebackType

from .application import SandboxApplication
from .engine import Engine
from .sockets import SandboxTCPServer


class SandboxServer:
    """Serves an engine on a port of this machine (0: a free one) and delivers its events, until stopped.

    ``deliver=False`` leaves deliveries and timers to ``engine.deliver_due()`` and ``engine.tick()``. Stopping
    joins every thread. Use it as a context manager or with start() and stop().
    """

    def __init__(self, engine: Engine, host: str = "127.0.0.1", port: int = 0, *, deliver: bool = True) -> None:
        self.engine = engine
        self._address = (host, port)
        self._deliver = deliver
        self._server: SandboxTCPServer | None = None
        self._thread: threading.Thread | None = None
        self._gave_base_url = False

    @property
    def url(self) -> str:
        """The address, such as ``http://127.0.0.1:4567``, without ``/v1``. Only while it runs."""
        if self._server is None:
            raise RuntimeError("the sandbox's server is not running")
        host, port = self._server.server_address[:2]
        shown = host.decode() if isinstance(host, (bytes, bytearray)) else str(host)
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(shown, f"[{shown}]" if ":" in shown else shown)  # noqa: S104
        return f"http://{shown}:{port}"

    def start(self) -> SandboxServer:
        """Listen and serve in threads of its own. Raises OSError when the port is taken."""
        if self._server is not None:
            raise RuntimeError("the sandbox's server is running already")
        self.engine.gateway.closing.clear()
        self._server = SandboxTCPServer(self._address, SandboxApplication(self.engine))
        if self.engine.base_url is None:
            self.engine.base_url = self.url
            self._gave_base_url = True
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.02},
            name="payments-sandbox",
            daemon=True,
        )
        self._thread.start()
        if self._deliver:
            self.engine.start_pump()
        return self

    def stop(self) -> None:
        """Stop delivering and serving, cut open connections, and join every thread. Does nothing when not running."""
        if self._server is None or self._thread is None:
            return
        self.engine.gateway.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.close_all()
        if self._deliver:
            self.engine.stop_pump()
        self._server = self._thread = None
        if self._gave_base_url:
            self.engine.base_url = None
            self._gave_base_url = False

    def __enter__(self) -> SandboxServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
