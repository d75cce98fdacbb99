"""A fake provider in memory: it records requests, keeps the objects that it made, and follows a script of answers.

The fixture ``fake`` of tests/unit/conftest.py puts it in place of every client.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, TypeVar

from django.utils import timezone

from payments_integration import schemas
from payments_integration.client import Answer, LatestAnswer, PageOf
from payments_integration.exceptions import NoAnswer, NotFound, ProviderError
from payments_integration.models import Operation
from tests import factories

T = TypeVar("T")

_numbers = itertools.count(1)

DESTINATION = {
    "type": "bank_account",
    "bank_code": "012",
    "account_number": "00123456789",
    "account_type": "checking",
    "holder_name": "Ana Rojas",
    "holder_document": {"type": "RUT", "number": "12.345.678-5"},
}
PAYER = {
    "name": "Ana Rojas",
    "email": "ana@example.com",
    "phone": "+56912345678",
    "document": {"type": "RUT", "number": "12345678-5"},
    "ip": "203.0.113.9",
    "device_id": "device-1",
}
PAYMENT = {"amount": 10_000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card"}
PAYOUT = {
    "amount": 5_000,
    "currency": "CLP",
    "country": "CL",
    "method_code": "cl_bank_transfer",
    "destination": DESTINATION,
}
DEPOSIT = {"country": "CL", "currency": "CLP", "method_code": "cl_deposit"}
ENDPOINT = {"url": "https://shop.example/payments/webhook/", "events": ["payment.succeeded"]}


def new_id(prefix: str) -> str:
    return f"{prefix}_{next(_numbers):08d}"


def _made(struct: Callable[..., T], values: Callable[..., dict[str, Any]], prefix: str, **fields: Any) -> T:
    return struct(**values(**{"id": new_id(prefix), "created_at": timezone.now(), **fields}))


def payment(**fields: Any) -> schemas.Payment:
    return _made(schemas.Payment, factories.payment, "pay", **{"method_code": "cl_webpay_card", **fields})


def payout(**fields: Any) -> schemas.Payout:
    usual = {"method_code": "cl_bank_transfer", "fee": 300}
    return _made(schemas.Payout, factories.payout, "pout", **{**usual, **fields})


def refund(**fields: Any) -> schemas.Refund:
    return _made(schemas.Refund, factories.refund, "ref", **{"payment_id": "pay_0", **fields})


def deposit(**fields: Any) -> schemas.DepositReference:
    return _made(schemas.DepositReference, factories.deposit_reference, "dep", **{**DEPOSIT, **fields})


def endpoint(**fields: Any) -> schemas.WebhookEndpoint:
    return _made(schemas.WebhookEndpoint, factories.webhook_endpoint, "whk", **fields)


@dataclass
class Call:
    name: str
    key: str
    body: bytes
    object_id: str
    max_wait: float


class Lost(Exception):
    """The request is executed, and then the caller gets this error."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


Next = BaseException | Callable[[Any], Any] | None


@dataclass
class Fake:
    """Stands in for a client of the provider.

    ``script`` has an entry per POST or DELETE. None: the request is executed and answered. An exception: it is raised,
    and the request is not executed. Lost: the request is executed, and its answer is lost. A function: it changes the
    answer. ``read_script`` has an entry per read: None, or an exception to raise.
    """

    calls: list[Call] = field(default_factory=list)
    script: list[Next] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    read_script: list[BaseException | None] = field(default_factory=list)
    objects: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)
    secrets: bool = True
    #: Its answers have a ``Date``.
    has_dates: bool = True
    #: It has answered this process within the last hour.
    has_answered: bool = True
    #: Its clock minus ours.
    ahead: timedelta = timedelta()
    #: The available balance in CLP; None: the provider lists no balance.
    available: int | None = 7
    #: Minor units owed after chargebacks.
    debt: int = 0
    account: Any = field(default_factory=lambda: SimpleNamespace(alias="default"))

    def __post_init__(self) -> None:
        self.payments = _Group(self, "payment")
        self.payouts = _Group(self, "payout")
        self.refunds = _Group(self, "refund")
        self.deposit_references = _Group(self, "deposit_reference")
        self.webhook_endpoints = _Endpoints(self, "webhook_endpoint")
        self.balances = _Balances(self, "balance")
        self.payment_methods = _Methods(self, "payment_method")

    def of(self, kind: str) -> Any:
        return getattr(self, f"{kind}s")

    def now(self) -> datetime:
        """The provider's clock."""
        return timezone.now() + self.ahead

    def latest_answer(self) -> LatestAnswer | None:
        return LatestAnswer(self._date(), time.monotonic()) if self.has_answered else None

    def ask(self) -> LatestAnswer:
        self.read("ask")
        return LatestAnswer(self._date(), time.monotonic())

    def _date(self) -> datetime | None:
        return self.now().replace(microsecond=0) if self.has_dates else None

    def add(self, resource: Any) -> Any:
        self.objects[resource.id] = resource
        return resource

    def made(self, kind: str) -> list[Any]:
        return [item for item in self.objects.values() if item.object == kind]

    def send(self, call: Call, work: Callable[[], Any]) -> Answer[Any]:
        self.calls.append(call)
        step = self.script.pop(0) if self.script else None
        if isinstance(step, BaseException) and not isinstance(step, Lost):
            raise step
        if call.key and call.key in self.keys:
            made = self.keys[call.key]
        else:
            made = work()
            if call.key:
                self.keys[call.key] = made
        if isinstance(step, Lost):
            raise step.error
        return answer(step(made) if callable(step) else made)

    def read(self, what: str) -> None:
        self.reads.append(what)
        step = self.read_script.pop(0) if self.read_script else None
        if step is not None:
            raise step


def answer(data: Any) -> Answer[Any]:
    return Answer(
        data=data,
        status_code=200,
        request_id=new_id("req"),
        answered_at=timezone.now().replace(microsecond=0),
        duration=0.1,
    )


@dataclass
class _Group:
    fake: Fake
    kind: str

    def create(self, body: bytes, *, idempotency_key: str, max_wait: float = 10.0) -> Answer[Any]:
        def work() -> Any:
            fields = json.loads(body)
            for name in ("return_url",):
                fields.pop(name, None)
            fields.pop("destination", None) if self.kind == "refund" else None
            fields.pop("payer", None) if self.kind == "deposit_reference" else None
            if self.kind == "webhook_endpoint" and self.fake.secrets:
                fields["secret"] = f"whsec_{next(_numbers):08d}"
            if self.kind == "refund":
                fields.setdefault("currency", "CLP")
            return self.fake.add(MAKERS[self.kind](**fields))

        return self.fake.send(Call(f"create_{self.kind}", idempotency_key, body, "", max_wait), work)

    def cancel(self, object_id: str, *, idempotency_key: str, max_wait: float = 10.0) -> Answer[Any]:
        def work() -> Any:
            self.fake.objects[object_id].status = "canceled"
            return self.fake.objects[object_id]

        return self.fake.send(Call(f"cancel_{self.kind}", idempotency_key, b"", object_id, max_wait), work)

    def get(self, object_id: str, *, max_wait: Any = None, background: bool = False) -> Answer[Any]:
        self.fake.read(f"get {object_id}")
        if object_id not in self.fake.objects:
            raise not_found()
        return answer(self.fake.objects[object_id])

    def list(self, *, max_wait: Any = None, background: bool = False, **filters: Any) -> Any:
        self.fake.read(f"list {self.kind}")
        found = [
            item
            for item in self.fake.made(self.kind)
            if all(
                getattr(item, name) == value
                for name, value in filters.items()
                if name in ("merchant_reference", "payment_id")
            )
        ]
        return iter(sorted(found, key=lambda item: item.created_at, reverse=True))

    def pages(self, **filters: Any) -> Any:
        items = list(self.list(**filters))
        yield answer(PageOf(items=items, has_more=False, cursor=items[-1].id if items else None))


class _Endpoints(_Group):
    def list(self, **_: Any) -> Any:
        self.fake.read("list endpoints")
        found = self.fake.made("webhook_endpoint")
        return answer([schemas.WebhookEndpoint(id=item.id, url=item.url, events=item.events, status=item.status,
                                            created_at=item.created_at) for item in found])  # fmt: skip

    def rotate_secret(self, object_id: str, *, idempotency_key: str, max_wait: float = 10.0) -> Answer[Any]:
        def work() -> Any:
            old = self.fake.objects[object_id]
            secret = f"whsec_{next(_numbers):08d}" if self.fake.secrets else None
            return self.fake.add(endpoint(id=old.id, url=old.url, events=old.events, secret=secret))

        return self.fake.send(Call("rotate", idempotency_key, b"", object_id, max_wait), work)

    def delete(self, object_id: str, *, max_wait: float = 10.0) -> Answer[None]:
        def work() -> None:
            if self.fake.objects.pop(object_id, None) is None:
                raise not_found()

        return self.fake.send(Call("delete", "", b"", object_id, max_wait), work)


class _Balances(_Group):
    def list(self, **_: Any) -> Any:
        self.fake.read("list balances")
        if self.fake.available is None:
            return answer([])
        figures = {"available": self.fake.available, "pending": 0, "reserve": 0, "hold": 30, "debt": self.fake.debt}
        return answer([schemas.Balance(object="balance", currency="CLP", **figures)])


class _Methods(_Group):
    def list(self, country: Any = None, currency: Any = None, amount: Any = None, **_: Any) -> Any:
        self.fake.read(f"list methods {country} {currency} {amount}")
        return answer([schemas.PaymentMethod(code="cl_khipu")])


MAKERS: dict[str, Callable[..., Any]] = {
    "payment": payment,
    "payout": payout,
    "refund": refund,
    "deposit_reference": deposit,
    "webhook_endpoint": endpoint,
}


def not_found() -> NotFound:
    return NotFound("there is no such object", status_code=404, code="resource_not_found", request_id="req_404")


def timeout() -> NoAnswer:
    return NoAnswer("the provider did not answer in time")


def refusal(
    kind: type[ProviderError], status_code: int, code: str, *, retry_after: float | None = None
) -> ProviderError:
    return kind("no", status_code=status_code, code=code, request_id=new_id("req"), retry_after=retry_after)


def only_operation() -> Operation:
    """The one operation that is recorded."""
    return Operation.objects.get()


def make_due(operation: Operation | None = None) -> None:
    """Make the operation, or every operation, due now and free to claim."""
    rows = Operation.objects.all() if operation is None else Operation.objects.filter(pk=operation.pk)
    rows.update(next_attempt_at=None, claimed_until=None)
