"""Columns and fields of the admin, made from a field's name. Assigned in a ModelAdmin they become its methods.

A column of personal data has a sibling, ``masked``, which stands in its place for those who may not see such data
(``ReadOnlyAdmin.personal``). Without one they see that something is there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.utils import label_for_field
from django.db.models import Model
from django.db.models.options import Options
from django.utils.html import format_html

from payments_integration.admin import display, masking
from payments_integration.models import Mirror

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

Column = Callable[[Any, Any], str]


def masked_by(masked: Column) -> Callable[[Column], Column]:
    """Gives a column what is shown in its place to those who may not see personal data."""

    def give(column: Column) -> Column:
        column.masked = masked  # type: ignore[attr-defined]
        return column

    return give


@functools.cache
def masked(model_admin: Any, name: str) -> Callable[[Any], str]:
    """The column or field ``name`` of a ModelAdmin as people see it who may not see personal data."""
    own = getattr(model_admin, name, None)
    sibling: Column | None = getattr(own, "masked", None)
    label: Any = label_for_field(name, model_admin.model, model_admin)

    @admin.display(description=label)
    def column(obj: Any) -> str:
        if sibling is not None:
            return sibling(model_admin, obj)
        shown = own(obj) if callable(own) else getattr(obj, name)
        return shown if shown in (display.EMPTY, display.ERASED) else (masking.MASK if shown else display.EMPTY)

    # Django names cells and rows after it.
    column.__name__ = name
    return column


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


def status_word(name: str, description: StrOrPromise) -> Column:
    """A status of the object that a row is about, in words."""

    @admin.display(description=description)
    def column(self: Any, obj: Any) -> str:
        return display.status_word(obj.object_kind, getattr(obj, name))

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


@functools.cache
def aged(opts: Options[Any], name: str) -> Callable[[Any], str]:
    """The same with its age, for lists: whoever looks for what is stuck reads that first."""
    exact = moment(opts, name)

    @admin.display(description=exact.short_description, ordering=name)  # type: ignore[attr-defined]
    def column(obj: Any) -> str:
        return display.aged(getattr(obj, name))

    column.__name__ = name
    return column


def refunded(name: str, description: StrOrPromise) -> Column:
    """A payment's amount, and under it how much of what was received went back."""

    @admin.display(description=description)
    def column(self: Any, obj: Any) -> str:
        amount = display.money(getattr(obj, name), obj.currency)
        if not obj.refunded_amount:
            return amount
        share = display.share(obj.refunded_amount, obj.amount_received)
        back = display.money(obj.refunded_amount, obj.currency)
        return format_html('{}<br><span class="pi-less">{} ({})</span>', amount, share, back)

    return column


def money(name: str, description: StrOrPromise, *, currency: str = "currency") -> Column:
    """An amount in the row's currency; ``currency``: where that stands."""
    currency_of = attrgetter(currency)

    @admin.display(description=description)
    def column(self: Any, obj: Any) -> str:
        return display.money(getattr(obj, name), currency_of(obj))

    return column


def json(name: str, description: StrOrPromise) -> Column:
    """JSON as it is; masked: of a mirror's personal field everything, of other JSON what is personal in it."""

    def shown(obj: Any, change: Callable[[Any], Any]) -> str:
        if getattr(obj, "erased_at", None) and name in obj.personal:
            return str(display.ERASED)
        return display.pretty_json(change(getattr(obj, name)))

    def masked(self: Any, obj: Any) -> str:
        is_personal = isinstance(obj, Mirror)
        return shown(obj, functools.partial(masking.field, name) if is_personal else masking.masked)

    @masked_by(masked)
    @admin.display(description=description)
    def column(self: Any, obj: Any) -> str:
        return shown(obj, lambda value: value)

    return column


def web_link(name: str, description: StrOrPromise) -> Column:
    @admin.display(description=description)
    def column(self: Any, obj: Any) -> str:
        return display.web_link(getattr(obj, name))

    return column


def body(name: str, description: StrOrPromise, *, exact: Callable[[Any], bool] = lambda obj: False) -> Column:
    """The bytes of a request or an event; ``exact``: of which rows exactly as they came."""

    def masked(self: Any, obj: Any) -> str:
        return display.masked_body(getattr(obj, name))

    @masked_by(masked)
    @admin.display(description=description)
    def column(self: Any, obj: Any) -> str:
        return display.body(getattr(obj, name), exact=exact(obj))

    return column


def preformatted(name: str, description: StrOrPromise) -> Column:
    @admin.display(description=description)
    def column(self: Any, obj: Any) -> str:
        value = getattr(obj, name)
        return display.preformatted(value) if value else display.EMPTY

    return column


def words(name: str, description: StrOrPromise, *, besides: str) -> Column:
    """Sentences of ours and of people; masked: without what is personal in the JSON field ``besides``."""

    def masked(self: Any, obj: Any) -> str:
        value = getattr(obj, name)
        return display.preformatted(masking.without(value, getattr(obj, besides))) if value else display.EMPTY

    return masked_by(masked)(preformatted(name, description))


def refusal(name: str, description: StrOrPromise) -> Column:
    """The provider's error; masked: its codes without its message, which may quote what was sent."""

    def masked(self: Any, obj: Any) -> str:
        return display.pretty_json(masking.refusal(getattr(obj, name)))

    return masked_by(masked)(json(name, description))


def traceback(name: str, description: StrOrPromise) -> Column:
    """Why something failed; masked: where and by which class of error, without its message."""

    def masked(self: Any, obj: Any) -> str:
        value = getattr(obj, name)
        return display.preformatted(masking.traceback(value)) if value else display.EMPTY

    return masked_by(masked)(preformatted(name, description))


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
