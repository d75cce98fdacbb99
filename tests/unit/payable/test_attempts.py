"""The idempotency key of an order's attempt: the same while one is open or paid, and a new one after it ended."""

from __future__ import annotations

import json
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.db.models import F
from django.test import override_settings
from django.utils import timezone

from payments_integration import services
from payments_integration.enums import VAIN_PAYMENT_STATUSES, Kind, PaymentStatus
from payments_integration.exceptions import IdempotencyMismatch, OperationClosed, OutcomeUnknown, ProviderError
from payments_integration.models import OPEN_OPERATION_STATES, Operation, OperationState, Payment
from payments_integration.payable import attempts, find_attempt, queries
from payments_integration.sandbox import Fault
from payments_integration.testing import ProviderSandbox
from payments_integration.validation.validator import IDEMPOTENCY_KEY
from tests.factories import rows
from tests.fake_provider import Fake
from tests.unit.payable.payables import Customer, Invoice, Order, Sale

CASE = pytest.mark.case(128)
CARD = {"amount": 10_000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
#: The end of an operation that did not use up its key: access, rate, no connection.
PASSING: dict[str, dict[str, Any]] = {
    "401": {"status_code": 401, "type": "authentication_error", "code": "api_key_revoked"},
    "403": {"status_code": 403, "type": "permission_error", "code": "merchant_not_active"},
    "429": {"status_code": 429, "type": "rate_limit_error", "code": "rate_limit_exceeded"},
    "not connected": {"status_code": 0, "type": "not_connected", "code": "not_connected"},
}


@pytest.fixture
def order(db: None) -> Order:
    return Order.objects.create(number="A-1")


def attempt(order: Order, status: str = "", state: str = OperationState.DONE, **fields: Any) -> Operation:
    """The ledger's row of the current attempt, and the mirror's with this status."""
    key = order.attempt_key()
    payment = rows.payment(status=status, merchant_reference=order.number).pk if status else ""
    values = {"idempotency_key": key, "merchant_reference": order.number, "result_id": payment}
    return rows.operation(operation="create_payment", state=state, **{**values, **fields})


def number(order: Order) -> int:
    return int(order.attempt_key().rpartition("-")[2])


def pay(order: Order, signed: str | None = None, **fields: Any) -> Payment:
    key = order.attempt_key(signed)
    return services.create_payment(**{**CARD, **fields}, merchant_reference=order.number, idempotency_key=key)


class TestTheLedgerCounts:
    pytestmark = [CASE]

    def test_the_first_key_names_account_and_reference(self, order: Order) -> None:
        assert order.attempt_key() == "order-default-A-1-1"

    @pytest.mark.parametrize("status", sorted(VAIN_PAYMENT_STATUSES))
    def test_an_attempt_that_ended_is_followed_by_the_next_one(self, order: Order, status: str) -> None:
        keys = []
        for _ in range(3):
            keys.append(order.attempt_key())
            attempt(order, status)
        assert keys == ["order-default-A-1-1", "order-default-A-1-2", "order-default-A-1-3"]

    @pytest.mark.parametrize("status", [*sorted(set(PaymentStatus.values) - VAIN_PAYMENT_STATUSES), "refunded", "new"])
    def test_an_attempt_that_is_open_or_paid_keeps_its_key(self, order: Order, status: str) -> None:
        attempt(order, "failed")
        key = order.attempt_key()
        attempt(order, status)
        assert order.attempt_key() == key

    @pytest.mark.parametrize("state", [*sorted(OPEN_OPERATION_STATES), "unheard_of"])
    def test_an_open_outcome_keeps_its_key(self, order: Order, state: str) -> None:
        key = order.attempt_key()
        attempt(order, state=state)
        assert order.attempt_key() == key

    @pytest.mark.parametrize(
        ("status", "hours", "next_number"),
        [("created", 25, 2), ("requires_action", 25, 2), ("created", 23, 1), ("processing", 25, 1)],
    )
    def test_an_unpaid_payment_that_is_gone_for_good_ends_an_attempt(
        self, order: Order, status: str, hours: int, next_number: int
    ) -> None:
        attempt(order, status)
        Payment.objects.update(gone_at=timezone.now() - timedelta(hours=hours))
        assert number(order) == next_number

    def test_a_payment_that_the_mirror_lost_keeps_its_key(self, order: Order) -> None:
        key = order.attempt_key()
        attempt(order, result_id="pay_lost")
        assert order.attempt_key() == key

    def test_a_refusal_and_a_persons_decision_end_an_attempt(self, order: Order) -> None:
        attempt(order, state=OperationState.REJECTED, error={"status_code": 422, "type": "invalid_request_error"})
        attempt(order, state=OperationState.CLOSED)
        # The provider knew the key for another request, and a person decided.
        attempt(order, state=OperationState.CLOSED, error={"status_code": 409, "type": "idempotency_error"})
        assert number(order) == 4

    @pytest.mark.parametrize("error", PASSING.values(), ids=PASSING)
    def test_a_call_that_ended_by_access_or_rate_keeps_its_key(self, order: Order, error: dict[str, Any]) -> None:
        key = order.attempt_key()
        operation = attempt(order, state=OperationState.CLOSED, error=error)
        assert operation.has_free_key
        assert order.attempt_key() == key

    def test_an_erased_call_cannot_be_made_again(self, order: Order) -> None:
        attempt(order, state=OperationState.CLOSED, error=PASSING["429"], body=None)
        assert number(order) == 2

    def test_only_payments_of_this_reference_and_account_count(self, order: Order) -> None:
        for fields in (
            {"merchant_reference": "a-1"},
            {"merchant_reference": "A-1 "},
            {"account": "second"},
            {"operation": "create_deposit_reference"},
        ):
            values = {"operation": "create_payment", "merchant_reference": "A-1", "state": "rejected", **fields}
            rows.operation(**values)
        assert number(order) == 1
        rows.operation(operation="create_payment", merchant_reference="A-1", state="rejected")
        assert number(order) == 2

    def test_an_attempt_that_ended_elsewhere_does_not_renew_an_open_one(self, order: Order) -> None:
        key = order.attempt_key()
        attempt(order, "requires_action")
        rows.operation(operation="create_payment", merchant_reference="A-1", state="rejected")
        assert order.attempt_key() == key

    def test_late_money_of_an_attempt_that_was_given_up_counts(self, order: Order) -> None:
        first = attempt(order, "expired")
        second = attempt(order, "requires_action")
        assert order.attempt_key() == second.idempotency_key
        Payment.objects.filter(pk=first.result_id).update(status="succeeded")
        assert order.attempt_key() == first.idempotency_key

    def test_late_money_under_a_key_of_ones_own_leaves_a_next_attempt(self, order: Order) -> None:
        part = attempt(order, "expired", idempotency_key="deposit-A-1")
        second = attempt(order, "failed")
        Payment.objects.filter(pk=part.result_id).update(status="succeeded")
        assert order.attempt_key() == "order-default-A-1-3" != second.idempotency_key

    def test_the_name_of_the_call_is_that_of_the_registry(self) -> None:
        assert list(services.operations.creating(Kind.PAYMENT)) == [attempts.CREATES_PAYMENT]

    def test_it_costs_two_statements_for_an_open_attempt(self, order: Order, django_assert_num_queries: Any) -> None:
        for _ in range(3):
            attempt(order, "failed")
        with django_assert_num_queries(4):
            order.attempt_key()
        attempt(order, "requires_action")
        with django_assert_num_queries(2):
            order.attempt_key()


@pytest.mark.promise(5)
class TestOtherMoney:
    """What was paid without an attempt key of today: there is no new attempt for it."""

    @pytest.mark.parametrize("signed", [True, False])
    @pytest.mark.parametrize("status", ["succeeded", "overpaid"])
    def test_a_payment_that_no_operation_made_pays_an_order_without_a_price(
        self, order: Order, status: str, signed: bool
    ) -> None:
        form = order.signed_attempt_key()
        rows.payment(status=status, merchant_reference="A-1")
        assert order.signed_attempt_key() == form, "the page is shown, and its form is refused"
        with pytest.raises(ValidationError, match="paid already"):
            order.attempt_key(form if signed else None)

    @pytest.mark.parametrize("fields", [
        {"status": "requires_action"},
        {"status": "failed"},
        {"merchant_reference": "A-2"},
        {"account": "second"},
        {"flow": "deposit_reference"},
    ])  # fmt: skip
    def test_other_payments_do_not(self, order: Order, fields: dict[str, Any]) -> None:
        rows.payment(**{"status": "succeeded", "merchant_reference": "A-1", **fields})
        assert number(order) == 1

    def test_without_a_price_a_part_under_a_key_of_ones_own_leaves_the_rest_to_pay(self, order: Order) -> None:
        attempt(order, "succeeded", idempotency_key="deposit-A-1")
        assert number(order) == 1

    @pytest.mark.parametrize("key", ["", "order-A-1-1"])
    def test_with_a_price_the_money_decides(self, db: None, key: str) -> None:
        sale = Sale.objects.create(number="A-1", amount=10_000, currency="CLP")
        fields = {"status": "succeeded", "merchant_reference": "A-1", "currency": "CLP"}
        for amount in (4_000, 6_000):
            assert sale.attempt_key() == "order-default-A-1-1"
            payment = rows.payment(amount=amount, amount_received=amount, **fields)
            if key:
                values = {"merchant_reference": "A-1", "state": "done", "result_id": payment.pk}
                rows.operation(operation="create_payment", idempotency_key=f"{key}-{amount}-x", **values)
        with pytest.raises(ValidationError, match="paid already"):
            sale.attempt_key()

    @pytest.fixture
    def open_sale(self, db: None) -> Sale:
        """It has an open attempt, and the price was paid under a key of the shop's own."""
        sale = Sale.objects.create(number="A-1", amount=10_000, currency="CLP")
        fields = {"merchant_reference": "A-1", "currency": "CLP"}
        for key, status, received in (
            (str(sale.attempt_key()), "requires_action", 0),
            ("phone-A-1", "succeeded", 10_000),
        ):
            payment = rows.payment(amount=10_000, amount_received=received, status=status, **fields)
            values = {"merchant_reference": "A-1", "state": "done", "result_id": payment.pk}
            rows.operation(operation="create_payment", idempotency_key=key, **values)
        return sale

    @pytest.mark.parametrize("signed", [True, False])
    @pytest.mark.parametrize("status", ["created", "requires_action"])
    def test_an_open_attempt_of_a_paid_order_has_no_key(self, open_sale: Sale, status: str, signed: bool) -> None:
        form = open_sale.signed_attempt_key() if signed else None
        Payment.objects.filter(status="requires_action").update(status=status)
        with pytest.raises(ValidationError, match="paid already") as refused:
            open_sale.attempt_key(form)
        assert refused.value.code == "paid"

    @pytest.mark.parametrize("status", ["processing", "succeeded", "partially_paid"])
    def test_an_attempt_with_money_of_its_own_keeps_its_key(self, open_sale: Sale, status: str) -> None:
        Payment.objects.filter(status="requires_action").update(status=status, amount_received=10_000)
        assert open_sale.attempt_key() == "order-default-A-1-1"

    def test_an_open_attempt_keeps_its_key_while_a_part_is_missing(self, open_sale: Sale) -> None:
        open_sale.amount = 10_001
        assert open_sale.attempt_key() == "order-default-A-1-1"

    def test_an_attempt_that_is_paid_while_the_totals_are_read_keeps_its_key(
        self, open_sale: Sale, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def paid_meanwhile(*args: Any, **kwargs: Any) -> Any:
            Payment.objects.filter(status="requires_action").update(status="succeeded", amount_received=10_000)
            return queries.totals_by_key(*args, **kwargs)

        monkeypatch.setattr(attempts, "totals_by_key", paid_meanwhile)
        assert open_sale.attempt_key() == "order-default-A-1-1"

    @pytest.mark.parametrize("reference", ["A-1", "A" * 250, "ñ"])
    @pytest.mark.parametrize("status", ["succeeded", "requires_action"])
    def test_an_attempt_under_the_former_alias_is_still_the_current_one(
        self, db: None, monkeypatch: pytest.MonkeyPatch, reference: str, status: str
    ) -> None:
        order = Order(number=reference)
        key = order.attempt_key()
        payment = rows.payment(status=status, merchant_reference=reference, account="chile")
        values = {"merchant_reference": reference, "state": "done", "result_id": payment.pk, "account": "chile"}
        rows.operation(operation="create_payment", idempotency_key=key, **values)
        for alias in ("chile", None):
            monkeypatch.setattr(Order, "payments_account", alias)
            assert order.attempt_key() == key
            assert order.attempt_key(order.signed_attempt_key()) == key

    @pytest.mark.parametrize("signed", [True, False])
    def test_a_temporary_refusal_does_not_let_a_paid_order_be_paid_again(self, order: Order, signed: bool) -> None:
        form = order.signed_attempt_key()
        attempt(order, state=OperationState.CLOSED, error=PASSING["429"], body=b"{}")
        rows.payment(status="succeeded", merchant_reference="A-1")
        with pytest.raises(ValidationError, match="paid already"):
            order.attempt_key(form if signed else None)

    def test_a_key_of_another_reference_is_refused(self, order: Order) -> None:
        attempt(order, "failed", merchant_reference="order-A-1")
        with pytest.raises(ValueError, match=r"sent with merchant_reference 'order-A-1', but the order's is 'A-1'"):
            order.attempt_key()


class TestReferences:
    ODD = ("año-ñ-7º", "漢字", "A" * 255, "º" * 255, "tab\there", "é", "e\u0301", "x\u202ey", " blank ", "~", "a\nb")

    def test_every_reference_has_a_valid_key_of_its_own(self, db: None) -> None:
        orders = [Order(number=text) for text in (*self.ODD, "A-1", "A-1-1", "A-1 ", "ano-n-7o")]
        keys = [order.attempt_key() for order in orders]
        assert len(set(keys)) == len(keys)
        for key in keys:
            assert key.isascii()
            assert IDEMPOTENCY_KEY.fullmatch(key), key

    def test_a_key_of_an_odd_reference_can_be_read_by_people(self, db: None) -> None:
        assert Order(number="año-7º").attempt_key().startswith("order~default-ano-7o-")

    @pytest.mark.parametrize("text", ["año-7º", "A" * 255, "A-1-1"])
    def test_attempts_of_any_reference_are_counted(self, db: None, text: str) -> None:
        order, other = (Order(number=each[:255]) for each in (text, f"x{text}"))
        first = order.attempt_key()
        attempt(order, "failed")
        assert (number(order), number(other)) == (2, 1)
        assert order.attempt_key(order.signed_attempt_key()) == order.attempt_key() != first

    def test_an_order_whose_number_looks_like_anothers_attempt_has_its_own_keys(self, db: None) -> None:
        first, second = Order(number="A"), Order(number="A-1")
        attempt(first, "failed")
        attempt(second, "requires_action")
        assert (first.attempt_key(), second.attempt_key()) == ("order-default-A-2", "order-default-A-1-1")

    @pytest.mark.parametrize("row", [Order(), Order(number=""), Invoice(pk=7), Invoice(brand="second")])
    def test_without_a_reference_or_an_account_there_is_no_attempt(self, db: None, row: Any) -> None:
        with pytest.raises(ValueError, match="merchant_reference"):
            row.attempt_key()

    def test_the_account_is_the_rows_own(self, db: None) -> None:
        invoice = Invoice(pk=7, brand="second")
        rows.operation(operation="create_payment", merchant_reference="7", state="rejected")
        assert invoice.attempt_key() == "order-second-7-1"
        rows.operation(operation="create_payment", merchant_reference="7", state="rejected", account="second")
        assert invoice.attempt_key() == "order-second-7-2"

    def test_a_model_of_all_accounts_counts_in_all_of_them(self, db: None) -> None:
        customer = Customer()
        for account in ("default", "second"):
            rows.operation(
                operation="create_payment", merchant_reference=str(customer.code), state="rejected", account=account
            )
        assert customer.attempt_key() == f"order--{customer.code}-3"


class TestTheForm:
    pytestmark = [CASE]

    def test_a_form_keeps_its_key_after_its_attempt_failed(self, order: Order) -> None:
        signed, key = order.signed_attempt_key(), order.attempt_key()
        attempt(order, "failed")
        assert order.attempt_key(signed) == key != order.attempt_key()

    @pytest.mark.parametrize("nothing", [None, ""])
    def test_without_a_form_the_key_is_the_current_one(self, order: Order, nothing: str | None) -> None:
        assert order.attempt_key(nothing) == "order-default-A-1-1"

    @pytest.mark.promise(5)
    @pytest.mark.parametrize("status", ["succeeded", "processing"])
    def test_a_form_that_late_money_overtook_begins_no_other_attempt(self, order: Order, status: str) -> None:
        """A voucher expired, the payer opened the page to pay again, and then the voucher's money came."""
        first = order.attempt_key()
        attempt(order, "expired")
        signed = order.signed_attempt_key()
        Payment.objects.update(status=status)
        assert order.attempt_key(signed) == order.attempt_key() == first

    @pytest.mark.promise(5)
    @pytest.mark.parametrize("status", ["succeeded", "processing"])
    def test_nor_does_it_after_a_temporary_refusal(self, order: Order, status: str) -> None:
        first = order.attempt_key()
        attempt(order, "expired")
        signed = order.signed_attempt_key()
        attempt(order, state=OperationState.CLOSED, error=PASSING["not connected"], body=b"{}")
        assert order.attempt_key(signed) == order.attempt_key() != first
        Payment.objects.update(status=status)
        assert order.attempt_key(signed) == order.attempt_key() == first

    @pytest.mark.promise(5)
    def test_a_form_of_an_open_attempt_that_late_money_overtook_has_the_paid_key(self, order: Order) -> None:
        first = attempt(order, "expired")
        second = attempt(order, "requires_action")
        signed = order.signed_attempt_key()
        assert order.attempt_key(signed) == second.idempotency_key
        Payment.objects.filter(pk=first.result_id).update(status="succeeded")
        assert order.attempt_key(signed) == first.idempotency_key
        for status in ("failed", "succeeded"):
            Payment.objects.filter(pk=second.result_id).update(status=status)
            assert order.attempt_key(signed) == second.idempotency_key

    def test_a_key_that_this_site_did_not_sign_for_this_order_is_refused(self, order: Order) -> None:
        other = Order(number="A-2").signed_attempt_key()
        longer = Order(number="A-1-1").signed_attempt_key()
        for wrong in ("x", order.attempt_key(), f"{order.signed_attempt_key()}x", other, longer, "\x00", "ñ:ñ"):
            with pytest.raises(ValidationError, match="out of date"):
                order.attempt_key(wrong)

    def test_a_form_outlives_a_new_secret_key(self, order: Order, settings: Any) -> None:
        signed = order.signed_attempt_key()
        with override_settings(SECRET_KEY="another", SECRET_KEY_FALLBACKS=[settings.SECRET_KEY]):
            assert order.attempt_key(signed) == order.attempt_key()


@CASE
@pytest.mark.django_db(transaction=True)
class TestAtTheProvider:
    @pytest.fixture
    def provider(self, payments_sandbox: ProviderSandbox) -> ProviderSandbox:
        return payments_sandbox

    @pytest.mark.parametrize("how", ["fail", "expire", "cancel"])
    def test_an_order_is_paid_again_once(self, provider: ProviderSandbox, order: Order, how: str) -> None:
        first = pay(order)
        assert pay(order).pk == first.pk
        if how == "cancel":
            services.cancel_payment(first)
        else:
            getattr(provider.engine, how)(first.pk)
            provider.settle()
        second = pay(order)
        assert second.pk != first.pk
        assert pay(order).pk == second.pk
        provider.engine.pay(second.pk)
        provider.settle()
        assert pay(order).pk == second.pk
        assert len(provider.engine.payments) == 2

    def test_a_form_sent_twice_is_one_attempt_although_the_first_is_declined(
        self, provider: ProviderSandbox, order: Order
    ) -> None:
        signed = order.signed_attempt_key()
        first = pay(order, signed)
        provider.engine.fail(first.pk)
        provider.settle()
        assert pay(order, signed).pk == first.pk
        assert len(provider.engine.payments) == 1

    def test_a_refused_attempt_is_followed_by_the_next_one(self, provider: ProviderSandbox, order: Order) -> None:
        with pytest.raises(ProviderError):
            pay(order, method_code="co_card")
        with pytest.raises(ProviderError):
            pay(order, method_code="co_card")
        assert [pay(order).pk] == list(provider.engine.payments)
        assert number(order) == 3

    def test_an_unknown_outcome_is_the_same_attempt(self, provider: ProviderSandbox, order: Order) -> None:
        provider.engine.faults.add(Fault("reset", operation="create_payment", work=True, times=1))
        for _ in range(2):
            with pytest.raises(OutcomeUnknown):
                pay(order)
        Operation.objects.update(next_attempt_at=None)
        services.resume_operations()
        assert [pay(order).pk] == list(provider.engine.payments)

    def test_another_method_cancels_the_open_attempt_first(self, provider: ProviderSandbox, order: Order) -> None:
        first = pay(order)
        with pytest.raises(IdempotencyMismatch):
            pay(order, method_code="cl_khipu")
        services.cancel_payment(first)
        second = pay(order, method_code="cl_khipu")
        assert {pk: row["status"] for pk, row in provider.engine.payments.items()}[first.pk] == "canceled"
        assert second.method_code == "cl_khipu"
        assert len(provider.engine.payments) == 2

    @pytest.mark.parametrize("reference", ["año-7º", "Ñ" * 32])
    def test_a_reference_that_is_not_ascii_is_paid_again(self, provider: ProviderSandbox, reference: str) -> None:
        order = Order.objects.create(number=reference)
        first = pay(order)
        provider.engine.fail(first.pk)
        provider.settle()
        assert pay(order).pk != first.pk
        assert {row["merchant_reference"] for row in provider.engine.payments.values()} == {reference}

    @pytest.mark.promise(5)
    @pytest.mark.parametrize("is_form", [True, False])
    def test_clicks_at_once_are_one_new_attempt(
        self, provider: ProviderSandbox, order: Order, *, is_form: bool
    ) -> None:
        provider.engine.fail(pay(order).pk)
        provider.settle()
        signed = order.signed_attempt_key() if is_form else None

        def click(_: int) -> str | None:
            try:
                return str(pay(order, signed).pk)
            except OutcomeUnknown:
                return None  # the other call is sending it now
            finally:
                connection.close()

        with ThreadPoolExecutor(6) as clicks:
            made = set(clicks.map(click, range(12))) - {None}
        assert len(provider.engine.payments) == 2
        assert made == {pay(order).pk}


class TestANewKeyKnowsItsOrder:
    """A call for something else would take money that does not pay the order."""

    @pytest.fixture
    def sale(self, db: None) -> Sale:
        return Sale.objects.create(number="S-1", amount=11_990, currency="MXN")

    def arguments(self, sale: Sale, **changed: Any) -> dict[str, Any]:
        asked = {"amount": 11_990, "currency": "MXN", "country": "MX", "method_code": "mx_card"}
        return {**asked, "merchant_reference": "S-1", "idempotency_key": sale.attempt_key(), **changed}

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("amount", 119, "asks for 11990 in minor units of MXN"),
            ("amount", 1_199_000, "asks for 11990 in minor units of MXN"),
            ("currency", "USD", "price is in MXN"),
            ("merchant_reference", "S-2", "the order S-1"),
            ("merchant_reference", None, "the order S-1"),
            ("account", "second", "the account default"),
        ],
    )
    def test_what_is_not_the_orders_is_refused(
        self, sale: Sale, name: str, value: Any, message: str, payments_sandbox: ProviderSandbox
    ) -> None:
        with pytest.raises(ValidationError) as refused:
            services.create_payment(**self.arguments(sale, **{name: value}))
        assert message in refused.value.message_dict[name][0]
        assert not Operation.objects.exists()

    def test_a_reference_that_cannot_be_sent_is_not_called_another_one(self, db: None) -> None:
        sale = Sale.objects.create(number="S-1 ", amount=11_990, currency="MXN")
        with pytest.raises(ValidationError) as refused:
            services.create_payment(**self.arguments(sale, merchant_reference="S-1 "))
        assert refused.value.message_dict == {"merchant_reference": ["This must not begin or end with a blank."]}

    def test_a_key_that_a_temporary_refusal_left_free_knows_it_too(
        self, sale: Sale, payments_sandbox: ProviderSandbox
    ) -> None:
        payments_sandbox.engine.faults.add(
            Fault("rate_limited", operation="create_payment", retry_after="11", times=1)
        )
        with pytest.raises(ProviderError):
            services.create_payment(**self.arguments(sale))
        with pytest.raises(ValidationError, match="asks for 11990"):
            services.create_payment(**self.arguments(sale, amount=119))

    @pytest.mark.parametrize("status", ["requires_action", "succeeded"])
    def test_an_attempt_is_not_begun_a_second_time_in_another_account(
        self, db: None, status: str, payments_sandbox: ProviderSandbox
    ) -> None:
        customer = Customer.objects.create()
        values = {"merchant_reference": str(customer.code), "account": "second"}
        key, payment = customer.attempt_key(), rows.payment(status=status, **values)
        done = {"operation": "create_payment", "state": "done", "idempotency_key": key, "result_id": payment.pk}
        rows.operation(**done, **values)
        with pytest.raises(ValidationError, match="of the account second"):
            services.create_payment(
                **CARD, merchant_reference=str(customer.code), idempotency_key=customer.attempt_key()
            )
        assert not payments_sandbox.engine.payments

    @pytest.mark.promise(5)
    @pytest.mark.parametrize("code", ["A-1", "ñ"])
    def test_two_first_clicks_at_once_in_two_accounts_are_one_attempt(
        self, fake: Fake, code: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Both pages got the key before either of them called."""
        monkeypatch.setattr(Order, "payments_account", None)
        order = Order.objects.create(number=code)
        keys = [order.attempt_key(), order.attempt_key()]
        services.create_payment(**CARD, merchant_reference=code, idempotency_key=keys[0], account="second")
        with pytest.raises(OperationClosed) as caught:
            services.create_payment(**CARD, merchant_reference=code, idempotency_key=keys[1])
        assert "sent through another account" in str(caught.value.__cause__)
        assert len(fake.calls) == 1
        assert order.attempt_key() == keys[0]
        assert order.attempt_key().account == "second"
        assert not find_attempt(order, keys[1]).refusal

    def test_of_two_deferred_calls_in_two_accounts_one_is_sent(
        self, fake: Fake, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
    ) -> None:
        monkeypatch.setattr(Order, "payments_account", None)
        order = Order.objects.create(number="A-1")
        keys = [order.attempt_key(), order.attempt_key()]
        with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
            for key, account in zip(keys, ("second", "default"), strict=True):
                asked = {**CARD, "merchant_reference": "A-1", "idempotency_key": key, "account": account}
                services.defer(services.create_payment, **asked)
        assert len(fake.calls) == 1
        assert {each.account: each.state for each in Operation.objects.all()} == {
            "second": "done",
            "default": "closed",
        }

    def test_a_free_key_that_another_account_took_since_is_used_up(self, db: None) -> None:
        customer = Customer.objects.create()
        values = {"operation": "create_payment", "merchant_reference": str(customer.code)}
        values["idempotency_key"] = customer.attempt_key()
        rows.operation(id="op_0", state="closed", error=PASSING["429"], body=b"{}", **values)
        taken = rows.operation(state="unknown", account="second", **values)
        assert find_attempt(customer, taken.idempotency_key).is_pending
        Operation.objects.filter(pk=taken.pk).update(state="rejected")
        assert customer.attempt_key().endswith("-2")

    def test_the_price_and_what_is_left_of_it_are_accepted(
        self, sale: Sale, payments_sandbox: ProviderSandbox
    ) -> None:
        rows.payment(status="partially_paid", amount_received=2_000, merchant_reference="S-1", currency="MXN")
        assert services.create_payment(**self.arguments(sale, amount=9_990)).amount == 9_990

    def test_another_amount_has_a_key_of_its_own(self, sale: Sale, payments_sandbox: ProviderSandbox) -> None:
        deposit = self.arguments(sale, amount=3_000, idempotency_key="deposit-S-1")
        assert services.create_payment(**deposit).amount == 3_000

    def test_an_order_without_a_price_has_any_amount(self, order: Order, payments_sandbox: ProviderSandbox) -> None:
        assert pay(order, amount=7).amount == 7

    @pytest.mark.parametrize("is_paid_in_part", [False, True])
    def test_a_price_in_whole_units_has_no_key(self, sale: Sale, is_paid_in_part: bool) -> None:
        """Otherwise 120 pass for USD 120, and are USD 1.20."""
        if is_paid_in_part:
            rows.payment(status="succeeded", amount_received=20, merchant_reference="S-1", currency="USD")
        sale.amount, sale.currency = Decimal("120.00"), "USD"  # type: ignore[assignment]
        with pytest.raises(TypeError, match=re.escape('money.to_minor(Decimal("120.00"), "USD")')):
            sale.attempt_key()

    def test_a_price_that_sql_computes_has_no_key_until_it_is_read(self, sale: Sale) -> None:
        """Otherwise the key would be that of an order without a price, with which any amount passes."""
        sale.amount = F("amount") + 5  # type: ignore[assignment]
        with pytest.raises(TypeError, match="an amount is an int in minor units, not CombinedExpression"):
            sale.attempt_key()

    @pytest.mark.parametrize("price", [-500, 0])
    @pytest.mark.parametrize("is_paid_in_part", [False, True])
    def test_a_payer_reads_that_a_credit_or_nothing_cannot_be_paid(
        self, sale: Sale, is_paid_in_part: bool, price: int
    ) -> None:
        if is_paid_in_part:
            rows.payment(status="succeeded", amount_received=20, merchant_reference="S-1", currency="MXN")
        sale.amount = price
        for amount in (price, 500):
            with pytest.raises(ValidationError) as caught:
                services.create_payment(**self.arguments(sale, amount=amount))
            assert "amount" in caught.value.message_dict

    def test_the_key_survives_a_cache_and_a_message(self, sale: Sale) -> None:
        key = pickle.loads(pickle.dumps(sale.attempt_key()))
        assert (key, key.amounts, json.loads(json.dumps(key))) == ("order-default-S-1-1", {11_990}, key)
