"""Two agents, and one thing to do: the second is warned, and sends nothing until they confirm again."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone, translation

from payments_integration import services
from payments_integration.admin.flows.confirmation import ConfirmationPage, SendingPage
from payments_integration.admin.flows.payout import PayoutPage
from payments_integration.admin.flows.refund import RefundPage
from payments_integration.admin.shared.buttons import Button
from payments_integration.contrib.backoffice.admin.bulk_refund import BulkRefundPage
from payments_integration.models import OPEN_OPERATION_STATES, Operation, OperationState, Payment, Payout, Refund
from payments_integration.sandbox.faults import Fault
from tests.factories import rows
from tests.unit.admin.conftest import browser, page, url
from tests.unit.admin.flows.test_payout import FORM
from tests.unit.admin.flows.test_payouts_with_provider import ADD, review
from tests.unit.admin.flows.test_refund import hidden
from tests.unit.admin.flows.test_refunds_with_provider import form_of, paid
from tests.unit.contrib.backoffice.test_bulk_refund import BULK, VALUES, outcomes

pytestmark = [pytest.mark.case(136), pytest.mark.django_db(transaction=True)]

LANGUAGES = {
    "en": ("A refund of this payment was asked for", "It was asked for at"),
    "es": ("ya se solicitó un reembolso de este pago", "ya se solicitó:"),
    "pt-br": ("já foi solicitado um reembolso deste pagamento", "isso já foi solicitado"),
}
each_language = pytest.mark.parametrize("language", LANGUAGES)


@pytest.fixture
def ana() -> Client:
    return browser(User.objects.create_superuser("ana"))


@pytest.fixture
def berta() -> Client:
    return browser(User.objects.create_superuser("berta"))


def reviewed(client: Client, payment: Payment, amount: str) -> dict[str, str]:
    """The confirmation page's form."""
    form = {**form_of(client, payment), "amount": amount, "step": "review"}
    response = client.post(url("payment", "refund", payment.pk), form)
    assert "confirmation" in response.context, response.context["form"].errors
    return {**hidden(response.content.decode()), "step": "confirm"}


def twins_in(html: str) -> list[str]:
    return re.findall(r'name="twin" value="([^"]+)"', html)


def aged(form: dict[str, Any], minutes: int) -> dict[str, Any]:
    """The form of a page that was made so long ago."""
    return {**form, "made_at": str(int(form["made_at"]) - 60 * minutes)}


def age(minutes: int) -> None:
    """Let everything have been asked for so long ago."""
    Operation.objects.update(created_at=timezone.now() - timedelta(minutes=minutes))


class TestRefunds:
    @each_language
    def test_the_second_agent_is_warned_and_sends_nothing(
        self, ana: Client, berta: Client, payments_sandbox: Any, language: str
    ) -> None:
        payment = paid(payments_sandbox, "cl_webpay_card", 5_000)
        address = url("payment", "refund", payment.pk)
        forms = [reviewed(who, payment, "1000") for who in (ana, berta)]
        assert ana.post(address, forms[0]).status_code == 302
        with translation.override(language):
            shown = berta.post(address, forms[1])
        assert shown.status_code == 200
        operation = Operation.objects.get(operation="create_refund")
        html = shown.content.decode()
        assert LANGUAGES[language][0] in html
        assert url("operation", "change", operation.pk) in html
        assert twins_in(html) == [operation.pk]
        assert Refund.objects.count() == len(payments_sandbox.project.refunds) == 1
        # The same form again says the same. A person who has read it and means it gets a second refund, once.
        assert berta.post(address, forms[1]).status_code == 200
        again = {**hidden(html), "step": "confirm"}
        for _ in range(2):
            assert berta.post(address, again).status_code == 302
        assert [row["amount"] for row in payments_sandbox.project.refunds.values()] == [1_000, 1_000]

    def test_the_review_warns_already(self, ana: Client, berta: Client, payments_sandbox: Any) -> None:
        payment = paid(payments_sandbox, "cl_webpay_card", 5_000)
        ana.post(url("payment", "refund", payment.pk), reviewed(ana, payment, "1000"))
        form = reviewed(berta, payment, "500")  # of another amount
        assert form["twin"] == Operation.objects.get(operation="create_refund").pk
        assert berta.post(url("payment", "refund", payment.pk), form).status_code == 302
        assert len(payments_sandbox.project.refunds) == 2

    def test_a_third_refund_needs_another_confirmation(
        self, ana: Client, berta: Client, payments_sandbox: Any
    ) -> None:
        payment = paid(payments_sandbox, "cl_webpay_card", 5_000)
        address = url("payment", "refund", payment.pk)
        ana.post(address, reviewed(ana, payment, "1000"))
        form = reviewed(berta, payment, "1000")
        ana.post(address, reviewed(ana, payment, "1000"))
        assert len(payments_sandbox.project.refunds) == 2
        assert berta.post(address, form).status_code == 200
        assert len(payments_sandbox.project.refunds) == 2

    @pytest.mark.parametrize(
        "changes",
        [
            {"state": OperationState.CLOSED},
            {"state": OperationState.REJECTED},
            {"account": "second"},
            {"target_id": "pay_other"},
            {"operation": "create_payout"},
            {"created_at": timezone.now() - timedelta(minutes=16)},
        ],
    )
    def test_what_refunded_nothing_of_it_just_now_is_no_twin(
        self, ana: Client, payments_sandbox: Any, changes: dict[str, Any]
    ) -> None:
        payment = paid(payments_sandbox, "cl_webpay_card", 5_000)
        services.create_refund(payment, amount=1_000)
        assert "twin" in reviewed(ana, payment, "500")
        Operation.objects.filter(operation="create_refund").update(**changes)
        assert "twin" not in reviewed(ana, payment, "500")

    def test_a_refund_that_failed_is_no_twin(self, ana: Client, payments_sandbox: Any) -> None:
        payment = paid(payments_sandbox, "cl_webpay_card", 5_000)
        refund = services.create_refund(payment, amount=1_000)
        payments_sandbox.engine.fail_refund(refund.pk)
        payments_sandbox.settle()
        assert "twin" not in reviewed(ana, payment, "500")


class TestBulkRefunds:
    def summary(self, client: Client, *payments: Payment) -> dict[str, Any]:
        html = page(client, f"{reverse(BULK)}?" + "&".join(f"id={payment.pk}" for payment in payments))
        return {**hidden(html), "twin": twins_in(html), "refund": VALUES.findall(html), "step": "confirm"}

    @each_language
    def test_the_second_agent_is_warned_and_sends_nothing(
        self, ana: Client, berta: Client, payments_sandbox: Any, language: str
    ) -> None:
        payments_sandbox.engine.fund("CLP", 10_000)
        both, alone = (paid(payments_sandbox, "cl_webpay_card", amount) for amount in (2_000, 3_000))
        first, second = self.summary(ana, both), self.summary(berta, both, alone)
        assert dict(outcomes(ana.post(reverse(BULK), first))) == {both.pk: "created"}
        with translation.override(language):
            shown = berta.post(reverse(BULK), second).content.decode()
        operation = Operation.objects.get(operation="create_refund")
        assert LANGUAGES[language][0] in shown
        assert url("operation", "change", operation.pk) in shown
        assert len(payments_sandbox.project.refunds) == 1
        # What is left of them is refunded when it is confirmed again.
        assert VALUES.findall(shown) == [f"{alone.pk}:3000"]
        again = {**hidden(shown), "twin": twins_in(shown), "refund": VALUES.findall(shown), "step": "confirm"}
        for _ in range(2):
            assert dict(outcomes(berta.post(reverse(BULK), again))) == {alone.pk: "created"}
        assert len(payments_sandbox.project.refunds) == 2

    def test_both_see_what_is_refunded_when_nothing_is_left(
        self, ana: Client, berta: Client, payments_sandbox: Any
    ) -> None:
        payments_sandbox.engine.fund("CLP", 10_000)
        made = [paid(payments_sandbox, "cl_webpay_card", amount) for amount in (2_000, 3_000)]
        forms = [self.summary(who, *made) for who in (ana, berta)]
        ana.post(reverse(BULK), forms[0])
        shown = berta.post(reverse(BULK), forms[1]).content.decode()
        assert len(twins_in(shown)) == 2
        assert "None of the selected payments can be refunded here." in shown
        assert len(payments_sandbox.project.refunds) == 2

    def test_a_part_that_was_refunded_on_its_own_page_counts(
        self, ana: Client, berta: Client, payments_sandbox: Any
    ) -> None:
        payments_sandbox.engine.fund("CLP", 10_000)
        first, other = (paid(payments_sandbox, "cl_webpay_card", amount) for amount in (5_000, 3_000))
        ana.post(url("payment", "refund", first.pk), reviewed(ana, first, "1000"))
        form = self.summary(berta, first, other)
        assert form["twin"] == [Operation.objects.get(operation="create_refund").pk]
        # Without the warning that the page showed, nothing is sent.
        response = berta.post(reverse(BULK), {**form, "twin": []})
        assert twins_in(response.content.decode()) == form["twin"]
        assert len(payments_sandbox.project.refunds) == 1
        made = dict(outcomes(berta.post(reverse(BULK), form)))
        assert made == {first.pk: "created", other.pk: "created"}

    def test_a_page_that_continues_keeps_what_was_confirmed(
        self, ana: Client, berta: Client, payments_sandbox: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        payments_sandbox.engine.fund("CLP", 10_000)
        first, other = (paid(payments_sandbox, "cl_webpay_card", amount) for amount in (5_000, 3_000))
        ana.post(url("payment", "refund", first.pk), reviewed(ana, first, "1000"))
        form = self.summary(berta, first, other)
        monkeypatch.setattr("payments_integration.contrib.backoffice.admin.bulk_refund.STOP_AFTER", -1.0)
        html = berta.post(reverse(BULK), form).content.decode()
        assert "Continue with the others" in html
        monkeypatch.undo()
        carried = {**hidden(html), "twin": twins_in(html), "refund": VALUES.findall(html), "step": "confirm"}
        assert dict(outcomes(berta.post(reverse(BULK), carried))) == {first.pk: "created", other.pk: "created"}


class TestCancels:
    def press(self, client: Client, row: Payment | Payout) -> dict[str, str]:
        """The cancel button's form on the row's page."""
        html = page(client, url(row.kind, "change", row.pk))
        form = html.split(f'action="{url(row.kind, "cancel", row.pk)}"')[1].split("</form>")[0]
        return dict(re.findall(r'type="hidden" name="(idempotency_key|twin|made_at)" value="([^"]*)"', form))

    def cancelable(self, sandbox: Any, kind: str) -> Payment | Payout:
        sandbox.engine.fund("CLP", 10_000)
        card = {"amount": 1_000, "currency": "CLP", "country": "CL"}
        if kind == "payment":
            return services.create_payment(**card, method_code="cl_webpay_card")
        document = {"type": "RUT", "number": "12345678-5"}
        where = {"type": "bank_account", "account_number": "0001", "holder_name": "Ana", "holder_document": document}
        return services.create_payout(**card, method_code="cl_bank_transfer", destination=where)

    @each_language
    @pytest.mark.parametrize("kind", ["payment", "payout"])
    def test_the_second_agent_is_warned_and_sends_nothing(
        self, ana: Client, berta: Client, payments_sandbox: Any, kind: str, language: str
    ) -> None:
        row = self.cancelable(payments_sandbox, kind)
        address = url(kind, "cancel", row.pk)
        first, second = self.press(ana, row), self.press(berta, row)
        assert "twin" not in second
        # The answer is lost, and the object is as before.
        payments_sandbox.engine.faults.add(Fault("reset", operation=f"cancel_{kind}", work=False))
        ana.post(address, first)
        call = Operation.objects.get(operation=f"cancel_{kind}")
        assert call.state == OperationState.UNKNOWN
        asked = len(payments_sandbox.engine.requests)
        with translation.override(language):
            [message] = berta.post(address, second, follow=True).context["messages"]
        assert LANGUAGES[language][1] in str(message)
        assert url("operation", "change", call.pk) in str(message)
        assert message.level_tag == "warning"
        assert len(payments_sandbox.engine.requests) == asked
        assert Operation.objects.filter(operation=f"cancel_{kind}").count() == 1
        # The button confirms what the page says now.
        again = self.press(berta, row)
        assert again["twin"] == call.pk
        berta.post(address, again)
        assert Operation.objects.filter(operation=f"cancel_{kind}").count() == 2

    def test_a_double_click_is_not_warned(self, ana: Client, payments_sandbox: Any) -> None:
        row = self.cancelable(payments_sandbox, "payment")
        form = self.press(ana, row)
        payments_sandbox.engine.faults.add(Fault("reset", operation="cancel_payment", work=False))
        for _ in range(2):
            [message] = ana.post(url("payment", "cancel", row.pk), form, follow=True).context["messages"]
            assert "is being resolved" in str(message)

    def test_what_is_canceled_already_is_refused(self, ana: Client, berta: Client, payments_sandbox: Any) -> None:
        row = self.cancelable(payments_sandbox, "payment")
        first, second = self.press(ana, row), self.press(berta, row)
        ana.post(url("payment", "cancel", row.pk), first)
        [message] = berta.post(url("payment", "cancel", row.pk), second, follow=True).context["messages"]
        assert message.level_tag == "error"
        assert Operation.objects.filter(operation="cancel_payment").count() == 1


class TestAPageThatStaysOpen:
    """Both open it at 9:00. Ana sends at 9:01, and Berta at 9:17."""

    def test_a_refund(self, ana: Client, berta: Client, payments_sandbox: Any) -> None:
        payment = paid(payments_sandbox, "cl_webpay_card", 5_000)
        address = url("payment", "refund", payment.pk)
        forms = [reviewed(who, payment, "1000") for who in (ana, berta)]
        ana.post(address, forms[0])
        age(16)
        html = berta.post(address, aged(forms[1], 17)).content.decode()
        assert twins_in(html) == [Operation.objects.get(operation="create_refund").pk]
        assert len(payments_sandbox.project.refunds) == 1
        # The page that warns is as old. A person who has read it and means it gets a second refund.
        again = {**hidden(html), "step": "confirm"}
        assert again["made_at"] == aged(forms[1], 17)["made_at"]
        assert berta.post(address, again).status_code == 302
        assert len(payments_sandbox.project.refunds) == 2

    def test_a_payout(self, ana: Client, berta: Client, payments_sandbox: Any) -> None:
        payments_sandbox.engine.fund("CLP", 10_000)
        forms = [review(who, reverse(ADD), {**FORM, "idempotency_key": f"k-{who}"}) for who in (ana, berta)]
        ana.post(reverse(ADD), forms[0])
        age(16)
        assert "twin" in hidden(berta.post(reverse(ADD), aged(forms[1], 17)).content.decode())
        assert len(payments_sandbox.project.payouts) == 1

    def test_refunds_of_several_payments(
        self, ana: Client, berta: Client, payments_sandbox: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        payments_sandbox.engine.fund("CLP", 10_000)
        first, other = (paid(payments_sandbox, "cl_webpay_card", amount) for amount in (5_000, 3_000))
        form = aged(TestBulkRefunds().summary(berta, first, other), 17)
        ana.post(url("payment", "refund", first.pk), reviewed(ana, first, "1000"))
        age(16)
        [twin] = twins_in(berta.post(reverse(BULK), form).content.decode())
        assert len(payments_sandbox.project.refunds) == 1
        monkeypatch.setattr("payments_integration.contrib.backoffice.admin.bulk_refund.STOP_AFTER", -1.0)
        html = berta.post(reverse(BULK), {**form, "twin": [twin]}).content.decode()
        assert "Continue with the others" in html
        assert hidden(html)["made_at"] == form["made_at"]

    def test_a_button(self, ana: Client, berta: Client, payments_sandbox: Any) -> None:
        row = TestCancels().cancelable(payments_sandbox, "payment")
        form = aged(TestCancels().press(berta, row), 17)
        rows.operation(operation="cancel_payment", target_id=row.pk)
        age(16)
        [message] = berta.post(url("payment", "cancel", row.pk), form, follow=True).context["messages"]
        assert LANGUAGES["en"][1] in str(message)
        assert Operation.objects.filter(operation="cancel_payment").count() == 1

    @pytest.mark.parametrize("step", ["review", "change"])
    def test_every_step_keeps_the_time_of_the_first(self, ana: Client, step: str, settings: Any) -> None:
        settings.USE_THOUSAND_SEPARATOR = True
        payment = rows.payment()
        address = url("payment", "refund", payment.pk)
        form = aged(hidden(page(ana, address)), 60)
        shown = ana.post(address, {**form, "amount": "", "step": step}).content.decode()
        assert hidden(shown)["made_at"] == form["made_at"]

    @pytest.mark.parametrize(
        "given", ["", "x", "-1", "1.5", "\u0661", "\u00b2", "9" * 10, "9" * 11, "9" * 5_000, "\x00"]
    )
    def test_without_a_usable_time_it_looks_back_15_minutes(
        self, ana: Client, payments_sandbox: Any, given: str
    ) -> None:
        payment = paid(payments_sandbox, "cl_webpay_card", 5_000)
        forms = [{**reviewed(ana, payment, "1000"), "made_at": given} for _ in range(2)]
        services.create_refund(payment, amount=500)
        age(14)
        assert ana.post(url("payment", "refund", payment.pk), forms[0]).status_code == 200
        age(16)
        assert ana.post(url("payment", "refund", payment.pk), forms[1]).status_code == 302

    def test_a_forged_time_finds_more(self, ana: Client, payments_sandbox: Any) -> None:
        payment = paid(payments_sandbox, "cl_webpay_card", 5_000)
        form = {**reviewed(ana, payment, "1000"), "made_at": "0"}
        services.create_refund(payment, amount=500)
        age(60 * 24 * 365)
        assert ana.post(url("payment", "refund", payment.pk), form).status_code == 200


class TestWhatMayStillHappen:
    """It is a twin at any age."""

    states = pytest.mark.parametrize("state", sorted(OPEN_OPERATION_STATES))

    @states
    def test_a_refund(self, ana: Client, payments_sandbox: Any, state: str) -> None:
        payment = paid(payments_sandbox, "cl_webpay_card", 5_000)
        operation = rows.operation(target_id=payment.pk, state=state, amount=100)
        assert reviewed(ana, payment, "500")["twin"] == operation.pk

    @states
    def test_a_cancel(self, ana: Client, state: str) -> None:
        row = rows.payment(status="created")
        operation = rows.operation(operation="cancel_payment", target_id=row.pk, state=state)
        assert TestCancels().press(ana, row)["twin"] == operation.pk

    def test_a_payout_that_waits_for_approval(
        self, ana: Client, berta: Client, payments_sandbox: Any, settings: Any
    ) -> None:
        settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "APPROVAL_LIMITS": {"CLP": 1_000}}
        payments_sandbox.engine.fund("CLP", 10_000)
        ana.post(reverse(ADD), review(ana, reverse(ADD), FORM))
        age(60 * 24)
        operation = Operation.objects.get(state=OperationState.AWAITING_APPROVAL)
        assert review(berta, reverse(ADD), {**FORM, "idempotency_key": "k-2"})["twin"] == operation.pk


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ({}, {"account_number": "000-123"}, True),
        ({"account_number": "cl 000 123"}, {"account_number": "CL000123"}, True),
        ({"bank_code": ""}, {}, True),
        ({}, {"bank_code": ""}, True),
        ({"bank_code": "b-1"}, {"bank_code": "B1"}, True),
        ({}, {"bank_code": "002"}, False),
        # The same end of the number.
        ({}, {"account_number": "100123"}, False),
        ({}, {"amount": "1501"}, False),
        ({}, {"merchant_reference": "", "holder_name": "A. Pérez", "account_type": ""}, True),
    ],
)
def test_a_bank_account_is_the_same_however_it_is_written(
    ana: Client, berta: Client, payments_sandbox: Any, first: dict[str, str], second: dict[str, str], is_same: bool
) -> None:
    payments_sandbox.engine.fund("CLP", 10_000)
    assert ana.post(reverse(ADD), review(ana, reverse(ADD), {**FORM, **first})).status_code == 302
    assert ("twin" in review(berta, reverse(ADD), {**FORM, **second, "idempotency_key": "k-2"})) is is_same


def test_an_erased_payout_is_no_twin(ana: Client, payments_sandbox: Any) -> None:
    payments_sandbox.engine.fund("CLP", 10_000)
    ana.post(reverse(ADD), review(ana, reverse(ADD), FORM))
    Operation.objects.update(arguments={})
    assert "twin" not in review(ana, reverse(ADD), {**FORM, "idempotency_key": "k-2"})


class TestAPageThatForgetsIt:
    @pytest.mark.parametrize("base", [SendingPage, ConfirmationPage])
    def test_its_class_cannot_be_made(self, base: type[Any]) -> None:
        with pytest.raises(TypeError, match=r"Forgetful moves money: write its twin\(\)"):
            type("Forgetful", (base,), {})

    def test_a_button_says_whether_its_call_has_one(self) -> None:
        with pytest.raises(TypeError, match="twin"):
            Button(name="x", label="X", permission="", call=lambda row, press: None, done="")  # type: ignore[call-arg]

    def test_every_page_that_moves_money_has_one(self) -> None:
        # Without the classes of other tests, which may not be collected yet.
        pages = {page for page in SendingPage.__subclasses__() if page.__module__.startswith("payments_integration.")}
        assert pages == {ConfirmationPage, BulkRefundPage}
        assert {PayoutPage, RefundPage} <= set(ConfirmationPage.__subclasses__())


def test_a_cancel_of_another_object_is_no_twin(ana: Client) -> None:
    row = rows.payment(status="created")
    rows.operation(operation="cancel_payment", target_id="pay_other", created_at=timezone.now())
    assert "twin" not in TestCancels().press(ana, row)


def test_a_warning_links_only_to_what_opens(staff: Callable[..., Client]) -> None:
    row, client = rows.payment(status="created"), staff("view_payment", "cancel_payment")
    call = rows.operation(operation="cancel_payment", target_id=row.pk, state="unknown", created_at=timezone.now())
    pressed = client.post(url("payment", "cancel", row.pk), {"idempotency_key": "k"}, follow=True)
    [message] = pressed.context["messages"]
    for shown in (str(message), page(client, url("payment", "change", row.pk))):
        assert call.pk in shown
        assert url("operation", "change", call.pk) not in shown
