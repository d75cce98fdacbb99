"""Checks for django-health-check 4: is the process alive, is it ready, and does money need a person?

Needs the extra ``health-check``. Give each check a URL of its own:

    path("health/live/", HealthCheckView.as_view(checks=[Liveness]))

No answer holds an id, an amount, the text of an error or personal data, so the URLs may be public.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import Error, router
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from payments_integration import conf, health, projection
from payments_integration.models import Event

EXTRA = 'pip install "payments-integration[health-check]"'

try:
    from health_check.base import HealthCheck
    from health_check.exceptions import ServiceUnavailable, ServiceWarning
except ImportError as missing:
    raise ImproperlyConfigured(f"{__name__} needs django-health-check: {EXTRA}") from missing


@dataclass
class Liveness(HealthCheck):  # type: ignore[misc]  # django-health-check has no types
    """The process answers. Uses neither the database nor the network, because a restart would not repair them."""

    async def run(self) -> None:
        return


@dataclass
class Readiness(HealthCheck):  # type: ignore[misc]
    """The process can store deliveries: the database answers, it is migrated, and a webhook secret can be decrypted.

    The provider and the broker are not asked. Without them the site still works, and deliveries are still stored.
    """

    async def run(self) -> None:
        # Run in the thread of the request: Django closes its connections, and no others are opened.
        await sync_to_async(self._check)()

    def _check(self) -> None:
        try:
            if missing := list(_unapplied()):
                # The names of migrations may be public: they are in the published source.
                raise ServiceUnavailable(f"migrations are not applied: {', '.join(missing)}")
            for account in conf.aliases():
                if projection.unreadable_secrets(account) and not projection.active_secrets(account):
                    raise ServiceUnavailable(f"no key decrypts the webhook secrets of account {account}")
        except Error as error:
            # Give only the type: the message may show the database's address.
            raise ServiceUnavailable(f"the database cannot be used: {type(error).__name__}") from None


@dataclass
class Money(HealthCheck):  # type: ignore[misc]
    """Nothing needs attention. Otherwise names the codes that ``payments_health`` explains, each with its count.

    Use it for monitoring and never for a load balancer: neither a restart nor another process solves these problems.
    Examines only the account ``account``, or all accounts if it is None.
    """

    account: str | None = None

    async def run(self) -> None:
        await sync_to_async(self._check)()

    def _check(self) -> None:
        try:
            report = health.examine(self.account)
        except Error as error:
            raise ServiceUnavailable(f"the database cannot be used: {type(error).__name__}") from None
        found = [
            f"{alias}: {problem.code} ({problem.count})"
            for alias, account in report.accounts.items()
            for problem in account.problems
        ]
        found += [f"{problem.code} ({problem.count})" for problem in report.problems]
        if found:
            raise ServiceWarning("; ".join(found))


def _unapplied() -> Iterator[str]:
    """Yield the migrations of this app and its optional apps that the database lacks."""
    wanted = {label: names for label in _own_labels() if (names := _migrations(label))}
    applied = MigrationRecorder.Migration.objects.using(router.db_for_write(Event)).filter(app__in=wanted)
    known = set(applied.values_list("app", "name"))
    for label, names in wanted.items():
        yield from (f"{label}.{name}" for name in names if (label, name) not in known)


def _own_labels() -> list[str]:
    return [config.label for config in apps.get_app_configs() if f"{config.name}.".startswith("payments_integration.")]


def _migrations(label: str) -> list[str]:
    """Return the names of an app's migrations; none if it has none, or if the project turned them off."""
    module, _ = MigrationLoader.migrations_module(label)
    if module is None or find_spec(module) is None:
        return []
    return sorted(name for _, name, _ in iter_modules(import_module(module).__path__))
