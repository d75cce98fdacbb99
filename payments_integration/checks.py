"""Check the project. Each message says what is wrong, each hint what to write instead."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.db import connections, router
from django.urls import NoReverseMatch, get_script_prefix, reverse
from django.utils.module_loading import import_string

from payments_integration import conf, handlers, reconciliation, site_urls
from payments_integration.attention import ACTIONS
from payments_integration.db import characters, sizes
from payments_integration.enums import EVENT_TYPES
from payments_integration.models import Event, WebhookEndpoint
from payments_integration.next_action import codes
from payments_integration.signals import Reason
from payments_integration.validation.urls import LOOPBACK_HOSTS

ID = "payments_integration"
#: Characters of an encryption key: 128 bits in hexadecimal digits.
MIN_KEY = 32


def check_settings(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """E001 to E009, E012, E013: the setting is wrong. E011: USE_TZ is off. E017: a misspelt environment variable.
    E024: WAKE_UP would never be called.
    W001, W008: no account, or no "default". W005: process_events is not scheduled, or not for every account. W009:
    REORDER_WINDOW has no effect. W010: Django REST framework is not installed as an app.
    """
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
    elif not messages:
        messages += _without_effect(raw)
    if not apps.is_installed("rest_framework"):
        messages.append(
            checks.Warning(
                "The app rest_framework is missing from INSTALLED_APPS: errors of the REST API are not translated.",
                hint='Add "rest_framework" to INSTALLED_APPS.',
                id=f"{ID}.W010",
            )
        )
    if not settings.USE_TZ:
        messages.append(
            checks.Error(
                "USE_TZ is off, so the provider's times cannot be stored.",
                hint="Set USE_TZ = True.",
                id=f"{ID}.E011",
            )
        )
    messages += [
        checks.Error(
            f"The environment variable {name} is not read. Did you mean {meant}?",
            hint="Rename it. If it is yours, silence this check.",
            id=f"{ID}.E017",
        )
        for variables in conf.misspelt.values()
        for name, meant in variables.items()
    ]
    if isinstance(raw, Mapping) and (unscheduled := _unscheduled(raw)):
        messages.append(
            checks.Warning(
                f"CELERY_BEAT_SCHEDULE has no process_events for {unscheduled}: an event whose wake-up message is "
                "lost stays unprocessed.",
                hint="Set CELERY_BEAT_SCHEDULE = {**BEAT_SCHEDULE}, or beat_schedule() of all accounts "
                "(payments_integration.schedule). Silence this check if the schedule is stored elsewhere.",
                id=f"{ID}.W005",
            )
        )
    return messages


def _without_effect(raw: Mapping[str, Any]) -> list[checks.CheckMessage]:
    """Return warnings of settings that are valid but do not do what they seem to."""
    messages: list[checks.CheckMessage] = []
    if conf.DEFAULT_ACCOUNT not in raw["ACCOUNTS"]:
        messages.append(
            checks.Warning(
                f'{conf.NAME}["ACCOUNTS"] has no account "{conf.DEFAULT_ACCOUNT}": calls without account=… fail, and '
                "deliveries to webhook/ get 404.",
                hint=f'Name one "{conf.DEFAULT_ACCOUNT}", or silence this check if your calls and URLs name one.',
                id=f"{ID}.W008",
            )
        )
    processing = raw.get("PROCESSING", "inline")
    if raw.get("WAKE_UP") and processing != "worker":
        messages.append(
            checks.Error(
                f'{conf.NAME}["WAKE_UP"] is never called with "PROCESSING": "{processing}".',
                hint='Set "PROCESSING": "worker", or leave WAKE_UP out.',
                id=f"{ID}.E024",
            )
        )
    if raw.get("REORDER_WINDOW") and processing != "celery":
        messages.append(
            checks.Warning(
                f'{conf.NAME}["REORDER_WINDOW"] has no effect with "PROCESSING": "{processing}".',
                hint='Set "PROCESSING": "celery", or leave REORDER_WINDOW out.',
                id=f"{ID}.W009",
            )
        )
    return messages


def check_database(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """E016: times are stored in a zone other than UTC. W002: SQLite's mode of transactions. W015: ATOMIC_REQUESTS."""
    messages: list[checks.CheckMessage] = []
    alias = router.db_for_write(Event)
    for using in dict.fromkeys((alias, router.db_for_read(Event))):
        zone = connections[using].timezone_name
        if not connections[using].features.supports_timezones and zone not in _UTC:
            messages.append(
                checks.Error(
                    f'DATABASES["{using}"]["TIME_ZONE"] is {zone}: the hour that comes twice when clocks are set back '
                    "is stored without its order.",
                    hint="Remove TIME_ZONE, so that times are stored in UTC. Convert the times that are stored "
                    "already: they would be read as UTC.",
                    id=f"{ID}.E016",
                )
            )
    connection = connections[alias]
    if connection.vendor == "sqlite" and connection.settings_dict["OPTIONS"].get("transaction_mode") != "IMMEDIATE":
        messages.append(
            checks.Warning(
                "SQLite's transactions begin in read mode; concurrent writes will fail with “database is locked”.",
                hint='Add "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20} to the database.',
                id=f"{ID}.W002",
            )
        )
    if connection.settings_dict["ATOMIC_REQUESTS"]:
        messages.append(
            checks.Warning(
                f'DATABASES["{alias}"]["ATOMIC_REQUESTS"] is on: a view of yours that calls the provider raises '
                "TransactionRefused.",
                hint="Decorate these views with django.db.transaction.non_atomic_requests, then silence this check. "
                "services.defer works in any view, and returns before the provider answers.",
                id=f"{ID}.W015",
            )
        )
    return messages


_UTC = ("UTC", "Etc/UTC")


def check_webhook_urls(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """E015: a webhook URL is missing from the URLconf, or another route takes its deliveries."""
    if not getattr(settings, "ROOT_URLCONF", None):
        return []
    messages: list[checks.CheckMessage] = []
    for name, arguments in ((f"{ID}:webhook", {}), (f"{ID}:webhook-account", {"account": conf.DEFAULT_ACCOUNT})):
        try:
            url = reverse(name, kwargs=arguments)
        except NoReverseMatch:
            what = f"The webhook URL {name} is not in the URLconf: no delivery can arrive."
            hint = 'Add path("payments/", include("payments_integration.urls")) to urlpatterns of ROOT_URLCONF.'
        else:
            target = site_urls.target("/" + url.removeprefix(get_script_prefix()))
            if target.account is not None:
                continue
            what = f"The webhook URL {url} leads to another view ({target.view or 'none'}): no delivery can arrive."
            hint = 'Move path(…, include("payments_integration.urls")) up, before the route that matches this URL too.'
        messages.append(checks.Error(what, hint=hint, id=f"{ID}.E015"))
    return messages


def check_api(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """E014: an option of the REST API, ORDER_URL or WAKE_UP names what cannot be imported or is of another type. W014:
    there are several accounts, and nothing says who may use which. W026: django-cors-headers refuses or hides headers.
    """
    raw = getattr(settings, conf.NAME, {})
    if any(conf.problems(raw)):
        return []  # reported as E001 to E013
    current = conf.current()
    named = [
        (option, path, method) for option, method in conf.API_CLASSES.items() for path in getattr(current, option)
    ]
    found = [*named, ("API_QUERYSET", current.API_QUERYSET, "")]
    for option in ("API_REFERENCE_CHECK", "API_ACCOUNT_CHECK", "API_PAYMENT", "ORDER_URL", "WAKE_UP"):
        if path := getattr(current, option):
            found.append((option, path, ""))
    messages: list[checks.CheckMessage] = [
        checks.Error(f'{conf.NAME}["{option}"] names {path!r}: {why}.', hint=_API_HINT, id=f"{ID}.E014")
        for option, path, method in found
        if (why := _unusable(path, method))
    ]
    if len(current.ACCOUNTS) > 1 and not current.API_ACCOUNT_CHECK and _is_opened(current):
        messages.append(
            checks.Warning(
                f"There are several accounts, and nothing says who may use which in the REST API: customers, and "
                f'staff under your own API_QUERYSET, may use "{conf.DEFAULT_ACCOUNT}" only.',
                hint=f'Set {conf.NAME}["API_ACCOUNT_CHECK"] to the dotted path of f(user, account) -> bool, or '
                "silence this check.",
                id=f"{ID}.W014",
            )
        )
    return [*messages, *_of_other_origins(current)]


_CORS = "corsheaders.middleware.CorsMiddleware"


def _of_other_origins(current: conf.Settings) -> list[checks.CheckMessage]:
    """Return headers of the REST API that django-cors-headers, by its defaults, keeps from a front end on another
    origin.
    """
    if _CORS not in settings.MIDDLEWARE or not _is_opened(current):
        return []
    # Not imported: the names are from its documentation.
    wanted = {"CORS_ALLOW_HEADERS": ("idempotency-key",), "CORS_EXPOSE_HEADERS": ("request-id", "retry-after")}
    messages: list[checks.CheckMessage] = []
    for option, names in wanted.items():
        allowed = {str(name).lower() for name in getattr(settings, option, ())}
        missing = [name for name in names if not allowed & {name, "*"}]
        if missing:
            what = "refuses a POST with" if option == "CORS_ALLOW_HEADERS" else "hides"
            default = "*corsheaders.defaults.default_headers, " if option == "CORS_ALLOW_HEADERS" else ""
            messages.append(
                checks.Warning(
                    f"A browser {what} {', '.join(missing)} when the REST API is called from another origin.",
                    hint=f"Set {option} = [{default}{', '.join(map(repr, names))}], or silence this check if every "
                    "front end has the site's own origin.",
                    id=f"{ID}.W026",
                )
            )
    return messages


def _is_opened(current: conf.Settings) -> bool:
    """Return True if the REST API lets in others than staff who see all rows."""
    usual = conf.Settings()
    return any(getattr(current, name) != getattr(usual, name) for name in ("API_PERMISSION_CLASSES", "API_QUERYSET"))


_API_HINT = "Correct the dotted path, or leave the option out for the default."


def _unusable(path: str, method: str) -> str:
    """Return why this dotted path is unusable; "" if it works. ``method``: what a class must have; "": a function."""
    try:
        named = import_string(path)
    except Exception as error:  # a module of the project may raise any error
        return f"it cannot be imported ({type(error).__name__}: {error})"
    if not method:
        return "" if callable(named) else "it is not a function"
    is_class = isinstance(named, type) and callable(getattr(named, method, None))
    return "" if is_class else f"it is not a class with a method {method}()"


def check_handlers(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """W006: a handler is registered for an unknown event type or status, or does not take ``**kwargs``."""
    messages: list[checks.CheckMessage] = []
    for handler, model, names in handlers.registered:
        where = f"{handler.__module__}.{getattr(handler, '__qualname__', handler)}"
        known = EVENT_TYPES if model is None else getattr(getattr(model, "Status", None), "values", ())
        unknown = [name for name in names if not any(fnmatchcase(value, name) for value in known)]
        if unknown:
            what = "an event type of the provider" if model is None else f"a status of {model.__name__}"
            messages.append(
                checks.Warning(
                    f"The handler {where} is registered for {', '.join(map(repr, unknown))}, which is not {what}.",
                    hint=f"Known: {', '.join(known)}.",
                    id=f"{ID}.W006",
                )
            )
        kinds = {parameter.kind for parameter in inspect.signature(handler).parameters.values()}
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            messages.append(
                checks.Warning(
                    f"The handler {where} does not take **kwargs.",
                    hint="Add **kwargs: a handler receives more arguments than it names.",
                    id=f"{ID}.W006",
                )
            )
    return messages


def _unscheduled(raw: Any) -> str:
    """Return the accounts without a scheduled process_events, for a message; "" if none, or without Celery."""
    if raw.get("PROCESSING") != "celery":
        return ""
    schedule = getattr(settings, "CELERY_BEAT_SCHEDULE", None) or {}
    entries = [entry for entry in schedule.values() if entry.get("task") == f"{ID}.tasks.process_events"]
    scheduled = {
        (entry.get("kwargs") or {}).get("account") or next(iter(entry.get("args") or ()), None) for entry in entries
    }
    if None in scheduled:
        return ""
    if not scheduled:
        return "any account"
    accounts = raw.get("ACCOUNTS")
    return (
        ", ".join(repr(alias) for alias in accounts if alias not in scheduled) if isinstance(accounts, Mapping) else ""
    )


def check_deployment(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """With ``check --deploy``. W003: a redirect loses deliveries. W004: only SECRET_KEY protects webhook secrets.
    W007: the checkout pages cannot draw codes. W011 to W013: a test key, the address of this machine, a short
    encryption key.
    """
    messages: list[checks.CheckMessage] = []
    if missing := codes.missing_libraries():
        messages.append(
            checks.Warning(
                f"The checkout pages show QR codes and bar codes as text only: {', '.join(missing)} not installed.",
                hint=f"{codes.EXTRA}, or silence this if your payers do not use them.",
                id=f"{ID}.W007",
            )
        )
    if settings.SECURE_SSL_REDIRECT and not settings.SECURE_PROXY_SSL_HEADER and not settings.SECURE_REDIRECT_EXEMPT:
        messages.append(
            checks.Warning(
                "SECURE_SSL_REDIRECT may redirect webhook deliveries; the provider counts a redirect as a failure.",
                hint="Set SECURE_PROXY_SSL_HEADER, or add the webhook's path to SECURE_REDIRECT_EXEMPT.",
                id=f"{ID}.W003",
            )
        )
    if not any(conf.problems(getattr(settings, conf.NAME, {}))):
        messages += _for_development(conf.current())
    return messages


def _for_development(current: conf.Settings) -> list[checks.CheckMessage]:
    """Return warnings of values that are sound on a developer's machine only."""
    messages: list[checks.CheckMessage] = []
    if not current.ENCRYPTION_KEYS:
        messages.append(
            checks.Warning(
                "Webhook secrets are encrypted with a key derived from SECRET_KEY.",
                hint=f'Set {conf.NAME}["ENCRYPTION_KEYS"], so that a new SECRET_KEY does not lose the secrets.',
                id=f"{ID}.W004",
            )
        )
    for account in current.ACCOUNTS.values():
        where = f'{conf.NAME}["ACCOUNTS"]["{account.alias}"]'
        if account.is_test:
            messages.append(
                checks.Warning(
                    f'{where}["API_KEY"] is a test key: no real money moves.',
                    hint="Set the live key. Silence this check on a server that is for tests.",
                    id=f"{ID}.W011",
                )
            )
        if urlsplit(account.base_url).hostname in LOOPBACK_HOSTS:
            messages.append(
                checks.Warning(
                    f'{where}["BASE_URL"] is an address of this machine, such as the sandbox has.',
                    hint="Set the provider's address.",
                    id=f"{ID}.W012",
                )
            )
    if any(len(key) < MIN_KEY for key in current.ENCRYPTION_KEYS):
        messages.append(
            checks.Warning(
                f'{conf.NAME}["ENCRYPTION_KEYS"] has a key of fewer than {MIN_KEY} characters, which can be guessed.',
                hint="Put a long one first, for example of secrets.token_urlsafe(32). Rotate each endpoint's secret, "
                "then remove the short key.",
                id=f"{ID}.W013",
            )
        )
    return messages


#: Survives only if the variables of our frames, or the request bodies of our pages, are sent to Sentry.
_PROBE = "probe of payments_integration"


def check_sentry(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """With ``check --deploy``. W030: Sentry is active, and would be sent payers' data and secrets."""
    # Not imported: a project that uses Sentry has initialised it in its settings.
    sdk: Any = sys.modules.get("sentry_sdk")
    client = sdk.get_client() if hasattr(sdk, "get_client") else None
    if client is None or not client.is_active():
        return []
    options = client.options
    wanted = ["before_send"]
    if options.get("traces_sample_rate") is not None or options.get("traces_sampler") is not None:
        wanted.append("before_send_transaction")
    unsafe = [name for name in wanted if not _removes_data(name, options.get(name))]
    if not unsafe:
        return []
    return [
        checks.Warning(
            f"Sentry would receive payers' data and secrets: {' and '.join(unsafe)} does not remove them.",
            hint=f"Set {', '.join(f'{name}=before_send' for name in unsafe)} in sentry_sdk.init() "
            "(payments_integration.contrib.sentry), or call it from your own function.",
            id=f"{ID}.W030",
        )
    ]


def _removes_data(name: str, function: Any) -> bool:
    """Return True if the function removes what it must. Tries it, because a project's own function may call ours."""
    if function is None:
        return False
    payer = {"payer": {"name": _PROBE}}
    probe: dict[str, Any] = {"request": {"method": "POST", "url": "https://example.com/", "data": payer}}
    if name == "before_send":
        frame = {"module": f"{ID}.services", "function": "create_payment", "vars": {"note": repr(_PROBE)}}
        error = {"type": "OutcomeUnknown", "module": f"{ID}.exceptions", "stacktrace": {"frames": [frame]}}
        probe |= {"level": "error", "exception": {"values": [error]}}
    else:
        probe |= {"type": "transaction", "spans": [{"op": "http.client", "description": "POST", "data": payer}]}
    try:
        return _PROBE not in repr(function(probe, {}))
    except Exception:
        return False


def check_keys(
    app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """With ``check --database``. E010: no key can read a stored webhook secret."""
    using = router.db_for_read(WebhookEndpoint)
    if not databases or using not in databases:
        return []
    if WebhookEndpoint._meta.db_table not in connections[using].introspection.table_names():
        return []
    # Imports a large library, which starting the app does not need.
    from payments_integration.projection import has_unreadable_secret  # noqa: PLC0415

    stored = WebhookEndpoint.objects.exclude(secret_token="").order_by("pk")
    unreadable = [row.pk for row in stored if has_unreadable_secret(row)]
    if not unreadable:
        return []
    return [
        checks.Error(
            f"No key can read the secrets of {', '.join(unreadable)}; deliveries that they sign get 503.",
            hint=f'Put the missing key back into {conf.NAME}["ENCRYPTION_KEYS"], or rotate the secrets.',
            id=f"{ID}.E010",
        )
    ]


def check_endpoints(
    app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """With ``check --deploy --database``. W025: an account has neither a webhook endpoint nor a secret."""
    using = router.db_for_read(WebhookEndpoint)
    if not databases or using not in databases or any(conf.problems(getattr(settings, conf.NAME, {}))):
        return []
    if WebhookEndpoint._meta.db_table not in connections[using].introspection.table_names():
        return []
    active = WebhookEndpoint.objects.filter(deleted_at=None, gone_at=None)
    registered = set(active.values_list("account", flat=True).distinct())
    return [
        checks.Warning(
            f"No webhook endpoint of the account {account.alias} is known, and it has no WEBHOOK_SECRETS: no delivery "
            "can arrive, so changes show minutes later.",
            hint="Register the site's public address: manage.py payments_endpoints create "
            "https://…/payments/webhook/ (with --account for another one than default).",
            id=f"{ID}.W025",
        )
        for account in conf.current().ACCOUNTS.values()
        if account.alias not in registered and not account.webhook_secrets
    ]


def check_storage(
    app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """With ``check --database``. W016: the database cannot store every character. E023: nor every webhook body.

    E025: a node of a cluster may be read before it has what another one has committed.
    """
    using = router.db_for_write(Event)
    if not databases or using not in databases:
        return []
    messages: list[checks.CheckMessage] = []
    names = {characters.character_set(using), characters.of_connection(using)} - characters.COMPLETE
    if names:
        messages.append(
            checks.Warning(
                f"The database takes texts as {' and '.join(sorted(names))}: an event with another character, such as "
                "an emoji in a refund's reason, is quarantined, and a sweep leaves out its object.",
                hint='Use a database in utf8mb4 with "OPTIONS": {"charset": "utf8mb4"} (MariaDB), or with ENCODING '
                "'UTF8' (PostgreSQL). docs/install.md shows how to convert the columns on MariaDB.",
                id=f"{ID}.W016",
            )
        )
    most = sizes.packet(using)
    if most is not None and not any(conf.problems(getattr(settings, conf.NAME, {}))):
        # Quotes and line breaks of a body are sent as two bytes each.
        needed = 2 * conf.current().MAX_WEBHOOK_BYTES
        if needed > most:
            messages.append(
                checks.Error(
                    f'{conf.NAME}["MAX_WEBHOOK_BYTES"] allows bodies that may take a statement of {needed} bytes, and '
                    f"the database's max_allowed_packet is {most}: such a delivery cannot be stored.",
                    hint=f"Set max_allowed_packet of the server to {needed} or more, or MAX_WEBHOOK_BYTES to at most "
                    f"{most // 2}.",
                    id=f"{ID}.E023",
                )
            )
    if _may_be_behind(using):
        messages.append(
            checks.Error(
                "The database is a Galera cluster, and reads do not wait for what another node has committed: after a "
                "failover, a call that was sent may pass for one that was not.",
                hint='Set "OPTIONS": {"init_command": "SET SESSION wsrep_sync_wait = 1"} for the database.',
                id=f"{ID}.E025",
            )
        )
    return messages


def _may_be_behind(using: str) -> bool:
    """Return True if the connection leads to a node of a Galera cluster and its reads do not wait for other nodes."""
    if connections[using].vendor != "mysql":
        return False
    with connections[using].cursor() as cursor:
        cursor.execute("SHOW VARIABLES WHERE Variable_name IN ('wsrep_on', 'wsrep_sync_wait')")
        found = dict(cursor.fetchall())
    return found.get("wsrep_on") == "ON" and not int(found["wsrep_sync_wait"]) & 1


def check_accounts(
    app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """With ``check --database``. E018: a key was replaced by one of another project. E019: rows
    belong to an alias that is not configured.
    """
    if (
        not databases
        or router.db_for_read(Event) not in databases
        or any(conf.problems(getattr(settings, conf.NAME, {})))
    ):
        return []
    # Not imported at the start: only these checks read the mirror.
    from payments_integration import projection  # noqa: PLC0415

    stored, configured = reconciliation.stored_accounts(), conf.current().ACCOUNTS
    unknown = [alias for alias in stored if alias not in configured]
    replaced = projection.replaced_keys([alias for alias in stored if alias in configured])
    messages: list[checks.CheckMessage] = [
        checks.Error(
            f"{why}. Every call and pass is refused, and deliveries wait, because the objects of two projects would "
            "be mixed.",
            hint=f"To do: {ACTIONS[Reason.KEY_REPLACED]}.",
            id=f"{ID}.E018",
        )
        for why in replaced.values()
    ]
    if not unknown:
        return messages
    return [
        *messages,
        checks.Error(
            f"Rows belong to accounts that are not configured: {', '.join(unknown)}. A renamed account is a stranger: "
            "events about its objects are quarantined, and its keys protect no call.",
            hint="If you renamed it, run manage.py payments_rename_account OLD NEW before you start anything. "
            "Otherwise configure it again; if it is closed for good, silence this check.",
            id=f"{ID}.E019",
        ),
    ]
