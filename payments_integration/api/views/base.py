"""The base classes of all views: the app's own settings, one call of a service, the provider's error envelope."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from django.db import connections, transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.module_loading import import_string
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import NotAuthenticated, UnsupportedMediaType
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from payments_integration import conf, permissions, services
from payments_integration.api import accounts, errors, lists, querysets
from payments_integration.api.negotiation import ContentNegotiation, JSONParser, JSONRenderer, Versioning
from payments_integration.api.permissions import held_by
from payments_integration.api.schema import Route, RouteSchema
from payments_integration.api.serializers import OperationSerializer
from payments_integration.exceptions import ApprovalRequired, OutcomeUnknown

logger = logging.getLogger(__name__)

KEY_HEADER = "Idempotency-Key"
REQUEST_ID_HEADER = "Request-Id"
#: Spec, "Limits".
MAX_KEY = 255
#: No id of the provider is longer.
_MAX_ID = 255


def _classes(option: str) -> list[type[Any]]:
    """The classes that an option such as API_PERMISSION_CLASSES names; importing them again costs a look-up.

    Raises ImportError for a wrong path, which a system check reports (E014).
    """
    return [import_string(path) for path in getattr(conf.current(), option)]


def _visible(queryset: QuerySet[Any], user: Any) -> QuerySet[Any]:
    """What API_QUERYSET makes of a queryset."""
    found: QuerySet[Any] = import_string(conf.current().API_QUERYSET)(queryset, user)
    return found


class ApiView(APIView):
    """A path of the API; ``routes`` has its methods.

    Everything that affects security is set here or by an option of this app: a project's defaults for Django REST
    framework are for its own API, and must not open this one.
    """

    routes: ClassVar[Mapping[str, Route]] = {}
    #: The heading under which the description lists the routes.
    tag: ClassVar[str] = ""

    http_method_names = ["get", "head", "post"]
    renderer_classes = [JSONRenderer]
    parser_classes = [JSONParser]
    content_negotiation_class = ContentNegotiation
    versioning_class = Versioning
    metadata_class = None
    schema = RouteSchema()

    #: The names in the body or the query.
    sent = errors.SentNames()
    request_id = ""

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        view: Any = super().as_view(**initkwargs)
        for alias in connections:
            # Services commit before they send, so ATOMIC_REQUESTS must not open a transaction.
            view = transaction.non_atomic_requests(using=alias)(view)
        return view

    @property
    def route(self) -> Route | None:
        """The requested route; None for a method that this path does not have."""
        method = self.request.method or ""
        return self.routes.get("GET" if method == "HEAD" else method)

    @property
    def known_route(self) -> Route:
        """The same within a method's handler, where it is never None."""
        method = self.request.method or ""
        return self.routes["GET" if method == "HEAD" else method]

    @cached_property
    def may(self) -> Callable[[str], bool]:
        """A function that tells whether the caller has one of the app's permissions."""
        return held_by(self.request.user)

    # set by options

    def get_authenticators(self) -> list[BaseAuthentication]:
        return [each() for each in _classes("API_AUTHENTICATION_CLASSES")]

    def get_permissions(self) -> list[BasePermission]:
        return [each() for each in _classes("API_PERMISSION_CLASSES")]

    def get_throttles(self) -> list[BaseThrottle]:
        return [each() for each in _classes("API_THROTTLE_CLASSES")]

    def get_authenticate_header(self, request: Request) -> str:
        # Without this header, as with sessions, Django REST framework answers 403 to a caller who is not signed in.
        return super().get_authenticate_header(request) or 'Session realm="api"'

    # the steps of a request

    @sensitive_variables()  # of every step: a report of an error would show the payer
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        self.request_id = f"req_{uuid.uuid4().hex}"
        response: HttpResponseBase = super().dispatch(request, *args, **kwargs)
        response.headers[REQUEST_ID_HEADER] = self.request_id
        # Answers hold financial and personal data, so no cache in between may keep them.
        response.headers["Cache-Control"] = "private, no-store"
        return response

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if request.method == "POST" and request.content_type:
            # Before Django REST framework parses a form, which fails with errors of its own.
            negotiator = self.get_content_negotiator()
            if negotiator.select_parser(request, self.get_parsers()) is None:
                raise UnsupportedMediaType(request.content_type[:64])
        super().initial(request, *args, **kwargs)

    def get_exception_handler(self) -> Callable[..., Response | None]:
        return self._handle

    def _handle(self, error: Exception, context: Mapping[str, Any]) -> Response | None:
        problem = errors.problem_of(error, self.sent)
        if problem is None:
            extra = {"api_request_id": self.request_id}
            logger.error("API request %s, %s: %s", self.request_id, self._route_id, type(error).__name__, extra=extra)
            return None
        if problem.status == 405:
            problem.headers = {"Allow": ", ".join(self.allowed_methods)}
        errors.log(error, problem, self.request_id, self._route_id)
        return errors.respond(problem, self.request_id)

    @property
    def _route_id(self) -> str:
        """For the log."""
        return self.route.id if self.route is not None else "no route"

    # for the handlers of methods

    def query(self, *known: str) -> dict[str, str]:
        """The query parameters. Raises Problem for one that is unknown, empty or given twice: to ignore a filter would
        show rows that it excludes.
        """
        found: dict[str, str] = {}
        for name, values in self.request.GET.lists():
            if name not in known:
                words = _("This address has no such parameter; known: %(known)s.")
                raise errors.invalid(name, words % {"known": ", ".join(known) or "-"})
            if len(values) > 1 or not values[0]:
                raise errors.invalid(name, _("This must be given once, and not be empty."))
            found[name] = values[0]
        return found

    def show(self, row: Any, shown: type[Serializer[Any]] | None = None) -> dict[str, Any]:
        """One row as JSON."""
        serializer = shown or self.known_route.answer
        return dict(serializer(row, context={"sees_personal": self.sees_personal}).data)

    def sees_personal(self, row: Any) -> bool:
        """Staff by permission; other users in their own rows."""
        user = self.request.user
        if permissions.is_staff(user):
            return self.may("view_personal_data")
        return bool(getattr(row, "is_own", False))


class RowsView(ApiView):
    """A path with mirrored rows."""

    model: ClassVar[type[Any]]
    #: Columns that no answer shows.
    deferred: ClassVar[tuple[str, ...]] = ()

    def rows(self, model: type[Any] | None = None) -> QuerySet[Any]:
        """The rows that the caller may see; each row says whether it is the caller's own."""
        user = self.request.user
        found = _visible((model or self.model).objects.all(), user)
        if self.request.method not in SAFE_METHODS or conf.current().API_ACCOUNT_CHECK:
            # An object in an account that the caller may not use cannot be changed. A project that decides about
            # accounts also hides the rows of the others.
            found = found.filter(account__in=accounts.usable(user))
        return found if permissions.is_staff(user) else querysets.with_owner(found, user)

    def find(self, pk: str, model: type[Any] | None = None) -> Any:
        """The row with this id. Raises Problem (404) if it does not exist or this caller may not see it."""
        return self.find_in(self.rows(model), pk)

    def find_in(self, rows: QuerySet[Any], pk: object, param: str | None = None) -> Any:
        row = self.with_id(rows, pk, param).first()
        if row is None:
            raise errors.not_found(param)
        self.check_object_permissions(self.request, row)
        return row

    def with_id(self, rows: QuerySet[Any], pk: object, param: str | None = None) -> QuerySet[Any]:
        """The rows that have this id: one or none. Raises Problem (404) for a text that cannot be an id."""
        if not isinstance(pk, str) or not pk.isascii() or not pk.isprintable() or len(pk) > _MAX_ID:
            raise errors.not_found(param)
        return rows.filter(pk=pk)

    def respond_with_list(self, rows: QuerySet[Any], by: type[lists.RowFilters]) -> Response:
        """One page of the rows that match the query."""
        return self.show_page(self.page(rows, by))

    def page(self, rows: QuerySet[Any], by: type[lists.RowFilters]) -> lists.Page:
        values = self.query(*by.base_filters, *lists.PARAMETERS)
        place = [values.pop(name, None) for name in lists.PARAMETERS]
        limit, cursor, ordering = place
        found = lists.apply(by, values, rows.defer(*self.deferred))
        return lists.page(found, limit, ordering, cursor)

    def show_page(self, page: lists.Page) -> Response:
        shown = self.known_route.answer(page.rows, many=True, context={"sees_personal": self.sees_personal})
        return Response(page.answer(list(shown.data)))


class ListView(RowsView):
    filters: ClassVar[type[lists.RowFilters]]

    def get(self, request: Request) -> Response:
        return self.respond_with_list(self.rows(), self.filters)


class DetailView(RowsView):
    def get(self, request: Request, id: str) -> Response:
        self.query()
        return Response(self.show(self.find_in(self.rows().defer(*self.deferred), id)))


class SendingView(RowsView):
    """A path whose POST changes something at the provider."""

    #: The URL name of a created object's path, for the header Location.
    detail_url_name: ClassVar[str] = ""

    def body(self) -> dict[str, Any]:
        """The parameters in the body. Raises Problem for an unknown one, and for a missing or wrong key."""
        self.query()
        self.key()
        body: Any = self.request.data  # a dict: the parser accepts only objects
        self.sent = errors.SentNames(
            names=frozenset(name for name, value in body.items() if value is not None), is_change=True
        )
        route = self.known_route
        known = route.body().fields if route.body is not None else {}
        for name in body:
            if name not in known:
                words = _("There is no such parameter; known: %(known)s.")
                raise errors.invalid(name, words % {"known": ", ".join(known) or "-"})
        if "account" in known:
            accounts.require(self.request.user, body.get("account"))
        if body.get("account") is None:
            body.pop("account", None)
        # The service reports missing parameters together with wrong ones.
        return {**{name: None for name, field in known.items() if field.required}, **body}

    def key(self) -> str:
        """The caller's key as the outbox stores it: equal keys of two users are different keys."""
        key = self.request.headers.get(KEY_HEADER)
        if not key:
            raise errors.missing(KEY_HEADER, _("Every POST needs the header Idempotency-Key."))
        if len(key) > MAX_KEY:
            raise errors.invalid(KEY_HEADER, _("This must have at most %(max)d characters.") % {"max": MAX_KEY})
        owner = getattr(self.request.user, "pk", None)
        if owner is None:
            # A project may let anonymous callers in, but a key needs an owner.
            raise NotAuthenticated
        return services.scoped_key(key, owner)

    def send(self, function: Callable[..., Any], *target: Any, **arguments: Any) -> Response:
        """Call a service and show the result. A repeated call with the same key gets the same answer."""
        route = self.known_route
        try:
            row = function(*target, idempotency_key=self.key(), actor=self.request.user, **arguments)
        except (OutcomeUnknown, ApprovalRequired) as error:
            return self._accepted(error.operation)
        extra = {"account": row.account, "api_request_id": self.request_id}
        logger.info("API request %s, %s: %s", self.request_id, route.id, row.pk, extra=extra)
        location = self._address(self.detail_url_name, row.pk)
        return Response(self.show(self._as_seen(row)), status=route.status, headers=location)

    def _as_seen(self, row: Model) -> Any:
        """The row as the caller would read it. The result of the caller's own call is shown in any case."""
        return self.rows(type(row)).filter(pk=row.pk).first() or row

    def _accepted(self, operation: Any) -> Response:
        """202: recorded and not finished. It waits for a second person, or its outcome is unknown."""
        logger.info(
            "API request %s, %s: %s is %s",
            self.request_id,
            self._route_id,
            operation.pk,
            operation.state,
            extra={
                "account": operation.account,
                "operation_id": operation.pk,
                "api_request_id": self.request_id,
            },
        )
        location = self._address("api-operation-detail", operation.pk)
        return Response(self.show(operation, OperationSerializer), status=202, headers=location)

    def _address(self, name: str, pk: str) -> dict[str, str]:
        if not name:
            return {}
        match = self.request.resolver_match
        namespace = f"{match.namespace}:" if match is not None and match.namespace else ""
        return {"Location": reverse(f"{namespace}{name}", args=[pk])}


class UnknownPathView(ApiView):
    """404 for all other paths below the API."""

    http_method_names = ["get", "head", "post", "put", "patch", "delete", "options", "trace"]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        raise errors.Problem(
            404, errors.NOT_FOUND, "resource_not_found", _("There is no such address; each ends in a slash.")
        )
