"""Everything wrong is refused under the argument's name, before anything is recorded or leaves."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured, ValidationError

from payments_integration import services
from payments_integration.models import Operation
from tests.fake_provider import DEPOSIT, DESTINATION, ENDPOINT, PAYER, PAYMENT, PAYOUT, Fake, payment, payout

LONG = "x" * 256


class Text(str):
    """As a safe string or a TextChoices member: no plain str."""


PAYMENT_ERRORS: list[Any] = [
    ("amount", 0),
    ("amount", -1),
    ("amount", 1.0),
    ("amount", True),
    ("amount", "100"),
    ("amount", None),
    ("amount", 2**63),
    ("currency", "EUR"),
    ("currency", "clp"),
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
        metadata={"order": "ñ" * 500},
        merchant_reference="pedido ñ 1",
        actor="batch",
        idempotency_key="k" * 255,
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
