"""Run the sandbox as a process, with the options of ``payments-sandbox`` and ``manage.py payments_sandbox``."""

from __future__ import annotations

import errno
import math
import os
import signal
import threading
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from .common_rules import RateLimits
from .engine import DEFAULT_API_KEY, DEFAULT_FUNDS, Engine
from .live_log import LiveLog
from .protocol import Json
from .resources import SandboxError
from .server import SandboxServer
from .state import StateError, StateFile

DEFAULT_PORT = 8400
#: If a port is in use, this many ports after it are tried.
OTHER_PORTS = 20


class CommandFailedError(Exception):
    """The command failed. The text says why, and ``code`` is the exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def port(text: str) -> int:
    """Parse a port number; 0 means a free one."""
    if not text.isascii() or not text.isdigit() or int(text) > 65_535:
        raise ArgumentTypeError("give a port from 0 to 65535; 0 picks a free one")
    return int(text)


def seconds(text: str) -> float:
    """Parse a finite number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ArgumentTypeError("give a number of seconds, such as 0.5")
    return number


def funding(text: str) -> tuple[str, int]:
    """Parse ``CLP=100000`` into a currency and minor units."""
    currency, separator, amount = text.partition("=")
    if not separator or not amount.isascii() or not amount.isdigit():
        raise ArgumentTypeError("give CURRENCY=AMOUNT with the amount in minor units, such as CLP=100000")
    return currency.upper(), int(amount)


def add_options(parser: ArgumentParser) -> None:
    """Add the options. All have defaults."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument(
        "--port", type=port, default=DEFAULT_PORT,
        help="port to listen on, or the next free one if it is in use; 0 picks any free one (in a project that of the "
        f"account's BASE_URL; {DEFAULT_PORT})",
    )  # fmt: skip
    parser.add_argument("--public-url", metavar="URL", help="address in checkout links, when it differs")
    parser.add_argument("--api-key", metavar="KEY", help=f"the API key ({DEFAULT_API_KEY})")
    parser.add_argument("--webhook-url", metavar="URL", help="register an endpoint there for all events")
    parser.add_argument(
        "--webhook-secret", metavar="SECRET",
        help="its signing secret (a random one, which is printed; in a project the first of WEBHOOK_SECRETS of the "
        "account with this API key)",
    )  # fmt: skip
    parser.add_argument(
        "--state", type=Path, metavar="FILE",
        help="keep everything in this file, and go on from it at the next start (memory only)",
    )  # fmt: skip
    parser.add_argument(
        "--auto-progress", type=seconds, default=1.0, metavar="SECONDS",
        help="seconds per step of payouts and refunds; a negative number: only on request (1)",
    )  # fmt: skip
    parser.add_argument(
        "--fund", type=funding, action="append", metavar="CURRENCY=AMOUNT",
        help="start with this balance, in minor units, and none in other currencies; may be given several times "
        "(some money in every currency)",
    )  # fmt: skip
    parser.add_argument(
        "--no-rate-limits", action="store_true", help="send the rate limit headers, but refuse no request"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print no line for each request and delivery")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random faults (0)")


class Output(Protocol):
    """Standard output, or Django's replacement for it."""

    def write(self, text: str, /) -> object: ...
    def flush(self) -> object: ...
    def fileno(self) -> int: ...


def serve(options: Namespace, output: Output, style: Any) -> None:
    """Serve until SIGINT or SIGTERM, and print what happens, coloured in Django's ``style``.

    Raises CommandFailedError if it cannot start, or cannot save its state.
    """
    stopping = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopping.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    log, last = LiveLog(partial(_print, output), style), ""
    try:
        server = start(options, output, None if options.quiet else log)
        # On some platforms signal handlers do not run during a wait without a timeout.
        while not stopping.wait(0.5):
            pass
        server.stop()
        if problem := server.engine.checkpoint(True):
            raise CommandFailedError(problem)
        last = "Stopped.\n"
    finally:
        log.stop(last)
        for number, handler in before.items():
            signal.signal(number, handler)


def start(options: Namespace, output: Output, log: LiveLog | None = None) -> SandboxServer:
    """Start a server with these options, print its welcome and return it. Raises CommandFailedError."""
    if options.webhook_secret and not options.webhook_url:
        raise CommandFailedError("--webhook-secret needs --webhook-url")
    try:
        engine = Engine(
            options.api_key or DEFAULT_API_KEY,
            auto_progress=None if options.auto_progress < 0 else options.auto_progress,
            rate_limits=RateLimits(enforced=not options.no_rate_limits),
            seed=options.seed,
            base_url=options.public_url,
            funds=dict(options.fund or DEFAULT_FUNDS),
        )
        if options.state:
            StateFile(options.state, engine).open()
    except (SandboxError, StateError) as error:
        raise CommandFailedError(str(error)) from error
    api_key = engine.default_project.api_key
    if options.api_key not in (None, api_key):
        raise CommandFailedError(
            f"the API key in {options.state} is {api_key}: leave out --api-key, or name another file"
        )
    if log is not None:
        engine.gateway.watcher, engine.outlet.watcher = log.request, log.delivery
    server = _listening(engine, options)
    endpoint = _endpoint(engine, options.webhook_url, options.webhook_secret) if options.webhook_url else None
    if problem := engine.checkpoint(True):
        server.stop()
        raise CommandFailedError(problem)
    _print(output, _welcome(server.url, api_key, endpoint, options))
    return server


def _listening(engine: Engine, options: Namespace) -> SandboxServer:
    """Start a server on the port or on the next free one, and return it. Raises CommandFailedError.

    With a public address or a file of an earlier run, only this port is tried: links contain it, and the process that
    has the port may be another sandbox with the same file.
    """
    number = options.port
    is_fixed = bool(options.state or options.public_url or not number)
    last = number if is_fixed else min(number + OTHER_PORTS, 65_535)
    while True:
        try:
            return SandboxServer(engine, options.host, number).start()
        except OSError as error:
            if error.errno != errno.EADDRINUSE or number == last:
                raise CommandFailedError(
                    f"cannot listen on {options.host}:{number}: {error.strerror or error}. "
                    "Choose another port with --port; 0 picks a free one."
                ) from error
        number += 1


def _endpoint(engine: Engine, url: str, secret: str | None) -> Json:
    """Return the endpoint with this address, from an earlier run or a new one. A reset creates it again."""
    with engine.lock:
        endpoints = engine.default_project.state.endpoints
        endpoint = next((found for found in endpoints.by_id.values() if found.url == url), None)
        endpoint = endpoint or endpoints.add(url)
        endpoint.secret = secret or endpoint.secret
        engine.first_endpoint = url, endpoint.secret
        return endpoint.wire(with_secret=True)


def _print(output: Output, text: str) -> None:
    """Print at once. Ignore a reader that has gone: ``head`` after the first lines, or a closed terminal."""
    try:
        output.write(text)
        output.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, output.fileno())
        os.close(nowhere)


def _welcome(url: str, api_key: str, endpoint: Json | None, options: Namespace) -> str:
    memory = "Everything is in memory (--state FILE keeps it)"
    place = f"It keeps everything in {options.state}" if options.state else memory
    number = urlsplit(url).port
    lines = [f"The payments sandbox is running. {place}; Ctrl-C stops it.", ""]
    if options.port not in (0, number):
        lines += [f"Port {options.port} is in use, so it listens on {number}. Put the first line into your .env:", ""]
    lines += [
        f"PAYMENTS_BASE_URL={url}",
        f"PAYMENTS_API_KEY={api_key}",
    ]
    if endpoint is not None and not options.webhook_secret:  # a person who gave a secret knows it
        lines.append(f"PAYMENTS_WEBHOOK_SECRETS={endpoint['secret']}")
    lines += [
        "",
        f"The API is under {url}/v1, an overview at {url}/. Try it:",
        "",
        f"  curl {url}/v1/payments -H 'Authorization: Bearer {api_key}' \\",
        "    -H 'Content-Type: application/json' -H \"Idempotency-Key: $(date +%s%N)\" \\",
        '    -d \'{"amount": 1250, "currency": "CLP", "country": "CL", "method_code": "cl_khipu"}\'',
    ]
    if endpoint is not None:
        lines += ["", f"Deliveries go to {endpoint['url']}"]
    return "\n".join(lines) + "\n"
