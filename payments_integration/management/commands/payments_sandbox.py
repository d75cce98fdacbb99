"""``payments_sandbox``: run the provider's sandbox as a process."""

from __future__ import annotations

import signal
import threading
from argparse import ArgumentTypeError
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from payments_integration import conf
from payments_integration.sandbox import Engine, RateLimits, SandboxError, SandboxServer
from payments_integration.sandbox.engine import DEFAULT_API_KEY, DEFAULT_FUNDS


def funding(text: str) -> tuple[str, int]:
    """``CLP=100000`` as a currency and minor units."""
    currency, separator, amount = text.partition("=")
    if not separator or not amount.isascii() or not amount.isdigit():
        raise ArgumentTypeError("give CURRENCY=AMOUNT with the amount in minor units, such as CLP=100000")
    return currency.upper(), int(amount)


class Command(BaseCommand):
    """Serves until Ctrl-C or SIGTERM. Uses no database and needs no migrations."""

    help = "Serves a complete fake of the payment provider, in memory, until Ctrl-C or SIGTERM."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """The options; all have defaults."""
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
        parser.add_argument("--port", type=int, default=8400, help="port to listen on; 0 picks a free one (8400)")
        parser.add_argument("--public-url", help="address in checkout links, when it differs from host and port")
        parser.add_argument("--api-key", default=DEFAULT_API_KEY, help=f"the API key ({DEFAULT_API_KEY})")
        parser.add_argument("--webhook-url", help="register an endpoint there for all events")
        parser.add_argument(
            "--webhook-secret",
            help="its signing secret (the project's first; otherwise a random one, which is printed)",
        )
        parser.add_argument(
            "--auto-progress", type=float, default=1.0, metavar="SECONDS",
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
        parser.add_argument("--seed", type=int, default=0, help="seed of the random faults (0)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Start, print the URL and keys, and wait for a signal."""
        if options["webhook_secret"] and not options["webhook_url"]:
            raise CommandError("--webhook-secret needs --webhook-url")
        step = options["auto_progress"]
        try:
            engine = Engine(
                options["api_key"],
                auto_progress=None if step < 0 else step,
                rate_limits=RateLimits(enforced=not options["no_rate_limits"]),
                seed=options["seed"],
                base_url=options["public_url"],
                funds=dict(options["fund"] or DEFAULT_FUNDS),
            )
        except SandboxError as error:
            raise CommandError(str(error)) from error
        secret = None
        if options["webhook_url"]:
            own = None if options["webhook_secret"] else _secret_of(options["api_key"])
            added = engine.add_endpoint(options["webhook_url"], secret=options["webhook_secret"] or own)
            secret = f"the first of WEBHOOK_SECRETS in {conf.NAME}" if own else added["secret"]

        stopping = threading.Event()
        before = {
            number: signal.signal(number, lambda *_: stopping.set()) for number in (signal.SIGINT, signal.SIGTERM)
        }
        server = SandboxServer(engine, options["host"], options["port"])
        try:
            server.start()
            self._print_welcome(server.url, options["api_key"], options["webhook_url"], secret)
            # On some platforms signal handlers do not run during a wait without a timeout.
            while not stopping.wait(0.5):
                pass
        except OSError as error:
            raise CommandError(f"cannot listen on {options['host']}:{options['port']}: {error}") from error
        finally:
            server.stop()
            for number, handler in before.items():
                signal.signal(number, handler)
        self.stdout.write("Stopped.")

    def _print_welcome(self, url: str, api_key: str, webhook_url: str | None, secret: str | None) -> None:
        lines = [
            "The payments sandbox is running. Everything is in memory; Ctrl-C stops it.",
            "",
            f"  Base URL   {url}   (the API is under {url}/v1)",
            f"  API key    {api_key}",
            f"  Overview   {url}/",
        ]
        if webhook_url:
            lines += [f"  Webhook    {webhook_url}", f"  Secret     {secret}"]
        lines += [
            "",
            "Try it:",
            "",
            f"  curl {url}/v1/payments -H 'Authorization: Bearer {api_key}' \\",
            "    -H 'Content-Type: application/json' -H \"Idempotency-Key: $(date +%s%N)\" \\",
            '    -d \'{"amount": 1250, "currency": "CLP", "country": "CL", "method_code": "cl_khipu"}\'',
        ]
        self.stdout.write("\n".join(lines))
        self.stdout.flush()


def _secret_of(api_key: str) -> str | None:
    """The webhook secret of the project's account with this API key, so that deliveries are accepted at once."""
    try:
        accounts = conf.current().ACCOUNTS.values()
    except ImproperlyConfigured:
        return None
    return next(
        (found.webhook_secrets[0] for found in accounts if found.api_key == api_key and found.webhook_secrets), None
    )
