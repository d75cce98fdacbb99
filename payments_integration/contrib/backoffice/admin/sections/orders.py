"""Link a merchant reference to the merchant's order: by ``ORDER_URL``, or to a row of a ``Payable`` model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from django.db import DatabaseError, transaction
from django.utils.html import format_html
from django.utils.module_loading import import_string

from payments_integration import conf
from payments_integration.admin.shared import display
from payments_integration.admin.shared.sections import Page
from payments_integration.payable import Payable, PayableQuerySet
from payments_integration.payable.models import payables
from payments_integration.payable.queries import Referring
from payments_integration.runtime.logs import get_logger
from payments_integration.validation.urls import is_site_path, is_staff_link

logger = get_logger(__name__)


def order_link(page: Page, obj: Referring | None) -> str:
    """Return the merchant reference of a row, as a link to its order if there is one. A dash without a reference."""
    if obj is None or not obj.merchant_reference:
        return display.EMPTY
    reference, url = display.text(obj.merchant_reference), order_url(page, obj)
    return format_html('<a href="{}">{} →</a>', url, reference) if url else reference


def order_url(page: Page, obj: Referring) -> str:
    """Return the address of the order that a row belongs to; empty if none. Takes one query per ``Payable`` model."""
    # With a savepoint, a database error in a merchant's code does not end the page's transaction.
    savepoint = transaction.atomic() if transaction.get_connection().in_atomic_block else contextlib.nullcontext()
    try:
        with savepoint:
            return next(filter(None, _urls(page, obj)), "")
    except DatabaseError:
        logger.exception("No link to an order can be shown.", extra={"account": obj.account})
        return ""


def _urls(page: Page, obj: Referring) -> Iterator[str]:
    if path := conf.current().ORDER_URL:
        yield _checked(lambda: import_string(path)(obj), path)
    for model in payables():
        yield _checked(partial(_url_in, model, page, obj), model._meta.label)


def _url_in(model: type[Payable], page: Page, obj: Referring) -> str | None:
    try:
        order = PayableQuerySet(model).of(obj)
    except model.MultipleObjectsReturned:
        # A system check warns about this (W020).
        return None
    return None if order is None else _url_of(page, order)


def _url_of(page: Page, order: Any) -> str | None:
    """Return the order's page in this admin if the user may view it; otherwise the address that the model names."""
    site = page.site
    # An installed package registers its own model, not the project's proxy.
    for model in (type(order), order._meta.concrete_model):
        if site.is_registered(model) and site.get_model_admin(model).has_view_permission(page.request, order):
            return display.change_url(site, model, order.pk)
    named = getattr(order, "get_absolute_url", None)
    return named() if named is not None else None


def _checked(call: Callable[[], Any], what: str) -> str:
    """Return the address that a merchant's code returns; empty if the code fails, or the address cannot be a link."""
    try:
        url = call()
    except Exception:
        # An error in a merchant's code must not break the page.
        logger.exception("The link to an order failed in %s.", what)
        return ""
    if not isinstance(url, str) or not (is_site_path(url) or is_staff_link(url)):
        if url:
            logger.warning("The link to an order is no http, https or relative address, in %s.", what)
        return ""
    return url
