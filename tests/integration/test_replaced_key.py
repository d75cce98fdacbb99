"""A mirror that a test key has filled takes nothing from a live one, and the other way round."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.core.checks import CheckMessage
from django.core.management import call_command
from django.db import OperationalError, transaction
from django.test import Client, override_settings
from django.utils import timezone

from payments_integration import conf, health, reconciliation, services, sync, wakeup
from payments_integration.checks import check_accounts
from payments_integration.db import statements, transactions
from payments_integration.exceptions import KeyReplaced, NoAnswer, NotFound, PermissionRefused, ProviderError
from payments_integration.models import (
    AccountState,
    Event,
    EventState,
    Operation,
    OperationState,
    Payment,
    deletion_allowed,
)
from payments_integration.sandbox.faults import Fault
from payments_integration.signals import Reason, dispatching
from payments_integration.sync import project_keys
from payments_integration.testing import ProviderSandbox, signed_delivery
from tests import factories
from tests.conftest import Receiver
from tests.factories import rows
from tests.fake_provider import PAYOUT

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.case(145)]

PAYMENT: dict[str, Any] = {"amount": 10_000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
LIVE = "sk_live_of_another_merchant"


@pytest.fixture
def installed(payments_sandbox: ProviderSandbox, monkeypatch: pytest.MonkeyPatch) -> ProviderSandbox:
    """As in an installation: the tests of a project have keys of their own."""
    monkeypatch.setattr(conf, "in_test_environment", lambda: False)
    payments_sandbox.engine.add_project(LIVE)
    return payments_sandbox


def with_key(key: str, alias: str = "default") -> Any:
    before = conf.current().ACCOUNTS["default"]
    entry = {"BASE_URL": before.base_url, "API_KEY": key, "WEBHOOK_SECRETS": ["whsec_default"]}
    return override_settings(PAYMENTS_INTEGRATION={"ACCOUNTS": {alias: entry}})


def ids(messages: list[CheckMessage]) -> list[str | None]:
    return [message.id for message in messages]


@pytest.fixture
def filled(installed: ProviderSandbox) -> Payment:
    """A payment of the test key, and a complete pass."""
    with with_key("sk_test_sandbox"):
        payment = services.create_payment(**PAYMENT, merchant_reference="order-1")
        run = reconciliation.reconcile_events("default")
        assert run.state == "done"
        assert check_accounts(databases=["default"]) == []
    return payment


def test_nothing_is_sent_applied_or_taken_for_gone(
    filled: Payment, installed: ProviderSandbox, attentions: list[dict[str, Any]]
) -> None:
    before = Operation.objects.count(), len(installed.engine.requests)
    watermark = AccountState.objects.get().watermark
    with with_key(LIVE):
        with pytest.raises(
            KeyReplaced, match='"default" was filled with a test key, and its API_KEY is a live key now'
        ):
            services.create_payment(**PAYMENT, merchant_reference="order-2")
        with pytest.raises(KeyReplaced), transaction.atomic():
            services.defer(services.create_payment, **PAYMENT, merchant_reference="order-2")
        with pytest.raises(KeyReplaced, match="payments_forget"):
            services.refresh(filled)
        runs = [reconciliation.reconcile_events("default"), reconciliation.reconcile_objects("default", full=True)]
        assert all("KeyReplaced" in run.error for run in runs)
        event = deliver("pay_of_others")
        reconciliation.process_due()
        reconciliation.process_due("default")
        event.refresh_from_db()
        assert (event.state, Payment.objects.filter(pk="pay_of_others").exists()) == (EventState.PENDING, False)
        (error,) = check_accounts(databases=["default"])
        report = health.examine()
    assert (Operation.objects.count(), len(installed.engine.requests)) == before
    filled.refresh_from_db()
    assert filled.gone_at is None
    assert AccountState.objects.get().watermark == watermark
    assert [seen["reason"] for seen in attentions] == [Reason.KEY_REPLACED], "once a day"
    assert attentions[0]["instance"].pk == "default"
    assert error.id == "payments_integration.E018"
    assert "payments_forget" in str(error.hint)
    problem = report.accounts["default"].problems[0]
    assert problem.code == Reason.KEY_REPLACED
    assert "filled with a test key" in problem.message
    assert "payments_forget" in problem.action
    with with_key("sk_test_sandbox"):
        reconciliation.process_due()
        assert Payment.objects.filter(pk="pay_of_others").exists(), "it waited for the old key"


def test_a_conflict_while_it_is_reported_loses_no_call_for_attention(
    filled: Payment, attentions: list[dict[str, Any]]
) -> None:
    conflicts = iter([OperationalError("a conflict"), OperationalError("another one")])
    real = statements.insert_many

    def conflict_first(rows: Any, **options: Any) -> None:
        if error := next(conflicts, None):
            raise error
        real(rows, **options)

    with (
        with_key(LIVE),
        mock.patch.object(statements, "insert_many", conflict_first),
        mock.patch.object(transactions, "is_transient", return_value=True),
        pytest.raises(KeyReplaced),
    ):
        services.create_payment(**PAYMENT, merchant_reference="order-2")
    assert [seen["reason"] for seen in attentions] == [Reason.KEY_REPLACED]


def deliver_unprocessed(payment_id: str) -> Event:
    """As if nothing was woken."""
    previous = wakeup.set_hook(None)
    try:
        return deliver(payment_id)
    finally:
        wakeup.set_hook(previous)


def deliver(payment_id: str) -> Event:
    event = factories.event(factories.payment(id=payment_id))
    assert Client().post("/payments/webhook/", **signed_delivery(event, "whsec_default")).status_code == 200
    return Event.objects.get(object_id=payment_id)


@pytest.fixture
def ten(filled: Payment) -> Payment:
    """Ten payments of the test key."""
    with with_key("sk_test_sandbox"):
        for number in range(2, sync.COMPARED + 1):
            services.create_payment(**PAYMENT, merchant_reference=f"order-{number}")
    return filled


def gets(installed: ProviderSandbox) -> int:
    return sum(request["operation"] == "get_payment" for request in installed.engine.requests)


def test_a_key_that_knows_none_of_ten_objects_is_of_another_project(
    ten: Payment, installed: ProviderSandbox, attentions: list[dict[str, Any]]
) -> None:
    installed.engine.add_project("sk_test_two")
    operations = Operation.objects.count()
    watermark = AccountState.objects.get().watermark
    with with_key("sk_test_two"):
        with pytest.raises(KeyReplaced, match="knows none of the 10 newest objects"):
            services.create_payment(**PAYMENT, merchant_reference="order-99")
        asked = gets(installed)
        assert asked == sync.COMPARED
        run = reconciliation.reconcile_objects("default", full=True)
        assert "KeyReplaced" in run.error
        assert reconciliation.reconcile_events("default").state == "failed"
        event = deliver("pay_of_others")
        assert event.state == EventState.PENDING
        assert gets(installed) == asked, "the verdict is stored"
        assert health.examine().accounts["default"].problems[0].code == Reason.KEY_REPLACED
        assert ids(check_accounts(databases=["default"])) == ["payments_integration.E018"]
    assert Operation.objects.count() == operations
    assert not Payment.objects.exclude(gone_at=None).exists()
    assert AccountState.objects.get().watermark == watermark
    assert [seen["reason"] for seen in attentions] == [Reason.KEY_REPLACED]
    with with_key("sk_test_sandbox"):
        services.refresh(ten)  # a process with the old key goes on, and so does the old key when it is back
        assert health.examine().accounts["default"].statistics.key_replaced == ""


def test_events_of_another_project_are_not_applied_before_the_comparison(
    ten: Payment, installed: ProviderSandbox
) -> None:
    installed.engine.add_project("sk_test_two")
    with with_key("sk_test_two"):
        assert deliver("pay_of_others").state == EventState.PENDING
        assert gets(installed) == sync.COMPARED, "by the work that the delivery woke"


def test_a_key_that_knows_one_of_them_is_of_the_same_project(ten: Payment, installed: ProviderSandbox) -> None:
    """Rotated: it costs one GET, and nothing changes."""
    installed.engine.default_project.add_key("sk_test_rotated")
    with with_key("sk_test_rotated"):
        services.create_payment(**PAYMENT, merchant_reference="order-99")
        assert gets(installed) == 1
        assert reconciliation.reconcile_events("default").state == "done"
        assert reconciliation.reconcile_objects("default", full=True).state == "done"
        assert gets(installed) == 1
        assert deliver("pay_new").state == EventState.DONE
        assert check_accounts(databases=["default"]) == []
    assert not Payment.objects.exclude(gone_at=None).exclude(pk="pay_new").exists()
    with with_key("sk_test_sandbox"):
        services.refresh(ten)


def test_two_processes_with_different_keys_of_one_project(ten: Payment, installed: ProviderSandbox) -> None:
    """During a deployment, each may compare its key once more. None is refused."""
    installed.engine.default_project.add_key("sk_test_rotated")
    for key in ("sk_test_rotated", "sk_test_sandbox") * 2:
        with with_key(key):
            services.refresh(ten)
            assert reconciliation.reconcile_events("default").state == "done"
    assert AccountState.objects.get().refused_key_hash == ""


#: The provider does not answer a comparison.
FAILURES = {
    "failed": Fault("error", times=None, status=500, operation="get_payment"),
    "forbidden": Fault("error", times=None, status=403, code="merchant_not_active", operation="get_payment"),
    "limited": Fault("rate_limited", times=None, retry_after="30", operation="get_payment"),
    "silent": Fault("slow", times=None, delay=0.5, operation="get_payment"),
}


@pytest.fixture(params=FAILURES)
def failing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, installed: ProviderSandbox) -> str:
    monkeypatch.setattr(project_keys, "COMPARE_SECONDS", 0.1)
    installed.engine.add_project("sk_test_two")
    return str(request.param)


def posts(installed: ProviderSandbox) -> int:
    return sum(request["method"] != "GET" for request in installed.engine.requests)


def test_nothing_is_sent_under_a_key_that_was_not_compared(
    ten: Payment, installed: ProviderSandbox, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, operations = posts(installed), Operation.objects.count()
    installed.engine.faults.add(replace(FAILURES[failing]))
    with with_key("sk_test_two"):
        for _ in range(2):  # also when a comparison has just failed
            for call in (
                lambda: services.create_payment(**PAYMENT, merchant_reference="order-99"),
                lambda: services.refresh(ten),
                services.sync_balances,
                lambda: services.list_payment_methods(country="CL"),
            ):
                with pytest.raises((NoAnswer, ProviderError)) as raised:
                    call()
                assert not isinstance(raised.value, KeyReplaced | NotFound)
        assert Operation.objects.count() == operations
        with transaction.atomic():
            deferred = services.defer(services.create_payment, **PAYMENT, merchant_reference="order-99")
        also = services.defer(services.create_payment, **PAYMENT, merchant_reference="order-100")
        Operation.objects.update(next_attempt_at=None)
        assert services.resume_operations() == {}
        reconciliation.process_due()
        for operation in (deferred, also):
            operation.refresh_from_db()
            assert (operation.state, operation.may_have_run) == (OperationState.DUE, False)
        for run in (
            reconciliation.reconcile_events("default"),
            reconciliation.reconcile_balances("default"),
            reconciliation.reconcile_objects("default", full=True),
        ):
            assert (run.state, run.seen) == ("failed", 0)
        installed.engine.faults.clear()
        assert AccountState.objects.get().refused_key_hash == ""
    assert posts(installed) == sent
    monkeypatch.setattr(project_keys, "COMPARE_SECONDS", 5.0)
    installed.engine.default_project.add_key("sk_test_rotated")
    with with_key("sk_test_rotated"):
        assert services.resume_operations()["done"] == 2, "they waited for a key that is right"
    assert not Payment.objects.exclude(gone_at=None).exists()


def test_events_wait_while_the_key_was_not_compared(
    ten: Payment, installed: ProviderSandbox, failing: str, monkeypatch: pytest.MonkeyPatch, receiver: Receiver
) -> None:
    with with_key("sk_test_sandbox"):
        held = deliver("pay_held")
    dispatched = len(receiver.events)
    Event.objects.filter(pk=held.pk).update(state=EventState.HELD, received_at=timezone.now() - timedelta(hours=2))
    due = rows.due(account="default", object_kind="payment", object_id=ten.pk, due_at=timezone.now())
    installed.engine.faults.add(replace(FAILURES[failing]))
    compare, compared = sync.compare_key, []

    def seen(account: str, **options: Any) -> None:
        compared.append(account)
        compare(account, **options)

    monkeypatch.setattr(project_keys, "compare_key", seen)
    with with_key("sk_test_two"):
        event = deliver("pay_of_others")
        assert len(compared) == 1
        reconciliation.process_due()
        assert len(compared) == 1, "it has just failed"
        monkeypatch.setattr(project_keys, "_PUT_OFF_SECONDS", 0.0)
        sync.forget_keys()
        reconciliation.process_due()
        assert len(compared) > 1, "a moment later it is made again"
        assert ("default", "compare") in reconciliation.waiting_work()
        for waiting, state in ((event, EventState.PENDING), (held, EventState.HELD)):
            waiting.refresh_from_db()
            assert waiting.state == state
        due.refresh_from_db()
        assert due.attempts == 0
    assert len(receiver.events) == dispatched
    assert not Payment.objects.filter(pk="pay_of_others").exists()


def test_a_comparison_that_is_cut_short_goes_on(
    ten: Payment, installed: ProviderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request waits for it, and the provider is slow."""
    monkeypatch.setattr(project_keys, "_PUT_OFF_SECONDS", 0.0)
    installed.engine.add_project("sk_test_two")
    installed.engine.faults.add(Fault("slow", times=None, delay=0.1, operation="get_payment"))
    cut = 0
    with with_key("sk_test_two"):
        event = deliver_unprocessed("pay_of_others")
        while AccountState.objects.get().refused_key_hash == "":
            reconciliation.process_due("default", deadline=time.monotonic() + 0.45)
            cut += 1
            assert cut < 30
        assert gets(installed) <= sync.COMPARED + cut, "each comparison lost one answer at most"
        assert cut > 1
        event.refresh_from_db()
        assert event.state == EventState.PENDING


@pytest.mark.parametrize("kind", ["wrong_kind", "error"])
def test_an_object_that_cannot_be_read_decides_nothing(ten: Payment, installed: ProviderSandbox, kind: str) -> None:
    """The others do: one that is known, or else all."""
    installed.engine.add_project("sk_test_two")
    installed.engine.default_project.add_key("sk_test_rotated")
    (_, newest), *_ = sync.newest_objects("default")
    error: dict[str, Any] = {"status": 403, "code": "merchant_not_active"} if kind == "error" else {}
    installed.engine.faults.add(Fault(kind, times=None, path=f"/payments/{newest}", **error))
    with with_key("sk_test_rotated"):
        assert reconciliation.reconcile_events("default").state == "done"
        assert gets(installed) == 2
    if kind == "wrong_kind":
        installed.engine.faults.clear()
        installed.engine.faults.add(Fault("html", times=None, path=f"/payments/{newest}"))
    with with_key("sk_test_two"):
        for _ in range(2):
            with pytest.raises((NoAnswer, PermissionRefused)) as raised:
                services.refresh(ten)
            assert not isinstance(raised.value, KeyReplaced)
        assert gets(installed) == 2 + 2 * sync.COMPARED, "what was not cut short begins again"
        assert AccountState.objects.get().refused_key_hash == ""
        installed.engine.faults.clear()
        with pytest.raises(KeyReplaced):
            services.refresh(ten)


def test_inside_a_transaction_a_new_key_is_not_used(ten: Payment, installed: ProviderSandbox) -> None:
    installed.engine.default_project.add_key("sk_test_rotated")
    with with_key("sk_test_rotated"):
        with transaction.atomic(), pytest.raises(NoAnswer, match=r"Nothing was sent: .* was not compared"):
            sync.get_client("default")
        sync.get_client("default")


def test_a_provider_that_does_not_answer_decides_nothing(ten: Payment, installed: ProviderSandbox) -> None:
    installed.engine.add_project("sk_test_two")
    with with_key("sk_test_two"):
        installed.engine.faults.add(Fault("error", times=None, status=500, operation="get_payment"))
        run = reconciliation.reconcile_objects("default", full=True)
        assert (run.state, run.seen) == ("failed", 0)
        assert AccountState.objects.get().refused_key_hash == ""
    assert not Payment.objects.exclude(gone_at=None).exists()


def test_a_refused_key_is_compared_again(ten: Payment, installed: ProviderSandbox) -> None:
    """The provider had a fault and knew no object for a while."""
    installed.engine.default_project.add_key("sk_test_rotated")
    with with_key("sk_test_rotated"):
        AccountState.objects.update(refused_key_hash=conf.key_hash("default"), refused_key_at=timezone.now())
        with pytest.raises(KeyReplaced):
            services.refresh(ten)
        AccountState.objects.update(refused_key_at=timezone.now() - timedelta(minutes=11))
        sync.forget_keys()
        services.refresh(ten)
        assert health.examine().accounts["default"].statistics.key_replaced == ""


def test_the_state_is_read_once_a_minute(filled: Payment, django_assert_num_queries: Any) -> None:
    with with_key("sk_test_sandbox"):
        services.refresh(filled)
        with django_assert_num_queries(0):
            sync.get_client("default")
            assert sync.waiting_accounts() == []
            assert sync.uncompared_accounts() == []


def test_every_account_costs_the_same(installed: ProviderSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting is compared with the parsed one as a whole, so not once for each account."""
    url = conf.account().base_url
    entries = {f"a{number}": {"BASE_URL": url, "API_KEY": f"sk_test_{number}"} for number in range(20)}
    with override_settings(PAYMENTS_INTEGRATION={"ACCOUNTS": entries}):
        current, calls = conf.current, 0

        def counted() -> conf.Settings:
            nonlocal calls
            calls += 1
            return current()

        monkeypatch.setattr(conf, "current", counted)
        for ask in (sync.waiting_accounts, sync.uncompared_accounts):
            calls = 0
            ask()
            assert calls == 1


def test_the_key_itself_is_not_stored(filled: Payment) -> None:
    with with_key("sk_test_sandbox"):
        state = AccountState.objects.values().get()
        assert state["key_hash"] == conf.key_hash("default")
        assert "sk_test" not in str(state)
        with override_settings(SECRET_KEY="another"):
            assert conf.key_hash("default") == state["key_hash"], "a new SECRET_KEY makes no API key a new one"


def test_a_test_key_that_filled_the_mirror_without_a_pass(installed: ProviderSandbox) -> None:
    """A project that was tried out has no worker."""
    with with_key("sk_test_sandbox"):
        services.create_payment(**PAYMENT, merchant_reference="order-1")
    with with_key(LIVE):
        assert ids(check_accounts(databases=["default"])) == ["payments_integration.E018"]
        with pytest.raises(KeyReplaced, match="was filled with a test key"):
            services.create_payment(**PAYMENT, merchant_reference="order-2")


def test_a_delivery_before_the_first_answer_hides_no_key(installed: ProviderSandbox) -> None:
    with with_key("sk_test_sandbox"):
        deliver("pay_1")
        services.list_payment_methods()
    with with_key(LIVE):
        assert ids(check_accounts(databases=["default"])) == ["payments_integration.E018"]


def test_a_key_that_never_worked_filled_nothing(installed: ProviderSandbox) -> None:
    """Its refusal is the first contact, and the deliveries are signed by a secret of the right project."""
    with with_key("sk_test_misspelt"):
        with pytest.raises(ProviderError):
            services.create_payment(**PAYMENT, merchant_reference="order-1")
        deliver("pay_1")
    with with_key(LIVE):
        assert check_accounts(databases=["default"]) == []
        services.create_payment(**PAYMENT, merchant_reference="order-1")
    with with_key("sk_test_sandbox"):
        assert ids(check_accounts(databases=["default"])) == ["payments_integration.E018"]


def test_a_late_first_contact_leaves_the_key(filled: Payment) -> None:
    """An earlier version did not store the contact, and a delivery comes while the key is refused."""
    AccountState.objects.update(first_contact_at=None)
    with with_key(LIVE):
        deliver("pay_1")
        assert ids(check_accounts(databases=["default"])) == ["payments_integration.E018"]


def test_a_live_mirror_takes_no_test_key(filled: Payment) -> None:
    AccountState.objects.update(has_test_key=False)
    with (
        with_key("sk_test_sandbox"),
        pytest.raises(KeyReplaced, match="with a live key, and its API_KEY is a test key"),
    ):
        services.refresh(filled)


def test_another_key_of_the_same_kind_goes_on(filled: Payment, installed: ProviderSandbox) -> None:
    """Of fewer than ten objects nothing follows, so the provider is not asked for them."""
    installed.engine.add_project("sk_test_two")
    installed.engine.faults.add(replace(FAILURES["failed"]))
    with with_key("sk_test_two"):
        services.create_payment(**PAYMENT, merchant_reference="order-2")
        assert check_accounts(databases=["default"]) == []


def test_the_rows_get_another_alias_and_the_live_key_starts_afresh(filled: Payment) -> None:
    """What the runbook says."""
    with with_key("sk_test_sandbox", alias="test"):
        call_command("payments_rename_account", "default", "test", verbosity=0)
        assert services.refresh(Payment.objects.get()).account == "test"
    with with_key(LIVE):
        services.create_payment(**PAYMENT, merchant_reference="order-1")
        run = reconciliation.reconcile_events("default")
        assert run.state == "done"
        assert ids(check_accounts(databases=["default"])) == ["payments_integration.E019"]
    assert {(state.account, state.has_test_key) for state in AccountState.objects.all()} == {
        ("test", True), ("default", False),
    }  # fmt: skip


def due_payout() -> Operation:
    with transaction.atomic(), dispatching():  # a handler's call: a worker sends it
        return services.defer(services.create_payout, **PAYOUT, merchant_reference="invoice-17")


@pytest.mark.parametrize("has", ["all", "no state", "no operation", "objects of both"])
def test_a_copy_of_production_pays_nothing_out_of_another_project(
    filled: Payment, installed: ProviderSandbox, has: str, attentions: list[dict[str, Any]]
) -> None:
    """Too few objects to refuse the key, or a dump without the state of the account."""
    installed.engine.add_project("sk_test_two")
    with with_key("sk_test_sandbox"):
        operation = due_payout()
    with with_key("sk_test_two", "second"):
        services.create_payment(**PAYMENT, account="second")  # there is an object of the other project
    AccountState.objects.exclude(account="default" if has != "no state" else "").delete()
    with deletion_allowed():
        Payment.objects.filter(account="second").delete()
        if has == "no operation":
            Operation.objects.filter(operation="create_payment").delete()
    with with_key("sk_test_two"):
        if has == "objects of both":
            assert reconciliation.reconcile_events("default").state == "done"
            assert reconciliation.reconcile_objects("default", full=True).state == "done"
            assert Payment.objects.filter(account="default", gone_at=None).exists()
            attentions.clear()  # a slower pass also tells that the endpoint of the other project is gone
        sent = posts(installed)
        assert services.resume_operations() == {"needs_person": 1}
        assert posts(installed) == sent
    operation.refresh_from_db()
    assert "recorded under another API key" in operation.note
    assert [seen["reason"] for seen in attentions] == [Reason.OPERATION_NEEDS_RESOLUTION]


@pytest.mark.parametrize(("key", "state"), [(LIVE, "needs_person"), ("sk_test_two", "done")])
def test_a_payout_that_waited_for_a_key_that_never_worked(installed: ProviderSandbox, key: str, state: str) -> None:
    """Nothing shows for which project it was recorded: a live key does not send it."""
    installed.engine.add_project("sk_test_two")
    with with_key("sk_test_mistyped"):
        operation = due_payout()
        assert services.resume_operations() == {"due": 1}
    Operation.objects.update(next_attempt_at=None)
    with with_key(key):
        services.resume_operations()
    operation.refresh_from_db()
    assert operation.state == state


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_payout_that_waited_for_another_key_of_its_project_is_sent(
    filled: Payment, installed: ProviderSandbox, is_empty: bool
) -> None:
    """Rotated: the provider knows an object. A new site has none, and its first key may have been wrong."""
    installed.engine.default_project.add_key("sk_test_rotated")
    if is_empty:
        with deletion_allowed():
            Payment.objects.all().delete()
        AccountState.objects.all().delete()
    with with_key("sk_test_wrong" if is_empty else "sk_test_sandbox"):
        operation = due_payout()
    with with_key("sk_test_rotated"):
        assert services.resume_operations() == {"done": 1}
    operation.refresh_from_db()
    assert operation.state == OperationState.DONE


def test_two_keys_that_were_swapped(filled: Payment, installed: ProviderSandbox) -> None:
    """One object is enough: the key filled the mirror of another account, and a project has one account."""
    installed.engine.add_project("sk_test_two")
    before = conf.current().ACCOUNTS["default"]

    def with_keys(default: str, second: str) -> Any:
        entries = {
            alias: {"BASE_URL": before.base_url, "API_KEY": key}
            for alias, key in (("default", default), ("second", second))
        }
        return override_settings(PAYMENTS_INTEGRATION={"ACCOUNTS": entries})

    with with_keys("sk_test_sandbox", "sk_test_two"):
        services.create_payment(**PAYMENT, account="second")
        assert reconciliation.reconcile_events("second").state == "done"
    with with_keys("sk_test_two", "sk_test_sandbox"):
        for alias in ("default", "second"):
            with pytest.raises(KeyReplaced):
                services.create_payment(**PAYMENT, account=alias)
            assert "KeyReplaced" in reconciliation.reconcile_objects(alias, full=True).error
    assert Payment.objects.filter(gone_at=None).count() == 2
