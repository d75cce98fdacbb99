"""Protect rows from being deleted by accident: an order would count as unpaid, or a key be sent again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.db.models import Model, ProtectedError
from django.db.models.signals import pre_delete

from payments_integration.models.mirrors import Mirror
from payments_integration.models.operations import Operation

_is_allowed = ContextVar("payments_integration_deletion_allowed", default=False)


@contextmanager
def deletion_allowed() -> Iterator[None]:
    """Allow rows of the mirror and of the ledger to be deleted, for example to start afresh with another key."""
    token = _is_allowed.set(True)
    try:
        yield
    finally:
        _is_allowed.reset(token)


def protect(models: Iterable[type[Model]]) -> None:
    """Make ``delete()`` of a row or a queryset, and any cascade, raise ProtectedError.

    ``models`` are the project's. Django looks for receivers of the exact class, so each proxy is connected as well.
    """
    for model in models:
        if issubclass(model, Mirror | Operation):
            pre_delete.connect(_refuse, sender=model, dispatch_uid="payments_integration.deletion")


def _refuse(sender: type[Model], instance: Model, **_: Any) -> None:
    if _is_allowed.get():
        return
    if isinstance(instance, Operation):
        why = "it remembers what was sent under its key, so that nothing is paid twice"
        way = "payments_erase removes personal data"
    else:
        why = "it mirrors an object that the provider still has: without it, a paid order counts as unpaid"
        way = "payments_erase removes personal data, payments_prune old events"
    raise ProtectedError(
        f"{sender.__name__} {instance.pk} is not deleted: {why}. {way}. If you want to start afresh, delete within "
        "payments_integration.models.deletion_allowed().",
        {instance},
    )
