"""Columns and fields of the admin, made from a field's name. Assigned in a ModelAdmin they become its methods."""

from __future__ import annotations

import functools
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import Model
from django.db.models.options import Options
from django.utils.html import format_html

from payments_integration.admin import display

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

Column = Callable[[Any, Any], str]


def plain(name: str, description: StrOrPromise) -> Column:
    """A value as text; a dash where there is none."""

    @admin.display(description=description)
    def column(self: Any, obj: Any) -> str:
        return display.text(getattr(obj, name))

    return column


def status(description: StrOrPromise, choices: Any, name: str = "status") -> Column:
    """A status of ``choices``, or whatever else the provider sent."""

    @admin.display(description=description)
    def column(self: Any, obj: Any) -> str:
        return display.status(getattr(obj, name), choices)

    return column


def choice(name: str, description: StrOrPromise, choices: Any) -> Column:
    """A value in the words of ``choices``; one that is not among them as it came."""

    @admin.display(description=description)
    def column(self: Any, obj: Any) -> str:
        value = getattr(obj, name)
        return display.text(dict(choices.choices).get(value, value))

    return column


def at(name: str, description: StrOrPromise) -> Column:
    @admin.display(description=description)
    def column(self: Any, obj: Any) -> str:
        return display.moment(getattr(obj, name))

    return column


@functools.cache
def moment(opts: Options[Any], name: str) -> Callable[[Any], str]:
    """A field with a time, as all times are shown; stands in a list where the field's name would."""

    @admin.display(description=getattr(opts.get_field(name), "verbose_name", name), ordering=name)
    def column(obj: Any) -> str:
        return display.moment(getattr(obj, name))

    # Django names cells and rows after it.
    column.__name__ = name
    return column


def money(
    name: str, description: StrOrPromise, *, currency: str = "currency", less: str = "", words: StrOrPromise = ""
) -> Column:
    """An amount in the row's currency; ``currency``: where that stands.

    ``less``: an amount that stands under it, in ``words``, where there is one.
    """
    currency_of = attrgetter(currency)

    @admin.display(description=description)
    def column(self: Any, obj: Any) -> str:
        amount = display.money(getattr(obj, name), currency_of(obj))
        if not less or not getattr(obj, less):
            return amount
        under = format_html(str(words), display.money(getattr(obj, less), currency_of(obj)))
        return format_html('{}<br><span class="pi-less">{}</span>', amount, under)

    return column


def json(name: str, description: StrOrPromise) -> Column:
    @admin.display(description=description)
    def column(self: Any, obj: Any) -> str:
        if getattr(obj, "erased_at", None) and name in obj.personal:
            return str(display.ERASED)
        return display.pretty_json(getattr(obj, name))

    return column


def web_link(name: str, description: StrOrPromise) -> Column:
    @admin.display(description=description)
    def column(self: Any, obj: Any) -> str:
        return display.web_link(getattr(obj, name))

    return column


def body(name: str, description: StrOrPromise) -> Column:
    @admin.display(description=description)
    def column(self: Any, obj: Any) -> str:
        return display.body(getattr(obj, name))

    return column


def preformatted(name: str, description: StrOrPromise) -> Column:
    @admin.display(description=description)
    def column(self: Any, obj: Any) -> str:
        value = getattr(obj, name)
        return display.preformatted(value) if value else display.EMPTY

    return column


def row_link(name: str, description: StrOrPromise, model: type[Model]) -> Column:
    """A link to the row whose id stands in the field ``name``."""

    @admin.display(description=description)
    def column(self: Any, obj: Any) -> str:
        return display.admin_link(self.admin_site, model, getattr(obj, name))

    return column


def object_link(description: StrOrPromise, kind: str = "object_kind", pk: str = "object_id") -> Column:
    """A link to the mirrored object that a row is about."""

    @admin.display(description=description)
    def column(self: Any, obj: Any) -> str:
        return display.object_link(self.admin_site, obj.account, getattr(obj, kind), getattr(obj, pk))

    return column
