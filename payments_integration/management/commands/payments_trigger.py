"""``payments_trigger``: have the sandbox make an object and send an event."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import requests
from django.core.management import BaseCommand, CommandError

from payments_integration import conf
from payments_integration.management.arguments import EXIT_UNREACHABLE, chosen_accounts
from payments_integration.sandbox import ApiError
from payments_integration.sandbox.trigger import parse_assignments
from payments_integration.validation.urls import LOOPBACK_HOSTS, is_base_url

TIMEOUT = 30


class Command(BaseCommand):
    help = (
        "Has the sandbox make an object and lead it to an event, through the states on the way. Only for a sandbox on "
        "this machine."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("event", help="event type, such as payment.succeeded")
        parser.add_argument(
            "--set", action="append", default=[], metavar="KEY=VALUE", dest="values",
            help="a field of the request that makes the object, such as amount=11980 or payer.email=ana@example.cl; "
            "repeat the option for more. A value that is JSON is what it says, any other is a text: write "
            "payer.document.number='\"11\"' for a text of digits",
        )  # fmt: skip
        parser.add_argument("--object", help="id of an object that exists: only the change to this event")
        where = parser.add_mutually_exclusive_group()
        where.add_argument(
            "--account",
            default=conf.DEFAULT_ACCOUNT,
            help="alias of the account whose BASE_URL is the sandbox (default)",
        )
        where.add_argument("--url", help="address of the sandbox; its first project is used")

    def handle(self, *args: Any, **options: Any) -> None:
        url, headers = self._sandbox(options)
        body: dict[str, Any] = {"event": options["event"]}
        try:
            if values := parse_assignments(options["values"]):
                body["set"] = values
        except ApiError as error:
            name = "--set" if error.param == "set" else f"--set {error.param}"
            raise CommandError(f"{name}: {error.message}", returncode=2) from None
        if options["object"]:
            body["object"] = options["object"]
        found = self._post(url, body, headers)
        item = found["object"]
        self.stdout.write(f"{item.get('id', item['object'])}  {item.get('status', item['currency'])}")
        for event in found["events"]:
            self.stdout.write(
                f"{event['type']:<24} {event['data'].get('id', event['data']['currency'])}  {event['id']}"
            )
        if not found["endpoints"]:
            self.stderr.write(
                self.style.WARNING(
                    "No webhook endpoint of the sandbox takes this event. Read it with payments_listen, or make an "
                    "endpoint: payments_endpoints create, or payments_sandbox --webhook-url."
                )
            )

    def _sandbox(self, options: dict[str, Any]) -> tuple[str, dict[str, str]]:
        """The address, and the header that names the account's project. A key is sent to its own BASE_URL only."""
        if options["url"]:
            return _loopback(options["url"], "--url"), {}
        (alias,) = chosen_accounts(options["account"])
        account = conf.account(alias)
        where = f'The BASE_URL of account "{alias}"'
        return _loopback(account.base_url, where), {"Authorization": f"Bearer {account.api_key}"}

    def _post(self, url: str, body: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
        """The sandbox's answer. Raises CommandError with the field that it refuses."""
        try:
            with requests.Session() as session:
                session.trust_env = False  # no proxy between us and this machine
                answer = session.post(
                    f"{url}/_sandbox/trigger", json=body, headers=headers, timeout=TIMEOUT, allow_redirects=False
                )
            data = answer.json()
        except requests.JSONDecodeError:
            raise CommandError(f"{url} is not a sandbox of this version: it answers {answer.status_code}.") from None
        except requests.RequestException as error:
            message = f"The sandbox at {url} does not answer. Start it with payments_sandbox. ({type(error).__name__})"
            raise CommandError(message, returncode=EXIT_UNREACHABLE) from None
        if answer.status_code == 200 and isinstance(data, dict) and "events" in data:
            return data
        refusal = data.get("error") if isinstance(data, dict) else None
        if not isinstance(refusal, dict):
            raise CommandError(f"{url} is not a sandbox of this version: it answers {answer.status_code}.")
        field = f"{refusal['param']}: " if refusal.get("param") else ""
        raise CommandError(f"{field}{refusal.get('message')} ({refusal.get('code')})")


def _loopback(url: str, where: str) -> str:
    """The address if it is this machine. Raises CommandError: nothing may be triggered at the real provider."""
    if not is_base_url(url) or urlsplit(url).hostname not in LOOPBACK_HOSTS:
        raise CommandError(
            f"{where} is {url}, not a sandbox on this machine such as http://127.0.0.1:8400. "
            "Start one with payments_sandbox, and point BASE_URL or --url at it.",
            returncode=2,
        )
    return url.rstrip("/")
