"""Look up hosts within a deadline, and tell this machine's addresses from others."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import Future
from ipaddress import IPv6Address, ip_address
from threading import Lock, Thread
from typing import Any

from urllib3.util.connection import allowed_gai_family

#: An entry of ``socket.getaddrinfo``.
Address = tuple[Any, Any, int, str, Any]


class Resolver:
    """Looks up hosts in threads, and gives up a thread at the deadline: no timeout ends a lookup.

    Callers of the same host share a thread, so that slow lookups do not pile up.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._lookups: dict[tuple[str, int], Future[list[Address]]] = {}

    def addresses(self, host: str, port: int, left: Callable[[], float]) -> list[Address]:
        """Return every address of the host. Raises OSError (TimeoutError at the deadline), or UnicodeError.

        ``left`` returns the seconds until the deadline.
        """
        if _is_numeric(host):
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        with self._lock:
            lookup = self._lookups.get((host, port))
            if lookup is None or lookup.done():
                lookup, name = Future(), "payments_integration-lookup"
                # An executor would keep the process from ending until its threads end.
                Thread(target=_look_up, args=(host, port, lookup), name=name, daemon=True).start()
                self._lookups[host, port] = lookup
        error = lookup.exception(left())
        if error is not None:
            # A copy: the traceback's frames hold each caller's request, and the lookup is kept until the next one.
            raise type(error)(*error.args)
        return lookup.result()


def _look_up(host: str, port: int, found: Future[list[Address]]) -> None:
    try:
        found.set_result(socket.getaddrinfo(host, port, allowed_gai_family(), socket.SOCK_STREAM))
    except Exception as error:
        found.set_exception(error)


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
