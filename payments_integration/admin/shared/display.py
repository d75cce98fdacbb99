"""Show values and errors as people read them. Everything is escaped here or by the template."""

from __future__ import annotations

import contextlib
import functools
import json
from copy import copy
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.contrib.admin.utils import quote
from django.contrib.auth import get_user_model
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db.models import Model
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.formats import number_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.timesince import timesince
from django.utils.timezone import now
from django.utils.translation import gettext as _, gettext_lazy

from payments_integration import conf, dates, services
from payments_integration.admin.shared import masking
from payments_integration.admin.shared.buttons import may, may_view
from payments_integration.enums import Kind
from payments_integration.exceptions import (
    ApprovalRequired,
    IdempotencyMismatch,
    NoAnswer,
    OutcomeUnknown,
    PaymentsError,
    ProviderError,
    WireError,
)
from payments_integration.models import MIRRORS, Erasure, Operation, OperationState
from payments_integration.money import format_money
from payments_integration.payer import names
from payments_integration.permissions import actor_name, user_id
from payments_integration.validation.text import visible
from payments_integration.validation.urls import is_staff_link

#: Shown for an empty value.
EMPTY = "–"  # noqa: RUF001  (a dash, on purpose)
#: Shown in place of personal data that was erased.
ERASED = gettext_lazy("erased")
SENT_BEFORE = gettext_lazy(
    "This form was already sent with other values, so nothing was sent now. Check what the first one did. "
    "To send another, open the page again."
)
#: Shown in place of what a user has no permission to view.
NOT_VISIBLE = gettext_lazy("Not visible to you.")
#: The provider sends a secret once. If that answer is lost, the secret must be rotated.
NO_SECRET = gettext_lazy("Its secret is not known. Rotate it, because no delivery can be verified without it.")

#: The colour of each status. The word is always shown too, because not everyone can distinguish colours.
_TONES = {
    "good": {"succeeded", "active", "done", "sent"},
    "bad": {
        "failed", "chargeback", "returned", "disabled", "parked", "quarantined", "rejected", "needs_person",
    },
    "open": {
        "created", "requires_action", "processing", "on_hold", "partially_paid", "overpaid", "pending", "held",
        "applied", "due", "unknown", "running", "awaiting_approval", "queued", "sending",
    },
    "quiet": {"expired", "canceled", "closed", "skipped"},
}  # fmt: skip
_TONE_OF = {status: tone for tone, statuses in _TONES.items() for status in statuses}

#: The events that are not named after a status.
_EVENTS = {"payout.delayed": gettext_lazy("delayed"), "balance.updated": gettext_lazy("changed")}
#: The most characters of a text in a list.
_CELL = 80

#: Durations shorter than this are shown in seconds.
_MAX_SECONDS = 120.0


def text(value: object) -> str:
    """Return the value as text, with invisible characters and surrogates written out, so that it can be encoded."""
    return EMPTY if value is None or value == "" else visible(str(value), keep="\n\t")


def beginning(value: object) -> str:
    """Return the beginning of a text that may be long, for a cell of a list."""
    return text(Truncator(str(value or "").strip()).chars(_CELL))


def actor(value: str) -> str:
    """Return who asked or decided, with users by their names."""
    return text(actor_name(value))


def requester(site: AdminSite, operation: Operation) -> str:
    """Return who asked for an operation: a customer is masked if the user of a site from ``seen`` must not see it.

    A customer's user name is often their e-mail address.
    """
    is_hidden = operation.actor_id and getattr(site, "pi_hides", lambda _id: False)(operation.actor_id)
    return masking.MASK if is_hidden else actor(operation.actor)


def _is_customer(request: HttpRequest, actor_id: str) -> bool:
    """Return True if the user with this id is not a member of staff, and the user of the request must not see them."""
    kept = vars(request)
    if "pi_staff" not in kept:
        kept["pi_staff"] = None if may(request, "view_personal_data") else _staff()
    return kept["pi_staff"] is not None and actor_id not in kept["pi_staff"]


def _staff() -> set[str]:
    """Return the ids of all staff. Empty if ``is_staff`` is a property of the project's user model."""
    model: Any = get_user_model()
    if not any(field.name == "is_staff" for field in model._meta.concrete_fields):
        return set()
    return set(map(user_id, model._default_manager.filter(is_staff=True).only("pk")))


def status(value: str | None, choices: Any, *, tone: str = "") -> str:
    """Return a status in words. A status that this version does not know is shown as the provider sent it.

    ``tone`` replaces the usual tone of the status.
    """
    if not value:
        return EMPTY
    label = dict(choices.choices).get(value, value)
    return format_html(
        '<span class="pi-status pi-status-{}">{}</span>', tone or _TONE_OF.get(value, "odd"), text(label)
    )


def status_word(kind: str, value: str | None) -> str:
    """Return a mirrored object's status in words, as plain text."""
    choices = getattr(MIRRORS.get(kind), "Status", None)
    return text(dict(choices.choices).get(value, value) if choices is not None else value)


def method_name(code: str) -> str:
    """Return a payment method's code in words: ``cl_webpay_card`` is "Webpay card"."""
    return text(names.method_name(code))


def kind_word(kind: str) -> str:
    words = {**dict(Kind.choices), Erasure.OPERATION: Operation._meta.verbose_name}
    return text(words.get(kind, kind))


def event_name(event_type: str) -> str:
    """Return a type of event in words: ``payment: succeeded``. An unknown type is shown as the provider sent it."""
    kind, _dot, what = event_type.partition(".")
    choices = getattr(MIRRORS.get(kind), "Status", None)
    word = (dict(choices.choices) if choices is not None else {}).get(what) or _EVENTS.get(event_type)
    return text(f"{kind_word(kind)}: {word}" if word else event_type)


def operation_name(operation: str) -> str:
    """Return an operation in words; the stored name if only another version of the app knows it."""
    call = services.operations.get(operation)
    return text(call.label if call is not None else operation)


def moment(at: date | None) -> str:
    """Return a time to the second, or a day, in the one format of all pages; a dash for None."""
    if not at:
        return EMPTY
    return dates.moment(at) if isinstance(at, datetime) else at.isoformat()


def short(at: datetime | None) -> str:
    """Return a time in few words. Its title has the seconds and the age."""
    if not at:
        return EMPTY
    return format_html(
        '<time datetime="{}" title="{} · {}">{}</time>', at.isoformat(), moment(at), age(at), dates.short(at)
    )


def copied(value: object) -> str:
    """Return an id as text that a click copies. Without scripts, it is plain text that can be selected as a whole."""
    shown = text(value)
    words = {"copy": _("Copy %(id)s") % {"id": shown}, "copied": _("Copied")}
    return format_html('<span class="pi-id" data-copy="{copy}" data-copied="{copied}">{}</span>', shown, **words)


def age(at: datetime) -> str:
    is_new = now() - at < timedelta(minutes=1)
    return _("just now") if is_new else _("%(age)s ago") % {"age": timesince(at, depth=1)}


def duration(seconds: float | None) -> str:
    """Return a duration, such as ``12 s`` or ``3 hours``; a dash for None."""
    if seconds is None:
        return EMPTY
    if abs(seconds) < _MAX_SECONDS:
        # The number and its unit stay on one line, as timesince writes them.
        return (_("%(seconds)d s") % {"seconds": round(seconds)}).replace(" ", "\xa0")
    end = now()
    return timesince(end - timedelta(seconds=abs(seconds)), end, depth=1)


def seconds(value: float | None, *, signed: bool = False) -> str:
    """Return seconds with one decimal; a dash for None."""
    if value is None:
        return EMPTY
    value = round(value, 1) or 0.0  # never "-0.0"
    sign = "+" if signed and value >= 0 else ""
    return sign + (_("%(seconds)s s") % {"seconds": number_format(value, 1)}).replace(" ", "\xa0")


def time_since(at: datetime | None) -> str:
    """Return how long ago a time was, as a duration."""
    return duration(None if at is None else max(0.0, (now() - at).total_seconds()))


def refunded_share(part: int, whole: int) -> str:
    """Return the refunded percentage of what was received. Rounding never turns a part into 0 % or 100 %."""
    if part >= whole:
        return _("refunded in full")
    return _("refunded %(percent)d %%") % {"percent": max(1, part * 100 // whole)}


def money(amount: int | None, currency: str, *, space: str = "\xa0") -> str:
    """Return an amount, given in minor units, with the decimals of its currency."""
    if amount is None:
        return EMPTY
    shown = text(format_money(amount, currency)).replace("\xa0", space, 1)
    return format_html('<span class="pi-money">{}</span>', shown)


def pretty_json(value: object) -> str:
    if value in (None, {}, []):
        return EMPTY
    return preformatted(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def body(raw: bytes | memoryview | None, *, exact: bool = False) -> str:
    """Return the bytes of a request or an event as text. JSON is indented unless ``exact``; other text stays as is."""
    if raw is None:
        return _("no longer kept")
    raw = bytes(raw)
    if not raw:
        return EMPTY
    content = raw.decode("utf-8", "backslashreplace")
    if not exact:
        with contextlib.suppress(ValueError, RecursionError):
            content = json.dumps(json.loads(content), indent=2, ensure_ascii=False)
    return preformatted(content)


def masked_body(raw: bytes | memoryview | None) -> str:
    """Return the bytes of a request or an event without personal data. A body that is no JSON object is not shown."""
    if raw is None or not bytes(raw):
        return body(raw)
    content = masking.body(bytes(raw))
    return _("hidden: it may hold personal data") if content is None else preformatted(content)


def preformatted(content: str) -> SafeString:
    """Return text that keeps its line breaks and spaces, such as a traceback. The keyboard can scroll it."""
    return format_html('<pre class="pi-pre" tabindex="0">{}</pre>', text(content))


def web_link(url: str | None) -> str:
    """Return a link for http and https. Any other address, such as ``javascript:…``, is shown as text."""
    if not url or not is_staff_link(url):
        return text(url)
    return format_html('<a href="{}" rel="noopener noreferrer" target="_blank">{}</a>', text(url), text(url))


def seen(site: AdminSite, request: HttpRequest) -> AdminSite:
    """Return the site as the user of this request sees it: links lead only to rows that the user may open."""
    found = copy(site)
    vars(found)["pi_hides"] = functools.partial(_is_customer, request)
    # Ask once per model: a project's backend may read the database for each permission.
    vars(found)["pi_opens"] = functools.cache(functools.partial(may_view, site, request))
    return found


def opens(site: AdminSite, model: type[Model]) -> bool:
    """Return True if the user of a site from ``seen`` may open rows of the model."""
    return bool(getattr(site, "pi_opens", lambda _model: True)(model))


def admin_link(site: AdminSite, model: type[Model], pk: object, label: object = None) -> str:
    """Return a link to a row's page. Takes no query, and the row may not exist yet, because references are soft."""
    if not pk:
        return EMPTY
    url = change_url(site, model, pk) if opens(site, model) else ""
    shown = text(pk if label is None else label)
    return format_html('<a href="{}">{}</a>', url, shown) if url else shown


def object_link(site: AdminSite, account: str, kind: str, object_id: str) -> str:
    """Return a link to the mirrored object that an event or an operation is about."""
    model = MIRRORS.get(kind)
    if model is None or not object_id:
        return text(object_id or kind)
    if kind != Kind.BALANCE:
        return admin_link(site, model, object_id)
    # A balance has no provider id. The list, filtered by account and currency, shows only its row.
    url = list_url(site, model) if opens(site, model) else ""
    query = urlencode({"account": account, "currency": object_id})
    return format_html('<a href="{}?{}">{}</a>', url, query, text(object_id)) if url else text(object_id)


def change_url(site: AdminSite, model: type[Model], pk: object) -> str:
    """Return the URL of a row's page; empty if the model is not registered on the site."""
    return page_url(site, model, "change", pk)


def list_url(site: AdminSite, model: type[Model]) -> str:
    """Return the URL of a model's list; empty if the model is not registered on the site."""
    return page_url(site, model, "changelist")


def page_url(site: AdminSite, model: type[Model], page: str, *keys: object) -> str:
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}"
    try:
        return reverse(name, args=[quote(str(key)) for key in keys], current_app=site.name)
    except NoReverseMatch:
        return ""


def removed(account: str) -> str:
    """Return why nothing can be sent, as a sentence, if the account is no longer in the settings; otherwise ""."""
    if account in conf.aliases():
        return ""
    words = _("The account %(account)s is not configured any more, so nothing can be sent to the provider.")
    return words % {"account": text(account)}


def can_send(row: Any) -> bool:
    """Return True if the row's account is in the settings: for a button that asks the provider."""
    return row.account in conf.aliases()


def explain(site: AdminSite, error: PaymentsError | WireError | ImproperlyConfigured) -> str:
    """Explain an error in one paragraph to the person who caused it."""
    if isinstance(error, OutcomeUnknown | ApprovalRequired):
        if isinstance(error, ApprovalRequired):
            words = _("Another person must approve this first; nothing was sent. Operation: {}")
        elif error.operation.state == OperationState.NEEDS_PERSON:
            words = _("The outcome is not known, and a person must decide. Do not repeat it. Operation: {}")
        else:
            words = _("The outcome is not known yet and is being resolved. Do not repeat it. Operation: {}")
        return format_html(words, admin_link(site, Operation, error.operation.pk))
    if isinstance(error, IdempotencyMismatch):
        return str(SENT_BEFORE)
    if isinstance(error, ProviderError):
        return _("The provider refused: %(message)s (code %(code)s, request id %(request_id)s)") % {
            "message": text(error.message),
            "code": text(error.code),
            "request_id": text(error.request_id),
        }
    if isinstance(error, NoAnswer):
        return _("The provider gave no usable answer. Nothing was changed; try again later.")
    if isinstance(error, WireError):
        return _("The provider's answer cannot be understood: %(error)s") % {"error": text(error)}
    return _("This was not done: %(error)s") % {"error": text(error)}


def validation_messages(error: ValidationError) -> list[tuple[str, str]]:
    """Return (argument, message) for each message of a service's ValidationError; argument "" if it names none."""
    if hasattr(error, "error_dict"):
        return [(name, _message(each)) for name, found in error.error_dict.items() for each in found]
    return [("", message) for message in error.messages]


def _message(error: ValidationError) -> str:
    """Return the message. An amount that exceeds the refundable rest is refused with minor units, for programs."""
    params = error.params or {}
    if "rest" in params:
        return _("At most %(rest)s can be refunded.") % {"rest": format_money(params["rest"], params["currency"])}
    return str(error.messages[0])
