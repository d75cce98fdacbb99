"""Filters of the lists. Their choices are the known values, so that no list needs a DISTINCT over its table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from payments_integration import conf
from payments_integration.enums import Country, Currency, Kind, MethodFamily

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

#: Stands for every value that this version does not know.
OTHER = "~other"

Choices = list[tuple[str, "StrOrPromise"]]


class KnownValues(admin.SimpleListFilter):
    """Rows with one of the known values of a field, or with none of them."""

    values: Callable[[], Choices]
    #: Whether the provider may send values that this version does not know.
    open_ended = True

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, StrOrPromise]]:
        found = type(self).values()
        return [*found, (OTHER, _("other"))] if found and self.open_ended else found

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset
        if value == OTHER:
            return queryset.exclude(**{f"{self.parameter_name}__in": [key for key, _label in type(self).values()]})
        return queryset.filter(**{f"{self.parameter_name}": value})


def known(
    field: str, title: StrOrPromise, values: Callable[[], Choices] | Any, *, open_ended: bool = True
) -> type[KnownValues]:
    """A filter on ``field``; ``values`` is an enumeration or a function that gives the choices."""
    choices = (lambda: list(values.choices)) if hasattr(values, "choices") else values
    made = type(
        f"{field.title().replace('_', '')}Filter",
        (KnownValues,),
        {
            "title": title,
            "parameter_name": field,
            "values": staticmethod(choices),
            "open_ended": open_ended,
        },
    )
    return cast("type[KnownValues]", made)


def _accounts() -> Choices:
    aliases = conf.aliases()
    # With one account there is nothing to choose.
    return [(alias, alias) for alias in aliases] if len(aliases) > 1 else []


ACCOUNT = known("account", _("account"), _accounts)
COUNTRY = known("country", _("country"), Country)
CURRENCY = known("currency", _("currency"), Currency)
FAMILY = known("method_family", _("method family"), MethodFamily)
OBJECT_KIND = known("object_kind", _("object"), Kind)
