"""Receive webhook deliveries: verify, store, wake, answer."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import RequestDataTooBig
from django.db import Error as AnyDatabaseError, connections, router
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, UnreadablePostError
from django.http.request import RawPostDataException
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_variables

from payments_integration import conf, inbox, projection, telemetry, wakeup
from payments_integration.db.border import end_session, has_hidden_transaction
from payments_integration.db.encryption import DecryptionError
from payments_integration.db.transactions import RetryDeadline, is_nested, outside_transactions
from payments_integration.exceptions import SignatureError
from payments_integration.models import Event
from payments_integration.runtime.logs import get_logger
from payments_integration.signatures import HEADER, signed_at, verify

logger = get_logger(__name__)

_SIGNATURE = "HTTP_" + HEADER.upper().replace("-", "_")
_DIGITS = re.compile(r"[0-9]+")  # int() accepts more than ASCII digits, and refuses thousands of them
_MAX_DIGITS = 18
#: The provider waits 10 seconds (spec, "Delivery rules"). A delivery that is not stored by then is answered 503.
_STORE_SECONDS = 8.0


@outside_transactions  # the INSERT must be committed before the 200 is sent
@csrf_exempt
@login_not_required
@sensitive_variables()  # also below: the secrets in signatures
def webhook(request: HttpRequest, account: str = conf.DEFAULT_ACCOUNT) -> HttpResponse:
    """Receive one delivery (spec, "Webhook signature" and "Delivery rules").

    200: committed now or before. 400: no valid signature for this account and time; nothing was written. 405, 413: not
    a delivery. 503: our database or our keys do not work, or a middleware is in the way; the provider sends it again.
    """
    started = time.monotonic()
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    settings = conf.current()
    if account not in settings.ACCOUNTS:
        raise Http404
    try:
        body = _read_body(request, settings.MAX_WEBHOOK_BYTES)
        signature = request.META.get(_SIGNATURE, "")
        _verify(account, body, signature)
        using = router.db_for_write(Event)
        if is_nested(using) or has_hidden_transaction(connections[using]):
            return _refused_within(account)
        deadline = RetryDeadline(started + _STORE_SECONDS, using=using)
        with telemetry.during(telemetry.Delivery(account)), deadline:
            # What is from before the first contact is history: it is stored and not dispatched.
            signed = datetime.fromtimestamp(signed_at(signature), UTC)
            projection.note_contact(account, signed, proves_key=False)
            inbox.receive(account, body)
    except _Unreadable as unreadable:
        if unreadable.status == 503:
            logger.error(
                "The body of a delivery was read before the view: exempt the webhook URL from that middleware",
                extra={"account": account},
            )
        else:
            logger.warning(
                "A delivery for account %s was refused: %s",
                account,
                _UNREADABLE[unreadable.reason],
                extra={"account": account},
            )
        return _refused(account, unreadable.status, unreadable.reason)
    except SignatureError as error:
        logger.warning(
            "A delivery for account %s was refused: %s%s", account, error, _hint(request), extra={"account": account}
        )
        return _refused(account, 400, error.reason)
    except (AnyDatabaseError, DecryptionError) as error:
        # Without the message: a database error may contain the row.
        logger.error(
            "A delivery for account %s failed with %s; it will be sent again. payments_health says what to do",
            account,
            type(error).__name__,
            extra={"account": account},
        )
        return _refused(account, 503, "database" if isinstance(error, AnyDatabaseError) else "keys")
    wakeup.wake(account, deadline=started + wakeup.INLINE_SECONDS)
    return HttpResponse(status=200)


_UNREADABLE = {
    "length": "its Content-Length is no number",
    "too_large": "its body is larger than MAX_WEBHOOK_BYTES or Django's DATA_UPLOAD_MAX_MEMORY_SIZE",
    "unreadable": "the connection ended before the body did",
}


class _Unreadable(Exception):
    """The delivery has no body that can be stored."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def _read_body(request: HttpRequest, most: int) -> bytes:
    """Return the body. Raise _Unreadable for a length that is none, more than ``most`` bytes, or no readable body."""
    length = str(request.META.get("CONTENT_LENGTH") or "0")  # a middleware that unpacks bodies may set a number
    if not _DIGITS.fullmatch(length):
        raise _Unreadable(400, "length")
    if int(length[-_MAX_DIGITS:]) > most or len(length) > _MAX_DIGITS:
        raise _Unreadable(413, "too_large")
    try:
        # Only ASGI has a body of undeclared length. `body` would read it whole, but tells if a middleware has read it.
        if not (request.META.get("CONTENT_LENGTH") or getattr(request, "_read_started", False)):
            # As `body` keeps it, for a middleware that logs it after the answer.
            request._body = request.read(most + 1)
        body = request.body
    except RequestDataTooBig as error:
        raise _Unreadable(413, "too_large") from error
    except UnreadablePostError as error:
        raise _Unreadable(400, "unreadable") from error
    except RawPostDataException as error:
        # A middleware has read it.
        raise _Unreadable(503, "read_before") from error
    if len(body) > most:
        raise _Unreadable(413, "too_large")
    return body


@sensitive_variables()
def _verify(account: str, body: bytes, signature: str) -> None:
    """Raise SignatureError if no secret signs this, or DecryptionError if an unreadable one may."""
    try:
        verify(body, signature, secrets=projection.active_secrets(account))
    except SignatureError as error:
        if error.reason in ("signature", "secret") and (unreadable := projection.unreadable_secrets(account)):
            raise DecryptionError(f"no key can read a secret of {', '.join(unreadable)}") from error
        raise


def _refused_within(account: str) -> HttpResponse:
    # It would be committed after the 200, or never.
    logger.error(
        "A delivery came inside a transaction: a middleware has opened it (exempt the webhook URL), or SQL such as "
        "BEGIN or SET autocommit = 0 has left it open",
        extra={"account": account},
    )
    return _refused(account, 503, "in_transaction")


def _refused(account: str, status: int, reason: str) -> HttpResponse:
    if reason in ("database", "in_transaction"):
        # If other code has left the session in a bad state, such as read-only or in a transaction, the thread would
        # refuse each later delivery as well. Django closes what cannot be closed now after this request.
        connection = connections[router.db_for_write(Event)]
        connection.close_at = time.monotonic()
        if not connection.in_atomic_block:
            with suppress(AnyDatabaseError):
                end_session(connection)
    telemetry.happened(telemetry.Refused(account, reason))
    return HttpResponse(status=status)


def _hint(request: HttpRequest) -> str:
    meta: dict[str, Any] = request.META
    if "wsgi.version" in meta and meta.get("HTTP_TRANSFER_ENCODING") and not meta.get("CONTENT_LENGTH"):
        return " (the body was sent in chunks, which WSGI does not pass on: let the proxy buffer requests)"
    return ""
