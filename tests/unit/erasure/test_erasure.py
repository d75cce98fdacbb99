"""Personal data is erased everywhere, and nothing brings it back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import IntegrityError, OperationalError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from payments_integration import erasure, health, inbox, projection, reconciliation, schemas, services
from payments_integration.contrib.backoffice import notes
from payments_integration.contrib.backoffice.models import Note
from payments_integration.enums import kind_of
from payments_integration.erasure import Selection, UnknownObject, removal
from payments_integration.exceptions import InvalidRequest, OutcomeUnknown, ProviderError
from payments_integration.models import (
    MIRRORS,
    DepositReference,
    DueRefresh,
    Erasure,
    Event,
    EventState,
    Operation,
    OperationState,
    Payment,
    Payout,
    ReconciliationRun,
    Refund,
    StatusChange,
    deletion_allowed,
)
from payments_integration.projection import Snapshot
from payments_integration.sandbox import Fault
from payments_integration.testing import ProviderSandbox
from tests import factories
from tests.conftest import Receiver
from tests.factories import rows
from tests.fake_provider import DESTINATION, PAYER

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("search_terms")]

#: Texts that must not exist anywhere afterwards.
ANA = [
    "Ana Rojas", "ana@example.com", "912345678", "12345678-5", "12.345.678-5", "00123456789", "203.0.113.9",
    "device-1", "gift for Ana", "Ana changed her mind",
]  # fmt: skip
BEN = {
    "name": "Benita Soto",
    "email": "ben@example.com",
    "phone": "+56987654321",
    "document": {"type": "RUT", "number": "7.654.321-6"},
}
ACCOUNTS = {"ana": DESTINATION["account_number"], "ben": "000777000"}
PAYMENT = {"amount": 10_000, "currency": "CLP", "country": "CL"}
PAYOUT = {"amount": 5_000, "currency": "CLP", "country": "CL", "method_code": "cl_bank_transfer"}


def everything() -> str:
    """Every value of every row of the app and of the admin's history."""
    ours = (apps.get_app_config(label) for label in ("payments_integration", "payments_backoffice"))
    models: list[Any] = [*(model for app in ours for model in app.get_models()), LogEntry]
    found: list[str] = []
    for model in models:
        for row in model._default_manager.values():
            for value in row.values():
                raw = bytes(value).decode("utf-8", "replace") if isinstance(value, bytes | memoryview) else value
                found.append(f"{model.__name__}: {json.dumps(raw, ensure_ascii=False, default=str)}")
    return "\n".join(found)


def traces(texts: list[str] = ANA) -> list[str]:
    return [line[:200] for line in everything().splitlines() if any(text in line for text in texts)]


def erase(*, actor: str = "test", account: str | None = None, **chosen: Any) -> erasure.Erased:
    return erasure.erase(erasure.select(Selection.of(**chosen), account), actor=actor)


def to(name: str, payer: dict[str, Any]) -> dict[str, Any]:
    """A destination with the payer's bank account."""
    return {
        **DESTINATION,
        "account_number": ACCOUNTS[name],
        "holder_name": payer["name"],
        "holder_document": payer["document"],
    }


@pytest.fixture
def sandbox(payments_sandbox: ProviderSandbox, settings: Any, woken: list[str]) -> ProviderSandbox:
    """A sandbox with one account that has money for payouts."""
    only = settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"]
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "ACCOUNTS": {"default": only}}
    payments_sandbox.engine.fund("CLP", 10_000_000)
    for number in ACCOUNTS.values():
        payments_sandbox.engine.whitelist(number)
    return payments_sandbox


@pytest.fixture
def lives(sandbox: ProviderSandbox, receiver: Receiver) -> dict[str, str]:
    """Ana and Benita have data in every table."""
    ids: dict[str, str] = {}
    for name, payer in (("ana", PAYER), ("ben", BEN)):
        paid = services.create_payment(
            **PAYMENT, method_code="cl_khipu", payer=payer, merchant_reference=f"order-{name}", idempotency_key=name,
            metadata={"note": "gift for Ana" if name == "ana" else "for Benita"},
        )  # fmt: skip
        sandbox.engine.pay(paid.pk)
        sandbox.settle()
        destination = to(name, payer)
        reason = "Ana changed her mind" if name == "ana" else "broken"
        refund = services.create_refund(paid, amount=1_000, destination=destination, reason=reason)
        payout = services.create_payout(**PAYOUT, destination=destination)
        deposit = services.create_deposit_reference(
            country="CL", currency="CLP", method_code="cl_deposit", payer=payer, merchant_reference=f"dep-{name}"
        )
        ids |= {name: paid.pk, f"{name} refund": refund.pk, f"{name} payout": payout.pk, f"{name} deposit": deposit.pk}
        sandbox.settle()
    with pytest.raises(ProviderError):
        services.create_payment(**PAYMENT, method_code="no_such_method", payer=PAYER, idempotency_key="refused")
    Event.objects.filter(object_id=ids["ana"]).update(error="Traceback: Ana Rojas")
    StatusChange.objects.filter(object_id=ids["ana"]).update(error="Traceback: Ana Rojas")
    for kind in ("", " refund", " payout", " deposit"):
        for name, words in (("ana", "Ana Rojas called"), ("ben", "Benita Soto called")):
            obj: Any = MIRRORS[kind_of(ids[f"{name}{kind}"])]._default_manager.get(pk=ids[f"{name}{kind}"])
            notes.add(obj, f"{words} about this.", author="the phone desk")
    Operation.objects.filter(idempotency_key="ana").update(
        note="7:boss linked it: Ana Rojas called", actor="9:ana@example.com"
    )
    Operation.objects.filter(idempotency_key="refused").update(
        error={"code": "parameter_invalid", "message": "12345678-5 is wrong", "type": "invalid_request_error"}
    )
    return ids


PERSON = {"emails": ("Ana@Example.com ",), "phones": ("56 9 1234 5678",), "documents": ("12345678-5",)}


@pytest.mark.case(87)
def test_personal_data_is_erased_everywhere(sandbox: ProviderSandbox, lives: dict[str, str], settings: Any) -> None:
    boss = Client()
    boss.force_login(User.objects.create_superuser("boss"))
    boss.post(reverse("admin:payments_integration_payment_refresh", args=[lives["ana"].replace("_", "_5F")]))
    assert {line.partition(":")[0] for line in traces()} == {
        "Payment", "Payout", "Refund", "DepositReference", "Event", "StatusChange", "Operation", "SearchTerm",
        "Note",
    }  # fmt: skip
    theirs = len(traces(["Benita Soto", "for Benita"]))
    erased = erase(**PERSON)
    assert traces() == []
    assert len(traces(["Benita Soto", "for Benita"])) == theirs
    assert erased.left == {}
    for kind in ("payment", "refund", "deposit_reference"):
        assert erased.done[kind] == 1, kind
    assert erased.done["payout"] == 2  # the other one belongs to the refund
    assert erased.done["operation"] == 5
    assert erased.done["event"] > 5
    assert erased.done["note"] == 4
    assert sorted(Note.objects.values_list("author", flat=True)) == ["the phone desk"] * 8
    assert not Erasure.objects.filter(done_at=None).exists()
    payment = Payment.objects.get(pk=lives["ana"])
    assert (payment.payer, payment.metadata, payment.next_action, payment.extra) == (None, None, None, {})
    assert payment.erased_at is not None
    assert (payment.status, payment.amount, payment.merchant_reference) == ("succeeded", 10_000, "order-ana")
    assert Payment.objects.get(pk=lives["ben"]).payer == BEN
    # Pages show that data was erased.
    page = boss.get(reverse("admin:payments_integration_payment_change", args=[lives["ana"].replace("_", "_5F")]))
    assert "erased" in page.content.decode()


@pytest.mark.parametrize(
    "chosen",
    [
        {"emails": ("ana@example.com",)},
        {"phones": ("+56912345678",)},
        {"documents": ("123456785",)},
        {"documents": ("12.345.678-5",)},
    ],
)
@pytest.mark.parametrize("account", [None, "default"])
def test_a_payer_is_found_by_each_identifier(
    lives: dict[str, str], chosen: dict[str, tuple[str, ...]], account: str | None
) -> None:
    found = {key[2] for key in erasure.select(Selection.of(**chosen), account).keys}
    assert {lives["ana"], lives["ana refund"], lives["ana deposit"]} <= found
    assert not {value for name, value in lives.items() if name.startswith("ben")} & found


def test_erasure_can_be_limited_to_one_account(lives: dict[str, str], settings: Any) -> None:
    accounts = settings.PAYMENTS_INTEGRATION["ACCOUNTS"]
    settings.PAYMENTS_INTEGRATION = {
        **settings.PAYMENTS_INTEGRATION,
        "ACCOUNTS": {**accounts, "second": {**accounts["default"], "API_KEY": "sk_test_second"}},
    }
    assert not erasure.select(Selection.of(**PERSON), "second").keys
    with pytest.raises(UnknownObject, match="in account second"):
        erasure.select(Selection.of(ids=(lives["ana"],)), "second")


@pytest.mark.parametrize("chosen", ["ids", "references"])
def test_objects_that_belong_to_an_id_or_reference_are_erased(lives: dict[str, str], chosen: str) -> None:
    given = {"ids": (lives["ana"],)} if chosen == "ids" else {"references": ("order-ana",)}
    found = erasure.select(Selection.of(**given))
    payout_id = Refund.objects.get(pk=lives["ana refund"]).payout_id
    mirrored = {key[2] for key in found.keys if key[1] != Erasure.OPERATION}
    assert mirrored == {lives["ana"], lives["ana refund"], payout_id}
    counts = found.counts()
    assert (counts["payment"], counts["refund"], counts["payout"], counts["operation"]) == (1, 1, 1, 2)
    assert counts["event"] == Event.objects.filter(object_id__in=mirrored).exclude(body=None).count()


def test_a_reference_is_matched_exactly(lives: dict[str, str]) -> None:
    assert not erasure.select(Selection.of(references=("ORDER-ANA",))).keys
    assert not erasure.select(Selection.of(references=("order-an",))).keys


@pytest.mark.parametrize("object_id", ["pay_unknown", "op_unknown", "whk_1", "evt_1", "quarantine_00", "PAY_1"])
def test_an_unknown_id_is_refused(object_id: str) -> None:
    with pytest.raises(UnknownObject, match=object_id):
        erasure.select(Selection.of(ids=(object_id,)))


# Kept out


@pytest.fixture
def gone(lives: dict[str, str], sandbox: ProviderSandbox) -> Iterator[dict[str, str]]:
    """All of Ana's data is erased; after the test none of it may be back."""
    erase(**PERSON)
    assert traces() == []
    yield lives
    assert traces() == []
    assert Payment.objects.get(pk=lives["ana"]).erased_at is not None


@pytest.mark.case(87)
class TestKeptOut:
    def test_a_replay_brings_no_erased_data_back(
        self, gone: dict[str, str], receiver: Receiver, sandbox: ProviderSandbox
    ) -> None:
        before = len(receiver.events)
        for event in Event.objects.filter(object_id=gone["ana"]):
            inbox.replay(event)
        inbox.dispatch()
        assert len(receiver.events) > before

    def test_a_redelivery_brings_no_erased_data_back(self, gone: dict[str, str], sandbox: ProviderSandbox) -> None:
        for delivery in sandbox.project.events:
            assert inbox.receive("default", json.dumps(delivery).encode()) is inbox.Receipt.KNOWN
        sandbox.settle()

    def test_a_redelivery_of_a_pruned_event_brings_no_erased_data_back(
        self, gone: dict[str, str], sandbox: ProviderSandbox
    ) -> None:
        Event.objects.all().delete()
        for delivery in sandbox.project.events:
            inbox.receive("default", json.dumps(delivery).encode())
        assert traces()  # until it is applied
        inbox.process()
        assert traces() == []
        inbox.dispatch()
        kept = Event.objects.filter(object_id=gone["ben"])
        assert kept
        assert not kept.filter(body=None).exists()

    def test_reconciliation_brings_no_erased_data_back(self, gone: dict[str, str], sandbox: ProviderSandbox) -> None:
        Event.objects.all().delete()
        sandbox.engine.clock.advance(10)  # a Date has whole seconds, and the current second may not be over
        run = reconciliation.reconcile_events("default")
        assert (run.state, run.error) == ("done", "")
        assert run.recovered > 5

    @pytest.mark.parametrize("full", [False, True])
    def test_a_sweep_finds_no_drift_in_an_erased_object(self, gone: dict[str, str], full: bool) -> None:
        for model in (Payment, Payout, Refund):  # a recent change would not count as drift
            model.objects.update(state_at=timezone.now() - timedelta(hours=1))
        run = reconciliation.reconcile_objects("default", full=full)
        assert (run.state, run.drifted, run.drift) == ("done", 0, [])
        assert run.seen > 0

    @pytest.mark.parametrize("full", [False, True])
    def test_a_sweep_brings_no_erased_data_back_after_rows_were_lost(self, gone: dict[str, str], full: bool) -> None:
        with deletion_allowed():
            for model in (Payment, Payout, Refund):
                model.objects.all().delete()
        reconciliation.reconcile_objects("default", full=full)
        assert Payment.objects.get(pk=gone["ana"]).payer is None
        assert Payment.objects.get(pk=gone["ben"]).payer == BEN

    def test_a_refresh_brings_no_erased_data_back(self, gone: dict[str, str]) -> None:
        for name, object_id in gone.items():
            services.refresh(object_id)
            if name == "ana deposit":
                assert DepositReference.objects.get(pk=object_id).details == {}

    def test_a_change_at_the_provider_brings_no_erased_data_back(
        self, gone: dict[str, str], sandbox: ProviderSandbox
    ) -> None:
        destination = to("ben", BEN)
        made = services.create_refund(gone["ana"], amount=500, destination=destination)
        for refund_id in (gone["ana refund"], made.pk):
            sandbox.engine.succeed_refund(refund_id)
        sandbox.settle()
        payment = Payment.objects.get(pk=gone["ana"])
        assert payment.refunded_amount == 1_500
        # An object that belongs to an erased payment is stored without personal data from the start.
        assert not Refund.objects.filter(payment_id=gone["ana"], erased_at=None).exists()
        assert not Payout.objects.filter(refund__payment_id=gone["ana"], erased_at=None).exists()
        reconciliation.reconcile_objects("default")
        last = Operation.objects.filter(operation="create_refund", target_id=gone["ana"]).latest("created_at")
        assert (last.arguments, last.body) == ({}, None)

    def test_a_repeated_key_is_recognised_after_an_erasure(
        self, gone: dict[str, str], sandbox: ProviderSandbox
    ) -> None:
        before = len(sandbox.project.payments)
        again = services.create_payment(
            **PAYMENT, method_code="cl_khipu", payer=PAYER, merchant_reference="order-ana", idempotency_key="ana",
            metadata={"note": "gift for Ana"},
        )  # fmt: skip
        assert again.pk == gone["ana"]
        assert again.payer is None
        with pytest.raises(InvalidRequest) as refused:
            services.create_payment(**PAYMENT, method_code="no_such_method", payer=PAYER, idempotency_key="refused")
        assert refused.value.code == "parameter_invalid"
        assert len(sandbox.project.payments) == before

    def test_an_event_from_quarantine_brings_no_erased_data_back(
        self, gone: dict[str, str], sandbox: ProviderSandbox
    ) -> None:
        """One version quarantines an event that it does not understand; the next version reads it again."""
        (delivery, *_) = [event for event in sandbox.project.events if event["data"].get("id") == gone["ana"]]
        delivery = {**json.loads(json.dumps(delivery)), "id": "evt_later"}
        with mock.patch.object(schemas, "decode_event", side_effect=schemas.WireError("not understood")):
            inbox.receive("default", json.dumps(delivery).encode())
        row = Event.objects.get(state=EventState.QUARANTINED)
        assert traces()
        inbox.replay(row)
        assert not Event.objects.filter(state=EventState.QUARANTINED).exists()
        inbox.process()

    def test_erased_data_in_quarantine_is_removed_by_the_next_pruning(
        self, gone: dict[str, str], sandbox: ProviderSandbox
    ) -> None:
        (delivery, *_) = [event for event in sandbox.project.events if event["data"].get("id") == gone["ana"]]
        conflicting = json.loads(json.dumps(delivery))
        conflicting["data"]["amount"] += 1
        assert inbox.receive("default", json.dumps(conflicting).encode()) is inbox.Receipt.QUARANTINED
        assert traces()
        assert reconciliation.prune("default")["erased"] == 1
        # The same bytes do not bring it back.
        inbox.receive("default", json.dumps(conflicting).encode())
        assert traces() == []
        # Its body is erased, so there is no event to dispatch any more.
        inbox.replay(Event.objects.get(pk__startswith="quarantine_"))
        inbox.dispatch()
        row = Event.objects.get(pk__startswith="quarantine_")
        assert (row.state, row.dispatched_at) == (EventState.DONE, None)

    @pytest.mark.case(85)
    def test_recorded_drift_shows_no_personal_data(self, gone: dict[str, str]) -> None:
        payment = Payment.objects.get(pk=gone["ben"])
        for name in payment.personal:
            Payment.objects.filter(pk=payment.pk).update(**{name: {"was": "Ana Rojas"}})
        Payment.objects.filter(pk=payment.pk).update(state_at=timezone.now() - timedelta(hours=1))
        reconciliation.reconcile_objects("default")
        run = ReconciliationRun.objects.get(kind="objects")
        assert {entry["ours"] for entry in run.drift} == {"…"}
        assert {entry["field"] for entry in run.drift} >= {"payer", "metadata"}


# Data that has to wait


def test_an_open_operation_is_erased_when_it_is_closed(sandbox: ProviderSandbox) -> None:
    sandbox.engine.faults.add(Fault("reset", work=True, operation="create_payment", times=1))
    with pytest.raises(OutcomeUnknown):
        services.create_payment(**PAYMENT, method_code="cl_khipu", payer=PAYER, metadata={"note": "gift for Ana"})
    operation = Operation.objects.get()
    assert operation.state == OperationState.UNKNOWN
    assert erasure.select(Selection.of(**PERSON)).counts() == {"open_operation": 1}
    erased = erase(**PERSON, actor="7:boss")
    assert erased.left == {"operation": 1}
    operation.refresh_from_db()
    assert operation.body  # it may have to be sent again, byte for byte
    request = Erasure.objects.get()
    assert (request.object_kind, request.object_id, request.actor, request.done_at) == (
        "operation",
        operation.pk,
        "7:boss",
        None,
    )
    assert erasure.finish().left == {"operation": 1}
    Operation.objects.update(next_attempt_at=None, claimed_until=None)
    services.resume_operations()
    sandbox.settle()
    assert Operation.objects.get().state == OperationState.DONE
    assert len(sandbox.project.payments) == 1
    reconciliation.reconcile_objects("default")
    assert traces() == []
    assert Erasure.objects.filter(done_at=None).count() == 0
    assert {request.object_kind for request in Erasure.objects.all()} == {"operation", "payment"}
    assert Payment.objects.get().erased_at is not None


def test_an_erasure_that_waits_is_shown_by_health(sandbox: ProviderSandbox) -> None:
    sandbox.engine.faults.add(Fault("reset", work=True, operation="create_payment", times=1))
    with pytest.raises(OutcomeUnknown):
        services.create_payment(**PAYMENT, method_code="cl_khipu", payer=PAYER)
    erase(**PERSON)
    assert health.examine("default").accounts["default"].statistics.erasures.count == 1


def test_a_pending_event_is_erased_when_it_is_applied(woken: list[str], receiver: Receiver) -> None:
    data = factories.payment(payer=PAYER, status="succeeded")
    inbox.receive("default", factories.body(factories.event(data)))
    assert not Payment.objects.exists()
    erased = erase(ids=("pay_1",))
    assert erased.left == {"event": 1}
    assert Erasure.objects.get().done_at is None
    inbox.process()
    assert traces() == []
    assert Payment.objects.get().status == "succeeded"
    inbox.dispatch()
    assert len(receiver.events) == 1
    erasure.finish()
    assert Erasure.objects.get().done_at is not None


@pytest.mark.parametrize("state", [EventState.HELD, EventState.APPLIED, EventState.PARKED])
def test_an_undispatched_event_is_dispatched_from_its_row_after_an_erasure(
    woken: list[str], receiver: Receiver, state: str
) -> None:
    inbox.receive("default", factories.body(factories.event(factories.payment(payer=PAYER))))
    inbox.process()
    Event.objects.update(state=state, error="Traceback: Ana Rojas" if state == EventState.PARKED else "")
    erase(emails=("ana@example.com",))
    assert traces() == []
    event = Event.objects.get()
    assert (event.state, event.body) == (state, None)
    inbox.release("default")
    inbox.replay(event)
    inbox.dispatch()
    assert len(receiver.events) == 1
    assert Event.objects.get().state == EventState.DONE


def test_an_object_that_is_not_mirrored_is_erased(woken: list[str]) -> None:
    """An object of a kind that this version does not mirror has events only."""
    dispute = {"object": "dispute", "id": "dsp_1", "payer": PAYER}
    for number in range(2):
        event = factories.event(dispute, seconds=number, id=f"evt_{number}", type="dispute.opened")
        inbox.receive("default", factories.body(event))
        inbox.process()
        if number == 0:
            assert erase(emails=("ana@example.com",)).done["event"] == 1
        assert traces() == []
    assert Event.objects.filter(state=EventState.DONE, body=None).count() == 2


def test_old_values_are_found_in_event_bodies(woken: list[str]) -> None:
    """The first event names another payer than the row."""
    inbox.receive("default", factories.body(factories.event(factories.payment(payer=PAYER))))
    later = factories.payment(payer=BEN, status="processing")
    inbox.receive("default", factories.body(factories.event(later, seconds=9)))
    inbox.process()
    assert Payment.objects.get().payer == BEN
    erase(emails=("ana@example.com",))
    assert traces() == []


QUARANTINED = {
    "no JSON": b"%% ana@example.com %%",
    "no event": json.dumps({"payer": PAYER}).encode(),
    "escaped": b'{"payer": {"email": "ana\\u0040example.com"}, "name": "Ana Rojas"}',
    "names an erased object": b'{"broken": ["pay_1"], "text": "Ana Rojas"}',
}


@pytest.mark.parametrize("what", QUARANTINED)
def test_data_in_quarantined_bodies_is_found(woken: list[str], what: str) -> None:
    inbox.receive("default", b'{"other": "person"}')
    inbox.receive("default", QUARANTINED[what])
    inbox.receive("default", factories.body(factories.event(factories.payment(payer=PAYER))))
    inbox.process()
    found = erasure.select(Selection.of(emails=("ana@example.com",)))
    assert found.counts()["quarantined"] == 1
    assert erasure.erase(found, actor="").done["quarantined"] == 1
    assert traces() == []
    assert Event.objects.filter(state=EventState.QUARANTINED).count() == 1
    assert inbox.receive("default", QUARANTINED[what]) is inbox.Receipt.KNOWN
    assert traces() == []


def test_a_quarantined_body_can_be_erased_by_its_id(woken: list[str]) -> None:
    inbox.receive("default", b"garbage")
    row = Event.objects.get()
    assert erase(ids=(row.pk,)).done == {"quarantined": 1}
    row.refresh_from_db()
    assert (row.state, row.body) == (EventState.DONE, None)
    assert not Erasure.objects.exists()


# Races and interruptions


def test_an_answer_that_was_on_its_way_brings_no_erased_data_back(woken: list[str]) -> None:
    inbox.receive("default", factories.body(factories.event(factories.payment(payer=PAYER))))
    inbox.process()
    before = projection.snapshot("payment", "default", "pay_1")
    erase(ids=("pay_1",))
    resource = schemas.parse_resource(factories.payment(payer=PAYER, status="processing"), schemas.Payment)
    row = projection.write_answer("default", resource, answered_at=timezone.now(), duration=0.1, before=before)
    assert (row.status, row.payer) == ("processing", None)
    assert traces() == []


def test_a_row_that_is_inserted_during_its_erasure_is_erased_later(woken: list[str]) -> None:
    """The inserting transaction did not see the erasure; the daily thorough pass does."""
    inbox.receive("default", factories.body(factories.event(factories.payment(payer=PAYER))))
    with mock.patch.object(projection.events, "keep_erased", return_value=set()):
        erase(ids=("pay_1",))
        inbox.process()
    Erasure.objects.update(done_at=timezone.now())
    assert traces()
    assert erasure.finish().done.total() == 0
    assert erasure.finish(thorough=True).done.total() == 2
    assert traces() == []
    assert erasure.finish(thorough=True).done.total() == 0


def test_a_refund_that_arrived_before_its_payment_is_erased_with_it(woken: list[str]) -> None:
    inbox.receive("default", factories.body(factories.event(factories.payment(payer=PAYER))))
    inbox.process()
    erase(ids=("pay_1",))
    payout = factories.payout(refund_id="ref_1", destination=DESTINATION)
    inbox.receive("default", factories.body(factories.event(payout)))
    inbox.process()
    assert Payout.objects.get().erased_at is None
    inbox.receive("default", factories.body(factories.event(factories.refund(reason="Ana changed her mind"))))
    inbox.process()
    assert Refund.objects.get().reason is None
    erasure.finish()
    assert traces() == []
    assert Payout.objects.get().erased_at is not None


def test_an_erasure_can_be_interrupted_and_repeated(lives: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = projection.erase_row, []

    def dying(*key: str) -> bool:
        calls.append(key)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*key)

    monkeypatch.setattr(projection, "erase_row", dying)
    with pytest.raises(KeyboardInterrupt):
        erase(**PERSON)
    assert traces()
    monkeypatch.setattr(projection, "erase_row", real)
    # The request is recorded, so it need not be repeated.
    erasure.finish()
    assert traces() == []
    assert not Erasure.objects.filter(done_at=None).exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("error", [OperationalError("database is locked"), IntegrityError("another was first")])
def test_a_request_is_recorded_after_a_conflict(
    woken: list[str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    rows.payment(payer=PAYER)
    errors, insert = [error], removal.insert_many

    def conflict_first(new: Any, **options: Any) -> None:
        if errors:
            raise errors.pop()
        insert(new, **options)

    monkeypatch.setattr(removal, "insert_many", conflict_first)
    erase(ids=(Payment.objects.get().pk,))
    assert Payment.objects.get().payer is None
    assert Erasure.objects.get().done_at is not None


def test_one_object_is_erased_in_one_transaction(woken: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    inbox.receive("default", factories.body(factories.event(factories.payment(payer=PAYER))))
    inbox.process()
    with monkeypatch.context() as patched:
        patched.setattr(DueRefresh.objects, "filter", mock.Mock(side_effect=RuntimeError("a bug")))
        with pytest.raises(RuntimeError):
            erase(ids=("pay_1",))
    assert (Payment.objects.get().payer, Payment.objects.get().erased_at) == (PAYER, None)
    assert Event.objects.get().body is not None


def test_a_repeated_erasure_changes_nothing(lives: dict[str, str]) -> None:
    first = erase(**PERSON, actor="first")
    count = Erasure.objects.count()
    assert first.done.total() > 0
    second = erase(ids=(lives["ana"],), actor="second")
    assert second.done.total() == 0
    assert Erasure.objects.count() == count
    assert set(Erasure.objects.values_list("actor", flat=True)) == {"first"}
    assert not Erasure.objects.filter(done_at=None).exists()


def test_finishing_is_cheap_without_erasures(django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(2):
        erasure.finish(thorough=True)


# Selections that a person types


@pytest.mark.parametrize(
    "chosen",
    [{"emails": ("ana",)}, {"phones": ("12-34",)}, {"documents": ("1-2",)}, {"references": ("",)}, {"ids": (" ",)}],
)
def test_a_selection_that_matches_everyone_is_refused(chosen: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"at least|@|empty"):
        Selection.of(**chosen)


@pytest.mark.case(85)
def test_the_repr_of_a_selection_shows_no_value() -> None:
    assert not [text for text in ANA if text in repr(Selection.of(**PERSON, references=("gift for Ana",)))]


NOT_HERS = [
    {"payer": {"email": "dana@example.com"}},
    {"payer": {"email": "ana@example.com.mx"}},
    {"reason": "Write to dana@example.com, not to ana+1@example.com."},
    {"destination": {"account_number": "123456785"}},
    {"metadata": {"account": "123456785", "price": "123456785"}},
    {"amount": 56912345678, "order": "56912345678"},
    {"payer": {"phone": "+569123456789"}},
    {"document": {"type": "RUT", "number": "123456785-0"}},
    [None, True, 1.5, {}],
]


@pytest.mark.parametrize("value", NOT_HERS)
def test_data_of_other_payers_does_not_match(value: Any) -> None:
    assert not Selection.of(**PERSON).is_in(value)
    assert not Selection.of(**PERSON).is_in_body(json.dumps({"data": value}).encode())


HERS = [
    {"payer": {"email": "ANA@example.com"}},
    {"metadata": {"customer": "ana@example.com"}},
    {"payer": {"phone": "+56 9 1234 5678"}},
    {"extra": {"contact": ["+56912345678"]}},
    {"destination": {"holder_document": {"type": "RUT", "number": "12345678-5"}}},
    {"tax_document": "12.345.678-5"},
    {"metadata": {"rut": "12345678-5"}},
    {"reason": "Write to Ana@example.com."},
    {"metadata": {"contact": "Ana Rojas <ana@example.com>"}},
    {"metadata": {"customer_CPF": "12.345.678-5"}},
    {"metadata": {"customerCpf": "12.345.678-5"}},
    {"metadata": {"clienteRUT": "12345678-5"}},
    {"metadata": {"RUTCliente": "12345678-5"}},
    {"metadata": {"telefono": "56912345678"}},
]


@pytest.mark.parametrize("value", HERS)
def test_data_of_the_payer_matches_at_any_depth(value: Any) -> None:
    assert Selection.of(**PERSON).is_in({"data": [value]})
    assert Selection.of(**PERSON).is_in_body(json.dumps({"data": value}).encode())


@pytest.mark.parametrize(
    "text", ["call +56912345678", "call +56 9 1234 5678 after six", "(+56) 9-1234-5678", "RUT 12.345.678-5"]
)
def test_a_note_with_a_number_as_people_write_it_matches(text: str) -> None:
    assert Selection.of(**PERSON).is_in_body(text.encode())
    assert not Selection.of(**PERSON).is_in_body(text.replace("7", "0").encode())


def test_every_field_with_a_persons_structure_is_personal() -> None:
    """The provider's JSON counts as personal unless it is known not to be."""
    for model in MIRRORS.values():
        for field in model._meta.concrete_fields:
            if field.get_internal_type() == "JSONField" and model.personal:
                assert field.name in model.personal, (model, field.name)
    assert set(Snapshot._fields) == {"version", "events"}


@pytest.mark.parametrize("name", ["ana@example.com", "Ana@Example.com", "+56912345678", "123456785"])
@pytest.mark.parametrize("state", ["done", "unknown", "awaiting_approval"])
def test_a_customers_name_is_erased_where_the_call_has_no_payer(
    sandbox: ProviderSandbox, name: str, state: str
) -> None:
    """A cancel says nothing about the payer, but the user name of the customer does. Staff keep theirs."""
    customer, staff = User.objects.create_user(name), User.objects.create_user("Rojas7", is_staff=True)
    payer = {**PAYER, "name": "Rojas"}
    payment = services.create_payment(**PAYMENT, method_code="cl_khipu", payer=payer, idempotency_key="a")
    services.cancel_payment(payment, actor=customer, idempotency_key="b")
    sandbox.settle()
    rows.operation(target_id=payment.pk, actor=f"{staff.pk}:{staff}", state="done")
    Operation.objects.filter(idempotency_key="b").update(state=state)
    erase(emails=("ana@example.com",))
    Operation.objects.filter(idempotency_key="b").update(state="done")
    erasure.finish()
    assert Operation.objects.get(idempotency_key="b").actor == f"{customer.pk}:…"
    assert traces([name]) == []
    assert Operation.objects.filter(actor=f"{staff.pk}:Rojas7").exists()


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("susana@example.com", "susana@example.com"),
        ("ana@example.com.mx", "ana@example.com.mx"),
        ("google_ana@example.com", "google_…"),
        ("Ana <ana@example.com>.", "Ana <…>."),
    ],
)
def test_a_name_in_which_another_address_ends_or_begins_with_the_payers_stays(name: str, left: str) -> None:
    made = rows.operation(actor=name, arguments={"payer": {"email": "ana@example.com"}}, state="done")
    erase(emails=("ana@example.com",))
    made.refresh_from_db()
    assert made.actor == left


def test_an_open_operation_keeps_its_request(sandbox: ProviderSandbox) -> None:
    for state in OperationState:
        rows.operation(operation="create_payment", arguments={"payer": PAYER}, body=b"Ana Rojas", state=state)
    erase(emails=("ana@example.com",))
    kept = set(Operation.objects.exclude(body=None).values_list("state", flat=True))
    assert kept == {"due", "unknown", "needs_person", "awaiting_approval"}
    with pytest.raises(ValidationError):
        services.retry(Operation.objects.get(state="done"))


def test_a_note_on_another_object_is_found_and_only_the_note_is_erased(lives: dict[str, str]) -> None:
    bens = Payment.objects.get(pk=lives["ben"])
    named = notes.add(bens, "His sister ANA@example.com paid it, phone +56 9 1234 5678.", author="desk")
    kept = notes.add(bens, "He called again.", author="desk")
    found = erasure.select(Selection.of(emails=("ana@example.com",)))
    assert [pks for pks in found.elsewhere.values() if pks] == [{named.pk}]
    # The others are on her payment, its refund and her deposit reference.
    assert found.counts()["note"] == 4
    assert erasure.erase(found, actor="test").done["note"] == 4
    texts = dict(Note.objects.values_list("pk", "text"))
    assert (texts[named.pk], texts[kept.pk]) == ("", "He called again.")
    assert Payment.objects.get(pk=bens.pk).payer == BEN
    again = erasure.select(Selection.of(emails=("ana@example.com",)), "default")
    assert not any(again.elsewhere.values())


def test_a_note_that_was_written_during_an_erasure_is_erased_later(lives: dict[str, str]) -> None:
    erase(**PERSON)
    # As under an isolation level in which the erasure does not see it.
    late = rows.note(Payment.objects.get(pk=lives["ana"]), text="Ana Rojas called")
    assert erasure.finish().done["note"] == 0
    assert erasure.finish(thorough=True).done["note"] == 1
    late.refresh_from_db()
    assert late.text == ""


def test_an_erasure_that_fails_erases_no_note(lives: dict[str, str]) -> None:
    """The note goes in the transaction of its object."""
    chosen = erasure.select(Selection.of(ids=(lives["ana payout"],)))
    fails = mock.patch.object(StatusChange.objects, "filter", side_effect=ZeroDivisionError)
    with fails, pytest.raises(ZeroDivisionError):
        erasure.erase(chosen, actor="test")
    assert Note.objects.exclude(text="").count() == 8
    assert Payout.objects.get(pk=lives["ana payout"]).erased_at is None
