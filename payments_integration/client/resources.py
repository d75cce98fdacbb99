"""The 21 calls of the provider (spec, "Endpoints"), grouped as the spec groups them, and the client of an account.

Callers pass the exact bytes of a request body. Every call may raise ProviderError (the subclass for the envelope's
type), RateLimited if waiting would exceed ``max_wait`` seconds, NoAnswer if no usable answer arrives, and
UnsendableRequest before anything is sent. Lists also raise PagingError. ``background=True`` leaves a part of the rate
limit to other callers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Generic, TypedDict, Unpack

from django.views.decorators.debug import sensitive_variables

from payments_integration import conf, schemas
from payments_integration.client import answers
from payments_integration.client.answers import Answer, PageOf, RawEvent
from payments_integration.client.pagination import MAX_LIMIT, get_page, walk
from payments_integration.client.requestor import INTERACTIVE_WAIT, Requestor, segment

# ``list`` is a method in the classes below.
BalancesAnswer = Answer[list[schemas.Balance]]
EndpointsAnswer = Answer[list[schemas.WebhookEndpoint]]
MethodsAnswer = Answer[list[schemas.PaymentMethod]]


class WaitOptions(TypedDict, total=False):
    """How a read waits: ``max_wait`` in seconds (default: 10, in the background 120)."""

    max_wait: float | None
    background: bool


class PaymentFilters(WaitOptions, total=False):
    status: str | None
    merchant_reference: str | None
    created_from: datetime | None
    created_to: datetime | None


class PayoutFilters(WaitOptions, total=False):
    status: str | None
    merchant_reference: str | None


class RefundFilters(WaitOptions, total=False):
    payment_id: str | None


class EventFilters(WaitOptions, total=False):
    type: str | None
    created_from: datetime | None
    created_to: datetime | None


class _Resource(Generic[schemas.ResourceT]):
    """A kind of object under one path."""

    path: str
    kind: str
    struct: type[schemas.ResourceT]

    def __init__(self, requestor: Requestor) -> None:
        self._requestor = requestor


class _Created(_Resource[schemas.ResourceT]):
    @sensitive_variables()
    def create(
        self, body: bytes, *, idempotency_key: str, max_wait: float = INTERACTIVE_WAIT
    ) -> Answer[schemas.ResourceT]:
        """POST these bytes."""
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


class _Listed(_Resource[schemas.ResourceT]):
    #: Whether the list can be narrowed by time.
    by_time = False

    def _fetch(
        self, limit: int, starting_after: str | None, filters: Mapping[str, object]
    ) -> Answer[PageOf[schemas.ResourceT]]:
        reply = get_page(self._requestor, self.path, limit, starting_after, filters)
        return answers.page(reply, self.struct, self.kind, limit)

    def _page(
        self, limit: int, starting_after: str | None, filters: Mapping[str, object]
    ) -> Answer[PageOf[schemas.ResourceT]]:
        return answers.whole(self._fetch(limit, starting_after, filters))

    def _pages(
        self, starting_after: str | None, filters: Mapping[str, object]
    ) -> Iterator[Answer[PageOf[schemas.ResourceT]]]:
        return walk(self.path, self._fetch, filters, starting_after, by_time=self.by_time)

    def _list(self, filters: Mapping[str, object]) -> Iterator[schemas.ResourceT]:
        for answer in self._pages(None, filters):
            yield from answers.whole(answer).data.items


class Payments(
    _Created[schemas.Payment], _Read[schemas.Payment], _Canceled[schemas.Payment], _Listed[schemas.Payment]
):
    path, kind, struct = "/payments", "payment", schemas.Payment
    by_time = True

    def list(self, **filters: Unpack[PaymentFilters]) -> Iterator[schemas.Payment]:
        """Every payment, newest first, page after page."""
        return self._list(filters)

    def pages(
        self, starting_after: str | None = None, **filters: Unpack[PaymentFilters]
    ) -> Iterator[Answer[PageOf[schemas.Payment]]]:
        """The same, by page. ``unreadable`` names items that could not be read; the others are still returned."""
        return self._pages(starting_after, filters)

    def list_page(
        self, *, limit: int = MAX_LIMIT, starting_after: str | None = None, **filters: Unpack[PaymentFilters]
    ) -> Answer[PageOf[schemas.Payment]]:
        """One page."""
        return self._page(limit, starting_after, filters)


class Payouts(_Created[schemas.Payout], _Read[schemas.Payout], _Canceled[schemas.Payout], _Listed[schemas.Payout]):
    path, kind, struct = "/payouts", "payout", schemas.Payout

    def list(self, **filters: Unpack[PayoutFilters]) -> Iterator[schemas.Payout]:
        """Every payout, newest first, page after page."""
        return self._list(filters)

    def pages(
        self, starting_after: str | None = None, **filters: Unpack[PayoutFilters]
    ) -> Iterator[Answer[PageOf[schemas.Payout]]]:
        """The same, by page. ``unreadable`` names items that could not be read; the others are still returned."""
        return self._pages(starting_after, filters)

    def list_page(
        self, *, limit: int = MAX_LIMIT, starting_after: str | None = None, **filters: Unpack[PayoutFilters]
    ) -> Answer[PageOf[schemas.Payout]]:
        """One page."""
        return self._page(limit, starting_after, filters)


class Refunds(_Created[schemas.Refund], _Read[schemas.Refund], _Listed[schemas.Refund]):
    path, kind, struct = "/refunds", "refund", schemas.Refund

    def list(self, **filters: Unpack[RefundFilters]) -> Iterator[schemas.Refund]:
        """Every refund, newest first, page after page."""
        return self._list(filters)

    def pages(
        self, starting_after: str | None = None, **filters: Unpack[RefundFilters]
    ) -> Iterator[Answer[PageOf[schemas.Refund]]]:
        """The same, by page. ``unreadable`` names items that could not be read; the others are still returned."""
        return self._pages(starting_after, filters)

    def list_page(
        self, *, limit: int = MAX_LIMIT, starting_after: str | None = None, **filters: Unpack[RefundFilters]
    ) -> Answer[PageOf[schemas.Refund]]:
        """One page."""
        return self._page(limit, starting_after, filters)


class DepositReferences(_Created[schemas.DepositReference], _Read[schemas.DepositReference]):
    path, kind, struct = "/deposit-references", "deposit_reference", schemas.DepositReference


class WebhookEndpoints(_Created[schemas.WebhookEndpoint]):
    path, kind, struct = "/webhook-endpoints", "webhook_endpoint", schemas.WebhookEndpoint

    def list(self, *, max_wait: float | None = None, background: bool = False) -> EndpointsAnswer:
        """Every endpoint, without secrets."""
        reply = self._requestor.get(self.path, max_wait=max_wait, background=background)
        return answers.resources(reply, self.struct, self.kind)

    def delete(self, endpoint_id: str, *, max_wait: float = INTERACTIVE_WAIT) -> Answer[None]:
        """DELETE. Any 2xx is a success: the spec shows no body."""
        reply = self._requestor.delete(f"{self.path}/{segment(endpoint_id)}", max_wait=max_wait)
        return answers.answer(reply, None)

    def rotate_secret(
        self, endpoint_id: str, *, idempotency_key: str, max_wait: float = INTERACTIVE_WAIT
    ) -> Answer[schemas.WebhookEndpoint]:
        """POST …/rotate-secret, without a body; the answer has the new ``secret``."""
        path = f"{self.path}/{segment(endpoint_id)}/rotate-secret"
        reply = self._requestor.post(path, None, idempotency_key=idempotency_key, max_wait=max_wait)
        return answers.resource(reply, self.struct, self.kind, endpoint_id)


class Balances:
    def __init__(self, requestor: Requestor) -> None:
        self._requestor = requestor

    def list(self, *, max_wait: float | None = None, background: bool = False) -> BalancesAnswer:
        """One balance per currency."""
        reply = self._requestor.get("/balances", max_wait=max_wait, background=background)
        return answers.resources(reply, schemas.Balance, "balance")


class PaymentMethods:
    def __init__(self, requestor: Requestor) -> None:
        self._requestor = requestor

    def list(
        self,
        country: str | None = None,
        currency: str | None = None,
        amount: int | None = None,
        *,
        max_wait: float | None = None,
        background: bool = False,
    ) -> MethodsAnswer:
        """The methods that a payer can use; ``amount`` in minor units."""
        params = {"country": country, "currency": currency, "amount": amount}
        reply = self._requestor.get("/payment-methods", params, max_wait=max_wait, background=background)
        return answers.payment_methods(reply)


class Events:
    path = "/events"

    def __init__(self, requestor: Requestor) -> None:
        self._requestor = requestor

    def get(self, event_id: str, *, max_wait: float | None = None, background: bool = False) -> Answer[RawEvent]:
        """One event's exact bytes."""
        reply = self._requestor.get(f"{self.path}/{segment(event_id)}", max_wait=max_wait, background=background)
        return answers.event(reply, event_id)

    def list(self, **filters: Unpack[EventFilters]) -> Iterator[RawEvent]:
        """Every stored event, newest first, page after page."""
        for answer in self.pages(**filters):
            yield from answers.whole(answer).data.items

    def pages(
        self, starting_after: str | None = None, **filters: Unpack[EventFilters]
    ) -> Iterator[Answer[PageOf[RawEvent]]]:
        """The same, by page. For an event that is too large, a page has no items and names it (``too_large``)."""
        return walk(self.path, self._fetch, filters, starting_after, by_time=True)

    def list_page(
        self, *, limit: int = MAX_LIMIT, starting_after: str | None = None, **filters: Unpack[EventFilters]
    ) -> Answer[PageOf[RawEvent]]:
        """One page."""
        return self._fetch(limit, starting_after, filters)

    def _fetch(
        self, limit: int, starting_after: str | None, filters: Mapping[str, object]
    ) -> Answer[PageOf[RawEvent]]:
        return answers.event_page(get_page(self._requestor, self.path, limit, starting_after, filters), limit)


class Client:
    """Every call of the provider's interface, for one account. Threads may share it."""

    def __init__(
        self,
        account: conf.Account,
        *,
        sleep: Callable[[float], object] = time.sleep,
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
        self.latest_answer = requestor.latest_answer
        self.ask = requestor.ask

    def __repr__(self) -> str:
        return f"Client({self.account.alias!r})"


_Key = tuple[str, ...]
_clients: dict[_Key, Client] = {}


def get_client(alias: str = conf.DEFAULT_ACCOUNT) -> Client:
    """The process's client for that account. A new one replaces it when the account's address, key or way out changes.

    Raises ImproperlyConfigured for an unknown alias.
    """
    account = conf.account(alias)
    key = (account.alias, account.base_url, account.api_key, account.proxy, account.ca_bundle)
    client = _clients.get(key)
    if client is None:
        # setdefault is atomic: two threads that arrive at once both get the first one's client.
        client = _clients.setdefault(key, Client(account))
        for old in [other for other in list(_clients) if other[0] == alias and other != key]:
            _clients.pop(old, None)
    return client
