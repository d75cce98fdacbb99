"""The four buttons that resolve an operation: when they are offered, and the messages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import connection
from django.test import Client
from django.utils import timezone, translation

from payments_integration import conf, dates, schemas, services
from payments_integration.admin.flows import panels
from payments_integration.admin.shared import display
from payments_integration.exceptions import NoAnswer, NotFound, OutcomeUnknown
from payments_integration.models import Operation, OperationState, Payout
from payments_integration.models.operations import new_operation_id
from payments_integration.outbox.resolution import MAY_STILL_RUN
from payments_integration.sandbox.faults import Fault
from tests.factories import rows
from tests.unit.admin.conftest import browser, page, url

pytestmark = pytest.mark.any_database

BUTTONS = ("look-up", "send-again", "happened", "others", "never-happened")
#: Those of an operation that was sent.
SENT = {"look-up", "send-again", "happened", "never-happened"}
SERVICES = {
    "look-up": "look_up",
    "send-again": "retry",
    "happened": "mark_happened",
    "others": "mark_others",
    "never-happened": "mark_never_happened",
}
FORM = {"object_id": " ref_9 ", "object_ids": "ref_8, ref_9", "comment": "asked the provider"}


#: As far as the ledger knows.
NEVER_SENT = {"may_have_run": False, "first_sent_at": None}


def sent(**fields: Any) -> Operation:
    """An operation sent a minute ago to the configured provider."""
    at = timezone.now() - timedelta(minutes=1)
    values = {
        "state": OperationState.NEEDS_PERSON, "may_have_run": True, "first_sent_at": at, "sent_after": at,
        "attempts": 1,
        "sent_to": conf.fingerprint("default"),
    }  # fmt: skip
    return rows.operation(**{**values, **fields})


def offered(client: Client, operation: Operation) -> set[str]:
    html = page(client, url("operation", "change", operation.pk))
    return {name for name in BUTTONS if f'action="{url("operation", name, operation.pk)}"' in html}


def press(client: Client, operation: Operation, name: str, **form: str) -> list[Any]:
    response = client.post(url("operation", name, operation.pk), form or FORM, follow=True)
    assert response.status_code == 200
    return list(response.context["messages"])


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, SENT),
        ({"state": "unknown"}, {"look-up", "send-again", "happened"}),
        ({"state": "due", **NEVER_SENT}, {"send-again", "happened", "others", "never-happened"}),
        (NEVER_SENT, {"send-again", "happened", "others", "never-happened"}),
        ({**NEVER_SENT, "created_at": timezone.now}, {"send-again", "never-happened"}),
        ({"state": "awaiting_approval", **NEVER_SENT}, {"others"}),
        # The provider may have forgotten the key, or it was sent elsewhere.
        ({"first_sent_at": rows.AT}, {"look-up", "happened", "never-happened"}),
        ({"sent_to": "another-place"}, {"look-up", "happened", "never-happened"}),
        ({"account": "gone"}, {"never-happened"}),
        ({"error": {"code": "idempotency_conflict"}}, {"look-up", "happened", "never-happened"}),
        ({"operation": "delete_webhook_endpoint"}, {"look-up", "send-again", "never-happened"}),
        ({"operation": "of_another_version"}, {"never-happened"}),
        ({"state": "done"}, set()),
        ({"state": "rejected"}, set()),
        ({"state": "closed"}, set()),
        ({"state": "awaiting_approval"}, set()),
        ({"state": "quarked"}, set()),
    ],
)
def test_each_button_is_offered_where_it_can_apply(boss: Client, fields: dict[str, Any], names: set[str]) -> None:
    # Now, and not when the tests were collected: after an hour an operation that was never sent has further buttons.
    fields = {name: value() if callable(value) else value for name, value in fields.items()}
    assert offered(boss, sent(**fields)) == names


def test_what_keeps_a_free_key_from_being_used_can_be_said_to_be_others(boss: Client) -> None:
    free = {"state": "closed", **NEVER_SENT, "error": {"status_code": 401}, "merchant_reference": "o1"}
    operation = sent(operation="create_payment", amount=100, currency="CLP", **free)
    assert offered(boss, operation) == set()
    rows.payment(merchant_reference="o1", amount=100, currency="CLP", created_at=operation.created_at)
    assert offered(boss, operation) == {"others"}


def test_the_buttons_are_offered_with_their_permission(staff: Callable[..., Client]) -> None:
    operation = sent()
    assert offered(staff("view_operation"), operation) == set()
    assert offered(staff("view_operation", "change_operation"), operation) == SENT - {"never-happened"}
    assert offered(staff("view_operation", "close_operation"), operation) == {"never-happened"}


def test_a_look_up_that_finds_nothing_says_so_in_the_users_language(
    boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve(*args: Any) -> None:
        note = f"2026-01-01 00:00:00: {services.operations.NOT_FOUND}"
        Operation.objects.update(state=OperationState.NEEDS_PERSON, note=note)

    monkeypatch.setattr(services, SERVICES["look-up"], serve)
    with translation.override("es"):
        [message] = press(boss, sent(), "look-up")
    assert str(message).endswith(". Se consultó al proveedor y no se encontró nada que coincida.")
    assert services.operations.NOT_FOUND not in str(message)


@pytest.mark.parametrize("name", BUTTONS)
def test_each_button_calls_its_service_once_and_shows_the_state(
    boss: Client, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    calls: list[tuple[Any, ...]] = []

    def serve(*args: Any) -> None:
        calls.append(args)
        Operation.objects.update(state=OperationState.DONE, note="first\nsecond line")

    monkeypatch.setattr(services, SERVICES[name], serve)
    operation = sent()
    [message] = press(boss, operation, name)
    user = User.objects.get()
    further = {
        "happened": ("ref_9", user, FORM["comment"]),
        "others": (["ref_8", "ref_9"], user, FORM["comment"]),
        "never-happened": (user, FORM["comment"]),
    }
    assert calls == [(operation, *further.get(name, (user,)))]
    if name != "others":
        assert str(message) == "The operation's state is: done."
    assert message.level_tag == "success"
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.user) == (operation.pk, user)


@pytest.mark.parametrize(
    ("after", "words", "level"),
    [
        ({"state": "needs_person", "note": "two fit <b>"}, ["a person must decide", "two fit <b>"], "warning"),
        ({"state": "unknown"}, ["outcome not known"], "warning"),
        (
            {"state": "rejected", "error": {"code": "limit_exceeded", "message": "no", "request_id": "req_7"}},
            ["rejected", "limit_exceeded", "req_7"],
            "warning",
        ),
        ({"state": "closed", "note": "ana closed it"}, ["closed without effect."], "success"),
    ],
)
def test_the_resulting_state_is_shown(
    boss: Client, monkeypatch: pytest.MonkeyPatch, after: dict[str, Any], words: list[str], level: str
) -> None:
    monkeypatch.setattr(services, "retry", lambda operation, actor: Operation.objects.update(**after))
    [message] = press(boss, sent(), "send-again")
    assert all(word in str(message) for word in words), str(message)
    assert message.level_tag == level


@pytest.mark.parametrize(
    "after",
    [
        {"state": "rejected", "error": {"code": "parameter_invalid", "message": "no account 000123"}},
        {"state": "needs_person", "note": "nothing fits account 000123"},
        {"state": "needs_person", "note": "2026-01-31 12:00:00: it cannot be sent again: no account 000 123"},
    ],
)
def test_arguments_are_not_quoted_in_messages(
    boss: Client, monkeypatch: pytest.MonkeyPatch, after: dict[str, Any]
) -> None:
    monkeypatch.setattr(services, "retry", lambda operation, actor: Operation.objects.update(**after))
    [message] = press(boss, sent(arguments={"destination": {"account_number": "000123"}}), "send-again")
    assert ("•••" in str(message)) == ("note" in after)
    assert "000123" not in str(message)
    assert "000 123" not in str(message)


@pytest.mark.parametrize("name", BUTTONS)
@pytest.mark.parametrize(
    ("error", "words", "level"),
    [
        (ValidationError({"operation": ["It is closed."]}), "It is closed.", "error"),
        (NotFound("no such", status_code=404, code="resource_not_found", request_id="req_7"), "req_7", "error"),
        (NoAnswer("timeout"), "no usable answer", "error"),
        (schemas.WireError("amount is text"), "amount is text", "error"),
    ],
)
def test_a_refusal_is_shown_and_not_logged(
    boss: Client, monkeypatch: pytest.MonkeyPatch, name: str, error: Exception, words: str, level: str
) -> None:
    def refuse(*args: Any) -> None:
        raise error

    monkeypatch.setattr(services, SERVICES[name], refuse)
    [message] = press(boss, sent(), name)
    assert words in str(message)
    assert message.level_tag == level
    assert not LogEntry.objects.exists()


def test_an_outcome_that_stays_open_is_shown_and_logged(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    operation = sent()

    def vanish(*args: Any) -> None:
        raise OutcomeUnknown(operation)

    monkeypatch.setattr(services, "retry", vanish)
    [message] = press(boss, operation, "send-again")
    assert "a person must decide" in str(message)
    assert LogEntry.objects.get().object_id == operation.pk


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("happened", "object_id"),
        ("happened", "comment"),
        ("others", "object_ids"),
        ("others", "comment"),
        ("never-happened", "comment"),
    ],
)
def test_required_fields_are_asked_for(boss: Client, nothing_called: list[str], name: str, missing: str) -> None:
    [message] = press(boss, sent(), name, **{**FORM, missing: "  "})
    assert "This field is required." in str(message)
    assert message.level_tag == "error"
    assert nothing_called == []
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(
    ("name", "typed"),
    [("happened", ["object_id", "comment"]), ("others", ["object_ids", "comment"]), ("never-happened", ["comment"])],
)
def test_after_a_refusal_the_form_has_what_was_typed(
    boss: Client, monkeypatch: pytest.MonkeyPatch, name: str, typed: list[str]
) -> None:
    def refuse(*args: Any) -> None:
        raise ValidationError({"operation": ["It fits another one."]})

    monkeypatch.setattr(services, SERVICES[name], refuse)
    operation = sent(**(NEVER_SENT if name == "others" else {}))
    address = url("operation", name, operation.pk)
    for empty in ("", "comment"):
        values = {"object_id": "ref_9", "object_ids": "ref_8, ref_9", "comment": "Luz saw it", empty: " "}
        html = boss.post(address, values).content.decode()
        form = html.split(f'action="{address}"')[1].split("</form>")[0]
        for field in set(typed) - {empty}:
            assert values[field] in form
        assert ('<details class="pi-others" open>' in html) is (
            html.index('<details class="pi-others') < html.index(address)
        )
    assert "Luz saw it" not in page(boss, url("operation", "change", operation.pk))


def test_the_object_id_of_a_cancel_is_prefilled(boss: Client) -> None:
    def typed(operation: Operation) -> str:
        html = page(boss, url("operation", "change", operation.pk))
        return html.split('name="object_id"')[1].split(">")[0]

    assert 'value="pay_7"' in typed(sent(operation="cancel_payment", target_id="pay_7"))
    # A refund is another object than its payment.
    assert "value=" not in typed(sent(operation="create_refund", target_id="pay_7"))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", BUTTONS)
def test_services_are_called_outside_transactions(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    client = browser(User.objects.create_superuser("boss"))
    within: list[bool] = []
    monkeypatch.setattr(services, SERVICES[name], lambda *args: within.append(connection.in_atomic_block))
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    client.post(url("operation", name, sent().pk), FORM)
    assert within == [False]


class TestThePanel:
    """Who, how much and to whom; what to look for; and the one button that the findings suggest."""

    DESTINATION = {
        "type": "bank_account", "account_number": "000123", "holder_name": "Ana Rojas",
        "holder_document": {"type": "RUT", "number": "12345678-5"},
    }  # fmt: skip

    def payout(self, **fields: Any) -> Operation:
        body = {"amount": 250_000, "currency": "CLP", "country": "CL", "destination": self.DESTINATION}
        values = {
            "operation": "create_payout", "amount": 250_000, "currency": "CLP", "merchant_reference": "invoice-7",
            "body": json.dumps({**body, "method_code": "cl_bank_transfer"}).encode(), "actor": "7:sofia",
            "arguments": body,
        }  # fmt: skip
        return sent(**{**values, **fields})

    def panel(self, client: Client, operation: Operation) -> str:
        html = page(client, url("operation", "change", operation.pk))
        return html.split('class="module pi-panel"')[1].split("</section>")[0].replace("\xa0", " ")

    def main(self, client: Client, operation: Operation) -> str:
        """The name of the button that is not folded."""
        shown = re.findall(r'action="[^"]*/([a-z-]+)/"', self.panel(client, operation).split("<details")[0])
        assert len(shown) < 2
        return str(next(iter(shown), ""))

    def fitting(self, operation: Operation, **fields: Any) -> Payout:
        at = operation.created_at if not operation.may_have_run else operation.sent_after
        values = {"created_at": at, "merchant_reference": operation.merchant_reference, **fields}
        values["destination"] = self.DESTINATION
        return rows.payout(amount=operation.amount, currency=operation.currency, **values)

    def test_it_says_who_how_much_and_what_to_look_for(self, boss: Client) -> None:
        operation = self.payout()
        shown = self.panel(boss, operation)
        since = dates.moment(operation.sent_after - panels.MARGIN)
        for words in (
            "CLP 250,000 to Ana Rojas", "sofia", "RUT 12345678-5", "000123", "invoice-7", "Bank transfer", since,
            "Look in the provider's dashboard for this", "Nothing that fits it has reached this app.",
        ):  # fmt: skip
            assert words in shown, words

    @pytest.mark.parametrize(
        ("right", "sees"),
        [("change_operation", True), ("close_operation", True), ("view_personal_data", True), ("view_payout", False)],
    )
    def test_the_recipient_is_shown_to_users_who_may_decide_and_with_the_personal_data_permission(
        self, staff: Callable[..., Client], right: str, sees: bool
    ) -> None:
        shown = self.panel(staff("view_operation", right), self.payout())
        assert (f"CLP 250,000 to {'Ana Rojas' if sees else '•••'}") in shown
        for text in ("Rojas", "12345678-5", "<td>000123</td>"):
            assert (text in shown) is sees, text

    def test_the_payer_needs_the_permission(self, staff: Callable[..., Client]) -> None:
        payment = rows.payment(payer={"name": "Ana Soto"})
        operation = sent(operation="create_refund", target_id=payment.pk, amount=500, currency="USD")
        rights = ("view_operation", "change_operation", "view_payment")
        assert "USD 5.00 to •••" in self.panel(staff(*rights), operation)
        assert "USD 5.00 to Ana Soto" in self.panel(staff(*rights, "view_personal_data"), operation)

    @pytest.mark.promise(7)
    def test_the_payer_of_an_erased_payment_is_not_named(self, boss: Client) -> None:
        payment = rows.payment(payer={"name": "Ana Soto"}, erased_at=rows.AT)
        operation = sent(operation="create_refund", target_id=payment.pk, amount=500, currency="USD")
        shown = self.panel(boss, operation)
        assert f"USD 5.00 to {display.ERASED}" in shown
        assert "Ana Soto" not in shown

    def test_a_refund_names_the_payer_and_the_payment(self, boss: Client) -> None:
        payment = rows.payment(payer={"name": "Ana Soto"}, merchant_reference="order-7")
        body = json.dumps({"payment_id": payment.pk, "amount": 500}).encode()
        operation = sent(operation="create_refund", target_id=payment.pk, amount=500, currency="USD", body=body)
        shown = self.panel(boss, operation)
        for words in ("USD 5.00 to Ana Soto", "order-7", payment.pk, "the card that was charged"):
            assert words in shown, words

    def test_the_payment_of_a_refund_needs_the_permission_to_view_payments(self, staff: Callable[..., Client]) -> None:
        payment = rows.payment(payer={"name": "Ana Soto"}, merchant_reference="order-7")
        operation = sent(operation="create_refund", target_id=payment.pk, amount=500, currency="USD")
        rights = ("view_operation", "change_operation", "view_personal_data")
        shown = self.panel(staff(*rights), operation)
        assert payment.pk in shown
        assert not any(text in shown for text in ("Ana Soto", "order-7"))
        shown = self.panel(staff(*rights, "view_payment"), operation)
        assert all(text in shown for text in ("Ana Soto", "order-7"))

    @pytest.mark.parametrize(
        ("fields", "fits", "name"),
        [
            ({}, 0, "look-up"),
            ({"state": "unknown"}, 0, "look-up"),
            ({}, 1, "happened"),
            ({"state": "unknown"}, 1, "happened"),
            ({}, 2, "happened"),
            # It was looked for: the same key cannot do it twice, and without the key it may be asked for again.
            ({"note": services.operations.NOT_FOUND}, 0, "send-again"),
            ({"note": services.operations.NOT_FOUND, "first_sent_at": rows.AT}, 0, "never-happened"),
            (NEVER_SENT, 0, "send-again"),
            (NEVER_SENT, 1, "happened"),
            # The provider cannot be asked, so nothing speaks for any of them.
            ({"account": "gone"}, 0, ""),
        ],
    )
    def test_one_button_is_suggested(self, boss: Client, fields: dict[str, Any], fits: int, name: str) -> None:
        operation = self.payout(**fields)
        for _ in range(fits):
            self.fitting(operation)
        assert self.main(boss, operation) == name

    @pytest.mark.parametrize("fits", [1, 2])
    def test_only_a_single_object_that_fits_is_filled_in(self, boss: Client, fits: int) -> None:
        operation = self.payout()
        made = [self.fitting(operation).pk for _ in range(fits)]
        typed = self.panel(boss, operation).split('name="object_id"')[1].split(">")[0]
        assert (f'value="{made[0]}"' in typed) is (fits == 1)

    def test_what_is_linked_or_differs_does_not_count(self, boss: Client) -> None:
        operation = self.payout()
        rows.operation(operation="create_payout", state="done", result_id=self.fitting(operation).pk)
        self.fitting(operation, merchant_reference="invoice-8")
        assert self.main(boss, operation) == "look-up"

    def test_what_fits_is_described_to_those_who_may_see_it(self, staff: Callable[..., Client]) -> None:
        operation = self.payout()
        made = self.fitting(operation, status="succeeded")
        shown = self.panel(staff("view_operation", "change_operation", "view_payout"), operation)
        assert f"{made.pk}</a> fits it: " in shown
        assert "succeeded" in shown
        shown = self.panel(staff("view_operation", "change_operation"), operation)
        assert f"{made.pk} fits it." in shown
        assert "succeeded" not in shown

    def test_closing_is_not_suggested_while_something_fits(self, staff: Callable[..., Client]) -> None:
        operation, client = self.payout(), staff("view_operation", "close_operation")
        self.fitting(operation)
        assert self.main(client, operation) == "others"
        assert offered(client, operation) == {"never-happened", "others"}

    def test_closing_is_suggested_if_a_user_has_asked_for_the_same(self, boss: Client) -> None:
        operation = self.payout(**NEVER_SENT)
        ana = {"actor": "7:ana", "actor_id": "7", "may_have_run": True}
        same = self.payout(state="unknown", idempotency_key="again", **ana)
        shown = self.panel(boss, operation)
        assert "ana has asked for the same payout: <a" in shown
        assert same.pk in shown
        assert "Nothing that fits it" not in shown
        assert self.main(boss, operation) == "never-happened"
        assert offered(boss, operation) >= {"send-again"}

    def test_who_approves_learns_that_a_user_has_asked_for_the_same(self, boss: Client) -> None:
        operation = self.payout(**NEVER_SENT, state="awaiting_approval", actor="the payroll job")
        assert "has asked for the same payout" not in self.panel(boss, operation)
        self.payout(idempotency_key="again", actor="7:ana", actor_id="7")
        assert "ana has asked for the same payout: <a" in self.panel(boss, operation)

    def test_without_a_permission_nothing_is_suggested(self, staff: Callable[..., Client]) -> None:
        shown = self.panel(staff("view_operation"), self.payout())
        assert "You have no permission to decide it." in shown
        assert "<form" not in shown


# Against a running provider


def lost(sandbox: Any, *, executed: bool = True) -> Operation:
    """A payment whose answer was lost, and that needs a person."""
    sandbox.engine.faults.add(Fault("reset", operation="create_payment", work=executed))
    with pytest.raises(OutcomeUnknown) as raised:
        services.create_payment(amount=10_000, currency="CLP", country="CL", method_code="cl_webpay_card")
    operation = Operation.objects.get(pk=raised.value.operation.pk)
    sent = timezone.now() - MAY_STILL_RUN
    Operation.objects.filter(pk=operation.pk).update(state=OperationState.NEEDS_PERSON, last_sent_at=sent)
    operation.refresh_from_db()
    return operation


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("atomic_requests", [False, True])
@pytest.mark.parametrize("name", sorted(SENT))
def test_a_payment_with_a_lost_answer_is_resolved(
    payments_sandbox: Any, monkeypatch: pytest.MonkeyPatch, name: str, atomic_requests: bool
) -> None:
    client = browser(User.objects.create_superuser("boss"))
    closed = name == "never-happened"
    operation = lost(payments_sandbox, executed=not closed)
    made = "" if closed else next(iter(payments_sandbox.project.payments))
    assert offered(client, operation) == SENT
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", atomic_requests)
    response = client.post(url("operation", name, operation.pk), {"object_id": made, "comment": "seen there"})
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", False)
    assert response.headers["Location"] == url("operation", "change", operation.pk)
    operation.refresh_from_db()
    assert operation.state == (OperationState.CLOSED if closed else OperationState.DONE)
    assert operation.result_id == made
    assert ("boss" in operation.note and "seen there" in operation.note) is (name in ("happened", "never-happened"))
    assert list(payments_sandbox.project.payments) == ([] if closed else [made])
    assert LogEntry.objects.get().object_id == operation.pk
    assert offered(client, operation) == set()


@pytest.mark.django_db(transaction=True)
def test_marking_with_an_unknown_object_is_refused(payments_sandbox: Any) -> None:
    client = browser(User.objects.create_superuser("boss"))
    operation = lost(payments_sandbox)
    [message] = press(client, operation, "happened", object_id="pay_absent", comment="a guess")
    assert message.level_tag == "error"
    operation.refresh_from_db()
    assert operation.state == OperationState.NEEDS_PERSON
    assert not LogEntry.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_after_a_look_up_that_found_nothing_the_page_says_so(payments_sandbox: Any) -> None:
    client = browser(User.objects.create_superuser("boss"))
    operation = lost(payments_sandbox, executed=False)
    press(client, operation, "look-up")
    html = page(client, url("operation", "change", operation.pk))
    assert "The provider was asked, and nothing that fits was found." in html


class TestAnotherLedger:
    """The page of an open operation says what speaks against sending it."""

    WORDS = "which is not in this ledger: a backup was restored"

    @pytest.mark.case(124)
    @pytest.mark.parametrize("state", ["due", "needs_person", "awaiting_approval", "done"])
    @pytest.mark.parametrize("days", [0, 31])
    def test_a_page_says_that_the_ledger_is_incomplete(self, boss: Client, state: str, days: int) -> None:
        at = timezone.now() - timedelta(days=days)
        rows.account_state(account="default", unknown_operation=new_operation_id(), unknown_operation_at=at)
        html = page(boss, url("operation", "change", sent(state=state).pk))
        assert (self.WORDS in html) is (state != "done" and days == 0)

    @pytest.mark.case(124)
    def test_a_page_names_what_fits_and_prefills_it(self, boss: Client) -> None:
        operation = sent(operation="create_payout", merchant_reference="invoice-1", amount=1_000, **NEVER_SENT)
        made = rows.payout(
            merchant_reference="invoice-1", amount=1_000, currency=operation.currency, created_at=operation.created_at
        )
        html = page(boss, url("operation", "change", operation.pk))
        assert f"{made.pk}</a> fits it: " in html
        assert f'value="{made.pk}"' in html.split('name="object_ids"')[1].split(">")[0]
        [message] = press(boss, operation, "others", object_ids=f" {made.pk}", comment="made by hand")
        assert "Nothing was sent" in str(message)
        operation.refresh_from_db()
        assert operation.other_objects == [made.pk]
        assert "</a> fits it" not in page(boss, url("operation", "change", operation.pk))
