"""Serve what can only be read: balances, payment methods, events, operations and the API's own description."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, ClassVar

from django.apps import apps
from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer, OpenApiYamlRenderer2
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from payments_integration import conf, permissions
from payments_integration.api import accounts, errors
from payments_integration.api.lists import AccountFilters, EventFilters, OperationFilters, SinglePage, is_whole
from payments_integration.api.schema import VERSION, Route, describe
from payments_integration.api.serializers import (
    BalanceSerializer,
    EventSerializer,
    OperationSerializer,
    PaymentMethodSerializer,
)
from payments_integration.api.views.base import ApiView, CompactJSON, DetailView, ListView
from payments_integration.enums import Country, Currency
from payments_integration.models import Balance, Event, Operation
from payments_integration.money import INT64_MAX
from payments_integration.payer.methods import listed_methods

#: Deferred: large and internal columns that no answer shows.
_EVENTS = Event.objects.defer("error")
_OPERATIONS = Operation.objects.defer("arguments", "body", "note", "request_ids")

#: The app with the files of Swagger UI.
SWAGGER = "drf_spectacular_sidecar"


class BalancesView(ListView):
    queryset = Balance.objects.all()
    serializer_class, filterset_class, pagination_class = BalanceSerializer, AccountFilters, SinglePage
    routes = {
        "GET": Route(
            "list_balances",
            "view_balance",
            description="One per account and currency, from the mirror, without pagination.",
            many=True,
        )
    }

    def get_queryset(self) -> QuerySet[Balance]:
        # Filter after API_QUERYSET, whose function may add rows that are gone.
        return super().get_queryset().filter(gone_at=None).order_by("account", "currency")


class WholeNumberField(serializers.IntegerField):
    def to_internal_value(self, data: Any) -> int:
        if not is_whole(data):
            self.fail("invalid")
        return super().to_internal_value(data)


class PaymentMethodsQuery(serializers.Serializer[Any]):
    account = serializers.CharField(required=False)
    country = serializers.ChoiceField(Country.values, required=False)
    currency = serializers.ChoiceField(Currency.values, required=False)
    amount = WholeNumberField(required=False, min_value=1, max_value=INT64_MAX)


class PaymentMethodsView(ListView):
    serializer_class, query_serializer, pagination_class = PaymentMethodSerializer, PaymentMethodsQuery, SinglePage
    filter_backends = []
    routes = {
        "GET": Route(
            "list_payment_methods",
            "",
            description="As the provider listed them a minute ago at most.",
            customers=True,
            many=True,
        )
    }

    def get(self, request: Request, **path: str) -> Response:
        query = PaymentMethodsQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        self.sent = frozenset(query.validated_data)
        accounts.require(request.user, query.validated_data.get("account"))
        return self.respond_with(listed_methods(**query.validated_data))


class EventsView(ListView):
    queryset, serializer_class, filterset_class = _EVENTS, EventSerializer, EventFilters
    routes = {"GET": Route("list_events", "view_event", many=True)}


class EventView(DetailView):
    queryset, serializer_class = _EVENTS, EventSerializer
    routes = {"GET": Route("get_event", "view_event")}


class OperationsView(ListView):
    queryset, serializer_class, filterset_class = _OPERATIONS, OperationSerializer, OperationFilters
    routes = {"GET": Route("list_operations", "view_operation", many=True)}


class OperationView(DetailView):
    queryset, serializer_class = _OPERATIONS, OperationSerializer
    routes = {
        "GET": Route(
            "get_operation",
            "view_operation",
            description="The path in the header Location of a 202. Customers may see their own operations.",
            customers=True,
        )
    }


class IndexView(ApiView):
    """Links to everything, and what the caller may do. Not part of the description."""

    patterns: ClassVar[tuple[Any, ...]] = ()
    schema = None  # not part of the description
    routes = {"GET": Route("get_index", "", customers=True)}

    def get(self, request: Request) -> Response:
        routes = [route for pattern in self.patterns for route in pattern.callback.cls.routes.values()]
        # Each class decides by the route alone, as it does for the call itself.
        judges = self.get_permissions()
        calls = []
        for route in routes:
            called: Any = SimpleNamespace(route=route)
            if all(each.has_permission(request, called) for each in judges):
                calls.append(route.id)
        lists = [each for each in self.patterns if str(each.name).endswith("-list")]
        paths = [str(each.pattern) for each in lists]
        paths += ["schema/", "try/"] if _has_swagger() else ["schema/"]
        links = {each.rstrip("/"): request.build_absolute_uri(request.path + each) for each in paths}
        return Response(
            {
                "object": "index",
                "version": VERSION,
                "links": links,
                "accounts": accounts.usable(request.user),
                "calls": sorted(calls),
                "exports": self._exports([each for each in lists if each.callback.cls.routes["GET"].id in calls]),
            }
        )

    def _exports(self, lists: Sequence[Any]) -> dict[str, str]:
        """Return the admin's export addresses of these lists, for staff, if contrib.backoffice is installed."""
        found = {}
        for each in lists if permissions.is_staff(self.request.user) else []:
            queryset = each.callback.cls.queryset
            if queryset is not None:
                with suppress(NoReverseMatch):
                    url = reverse(f"admin:{queryset.model._meta.label_lower.replace('.', '_')}_export")
                    found[str(each.pattern).rstrip("/")] = self.request.build_absolute_uri(f"{url}?format=csv")
        return found


class SchemaView(ApiView):
    """The API's description in OpenAPI 3.1, which does not list this route. YAML by ``Accept: application/yaml``."""

    renderer_classes = [CompactJSON, OpenApiJsonRenderer, OpenApiYamlRenderer, OpenApiYamlRenderer2]
    patterns: ClassVar[tuple[Any, ...]] = ()
    schema = None  # not part of the description
    routes = {"GET": Route("get_schema", "", customers=True)}

    def get(self, request: Request) -> Response:
        base = request.path.removesuffix("schema/").rstrip("/")
        current = conf.current()
        shown = (tuple(current.API_AUTHENTICATION_CLASSES), current.API_PAYMENT)
        return Response(_described(self.patterns, base, shown))


class TryView(ApiView):
    """A page to try the calls: Swagger UI from drf-spectacular-sidecar. Not part of the description."""

    schema = None  # not part of the description
    routes = {"GET": Route("get_try", "", customers=True)}

    def get(self, request: Request) -> HttpResponse:
        if not _has_swagger():
            words = _('To try the API here, install "%(package)s" and add "%(app)s" to INSTALLED_APPS.')
            words %= {"package": "drf-spectacular[sidecar]", "app": SWAGGER}
            raise errors.not_found(message=words)
        header = settings.CSRF_HEADER_NAME.removeprefix("HTTP_").replace("_", "-")
        return render(request._request, "payments_integration/api/try.html", {"csrf_header": header})


def _has_swagger() -> bool:
    return apps.is_installed(SWAGGER)


@lru_cache(maxsize=8)
def _described(patterns: tuple[Any, ...], base: str, shown: tuple[Any, ...]) -> dict[str, Any]:
    """Return the description. Cached for the settings that it shows, because it takes a moment to generate."""
    return describe(patterns, base)
