"""Look up hosts within a deadline, and tell this machine's addresses from others."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Any

from urllib3.util.connection import allowed_gai_family

#: An entry of ``socket.getaddrinfo``.
Address = tuple[Any, Any, int, str, Any]


class Resolver:
    """Looks up hosts in threads, and gives up a thread at the deadline: no timeout ends a lookup.

    Callers of the same host share a thread, so that slow lookups do not pile up.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lookups: dict[tuple[str, int], _Lookup] = {}

    def addresses(self, host: str, port: int, left: Callable[[], float]) -> list[Address]:
        """Return every address of the host. Raises OSError (TimeoutError at the deadline), or UnicodeError.

        ``left`` returns the seconds until the deadline.
        """
        if _is_numeric(host):
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        with self._lock:
            lookup = self._lookups.get((host, port))
            if lookup is None or lookup.is_over.is_set():
                lookup = _Lookup(host, port)
                lookup.start()
                self._lookups[host, port] = lookup
        if not lookup.is_over.wait(left()):
            raise TimeoutError("timed out")
        if lookup.error is not None:
            raise type(lookup.error)(*lookup.error.args)
        return lookup.found


class _Lookup(threading.Thread):
    def __init__(self, host: str, port: int) -> None:
        super().__init__(name="payments_integration-lookup", daemon=True)
        self.is_over = threading.Event()
        self.found: list[Address] = []
        self.error: OSError | UnicodeError | None = None
        self._asked = host, port

    def run(self) -> None:
        try:
            self.found = socket.getaddrinfo(*self._asked, allowed_gai_family(), socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            self.error = error
        finally:
            self.is_over.set()


def is_loopback(address: Address) -> bool:
    """Return True if the address is this machine."""
    ip = ip_address(address[4][0].partition("%")[0])
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return (mapped or ip).is_loopback


def _is_numeric(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
