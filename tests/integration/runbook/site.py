"""A site with one account and the sandbox as its provider, that a test breaks and repairs as its owner would."""

from __future__ import annotations

import contextlib
import io
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import time_machine
from django.conf import settings
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.test import Client, override_settings

from payments_integration import conf, services
from payments_integration.models import Event, Operation, Payment
from payments_integration.reconciliation import forgetting
from payments_integration.sandbox import Fault
from payments_integration.signals import event_received
from payments_integration.testing import ProviderSandbox
from tests.integration.runbook.page import typed
from tests.unit.admin.conftest import page, url

BEGIN = datetime(2026, 1, 31, 12, tzinfo=UTC)
WEBHOOK = "https://shop.example/payments/webhook/"
OVERVIEW = "/admin/payments_integration/"
TECHNICAL = "/admin/payments_integration/reconciliationrun/technical/"
DESTINATION = {
    "type": "bank_account",
    "account_number": "12345678",
    "holder_name": "Ana Soto",
    "holder_document": {"type": "RUT", "number": "12.345.678-5"},
}


class Site:
    """The tools of a site's owner. Time passes only by ``wait``; deliveries and work are done only when asked for."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        #: Whether the handler of payments that succeeded fails.
        self.handler_fails = False
        self.clock = stack.enter_context(time_machine.travel(BEGIN, tick=False))
        # No other process is running that could see a mark late.
        stack.enter_context(mock.patch.object(forgetting, "TRUST", timedelta()))
        self.configure(ACCOUNTS={"default": {"BASE_URL": "http://127.0.0.1:9", "API_KEY": "sk_test_none"}})
        self.sandbox = stack.enter_context(ProviderSandbox())
        self.engine = self.sandbox.engine
        event_received.connect(self._on_event)
        stack.callback(event_received.disconnect, self._on_event)
        #: The commands that were typed, as the page names them.
        self.typed: set[str] = set()

    def _on_event(self, event: Event, **_: Any) -> None:
        if self.handler_fails and event.type == "payment.succeeded":
            raise RuntimeError("a mistake in the handler")

    def configure(self, **options: Any) -> None:
        """Change options of the setting."""
        changed = {**getattr(settings, conf.NAME, {}), **options}
        self._stack.enter_context(override_settings(**{conf.NAME: changed}))

    def account(self, alias: str = "default", **changes: Any) -> None:
        """Change keys of an account in the setting."""
        accounts = dict(conf.current().ACCOUNTS)
        values = getattr(settings, conf.NAME)["ACCOUNTS"]
        values = {name: values[name] for name in accounts}
        self.configure(ACCOUNTS={**values, alias: {**values.get(alias, values["default"]), **changes}})

    def remove(self, alias: str) -> None:
        """Remove an account from the setting."""
        values = getattr(settings, conf.NAME)["ACCOUNTS"]
        self.configure(ACCOUNTS={name: value for name, value in values.items() if name != alias})

    def run(self, command: str) -> tuple[int, str]:
        """Type a command; returns its exit code and what it prints."""
        words = command.split()
        self.typed.add(typed(*words))
        out, code = io.StringIO(), 0
        try:
            with contextlib.redirect_stdout(out):
                call_command(*words, stdout=out, stderr=out)
        except SystemExit as end:
            code = int(str(end.code))
        except CommandError as error:
            out.write(str(error))
            code = error.returncode
        return code, out.getvalue()

    def wait(self, **delta: float) -> None:
        """Time passes, and nothing runs."""
        self.clock.shift(timedelta(**delta))

    def live(self, minutes: float, every: float = 10) -> None:
        """Time passes, deliveries come, and cron runs."""
        for _ in range(round(minutes / every)):
            self.wait(minutes=every)
            self.engine.deliver_due()
            self.run("payments_process")

    def sell(self, *, delivered: bool = True, **arguments: Any) -> Payment:
        """A payment is made, and paid half a minute later."""
        values = {"amount": 10_000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
        payment = services.create_payment(**values, **arguments)
        self.wait(seconds=30)
        self.engine.pay(payment.pk)
        if delivered:
            self.engine.deliver_due()
        return payment

    def pay_out(self, function: Any = services.create_payout, **arguments: Any) -> Any:
        """Ask for a payout."""
        values = {"amount": 5_000, "currency": "CLP", "country": "CL", "method_code": "cl_bank_transfer"}
        return function(**values, destination=DESTINATION, **arguments)

    def fail(self, kind: str, **fields: Any) -> None:
        """Requests fail like this, until ``recover``."""
        self.engine.faults.add(Fault(kind, times=None, **fields))

    def recover(self) -> None:
        self.engine.faults.clear()

    def admin(self) -> Client:
        """A superuser's browser."""
        client = Client()
        client.force_login(User.objects.get_or_create(username="boss", is_staff=True, is_superuser=True)[0])
        return client

    def press(self, row: Any, button: str, **form: str) -> None:
        """Press a button on a row's page."""
        model = row._meta.model_name
        answer = self.admin().post(url(model, button, row.pk), form, follow=True)
        assert answer.status_code == 200, answer.content.decode()[:2000]
        row_is_there = type(row)._default_manager.filter(pk=row.pk).exists()
        if row_is_there:
            row.refresh_from_db()

    def screen(self, name: str) -> str:
        """A page of the admin as it is now."""
        cache.clear()
        address = {"to-do list": OVERVIEW, "technical state": TECHNICAL}[name]
        return page(self.admin(), address)


def the_operation() -> Operation:
    return Operation.objects.get(closed_at=None)
