"""What a person sees of a command: how far it is, what it did, and in which colours."""

from __future__ import annotations

import io
import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from payments_integration import services
from payments_integration.management import progress
from payments_integration.management.commands.payments_health import Command
from payments_integration.management.progress import Progress
from payments_integration.models import Operation
from payments_integration.sandbox import Fault
from payments_integration.testing import ProviderSandbox
from tests.conftest import Receiver
from tests.factories import rows

pytestmark = pytest.mark.django_db


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Stream:
    """As a command's stderr."""

    def __init__(self, out: io.StringIO) -> None:
        self._out = out
        self.isatty, self.flush = out.isatty, out.flush

    def write(self, text: str, style_func: Any, ending: str) -> None:
        self._out.write(f"{style_func(text)}{ending}")


def test_on_a_terminal_one_line_is_rewritten_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((0.0, 0.0, 0.5, 1.0))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    out = Terminal()
    with Progress(Stream(out)) as shown:
        for number in (0, 5, 10):
            shown.count("rows", number)
    assert out.getvalue().split("\r\x1b[K") == ["", "0 rows, 0/s", "10 rows, 10/s", ""]


def test_elsewhere_it_is_a_line_a_minute_and_nothing_before(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((0.0, 59.0, 60.0, 61.0, 121.0))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    out = io.StringIO()
    with Progress(Stream(out)) as shown:
        for number in (1, 60, 61, 121):
            shown.count("rows", number)
    assert out.getvalue() == "60 rows, 1/s\n121 rows, 1/s\n"


class TestLongCommands:
    @pytest.fixture(autouse=True)
    def _filled(self) -> None:
        long_ago = timezone.now() - timedelta(days=5000)
        payment = rows.payment(status="succeeded", succeeded_at=timezone.now())
        rows.event(payment, created_at=long_ago, received_at=long_ago)
        rows.event(payment, created_at=long_ago, received_at=long_ago)

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (["payments_prune"], "2 events deleted"),
            (["payments_erase", "--email", "nobody@example.com"], r"\d+ rows searched"),
            (["payments_search_terms", "--account", "default"], "1 objects of default written"),
            (["payments_journal", "--backfill"], "1 objects looked at"),
            (["payments_journal", "--since", "2026-01-01", "--until", "2031-01-01"], "1 entries written"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )
    def test_each_says_on_stderr_how_far_it_is(
        self, words: list[str], says: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shown: list[str] = []
        monkeypatch.setattr(Progress, "show", lambda self, text: shown.append(text(1.0)))
        call_command(*words, stdout=io.StringIO(), stderr=Terminal())
        assert any(re.fullmatch(rf"{says}, \d+/s", line) for line in shown), shown


class TestProcess:
    @pytest.fixture
    def sandbox(self, payments_sandbox: ProviderSandbox, woken: list[str]) -> ProviderSandbox:
        return payments_sandbox

    def printed(self, **options: Any) -> list[str]:
        out = io.StringIO()
        call_command("payments_process", stdout=out, account="default", **options)
        return out.getvalue().splitlines()

    def test_it_says_in_a_line_what_it_did(self, sandbox: ProviderSandbox, receiver: Receiver) -> None:
        payment = services.create_payment(amount=1000, currency="CLP", country="CL", method_code="cl_webpay_card")
        sandbox.deliver()
        sandbox.engine.faults.add(Fault("drop", times=None))
        sandbox.engine.pay(payment.id)
        sandbox.deliver()
        sandbox.engine.clock.advance(10)
        [line] = self.printed(all=True)
        assert re.match(r"default: 1 events applied, [1-9]\d* dispatched to handlers; events: done, ", line), line
        assert re.search(r"; events: done, \d+ seen, [1-9]\d* recovered; objects: done, ", line)
        assert self.printed() == ["default: nothing was due"]
        assert self.printed(verbosity=0) == []

    def test_an_operation_that_could_not_be_sent_does_not_count_as_sent(self, sandbox: ProviderSandbox) -> None:
        sandbox.engine.faults.add(Fault("error", code="api_key_revoked", operation="create_payment", times=None))
        arguments = {"amount": 1000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
        services.defer(services.create_payment, **arguments)
        Operation.objects.update(next_attempt_at=None)
        assert self.printed()[0].startswith("default: 1 operations tried and still open")
        sandbox.engine.faults.clear()
        Operation.objects.update(next_attempt_at=None)
        assert self.printed()[0].startswith("default: 1 operations sent or resolved")

    def test_a_pass_that_failed_says_why(self, sandbox: ProviderSandbox) -> None:
        sandbox.engine.faults.add(Fault("error", operation="list_events", status=400, times=None))
        out = io.StringIO()
        with pytest.raises(CommandError):
            call_command("payments_process", stdout=out, all=True, account="default")
        assert "; events: " in out.getvalue() or out.getvalue().startswith("default: events: ")
        assert "(HTTP 400, request " in out.getvalue()


def test_endpoints_are_listed_as_json(payments_sandbox: ProviderSandbox) -> None:
    made = services.create_webhook_endpoint(url="https://shop.example/payments/webhook/", events=["payment.succeeded"])
    out = io.StringIO()
    call_command("payments_endpoints", "list", "--json", stdout=out)
    [found] = [each for each in json.loads(out.getvalue()) if each["id"] == made.pk]
    assert found == {
        "id": made.pk,
        "status": "active",
        "url": "https://shop.example/payments/webhook/",
        "events": ["payment.succeeded"],
        "secret_is_known": True,
    }
    assert getattr(made, "secret", "whsec_") not in out.getvalue()


@pytest.mark.parametrize(
    ("environment", "options", "is_coloured"),
    [
        ({}, {}, True),
        ({"NO_COLOR": "1"}, {}, False),
        ({"NO_COLOR": ""}, {}, True),
        ({"NO_COLOR": "1"}, {"force_color": True}, True),
        ({}, {"no_color": True}, False),
    ],
)
def test_no_color_counts(
    environment: dict[str, str], options: dict[str, bool], is_coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("django.core.management.color.supports_color", lambda: True)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b" in Command(**options).style.ERROR("x")) is is_coloured
