"""Check the project. Each message says what is wrong, each hint what to write instead."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.db import connections, router
from django.db.models import Model
from django.db.models.signals import post_save, pre_save
from django.template import TemplateDoesNotExist, TemplateSyntaxError
from django.template.loader import get_template
from django.urls import NoReverseMatch
from django.utils import timezone
from django.utils.module_loading import import_string, module_has_submodule

from payments_integration import conf, handlers, reconciliation, site_urls
from payments_integration.attention import ACTIONS
from payments_integration.db import fields, sizes
from payments_integration.db.transactions import non_atomic_requests
from payments_integration.enums import EVENT_TYPES
from payments_integration.models import MIRRORS, AccountState, Event, WebhookEndpoint
from payments_integration.next_action import codes
from payments_integration.schedule import EXPIRES, LIMITS
from payments_integration.signals import Reason
from payments_integration.validation.urls import LOOPBACK_HOSTS

ID = "payments_integration"
#: Characters of an encryption key: 128 bits in hexadecimal digits.
MIN_KEY = 32

Messages = Iterator[checks.CheckMessage]
Check = Callable[..., list[checks.CheckMessage]]


def _registered(tag: str, **options: bool) -> Callable[[Callable[..., Messages]], Check]:
    """Register a check that yields its messages. Django calls each check with the same options."""

    def register(check: Callable[..., Messages]) -> Check:
        @checks.register(tag, **options)
        @wraps(check)
        def listed(app_configs: Any = None, **options: Any) -> list[checks.CheckMessage]:
            return list(check(**options))

        return listed

    return register


def _error(number: str, message: str, *, hint: str) -> checks.Error:
    return checks.Error(message, hint=hint, id=f"{ID}.{number}")


def _warning(number: str, message: str, *, hint: str) -> checks.Warning:
    return checks.Warning(message, hint=hint, id=f"{ID}.{number}")


def _settings_are_wrong() -> bool:
    """Return True if ``check_settings`` reports the setting. Other checks then cannot read it."""
    return any(conf.problems(getattr(settings, conf.NAME, {})))


@_registered(checks.Tags.compatibility)
def check_settings(**options: Any) -> Messages:
    """Check the app's setting (E001 to E013 as ``conf.problems``), and the settings that it needs to work."""
    raw = getattr(settings, conf.NAME, {})
    problems = list(conf.problems(raw))
    for problem in problems:
        yield _error(problem.id, problem.message, hint=problem.hint)
    if not problems and not raw.get("ACCOUNTS"):
        yield _warning("W001", f"{conf.NAME} has no account.", hint="manage.py payments_quickstart shows what to add.")
    elif not problems:
        yield from _without_effect(raw)
        yield from _shared_secrets(raw["ACCOUNTS"])
        if raw.get("PROCESSING") == "celery":
            yield from _about_celery(raw["ACCOUNTS"])
    if not apps.is_installed("rest_framework"):
        yield _warning(
            "W010",
            "The app rest_framework is missing from INSTALLED_APPS: errors of the REST API are not translated.",
            hint='Add "rest_framework" to INSTALLED_APPS.',
        )
    if not settings.USE_TZ:
        yield _error(
            "E011",
            "USE_TZ is off, so the provider's times cannot be stored.",
            hint="Set USE_TZ = True. Convert the times that SQLite or MariaDB has stored already: they would be read "
            "as UTC.",
        )
    for variables in conf.misspelt.values():
        for name, (why, hint) in variables.items():
            yield _error(
                "E017",
                f"The environment variable {name} is not read. {why}",
                hint=f"{hint} If it is yours, silence this check.",
            )


def _shared_secrets(accounts: Mapping[str, Any]) -> Messages:
    owners: dict[str, str] = {}
    for alias, entry in accounts.items():
        for secret in entry.get("WEBHOOK_SECRETS", ()):
            if (owner := owners.setdefault(secret, alias)) != alias:
                yield _warning(
                    "W034",
                    f"{alias} and {owner} have a webhook secret in common: at the URL of one account, deliveries of "
                    "the other are taken for its own.",
                    hint="Each endpoint has its own secret: give each account only those of its endpoints.",
                )


def _about_celery(accounts: Collection[str]) -> Messages:
    # A thread publishes wake-ups, with this app. Without a project's app Celery makes one, which reads its broker
    # from these variables.
    app = _default_celery_app()
    has_broker = app is not None and (app.conf.broker_write_url or any(map(app.conf.get, _NAMING_A_BROKER)))
    if not (has_broker or any(map(os.environ.get, ("CELERY_BROKER_URL", "CELERY_BROKER_WRITE_URL")))):
        yield _warning(
            "W029",
            "No Celery app with a broker is loaded, so wake-ups go to a broker on this machine, not to yours.",
            hint="Set CELERY_BROKER_URL. Import your app in the __init__.py of its package: "
            "from yourproject.celery import app.",
        )
    if unscheduled := _unscheduled(accounts):
        yield _warning(
            "W005",
            f"The schedule of Celery's beat has no process_events for {unscheduled}: an event whose wake-up message "
            "is lost stays unprocessed.",
            hint="Set CELERY_BEAT_SCHEDULE = {**BEAT_SCHEDULE}, or beat_schedule() of all accounts "
            '(payments_integration.schedule), and read the settings with namespace="CELERY". Silence this check if '
            "the schedule is stored elsewhere.",
        )
    if limited := [task for task, limit in _annotated("rate_limit").items() if limit not in (None, 0, "0")]:
        yield _warning(
            "W027",
            f"CELERY_TASK_ANNOTATIONS limits the rate of {', '.join(limited)}: while messages come faster, they "
            "expire before they may run, and nothing is processed.",
            hint=f'Limit your own tasks by name, or add "{ID}.tasks.{limited[0]}": {{"rate_limit": "0"}} to it, and '
            "the same for each of these.",
        )
    if cut := _cut_short():
        yield _warning(
            "W028",
            f"CELERY_TASK_ANNOTATIONS limits the time of {', '.join(cut)}: a sweep that takes longer never ends.",
            hint="Limit your own tasks by name, or by CELERY_TASK_TIME_LIMIT, which does not affect these.",
        )


def _without_effect(raw: Mapping[str, Any]) -> Messages:
    """Return warnings of settings that are valid but do not do what they seem to."""
    if conf.DEFAULT_ACCOUNT not in raw["ACCOUNTS"]:
        yield _warning(
            "W008",
            f'{conf.NAME}["ACCOUNTS"] has no account "{conf.DEFAULT_ACCOUNT}": calls without account=… fail, and '
            "deliveries to webhook/ get 404.",
            hint=f'Name one "{conf.DEFAULT_ACCOUNT}", or silence this check if your calls and URLs name one.',
        )
    for alias, entry in raw["ACCOUNTS"].items():
        if (since := entry.get("DISPATCH_SINCE")) is not None and since > timezone.now():
            yield _warning(
                "W032",
                f'{conf.NAME}["ACCOUNTS"]["{alias}"]["DISPATCH_SINCE"] is in the future: no handler is ever called '
                "for what happens until then.",
                hint="Set it to a time that has passed, or leave it out.",
            )
    most, limit = conf.current().MAX_WEBHOOK_BYTES, settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    if limit is not None and limit < most:
        yield _warning(
            "W035",
            f'{conf.NAME}["MAX_WEBHOOK_BYTES"] allows deliveries of {most} bytes, and DATA_UPLOAD_MAX_MEMORY_SIZE is '
            f"{limit}: Django refuses a larger delivery with 413, so it is never stored.",
            hint=f"Set DATA_UPLOAD_MAX_MEMORY_SIZE to {most} or more.",
        )
    processing = raw.get("PROCESSING", "inline")
    # django-tenants' setting. Not imported: the name is from its documentation.
    if processing != "inline" and any(f"{app}.".startswith(f"{ID}.") for app in getattr(settings, "TENANT_APPS", ())):
        yield _error(
            "E027",
            f'{conf.NAME}["PROCESSING"] is "{processing}" and each tenant has its own tables (TENANT_APPS): tasks and '
            "workers reconcile in the public schema, so what a tenant has missed is not found.",
            hint='Set "PROCESSING": "inline", and run payments_process for each tenant.',
        )
    if raw.get("WAKE_UP") and processing != "worker":
        yield _error(
            "E024",
            f'{conf.NAME}["WAKE_UP"] is never called with "PROCESSING": "{processing}".',
            hint='Set "PROCESSING": "worker", or leave WAKE_UP out.',
        )
    if raw.get("REORDER_WINDOW") and processing != "celery":
        yield _warning(
            "W009",
            f'{conf.NAME}["REORDER_WINDOW"] has no effect with "PROCESSING": "{processing}".',
            hint='Set "PROCESSING": "celery", or leave REORDER_WINDOW out.',
        )


@_registered(checks.Tags.compatibility)
def check_database(**options: Any) -> Messages:
    """Check the database's options, and the libraries between it and the app."""
    alias = router.db_for_write(Event)
    for using in dict.fromkeys((alias, router.db_for_read(Event))):
        zone = connections[using].timezone_name
        # Without USE_TZ it is the site's zone, and not an option of the database: E011 says what to do.
        if settings.USE_TZ and not connections[using].features.supports_timezones and zone not in _UTC:
            yield _error(
                "E016",
                f'DATABASES["{using}"]["TIME_ZONE"] is {zone}: the hour that comes twice when clocks are set back '
                "is stored without its order.",
                hint="Remove TIME_ZONE, so that times are stored in UTC. Convert the times that are stored "
                "already: they would be read as UTC.",
            )
    connection = connections[alias]
    if connection.vendor == "sqlite" and connection.settings_dict["OPTIONS"].get("transaction_mode") != "IMMEDIATE":
        yield _warning(
            "W002",
            "SQLite's transactions begin in read mode; concurrent writes will fail with “database is locked”.",
            hint=f'Add "OPTIONS": {{"transaction_mode": "IMMEDIATE", "timeout": 20}} to DATABASES["{alias}"].',
        )
    if connection.settings_dict["ATOMIC_REQUESTS"]:
        yield _warning(
            "W015",
            f'DATABASES["{alias}"]["ATOMIC_REQUESTS"] is on: a view of yours that calls the provider raises '
            "TransactionRefused.",
            hint=f"Decorate these views with {non_atomic_requests(alias)}, then silence this check. "
            "services.defer works in any view, and returns before the provider answers.",
        )
    ours = [model for model in apps.get_models() if f"{model._meta.app_config.name}.".startswith(f"{ID}.")]
    for library, is_cached, hint in (
        ("cacheops", _is_in_cacheops, 'CACHEOPS[f"{app}.*"] = None for each app'),
        ("cachalot", _is_in_cachalot, "CACHALOT_UNCACHABLE_APPS to a list of apps with these"),
    ):
        if not apps.is_installed(library):
            continue
        if labels := dict.fromkeys(model._meta.app_label for model in ours if is_cached(model)):
            yield _error(
                "E026",
                f"{library} answers reads of {', '.join(labels)} from a cache, which shows a payment as it was: the "
                "app writes with SQL, and other processes write meanwhile.",
                hint=f"Set {hint}: {', '.join(map(repr, labels))}.",
            )


_UTC = ("UTC", "Etc/UTC")


# Not imported: the names of these settings are from the libraries' documentation.
def _is_in_cacheops(model: type[Model]) -> bool:
    profiles = {name.lower(): profile for name, profile in getattr(settings, "CACHEOPS", {}).items()}
    names = (model._meta.label_lower, f"{model._meta.app_label}.*", "*.*")
    profile = next((profiles[name] for name in names if name in profiles), None)
    return profile is not None and bool({**getattr(settings, "CACHEOPS_DEFAULTS", {}), **profile}.get("ops"))


def _is_in_cachalot(model: type[Model]) -> bool:
    def lists(kind: str) -> bool:
        apps_, tables = (getattr(settings, f"CACHALOT_{kind}_{of}", ()) for of in ("APPS", "TABLES"))
        return model._meta.app_label in apps_ or model._meta.db_table in tables

    limits = (getattr(settings, f"CACHALOT_ONLY_CACHABLE_{of}", ()) for of in ("APPS", "TABLES"))
    return (
        getattr(settings, "CACHALOT_ENABLED", True)
        and not lists("UNCACHABLE")
        and (lists("ONLY_CACHABLE") or not any(limits))
    )


@_registered(checks.Tags.urls)
def check_webhook_urls(**options: Any) -> Messages:
    """Check that deliveries reach the webhook view."""
    if not getattr(settings, "ROOT_URLCONF", None):
        return
    for name, arguments in ((f"{ID}:webhook", {}), (f"{ID}:webhook-account", {"account": conf.DEFAULT_ACCOUNT})):
        try:
            url = site_urls.path_of(name, kwargs=arguments)
        except NoReverseMatch:
            what = f"The webhook URL {name} is not in the URLconf: no delivery can arrive."
            hint = (
                'Add path("payments/", include("payments_integration.urls")) to urlpatterns of ROOT_URLCONF. '
                "manage.py payments_quickstart --write does it."
            )
        else:
            if not arguments and site_urls.depends_on_language(name):
                yield _warning(
                    "W018",
                    f"The webhook URL {url} begins with a language: a delivery to an address without one is lost.",
                    hint='Move path(…, include("payments_integration.urls")) out of i18n_patterns().',
                )
            target = site_urls.target(url)
            if target.account is not None:
                continue
            what = f"The webhook URL {url} leads to another view ({target.view or 'none'}): no delivery can arrive."
            hint = 'Move path(…, include("payments_integration.urls")) up, before the route that matches this URL too.'
        yield _error("E015", what, hint=hint)
        return  # one include has both URLs


@_registered(checks.Tags.security)
def check_api(**options: Any) -> Messages:
    """Check what the options name, and who may use the REST API from where."""
    if _settings_are_wrong():
        return  # reported as E001 to E013
    current = conf.current()
    found = [
        (option, path, method) for option, method in conf.API_CLASSES.items() for path in getattr(current, option)
    ]
    found += [(option, path, "") for option in conf.FUNCTIONS if (path := getattr(current, option))]
    for option, path, method in found:
        if why := _unusable(path, method):
            yield _error("E014", f'{conf.NAME}["{option}"] names {path!r}: {why}.', hint=_API_HINT)
    if len(current.ACCOUNTS) > 1 and not current.API_ACCOUNT_CHECK and _is_opened(current):
        yield _warning(
            "W014",
            f"There are several accounts, and nothing says who may use which in the REST API: customers, and "
            f'staff under your own API_QUERYSET, may use "{conf.DEFAULT_ACCOUNT}" only.',
            hint=f'Set {conf.NAME}["API_ACCOUNT_CHECK"] to the dotted path of f(user, account) -> bool, or '
            "silence this check.",
        )
    yield from _of_other_origins(current)


_CORS = "corsheaders.middleware.CorsMiddleware"


def _of_other_origins(current: conf.Settings) -> Messages:
    """Return headers of the REST API that django-cors-headers, by its defaults, keeps from a front end on another
    origin.
    """
    if _CORS not in settings.MIDDLEWARE or not _is_opened(current):
        return
    # Not imported: the names are from its documentation.
    wanted = {"CORS_ALLOW_HEADERS": ("idempotency-key",), "CORS_EXPOSE_HEADERS": ("request-id", "retry-after")}
    for option, names in wanted.items():
        allowed = {str(name).lower() for name in getattr(settings, option, ())}
        missing = [name for name in names if not allowed & {name, "*"}]
        if missing:
            what = "refuses a POST with" if option == "CORS_ALLOW_HEADERS" else "hides"
            default = "*corsheaders.defaults.default_headers, " if option == "CORS_ALLOW_HEADERS" else ""
            yield _warning(
                "W026",
                f"A browser {what} {', '.join(missing)} when the REST API is called from another origin.",
                hint=f"Set {option} = [{default}{', '.join(map(repr, names))}], or silence this check if every "
                "front end has the site's own origin.",
            )


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
        if inspect.iscoroutinefunction(named):
            return "it is async, and nothing awaits it"
        return "" if callable(named) else "it is not a function"
    is_class = isinstance(named, type) and callable(getattr(named, method, None))
    return "" if is_class else f"it is not a class with a method {method}()"


#: The module that is found in each installed app, and a name that is easily given to it.
_HANDLERS = ("payment_handlers", "payments_handlers")


@_registered(checks.Tags.compatibility)
def check_handlers(**options: Any) -> Messages:
    """Check that the project's handlers and receivers are called, and can be."""
    for mirror in MIRRORS.values():
        # Receivers for every model, such as an audit log's, are not meant for payments alone.
        if any(key[1] == id(mirror) for signal in (pre_save, post_save) for key, *_ in signal.receivers):
            yield _warning(
                "W017",
                f"A receiver of pre_save or post_save for {mirror.__name__} does not see what events write.",
                hint="Use on_status, on_event or signals.on_mirror_written.",
            )
    for handler, model, names in handlers.registered:
        where = f"{handler.__module__}.{getattr(handler, '__qualname__', handler)}"
        known = EVENT_TYPES if model is None else getattr(getattr(model, "Status", None), "values", ())
        # Only a type may be a pattern.
        types = known if model is None else ()
        unknown = [name for name in names if name not in known and not any(fnmatchcase(each, name) for each in types)]
        if unknown:
            what = "an event type of the provider" if model is None else f"a status of {model.__name__}"
            yield _warning(
                "W006",
                f"The handler {where} is registered for {', '.join(map(repr, unknown))}, which is not {what}.",
                hint=f"Known: {', '.join(known)}.",
            )
        signature = handlers.signature_of(handler)
        if signature and inspect.Parameter.VAR_KEYWORD not in {each.kind for each in signature.parameters.values()}:
            yield _warning(
                "W006",
                f"The handler {where} does not take **kwargs.",
                hint="Add **kwargs: a handler receives more arguments than it names.",
            )
    # A project's own package is often no app.
    project = str(getattr(settings, "ROOT_URLCONF", "")).partition(".")[0]
    for package in {*(config.name for config in apps.get_app_configs()), project} & sys.modules.keys():
        for module in _HANDLERS:
            if f"{package}.{module}" not in sys.modules and module_has_submodule(sys.modules[package], module):
                yield _warning(
                    "W033",
                    f"Nothing imports {package}.{module}: its handlers are never called.",
                    hint=f"Call it {_HANDLERS[0]}.py, and list its app in INSTALLED_APPS.",
                )


@_registered(checks.Tags.compatibility)
def check_orders(**options: Any) -> Messages:
    """W031: a project has orders, and no code of it is called when a payment succeeds."""
    # Imported here: every process imports this module.
    from payments_integration.payable import Payable  # noqa: PLC0415

    orders = [model._meta.label for model in apps.get_models() if issubclass(model, Payable)]
    if orders and not handlers.follow_payments():
        yield _warning(
            "W031",
            f"No handler is called when a payment succeeds: {', '.join(sorted(orders))} does not learn that it is "
            "paid.",
            hint="Decorate one with on_status(Payment) in a module payment_handlers.py of an installed app. Silence "
            "this check if your code asks is_paid() instead.",
        )


#: Settings of Celery that say where messages go, beside the address.
_NAMING_A_BROKER = (
    "broker_transport", "broker_port", "broker_user", "broker_password", "broker_vhost", "task_always_eager",
)  # fmt: skip


def _celery_app() -> Any:
    """Return the project's Celery app, of several the last; None if it has none, or has not imported it."""
    # Not imported: a project that uses Celery has made its app by now.
    state: Any = sys.modules.get("celery._state")
    # Not ``current_app``, which makes an app if there is none, and a project's own could then not take its place.
    app = None if state is None else state._tls.current_app
    return app if app is not None and app.fixups else _default_celery_app()


def _default_celery_app() -> Any:
    """Return the project's Celery app that threads other than the main one use, of several usually the first."""
    app: Any = getattr(sys.modules.get("celery._state"), "default_app", None)
    # An app that Celery makes has no fix-ups. A project's app has the one for Django.
    return app if app is not None and app.fixups else None


def _of_celery(name: str) -> Any:
    """Return a setting as the project's Celery app has it: its namespace may be another one, its code may set more."""
    app = _celery_app()
    return getattr(settings, f"CELERY_{name.upper()}", None) if app is None else app.conf.get(name)


def _unscheduled(accounts: Collection[str]) -> str:
    """Return the accounts without a scheduled process_events, for a message; "" if none."""
    # Beat may run for either of two apps.
    default = _default_celery_app()
    schedules = (_of_celery("beat_schedule"), None if default is None else default.conf.beat_schedule)
    # Celery also takes its own objects (celery.beat.ScheduleEntry), which have these as attributes.
    entries = [
        entry if isinstance(entry, Mapping) else vars(entry)
        for schedule in schedules
        for entry in (schedule or {}).values()
    ]
    scheduled = {
        (entry.get("kwargs") or {}).get("account") or next(iter(entry.get("args") or ()), None)
        for entry in entries
        if entry.get("task") == f"{ID}.tasks.process_events"
    }
    if None in scheduled:
        return ""
    if not scheduled:
        return "any account"
    return ", ".join(repr(alias) for alias in accounts if alias not in scheduled)


def _annotated(option: str) -> dict[str, Any]:
    """Return what annotations give the app's tasks, by task. Celery applies "*", then what names the task."""
    annotations = _of_celery("task_annotations") or ()
    found: dict[str, Any] = {}
    for annotation in annotations if isinstance(annotations, list | tuple) else [annotations]:
        if isinstance(annotation, Mapping):
            for task in EXPIRES:
                for name in ("*", f"{ID}.tasks.{task}"):
                    found[task] = (annotation.get(name) or {}).get(option, found.get(task))
    return found


def _cut_short() -> list[str]:
    """Return the app's tasks that annotations give a shorter time than they may need."""
    limits = [_annotated(option) for option in ("soft_time_limit", "time_limit")]
    return [task for task, needed in LIMITS.items() if any(0 < (each.get(task) or needed) < needed for each in limits)]


@_registered(checks.Tags.security, deploy=True)
def check_deployment(**options: Any) -> Messages:
    """With ``check --deploy``. W003: a redirect loses deliveries. W004: only SECRET_KEY protects webhook secrets.
    W007: the checkout pages cannot be shown, or draw no codes. W011 to W013: a test key, the address of this
    machine, a short encryption key.
    """
    try:
        get_template("payments_integration/checkout/status.html")
    except TemplateDoesNotExist:
        yield _warning(
            "W007",
            "The checkout pages, such as status_url, answer 500: TEMPLATES finds none of this app's templates.",
            hint="Add DjangoTemplates with APP_DIRS, or silence this if you send no payer to them.",
        )
    except (TemplateSyntaxError, UnicodeDecodeError) as error:
        yield _warning(
            "W007",
            f"The checkout pages, such as status_url, answer 500: {error}",
            hint="Correct your template payments_integration/checkout/status.html.",
        )
    if missing := codes.missing_libraries():
        yield _warning(
            "W007",
            f"The checkout pages show QR codes and bar codes as text only: {', '.join(missing)} not installed.",
            hint=f"{codes.EXTRA}, or silence this if your payers do not use them.",
        )
    if not _settings_are_wrong():
        yield from _redirecting(conf.current())
        yield from _for_development(conf.current())


def _redirecting(current: conf.Settings) -> Messages:
    """Return warnings of settings that redirect deliveries: the provider counts a redirect as a failure."""
    if settings.SECURE_SSL_REDIRECT and not settings.SECURE_PROXY_SSL_HEADER:
        paths = list(filter(None, map(site_urls.webhook_path, current.ACCOUNTS)))
        exempt = settings.SECURE_REDIRECT_EXEMPT
        # As SecurityMiddleware does it.
        if found := [path for path in paths if not any(re.search(each, path.lstrip("/")) for each in exempt)]:
            yield _warning(
                "W003",
                f"SECURE_SSL_REDIRECT may redirect webhook deliveries to {', '.join(found)}; the provider counts a "
                "redirect as a failure.",
                hint="Set SECURE_PROXY_SSL_HEADER, or add the webhook's path to SECURE_REDIRECT_EXEMPT, without its "
                "first slash.",
            )
    if settings.PREPEND_WWW:
        yield _warning(
            "W003",
            "PREPEND_WWW redirects webhook deliveries if their address has no www.; the provider counts a redirect "
            "as a failure.",
            hint="Create the endpoint with the www. address and silence this, or redirect in the proxy, with an "
            "exception for the webhook's path.",
        )


def _for_development(current: conf.Settings) -> Messages:
    """Return warnings of values that are sound on a developer's machine only."""
    if not current.ENCRYPTION_KEYS:
        yield _warning(
            "W004",
            "Webhook secrets are encrypted with a key derived from SECRET_KEY.",
            hint=f'Set {conf.NAME}["ENCRYPTION_KEYS"], so that a new SECRET_KEY does not lose the secrets.',
        )
    for account in current.ACCOUNTS.values():
        where = f'{conf.NAME}["ACCOUNTS"]["{account.alias}"]'
        if account.is_test:
            yield _warning(
                "W011",
                f'{where}["API_KEY"] is a test key: no real money moves.',
                hint="Set the live key. Silence this check on a server that is for tests.",
            )
        if urlsplit(account.base_url).hostname in LOOPBACK_HOSTS:
            yield _warning(
                "W012",
                f'{where}["BASE_URL"] is an address of this machine, such as the sandbox has.',
                hint="Set the provider's address.",
            )
    if any(len(key) < MIN_KEY for key in current.ENCRYPTION_KEYS):
        yield _warning(
            "W013",
            f'{conf.NAME}["ENCRYPTION_KEYS"] has a key of fewer than {MIN_KEY} characters, which can be guessed.',
            hint="Put a long one first, for example of secrets.token_urlsafe(32). Rotate each endpoint's secret, "
            "then remove the short key.",
        )


#: Survives only if the variables of our frames, or the request bodies of our pages, are sent to Sentry.
_PROBE = "probe of payments_integration"


@_registered(checks.Tags.security, deploy=True)
def check_sentry(**options: Any) -> Messages:
    """With ``check --deploy``. W030: Sentry is active, and would be sent payers' data and secrets."""
    # Not imported: a project that uses Sentry has initialised it in its settings.
    sdk: Any = sys.modules.get("sentry_sdk")
    client = sdk.get_client() if hasattr(sdk, "get_client") else None
    if client is None or not client.is_active():
        return
    chosen = client.options
    wanted = ["before_send"]
    if chosen.get("traces_sample_rate") is not None or chosen.get("traces_sampler") is not None:
        wanted.append("before_send_transaction")
    if unsafe := [name for name in wanted if not _removes_data(name, chosen.get(name))]:
        yield _warning(
            "W030",
            f"Sentry would receive payers' data and secrets: {' and '.join(unsafe)} does not remove them.",
            hint=f"Set {', '.join(f'{name}=before_send' for name in unsafe)} in sentry_sdk.init() "
            "(payments_integration.contrib.sentry), or call it from your own function.",
        )


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


@_registered(checks.Tags.database)
def check_keys(databases: Collection[str] | None = None, **options: Any) -> Messages:
    """With ``check --database``. E010: no key can read a stored webhook secret."""
    if _settings_are_wrong() or not _may_read(WebhookEndpoint, databases):
        return
    # Imports a large library, which starting the app does not need.
    from payments_integration.projection import has_unreadable_secret  # noqa: PLC0415

    stored = WebhookEndpoint.objects.exclude(secret_token="").order_by("pk")
    if unreadable := [row.pk for row in stored if has_unreadable_secret(row)]:
        yield _error(
            "E010",
            f"No key can read the secrets of {', '.join(unreadable)}; deliveries that they sign get 503.",
            hint=f'Put the missing key back into {conf.NAME}["ENCRYPTION_KEYS"] (without that setting: the old '
            "SECRET_KEY into SECRET_KEY_FALLBACKS), or rotate the secrets. If this is a copy of another site's "
            "database, silence this check: no delivery comes here.",
        )


@_registered(checks.Tags.database, deploy=True)
def check_endpoints(databases: Collection[str] | None = None, **options: Any) -> Messages:
    """With ``check --deploy --database``. W025: an account has neither a webhook endpoint nor a secret."""
    if _settings_are_wrong() or not _may_read(WebhookEndpoint, databases):
        return
    active = WebhookEndpoint.objects.filter(deleted_at=None, gone_at=None)
    registered = {row.account for row in active if not reconciliation.is_elsewhere(row)}
    for account in conf.current().ACCOUNTS.values():
        if account.alias not in registered and not account.webhook_secrets:
            path = site_urls.webhook_path(account.alias) or "/payments/webhook/"
            option = "" if account.alias == conf.DEFAULT_ACCOUNT else f" --account {account.alias}"
            yield _warning(
                "W025",
                f"No webhook endpoint of the account {account.alias} is known, and it has no WEBHOOK_SECRETS: no "
                "delivery can arrive, so changes show minutes later.",
                hint=f"Register the site's public address: manage.py payments_endpoints create https://…{path}{option}",
            )


def _may_read(model: type[Model], databases: Collection[str] | None) -> bool:
    """Return True if the check may read the model's table, and it exists: it does not before the first migrate."""
    using = router.db_for_read(model)
    if not databases or using not in databases:
        return False
    return model._meta.db_table in connections[using].introspection.table_names()


@_registered(checks.Tags.database)
def check_storage(databases: Collection[str] | None = None, **options: Any) -> Messages:
    """With ``check --database``. Check that the server stores everything, and shows what it has stored."""
    using = router.db_for_write(Event)
    if not databases or using not in databases:
        return
    names = {fields.character_set(using), fields.connection_character_set(using)} - fields.COMPLETE_CHARACTER_SETS
    if names:
        yield _warning(
            "W016",
            f"The database takes texts as {' and '.join(sorted(names))}: an event with another character, such as "
            "an emoji in a refund's reason, is quarantined, and a sweep leaves out its object.",
            hint='Use a database in utf8mb4 with "OPTIONS": {"charset": "utf8mb4"} (MariaDB), or with ENCODING '
            "'UTF8' (PostgreSQL). docs/install.md shows how to convert the columns on MariaDB.",
        )
    most = sizes.packet(using)
    if most is not None and not _settings_are_wrong():
        # Quotes and line breaks of a body are sent as two bytes each.
        needed = 2 * conf.current().MAX_WEBHOOK_BYTES
        if needed > most:
            yield _error(
                "E023",
                f'{conf.NAME}["MAX_WEBHOOK_BYTES"] allows bodies that may take a statement of {needed} bytes, and '
                f"the database's max_allowed_packet is {most}: such a delivery cannot be stored.",
                hint=f"Set max_allowed_packet of the server to {needed} or more, or MAX_WEBHOOK_BYTES to at most "
                f"{most // 2}.",
            )
    if _may_be_behind(using):
        yield _error(
            "E025",
            "The database is a Galera cluster, and reads do not wait for what another node has committed: after a "
            "failover, a call that was sent may pass for one that was not.",
            hint='Set "OPTIONS": {"init_command": "SET wsrep_sync_wait = 1"} for the database.',
        )


def _may_be_behind(using: str) -> bool:
    """Return True if the connection leads to a node of a Galera cluster and its reads do not wait for other nodes."""
    if connections[using].vendor != "mysql":
        return False
    with connections[using].cursor() as cursor:
        cursor.execute("SHOW VARIABLES WHERE Variable_name IN ('wsrep_on', 'wsrep_sync_wait')")
        found = dict(cursor.fetchall())
    return found.get("wsrep_on") == "ON" and not int(found["wsrep_sync_wait"]) & 1


@_registered(checks.Tags.database)
def check_accounts(databases: Collection[str] | None = None, **options: Any) -> Messages:
    """With ``check --database``. Check that the setting has the accounts, and the keys, that filled the mirror."""
    if _settings_are_wrong() or not _may_read(AccountState, databases):
        return
    # Not imported at the start: only these checks read the mirror.
    from payments_integration import sync  # noqa: PLC0415

    stored, configured = reconciliation.stored_accounts(), conf.current().ACCOUNTS
    replaced = sync.replaced_keys([alias for alias in stored if alias in configured])
    for why in replaced.values():
        yield _error(
            "E018",
            f"{why}. Every call and pass is refused, and deliveries wait, because the objects of two projects would "
            "be mixed.",
            hint=f"To do: {ACTIONS[Reason.KEY_REPLACED]}.",
        )
    if unknown := [alias for alias in stored if alias not in configured]:
        yield _error(
            "E019",
            f"Rows belong to accounts that are not configured: {', '.join(unknown)}. A renamed account is a stranger: "
            "events about its objects are quarantined, and its keys protect no call.",
            hint="If you renamed it, run manage.py payments_rename_account OLD NEW before you start anything. "
            "Otherwise configure it again; if it is closed for good, silence this check.",
        )
