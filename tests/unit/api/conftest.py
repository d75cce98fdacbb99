"""People who call the API, rows that it shows, and services that note their calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from payments_integration import services
from payments_integration.models import Operation, Payment
from tests import factories
from tests.factories import T0, rows as stored

API = "/payments/api/"
CUSTOMERS = "payments_integration.api.permissions.StaffAndCustomers"
MIRRORED = {"account": "default", "state_at": T0, "state_by": "answer", "synced_at": T0, "created_at": T0}
PLACE = {"currency": "CLP", "country": "CL", "method_code": "m"}
PAYER = {"name": "Ana Rojas", "email": "ana@example.com"}
DESTINATION = {
    "type": "bank_account", "account_number": "123456789", "holder_name": "Ana Rojas",
    "holder_document": {"type": "RUT", "number": "11111111-1"},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _unhurried(settings: Any) -> None:
    """No limits, but in the tests of them."""
    settings.PAYMENTS_INTEGRATION = {
        **settings.PAYMENTS_INTEGRATION, "API_THROTTLE_RATES": {"read": None, "write": None}
    }  # fmt: skip


@pytest.fixture
def opened(settings: Any, _unhurried: None) -> None:
    """The project lets customers in."""
    settings.PAYMENTS_INTEGRATION = {
        **settings.PAYMENTS_INTEGRATION, "API_PERMISSION_CLASSES": [CUSTOMERS], "API_PAYMENT": AS_ASKED
    }  # fmt: skip


AS_ASKED = "tests.unit.api.conftest.as_asked"


def as_asked(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    """A project that lets customers choose everything, with the API's own checks of the body."""
    view: Any = request.parser_context["view"]  # type: ignore[index]
    found: dict[str, Any] = view.body()
    return found


class Member:
    """A customer in a table of the shop's own, whose numbers are also users' numbers. It has no ``get_username``."""

    is_authenticated = is_active = True
    #: As a model of the shop has it.
    _meta = Group._meta

    def __init__(self, pk: int) -> None:
        self.pk = pk

    def __str__(self) -> str:
        return f"member-{self.pk}"


class ByHeader(BaseAuthentication):  # type: ignore[misc]
    """Signs members in by a header."""

    def authenticate(self, request: Request) -> tuple[Any, None] | None:
        number = request.headers.get("X-Member")
        return (Member(int(number)), None) if number else None


@pytest.fixture
def with_members(settings: Any, _unhurried: None) -> None:
    """The project also lets in members."""
    settings.PAYMENTS_INTEGRATION = {
        **settings.PAYMENTS_INTEGRATION,
        "API_PERMISSION_CLASSES": [CUSTOMERS],
        "API_PAYMENT": AS_ASKED,
        "API_AUTHENTICATION_CLASSES": [
            "rest_framework.authentication.SessionAuthentication", "tests.unit.api.conftest.ByHeader"
        ],
    }  # fmt: skip


class Caller:
    """Somebody's client, which speaks JSON."""

    def __init__(self, user: User | None = None, **options: Any) -> None:
        self.user = user
        self.client = Client(**options)
        if user is not None:
            self.client.force_login(user)

    def get(self, path: str, **headers: str) -> Any:
        return self.client.get(f"{API}{path}", headers=headers)

    def post(self, path: str, body: Any = None, key: str | None = "key-1", **headers: str) -> Any:
        named = {**headers, **({} if key is None else {"Idempotency-Key": key})}
        data = b"" if body is None else json.dumps(body)
        return self.client.post(f"{API}{path}", data, content_type="application/json", headers=named)


@pytest.fixture
def boss(db: None) -> Caller:
    return Caller(User.objects.create_superuser("boss"))


@pytest.fixture
def staff(db: None) -> Callable[..., Caller]:
    """A member of staff with the permissions named."""

    def make(*codenames: str) -> Caller:
        user = User.objects.create_user(f"staff-{User.objects.count()}", is_staff=True)
        for codename in codenames:
            user.user_permissions.add(
                Permission.objects.get(codename=codename, content_type__app_label="payments_integration")
            )
        return Caller(user)

    return make


@pytest.fixture
def customer(db: None) -> Caller:
    return Caller(User.objects.create_user("customer"))


@pytest.fixture
def stranger(db: None) -> Caller:
    """Another customer."""
    return Caller(User.objects.create_user("stranger"))


def make_payment(pk: str = "pay_1", *, by: User | None = None, **fields: Any) -> Payment:
    usual = {
        "status": "created", "amount": 1000, "amount_received": 0, "currency": "CLP", "country": "CL",
        "method_code": "cl_card", "payer": PAYER, "metadata": {"cart": "77"}, "merchant_reference": None,
        "refunded_amount": None,
    }  # fmt: skip
    row = stored.payment(id=pk, **{**MIRRORED, **usual, **fields})
    if by is not None:
        make_operation("create_payment", pk, by)
    return row


def make_operation(operation: str, result_id: str, by: User, **fields: Any) -> Operation:
    usual: dict[str, Any] = {
        "body": b'{"secret": "body"}', "arguments": {"payer": PAYER}, "idempotency_key": f"{operation} {result_id}",
        "note": f"a note on {PAYER['name']}", "actor": f"{by.pk}:{by.get_username()}", "actor_id": str(by.pk),
        "result_id": result_id, "created_at": T0, "amount": None, "currency": "",
    }  # fmt: skip
    return stored.operation(operation=operation, **{**usual, **fields})


@pytest.fixture
def rows(customer: Caller) -> dict[str, Any]:
    """One of each. The customer paid, has been given money back, and has a deposit reference."""
    assert customer.user is not None
    money = {"amount": 500, "currency": "CLP", **MIRRORED}
    payment = make_payment(by=customer.user)
    found: dict[str, Any] = {
        "payment": payment,
        "payout": stored.payout(id="pout_1", destination=DESTINATION, **{**money, **PLACE}),
        "refund": stored.refund(id="ref_1", status="created", payment=payment, reason="Ana said so", **money),
        "deposit": stored.deposit_reference(id="dep_1", details={"type": "none"}, **PLACE, **MIRRORED),
        "balance": stored.balance(currency="CLP", available=1, debt=0),
        "event": stored.event(
            id="evt_1", type="payment.created", created_at=T0, object_id="pay_1", error="Ana in a traceback",
            body=factories.body(factories.event(factories.payment(payer=PAYER, unheard_of="Ana"))),
        ),
        "operation": Operation.objects.get(),
    }  # fmt: skip
    make_operation("create_deposit_reference", "dep_1", customer.user)
    return found


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch, rows: dict[str, Any]) -> list[tuple[str, Any]]:
    """Services note who called them, and return a row; nothing leaves."""
    called: list[tuple[str, Any]] = []
    for name, kind in {
        "create_payment": "payment", "cancel_payment": "payment", "create_refund": "refund",
        "create_payout": "payout", "cancel_payout": "payout", "create_deposit_reference": "deposit",
    }.items():  # fmt: skip

        def note(*args: Any, name: str = name, kind: str = kind, **kwargs: Any) -> Any:
            called.append((name, kwargs["actor"]))
            return rows[kind]

        monkeypatch.setattr(services, name, note)

    def methods(**kwargs: Any) -> list[Any]:
        called.append(("list_payment_methods", None))
        return []

    monkeypatch.setattr(services, "list_payment_methods", methods)
    return called


def error(response: Any) -> dict[str, Any]:
    """What an answer's envelope holds; its request id is the header's."""
    (body,) = response.json().values()
    assert body["request_id"] == response["Request-Id"]
    found: dict[str, Any] = body
    return found


def later(minutes: float) -> Any:
    return T0 + timedelta(minutes=minutes)
