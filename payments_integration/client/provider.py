"""The client of one account, and the one that the process keeps for it."""

from __future__ import annotations

import time
from collections.abc import Callable

from payments_integration import conf
from payments_integration.client.channel import Channel
from payments_integration.client.resources import (
    Balances,
    DepositReferences,
    Events,
    PaymentMethods,
    Payments,
    Payouts,
    Refunds,
    WebhookEndpoints,
)


class Client:
    """Every operation of the provider for one account. Threads may share it."""

    def __init__(
        self,
        account: conf.Account,
        *,
        sleep: Callable[[float], object] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.account = account
        channel = Channel(account, sleep=sleep, monotonic=monotonic)
        self.payment_methods = PaymentMethods(channel)
        self.payments = Payments(channel)
        self.payouts = Payouts(channel)
        self.refunds = Refunds(channel)
        self.deposit_references = DepositReferences(channel)
        self.balances = Balances(channel)
        self.webhook_endpoints = WebhookEndpoints(channel)
        self.events = Events(channel)

    def __repr__(self) -> str:
        return f"Client({self.account.alias!r})"


_Key = tuple[str, str, str]
_clients: dict[_Key, Client] = {}


def get_client(alias: str = conf.DEFAULT_ACCOUNT) -> Client:
    """The process's client for that account; another one once its BASE_URL or API_KEY is another.

    Raises ImproperlyConfigured for an unknown alias.
    """
    account = conf.account(alias)
    key = (account.alias, account.base_url, account.api_key)
    client = _clients.get(key)
    if client is None:
        # setdefault is atomic: of two threads that come at once, both get the first one's.
        client = _clients.setdefault(key, Client(account))
        for old in [other for other in list(_clients) if other[0] == alias and other != key]:
            _clients.pop(old, None)
    return client
