"""Django mails the variables of every frame to the admins: none shows a payer, a bank account or a secret."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db.backends.utils import CursorWrapper
from django.test import Client
from django.views.debug import ExceptionReporter

from payments_integration import inbox, services
from payments_integration.contrib.backoffice import notes
from payments_integration.models import Operation, Payment
from payments_integration.testing import ProviderSandbox, signed_delivery
from payments_integration.testing.provider import API_KEY
from tests import factories
from tests.fake_provider import PAYER, PAYMENT, PAYOUT

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.case(85), pytest.mark.promise(7)]

SECRET = "whsec_of_this_test"
PERSONAL = (
    "Ana Rojas", "ana@example.com", "56912345678", "12345678-5", "12.345.678-5", "00123456789", "203.0.113.9",
    SECRET, API_KEY,
)  # fmt: skip


class Bug(Exception):
    pass


@pytest.fixture
def reports() -> Iterator[list[str]]:
    """A report of each exception that is logged, made while its frames have their variables."""
    made: list[str] = []

    class Reporter(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info and record.exc_info[0]:
                made.append(report(*record.exc_info))

    handler = Reporter()
    logging.getLogger().addHandler(handler)
    yield made
    logging.getLogger().removeHandler(handler)


def report(*error: Any) -> str:
    """What Django mails, without this module's own frames: a project marks those of its own functions."""
    data = ExceptionReporter(None, *error).get_traceback_data()
    frames = [frame for frame in data["frames"] if frame["filename"] != __file__]
    return f"{error[1]!r}" + "".join(f"{frame['filename']}: {frame['vars']}\n" for frame in frames)


BODY = factories.body(factories.event(factories.payment(payer=PAYER)))


def pay() -> None:
    services.create_payment(**{**PAYMENT, "method_code": "cl_khipu"}, payer=PAYER)


def pay_out() -> None:
    services.create_payout(**PAYOUT)


def resume() -> None:
    services.resume_operations()


def deliver(delivery: dict[str, Any]) -> None:
    Client(raise_request_exception=False).post("/payments/webhook/", **delivery)


def process() -> None:
    inbox.receive("default", BODY)
    inbox.process("default")


def write_note() -> None:
    notes.add(Payment.objects.get(), f"Called {PAYER['name']}, {PAYER['email']}", author="the phone desk", key="key")


def read() -> None:
    services.refresh(Payment.objects.get())


CONNECT = "urllib3.connection.HTTPConnection.getresponse"
DECODE = "payments_integration.client.answers._resource"
DIGEST = "hmac.digest"
EXECUTE = "django.db.backends.utils.CursorWrapper._execute"


@pytest.mark.parametrize(
    ("flow", "where"),
    [(pay, CONNECT), (pay, DECODE), (pay, EXECUTE), (pay_out, CONNECT), (pay_out, DECODE), (pay_out, EXECUTE),
     (resume, CONNECT), (resume, DECODE), (read, CONNECT), (read, DECODE), (read, EXECUTE),
     (deliver, DIGEST), (deliver, EXECUTE), (process, EXECUTE), (write_note, EXECUTE)],
    ids=lambda value: getattr(value, "__name__", str(value).rpartition(".")[2]),
)  # fmt: skip
def test_no_report_of_an_error_shows_personal_data_or_a_secret(
    sandbox: ProviderSandbox,
    reports: list[str],
    monkeypatch: pytest.MonkeyPatch,
    flow: Callable[..., None],
    where: str,
) -> None:
    settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"]["WEBHOOK_SECRETS"] = [SECRET]
    sandbox.engine.fund("CLP", 10**6)
    if flow in (read, write_note):
        pay()
    if flow is resume:
        services.defer(services.create_payout, **PAYOUT)
        Operation.objects.update(state="due", next_attempt_at=None)
    # Signed before signing fails, and not so early that it is too old.
    arguments = [signed_delivery(BODY, SECRET)] if flow is deliver else []
    original = CursorWrapper._execute

    def fail(*args: Any) -> Any:
        if where == EXECUTE and not args[1].startswith(("INSERT", "UPDATE")):
            return original(*args)
        raise Bug

    monkeypatch.setattr(where, fail)
    try:
        flow(*arguments)
    except Exception:
        reports.append(report(*sys.exc_info()))
    # The view answers 503 where the database fails.
    assert reports or (flow, where) == (deliver, EXECUTE)
    found = [(value, line) for shown in reports for value in PERSONAL for line in shown.splitlines() if value in line]
    assert found == []
