"""Give all views the app's own settings, the rows that a caller may see, and the provider's error envelope."""

from __future__ import annotations

import hashlib
import json
import math
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import IO, Any, ClassVar

from django.conf import settings
from django.core.signals import got_request_exception
from django.db.models import QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.cache import get_conditional_response
from django.utils.http import quote_etag
from django.utils.log import log_response
from django.utils.module_loading import import_string
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated, ParseError, UnsupportedMediaType
from rest_framework.generics import GenericAPIView
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.throttling import BaseThrottle, SimpleRateThrottle

from payments_integration import conf, permissions, schemas
from payments_integration.api import accounts, errors, querysets
from payments_integration.api.lists import KeysetPages, SinglePage
from payments_integration.api.permissions import check_change
from payments_integration.api.schema import Route, RouteSchema
from payments_integration.db.transactions import outside_transactions
from payments_integration.runtime.logs import get_logger
from payments_integration.validation.validator import MAX_BODY_BYTES

logger = get_logger(__name__)

REQUEST_ID_HEADER = "Request-Id"
#: Marks the answer to a call that an earlier request made with the same key.
REPLAYED_HEADER = "Idempotent-Replayed"
#: Fields that change with each answer although the row does not.
_SIGNED = ("status_url", "receipt_url")


def _classes(option: str) -> list[type[Any]]:
    """Return the classes that an option such as API_PERMISSION_CLASSES names. Repeated imports only cost a look-up.

    Raises ImportError for a wrong path, which a system check reports (E014).
    """
    return [import_string(path) for path in getattr(conf.current(), option)]


class ObjectParser(BaseParser):
    """Parse a JSON object of at most 256 KB.

    Django REST framework's ``JSONParser`` limits neither size nor depth, and accepts text that no database stores.
    """

    media_type = "application/json"

    def parse(self, stream: IO[Any], media_type: str | None = None, parser_context: Any = None) -> dict[str, Any]:
        body = stream.read(MAX_BODY_BYTES + 1)
        if len(body) > MAX_BODY_BYTES:
            raise errors.too_large()
        try:
            found = schemas.decode_object(body)
        except schemas.WireError:
            # ``from None``, because the message of WireError may quote the body.
            raise ParseError(_("This is not a JSON object in UTF-8.")) from None
        parser_context["view"].body_is_read = True
        return found


class ByAccept(DefaultContentNegotiation):
    """Negotiate by the Accept header alone. A project's URL_FORMAT_OVERRIDE does not apply."""

    settings = SimpleNamespace(URL_FORMAT_OVERRIDE=None)  # type: ignore[assignment]


class CompactJSON(JSONRenderer):
    """Render compact JSON in UTF-8. Neither a project's settings nor the Accept header change it."""

    compact, ensure_ascii, strict = True, False, True

    def get_indent(self, accepted_media_type: str, renderer_context: Any) -> None:
        return None


class ApiView(GenericAPIView[Any]):
    """A path of the API. ``routes`` has its methods.

    Everything that affects security is set here or by an option of this app. A project's defaults for Django REST
    framework are for its own API and must not open this one.
    """

    routes: ClassVar[Mapping[str, Route]] = {}
    #: The query parameters, if they are not filters.
    query_serializer: ClassVar[type[Serializer[Any]] | None] = None
    filterset_class: ClassVar[Any] = None

    http_method_names = ["get", "head", "post"]
    renderer_classes = [CompactJSON]
    parser_classes = [ObjectParser]
    content_negotiation_class = ByAccept
    versioning_class = None
    metadata_class = None
    filter_backends = [DjangoFilterBackend]
    pagination_class: type[SinglePage] = SinglePage
    schema = RouteSchema()

    #: The names in the body or the query with a value that is not null. An error says "missing" for other names.
    sent: Collection[str] = ()
    _throttles: Sequence[BaseThrottle] = ()
    request_id = ""
    #: Set by the parser.
    body_is_read = False
    #: True if an earlier request recorded the call.
    is_replay = False

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        return outside_transactions(super().as_view(**initkwargs))

    @property
    def route(self) -> Route | None:
        """The requested route; None for a method that this path does not have."""
        method = self.request.method or ""
        return self.routes.get("GET" if method == "HEAD" else method)

    # Set by options

    def get_authenticators(self) -> list[BaseAuthentication]:
        return [each() for each in _classes("API_AUTHENTICATION_CLASSES")]

    def get_permissions(self) -> list[BasePermission]:
        return [each() for each in _classes("API_PERMISSION_CLASSES")]

    def get_throttles(self) -> list[BaseThrottle]:
        self._throttles = [each() for each in _classes("API_THROTTLE_CLASSES")]
        return self._throttles

    def get_authenticate_header(self, request: Request) -> str:
        # Without this header, which sessions do not have, Django REST framework answers 403 instead of 401.
        return super().get_authenticate_header(request) or 'Session realm="api"'

    # The steps of a request

    @sensitive_variables()  # for every step: an error report would show the payer
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        self.request_id = f"req_{uuid.uuid4().hex}"
        try:
            response: HttpResponseBase = super().dispatch(request, *args, **kwargs)
        except Exception as error:
            response = self._failed(request, error)
        response = self._if_changed(request, response)
        response.headers[REQUEST_ID_HEADER] = self.request_id
        if self.is_replay:
            response.headers[REPLAYED_HEADER] = "true"
        for name, value in self._rate_limit().items():
            response.headers[name] = str(value)
        # Answers hold financial and personal data, so no cache in between may keep them.
        response.headers["Cache-Control"] = "private, no-store"
        return response

    def _if_changed(self, request: HttpRequest, response: Any) -> Any:
        """Return a 304 for a GET with the ETag of the same answer. A client that polls then reads less."""
        data = getattr(response, "data", None)
        if request.method not in SAFE_METHODS or response.status_code != 200 or data is None:
            return response
        if isinstance(data, dict):
            data = {name: value for name, value in data.items() if name not in _SIGNED}
        content = f"{getattr(response, 'accepted_media_type', '')} {json.dumps(data, default=str)}"
        etag = quote_etag(hashlib.sha256(content.encode()).hexdigest()[:32])
        response.headers["ETag"] = etag
        return get_conditional_response(request, etag=etag, response=response) or response

    def _rate_limit(self) -> dict[str, int]:
        """Return the rate limit headers of the throttle that counted the request (spec, "Limits")."""
        for each in self._throttles:
            counted: Any = each
            # Only Django REST framework's own kind has these attributes. Without a history it counted nothing.
            if isinstance(each, SimpleRateThrottle) and getattr(each, "history", None):
                limit, used = counted.num_requests, len(counted.history)
                reset = max(1, math.ceil(counted.duration - (counted.now - counted.history[-1])))
                return {
                    "RateLimit-Limit": limit, "RateLimit-Remaining": max(0, limit - used), "RateLimit-Reset": reset
                }  # fmt: skip
        return {}

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        size = self._size_of_body(request) if self.route is not None and request.method == "POST" else 0
        super().initial(request, *args, **kwargs)
        if self.route is not None:
            # Django REST framework treats some unreadable bodies as empty, for example if reading breaks off during
            # the check of the CSRF token. A refund with an empty body would refund everything.
            if size and request.data is not None and not self.body_is_read:
                raise errors.broke_off()
            if request.method not in SAFE_METHODS:
                check_change(request, self.route)
            self._check_query(self.query_parameters() if request.method in SAFE_METHODS else [])

    def _size_of_body(self, request: Request) -> int:
        """Return the body's size as the caller states it. Raises Problem for a body without a stated size.

        Raises UnsupportedMediaType for another content type.
        """
        if request.content_type and self.get_content_negotiator().select_parser(request, self.get_parsers()) is None:
            # Refused even without content, because a form is never meant here.
            raise UnsupportedMediaType(request.content_type[:64])
        length = request.META.get("CONTENT_LENGTH") or ""
        if length.isascii() and length.isdigit():
            return int(length)
        if "HTTP_TRANSFER_ENCODING" in request.META or request._request.read(1):
            raise errors.length_required()
        return 0

    def _check_query(self, known: Collection[str]) -> None:
        """Raise Problem for a query parameter that is unknown, empty or given twice.

        An ignored filter would show rows that it should exclude.
        """
        for name, values in self.request.GET.lists():
            if name not in known:
                words = _("This address has no such parameter; known: %(known)s.")
                raise errors.invalid(name, words % {"known": ", ".join(known) or "-"})
            if len(values) > 1 or not values[0].strip():
                raise errors.invalid(name, _("This must be given once, and not be empty."))

    def query_parameters(self) -> list[str]:
        if self.query_serializer is not None:
            return [*self.query_serializer().fields]
        filters = self.filterset_class.base_filters if self.filterset_class else ()
        return [*filters, *self.pagination_class.parameters]

    def get_exception_handler(self) -> Callable[..., Response | None]:
        return self._handle

    def _handle(self, error: Exception, context: Mapping[str, Any]) -> Response | None:
        if isinstance(error, NotAuthenticated) and self._has_stale_session():
            auth_header = getattr(error, "auth_header", None)
            error = AuthenticationFailed()
            error.auth_header = auth_header  # type: ignore[attr-defined]
        problem = errors.problem_of(error, self.sent, is_change=self.request.method == "POST")
        if problem is None:
            extra = {"api_request_id": self.request_id}
            logger.error("API request %s, %s: %s", self.request_id, self.route_id, type(error).__name__, extra=extra)
            return None
        if problem.code == "not_authenticated" and "Authorization" in self.request.headers:
            problem.hint = "no class of the option API_AUTHENTICATION_CLASSES takes this Authorization header"
        if problem.status == 405:
            problem.headers = {"Allow": ", ".join(self.allowed_methods)}
        errors.log(error, problem, self.request_id, self.route_id)
        return errors.respond(problem, self.request_id)

    def _has_stale_session(self) -> bool:
        """Return True if the caller sent the cookie of an ended session. Django has then dropped its key."""
        session = getattr(self.request, "session", None)
        sent = self.request.COOKIES.get(settings.SESSION_COOKIE_NAME)
        return bool(sent) and session is not None and session.is_empty()

    def _failed(self, request: HttpRequest, error: Exception) -> Response:
        """Return the envelope for an unexpected exception, and report it as Django reports any other."""
        got_request_exception.send(sender=type(self), request=request)
        response = self.finalize_response(self.request, errors.respond(errors.internal(), self.request_id))
        reason = response.reason_phrase
        log_response("%s: %s", reason, request.path, response=response, request=request, exception=error)
        return response

    @property
    def route_id(self) -> str:
        """The route's id, for the log."""
        return self.route.id if self.route is not None else "no route"

    # Rows, and how they are shown

    def rows(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows that the caller may see. For callers who are not staff, each row has ``is_own``."""
        user = self.request.user
        current = conf.current()
        found: QuerySet[Any] = import_string(current.API_QUERYSET)(queryset, user)
        if self.request.method not in SAFE_METHODS or current.API_ACCOUNT_CHECK:
            # A caller cannot change an object in an account that they may not use. If the project decides about
            # accounts, the rows of the other accounts are hidden too.
            found = found.filter(account__in=accounts.usable(user))
        return found if permissions.is_staff(user) else querysets.with_owner(found, user)

    def get_queryset(self) -> QuerySet[Any]:
        return self.rows(super().get_queryset())

    def find(self, rows: QuerySet[Any], pk: object, param: str | None = None) -> Any:
        """Return the row with this id. Raises Problem (404) if it does not exist or this caller may not see it."""
        # Databases raise errors for some texts, such as one with a NUL character.
        is_id = isinstance(pk, str) and pk.isascii() and pk.isprintable()
        row = rows.filter(pk=pk).first() if is_id else None
        if row is None:
            raise errors.not_found(param)
        self.check_object_permissions(self.request, row)
        return row

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "sees_personal": self._sees_personal}

    def _sees_personal(self, row: Any) -> bool:
        """Return True for staff with the permission, and for other users in their own rows."""
        user = self.request.user
        if permissions.is_staff(user):
            return permissions.may(user, "view_personal_data")
        return bool(getattr(row, "is_own", False))


class ListView(ApiView):
    pagination_class: type[SinglePage] = KeysetPages

    def get(self, request: Request, **path: str) -> Response:
        return self.respond_with(self.filter_queryset(self.get_queryset()))

    def respond_with(self, found: Any) -> Response:
        page = self.paginate_queryset(found)
        return self.get_paginated_response(self.get_serializer(page, many=True).data)


class DetailView(ApiView):
    def get(self, request: Request, id: str) -> Response:
        return Response(self.get_serializer(self.find(self.get_queryset(), id)).data)


class UnknownPathView(ApiView):
    """Answer 404 for all other paths below the API."""

    http_method_names = ["get", "head", "post", "put", "patch", "delete", "options", "trace"]
    schema = None  # not part of the description

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        raise errors.not_found(message=_("There is no such address; each ends in a slash."))
