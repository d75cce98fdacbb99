"""The 21 operations (spec, "Endpoints"), grouped as the spec groups them.

Bodies come in as the exact bytes to send. Errors of every call: ProviderError by the envelope's type,
RateLimited when waiting would exceed ``max_wait`` seconds, NoAnswer for everything else that came or did not
come, UnsendableRequest before anything leaves. Lists also raise PagingError. ``background=True`` leaves part
of the rate to other callers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Generic, TypedDict, Unpack

from django.views.decorators.debug import sensitive_variables

from payments_integration import wire
from payments_integration.client import answers
from payments_integration.client.answers import Answer, PageOf, RawEvent
from payments_integration.client.channel import INTERACTIVE_WAIT, Channel, segment
from payments_integration.client.pages import MAX_LIMIT, walk
from payments_integration.client.reply import Reply
from payments_integration.exceptions import UnsendableRequest

# ``list`` is a method in the classes below.
BalancesAnswer = Answer[list[wire.Balance]]
EndpointsAnswer = Answer[list[wire.WebhookEndpoint]]
MethodsAnswer = Answer[list[wire.PaymentMethod]]


class Pace(TypedDict, total=False):
    """How a read waits: ``max_wait`` in seconds (default: 10, in the background 120)."""

    max_wait: float | None
    background: bool


class PaymentFilters(Pace, total=False):
    status: str | None
    merchant_reference: str | None
    created_from: datetime | None
    created_to: datetime | None


class PayoutFilters(Pace, total=False):
    status: str | None
    merchant_reference: str | None


class RefundFilters(Pace, total=False):
    payment_id: str | None


class EventFilters(Pace, total=False):
    type: str | None
    created_from: datetime | None
    created_to: datetime | None


class _Resource(Generic[wire.ResourceT]):
    """A kind of object under one path."""

    path: str
    kind: str
    struct: type[wire.ResourceT]

    def __init__(self, channel: Channel) -> None:
        self._channel = channel


class _Created(_Resource[wire.ResourceT]):
    @sensitive_variables("body")
    def create(
        self, body: bytes, *, idempotency_key: str, max_wait: float = INTERACTIVE_WAIT
    ) -> Answer[wire.ResourceT]:
        """POST these bytes."""
        reply = self._channel.post(self.path, body, idempotency_key=idempotency_key, max_wait=max_wait)
        return answers.resource(reply, self.struct, self.kind)


class _Read(_Resource[wire.ResourceT]):
    def get(
        self, object_id: str, *, max_wait: float | None = None, background: bool = False
    ) -> Answer[wire.ResourceT]:
        """GET one object; NoAnswer when another one comes."""
        path = f"{self.path}/{segment(object_id)}"
        reply = self._channel.get(path, max_wait=max_wait, background=background)
        return answers.resource(reply, self.struct, self.kind, object_id)


class _Canceled(_Resource[wire.ResourceT]):
    def cancel(
        self, object_id: str, *, idempotency_key: str, max_wait: float = INTERACTIVE_WAIT
    ) -> Answer[wire.ResourceT]:
        """POST …/cancel, without a body; InvalidState when the status forbids it."""
        path = f"{self.path}/{segment(object_id)}/cancel"
        reply = self._channel.post(path, None, idempotency_key=idempotency_key, max_wait=max_wait)
        return answers.resource(reply, self.struct, self.kind, object_id)


class _Listed(_Resource[wire.ResourceT]):
    def _page(
        self, limit: int, starting_after: str | None, filters: Mapping[str, object]
    ) -> Answer[PageOf[wire.ResourceT]]:
        reply = _get_page(self._channel, self.path, limit, starting_after, filters)
        return answers.page(reply, self.struct, self.kind)

    def _pages(
        self, starting_after: str | None, filters: Mapping[str, object]
    ) -> Iterator[Answer[PageOf[wire.ResourceT]]]:
        def fetch(cursor: str | None) -> Answer[PageOf[wire.ResourceT]]:
            reply = _get_page(self._channel, self.path, MAX_LIMIT, cursor, filters)
            return answers.tolerant_page(reply, self.struct, self.kind)

        return walk(self.path, fetch, starting_after)

    def _list(self, filters: Mapping[str, object]) -> Iterator[wire.ResourceT]:
        for answer in walk(self.path, lambda cursor: self._page(MAX_LIMIT, cursor, filters)):
            yield from answer.data.items


class Payments(_Created[wire.Payment], _Read[wire.Payment], _Canceled[wire.Payment], _Listed[wire.Payment]):
    path, kind, struct = "/payments", "payment", wire.Payment

    def list(self, **filters: Unpack[PaymentFilters]) -> Iterator[wire.Payment]:
        """Every payment, newest first, page after page."""
        return self._list(filters)

    def pages(
        self, starting_after: str | None = None, **filters: Unpack[PaymentFilters]
    ) -> Iterator[Answer[PageOf[wire.Payment]]]:
        """The same, by page; an item that cannot be read is named in ``unreadable`` and hides no other."""
        return self._pages(starting_after, filters)

    def list_page(
        self, *, limit: int = MAX_LIMIT, starting_after: str | None = None, **filters: Unpack[PaymentFilters]
    ) -> Answer[PageOf[wire.Payment]]:
        """One page."""
        return self._page(limit, starting_after, filters)


class Payouts(_Created[wire.Payout], _Read[wire.Payout], _Canceled[wire.Payout], _Listed[wire.Payout]):
    path, kind, struct = "/payouts", "payout", wire.Payout

    def list(self, **filters: Unpack[PayoutFilters]) -> Iterator[wire.Payout]:
        """Every payout, newest first, page after page."""
        return self._list(filters)

    def pages(
        self, starting_after: str | None = None, **filters: Unpack[PayoutFilters]
    ) -> Iterator[Answer[PageOf[wire.Payout]]]:
        """The same, by page; an item that cannot be read is named in ``unreadable`` and hides no other."""
        return self._pages(starting_after, filters)

    def list_page(
        self, *, limit: int = MAX_LIMIT, starting_after: str | None = None, **filters: Unpack[PayoutFilters]
    ) -> Answer[PageOf[wire.Payout]]:
        """One page."""
        return self._page(limit, starting_after, filters)


class Refunds(_Created[wire.Refund], _Read[wire.Refund], _Listed[wire.Refund]):
    path, kind, struct = "/refunds", "refund", wire.Refund

    def list(self, **filters: Unpack[RefundFilters]) -> Iterator[wire.Refund]:
        """Every refund, newest first, page after page."""
        return self._list(filters)

    def pages(
        self, starting_after: str | None = None, **filters: Unpack[RefundFilters]
    ) -> Iterator[Answer[PageOf[wire.Refund]]]:
        """The same, by page; an item that cannot be read is named in ``unreadable`` and hides no other."""
        return self._pages(starting_after, filters)

    def list_page(
        self, *, limit: int = MAX_LIMIT, starting_after: str | None = None, **filters: Unpack[RefundFilters]
    ) -> Answer[PageOf[wire.Refund]]:
        """One page."""
        return self._page(limit, starting_after, filters)


class DepositReferences(_Created[wire.DepositReference], _Read[wire.DepositReference]):
    path, kind, struct = "/deposit-references", "deposit_reference", wire.DepositReference


class WebhookEndpoints(_Created[wire.WebhookEndpoint]):
    path, kind, struct = "/webhook-endpoints", "webhook_endpoint", wire.WebhookEndpoint

    def list(self, *, max_wait: float | None = None, background: bool = False) -> EndpointsAnswer:
        """Every endpoint, without secrets."""
        reply = self._channel.get(self.path, max_wait=max_wait, background=background)
        return answers.resources(reply, self.struct, self.kind)

    def delete(self, endpoint_id: str, *, max_wait: float = INTERACTIVE_WAIT) -> Answer[None]:
        """DELETE; any 2xx is enough, its body is not shown in the spec."""
        reply = self._channel.delete(f"{self.path}/{segment(endpoint_id)}", max_wait=max_wait)
        return answers.answer(reply, None)

    def rotate_secret(
        self, endpoint_id: str, *, idempotency_key: str, max_wait: float = INTERACTIVE_WAIT
    ) -> Answer[wire.WebhookEndpoint]:
        """POST …/rotate-secret, without a body; the answer has the new ``secret``."""
        path = f"{self.path}/{segment(endpoint_id)}/rotate-secret"
        reply = self._channel.post(path, None, idempotency_key=idempotency_key, max_wait=max_wait)
        return answers.resource(reply, self.struct, self.kind, endpoint_id)


class Balances:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def list(self, *, max_wait: float | None = None, background: bool = False) -> BalancesAnswer:
        """One balance per currency."""
        reply = self._channel.get("/balances", max_wait=max_wait, background=background)
        return answers.resources(reply, wire.Balance, "balance")


class PaymentMethods:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def list(
        self,
        country: str | None = None,
        currency: str | None = None,
        amount: int | None = None,
        *,
        max_wait: float | None = None,
        background: bool = False,
    ) -> MethodsAnswer:
        """What can be paid with; ``amount`` in minor units."""
        params = _params({"country": country, "currency": currency, "amount": amount})
        reply = self._channel.get("/payment-methods", params, max_wait=max_wait, background=background)
        return answers.payment_methods(reply)


class Events:
    path = "/events"

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def get(self, event_id: str, *, max_wait: float | None = None, background: bool = False) -> Answer[RawEvent]:
        """One event's exact bytes."""
        reply = self._channel.get(f"{self.path}/{segment(event_id)}", max_wait=max_wait, background=background)
        return answers.event(reply, event_id)

    def list(self, **filters: Unpack[EventFilters]) -> Iterator[RawEvent]:
        """Every stored event, newest first, page after page."""
        for answer in self.pages(**filters):
            yield from answer.data.items

    def pages(
        self, starting_after: str | None = None, **filters: Unpack[EventFilters]
    ) -> Iterator[Answer[PageOf[RawEvent]]]:
        """The same, by page."""
        return walk(self.path, lambda cursor: self.list_page(starting_after=cursor, **filters), starting_after)

    def list_page(
        self, *, limit: int = MAX_LIMIT, starting_after: str | None = None, **filters: Unpack[EventFilters]
    ) -> Answer[PageOf[RawEvent]]:
        """One page."""
        return answers.event_page(_get_page(self._channel, self.path, limit, starting_after, filters))


def _get_page(
    channel: Channel, path: str, limit: int, starting_after: str | None, filters: Mapping[str, object]
) -> Reply:
    if not 1 <= limit <= MAX_LIMIT:
        raise UnsendableRequest(f"limit is 1 to {MAX_LIMIT}")
    query = dict(filters)
    max_wait, background = query.pop("max_wait", None), query.pop("background", False)
    params = _params({"limit": limit, "starting_after": starting_after, **query})
    return channel.get(
        path,
        params,
        max_wait=max_wait if isinstance(max_wait, int | float) else None,
        background=background is True,
    )


def _params(values: Mapping[str, object]) -> dict[str, str]:
    return {name: _text(value) for name, value in values.items() if value is not None}


def _text(value: object) -> str:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise UnsendableRequest("a time without a zone")
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UnsendableRequest("a filter that is not valid text") from None
    return text
