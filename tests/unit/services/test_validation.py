"""Everything wrong is refused under the argument's name, before anything is recorded or leaves."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.utils.functional import SimpleLazyObject, lazystr

from payments_integration import services
from payments_integration.models import Operation
from tests.factories import rows
from tests.fake_provider import DEPOSIT, DESTINATION, ENDPOINT, PAYER, PAYMENT, PAYOUT, Fake, endpoint, payment, payout

LONG = "x" * 256
ORDER = UUID("9f0f7d0c-55c1-4c0e-8a3e-2f1d1d3b6a10")


pytestmark = pytest.mark.any_database


class Text(str):
    """As a safe string or a member of an enum: no plain str."""

    def __str__(self) -> str:
        return "Kind.MEMBER"


PAYMENT_ERRORS: list[Any] = [
    ("amount", 0),
    ("amount", -1),
    pytest.param("amount", 1.0, marks=pytest.mark.case(131)),
    pytest.param("amount", Decimal("119.90"), marks=pytest.mark.case(131)),
    pytest.param("amount", Decimal(11990), marks=pytest.mark.case(131)),
    pytest.param("amount", True, marks=pytest.mark.case(131)),
    pytest.param("amount", "100", marks=pytest.mark.case(131)),
    ("amount", None),
    ("amount", 2**63),
    ("currency", "EUR"),
    pytest.param("currency", "clp", marks=pytest.mark.case(131)),
    ("currency", None),
    ("currency", 1),
    ("country", "AR"),
    ("country", None),
    ("method_code", ""),
    ("method_code", None),
    ("method_code", LONG),
    ("method_code", 7),
    ("merchant_reference", ""),
    ("merchant_reference", "  "),
    pytest.param("merchant_reference", 7, marks=pytest.mark.case(131)),
    pytest.param("merchant_reference", ORDER, marks=pytest.mark.case(131)),
    ("merchant_reference", LONG),
    pytest.param("merchant_reference", "order-1 ", marks=pytest.mark.case(126)),
    pytest.param("merchant_reference", "\norder-1", marks=pytest.mark.case(126)),
    pytest.param("merchant_reference", "order-1\u00a0", marks=pytest.mark.case(126)),
    ("merchant_reference", "a\x00b"),
    ("merchant_reference", "a\ud800b"),
    ("return_url", "javascript:alert(1)"),
    ("return_url", "http://shop.example/"),
    ("return_url", "https://"),
    ("return_url", "https://user:pw@shop.example/"),
    ("return_url", "https://shop.example/a b"),
    ("return_url", "https://shop.example/años"),
    ("return_url", "https://años.example/"),
    ("return_url", "https://shop.example/100%"),
    ("return_url", "//shop.example/"),
    ("return_url", "https://shop.example:99999/"),
    ("return_url", "https://shop.example/" + "x" * 2048),
    ("flow", "deposit_reference"),
    ("flow", "x"),
    ("flow", None),
    ("metadata", []),
    ("metadata", {str(number): "x" for number in range(21)}),
    ("metadata", {"a": "x" * 501}),
    ("metadata", {"a": 1}),
    ("metadata", {1: "a"}),
    ("metadata", {"": "a"}),
    ("metadata", {"x" * 101: "a"}),
    ("metadata", {"a": "\x00"}),
    ("metadata", {"a": None}),
    ("metadata", {"x" * 300_000: "a"}),
    ("payer", "Ana"),
    ("payer", {"nom": "Ana"}),
    ("payer", {"name": "Ana\x00"}),
    ("payer", {"name": LONG}),
    ("payer", {"email": "ana"}),
    ("payer", {"email": 1}),
    ("payer", {"phone": "912345678"}),
    ("payer", {"phone": "+56 9 1234 5678"}),
    ("payer", {"phone": "+561"}),
    ("payer", {"phone": "+521551234567890"}),
    ("payer", {"phone": "+99912345678901"}),
    ("payer", {"ip": "1.2.3"}),
    ("payer", {"device_id": LONG}),
    ("payer", {"document": "12345678-5"}),
    ("payer", {"document": {"type": "RUT"}}),
    ("payer", {"document": {"number": "12345678-5"}}),
    ("payer", {"document": {"type": "SSN", "number": "1"}}),
    ("payer", {"document": {"type": "RUT", "number": "12345678-4"}}),
    ("payer", {"document": {"type": "RUT", "number": "12345678-5", "country": "CL"}}),
    ("idempotency_key", ""),
    ("idempotency_key", "k" * 256),
    ("idempotency_key", "llave-ñ"),
    ("idempotency_key", "a\nb"),
    ("idempotency_key", " a"),
    ("idempotency_key", "a "),
    ("idempotency_key", 7),
    ("actor", object()),
    ("actor", LONG),
]


@pytest.mark.parametrize(("name", "value"), PAYMENT_ERRORS)
@pytest.mark.case(32)
def test_invalid_payment_arguments_are_refused_by_name(fake: Fake, name: str, value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        services.create_payment(**{**PAYMENT, name: value})
    assert list(caught.value.message_dict) == [name]
    assert not Operation.objects.exists()
    assert not fake.calls


CALLS: list[Any] = [
    (services.create_payment, PAYMENT),
    (services.create_payout, PAYOUT),
    (services.create_refund, {"payment": "pay_1"}),
    (services.list_payment_methods, {}),
]


@pytest.mark.case(131)
@pytest.mark.parametrize(("call", "arguments"), CALLS)
@pytest.mark.parametrize(
    "amount", [Decimal("990.00"), 990.0, "990.00", True, "11990", Decimal("0.001"), 1e99], ids=str
)
def test_an_amount_that_is_not_in_minor_units_is_refused_and_the_helper_named(
    fake: Fake, call: Any, arguments: dict[str, Any], amount: Any
) -> None:
    with pytest.raises(ValidationError) as caught:
        call(**{**arguments, "amount": amount})
    example = '11990 for USD 119.90, money.to_minor(Decimal("119.90"), "USD")'
    if "990." in str(amount) and arguments.get("currency") == "CLP":
        example = '990 for CLP 990, money.to_minor(Decimal("990"), "CLP")'  # the caller's own
    assert caught.value.message_dict == {"amount": [f"This must be an integer in minor units: {example}."]}
    assert not fake.calls


@pytest.mark.case(131)
@pytest.mark.parametrize(
    "amount", [Decimal("990.00"), 990.0, "990.00", True, "11990", Decimal("0.001"), 1e99], ids=str
)
@pytest.mark.django_db
def test_the_rest_that_can_be_refunded_is_asked_for_in_minor_units(amount: Any) -> None:
    paid = rows.payment(status="succeeded", amount=200, amount_received=200, currency="USD")
    with pytest.raises(TypeError, match="to_minor"):
        services.refundable(paid, at_least=amount)


@pytest.mark.case(131)
@pytest.mark.parametrize("call", [services.create_payment, services.create_payout, services.create_deposit_reference])
@pytest.mark.parametrize("reference", [ORDER, 7], ids=str)
def test_a_reference_that_is_not_text_is_refused_with_what_to_pass(fake: Fake, call: Any, reference: Any) -> None:
    bodies = {"create_payment": PAYMENT, "create_payout": PAYOUT, "create_deposit_reference": DEPOSIT}
    with pytest.raises(ValidationError) as caught:
        call(**{**bodies[call.__name__], "merchant_reference": reference})
    wanted = "This must be text: pass str(…) of a number or a UUID."
    assert caught.value.message_dict == {"merchant_reference": [wanted]}
    assert not fake.calls


DESTINATION_ERRORS: list[Any] = [
    None,
    "12345",
    {},
    {**DESTINATION, "type": "wallet"},
    {**DESTINATION, "type": None},
    {**DESTINATION, "account_number": None},
    {**DESTINATION, "account_number": ""},
    {**DESTINATION, "account_number": "1" * 65},
    {**DESTINATION, "account_type": "gold"},
    {**DESTINATION, "bank_code": 12},
    {**DESTINATION, "holder_name": None},
    {**DESTINATION, "holder_name": LONG},
    {**DESTINATION, "holder_document": None},
    {**DESTINATION, "holder_document": {}},
    {**DESTINATION, "holder_document": {"type": "RUT", "number": "12345678-4"}},
    {**DESTINATION, "iban": "CL1"},
]


@pytest.mark.parametrize("value", DESTINATION_ERRORS)
def test_invalid_payout_destinations_are_refused(fake: Fake, value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        services.create_payout(**{**PAYOUT, "destination": value})
    assert list(caught.value.message_dict) == ["destination"]
    assert not fake.calls


@pytest.mark.parametrize("name", ["amount", "currency", "country", "method_code", "metadata"])
def test_invalid_payout_arguments_are_refused_by_name(fake: Fake, name: str) -> None:
    with pytest.raises(ValidationError) as caught:
        services.create_payout(**{**PAYOUT, name: 0.5})
    assert list(caught.value.message_dict) == [name]
    assert not fake.calls


@pytest.mark.parametrize(
    ("name", "value"),
    [("country", "AR"), ("currency", "EUR"), ("method_code", ""), ("payer", []), ("merchant_reference", LONG)],
)
def test_invalid_deposit_reference_arguments_are_refused_by_name(fake: Fake, name: str, value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        services.create_deposit_reference(**{**DEPOSIT, name: value})
    assert list(caught.value.message_dict) == [name]
    assert not fake.calls


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("url", "http://shop.example/"),
        ("url", "ftp://shop.example/"),
        ("url", ""),
        ("url", None),
        ("events", []),
        ("events", "payment.succeeded"),
        ("events", ["payment.exploded"]),
        ("events", [1]),
        ("events", None),
        ("events", [["payment.succeeded"]]),
    ],
)
def test_invalid_endpoint_arguments_are_refused_by_name(fake: Fake, name: str, value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        services.create_webhook_endpoint(**{**ENDPOINT, name: value})
    assert list(caught.value.message_dict) == [name]
    assert not fake.calls


@pytest.mark.parametrize(
    ("name", "value"),
    [("amount", 0), ("amount", 1.5), ("amount", True), ("destination", {}), ("reason", "x" * 2049), ("reason", "")],
)
def test_invalid_refund_arguments_are_refused_by_name(fake: Fake, mirrored: Any, name: str, value: Any) -> None:
    row = mirrored(payment(status="succeeded", amount_received=10_000))
    with pytest.raises(ValidationError) as caught:
        services.create_refund(row, **{name: value})
    assert list(caught.value.message_dict) == [name]
    assert not fake.calls


@pytest.mark.parametrize("given", ["", "pout_1", "pay_", "pay_../x", "pay_1?x=1", "pay_ñ", 7, None, "pay_" + LONG])
def test_invalid_object_ids_are_refused(fake: Fake, given: Any) -> None:
    for call in (services.cancel_payment, services.create_refund):
        with pytest.raises(ValidationError) as caught:
            call(given)
        assert list(caught.value.message_dict) == ["payment"]
    with pytest.raises(ValidationError):
        services.cancel_payment(payout().id)
    assert not fake.calls


def test_an_instance_of_another_kind_is_refused(fake: Fake, mirrored: Any) -> None:
    row = mirrored(payout())
    with pytest.raises(ValidationError) as caught:
        services.cancel_payment(row)
    assert list(caught.value.message_dict) == ["payment"]


def test_the_account_of_the_row_is_used(fake: Fake, mirrored: Any) -> None:
    row = mirrored(payment(), account="second")
    with pytest.raises(ValidationError) as caught:
        services.cancel_payment(row.pk, account="default")
    assert list(caught.value.message_dict) == ["account"]
    services.cancel_payment(row.pk)
    assert Operation.objects.get().account == "second"
    with pytest.raises(ValidationError):
        services.refresh(row, account="default")


def test_an_account_that_does_not_exist_is_refused(fake: Fake) -> None:
    with pytest.raises(ImproperlyConfigured):
        services.create_payment(**PAYMENT, account="third")
    assert not Operation.objects.exists()


@pytest.mark.parametrize("make", [lazystr, lambda text: SimpleLazyObject(lambda: text)])
def test_a_lazy_account_is_the_account(fake: Fake, make: Any) -> None:
    """A middleware may find the account of a request, and a database takes no such object."""
    row = services.create_payment(**PAYMENT, account=make("second"))
    services.defer(services.create_payout, **PAYOUT, account=make("second"))
    assert row.account == "second"
    assert [each.state for each in Operation.objects.filter(account="second")] == ["done", "done"]
    fake.add(endpoint())
    assert services.refresh(fake.add(payment()).id, account=make("second")).account == "second"
    assert [each.account for each in services.sync_balances(account=make("second"))] == ["second"]
    assert [each.account for each in services.sync_webhook_endpoints(account=make("second"))] == ["second"]
    assert services.list_payment_methods(account=make("second"))


def test_a_lazy_text_is_the_text(fake: Fake) -> None:
    """A middleware may find the currency of a request, for example."""

    def lazy(text: str) -> Any:
        return SimpleLazyObject(lambda: text)

    row = services.create_payment(
        **{**PAYMENT, "currency": lazy("CLP"), "country": lazy(Text("CL")), "method_code": lazy("cl_khipu")},
        merchant_reference=lazy("A-1"),
        payer={"name": lazy("Ana")},
        metadata={"shop": lazy("chile")},
        idempotency_key=lazy("k1"),
        actor=lazy("shop"),
    )
    operation = Operation.objects.get(result_id=row.pk)
    assert (operation.idempotency_key, operation.actor, operation.merchant_reference) == ("k1", "shop", "A-1")
    assert json.loads(fake.calls[0].body)["metadata"] == {"shop": "chile"}
    assert services.refresh(lazy(row.pk)) == services.cancel_payment(lazy(row.pk)) == row
    assert services.refresh(lazy(fake.add(payment()).id))


def test_all_invalid_arguments_are_named_at_once(fake: Fake) -> None:
    with pytest.raises(ValidationError) as caught:
        services.create_payment(
            amount=0,
            currency="EUR",
            country="AR",
            method_code="",
            payer={"email": "x", "document": {"type": "RUT", "number": "1"}},
        )
    errors = caught.value.message_dict
    assert set(errors) == {"amount", "currency", "country", "method_code", "payer"}
    assert [message.partition(":")[0] for message in errors["payer"]] == ["email", "document.number"]


def test_a_request_is_at_most_256_kb(fake: Fake) -> None:
    # Every value is within its own limits; together they are too much.
    with pytest.raises(ValidationError) as caught:
        services.create_payment(**PAYMENT, metadata={str(n) + "k" * 15_000: "x" * 500 for n in range(20)})
    assert list(caught.value.message_dict) == ["metadata"]
    assert not Operation.objects.exists()


def test_valid_arguments_are_sent_unchanged(fake: Fake) -> None:
    services.create_payment(
        **{**PAYMENT, "currency": Text("CLP"), "method_code": Text("cl_khipu")},
        payer=PAYER,
        return_url="http://localhost:8000/back?order=1#x",
        flow="s2s",
        metadata={Text("order"): Text("ñ" * 500)},
        merchant_reference=Text("pedido ñ 1"),
        actor="batch",
        idempotency_key=Text("k" * 255),
    )

    body = json.loads(fake.calls[0].body)
    assert body == {
        "amount": 10_000,
        "currency": "CLP",
        "country": "CL",
        "method_code": "cl_khipu",
        "flow": "s2s",
        "merchant_reference": "pedido ñ 1",
        "payer": PAYER,
        "return_url": "http://localhost:8000/back?order=1#x",
        "metadata": {"order": "ñ" * 500},
    }
    assert fake.calls[0].key == "k" * 255


@pytest.mark.parametrize("phone", ["+5215512345678", "+525512345678", "+5491123456789", "+5511912345678"])
def test_phones_are_sent_as_people_write_them(fake: Fake, phone: str) -> None:
    services.create_payment(**PAYMENT, payer={"phone": phone})
    assert json.loads(fake.calls[0].body)["payer"] == {"phone": phone}


def test_none_in_a_dict_is_left_out(fake: Fake) -> None:
    services.create_payment(**PAYMENT, payer={"name": "Ana", "email": None, "document": None})
    assert b'"payer":{"name":"Ana"}' in fake.calls[0].body


def test_payment_methods_are_listed_by_valid_filters(fake: Fake) -> None:
    assert [method.code for method in services.list_payment_methods(country="CL", currency="CLP", amount=5)] == [
        "cl_khipu"
    ]
    assert fake.reads == ["list methods CL CLP 5"]
    with pytest.raises(ValidationError):
        services.list_payment_methods(amount=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        services.list_payment_methods(country="AR")


@pytest.mark.parametrize(
    ("function", "arguments", "holder"),
    [
        (services.create_payment, {**PAYMENT, "payer": PAYER}, "payer"),
        (services.create_deposit_reference, {**DEPOSIT, "payer": PAYER}, "payer"),
        (services.create_payout, PAYOUT, "destination"),
    ],
    ids=["payment", "deposit reference", "payout"],
)
def test_documents_are_refused_or_sent_as_the_setting_says(
    fake: Fake, settings: Any, function: Any, arguments: dict[str, Any], holder: str
) -> None:
    name = "document" if holder == "payer" else "holder_document"
    wrong = {**arguments, holder: {**arguments[holder], name: {"type": "RUT", "number": "12.345.678-4"}}}
    with pytest.raises(ValidationError, match="RUT number"):
        function(**wrong)
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "DOCUMENT_CHECKS": "warn"}
    function(**wrong)
    assert b"12.345.678-4" in fake.calls[-1].body
