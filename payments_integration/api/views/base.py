"""What every address of the API is: its own settings throughout, one call of a service, the provider's envelope."""

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
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import NotAuthenticated, UnsupportedMediaType
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from payments_integration import conf, permissions, services
from payments_integration.api import errors, filters, options, paging, querysets
from payments_integration.api.calls import Call
from payments_integration.api.negotiation import ContentNegotiation, JSONParser, JSONRenderer, Versioning
from payments_integration.api.representations import OperationSerializer
from payments_integration.api.rights import rights
from payments_integration.api.schema import Described
from payments_integration.exceptions import ApprovalRequired, OutcomeUnknown

logger = logging.getLogger(__name__)

KEY_HEADER = "Idempotency-Key"
REQUEST_ID_HEADER = "Request-Id"
#: Spec, "Limits".
MAX_KEY = 255
#: No id of the provider is longer, and none has what a database refuses.
_MAX_ID = 255


class ApiView(APIView):
    """Reads ``calls``; the methods that are there are those that it names.

    Everything that decides about security is set here or by an option of ours: a project's defaults for Django REST
    framework, made for its own API, must not open this one.
    """

    calls: ClassVar[Mapping[str, Call]] = {}
    #: Under which the description lists them.
    tag: ClassVar[str] = ""

    http_method_names = ["get", "head", "post"]
    renderer_classes = [JSONRenderer]
    parser_classes = [JSONParser]
    content_negotiation_class = ContentNegotiation
    versioning_class = Versioning
    metadata_class = None
    schema = Described()

    #: Of the body, to tell what is missing from what is wrong.
    given = errors.Given()
    request_id = ""

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        view: Any = super().as_view(**initkwargs)
        for alias in connections:
            # Services send after they have committed, also where ATOMIC_REQUESTS is on.
            view = transaction.non_atomic_requests(using=alias)(view)
        return view

    @property
    def call(self) -> Call | None:
        """What is asked for; None for a method that this address does not have."""
        method = self.request.method or ""
        return self.calls.get("GET" if method == "HEAD" else method)

    @property
    def called(self) -> Call:
        """The same, where it is carried out: there it is one."""
        method = self.request.method or ""
        return self.calls["GET" if method == "HEAD" else method]

    @cached_property
    def may(self) -> Callable[[str], bool]:
        """Whether the caller has one of the app's permissions; read once per request."""
        return rights(self.request.user)

    # what the options decide

    def get_authenticators(self) -> list[BaseAuthentication]:
        return [each() for each in options.classes("API_AUTHENTICATION_CLASSES")]

    def get_permissions(self) -> list[BasePermission]:
        return [each() for each in options.classes("API_PERMISSION_CLASSES")]

    def get_throttles(self) -> list[BaseThrottle]:
        return [each() for each in options.classes("API_THROTTLE_CLASSES")]

    def get_authenticate_header(self, request: Request) -> str:
        # Without one, as with sessions, Django REST framework says 403 to somebody who has only to sign in.
        return super().get_authenticate_header(request) or 'Session realm="api"'

    # the way of a request

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        self.request_id = f"req_{uuid.uuid4().hex}"
        response: HttpResponseBase = super().dispatch(request, *args, **kwargs)
        response.headers[REQUEST_ID_HEADER] = self.request_id
        # Answers are about money and people: nobody in between keeps them.
        response.headers["Cache-Control"] = "private, no-store"
        return response

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if request.method == "POST" and request.content_type:
            # Before anybody looks for a form in it: that fails in ways of its own.
            negotiator = self.get_content_negotiator()
            if negotiator.select_parser(request, self.get_parsers()) is None:
                raise UnsupportedMediaType(request.content_type[:64])
        super().initial(request, *args, **kwargs)

    def get_exception_handler(self) -> Callable[..., Response | None]:
        return self._handle

    def _handle(self, error: Exception, context: Mapping[str, Any]) -> Response | None:
        problem = errors.problem_of(error, self.given)
        if problem is None:
            logger.error("API request %s, %s: %s", self.request_id, self._what, type(error).__name__)
            return None
        if problem.status == 405:
            problem.headers = {"Allow": ", ".join(self.allowed_methods)}
        errors.log(error, problem, self.request_id, self._what)
        return errors.respond(problem, self.request_id)

    @property
    def _what(self) -> str:
        call = self.call
        return call.id if call is not None else "no call"

    # help for the methods

    def asked(self, *known: str) -> dict[str, str]:
        """The query parameters. Raises Problem for one that is unknown, empty or given twice: a filter that is
        overlooked shows what nobody asked for.
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
        """The representation of one row."""
        kind = shown or self.called.gives
        return dict(kind(row, context={"sees_personal": self.sees_personal}).data)

    def sees_personal(self, row: Any) -> bool:
        """Staff by permission; others what is their own."""
        user = self.request.user
        if permissions.is_staff(user):
            return self.may("view_personal_data")
        return bool(getattr(row, "is_own", False))


class RowsView(ApiView):
    """An address of mirrored rows."""

    model: ClassVar[type[Any]]
    #: Columns that no answer shows.
    unread: ClassVar[tuple[str, ...]] = ()

    def rows(self, model: type[Any] | None = None) -> QuerySet[Any]:
        """What the caller may see, each row marked with whether it is the caller's own."""
        user = self.request.user
        found = options.queryset_function()((model or self.model).objects.all(), user)
        return found if permissions.is_staff(user) else querysets.with_owner(found, user)

    def find(self, pk: str, model: type[Any] | None = None) -> Any:
        """The row with this id; Problem (404) also where it is there and not for this caller."""
        return self.find_in(self.rows(model), pk)

    def find_in(self, rows: QuerySet[Any], pk: object, param: str | None = None) -> Any:
        row = self.with_id(rows, pk, param).first()
        if row is None:
            raise errors.not_found(param)
        self.check_object_permissions(self.request, row)
        return row

    def with_id(self, rows: QuerySet[Any], pk: object, param: str | None = None) -> QuerySet[Any]:
        """Those of the rows that have this id: one or none. Raises Problem (404) for what can be nobody's."""
        if not isinstance(pk, str) or not pk.isascii() or not pk.isprintable() or len(pk) > _MAX_ID:
            raise errors.not_found(param)
        return rows.filter(pk=pk)

    def respond_with_list(self, rows: QuerySet[Any], kinds: type[filters.RowFilters]) -> Response:
        """One page of the rows that fit the query."""
        return self.show_page(self.page(rows, kinds))

    def page(self, rows: QuerySet[Any], kinds: type[filters.RowFilters]) -> paging.Page:
        values = self.asked(*kinds.base_filters, *paging.PARAMETERS)
        place = [values.pop(name, None) for name in paging.PARAMETERS]
        limit, cursor, ordering = place
        found = filters.apply(kinds, values, rows.defer(*self.unread))
        return paging.page(found, limit, ordering, cursor)

    def show_page(self, page: paging.Page) -> Response:
        shown = self.called.gives(page.rows, many=True, context={"sees_personal": self.sees_personal})
        return Response(
            {
                "object": "list",
                "has_more": page.next_cursor is not None,
                "next_cursor": page.next_cursor,
                "data": list(shown.data),
            }
        )


class ListView(RowsView):
    filters: ClassVar[type[filters.RowFilters]]

    def get(self, request: Request) -> Response:
        return self.respond_with_list(self.rows(), self.filters)


class DetailView(RowsView):
    def get(self, request: Request, id: str) -> Response:
        self.asked()
        return Response(self.show(self.find_in(self.rows().defer(*self.unread), id)))


class SendingView(RowsView):
    """An address whose POST changes something at the provider."""

    #: The address of what a call has made, to be named in Location.
    made_at: ClassVar[str] = ""

    @sensitive_variables("body", "known")
    def body(self) -> dict[str, Any]:
        """The members of the body, after the key. Raises Problem for one that is unknown: it would be overlooked."""
        self.asked()
        self.key()
        body: Any = self.request.data  # the parser gives objects alone
        self.given = errors.Given(
            names=frozenset(name for name, value in body.items() if value is not None), is_change=True
        )
        known = self.called.takes().fields if self.called.takes is not None else {}
        for name in body:
            if name not in known:
                words = _("There is no such parameter; known: %(known)s.")
                raise errors.invalid(name, words % {"known": ", ".join(known) or "-"})
        account = body.get("account")
        if account is None:
            body.pop("account", None)
        elif account not in conf.aliases():
            raise errors.invalid("account", errors.NO_ACCOUNT)
        # What is missing is told by the service, together with what is wrong.
        return {**{name: None for name, field in known.items() if field.required}, **body}

    def key(self) -> str:
        """The caller's key as the ledger knows it: two users' keys are two, however they are spelled."""
        key = self.request.headers.get(KEY_HEADER)
        if not key:
            raise errors.missing(KEY_HEADER, _("Every POST needs the header Idempotency-Key."))
        if len(key) > MAX_KEY:
            raise errors.invalid(KEY_HEADER, _("This must have at most %(max)d characters.") % {"max": MAX_KEY})
        owner = getattr(self.request.user, "pk", None)
        if owner is None:
            # A project may let anybody in; whose key it is must be known all the same.
            raise NotAuthenticated
        return services.scoped_key(key, owner)

    @sensitive_variables("arguments")
    def send(self, function: Callable[..., Any], *target: Any, **arguments: Any) -> Response:
        """Call a service, and show what came of it. A repeated call with the same key is answered alike."""
        call = self.called
        try:
            row = function(*target, idempotency_key=self.key(), actor=self.request.user, **arguments)
        except (OutcomeUnknown, ApprovalRequired) as error:
            return self._accepted(error.operation)
        logger.info("API request %s, %s: %s", self.request_id, call.id, row.pk)
        location = self._address(self.made_at, row.pk)
        return Response(self.show(self._as_seen(row)), status=call.status, headers=location)

    def _as_seen(self, row: Model) -> Any:
        """The row as the caller would read it; what came of an own call is shown in any case."""
        return self.rows(type(row)).filter(pk=row.pk).first() or row

    def _accepted(self, operation: Any) -> Response:
        """Recorded, and not over: it waits for a second person, or nobody knows yet."""
        logger.info("API request %s, %s: %s is %s", self.request_id, self._what, operation.pk, operation.state)
        location = self._address("api-operation-detail", operation.pk)
        return Response(self.show(operation, OperationSerializer), status=202, headers=location)

    def _address(self, name: str, pk: str) -> dict[str, str]:
        if not name:
            return {}
        match = self.request.resolver_match
        namespace = f"{match.namespace}:" if match is not None and match.namespace else ""
        return {"Location": reverse(f"{namespace}{name}", args=[pk])}


class Nothing(ApiView):
    """Addresses below the API's that it does not have."""

    http_method_names = ["get", "head", "post", "put", "patch", "delete", "options", "trace"]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        raise errors.Problem(
            404, errors.NOT_FOUND, "resource_not_found", _("There is no such address; each ends in a slash.")
        )
