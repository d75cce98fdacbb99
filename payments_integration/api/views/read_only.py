"""Routes that only read: balances, payment methods, events, operations and the description of the API itself."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar

from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer, OpenApiYamlRenderer2
from rest_framework.request import Request
from rest_framework.response import Response

from payments_integration import conf, services
from payments_integration.api import accounts, errors
from payments_integration.api.lists import EventFilters, OperationFilters
from payments_integration.api.negotiation import JSONRenderer
from payments_integration.api.schema import Route, describe
from payments_integration.api.serializers import (
    BalanceSerializer,
    ErrorSerializer,
    EventSerializer,
    OperationSerializer,
    PaymentMethodSerializer,
)
from payments_integration.api.views.base import ApiView, DetailView, ListView, RowsView
from payments_integration.enums import Country, Currency
from payments_integration.models import Balance, Event, Operation
from payments_integration.money import INT64_MAX

_MAX_ALIAS = 64
_ACCOUNT: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": _MAX_ALIAS}

#: Large or internal columns of operations that no answer shows.
_DEFERRED = ("arguments", "body", "note", "request_ids")


def _list(data: list[Any]) -> Response:
    return Response({"object": "list", "has_more": False, "next_cursor": None, "data": data})


class BalancesView(RowsView):
    model, tag = Balance, "balances"
    routes = {
        "GET": Route(
            "list_balances",
            "List balances",
            "view_balance",
            BalanceSerializer,
            description="One per account and currency, from the mirror, without pagination.",
            many=True,
            query={"account": _ACCOUNT},
        ),
    }

    def get(self, request: Request) -> Response:
        found = self.rows().filter(gone_at=None)
        account = self.query("account").get("account")
        if account is not None:
            errors.check_text("account", account, _MAX_ALIAS)
            found = found.filter(account=account)
        return _list([self.show(row) for row in found.order_by("account", "currency")])


class PaymentMethodsView(ApiView):
    tag = "payment methods"
    routes = {
        "GET": Route(
            "list_payment_methods",
            "List payment methods",
            "",
            PaymentMethodSerializer,
            description="Read from the provider each time.",
            customers=True,
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
        query: dict[str, Any] = dict(self.query("account", "country", "currency", "amount"))
        self.sent = errors.SentNames(names=frozenset(query))
        accounts.require(request.user, query.get("account"))
        if "amount" in query:
            # A query has only text. The service refuses a text that is not a number.
            text = query["amount"]
            query["amount"] = int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else text
        return _list([self.show(method) for method in services.list_payment_methods(**query)])


class EventsView(ListView):
    model, filters, tag = Event, EventFilters, "events"
    deferred = ("error",)
    routes = {"GET": Route("list_events", "List events", "view_event", EventSerializer, many=True)}


class EventView(DetailView):
    model, tag = Event, "events"
    routes = {"GET": Route("get_event", "Show an event", "view_event", EventSerializer)}


class OperationsView(ListView):
    model, filters, tag = Operation, OperationFilters, "operations"
    deferred = _DEFERRED
    routes = {"GET": Route("list_operations", "List operations", "view_operation", OperationSerializer, many=True)}


class OperationView(DetailView):
    model, tag = Operation, "operations"
    deferred = _DEFERRED
    routes = {
        "GET": Route(
            "get_operation",
            "Show an operation",
            "view_operation",
            OperationSerializer,
            description="The path in the header Location of a 202. Customers may see their own operations.",
            customers=True,
        )
    }


class SchemaView(ApiView):
    """OpenAPI 3.1; not part of the description itself. YAML by ``Accept: application/yaml``."""

    renderer_classes = [JSONRenderer, OpenApiJsonRenderer, OpenApiYamlRenderer, OpenApiYamlRenderer2]
    patterns: ClassVar[tuple[Any, ...]] = ()
    routes = {"GET": Route("get_schema", "Show this description", "", ErrorSerializer, customers=True)}

    def get(self, request: Request) -> Response:
        self.query()
        base = request.path.removesuffix("schema/").rstrip("/")
        return Response(_described(self.patterns, base, tuple(conf.current().API_AUTHENTICATION_CLASSES)))


@lru_cache(maxsize=8)
def _described(patterns: tuple[Any, ...], base: str, authentication: tuple[str, ...]) -> dict[str, Any]:
    """Cached: it takes a moment to generate, and depends on nothing else."""
    return describe(patterns, base)
