"""What is not paged: balances, from the mirror, and payment methods, from the provider."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from payments_integration import conf, services
from payments_integration.api import errors
from payments_integration.api.calls import Call
from payments_integration.api.representations import BalanceSerializer, PaymentMethodSerializer
from payments_integration.api.views.base import ApiView, RowsView
from payments_integration.enums import Country, Currency
from payments_integration.models import Balance
from payments_integration.money import INT64_MAX

_MAX_ALIAS = 64
_ACCOUNT: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": _MAX_ALIAS}


def _list(data: list[Any]) -> Response:
    return Response({"object": "list", "has_more": False, "next_cursor": None, "data": data})


class BalancesView(RowsView):
    model, tag = Balance, "balances"
    calls = {
        "GET": Call(
            id="list_balances",
            summary="List balances",
            description="One per account and currency, all of them at once, as the mirror has them.",
            needs="view_balance",
            gives=BalanceSerializer,
            many=True,
            query={"account": _ACCOUNT},
        ),
    }

    def get(self, request: Request) -> Response:
        found = self.rows().filter(gone_at=None)
        account = self.asked("account").get("account")
        if account is not None:
            errors.check_text("account", account, _MAX_ALIAS)
            found = found.filter(account=account)
        return _list([self.show(row) for row in found.order_by("account", "currency")])


class PaymentMethodsView(ApiView):
    tag = "payment methods"
    calls = {
        "GET": Call(
            id="list_payment_methods",
            summary="List payment methods",
            description="Read from the provider at each call.",
            needs="",
            customers=True,
            gives=PaymentMethodSerializer,
            many=True,
            query={
                "account": _ACCOUNT,
                "country": {"type": "string", "enum": Country.values},
                "currency": {"type": "string", "enum": Currency.values},
                "amount": {"type": "integer", "format": "int64", "minimum": 1, "maximum": INT64_MAX},
            },
            errors=(502, 503),
        ),
    }

    def get(self, request: Request) -> Response:
        asked: dict[str, Any] = dict(self.asked("account", "country", "currency", "amount"))
        self.given = errors.Given(names=frozenset(asked))
        if asked.get("account", conf.DEFAULT_ACCOUNT) not in conf.aliases():
            raise errors.invalid("account", errors.NO_ACCOUNT)
        if "amount" in asked:
            # A query has no numbers. What is none is refused by the service, like any other value.
            text = asked["amount"]
            asked["amount"] = int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else text
        return _list([self.show(method) for method in services.list_payment_methods(**asked)])
