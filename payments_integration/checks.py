"""System checks of the settings: every message says what to write instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core import checks
from django.db import connections, router

from payments_integration import conf
from payments_integration.encryption import DecryptionError, decrypt
from payments_integration.models import Event, WebhookEndpoint

ID = "payments_integration"


def check_settings(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """E001 to E009: the setting itself. W001: no account. W002: SQLite begins transactions the wrong way."""
    raw = getattr(settings, conf.NAME, {})
    messages: list[checks.CheckMessage] = [
        checks.Error(problem.message, hint=problem.hint, id=f"{ID}.{problem.id}") for problem in conf.problems(raw)
    ]
    if not messages and not raw.get("ACCOUNTS"):
        messages.append(
            checks.Warning(
                f"{conf.NAME} has no account.",
                hint='Add "ACCOUNTS": {"default": {"BASE_URL": …, "API_KEY": …}} to it.',
                id=f"{ID}.W001",
            )
        )
    connection = connections[router.db_for_write(Event)]
    if connection.vendor == "sqlite" and connection.settings_dict["OPTIONS"].get("transaction_mode") != "IMMEDIATE":
        messages.append(
            checks.Warning(
                "SQLite begins transactions as readers; concurrent work will meet “database is locked”.",
                hint='Add "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20} to the database.',
                id=f"{ID}.W002",
            )
        )
    return messages


def check_deployment(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """W003 and W004, with ``check --deploy``: redirects that lose deliveries; secrets that SECRET_KEY alone guards."""
    messages: list[checks.CheckMessage] = []
    if settings.SECURE_SSL_REDIRECT and not settings.SECURE_PROXY_SSL_HEADER and not settings.SECURE_REDIRECT_EXEMPT:
        messages.append(
            checks.Warning(
                "SECURE_SSL_REDIRECT may answer deliveries with a redirect, which counts as a failure.",
                hint="Set SECURE_PROXY_SSL_HEADER, or put the webhook's path into SECURE_REDIRECT_EXEMPT.",
                id=f"{ID}.W003",
            )
        )
    raw = getattr(settings, conf.NAME, {})
    if not any(conf.problems(raw)) and not conf.current().ENCRYPTION_KEYS:
        messages.append(
            checks.Warning(
                "Webhook secrets are encrypted with a key derived from SECRET_KEY.",
                hint=f'Set {conf.NAME}["ENCRYPTION_KEYS"], so that SECRET_KEY can be changed without them.',
                id=f"{ID}.W004",
            )
        )
    return messages


def check_keys(
    app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """E010, with ``check --database``: stored secrets that none of the keys can read."""
    using = router.db_for_read(WebhookEndpoint)
    if not databases or using not in databases:
        return []
    if WebhookEndpoint._meta.db_table not in connections[using].introspection.table_names():
        return []
    tokens = WebhookEndpoint.objects.exclude(secret_token="").values_list("pk", "secret_token")
    unreadable = []
    for pk, token in tokens:
        try:
            decrypt(token)
        except DecryptionError:
            unreadable.append(pk)
    if not unreadable:
        return []
    return [
        checks.Error(
            f"The secrets of {', '.join(unreadable)} cannot be read; their deliveries are answered 503.",
            hint=f'Put the missing key back into {conf.NAME}["ENCRYPTION_KEYS"], or rotate the secrets.',
            id=f"{ID}.E010",
        )
    ]
