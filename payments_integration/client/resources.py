"""Offer the calls of the provider (spec, "Endpoints"), grouped as in the spec, and the client of an account.

Callers pass the exact bytes of a request body. Every call may raise ProviderError (the subclass for the envelope's
type), RateLimited if waiting would exceed ``max_wait`` seconds, NoAnswer if no usable answer arrives, and
UnsendableRequest before anything is sent. Lists also raise PagingError. ``background=True`` leaves a part of the rate
limit to other callers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeAlias, TypeVar, Unpack

from django.views.decorators.debug import sensitive_variables

from payments_integration import conf, schemas
from payments_integration.client import answers
from payments_integration.client.answers import Answer, PageOf, RawEvent, Reply
from payments_integration.client.pagination import Filters, Paged
from payments_integration.client.requestor import INTERACTIVE_WAIT, Requestor, segment
from payments_integration.runtime import stopping

T = TypeVar("T")

#: ``list`` is a method in the classes below.
Whole: TypeAlias = Answer[list[T]]


class _Calls:
    path: str

    def __init__(self, requestor: Requestor) -> None:
        self._requestor = requestor


class _Resource(_Calls, Generic[schemas.ResourceT]):
    kind: str
    struct: type[schemas.ResourceT]


class _Created(_Resource[schemas.ResourceT]):
    @sensitive_variables()
    def create(
        self, body: bytes, *, idempotency_key: str, max_wait: float = INTERACTIVE_WAIT
    ) -> Answer[schemas.ResourceT]:
        reply = self._requestor.post(self.path, body, idempotency_key=idempotency_key, max_wait=max_wait)
        return answers.resource(reply, self.struct, self.kind)


class _Read(_Resource[schemas.ResourceT]):
    def get(
        self, object_id: str, *, max_wait: float | None = None, background: bool = False
    ) -> Answer[schemas.ResourceT]:
        """GET one object. NoAnswer if the answer is another object."""
        path = f"{self.path}/{segment(object_id)}"
        reply = self._requestor.get(path, max_wait=max_wait, background=background)
        return answers.resource(reply, self.struct, self.kind, object_id)


class _Canceled(_Resource[schemas.ResourceT]):
    def cancel(
        self, object_id: str, *, idempotency_key: str, max_wait: float = INTERACTIVE_WAIT
    ) -> Answer[schemas.ResourceT]:
        """POST …/cancel, without a body. InvalidState if the status forbids it."""
        path = f"{self.path}/{segment(object_id)}/cancel"
        reply = self._requestor.post(path, None, idempotency_key=idempotency_key, max_wait=max_wait)
        return answers.resource(reply, self.struct, self.kind, object_id)


class _Listed(_Resource[schemas.ResourceT], Paged[schemas.ResourceT]):
    def _read(self, reply: Reply, limit: int) -> Answer[PageOf[schemas.ResourceT]]:
        return answers.page(reply, self.struct, self.kind, limit)

    def list(self, **filters: Unpack[Filters]) -> Iterator[schemas.ResourceT]:
        """Yield every object, newest first, page after page. NoAnswer if one cannot be read."""
        for answer in self.pages(**filters):
            yield from answers.whole(answer).data.items


class _ListedWhole(_Resource[schemas.ResourceT]):
    def list(self, *, max_wait: float | None = None, background: bool = False) -> Whole[schemas.ResourceT]:
        """Return every object: the list has no pages."""
        reply = self._requestor.get(self.path, max_wait=max_wait, background=background)
        return answers.resources(reply, self.struct, self.kind)


class Payments(
    _Created[schemas.Payment], _Read[schemas.Payment], _Canceled[schemas.Payment], _Listed[schemas.Payment]
):
    path, kind, struct = "/payments", "payment", schemas.Payment
    by_time = True


class Payouts(_Created[schemas.Payout], _Read[schemas.Payout], _Canceled[schemas.Payout], _Listed[schemas.Payout]):
    path, kind, struct = "/payouts", "payout", schemas.Payout


class Refunds(_Created[schemas.Refund], _Read[schemas.Refund], _Listed[schemas.Refund]):
    path, kind, struct = "/refunds", "refund", schemas.Refund


class DepositReferences(_Created[schemas.DepositReference], _Read[schemas.DepositReference]):
    path, kind, struct = "/deposit-references", "deposit_reference", schemas.DepositReference


class WebhookEndpoints(_Created[schemas.WebhookEndpoint], _ListedWhole[schemas.WebhookEndpoint]):
    """The list has no secrets."""

    path, kind, struct = "/webhook-endpoints", "webhook_endpoint", schemas.WebhookEndpoint

    def delete(self, endpoint_id: str, *, max_wait: float = INTERACTIVE_WAIT) -> Answer[None]:
        """DELETE. Any 2xx is a success: the spec shows no body."""
        reply = self._requestor.delete(f"{self.path}/{segment(endpoint_id)}", max_wait=max_wait)
        return answers.answer(reply, None)

    def rotate_secret(
        self, endpoint_id: str, *, idempotency_key: str, max_wait: float = INTERACTIVE_WAIT
    ) -> Answer[schemas.WebhookEndpoint]:
        """POST …/rotate-secret, without a body. The answer has the new ``secret``."""
        path = f"{self.path}/{segment(endpoint_id)}/rotate-secret"
        reply = self._requestor.post(path, None, idempotency_key=idempotency_key, max_wait=max_wait)
        return answers.resource(reply, self.struct, self.kind, endpoint_id)


class Balances(_ListedWhole[schemas.Balance]):
    """One balance per currency."""

    path, kind, struct = "/balances", "balance", schemas.Balance


class PaymentMethods(_Calls):
    path = "/payment-methods"

    def list(
        self,
        country: str | None = None,
        currency: str | None = None,
        amount: int | None = None,
        *,
        max_wait: float | None = None,
        background: bool = False,
    ) -> Whole[schemas.PaymentMethod]:
        """Return the methods that a payer can use. ``amount`` is in minor units."""
        params = {"country": country, "currency": currency, "amount": amount}
        reply = self._requestor.get(self.path, params, max_wait=max_wait, background=background)
        return answers.payment_methods(reply)


class Events(_Calls, Paged[RawEvent]):
    """Each event has its exact bytes."""

    path = "/events"
    by_time = True

    def _read(self, reply: Reply, limit: int) -> Answer[PageOf[RawEvent]]:
        return answers.event_page(reply, limit)

    def newest(self, *, background: bool = False) -> Answer[PageOf[RawEvent]]:
        return self._page(1, None, {"background": background})


class Client:
    """Every call of the provider's interface, for one account. Threads may share it."""

    def __init__(
        self,
        account: conf.Account,
        *,
        sleep: Callable[[float], object] = stopping.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.account = account
        requestor = Requestor(account, sleep=sleep, monotonic=monotonic)
        self.payment_methods = PaymentMethods(requestor)
        self.payments = Payments(requestor)
        self.payouts = Payouts(requestor)
        self.refunds = Refunds(requestor)
        self.deposit_references = DepositReferences(requestor)
        self.balances = Balances(requestor)
        self.webhook_endpoints = WebhookEndpoints(requestor)
        self.events = Events(requestor)
        self._by_kind: dict[str, Any] = {
            each.kind: each for each in vars(self).values() if isinstance(each, _Resource)
        }
        self.latest_answer = requestor.latest_answer
        self.ask = requestor.ask

    def of(self, kind: str) -> Any:
        """Return the calls for objects of this kind, such as ``payments`` for a payment."""
        return self._by_kind[kind]

    def __repr__(self) -> str:
        return f"Client({self.account.alias!r})"


_Key = tuple[str, ...]
_clients: dict[_Key, Client] = {}


def unguarded_client(alias: str) -> Client:
    """Return the process's client for that account. Replaces it when the account's address, key or proxy changes.

    Only ``sync`` calls this: with a key of another project, its ``get_client`` returns none. Raises
    ImproperlyConfigured for an unknown alias.
    """
    account = conf.account(alias)
    key = (account.alias, account.base_url, account.api_key, account.proxy, account.ca_bundle)
    client = _clients.get(key)
    if client is None:
        # setdefault is atomic: two threads that arrive together both get the first one's client.
        client = _clients.setdefault(key, Client(account))
        for old in [other for other in list(_clients) if other[0] == alias and other != key]:
            _clients.pop(old, None)
    return client
