"""Make columns and fields of the admin from a field's name. Assigned in a ModelAdmin, they become its methods.

A column with personal data may have an attribute ``masked``: another column, for users who may not see personal data
(``ListAdmin.personal``). Without it, they see ``•••`` if there is a value.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import label_for_field
from django.db.models import Model
from django.db.models.options import Options
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext_lazy

from payments_integration.admin.shared import display, masking, people
from payments_integration.enums import Country
from payments_integration.money import format_money
from payments_integration.payer.names import reason_text
from payments_integration.permissions import with_names
from payments_integration.validation.text import StrOrPromise

#: ``column(model_admin, row)``
Column = Callable[[Any, Any], str]


def _column(description: StrOrPromise, shown: Column, masked: Column | None = None) -> Column:
    """Return a method of a ModelAdmin. ``masked`` replaces ``shown`` for users who may not see personal data."""

    @admin.display(description=description)
    def column(self: Any, obj: Any) -> str:
        return shown(self, obj)

    if masked is not None:
        column.masked = masked  # type: ignore[attr-defined]
    return column


def value(
    name: str, description: StrOrPromise, shown: Callable[[Any], str], masked: Callable[[Any], str] | None = None
) -> Column:
    """Show the value of the field ``name`` as one of the functions of ``display`` does."""
    return _column(
        description,
        lambda _admin, obj: shown(getattr(obj, name)),
        None if masked is None else lambda _admin, obj: masked(getattr(obj, name)),
    )


@functools.cache
def masked(model_admin: Any, name: str) -> Callable[[Any], str]:
    """Return the column or field ``name`` of a ModelAdmin for users who may not see personal data."""
    own = getattr(model_admin, name, None)
    replacement: Column | None = getattr(own, "masked", None)
    label: Any = label_for_field(name, model_admin.model, model_admin)

    def column(obj: Any) -> str:
        if replacement is not None:
            return replacement(model_admin, obj)
        shown = own(obj) if callable(own) else getattr(obj, name)
        return shown if shown in (display.EMPTY, display.ERASED) else (masking.MASK if shown else display.EMPTY)

    return _named(name, label, column)


def linked(model_admin: Any, name: str) -> Callable[[Any], str]:
    """Return the column ``name`` of this ModelAdmin as a function, for Django's ModelAdmin of the same model."""
    label: Any = label_for_field(name, model_admin.model, model_admin)
    return _named(name, label, getattr(model_admin, name))


@functools.cache
def of_field(opts: Options[Any], name: str, shown: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a column that replaces a field's name and shows its value in another way. The field sorts the list."""
    label = getattr(opts.get_field(name), "verbose_name", name)
    return _named(name, label, lambda obj: shown(getattr(obj, name)), ordering=name)


def _named(name: str, label: Any, shown: Callable[[Any], str], *, ordering: str | None = None) -> Callable[[Any], str]:
    @admin.display(description=label, ordering=ordering)
    def column(obj: Any) -> str:
        return shown(obj)

    # Django uses it in CSS classes.
    column.__name__ = name
    return column


def status(description: StrOrPromise, choices: Any, name: str = "status") -> Column:
    """Show a status in the words of ``choices``, or as the provider sent it."""
    return value(name, description, lambda value: display.status(value, choices))


def status_with_reason(
    description: StrOrPromise, choices: Any, reason: str, *, also: Callable[[Any], str] = lambda obj: ""
) -> Column:
    """Show a status, what ``also`` returns for the row, and the beginning of the personal text in ``reason``.

    Masked: without the text.
    """

    def shown(obj: Any, *more: str) -> str:
        beside = [(part,) for part in (also(obj), *more) if part]
        status = display.status(obj.status, choices)
        if not beside:
            return status
        return format_html('{} <span class="pi-less">{}</span>', status, format_html_join(" · ", "{}", beside))

    def with_reason(_admin: Any, obj: Any) -> str:
        why = getattr(obj, reason)
        return shown(obj, display.beginning(reason_text(why))) if why else shown(obj)

    return _column(description, with_reason, lambda _admin, obj: shown(obj))


def refunded(obj: Any) -> str:
    """Return the refunded share of a payment; empty if nothing was refunded."""
    if not obj.refunded_amount:
        return ""
    share = display.refunded_share(obj.refunded_amount, obj.amount_received)
    return format_html('<span title="{}">{}</span>', format_money(obj.refunded_amount, obj.currency), share)


def beginning(name: str, description: StrOrPromise) -> Column:
    return _column(description, lambda _admin, obj: _erased(obj, name) or display.beginning(getattr(obj, name)))


def reason(name: str, description: StrOrPromise) -> Column:
    """Show a reason that the provider gave, in words if its code is known."""
    return _column(
        description, lambda _admin, obj: _erased(obj, name) or display.text(reason_text(getattr(obj, name)))
    )


def person(name: str, description: StrOrPromise) -> Column:
    """Show the person that the JSON in the field ``name`` is about."""
    return _column(description, lambda _admin, obj: person_in(obj, name))


def person_in(obj: Any, name: str) -> str:
    """Return the person that the JSON in the field ``name`` of one row is about."""
    return _erased(obj, name) or display.beginning(people.name_in(getattr(obj, name)))


def choice(name: str, description: StrOrPromise, choices: Any) -> Column:
    """Show a value in the words of ``choices``, or as the provider sent it."""
    return value(name, description, lambda value: display.text(dict(choices.choices).get(value, value)))


def method() -> Column:
    """Show the name of a method, and beside it the country."""

    def shown(_admin: Any, obj: Any) -> str:
        country = dict(Country.choices).get(obj.country, obj.country)
        return format_html(
            '{} <span class="pi-less">{}</span>', display.method_name(obj.method_code), display.text(country)
        )

    return _column(gettext_lazy("method and country"), shown)


def status_word(name: str, description: StrOrPromise) -> Column:
    """Show in words a status of the object that a row is about."""
    return _column(description, lambda _admin, obj: display.status_word(obj.object_kind, getattr(obj, name)))


def money(name: str, description: StrOrPromise) -> Column:
    # A narrow column breaks the line at the space, not within the number.
    return _column(description, lambda _admin, obj: display.money(getattr(obj, name), obj.currency, space=" "))


def json(name: str, description: StrOrPromise) -> Column:
    """Show raw JSON, masked where it is personal."""
    return value(name, description, display.pretty_json, lambda value: display.pretty_json(masking.masked(value)))


def fields(name: str, description: StrOrPromise) -> Column:
    """Show a mirror's personal JSON as fields with names. Masked: only the names and codes."""
    return _column(
        description,
        lambda _admin, obj: _erased(obj, name) or people.as_html(getattr(obj, name)),
        lambda _admin, obj: _erased(obj, name) or people.as_html(masking.field(name, getattr(obj, name))),
    )


def body(name: str, description: StrOrPromise, *, exact: Callable[[Any], bool] = lambda obj: False) -> Column:
    """Show the bytes of a request or an event. If ``exact(row)`` is True, they are shown without indentation."""
    return _column(
        description,
        lambda _admin, obj: display.body(getattr(obj, name), exact=exact(obj)),
        lambda _admin, obj: display.masked_body(getattr(obj, name)),
    )


def preformatted(name: str, description: StrOrPromise) -> Column:
    return value(name, description, _preformatted)


def note(name: str, description: StrOrPromise, *, quoting: str) -> Column:
    """Show an operation's note. Masked: without comments, details and values of the JSON field ``quoting``."""
    return _column(
        description,
        lambda _admin, obj: _preformatted(with_names(getattr(obj, name))),
        lambda _admin, obj: _preformatted(with_names(masking.note(getattr(obj, name), getattr(obj, quoting)))),
    )


def provider_error(name: str, description: StrOrPromise) -> Column:
    """Show the provider's error. Masked: its codes without its message, which may quote what was sent."""
    return value(
        name, description, display.pretty_json, lambda value: display.pretty_json(masking.provider_error(value))
    )


def traceback(name: str, description: StrOrPromise, *, is_reason: Callable[[Any], bool] = lambda obj: False) -> Column:
    """Show a traceback. Masked: its frames and the class of the error, without the message.

    If ``is_reason(row)`` is True, the text is a reason that this app wrote. It names places in the row's body and no
    values. Any text that it might repeat from the body is still masked.
    """

    def masked(_admin: Any, obj: Any) -> str:
        text = getattr(obj, name)
        if text and is_reason(obj):
            return _preformatted(masking.reason(text, bytes(obj.body or b"")))
        return _preformatted(masking.traceback(text) if text else text)

    return _column(description, lambda _admin, obj: _preformatted(getattr(obj, name)), masked)


def row_link(name: str, description: StrOrPromise, model: type[Model]) -> Column:
    return _column(description, lambda self, obj: display.admin_link(self.admin_site, model, getattr(obj, name)))


def object_link(description: StrOrPromise, kind: str = "object_kind", pk: str = "object_id") -> Column:
    """Show a link to the mirrored object that a row is about."""
    return _column(
        description,
        lambda self, obj: display.object_link(self.admin_site, obj.account, getattr(obj, kind), getattr(obj, pk)),
    )


def _erased(obj: Any, name: str) -> str:
    return str(display.ERASED) if people.is_erased(obj, name) else ""


def _preformatted(value: str | None) -> str:
    return display.preformatted(value) if value else display.EMPTY
