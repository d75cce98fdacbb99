"""Give the rows of an account another alias, after the alias was changed in the setting."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

from django.apps import apps
from django.db import connections, router, transaction
from django.db.models import Manager, Model, Q, QuerySet
from django.utils import timezone

from payments_integration import conf
from payments_integration.exceptions import PaymentsError
from payments_integration.models import (
    AccountState,
    DueAttention,
    DueRefresh,
    Event,
    ObjectDispatch,
    Operation,
    ReconciliationRun,
    RunState,
)

#: A pass that has been running for longer has died.
LONGEST_PASS = timedelta(minutes=15)


class RenameRefused(PaymentsError):
    """The rows of an account keep their alias; the message says why. Nothing was changed."""


def rename_account(old: str, new: str) -> dict[str, int]:
    """Give every row of the alias ``old`` the alias ``new``, in one transaction. Returns how many, by table.

    Raises RenameRefused if ``old`` is still configured, ``new`` is not, ``old`` has no rows, ``new`` has some, or a
    process works on ``old``; ImproperlyConfigured for a wrong setting.
    """
    configured = conf.current().ACCOUNTS
    if new not in configured:
        raise RenameRefused(f"{new} is not configured: write the new alias into the setting first, with the same key")
    if old in configured:
        raise RenameRefused(f"{old} is still configured: rename it in the setting first, and stop every process")
    by_database: dict[str, list[type[Model]]] = defaultdict(list)
    every_model = models_with_account()
    for model in every_model:
        by_database[router.db_for_write(model)].append(model)
    counts: dict[str, int] = {}
    with ExitStack() as stack:
        for using in by_database:
            stack.enter_context(transaction.atomic(using=using, durable=True))
        _refuse_two_histories(every_model, old, new)
        for using, models in by_database.items():
            _refuse_if_in_use(using, models, old)
        for using, models in by_database.items():
            for model in models:
                count = model._default_manager.using(using).filter(account=old).update(account=new)
                if count:
                    counts[model._meta.db_table] = count
    return counts


def models_with_account() -> list[type[Any]]:
    """Return the models of this app, and of the installed apps in ``contrib``, whose rows belong to an account."""
    found = [
        model
        for model in apps.get_models()
        if model.__module__.startswith("payments_integration.")
        and model._meta.managed
        and not model._meta.proxy
        and any(field.name == "account" for field in model._meta.concrete_fields)
    ]
    databases = {router.db_for_write(model) for model in found}
    tables = {using: set(connections[using].introspection.table_names()) for using in databases}
    return [model for model in found if model._meta.db_table in tables[router.db_for_write(model)]]


def stored_accounts() -> list[str]:
    """Return every alias that has rows. Takes a few index reads per alias, however many rows there are."""
    found: set[str] = set()
    for model in filter(_is_indexed, models_with_account()):
        rows = model._default_manager.using(router.db_for_read(model)).order_by("account")
        aliases = rows.values_list("account", flat=True)
        alias = aliases.first()
        while alias is not None:
            found.add(alias)
            # The database orders the aliases, by its index's collation.
            alias = aliases.filter(account__gt=alias).first()
    return sorted(found)


def _is_indexed(model: type[Any]) -> bool:
    """Return True if an index begins with the account."""
    keys = [index.fields for index in model._meta.indexes]
    keys += [getattr(constraint, "fields", ()) for constraint in model._meta.constraints]
    return model._meta.pk.name == "account" or any(key and key[0] == "account" for key in keys)


def _refuse_two_histories(models: list[type[Any]], old: str, new: str) -> None:
    def rows(model: type[Any], alias: str) -> QuerySet[Any]:
        manager: Manager[Any] = model._default_manager
        return manager.using(router.db_for_write(model)).filter(account=alias)

    def size(alias: str) -> str:
        return f"{alias} has {rows(Operation, alias).count()} operations and {rows(Event, alias).count()} events"

    if not any(rows(model, old).exists() for model in models):
        raise RenameRefused(f"no table has a row of {old}; if it was renamed before, nothing is left to do")
    if any(rows(model, new).exists() for model in models):
        raise RenameRefused(
            f"a process has worked under each alias: {size(old)}, {size(new)}. First set DISPATCH_SINCE of the "
            "account to the present time: a handler that runs again for an event of a forgotten alias would pay again "
            "what it has paid. Then forget the alias that worked for a short time only (payments_forget), run this "
            "again if the other one is to be renamed, run payments_reconcile, and replay what is quarantined"
        )


def _refuse_if_in_use(using: str, models: list[type[Any]], old: str) -> None:
    now = timezone.now()
    started = now - LONGEST_PASS
    working: dict[type[Any], Q] = {
        **dict.fromkeys((DueAttention, DueRefresh, Operation, ObjectDispatch), Q(claimed_until__gt=now)),
        AccountState: Q(claimed_until__gt=now) | Q(sweep_claimed_until__gt=now),
        ReconciliationRun: Q(state=RunState.RUNNING, started_at__gt=started),
    }
    for model, is_worked_on in working.items():
        rows = model._default_manager.using(using).filter(is_worked_on, account=old)
        if model in models and rows.exists():
            raise RenameRefused(
                f"a process works on {old} now, or died a moment ago ({model._meta.db_table}): stop every process, "
                "and try again in a few minutes"
            )
