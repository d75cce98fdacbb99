"""The setting ``PAYMENTS_INTEGRATION``: read lazily, typed, with a default for each option but ACCOUNTS.

``current()`` raises ImproperlyConfigured for a wrong setting; ``problems()`` lists all errors for the system checks;
``from_env()`` makes the setting from environment variables.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import hashlib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from payments_integration.enums import Currency
from payments_integration.money import INT64_MAX
from payments_integration.validation.urls import is_base_url, is_proxy_url

NAME = "PAYMENTS_INTEGRATION"
DEFAULT_ACCOUNT = "default"

#: The longest wait in RECEIVER_RETRIES, in seconds.
LONGEST_RETRY = 3600

#: An alias is part of URLs and of every row.
ALIAS_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Account:
    """One project of the provider. The repr hides secrets."""

    alias: str
    base_url: str
    api_key: str = field(repr=False)
    webhook_secrets: tuple[str, ...] = field(default=(), repr=False)
    #: What the provider dates before this is mirrored and not dispatched; None: an hour before the first contact.
    dispatch_since: datetime | None = None
    #: The way out to an https:// address; "": directly. It may have a password.
    proxy: str = field(default="", repr=False)
    #: The file of authorities that sign certificates; "": those of the package certifi.
    ca_bundle: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """Every option with its default. Times are in seconds unless the name ends in DAYS."""

    #: Alias to the keys of an account (ACCOUNT_KEYS); one account for each project of the provider.
    ACCOUNTS: Mapping[str, Account] = field(default_factory=dict)
    #: "inline": apply within the request, after commit; "celery": in a worker.
    PROCESSING: str = "inline"
    #: How long a worker delays events, so that late ones are applied in order ("celery" only).
    REORDER_WINDOW: int = 0
    #: Keys that encrypt webhook secrets, newest first; empty: derived from SECRET_KEY and its fallbacks.
    ENCRYPTION_KEYS: tuple[str, ...] = field(default=(), repr=False)
    #: The largest webhook body that is accepted, in bytes.
    MAX_WEBHOOK_BYTES: int = 1024 * 1024
    #: Events applied per transaction.
    BATCH_SIZE: int = 500
    #: Waits before a failing receiver is called again; after the last one, the event is parked.
    RECEIVER_RETRIES: tuple[int, ...] = (10, 30, 60, 120, 300)
    #: The longest time to connect to the provider.
    CONNECT_TIMEOUT: float = 5.0
    #: The longest silence while an answer arrives.
    READ_TIMEOUT: float = 20.0
    #: The longest time for a request, from connecting to the last byte of the answer.
    REQUEST_DEADLINE: float = 30.0
    #: An open object without an event for this long is read by GET.
    SILENT_AFTER: int = 6 * 3600
    #: How far back reconciliation compares lists of objects.
    SWEEP_DAYS: int = 35
    #: How long raw event bodies are kept.
    EVENT_BODY_DAYS: int = 90
    #: How long event rows are kept.
    EVENT_DAYS: int = 400
    #: ``payments_health`` reports automatic work that has waited longer than this.
    BACKLOG_ALERT: int = 600
    #: By currency, in minor units: from this amount on, a payout, or a refund to a bank account, needs the approval of
    #: a second person. A currency that is not listed has no limit.
    APPROVAL_LIMITS: Mapping[str, int] = field(default_factory=dict)
    #: How the REST API identifies users: dotted paths of Django REST framework authentication classes.
    API_AUTHENTICATION_CLASSES: tuple[str, ...] = ("rest_framework.authentication.SessionAuthentication",)
    #: What users may do there: all of these must agree. By default staff only, by model permission.
    API_PERMISSION_CLASSES: tuple[str, ...] = ("payments_integration.api.permissions.StaffByPermission",)
    #: How often users may call it.
    API_THROTTLE_CLASSES: tuple[str, ...] = (
        "payments_integration.api.throttling.ReadThrottle",
        "payments_integration.api.throttling.WriteThrottle",
    )
    #: The rates of the app's own throttles, per user: "read" and "write", such as "120/minute"; None: no limit.
    API_THROTTLE_RATES: Mapping[str, str | None] = field(
        default_factory=lambda: {"read": "120/minute", "write": "30/minute"}
    )
    #: Dotted path of ``f(queryset, user) -> queryset``: the rows that a user may see there.
    API_QUERYSET: str = "payments_integration.api.querysets.visible"
    #: Dotted path of ``f(user, reference) -> bool``: whether a customer may create something under this
    #: merchant_reference there; empty: none may.
    API_REFERENCE_CHECK: str = ""
    #: Dotted path of ``f(user, account) -> bool``: whether a user may use this account there; empty: staff may use
    #: every account, and "default" only if API_QUERYSET is the project's own; all other users "default" only.
    API_ACCOUNT_CHECK: str = ""
    #: Dotted path of ``f(obj) -> str | None``: where the admin's links from a payment, payout or deposit reference to
    #: the order with its merchant_reference lead; empty: to the rows of ``Payable`` models.
    ORDER_URL: str = ""
    #: Whether tests may open connections to other machines. Without it, they reach this machine only.
    ALLOW_NETWORK_IN_TESTS: bool = False

    def account(self, alias: str = DEFAULT_ACCOUNT) -> Account:
        """The account of that alias. Raises ImproperlyConfigured, with the known aliases, if there is none."""
        try:
            return self.ACCOUNTS[alias]
        except KeyError:
            known = ", ".join(sorted(self.ACCOUNTS)) or "none"
            raise ImproperlyConfigured(
                f'{NAME}["ACCOUNTS"] has no account "{alias}" (known: {known}). Add it, or name one of these.'
            ) from None


@dataclass(frozen=True, slots=True)
class Problem:
    """One error in the setting: a stable check id, the error, and what to write instead."""

    id: str
    message: str
    hint: str


#: Event rows are kept for the provider's 30 days and a week more, so that a repeated delivery is recognised.
MIN_EVENT_DAYS = 37

_NUMBERS: dict[str, tuple[type, float, float]] = {
    "REORDER_WINDOW": (int, 0, 3600),
    "MAX_WEBHOOK_BYTES": (int, 16 * 1024, 64 * 1024 * 1024),
    "BATCH_SIZE": (int, 1, 1000),
    "CONNECT_TIMEOUT": (float, 0.01, 120),
    "READ_TIMEOUT": (float, 0.01, 120),
    "REQUEST_DEADLINE": (float, 0.01, 300),
    "SILENT_AFTER": (int, 60, 30 * 86400),
    "SWEEP_DAYS": (int, 1, 3650),
    "EVENT_BODY_DAYS": (int, MIN_EVENT_DAYS, 36500),
    "EVENT_DAYS": (int, MIN_EVENT_DAYS, 36500),
    "BACKLOG_ALERT": (int, 1, 86400),
}
#: The options that are lists of classes, and the method that each class must have.
API_CLASSES: Mapping[str, str] = {
    "API_AUTHENTICATION_CLASSES": "authenticate",
    "API_PERMISSION_CLASSES": "has_permission",
    "API_THROTTLE_CLASSES": "allow_request",
}
_API_RATES = ("read", "write")
_RATE = re.compile(r"[1-9][0-9]{0,8}/(?:s|sec|second|m|min|minute|h|hour|d|day)")
_PATH = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")
#: The keys of an account.
ACCOUNT_KEYS = ("BASE_URL", "API_KEY", "WEBHOOK_SECRETS", "PROXY", "CA_BUNDLE", "DISPATCH_SINCE")


def _limits(text: str) -> dict[str, int]:
    """The limits in ``CLP=1000000,USD=50000``."""
    return {name: int(limit) for name, _, limit in (pair.partition("=") for pair in text.split(","))}


_VALID_ACCOUNT = {"BASE_URL": "https://provider.example", "API_KEY": "sk"}
#: How ``from_env`` reads each option but ACCOUNTS.
_ENV_CASTS: Mapping[str, Any] = {
    "PROCESSING": str,
    "ENCRYPTION_KEYS": list,
    "RECEIVER_RETRIES": [int],
    **{name: kind for name, (kind, _low, _high) in _NUMBERS.items()},
    "APPROVAL_LIMITS": _limits,
    **dict.fromkeys(API_CLASSES, list),
    "API_THROTTLE_RATES": dict,
    "API_QUERYSET": str,
    "API_REFERENCE_CHECK": str,
    "API_ACCOUNT_CHECK": str,
    "ORDER_URL": str,
    "ALLOW_NETWORK_IN_TESTS": bool,
}

_cache: tuple[Any, Settings] | None = None


def current() -> Settings:
    """The settings as they are now (``override_settings`` works). Raises ImproperlyConfigured if they are wrong."""
    global _cache  # noqa: PLW0603  (parsed once per distinct value)
    raw = getattr(settings, NAME, {})
    if _cache is not None and _cache[0] == raw:
        return _cache[1]
    for problem in problems(raw):
        raise ImproperlyConfigured(f"{problem.message} {problem.hint}")
    parsed = _parse(raw)
    _cache = (copy.deepcopy(raw), parsed)
    return parsed


def account(alias: str = DEFAULT_ACCOUNT) -> Account:
    """The account of an alias, as the setting has it now.

    Raises:
        ImproperlyConfigured: There is no such account (the message has the known ones), or the setting is wrong.
    """
    return current().account(alias)


def aliases(only: str | None = None) -> list[str]:
    """Every alias in the order of the setting, or only that of ``only``, which must exist."""
    return [account(only).alias] if only is not None else list(current().ACCOUNTS)


def in_test_environment() -> bool:
    """Whether this process runs tests: Django's test runner or pytest-django has set up its test environment."""
    # Not imported: a site does not load Django's test tools.
    utils = sys.modules.get("django.test.utils")
    return hasattr(getattr(utils, "_TestState", None), "saved_data")


def fingerprint(alias: str) -> str:
    """A hash of the address and API key of an account: two aliases that have one are the same account there."""
    entry = account(alias)
    return hashlib.sha256(f"{entry.base_url}\x00{entry.api_key}".encode()).hexdigest()


def from_env(prefix: str = "PAYMENTS_", env_file: str | Path = ".env") -> dict[str, Any]:
    """Read the value of PAYMENTS_INTEGRATION from environment variables: ``PAYMENTS_INTEGRATION = from_env()``.

    The account "default" is read from PAYMENTS_BASE_URL, PAYMENTS_API_KEY and PAYMENTS_WEBHOOK_SECRETS. With
    PAYMENTS_ACCOUNTS=default,br, the account "br" is read from PAYMENTS_BR_API_KEY and PAYMENTS_BR_WEBHOOK_SECRETS,
    and from PAYMENTS_BR_BASE_URL, PAYMENTS_BR_PROXY and PAYMENTS_BR_CA_BUNDLE if they differ from PAYMENTS_BASE_URL,
    PAYMENTS_PROXY and PAYMENTS_CA_BUNDLE. PAYMENTS_DISPATCH_SINCE and PAYMENTS_BR_DISPATCH_SINCE are ISO 8601 times
    with a time zone. Each other option has a variable of its name, such as PAYMENTS_PROCESSING. Write lists as a,b and
    dicts as CLP=1000000,USD=50000. An empty variable counts as not set.

    Args:
        prefix: How the variables' names begin.
        env_file: Variables missing from the environment are looked up in this file, if it exists.

    Returns:
        The setting's value.

    Raises:
        ImproperlyConfigured: A variable is missing or wrong; the message names it.
    """
    import environ  # noqa: PLC0415  (only settings files need it)

    class Env(environ.Env):  # type: ignore[misc]
        # A copy: reading the file must not change the environment of the process.
        ENVIRON = dict(os.environ)

    if Path(env_file).is_file():
        Env.read_env(env_file)

    def read(name: str, cast: Any = str) -> Any:
        text = Env.ENVIRON.get(prefix + name, "")
        try:
            return Env.parse_value(text, cast) if text else None
        except ValueError:
            raise ImproperlyConfigured(f"The environment variable {prefix + name} cannot be read.") from None

    def check(variable: str, value: dict[str, Any]) -> None:
        for problem in problems(value):
            raise ImproperlyConfigured(f"The environment variable {variable} is missing or wrong. {problem.hint}")

    found: dict[str, Any] = {"ACCOUNTS": {}}
    variables: dict[str, str] = {}
    for alias in read("ACCOUNTS", list) or [DEFAULT_ACCOUNT]:
        own = "" if alias == DEFAULT_ACCOUNT else alias.upper().replace("-", "_") + "_"
        if not ALIAS_PATTERN.fullmatch(alias) or variables.setdefault(own, alias) != alias:
            raise ImproperlyConfigured(
                f"The environment variable {prefix}ACCOUNTS has a wrong or ambiguous alias {alias!r}. "
                "Use ASCII letters, digits, hyphens and underscores, and names that differ in more than case."
            )
        entry = {
            "BASE_URL": read(f"{own}BASE_URL") or read("BASE_URL"),
            "API_KEY": read(f"{own}API_KEY"),
            "WEBHOOK_SECRETS": read(f"{own}WEBHOOK_SECRETS", list) or [],
        }
        if (since := read(f"{own}DISPATCH_SINCE", datetime.fromisoformat)) is not None:
            entry["DISPATCH_SINCE"] = since
        for key in ("PROXY", "CA_BUNDLE"):  # most accounts have neither
            if value := read(f"{own}{key}") or read(key):
                entry[key] = value
        for key, value in entry.items():
            check(f"{prefix}{own}{key}", {"ACCOUNTS": {alias: {**_VALID_ACCOUNT, key: value}}})
        found["ACCOUNTS"][alias] = entry
    check(f"{prefix}ACCOUNTS", found)
    for name, cast in _ENV_CASTS.items():
        if (value := read(name, cast)) is not None:
            check(prefix + name, {name: value})
            found[name] = value
    return found


def _parse(raw: Mapping[str, Any]) -> Settings:
    values: dict[str, Any] = dict(raw)
    values["ACCOUNTS"] = {
        alias: Account(
            alias=alias,
            base_url=entry["BASE_URL"].rstrip("/"),
            api_key=entry["API_KEY"],
            webhook_secrets=tuple(entry.get("WEBHOOK_SECRETS", ())),
            dispatch_since=entry.get("DISPATCH_SINCE"),
            proxy=(entry.get("PROXY") or "").rstrip("/"),
            ca_bundle=os.fspath(entry.get("CA_BUNDLE") or ""),
        )
        for alias, entry in raw.get("ACCOUNTS", {}).items()
    }
    for name in ("ENCRYPTION_KEYS", "RECEIVER_RETRIES", *API_CLASSES):
        if name in values:
            values[name] = tuple(values[name])
    values["APPROVAL_LIMITS"] = MappingProxyType(dict(raw.get("APPROVAL_LIMITS", {})))
    if "API_THROTTLE_RATES" in raw:
        # A rate that is not given keeps its default, so that no limit is lost by accident.
        values["API_THROTTLE_RATES"] = {**Settings().API_THROTTLE_RATES, **raw["API_THROTTLE_RATES"]}
    return Settings(**values)


def problems(raw: object) -> Iterator[Problem]:
    """Every error in a value of the setting, in the order of the check ids."""
    if not isinstance(raw, Mapping):
        yield Problem("E001", f"{NAME} must be a dict.", f"Write {NAME} = {{'ACCOUNTS': {{…}}}}.")
        return
    known = [option.name for option in dataclasses.fields(Settings)]
    for name in raw:
        if name in ACCOUNT_KEYS:
            hint = 'It belongs to an account: write {"ACCOUNTS": {"default": {"BASE_URL": …, "API_KEY": …}}}.'
            yield Problem("E002", f"{NAME} has {name!r} outside of ACCOUNTS.", hint)
        elif name not in known:
            yield Problem("E002", f"{NAME} has an unknown option {name!r}.", _known(name, known))
    yield from _account_problems(raw.get("ACCOUNTS", {}))
    if raw.get("PROCESSING", "inline") not in ("inline", "celery"):
        yield Problem("E006", f'{NAME}["PROCESSING"] is wrong.', 'Write "inline" or "celery".')
    for name, (kind, low, high) in _NUMBERS.items():
        if name in raw and not _is_number(raw[name], kind, low, high):
            what = "a whole number" if kind is int else "a number"
            yield Problem("E007", f'{NAME}["{name}"] is wrong.', f"Write {what} from {low:g} to {high:g}.")
    if not isinstance(raw.get("ALLOW_NETWORK_IN_TESTS", False), bool):
        yield Problem("E007", f'{NAME}["ALLOW_NETWORK_IN_TESTS"] is wrong.', "Write True or False.")
    retries = raw.get("RECEIVER_RETRIES", ())
    if not isinstance(retries, list | tuple) or not all(_is_number(wait, int, 0, LONGEST_RETRY) for wait in retries):
        hint = f"Write a list of seconds, 0 to {LONGEST_RETRY} each."
        yield Problem("E008", f'{NAME}["RECEIVER_RETRIES"] is wrong.', hint)
    keys = raw.get("ENCRYPTION_KEYS", ())
    if not isinstance(keys, list | tuple) or not all(isinstance(key, str) and key for key in keys):
        yield Problem("E009", f'{NAME}["ENCRYPTION_KEYS"] is wrong.', "Write a list of non-empty strings.")
    yield from _limit_problems(raw.get("APPROVAL_LIMITS", {}))
    yield from _api_problems(raw)


def _known(name: object, known: Sequence[str]) -> str:
    """A hint for a name that is not known: the one that was probably meant, and all of them."""
    spelled = {word.upper(): word for word in known}
    close = difflib.get_close_matches(str(name).upper(), spelled, n=1)
    meant = "".join(f'Did you mean "{spelled[word]}"? ' for word in close)
    return f"{meant}Known: {', '.join(known)}."


def _api_problems(raw: Mapping[str, Any]) -> Iterator[Problem]:
    for name in API_CLASSES:
        paths = raw.get(name, ())
        if not isinstance(paths, list | tuple) or not all(map(_is_path, paths)):
            yield Problem("E013", f'{NAME}["{name}"] is wrong.', "Write a list of dotted paths of classes.")
    if "API_PERMISSION_CLASSES" in raw and raw["API_PERMISSION_CLASSES"] in ([], ()):
        # For Django REST framework, no permission class means that everyone may do everything.
        yield Problem(
            "E013",
            f'{NAME}["API_PERMISSION_CLASSES"] is empty: the API would be open to everyone.',
            "Name a class, such as payments_integration.api.permissions.StaffByPermission, or leave the option out.",
        )
    if "API_QUERYSET" in raw and not _is_path(raw["API_QUERYSET"]):
        yield Problem("E013", f'{NAME}["API_QUERYSET"] is wrong.', "Write the dotted path of a function.")
    for name in ("API_REFERENCE_CHECK", "API_ACCOUNT_CHECK", "ORDER_URL"):
        if (path := raw.get(name, "")) != "" and not _is_path(path):
            yield Problem("E013", f'{NAME}["{name}"] is wrong.', "Write the dotted path of a function.")
    rates = raw.get("API_THROTTLE_RATES", {})
    where = f'{NAME}["API_THROTTLE_RATES"]'
    if not isinstance(rates, Mapping):
        yield Problem("E013", f"{where} must be a dict.", 'Write {"read": "120/minute", "write": "30/minute"}.')
        return
    for name, rate in rates.items():
        if name not in _API_RATES:
            yield Problem("E013", f"{where} has an unknown name {name!r}.", _known(name, _API_RATES))
        elif rate is not None and not (isinstance(rate, str) and _RATE.fullmatch(rate)):
            yield Problem("E013", f'{where}["{name}"] is wrong.', 'Write a rate, such as "120/minute", or None.')


def _is_path(value: object) -> bool:
    return isinstance(value, str) and _PATH.fullmatch(value) is not None


def _limit_problems(limits: object) -> Iterator[Problem]:
    where = f'{NAME}["APPROVAL_LIMITS"]'
    if not isinstance(limits, Mapping):
        yield Problem("E012", f"{where} must be a dict.", "Write {'CLP': 1_000_000}, in minor units.")
        return
    for currency, limit in limits.items():
        if currency not in Currency.values:
            # A limit under a wrong name would never apply.
            yield Problem(
                "E012", f"{where} has an unknown currency {currency!r}.", f"Known: {', '.join(Currency.values)}."
            )
        elif not _is_number(limit, int, 1, INT64_MAX):
            yield Problem(
                "E012", f'{where}["{currency}"] is wrong.', "Write a whole number of minor units, at least 1."
            )


def _account_problems(accounts: object) -> Iterator[Problem]:
    where = f'{NAME}["ACCOUNTS"]'
    if not isinstance(accounts, Mapping):
        yield Problem("E003", f"{where} must be a dict.", "Write {'default': {'BASE_URL': …, 'API_KEY': …}}.")
        return
    seen: dict[tuple[str, str], str] = {}
    spelled: dict[str, str] = {}
    for alias, entry in accounts.items():
        if not isinstance(alias, str) or not ALIAS_PATTERN.fullmatch(alias):
            yield Problem(
                "E004",
                f"{where} has an alias {alias!r}.",
                "Use 1 to 64 ASCII letters, digits, hyphens, underscores.",
            )
            continue
        if (twin := spelled.setdefault(alias.lower(), alias)) != alias:
            # MariaDB compares them as equal and would mix the rows of the two accounts.
            yield Problem("E004", f"{where} has {twin!r} and {alias!r}.", "Use names that differ by more than case.")
        here = f'{where}["{alias}"]'
        if not isinstance(entry, Mapping):
            yield Problem("E005", f"{here} must be a dict.", f"Give it {', '.join(ACCOUNT_KEYS)}.")
            continue
        for key in entry:
            if key not in ACCOUNT_KEYS:
                yield Problem("E005", f"{here} has an unknown key {key!r}.", _known(key, ACCOUNT_KEYS))
        base_url, api_key = entry.get("BASE_URL"), entry.get("API_KEY")
        if not isinstance(base_url, str) or not is_base_url(base_url):
            yield Problem(
                "E005",
                f'{here}["BASE_URL"] is missing or wrong.',
                "Write an https:// address without /v1 and without query (http:// on the loopback only).",
            )
        elif urlsplit(base_url).path.rstrip("/").endswith("/v1"):
            yield Problem("E005", f'{here}["BASE_URL"] ends in /v1.', "Leave /v1 off: the client appends it.")
        if not isinstance(api_key, str) or not _is_header_value(api_key):
            yield Problem("E005", f'{here}["API_KEY"] is missing or wrong.', 'Write the secret key, e.g. "sk_test_…".')
        elif isinstance(base_url, str):
            other = seen.setdefault((base_url.rstrip("/"), api_key), alias)
            if other != alias:
                yield Problem("E005", f"{here} has the same key as {other!r}.", "One account per provider project.")
        secrets = entry.get("WEBHOOK_SECRETS", [])
        if not isinstance(secrets, list | tuple) or not all(isinstance(s, str) and s for s in secrets):
            yield Problem("E005", f'{here}["WEBHOOK_SECRETS"] is wrong.', "Write a list of non-empty strings.")
        since = entry.get("DISPATCH_SINCE")
        if since is not None and not (isinstance(since, datetime) and since.utcoffset() is not None):
            yield Problem(
                "E005",
                f'{here}["DISPATCH_SINCE"] is wrong.',
                "Write an aware datetime, such as datetime(2026, 1, 31, tzinfo=UTC); in the environment "
                "2026-01-31T00:00:00Z.",
            )
        yield from _way_out_problems(here, entry)


def _way_out_problems(here: str, entry: Mapping[str, Any]) -> Iterator[Problem]:
    proxy, bundle = entry.get("PROXY") or "", entry.get("CA_BUNDLE") or ""
    if proxy and not (isinstance(proxy, str) and is_proxy_url(proxy)):
        hint = "Write http://host:port, or http://user:password@host:port."
        yield Problem("E005", f'{here}["PROXY"] is wrong.', hint)
    if bundle and (why := _unreadable_bundle(bundle)):
        hint = "Write the path of a file with the certificates of authorities, in PEM format."
        yield Problem("E005", f'{here}["CA_BUNDLE"] is wrong: {why}.', hint)


def _unreadable_bundle(path: object) -> str:
    """Why authorities cannot be read from this file; "" if they can."""
    import ssl  # noqa: PLC0415  (most sites name no file)

    if not isinstance(path, str | os.PathLike):
        return "it is no path"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except ssl.SSLError:
        return "the file has no certificates"
    except (OSError, ValueError) as error:
        return f"the file cannot be read ({getattr(error, 'strerror', None) or 'no path'})"
    return ""


def _is_header_value(value: str) -> bool:
    return bool(value) and value.isascii() and value.isprintable() and " " not in value


def _is_number(value: object, kind: type, low: float, high: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
        return False
    return low <= value <= high
