"""What merchants use in their own tests."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest
import time_machine
from django.conf import settings as django_settings
from django.conf.urls.i18n import i18n_patterns
from django.contrib.auth.views import redirect_to_login
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client, TestCase
from django.test.testcases import DatabaseOperationForbidden
from django.urls import clear_script_prefix, include, path, set_script_prefix
from django.utils import timezone

from payments_integration import conf, services, testing
from payments_integration.exceptions import InvalidState
from payments_integration.models import DepositReference, Event, Payment, StatusChange
from payments_integration.sandbox import Fault
from payments_integration.signals import event_received, status_changed
from payments_integration.testing import ProviderSandbox, signed_delivery
from tests import factories
from tests.conftest import Receiver
from tests.fake_provider import PAYOUT

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]


DESTINATION: dict[str, dict[str, Any]] = {
    "cl_webpay_card": {},
    "cl_bank_transfer": {
        "destination": {
            "type": "bank_account",
            "bank_code": "001",
            "account_number": "000123",
            "account_type": "checking",
            "holder_name": "Ana Soto",
            "holder_document": {"type": "RUT", "number": "11111111-1"},
        }
    },
}


def create(method_code: str = "cl_webpay_card", **arguments: Any) -> Payment:
    return services.create_payment(amount=10000, currency="CLP", country="CL", method_code=method_code, **arguments)


def paid(sandbox: ProviderSandbox, method_code: str) -> Payment:
    payment = create(method_code)
    sandbox.engine.pay(payment.id)
    sandbox.settle()
    return payment


def test_settings_point_at_the_sandbox_only_inside() -> None:
    before = dict(django_settings.PAYMENTS_INTEGRATION)
    with ProviderSandbox() as sandbox:
        assert conf.account().base_url == sandbox.url
        assert conf.account("second").api_key == "sk_test_second"
    assert before == django_settings.PAYMENTS_INTEGRATION
    assert conf.account().base_url == "http://127.0.0.1:9"


def test_the_fixture_runs_a_whole_payment(payments_sandbox: ProviderSandbox) -> None:
    payment = create()
    payments_sandbox.engine.pay(payment.id)
    payments_sandbox.settle()
    payment.refresh_from_db()
    assert payment.status == "succeeded"
    assert Event.objects.filter(source="webhook").count() == len(payments_sandbox.project.events)


def test_a_test_may_stop_the_monotonic_clock(
    payments_sandbox: ProviderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """freezegun does, at the date in Unix seconds. A claim would seem to be years old, and nothing would be sent."""
    monkeypatch.setattr(time, "monotonic", lambda: 1_700_000_000.0)
    payment = paid(payments_sandbox, "cl_webpay_card")
    assert services.create_refund(payment, amount=1000).amount == 1000


def test_waiting_ends_also_while_the_monotonic_clock_stands(
    payments_sandbox: ProviderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1_700_000_000.0)
    payments_sandbox.engine.faults.add(Fault("rate_limited", retry_after="1", operation="create_payment"))
    assert create().status == "created"


@pytest.mark.parametrize("day", ["2026-01-31T12:00Z", "2095-01-31T12:00Z"])
def test_the_sandbox_follows_a_test_that_travels(payments_sandbox: ProviderSandbox, day: str) -> None:
    with time_machine.travel(day, tick=False) as travel:
        payment = create()
        assert abs(payment.created_at - timezone.now()) < timedelta(seconds=1)
        travel.shift(timedelta(hours=2))
        payments_sandbox.settle()
        payment.refresh_from_db()
        assert payment.status == "expired"


@pytest.mark.parametrize(
    ("created", "paid_at"), [(None, "2020-01-01T00:00Z"), ("2095-01-01T00:00Z", None)], ids=["past", "future"]
)
def test_time_does_not_run_back_for_an_object(
    payments_sandbox: ProviderSandbox, created: str | None, paid_at: str | None
) -> None:
    with time_machine.travel(created or datetime.now(UTC)):
        payment = create()
        payments_sandbox.settle()
    with time_machine.travel(paid_at or datetime.now(UTC)):
        payments_sandbox.engine.pay(payment.pk)
        payments_sandbox.settle()
    payment.refresh_from_db()
    assert payment.status == "succeeded"


def test_what_fixes_its_types_is_imported_before_a_test_stops_the_clock(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_first():
            assert {"payments_integration.schemas", "payments_integration.client.connections"} <= set(sys.modules)
        """
    )
    pytester.runpytest_subprocess("--ds", "tests.settings").assert_outcomes(passed=1)


def test_events_of_any_date_reach_handlers_unless_a_date_is_set(
    payments_sandbox: ProviderSandbox, receiver: Receiver, settings: Any
) -> None:
    payments_sandbox.engine.clock.advance(-300 * 86400)
    paid(payments_sandbox, "cl_webpay_card")
    assert ("created", "succeeded") in receiver.statuses
    seen = len(receiver.events)
    assert seen == Event.objects.count()
    account = settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"]
    since = {**account, "DISPATCH_SINCE": timezone.now() - timedelta(days=900)}
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": {"default": since}}
    paid(payments_sandbox, "cl_webpay_card")
    assert len(receiver.events) == seen


def test_a_reset_keeps_the_endpoint(payments_sandbox: ProviderSandbox) -> None:
    payments_sandbox.engine.reset()
    payment = paid(payments_sandbox, "cl_webpay_card")
    payment.refresh_from_db()
    assert payment.status == "succeeded"


def test_settle_delivers_what_a_deferred_call_caused(payments_sandbox: ProviderSandbox) -> None:
    payments_sandbox.settle()
    services.defer(services.create_payout, **PAYOUT)
    payments_sandbox.settle()
    assert payments_sandbox.engine.pending_deliveries == []
    assert Event.objects.filter(type="payout.created", state="done").exists()


@pytest.mark.parametrize("processing", ["inline", "celery"])
def test_settle_processes_what_handlers_caused(processing: str) -> None:
    """The first pass sends a handler's call, and the next one calls the handlers of what the call made."""
    seen: list[str] = []

    def paid(instance: Payment, status: str, **_: Any) -> None:
        if status == "succeeded":
            services.defer(services.create_deposit_reference, country="MX", currency="MXN", method_code="mx_deposit")

    def made(status: str, **_: Any) -> None:
        seen.append(status)

    status_changed.connect(paid, sender=Payment)
    status_changed.connect(made, sender=DepositReference)
    try:
        with ProviderSandbox(options={"PROCESSING": processing}) as sandbox:
            sandbox.engine.pay(create().pk)
            sandbox.settle()
    finally:
        status_changed.disconnect(paid, sender=Payment)
        status_changed.disconnect(made, sender=DepositReference)
    assert seen == ["active"]


@pytest.mark.filterwarnings("ignore:A handler failed")
@pytest.mark.parametrize("processing", ["inline", "celery"])
def test_settle_calls_a_failed_handler_again(processing: str) -> None:
    calls: list[str] = []

    def receiver(status: str, **_: Any) -> None:
        calls.append(status)
        if len(calls) == 1:
            raise ValueError("the mail server is away")

    status_changed.connect(receiver, sender=Payment)
    try:
        with ProviderSandbox(options={"PROCESSING": processing, "RECEIVER_RETRIES": [0]}) as sandbox:
            create()
            sandbox.settle()
    finally:
        status_changed.disconnect(receiver, sender=Payment)
    assert calls == ["created", "created"]


def test_the_view_uses_secrets_that_a_test_changes_in_place(client: Client, settings: Any) -> None:
    event, account = factories.event(factories.payment()), settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"]
    before = account["WEBHOOK_SECRETS"]
    assert client.post("/payments/webhook/", **signed_delivery(event, before[0])).status_code == 200
    account["WEBHOOK_SECRETS"] = ["whsec_other"]
    try:
        assert client.post("/payments/webhook/", **signed_delivery(event, "whsec_other")).status_code == 200
        assert client.post("/payments/webhook/", **signed_delivery(event, before[0])).status_code == 400
    finally:
        account["WEBHOOK_SECRETS"] = before


def test_a_delivery_that_the_view_refuses_is_a_warning(payments_sandbox: ProviderSandbox, settings: Any) -> None:
    create()
    account = {**settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"], "WEBHOOK_SECRETS": ["whsec_other"]}
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": {"default": account}}
    with pytest.warns(UserWarning, match="refused a delivery: HTTP 400"):
        payments_sandbox.settle()


def test_a_test_without_the_database_is_told_so() -> None:
    forbidden = DatabaseOperationForbidden("Add 'money' to databases")
    with mock.patch.object(connection, "cursor", side_effect=forbidden), pytest.raises(DatabaseOperationForbidden):
        create()


def test_the_fixture_leaves_no_settings_behind(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from payments_integration import conf

        @pytest.mark.django_db
        def test_a_change_over_the_sandbox(settings, payments_sandbox):
            settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "BATCH_SIZE": 7}
            assert (conf.account().base_url, conf.current().BATCH_SIZE) == (payments_sandbox.url, 7)

        def test_afterwards():
            assert (conf.account().base_url, conf.current().BATCH_SIZE) == ("http://127.0.0.1:9", 500)
        """
    )
    pytester.runpytest_subprocess("--ds", "tests.settings", "-p", "no:randomly").assert_outcomes(passed=2)


@pytest.mark.parametrize("method_code", ["cl_webpay_card", "cl_bank_transfer"])
def test_the_first_payment_can_be_refunded(payments_sandbox: ProviderSandbox, method_code: str) -> None:
    refund = services.create_refund(paid(payments_sandbox, method_code), **DESTINATION[method_code])
    payments_sandbox.engine.succeed_refund(refund.id)
    payments_sandbox.settle()
    refund.refresh_from_db()
    assert (refund.status, refund.amount) == ("succeeded", 10_000)
    assert payments_sandbox.engine.audit() == []


def test_a_sandbox_without_money_refuses_the_first_refund() -> None:
    with ProviderSandbox(funds={}) as sandbox:
        payment = paid(sandbox, "cl_webpay_card")
        with pytest.raises(InvalidState) as caught:
            services.create_refund(payment)
        assert caught.value.code == "insufficient_balance"


def test_the_sandbox_accepts_another_account_and_further_options() -> None:
    with ProviderSandbox(account="second", options={"BATCH_SIZE": 3}) as sandbox:
        assert conf.current().BATCH_SIZE == 3
        payment = create(account="second")
        sandbox.engine.pay(payment.id)
        sandbox.settle()
        assert set(Event.objects.values_list("account", flat=True)) == {"second"}


def test_a_signed_delivery_is_accepted(client: Client) -> None:
    event = factories.event(factories.payment())
    assert client.post("/payments/webhook/", **signed_delivery(event, "whsec_default")).status_code == 200
    assert client.post("/payments/webhook/", **signed_delivery(event, "other")).status_code == 400
    late = signed_delivery(event, "whsec_default", now=1)
    assert client.post("/payments/webhook/", **late).status_code == 400


def test_a_text_is_no_body() -> None:
    """It would be encoded again. The view would answer 200, as for each signed body, and put it into quarantine."""
    with pytest.raises(TypeError, match="pass the event as a dict, or a body as bytes"):
        signed_delivery(json.dumps({"id": "evt_1"}), "whsec_default")  # type: ignore[arg-type]


@pytest.fixture
def failing() -> Iterator[list[str]]:
    """The statuses and event types for which a handler fails."""
    names: list[str] = []

    def fail(event: Event | None, status: str = "", **_: Any) -> None:
        if (name := status or (event.type if event else "")) in names:
            raise LookupError(f"no order for\n{name}")

    for signal in (event_received, status_changed):
        signal.connect(fail, sender=Payment)
    yield names
    for signal in (event_received, status_changed):
        signal.disconnect(fail, sender=Payment)


@pytest.mark.filterwarnings("error")
def test_settle_warns_of_a_handler_that_failed(failing: list[str], settings: Any) -> None:
    failing += ["created", "payment.succeeded"]
    with ProviderSandbox(settings=settings, options={"RECEIVER_RETRIES": [0]}) as sandbox:
        payment = create()
        with pytest.warns(UserWarning, match=f"A handler failed for the status created of {payment.pk}: created$"):
            sandbox.settle()
        sandbox.engine.pay(payment.pk)
        with pytest.warns(UserWarning, match=r"A handler failed for payment\.succeeded evt_\w+: payment.succeeded$"):
            sandbox.settle()
        sandbox.settle()  # nothing has failed since
        assert Event.objects.filter(state="parked").exists()


@pytest.mark.filterwarnings("error")
def test_settle_does_not_warn_of_a_handler_that_succeeds_in_the_end(failing: list[str], settings: Any) -> None:
    with ProviderSandbox(settings=settings, options={"RECEIVER_RETRIES": [0]}) as sandbox:
        failing.append("created")
        create()
        failing.clear()
        sandbox.settle()
    assert not StatusChange.objects.exclude(error="").exists()


def test_settle_waits_for_no_window(settings: Any) -> None:
    with ProviderSandbox(options={"PROCESSING": "celery", "REORDER_WINDOW": 5}, settings=settings) as sandbox:
        payment = paid(sandbox, "cl_webpay_card")
        assert conf.current().REORDER_WINDOW == 5
    payment.refresh_from_db()
    assert payment.status == "succeeded"


@pytest.mark.parametrize("place", ["below a language", "below a path"])
def test_deliveries_reach_the_view_where_the_site_has_it(settings: Any, place: str) -> None:
    if place == "below a language":
        routes = i18n_patterns(path("payments/", include("payments_integration.urls")))
        settings.ROOT_URLCONF = type("Routes", (), {"urlpatterns": routes})
        settings.LANGUAGE_CODE = "es-cl"
        settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.middleware.locale.LocaleMiddleware"]
    else:
        settings.FORCE_SCRIPT_NAME = "/shop"
        set_script_prefix("/shop/")
    try:
        with ProviderSandbox(settings=settings) as sandbox:
            payment = services.create_payment(amount=5_000, currency="CLP", country="CL", method_code="cl_webpay_card")
            sandbox.engine.pay(payment.id)
            sandbox.settle()
    finally:
        clear_script_prefix()
    payment.refresh_from_db()
    assert payment.status == "succeeded"


def test_a_delivery_that_no_view_answers_is_a_warning(settings: Any) -> None:
    with ProviderSandbox(settings=settings) as sandbox:
        services.create_payment(amount=5_000, currency="CLP", country="CL", method_code="cl_webpay_card")
        settings.ROOT_URLCONF = type("Routes", (), {"urlpatterns": []})
        with pytest.warns(UserWarning, match=r"No webhook view answered at /payments/webhook/default/: HTTP 404"):
            sandbox.deliver()


def asking_for_a_login(_: Any) -> Callable[[HttpRequest], HttpResponse]:
    return lambda request: redirect_to_login(request.path, "/login/")


def without_a_tenant(_: Any) -> Callable[[HttpRequest], HttpResponse]:
    def refuse(request: HttpRequest) -> HttpResponse:
        raise LookupError(request.get_host())

    return refuse


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("middleware", "shown"),
    [("asking_for_a_login", r"HTTP 302 to /login/\?next="), ("without_a_tenant", "LookupError: testserver")],
)
def test_a_middleware_that_stops_deliveries_is_named_also_where_warnings_are_errors(
    settings: Any, middleware: str, shown: str
) -> None:
    settings.MIDDLEWARE = [f"{__name__}.{middleware}"]
    with ProviderSandbox(settings=settings) as sandbox:
        services.create_payment(amount=5_000, currency="CLP", country="CL", method_code="cl_webpay_card")
        with pytest.raises(UserWarning, match=f"No webhook view answered at /payments/webhook/default/: {shown}"):
            sandbox.settle()


def test_a_sandbox_is_for_one_test() -> None:
    class Tests(TestCase):
        @classmethod
        def setUpTestData(cls) -> None:
            cls.sandbox = ProviderSandbox()

    Tests.setUpTestData()
    with pytest.raises(TypeError, match="for one test: start it in setUp"):
        copy.deepcopy(Tests.sandbox)


def test_the_package_exports_only_its_public_names() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Sandbox'"):
        _ = testing.Sandbox  # type: ignore[attr-defined]
