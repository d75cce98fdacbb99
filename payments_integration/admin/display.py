"""Values as people read them: statuses, amounts, JSON, links. Everything is escaped here or by the template."""

from __future__ import annotations

import contextlib
import json
import re
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.contrib.admin.utils import quote
from django.db.models import Model
from django.urls import NoReverseMatch, reverse
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from django.utils.timezone import is_aware, localtime, now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from payments_integration.admin import masking
from payments_integration.admin.masking import masked as masked
from payments_integration.enums import Kind
from payments_integration.models import MIRRORS
from payments_integration.money import format_money

#: Shown where there is nothing.
EMPTY = "–"  # noqa: RUF001  (a dash, on purpose)
#: Shown in place of personal data that was erased.
ERASED = gettext_lazy("erased")

#: How a status looks. The word is always there too: colour alone tells nothing to many people.
_TONES = {
    "good": {"succeeded", "active", "done"},
    "bad": {
        "failed", "chargeback", "returned", "disabled", "parked", "quarantined", "rejected", "needs_person",
    },
    "open": {
        "created", "requires_action", "processing", "on_hold", "partially_paid", "overpaid", "pending", "held",
        "applied", "due", "unknown", "running", "awaiting_approval",
    },
    "quiet": {"expired", "canceled", "closed", "skipped"},
}  # fmt: skip
_TONE_OF = {status: tone for tone, statuses in _TONES.items() for status in statuses}

#: A scheme that a browser may follow, and nothing that a browser drops while it reads an address.
_WEB_ADDRESS = re.compile(r"https?://[^\s\x00-\x1f\x7f<>\"\\]+", re.IGNORECASE)


#: Controls, and what turns the reading direction: neither may hide or rearrange what a person decides by.
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def text(value: object) -> str:
    """Plain text that any response can encode; JSON of the provider may hold half a surrogate pair."""
    if value is None or value == "":
        return EMPTY
    shown = str(value).encode("utf-8", "backslashreplace").decode()
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", shown)


def status(value: str | None, choices: Any) -> str:
    """A status in words. One that this version does not know is shown as it came."""
    if not value:
        return EMPTY
    label = dict(choices.choices).get(value, value)
    return format_html('<span class="pi-status pi-status-{}">{}</span>', _TONE_OF.get(value, "odd"), text(label))


def status_word(kind: str, value: str | None) -> str:
    """A mirrored object's status in words, as plain text."""
    choices = getattr(MIRRORS.get(kind), "Status", None)
    return text(dict(choices.choices).get(value, value) if choices is not None else value)


def moment(at: datetime | None) -> str:
    """To the second, and the same everywhere: what happened in one minute has an order too."""
    if not at:
        return EMPTY
    return date_format(localtime(at) if is_aware(at) else at, "Y-m-d H:i:s")


def aged(at: datetime | None) -> str:
    """A moment with its age."""
    if not at:
        return EMPTY
    is_new = now() - at < timedelta(minutes=1)
    age = _("just now") if is_new else _("%(age)s ago") % {"age": timesince(at, depth=1)}
    return format_html(
        '<time datetime="{}" title="{}">{}</time><br><span class="pi-less">{}</span>',
        at.isoformat(), moment(at), moment(at), age,
    )  # fmt: skip


def share(part: int, whole: int) -> str:
    """How much of what was received was refunded; rounded so that neither nothing nor everything is claimed."""
    if part >= whole:
        return _("refunded in full")
    return _("refunded %(percent)d %%") % {"percent": max(1, part * 100 // whole)}


def money(amount: int | None, currency: str) -> str:
    """Minor units in the decimals of their currency."""
    if amount is None:
        return EMPTY
    return format_html('<span class="pi-money">{}</span>', text(format_money(amount, currency)))


def pretty_json(value: object) -> str:
    """JSON that a person can read, as text."""
    if value in (None, {}, []):
        return EMPTY
    return preformatted(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def body(raw: bytes | memoryview | None, *, exact: bool = False) -> str:
    """The bytes of a request or an event: laid out if they are JSON, else (or if ``exact``) as they are."""
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
    """The same for those who may not see personal data; what is not understood is not shown at all."""
    if raw is None or not bytes(raw):
        return body(raw)
    content = masking.body(bytes(raw))
    return _("hidden: it may hold personal data") if content is None else preformatted(content)


def preformatted(content: str) -> SafeString:
    """Text with its line breaks and spaces, such as a traceback."""
    return format_html('<pre class="pi-pre">{}</pre>', text(content))


def web_link(url: str | None) -> str:
    """A link for http and https; any other address (``javascript:``) stays text."""
    if not url or not _WEB_ADDRESS.fullmatch(url):
        return text(url)
    return format_html('<a href="{}" rel="noopener noreferrer" target="_blank">{}</a>', text(url), text(url))


def admin_link(site: AdminSite, model: type[Model], pk: object, label: object = None) -> str:
    """A link to a row's page. Needs no query, so the row need not exist: references are soft."""
    if not pk:
        return EMPTY
    url = change_url(site, model, pk)
    shown = text(pk if label is None else label)
    return format_html('<a href="{}">{}</a>', url, shown) if url else shown


def object_link(site: AdminSite, account: str, kind: str, object_id: str) -> str:
    """A link to the mirrored object that an event or an operation names."""
    model = MIRRORS.get(kind)
    if model is None or not object_id:
        return text(object_id or kind)
    if kind != Kind.BALANCE:
        return admin_link(site, model, object_id)
    # A balance has no id of its own: the list of its currency has one row per account.
    url = list_url(site, model)
    query = urlencode({"account": account, "currency": object_id})
    return format_html('<a href="{}?{}">{}</a>', url, query, text(object_id)) if url else text(object_id)


def change_url(site: AdminSite, model: type[Model], pk: object) -> str:
    """The address of a row's page; empty where the site does not have the model."""
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}_change"
    try:
        return reverse(name, args=(quote(str(pk)),), current_app=site.name)
    except NoReverseMatch:
        return ""


def list_url(site: AdminSite, model: type[Model]) -> str:
    """The address of a model's list; empty where the site does not have the model."""
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"
    try:
        return reverse(name, current_app=site.name)
    except NoReverseMatch:
        return ""
