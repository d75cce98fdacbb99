"""Record a notice when ``attention`` is sent, and deliver notices in groups in the scheduled passes.

``attention`` may be sent within the request that brought an event, so the receiver only writes a row. The next pass
sends a message about its reason, unless one left in the last hour: then the rows of that hour share one message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import requests
from django.contrib.admin.utils import quote
from django.core.mail import send_mail
from django.db import DatabaseError, router
from django.db.models import Q
from django.urls import NoReverseMatch
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables

from payments_integration import conf
from payments_integration.attention import ACTIONS
from payments_integration.contrib.notify import options
from payments_integration.contrib.notify.models import Channel, Notice, Turn
from payments_integration.contrib.notify.options import Options
from payments_integration.db.transactions import deleted, repeatable
from payments_integration.runtime.logs import get_logger
from payments_integration.signals import Reason
from payments_integration.site_urls import path_of
from payments_integration.validation.urls import LOOPBACK_HOSTS

logger = get_logger(__name__)

#: At most one message per channel and reason in this time.
INTERVAL = timedelta(hours=1)
#: A message that could not be sent, or whose process died, is tried again after this time.
RETRY = timedelta(minutes=5)
#: Seconds to connect to the chat, and to wait for its answer.
_TIMEOUT = (5, 10)
#: The most notices in one message; the next message has the others.
_MOST = 1000
#: The most lines in one message; the others are only counted.
_LINES = 20


def record(
    sender: type[Any], reason: Reason, account: str, message: str, instance: Any | None = None, **_: Any
) -> None:
    """Store a notice for each channel. Connected to ``attention``.

    What is wrong with the database is sent at once if that takes no row.
    """
    senders = _senders(options.current())
    about = {"reason": reason, "account": account, "message": message, "path": _page(instance)}
    notices = {channel: Notice(channel=channel, **about) for channel in senders}
    if not notices:
        return
    try:
        repeatable(lambda: Notice.objects.bulk_create(notices.values()), using=router.db_for_write(Notice))
    except DatabaseError:
        if reason != Reason.DATABASE:
            raise
        for channel, notice in notices.items():
            _send(channel, reason, [notice], senders[channel])


def deliver(**_: Any) -> None:
    """Send the notices that are due. Connected to ``pass_ended``. Takes one statement if nothing is due."""
    senders = _senders(options.current())
    if not senders:
        return
    waiting = Notice.objects.filter(channel__in=senders).order_by().values_list("channel", "reason").distinct()
    for channel, reason in sorted(waiting):
        if _take_turn(channel, reason):
            _deliver_group(channel, reason, senders[channel])


def _take_turn(channel: str, reason: str) -> bool:
    """Return True if a message may leave now. Only one process gets True."""
    turn, _ = Turn.objects.get_or_create(channel=channel, reason=reason)
    now = timezone.now()
    # A time further ahead was written while our clock was wrong, so it counts as due.
    is_due = Q(next_at__lte=now) | Q(next_at__gt=now + INTERVAL)
    return bool(Turn.objects.filter(is_due, pk=turn.pk, next_at=turn.next_at).update(next_at=now + RETRY))


def _deliver_group(channel: str, reason: str, send: Callable[[str, str], None]) -> None:
    notices = list(Notice.objects.filter(channel=channel, reason=reason).order_by("pk")[:_MOST])
    if not notices:
        return  # another process has sent them
    if not _send(channel, reason, notices, send):
        return
    deleted(Notice.objects.filter(pk__in=[notice.pk for notice in notices]))
    Turn.objects.filter(channel=channel, reason=reason).update(next_at=timezone.now() + INTERVAL)


def _send(channel: str, reason: str, notices: list[Notice], send: Callable[[str, str], None]) -> bool:
    """Send a message about the notices. Returns False if that failed."""
    try:
        send(_subject(reason, notices), _text(reason, notices))
    except Exception as error:
        # Log only the type: the messages of requests contain the chat's URL.
        logger.error("A notice by %s about %s could not be sent: %s", channel, reason, type(error).__name__)
        return False
    return True


def _senders(chosen: Options) -> dict[str, Callable[[str, str], None]]:
    """Return the channels that the project uses, each with the function that sends."""

    def mail(subject: str, text: str) -> None:
        send_mail(subject, text, None, list(chosen.MAIL_TO))

    @sensitive_variables()
    def chat(subject: str, text: str) -> None:
        if conf.stays_on_this_machine() and urlsplit(chosen.CHAT_URL).hostname not in LOOPBACK_HOSTS:
            # Not an error: a test of something else would meet it. The notice counts as sent, as mails do in tests.
            logger.warning(
                "No notice to the chat of CHAT_URL: tests stay on this machine, or set ALLOW_NETWORK_IN_TESTS"
            )
            return
        answer = requests.post(
            chosen.CHAT_URL, json={"text": f"{subject}\n{text}"}, timeout=_TIMEOUT, allow_redirects=False
        )
        if answer.status_code // 100 != 2:
            raise requests.HTTPError(f"HTTP {answer.status_code}")

    return {
        **({Channel.MAIL.value: mail} if chosen.MAIL_TO else {}),
        **({Channel.CHAT.value: chat} if chosen.CHAT_URL else {}),
    }


def _subject(reason: str, notices: list[Notice]) -> str:
    accounts = ", ".join(sorted({notice.account for notice in notices}))
    times = f"{len(notices)} times " if len(notices) > 1 else ""
    return f"[Payments] {times}{reason} ({accounts})"


def _text(reason: str, notices: list[Notice]) -> str:
    """Return the text with one line per distinct message, so a call repeated after a crash shows once."""
    site = options.current().SITE_URL.rstrip("/")
    counts = Counter(
        f"- {notice.account}: {notice.message}" + (f"\n  {site}{notice.path}" if site and notice.path else "")
        for notice in notices
    )
    lines = [text + (f" ({count} times)" if count > 1 else "") for text, count in counts.items()]
    if len(lines) > _LINES:
        lines = [*lines[:_LINES], f"- and {len(lines) - _LINES} more: see payments_health"]
    action = ACTIONS.get(Reason(reason)) if reason in set(Reason) else None
    return "\n".join([*lines, *(["", f"What to do: {action}."] if action else [])])


def _page(instance: Any | None) -> str:
    """Return the path of a row's page in the admin, or "" if the project does not show it."""
    if instance is None:
        return ""
    meta = instance._meta
    try:
        return path_of(f"admin:{meta.app_label}_{meta.model_name}_change", args=[quote(instance.pk)])
    except NoReverseMatch:
        return ""
