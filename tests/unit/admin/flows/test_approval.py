"""Approval by a second person: the panel, the buttons offered to each user, and the messages."""

from __future__ import annotations

import hashlib
import html as markup
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import connection
from django.test import Client
from django.utils import timezone

from payments_integration import services
from payments_integration.exceptions import ApprovalRequired, InvalidState, NoAnswer, OutcomeUnknown
from payments_integration.models import Balance, Operation, OperationState
from payments_integration.testing import ProviderSandbox
from tests.factories import rows
from tests.unit.admin.conftest import browser, page, url

pytestmark = pytest.mark.any_database

DESTINATION = {
    "type": "bank_account", "bank_code": "001", "account_number": "000123", "account_type": "checking",
    "holder_name": "Ana <b>Rojas</b>", "holder_document": {"type": "RUT", "number": "12345678-5"},
}  # fmt: skip
PAYOUT = {
    "amount": 2_500_000, "currency": "CLP", "country": "CL", "method_code": "cl_bank_transfer",
    "merchant_reference": "salary-7", "destination": DESTINATION,
}  # fmt: skip
RIGHTS = ("view_operation", "approve_operation")


def waiting(body: Any = PAYOUT, **fields: Any) -> Operation:
    """A payout that waits for approval, asked for by another user."""
    raw = json.dumps(body).encode()
    values = {
        "operation": "create_payout", "state": OperationState.AWAITING_APPROVAL, "amount": 2_500_000,
        "currency": "CLP", "body": raw, "body_digest": hashlib.sha256(raw).hexdigest(), "arguments": body,
        "actor": "900:maria", "actor_id": "900", "request_ids": [], "created_at": rows.AT,
    }  # fmt: skip
    return rows.operation(**{**values, **fields})


def refund_waiting(**fields: Any) -> Operation:
    pay = rows.payment(
        amount=10_000, amount_received=10_000, currency="CLP", country="CL", method_code="cl_bank_transfer",
        method_family="bank_transfer", merchant_reference="order-of-pedro",
    )  # fmt: skip
    body = {"payment_id": pay.pk, "amount": 6000, "destination": DESTINATION, "reason": "a broken chair"}
    return waiting(body, operation="create_refund", amount=6000, target_id=pay.pk, **fields)


def panel(client: Client, operation: Operation) -> str:
    html = page(client, url("operation", "change", operation.pk))
    return html.split('class="module pi-panel"')[1].split("</section>")[0]


def offered(client: Client, operation: Operation) -> set[str]:
    html = page(client, url("operation", "change", operation.pk))
    return {
        name
        for name in ("approve", "reject", "take-back")
        if f'action="{url("operation", name, operation.pk)}"' in html
    }


def form_of(client: Client, operation: Operation, name: str = "approve") -> dict[str, str]:
    """The hidden fields of a button's form."""
    form = panel(client, operation).split(f'action="{url("operation", name, operation.pk)}"')[1].split("</form>")[0]
    inputs = [part.split(">")[0] for part in form.split("<input")[1:]]
    return {part.split('name="')[1].split('"')[0]: part.split('value="')[1].split('"')[0] for part in inputs}


def test_an_operation_of_a_removed_account_can_only_be_rejected(boss: Client) -> None:
    operation = waiting(account="gone")
    assert offered(boss, operation) == {"reject"}
    html = page(boss, url("operation", "change", operation.pk))
    assert "The account gone is not configured any more" in html


def press(client: Client, operation: Operation, name: str, **form: str) -> list[Any]:
    response = client.post(url("operation", name, operation.pk), form, follow=True)
    assert response.status_code == 200
    return list(response.context["messages"])


def test_a_payout_is_shown_in_words(boss: Client) -> None:
    rows.balance(currency="CLP", available=3_000_000)
    shown = markup.unescape(panel(boss, waiting())).replace("\xa0", " ")
    for words in (
        "CLP 2,500,000", "Ana <b>Rojas</b>", "RUT 12345678-5", "000123", "001",
        "Chile", "cl_bank_transfer", "salary-7", "maria", "2025-03-04 05:06:07", "CLP 3,000,000",
        "Nothing has been sent yet.",
    ):  # fmt: skip
        assert words in shown, words
    assert "<b>" not in panel(boss, waiting())
    Balance.objects.update(gone_at=timezone.now())
    assert "3,000,000" not in panel(boss, waiting())


def test_a_refund_is_shown_with_its_payment(boss: Client) -> None:
    operation = refund_waiting()
    shown = panel(boss, operation).replace("\xa0", " ")
    for words in ("CLP 6,000", "order-of-pedro", "CLP 10,000", "CLP 4,000", "a broken chair", "000123"):
        assert words in shown, words
    assert f'href="{url("payment", "change", operation.target_id)}"' in shown


def test_only_operations_that_wait_have_the_approval_panel(boss: Client) -> None:
    for state in OperationState.values:
        operation = waiting(state=state)
        html = page(boss, url("operation", "change", operation.pk))
        assert ('id="pi-approval"' in html) is (state == OperationState.AWAITING_APPROVAL), state


def test_the_recipient_is_shown_to_approvers_and_with_the_personal_data_permission(
    staff: Callable[..., Client],
) -> None:
    operation = refund_waiting()
    personal = ("000123", "Rojas", "12345678-5", "a broken chair")
    for rights, sees in (
        (RIGHTS, True),
        (("view_operation", "view_personal_data"), True),
        (("view_operation",), False),
    ):
        client = staff(*rights)
        shown = panel(client, operation)
        assert all((text in shown) is sees for text in personal), rights
        if "approve_operation" not in rights and not sees:
            html = page(client, url("operation", "change", operation.pk))
            assert not any(text in html for text in personal)


def test_other_rows_are_shown_to_approvers_and_with_their_permission(staff: Callable[..., Client]) -> None:
    rows.balance(currency="CLP", available=3_000_000)
    payout, refund = waiting(), refund_waiting()
    for rights, sees_balance, sees_payment in (
        (RIGHTS, True, True),
        (("view_operation",), False, False),
        (("view_operation", "view_balance"), True, False),
        (("view_operation", "view_payment"), False, True),
    ):
        client = staff(*rights)
        assert ("3,000,000" in panel(client, payout)) is sees_balance, rights
        assert ("order-of-pedro" in panel(client, refund)) is sees_payment, rights
        assert ("4,000" in panel(client, refund)) is sees_payment, rights


def test_the_buttons_are_offered_with_their_permission(staff: Callable[..., Client]) -> None:
    operation = waiting()
    assert offered(staff("view_operation", "change_operation", "close_operation"), operation) == set()
    assert offered(staff(*RIGHTS), operation) == {"approve", "reject"}


@pytest.mark.case(81)
def test_the_person_who_asked_can_only_take_it_back(boss: Client, staff: Callable[..., Client]) -> None:
    maker = User.objects.create_user("maker", is_staff=True)
    maker.user_permissions.add(Permission.objects.get(codename="view_operation"))
    own = waiting(actor=f"{maker.pk}:maker", actor_id=str(maker.pk))
    assert offered(browser(maker), own) == {"take-back"}
    assert "Take it back" in panel(browser(maker), own)
    by_boss = waiting(actor="boss", actor_id=str(User.objects.get(username="boss").pk))
    assert offered(boss, by_boss) == {"take-back"}
    assert "another person must approve it" in panel(boss, by_boss)
    assert "Take it back" not in panel(staff(*RIGHTS), own)


def test_an_erased_request_can_only_be_rejected(boss: Client) -> None:
    operation = waiting()
    Operation.objects.filter(pk=operation.pk).update(body=None)
    assert offered(boss, operation) == {"reject"}
    assert "can only be rejected" in panel(boss, operation)


def test_a_request_of_another_version_is_shown_as_json(boss: Client) -> None:
    shown = panel(boss, waiting({**PAYOUT, "destination": {"type": "wallet", "address": "w-77"}, "extra": ["odd"]}))
    assert "w-77" in shown
    assert "odd" in shown


def test_approving_calls_the_service_with_what_was_shown(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def approve(operation: Operation, actor: Any, comment: str, *, digest: str) -> None:
        calls.append((operation, actor, comment, digest))
        Operation.objects.update(state=OperationState.DONE, result_kind="payout", result_id="pout_9")

    monkeypatch.setattr(services, "approve", approve)
    operation = waiting()
    user = User.objects.get()
    [message] = press(boss, operation, "approve", **form_of(boss, operation), comment="seen")
    assert calls == [(operation, user, "seen", operation.body_digest)]
    assert "pout_9" in str(message)
    assert message.level_tag == "success"
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.user, entry.get_change_message()) == (operation.pk, user, "Approved.")


@pytest.mark.parametrize("may_see", [True, False])
def test_after_an_approval_the_approver_sees_the_payout(
    staff: Callable[..., Client], monkeypatch: pytest.MonkeyPatch, may_see: bool
) -> None:
    made = rows.payout()
    done = {"state": OperationState.DONE, "result_kind": "payout", "result_id": made.pk}
    monkeypatch.setattr(services, "approve", lambda *args, **kwargs: Operation.objects.update(**done))
    operation = waiting()
    client = staff(*RIGHTS, *(["view_payout"] if may_see else []))
    response = client.post(url("operation", "approve", operation.pk), form_of(client, operation))
    expected = url("payout", "change", made.pk) if may_see else url("operation", "change", operation.pk)
    assert response.headers["Location"] == expected


def test_an_approval_whose_outcome_is_not_known_leads_to_the_operation(
    boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.payout(pk="pout_9")
    still = {"state": OperationState.UNKNOWN, "result_kind": "payout", "result_id": "pout_9"}
    monkeypatch.setattr(services, "approve", lambda *args, **kwargs: Operation.objects.update(**still))
    operation = waiting()
    response = boss.post(url("operation", "approve", operation.pk), form_of(boss, operation))
    assert response.headers["Location"] == url("operation", "change", operation.pk)


def test_after_a_login_in_between_the_operation_is_shown(db: None, nothing_called: list[str]) -> None:
    """The session ended before the click. The login leads to the button's address."""
    User.objects.create_superuser("boss", password="secret")
    operation, client = waiting(), Client()
    login = client.post(url("operation", "approve", operation.pk), {"comment": "seen"}).headers["Location"]
    shown = client.post(login, {"username": "boss", "password": "secret"}, follow=True)
    assert shown.status_code == 200
    assert shown.request["PATH_INFO"] == url("operation", "change", operation.pk)
    assert [str(message) for message in shown.context["messages"]] == ["Nothing was done. Press the button again."]
    assert nothing_called == []


def test_an_approval_without_a_digest_is_refused(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    digests: list[Any] = []
    monkeypatch.setattr(services, "approve", lambda *args, digest: digests.append(digest))
    press(boss, waiting(), "approve")
    assert digests == [""]  # None would stand for "as it is now"


def test_rejecting_asks_for_a_comment_and_calls_the_service(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def reject(*args: Any) -> None:
        calls.append(args)
        Operation.objects.update(state=OperationState.CLOSED)

    monkeypatch.setattr(services, "reject", reject)
    operation = waiting()
    [message] = press(boss, operation, "reject", comment=" ")
    assert "This field is required." in str(message)
    assert calls == []
    assert not LogEntry.objects.exists()
    [message] = press(boss, operation, "reject", comment="too much")
    assert calls == [(operation, User.objects.get(), "too much")]
    assert "Nothing was sent" in str(message)
    assert LogEntry.objects.get().object_id == operation.pk


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValidationError({"actor": ["Another person must approve it."]}), "Another person must approve it."),
        (ValidationError({"operation": ["900:luz has approved it already."]}), "900:luz has approved it already."),
        (
            ValidationError(
                {"amount": ValidationError("At most %(rest)d.", params={"rest": 4000, "currency": "CLP"})}
            ),
            "At most CLP 4,000 can be refunded.",
        ),
        (NoAnswer("timeout"), "no usable answer"),
        (InvalidState("no", status_code=422, code="invalid_state", request_id="req_7"), "req_7"),
    ],
)
def test_a_refusal_is_shown_and_not_logged(
    boss: Client, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(services, "approve", refuse)
    [message] = press(boss, waiting(), "approve")
    assert words in str(message).replace("\xa0", " ")
    assert message.level_tag == "error"
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("mine", [True, False])
def test_a_refusal_of_the_provider_is_logged_as_approved(
    boss: Client, monkeypatch: pytest.MonkeyPatch, mine: bool
) -> None:
    pk = User.objects.get().pk

    def refused(*args: Any, **kwargs: Any) -> None:
        kept = {"code": "insufficient_balance", "message": "too little", "request_id": "req_7"}
        who = f"{pk}:boss" if mine else f"{pk}1:luz"
        Operation.objects.update(state=OperationState.REJECTED, approved_by=who, error=kept)
        raise InvalidState("too little", status_code=422, code="insufficient_balance", request_id="req_7")

    monkeypatch.setattr(services, "approve", refused)
    [message] = press(boss, waiting(), "approve")
    assert "insufficient_balance" in str(message)
    assert "req_7" in str(message)
    assert message.level_tag != "success"
    assert LogEntry.objects.exists() is mine


def test_an_approval_with_an_unknown_outcome_is_logged(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    operation = waiting()

    def vanish(*args: Any, **kwargs: Any) -> None:
        Operation.objects.update(state=OperationState.UNKNOWN)
        operation.refresh_from_db()
        raise OutcomeUnknown(operation)

    monkeypatch.setattr(services, "approve", vanish)
    [message] = press(boss, operation, "approve")
    assert "is being resolved" in str(message)
    assert message.level_tag == "warning"
    assert LogEntry.objects.get().object_id == operation.pk


@pytest.mark.parametrize("name", ["approve", "reject"])
def test_a_permission_error_of_the_service_is_a_403(boss: Client, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def deny(*args: Any, **kwargs: Any) -> None:
        raise PermissionDenied

    monkeypatch.setattr(services, name, deny)
    response = boss.post(url("operation", name, waiting().pk), {"comment": "why"})
    assert response.status_code == 403
    assert not LogEntry.objects.exists()


@pytest.mark.case(88)
@pytest.mark.parametrize("name", ["approve", "reject", "take-back"])
def test_deciding_needs_the_permission(staff: Callable[..., Client], nothing_called: list[str], name: str) -> None:
    operation = waiting()
    client = staff("view_operation", "change_operation", "close_operation", "create_payout", "view_personal_data")
    assert client.post(url("operation", name, operation.pk), {"comment": "why"}).status_code == 403
    assert client.post(url("operation", name, "op_absent"), {"comment": "why"}).status_code == 403
    assert nothing_called == []


# Against a running provider


@pytest.fixture
def provider() -> Iterator[Any]:
    with ProviderSandbox(options={"APPROVAL_LIMITS": {"CLP": 1_000_000}}) as sandbox:
        sandbox.engine.fund("CLP", 5_000_000)
        sandbox.engine.whitelist("000123")
        yield sandbox


def asked_for(maker: User) -> Operation:
    with pytest.raises(ApprovalRequired) as raised:
        services.create_payout(**{**PAYOUT, "destination": {**DESTINATION, "holder_name": "Ana"}}, actor=maker)
    return Operation.objects.get(pk=raised.value.operation.pk)


@pytest.mark.case(81)
@pytest.mark.case(83)
@pytest.mark.django_db(transaction=True)
def test_an_approved_payout_is_sent_once(provider: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    maker, checker = User.objects.create_superuser("maker"), User.objects.create_superuser("checker")
    operation = asked_for(maker)
    assert provider.project.payouts == {}
    form = form_of(browser(checker), operation)
    # Who asked cannot, not even with the page of another.
    [message] = press(browser(maker), operation, "approve", **form)
    assert "Another person" in str(message)
    assert provider.project.payouts == {}
    [message] = press(browser(checker), operation, "approve", **form)
    assert message.level_tag == "success", str(message)
    # The second click, and a third person with the same page, are too late.
    for client in (browser(checker), browser(User.objects.create_superuser("third"))):
        [message] = press(client, operation, "approve", **form)
        assert "has approved it already" in str(message)
    [made] = provider.project.payouts.values()
    assert made["amount"] == 2_500_000
    operation.refresh_from_db()
    assert (operation.state, operation.result_id) == (OperationState.DONE, made["id"])
    html = page(browser(checker), url("operation", "change", operation.pk))
    assert "pi-panel" not in html
    assert ">checker<" in html
    assert [entry.user for entry in LogEntry.objects.all()] == [checker]


@pytest.mark.case(82)
@pytest.mark.django_db(transaction=True)
def test_a_request_changed_since_is_not_approved(provider: Any) -> None:
    operation = asked_for(User.objects.create_superuser("maker"))
    checker = browser(User.objects.create_superuser("checker"))
    form = form_of(checker, operation)
    raw = bytes(operation.body or b"").replace(b"000123", b"000999")
    Operation.objects.update(body=raw, body_digest=hashlib.sha256(raw).hexdigest())
    [message] = press(checker, operation, "approve", **form)
    assert "changed" in str(message)
    assert provider.project.payouts == {}
    # The form comes back with the comment, for the request as it is now.
    again = checker.post(url("operation", "approve", operation.pk), {**form, "comment": "As agreed."})
    shown = again.content.decode().split("/approve/")[1].split("</form>")[0]
    assert "As agreed." in shown
    assert hashlib.sha256(raw).hexdigest() in shown
    assert press(checker, operation, "reject", comment="changed")[0].level_tag == "success"
    operation.refresh_from_db()
    assert operation.state == OperationState.CLOSED


@pytest.mark.case(82)
@pytest.mark.django_db(transaction=True)
def test_the_limits_are_checked_again_at_approval(provider: Any) -> None:
    operation = asked_for(User.objects.create_superuser("maker"))
    for _ in range(3):
        services.create_payout(**{**PAYOUT, "amount": 900_000, "destination": {**DESTINATION, "holder_name": "Ana"}})
    checker = browser(User.objects.create_superuser("checker"))
    [message] = press(checker, operation, "approve", **form_of(checker, operation))
    assert "available balance" in str(message)
    assert len(provider.project.payouts) == 3
    operation.refresh_from_db()
    assert operation.state == OperationState.AWAITING_APPROVAL


@pytest.mark.django_db(transaction=True)
def test_the_person_who_asked_takes_it_back(provider: Any) -> None:
    maker = User.objects.create_user("maker", is_staff=True)
    for codename in ("create_payout", "view_operation"):
        maker.user_permissions.add(Permission.objects.get(codename=codename))
    operation = asked_for(maker)
    # Only the requester may take an operation back; no permission changes that.
    other = browser(User.objects.create_superuser("boss"))
    assert other.post(url("operation", "take-back", operation.pk), {"comment": "mine"}).status_code == 403
    [message] = press(browser(maker), operation, "take-back", comment="a mistake")
    assert message.level_tag == "success"
    operation.refresh_from_db()
    assert operation.state == OperationState.CLOSED
    assert "a mistake" in operation.note
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.get_change_message()) == (operation.pk, "Taken back.")
