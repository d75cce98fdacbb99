"""System checks of a payable model: every message says what to write instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.exceptions import FieldDoesNotExist
from django.db import models

from payments_integration import conf

ID = "payments_integration"


def problems(model: Any, names: frozenset[str]) -> Iterator[checks.CheckMessage]:
    """E020: what it names is not there. E021: a field hides a part of ``Payable`` (``names``). W020: two rows may
    have the same reference.
    """
    raw = getattr(settings, conf.NAME, {})
    account = model.payments_account
    if account is not None and not model.payments_account_field and not list(conf.problems(raw)):
        accounts = ", ".join(conf.aliases()) or "none"
        if account not in conf.aliases():
            yield checks.Error(
                f"payments_account names the account {account!r}, which does not exist.",
                hint=f"Name one of {accounts}, or None for every account's payments.",
                obj=model,
                id=f"{ID}.E020",
            )
    yield from _hidden(model, names)
    missing = [name for name in _named(model) if not _has_column(model, name)]
    for name in missing:
        yield checks.Error(
            f"The model has no field {name!r}.",
            hint='Name a field of the model: merchant_reference_field = "number".',
            obj=model,
            id=f"{ID}.E020",
        )
    if not missing and not _is_unique(model):
        yield checks.Warning(
            f"Two rows may have the same {model.merchant_reference_field}, and would share their payments.",
            hint="Make it unique.",
            obj=model,
            id=f"{ID}.W020",
        )


def _named(model: Any) -> list[str]:
    account_field = [model.payments_account_field] if model.payments_account_field else []
    return [model.merchant_reference_field, *account_field]


def _has_column(model: type[models.Model], name: str) -> bool:
    try:
        return isinstance(model._meta.get_field(name), models.Field)
    except FieldDoesNotExist:
        return False


def _hidden(model: type[models.Model], names: frozenset[str]) -> Iterator[checks.CheckMessage]:
    for field in model._meta.get_fields():
        name = field.name if isinstance(field, models.Field) else getattr(field, "get_accessor_name", lambda: "")()
        if name in names:
            yield checks.Error(
                f"{name!r} is a name of Payable.",
                hint="Give the field, or the related_name, another one.",
                obj=model,
                id=f"{ID}.E021",
            )


def _is_unique(model: Any) -> bool:
    field = model._meta.get_field(model.merchant_reference_field)
    if field.unique:
        return True
    options = field.model._meta
    together = [set(names) for names in options.unique_together]
    together += [set(constraint.fields) for constraint in options.total_unique_constraints]
    return any(field.name in names and names <= set(_named(model)) for names in together)
