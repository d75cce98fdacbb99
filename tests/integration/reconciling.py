"""Helpers of the tests of reconciliation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from unittest import mock

from payments_integration import inbox, services
from payments_integration.models import Payment
from payments_integration.testing import ProviderSandbox


def pay(sandbox: ProviderSandbox, **arguments: Any) -> Payment:
    arguments = {"amount": 10000, "currency": "CLP", "country": "CL", "method_code": "cl_webpay_card", **arguments}
    payment = services.create_payment(**arguments)
    sandbox.engine.pay(payment.id)
    return payment


def pass_time(sandbox: ProviderSandbox, **delta: float) -> None:
    sandbox.engine.clock.advance(timedelta(**delta).total_seconds())


def after_each_page(act: Callable[[int], object]) -> Any:
    """Call ``act`` after each stored page that is not empty, with the number of such pages so far."""
    real, pages = inbox.receive_many, []

    def receive(account: str, bodies: Iterator[bytes], **how: Any) -> Any:
        page = list(bodies)
        counts = real(account, page, **how)
        if page:
            pages.append(1)
            act(len(pages))
        return counts

    return mock.patch.object(inbox, "receive_many", receive)
