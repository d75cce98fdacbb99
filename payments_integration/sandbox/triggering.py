"""``payments-sandbox trigger``: let a running sandbox make an object and send an event."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from urllib.parse import urlsplit

import requests

from .command import DEFAULT_PORT, CommandFailedError, Output
from .protocol import ApiError, Json
from .trigger import parse_assignments
from .validation import is_loopback, is_web_url

TIMEOUT = 30
#: Exit codes for a wrong argument and for a sandbox that does not answer.
EXIT_USAGE, EXIT_UNREACHABLE = 2, 4


def add_trigger_arguments(parser: ArgumentParser) -> None:
    """Add the arguments for the event and the object."""
    parser.add_argument("event", help="event type, such as payment.succeeded")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="values",
        help="a field of the request that makes the object, such as amount=11980 or payer.email=ana@example.cl; "
        "repeat the option for more. A value that is JSON is what it says, any other is a text: write "
        "payer.document.number='\"11\"' for a text of digits",
    )  # fmt: skip
    parser.add_argument("--object", help="id of an object that exists: only the change to this event")


def add_sandbox_arguments(parser: ArgumentParser) -> None:
    """Add the arguments for the sandbox and its project."""
    parser.add_argument(
        "--url", default=f"http://127.0.0.1:{DEFAULT_PORT}", help="address of the sandbox (http://127.0.0.1:8400)"
    )
    parser.add_argument("--api-key", metavar="KEY", help="an API key of the project (the first project)")


def trigger(options: Namespace, output: Output) -> Sequence[str]:
    """Trigger, print what happened, and return the ids of the endpoints that take the event.

    Raises CommandFailedError.
    """
    url = options.url.rstrip("/")
    if not is_web_url(url) or not is_loopback(urlsplit(url).hostname or ""):
        raise CommandFailedError(
            f"--url is {options.url}, not a sandbox on this machine such as http://127.0.0.1:{DEFAULT_PORT}",
            EXIT_USAGE,
        )
    return run(url, options, {"Authorization": f"Bearer {options.api_key}"} if options.api_key else {}, output)


def run(url: str, options: Namespace, headers: dict[str, str], output: Output) -> Sequence[str]:
    """Do the same for an address that is already checked. ``headers`` may name the project."""
    found = _post(url, options, headers)
    item = found["object"]
    output.write(f"{item.get('id', item['object'])}  {item.get('status', item['currency'])}\n")
    for event in found["events"]:
        about = event["data"].get("id", event["data"]["currency"])
        output.write(f"{event['type']:<24} {about}  {event['id']}\n")
    endpoints: list[str] = found["endpoints"]
    return endpoints


def _post(url: str, options: Namespace, headers: dict[str, str]) -> Json:
    """Return the answer of the sandbox. Raises CommandFailedError, which names a refused field."""
    body: Json = {"event": options.event}
    try:
        if values := parse_assignments(options.values):
            body["set"] = values
    except ApiError as error:
        name = "--set" if error.param == "set" else f"--set {error.param}"
        raise CommandFailedError(f"{name}: {error.message}", EXIT_USAGE) from None
    if options.object:
        body["object"] = options.object
    try:
        with requests.Session() as session:
            session.trust_env = False  # no proxy between us and this machine
            answer = session.post(
                f"{url}/_sandbox/trigger", json=body, headers=headers, timeout=TIMEOUT, allow_redirects=False
            )
        data = answer.json()
    except requests.JSONDecodeError:
        raise CommandFailedError(_is_none(url, answer)) from None
    except requests.RequestException as error:
        message = f"The sandbox at {url} does not answer. Start it with payments-sandbox. ({type(error).__name__})"
        raise CommandFailedError(message, EXIT_UNREACHABLE) from None
    if answer.status_code == 200 and isinstance(data, dict) and "events" in data:
        return data
    refusal = data.get("error") if isinstance(data, dict) else None
    if not isinstance(refusal, dict):
        raise CommandFailedError(_is_none(url, answer))
    field = f"{refusal['param']}: " if refusal.get("param") else ""
    raise CommandFailedError(f"{field}{refusal.get('message')} ({refusal.get('code')})")


def _is_none(url: str, answer: requests.Response) -> str:
    return f"{url} is not a sandbox of this version: it answers {answer.status_code}."
