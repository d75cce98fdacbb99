"""Links from a merchant reference to the merchant's order: by ``ORDER_URL``, or to a row of a ``Payable`` model."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.db import DatabaseError, transaction
from django.utils.html import format_html
from django.utils.module_loading import import_string

from payments_integration import conf
from payments_integration.admin.shared import display
from payments_integration.admin.shared.sections import Page
from payments_integration.models import DepositReference, Payment, Payout
from payments_integration.payable import Payable, PayableQuerySet
from payments_integration.validation.urls import is_site_path, is_staff_link

if TYPE_CHECKING:
    #: A mirror row with a ``merchant_reference``.
    Referring = Payment | Payout | DepositReference

#: Ids of rows, and the addresses of their orders.
_Search = Callable[[list[Any]], Iterable[tuple[str, str]]]

logger = logging.getLogger(__name__)


def order_link(page: Page, obj: Referring | None) -> str:
    """The merchant reference of a row, as a link to its order if there is one. A dash without a reference."""
    return order_links(page, [obj]).get(obj.pk, display.EMPTY) if obj else display.EMPTY


def order_links(page: Page, rows: Iterable[Referring]) -> dict[str, str]:
    """The same for several rows, by their ids: one statement for each ``Payable`` model."""
    rows = list(rows)
    urls = order_urls(page, rows)
    return {row.pk: _link(row.merchant_reference, urls.get(row.pk, "")) for row in rows}


def order_urls(page: Page, rows: Iterable[Referring]) -> dict[str, str]:
    """The addresses of the orders that rows belong to, by the rows' ids. Rows without one are left out."""
    rows = [row for row in rows if row.merchant_reference]
    if not rows:
        return {}
    # A savepoint, so that a database error in a merchant's code does not end the page's transaction.
    savepoint = transaction.atomic() if transaction.get_connection().in_atomic_block else contextlib.nullcontext()
    try:
        with savepoint:
            return _urls(page, rows)
    except DatabaseError:
        logger.exception("No link to an order can be shown.")
        return {}


def _urls(page: Page, rows: list[Referring]) -> dict[str, str]:
    found: dict[str, str] = {}
    searches: list[_Search] = [_by_setting, *(partial(_by_model, model, page) for model in _payables())]
    for search in searches:
        left = [row for row in rows if row.pk not in found]
        found |= {pk: url for pk, url in search(left) if url}
    return found


def _link(reference: str | None, url: str) -> str:
    if not url:
        return display.text(reference)
    return format_html('<a href="{}">{} →</a>', url, display.text(reference))


def _by_setting(rows: list[Referring]) -> Iterator[tuple[str, str]]:
    if path := conf.current().ORDER_URL:
        for row in rows:
            yield row.pk, _checked(partial(_call, path, row), path)


def _call(path: str, row: Referring) -> Any:
    return import_string(path)(row)


def _by_model(model: type[Payable], page: Page, rows: list[Referring]) -> Iterator[tuple[str, str]]:
    name = model._meta.label
    orders: dict[str, Any] = _attempt(partial(PayableQuerySet(model).of_each, rows), name) or {}
    for pk, order in orders.items():
        yield pk, _checked(partial(_url_of, page, order), name)


def _payables() -> Iterator[type[Payable]]:
    return (model for model in apps.get_models() if issubclass(model, Payable) and not model._meta.proxy)


def _url_of(page: Page, order: Any) -> str | None:
    """The order's page in this admin, if the user may view it; otherwise the one that the model names."""
    model, site = type(order), page.site
    if site.is_registered(model) and site.get_model_admin(model).has_view_permission(page.request, order):
        return display.change_url(site, model, order.pk)
    named = getattr(order, "get_absolute_url", None)
    return named() if named is not None else None


def _checked(call: Callable[[], Any], what: str) -> str:
    """The address that a merchant's function gives; empty if it gives none that can be a link."""
    url = _attempt(call, what)
    if not isinstance(url, str) or not (is_site_path(url) or is_staff_link(url)):
        if url:
            logger.warning("The link to an order is no http, https or relative address, in %s.", what)
        return ""
    return url


def _attempt(call: Callable[[], Any], what: str) -> Any:
    """The result of a merchant's code, which must not break a page; None if it fails."""
    try:
        return call()
    except Exception:
        logger.exception("The link to an order failed in %s.", what)
        return None
