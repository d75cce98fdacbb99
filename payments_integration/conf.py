"""Read the setting ``PAYMENTS_INTEGRATION``: lazily, typed, with a default for each option but ACCOUNTS.

``current()`` raises ImproperlyConfigured for a wrong setting; ``problems()`` lists all errors for the system checks;
``from_env()`` makes the setting from environment variables.
"""

from __future__ import annotations

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
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.functional import Promise

from payments_integration.enums import Currency
from payments_integration.money import INT64_MAX
from payments_integration.validation.urls import is_base_url, is_proxy_url

NAME = "PAYMENTS_INTEGRATION"
DEFAULT_ACCOUNT = "default"
TEST_KEY = "sk_test_"

#: The longest wait in RECEIVER_RETRIES, in seconds.
LONGEST_RETRY = 3600

#: Characters of an account's NAME.
MAX_NAME = 100

#: An alias is part of URLs and of every row.
ALIAS_PATTERN = r"[A-Za-z0-9_-]{1,64}"


@dataclass(frozen=True, slots=True)
class Account:
    """One project of the provider. The repr hides secrets."""

    alias: str
    base_url: str
    api_key: str = field(repr=False)
    webhook_secrets: tuple[str, ...] = field(default=(), repr=False)
    #: Changes that the provider dates before this are mirrored but not dispatched; None: an hour before the first
    #: contact.
    dispatch_since: datetime | None = None
    #: The proxy to an https:// address; "": none. It may have a password.
    proxy: str = field(default="", repr=False)
    #: The file of authorities that sign certificates; "": the file of the package certifi.
    ca_bundle: str = ""
    #: What people call it; "": its alias.
    name: str = ""

    @property
    def is_test(self) -> bool:
        """True if the key is one for tests (spec, "Authentication")."""
        return self.api_key.startswith(TEST_KEY)

    @property
    def key_hash(self) -> str:
        """A hash of the key, to notice later that the account has another one."""
        # Not keyed with SECRET_KEY: a new one would make every API key look new.
        return hashlib.sha256(self.api_key.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Settings:
    """Every option with its default. Times are in seconds unless the name ends in DAYS."""

    #: Alias to the keys of an account (ACCOUNT_KEYS); one account for each project of the provider.
    ACCOUNTS: Mapping[str, Account] = field(default_factory=dict)
    #: "inline": apply within the request, after commit; "celery": in a Celery worker; "worker": in payments_worker, or
    #: in a job that WAKE_UP starts.
    PROCESSING: str = "inline"
    #: Dotted path of ``f(account: str)``, called in a thread when an account has work ("worker" only); empty: none.
    WAKE_UP: str = ""
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
    #: Dotted path of ``f(user, reference) -> bool``: True if a customer may create something under this
    #: merchant_reference there; empty: no customer may.
    API_REFERENCE_CHECK: str = ""
    #: Dotted path of ``f(user, account) -> bool``: True if a user may use this account there; empty: staff may use
    #: every account, and "default" only if API_QUERYSET is the project's own; all other users "default" only.
    API_ACCOUNT_CHECK: str = ""
    #: Dotted path of ``f(request, body) -> arguments``: the arguments of ``create_payment`` for a customer's request
    #: there; empty: customers create no payments.
    API_PAYMENT: str = ""
    #: "refuse" a document's number that python-stdnum considers wrong, or only "warn" in the log and send it.
    DOCUMENT_CHECKS: str = "refuse"
    #: Dotted path of ``f(obj) -> str | None``: where the admin's links from a payment, payout or deposit reference to
    #: the order with its merchant_reference lead; empty: to the rows of ``Payable`` models.
    ORDER_URL: str = ""
    #: Names of payment methods, and words for reasons why something failed, by the provider's code.
    NAMES: Mapping[str, str] = field(default_factory=dict)
    #: Report two payments of one merchant_reference. Set False if it names a customer, not an order.
    REPORT_DOUBLE_PAYMENTS: bool = True
    #: Let tests open connections to other machines. Otherwise they reach this machine only.
    ALLOW_NETWORK_IN_TESTS: bool = False


_WRONG = "is missing or wrong"


class Problem(NamedTuple):
    """One error in the setting: a stable check id, the error, and what to write instead."""

    id: str
    message: str
    hint: str
    #: What the message says about the value, for ``from_env``, which names the variable in place of the setting.
    fault: str = _WRONG


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
#: The first choice is the default.
_CHOICES = {"PROCESSING": ("inline", "celery", "worker"), "DOCUMENT_CHECKS": ("refuse", "warn")}
#: The options that are lists of classes, and the method that each class must have.
API_CLASSES: Mapping[str, str] = {
    "API_AUTHENTICATION_CLASSES": "authenticate",
    "API_PERMISSION_CLASSES": "has_permission",
    "API_THROTTLE_CLASSES": "allow_request",
}
#: The options that name a function.
FUNCTIONS = ("API_QUERYSET", "API_REFERENCE_CHECK", "API_ACCOUNT_CHECK", "API_PAYMENT", "ORDER_URL", "WAKE_UP")
_FLAGS = ("REPORT_DOUBLE_PAYMENTS", "ALLOW_NETWORK_IN_TESTS")
_API_RATES = ("read", "write")
_RATE = r"[1-9][0-9]{0,8}/(?:s|sec|second|m|min|minute|h|hour|d|day)"
_PATH = r"[^\W\d]\w*(?:\.[^\W\d]\w*)+"
#: The keys of an account.
ACCOUNT_KEYS = ("BASE_URL", "API_KEY", "WEBHOOK_SECRETS", "PROXY", "CA_BUNDLE", "DISPATCH_SINCE", "NAME")


def _limits(text: str) -> dict[str, int]:
    """Parse limits such as ``CLP=1000000,USD=50000``."""
    return {name.strip(): int(limit) for name, _, limit in (pair.partition("=") for pair in text.split(","))}


_WORDS = {
    **dict.fromkeys(("1", "true", "yes", "on", "y", "t"), True),
    **dict.fromkeys(("0", "false", "no", "off", "n", "f"), False),
}


def _flag(text: str) -> bool:
    # environ takes every other word, such as "enabled", for False.
    if (word := text.lower()) not in _WORDS:
        raise ValueError
    return _WORDS[word]


_VALID_ACCOUNT = {"BASE_URL": "https://provider.example", "API_KEY": "sk"}
#: How ``from_env`` reads each option but ACCOUNTS.
_ENV_CASTS: Mapping[str, Any] = {
    **dict.fromkeys((*_CHOICES, *FUNCTIONS), str),
    "ENCRYPTION_KEYS": list,
    "RECEIVER_RETRIES": [int],
    **{name: kind for name, (kind, _low, _high) in _NUMBERS.items()},
    "APPROVAL_LIMITS": _limits,
    **dict.fromkeys(API_CLASSES, list),
    "API_THROTTLE_RATES": dict,
    "NAMES": dict,
    **dict.fromkeys(_FLAGS, _flag),
}
#: How to write a variable that cannot be read.
_WRITTEN: Mapping[str, str] = {
    **{name: "a whole number" if kind is int else "a number" for name, (kind, _low, _high) in _NUMBERS.items()},
    **dict.fromkeys(_FLAGS, "true or false"),
    "RECEIVER_RETRIES": "10,30,60",
    "APPROVAL_LIMITS": "CLP=1000000,USD=50000",
    "API_THROTTLE_RATES": "read=120/minute,write=30/minute",
    "NAMES": "cl_webpay_card=Webpay",
    "DISPATCH_SINCE": "2026-01-31T00:00:00Z",
}

#: By prefix of ``from_env``: the variables that it did not read, each with what it probably means and what to do.
misspelt: dict[str, dict[str, tuple[str, str]]] = {}
#: The variables of an account, by their names without the prefix. Projects have other variables named …_NAME.
_OF_ACCOUNT = r"(\w+?)_(API_KEY|WEBHOOK_SECRETS?|DISPATCH_SINCE|CA_BUNDLE)"
#: How the provider's keys begin. Projects have keys of other services.
_KEY_BEGINS = "sk_"
#: How similar to a known name a misspelt one must be. Projects have other variables with the same prefix.
_ALIKE = 0.85

_cache: tuple[Any, Settings] | None = None


def current() -> Settings:
    """Return the present settings (``override_settings`` works). Raises ImproperlyConfigured if they are wrong."""
    global _cache  # noqa: PLW0603  (parsed once per distinct value)
    raw = getattr(settings, NAME, {})
    if _cache is not None and _cache[0] == raw:
        return _cache[1]
    for problem in problems(raw):
        raise ImproperlyConfigured(f"{problem.message} {problem.hint}")
    parsed = _parse(raw)
    _cache = (_copied(raw), parsed)
    return parsed


def _copied(value: Any) -> Any:
    """Return a copy of the setting, to notice a change in place. A read-only mapping cannot be copied as it is."""
    if isinstance(value, Mapping):
        return {name: _copied(item) for name, item in value.items()}
    return list(value) if isinstance(value, list) else value


def account(alias: str = DEFAULT_ACCOUNT) -> Account:
    """Return the account of an alias, as the setting has it now.

    Raises:
        ImproperlyConfigured: There is no such account (the message has the known ones), or the setting is wrong.
    """
    accounts = current().ACCOUNTS
    try:
        return accounts[alias]
    except (KeyError, TypeError):  # TypeError: a list, for instance
        known = ", ".join(sorted(accounts)) or "none"
        raise ImproperlyConfigured(
            f'{NAME}["ACCOUNTS"] has no account "{alias}" (known: {known}). Add it, or name one of these.'
        ) from None


def aliases(only: str | None = None) -> list[str]:
    """Return every alias in the order of the setting, or only ``only``, which must exist."""
    return [account(only).alias] if only is not None else list(current().ACCOUNTS)


def account_name(alias: str) -> str:
    """Return what pages call an account: its NAME, or its alias. An alias that is not configured stays as it is."""
    entry = current().ACCOUNTS.get(alias)
    return (entry.name if entry is not None else "") or alias


def account_choices() -> list[tuple[str, str]]:
    """Return (alias, name) of every account, in the order of the setting."""
    return [(alias, account_name(alias)) for alias in aliases()]


def is_test(alias: str) -> bool:
    """Return True if an account has a test key now. False for an account that is not configured."""
    entry = current().ACCOUNTS.get(alias)
    return entry is not None and entry.is_test


def in_test_environment() -> bool:
    """Return True if Django's test runner or pytest-django has set up its test environment in this process."""
    # Not imported: a site does not load Django's test tools.
    utils = sys.modules.get("django.test.utils")
    return hasattr(getattr(utils, "_TestState", None), "saved_data")


def stays_on_this_machine() -> bool:
    """Return True in a test that may call no other machine."""
    return in_test_environment() and not current().ALLOW_NETWORK_IN_TESTS


def key_hash(alias: str) -> str:
    return account(alias).key_hash


def fingerprint(alias: str) -> str:
    """Return a hash of an account's address and API key. Two aliases with one hash are the same account there."""
    entry = account(alias)
    return hashlib.sha256(f"{entry.base_url}\x00{entry.api_key}".encode()).hexdigest()


def from_env(prefix: str = "PAYMENTS_", env_file: str | Path = ".env") -> dict[str, Any]:
    """Read the value of PAYMENTS_INTEGRATION from environment variables: ``PAYMENTS_INTEGRATION = from_env()``.

    The account "default" is read from PAYMENTS_BASE_URL, PAYMENTS_API_KEY and PAYMENTS_WEBHOOK_SECRETS. With
    PAYMENTS_ACCOUNTS=default,br, the account "br" is read from PAYMENTS_BR_API_KEY and PAYMENTS_BR_WEBHOOK_SECRETS,
    and from PAYMENTS_BR_BASE_URL, PAYMENTS_BR_PROXY and PAYMENTS_BR_CA_BUNDLE if they differ from PAYMENTS_BASE_URL,
    PAYMENTS_PROXY and PAYMENTS_CA_BUNDLE. PAYMENTS_DISPATCH_SINCE and PAYMENTS_BR_DISPATCH_SINCE are ISO 8601 times
    with a time zone. PAYMENTS_NAME and PAYMENTS_BR_NAME are what people call an account. Each other option has a
    variable of its name, such as PAYMENTS_PROCESSING. Write lists as a,b and dicts as CLP=1000000,USD=50000. Blanks
    and line breaks around a value are left out, and an empty variable counts as not set. A variable whose name is
    nearly one of these, or of an account that is not listed, is an error of the system checks.

    Args:
        prefix: How the variables' names begin.
        env_file: Variables missing from the environment are looked up in this file, if it exists. A relative path
            begins in the working directory: give ``BASE_DIR / ".env"`` if the process may start elsewhere.

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

    known: set[str] = set()

    def read(name: str, cast: Any = str) -> Any:
        known.add(name)
        text = Env.ENVIRON.get(prefix + name, "").strip()
        # django-environ leaves comments behind values. In an encryption key, one is noticed when it is removed.
        if re.search(r"(^|\s)#", text) and not name.endswith("NAME"):
            raise _wrong_variable(
                f"The environment variable {prefix + name} has a comment behind its value. Put it on another line."
            )
        try:
            return _stripped(Env.parse_value(text, cast)) if text else None
        except ValueError:
            # An account's variable begins with its alias.
            written = next(how for option, how in _WRITTEN.items() if name.endswith(option))
            raise _wrong_variable(
                f"The environment variable {prefix + name} cannot be read. Write {written}."
            ) from None

    def check(variable: str, value: dict[str, Any]) -> None:
        for problem in problems(value):
            # Git ignores .env, so a new clone of a project has none.
            file = Path(env_file).absolute()
            where = ""
            if not Env.ENVIRON.get(variable):
                shown = "; docs/quickstart.md shows one for the sandbox"
                where = f" {file} has no value for it." if file.is_file() else f" There is no {file}{shown}."
            raise _wrong_variable(f"The environment variable {variable} {problem.fault}. {problem.hint}{where}")

    found: dict[str, Any] = {"ACCOUNTS": {}}
    variables: dict[str, str] = {}
    for alias in read("ACCOUNTS", list) or [DEFAULT_ACCOUNT]:
        own = "" if alias == DEFAULT_ACCOUNT else alias.upper().replace("-", "_") + "_"
        if not re.fullmatch(ALIAS_PATTERN, alias) or variables.setdefault(own, alias) != alias:
            raise _wrong_variable(
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
        if name := read(f"{own}NAME"):
            entry["NAME"] = name
        for key, value in entry.items():
            check(f"{prefix}{own}{key}", {"ACCOUNTS": {alias: {**_VALID_ACCOUNT, key: value}}})
        found["ACCOUNTS"][alias] = entry
    check(f"{prefix}ACCOUNTS", found)
    for name, cast in _ENV_CASTS.items():
        if (value := read(name, cast)) is not None:
            check(prefix + name, {name: value})
            found[name] = value
    misspelt[prefix] = _unread(Env.ENVIRON, prefix, known, variables)
    return found


def _unread(
    environment: Mapping[str, str], prefix: str, known: set[str], accounts: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Return the variables that were probably meant for ``from_env``: why each was not read, and what to do.

    ``accounts`` has the listed aliases, by how their variables begin after the prefix.
    """
    found = {}
    was_read = {prefix + name for name in known}
    for name, value in sorted(environment.items()):
        rest = name[len(prefix) :].upper()
        if not name.upper().startswith(prefix.upper()) or name in was_read:
            continue
        if of_account := re.fullmatch(_OF_ACCOUNT, rest):
            word, key = of_account.groups()
            if word.lower() == DEFAULT_ACCOUNT:
                rest = key  # its variables have no alias
            elif f"{word}_" not in accounts and (key != "API_KEY" or value.strip().startswith(_KEY_BEGINS)):
                # A similar name would be another account's, which would get this one's secret.
                listed = ",".join([*accounts.values(), word.lower()])
                found[name] = f"{prefix}ACCOUNTS does not list {word.lower()}.", f"Write {prefix}ACCOUNTS={listed}."
                continue
        if close := difflib.get_close_matches(rest, known, n=1, cutoff=_ALIKE):
            found[name] = f"Did you mean {prefix}{close[0]}?", "Rename it."
    return found


def _stripped(value: Any) -> Any:
    """Return the value, or each value of a list or dict, without blanks around it."""
    if isinstance(value, list):
        return [item for item in map(_stripped, value) if item != ""]
    if isinstance(value, dict):
        return {_stripped(name): _stripped(item) for name, item in value.items()}
    return value.strip() if isinstance(value, str) else value


class _WrongVariable(ImproperlyConfigured):
    pass


_usual_excepthook = sys.excepthook


def _wrong_variable(message: str) -> ImproperlyConfigured:
    """Return an error that ends the process in one line if nothing catches it, as in manage.py.

    The traceback would show only how Django imports the settings. Django prints these errors in one line for none of
    its commands, so Python is asked to.
    """
    global _usual_excepthook
    if sys.excepthook is not _one_line:
        _usual_excepthook, sys.excepthook = sys.excepthook, _one_line
    return _WrongVariable(message)


def _one_line(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if isinstance(error, _WrongVariable):
        sys.stderr.write(f"{ImproperlyConfigured.__name__}: {error}\n")
    else:
        _usual_excepthook(kind, error, traceback)


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
            name=entry.get("NAME", ""),
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
    """Yield every error in a value of the setting, in the order of the check ids."""
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
    for name, choices in _CHOICES.items():
        if raw.get(name, choices[0]) not in choices:
            *others, last = (f'"{choice}"' for choice in choices)
            yield Problem("E006", f'{NAME}["{name}"] is wrong.', f"Write {', '.join(others)} or {last}.")
    for name, (kind, low, high) in _NUMBERS.items():
        if name in raw and not _is_number(raw[name], kind, low, high):
            what = "a whole number" if kind is int else "a number"
            yield Problem("E007", f'{NAME}["{name}"] is wrong.', f"Write {what} from {low:g} to {high:g}.")
    for name in _FLAGS:
        if not isinstance(raw.get(name, False), bool):
            yield Problem("E007", f'{NAME}["{name}"] is wrong.', "Write True or False.")
    names = raw.get("NAMES", {})
    if not isinstance(names, Mapping) or not all(
        isinstance(code, str) and isinstance(name, str | Promise) for code, name in names.items()
    ):
        yield Problem(
            "E007", f'{NAME}["NAMES"] is wrong.', 'Write a dict of texts, such as {"cl_webpay_card": "Webpay"}.'
        )
    retries = raw.get("RECEIVER_RETRIES", ())
    if not isinstance(retries, list | tuple) or not all(_is_number(wait, int, 0, LONGEST_RETRY) for wait in retries):
        hint = f"Write a list of seconds, 0 to {LONGEST_RETRY} each."
        yield Problem("E008", f'{NAME}["RECEIVER_RETRIES"] is wrong.', hint)
    keys = raw.get("ENCRYPTION_KEYS", ())
    yield from _secret_problems("E009", f'{NAME}["ENCRYPTION_KEYS"]', keys)
    yield from _limit_problems(raw.get("APPROVAL_LIMITS", {}))
    yield from _api_problems(raw)


def _known(name: object, known: Sequence[str]) -> str:
    """Return a hint for an unknown name: the one that was probably meant, and all of them."""
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
    defaults = Settings()
    for name in FUNCTIONS:
        if name in raw and raw[name] != getattr(defaults, name) and not _is_path(raw[name]):
            yield Problem("E013", f'{NAME}["{name}"] is wrong.', "Write the dotted path of a function.")
    rates = raw.get("API_THROTTLE_RATES", {})
    where = f'{NAME}["API_THROTTLE_RATES"]'
    if not isinstance(rates, Mapping):
        yield Problem("E013", f"{where} must be a dict.", 'Write {"read": "120/minute", "write": "30/minute"}.')
        return
    for name, rate in rates.items():
        if name not in _API_RATES:
            yield Problem("E013", f"{where} has an unknown name {name!r}.", _known(name, _API_RATES))
        elif rate is not None and not (isinstance(rate, str) and re.fullmatch(_RATE, rate)):
            yield Problem("E013", f'{where}["{name}"] is wrong.', 'Write a rate, such as "120/minute", or None.')


def _is_path(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(_PATH, value) is not None


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
    named: dict[str, str] = {}
    for alias, entry in accounts.items():
        if not isinstance(alias, str) or not re.fullmatch(ALIAS_PATTERN, alias):
            yield Problem(
                "E004", f"{where} has an alias {alias!r}.", "Use 1 to 64 ASCII letters, digits, hyphens, underscores."
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
            hint = "Write an https:// address without /v1 and without query (http:// on the loopback only)."
            fault = _fault(base_url) or _WRONG
            yield Problem("E005", f'{here}["BASE_URL"] {fault}.', hint, fault)
        elif urlsplit(base_url).path.rstrip("/").endswith("/v1"):
            yield Problem("E005", f'{here}["BASE_URL"] ends in /v1.', "Leave /v1 off: the client appends it.")
        if fault := _key_fault(api_key):
            hint = 'Write the secret key, e.g. "sk_test_…".'
            yield Problem("E005", f'{here}["API_KEY"] {fault}.', hint, fault)
        elif isinstance(base_url, str) and isinstance(api_key, str):
            other = seen.setdefault((base_url.rstrip("/"), api_key), alias)
            if other != alias:
                yield Problem("E005", f"{here} has the same key as {other!r}.", "One account per provider project.")
        secrets = entry.get("WEBHOOK_SECRETS", [])
        yield from _secret_problems("E005", f'{here}["WEBHOOK_SECRETS"]', secrets)
        since = entry.get("DISPATCH_SINCE")
        if since is not None and not (isinstance(since, datetime) and since.utcoffset() is not None):
            yield Problem(
                "E005",
                f'{here}["DISPATCH_SINCE"] is wrong.',
                "Write an aware datetime, such as datetime(2026, 1, 31, tzinfo=UTC); in the environment "
                "2026-01-31T00:00:00Z.",
            )
        yield from _way_out_problems(here, entry)
        name = entry.get("NAME", "")
        if not isinstance(name, str) or name != name.strip() or not name.isprintable() or len(name) > MAX_NAME:
            hint = f'Write a line of at most {MAX_NAME} characters, such as "Brazil".'
            yield Problem("E005", f'{here}["NAME"] is wrong.', hint)
        elif (twin := named.setdefault(name or alias, alias)) != alias:
            yield Problem("E005", f"{here} is called like {twin!r}.", "People could not tell them apart: rename one.")


def _secret_problems(id: str, where: str, secrets: object) -> Iterator[Problem]:
    if not isinstance(secrets, list | tuple) or not all(isinstance(secret, str) and secret for secret in secrets):
        yield Problem(id, f"{where} is wrong.", "Write a list of non-empty strings.")
        return
    for number, secret in enumerate(secrets, 1):
        if fault := _fault(secret):
            fault = f"has a value, number {number}, that {fault}"
            yield Problem(id, f"{where} {fault}.", "Write it without them: they would be part of it.", fault)


def _fault(value: object) -> str:
    """Name what is around a value that was not meant to be part of it; "" if nothing."""
    if not isinstance(value, str):
        return ""
    if value != value.strip():
        return "begins or ends with a blank or a line break"
    # Docker's --env-file keeps them.
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return "is written within quotation marks" if is_quoted else ""


def _key_fault(value: object) -> str:
    """Return why this is not an API key; "" if it may be one."""
    if not isinstance(value, str):
        return "is missing" if value is None else "is not a text"
    if not value.strip():
        return "is empty"
    if fault := _fault(value):
        return fault
    is_header_value = value.isascii() and value.isprintable() and " " not in value
    return "" if is_header_value else "has a blank, a line break or a character that is not ASCII"


def _way_out_problems(here: str, entry: Mapping[str, Any]) -> Iterator[Problem]:
    proxy, bundle = entry.get("PROXY") or "", entry.get("CA_BUNDLE") or ""
    if proxy and not (isinstance(proxy, str) and is_proxy_url(proxy)):
        hint = "Write http://host:port, or http://user:password@host:port."
        yield Problem("E005", f'{here}["PROXY"] is wrong.', hint)
    if bundle and (why := _unreadable_bundle(bundle)):
        hint = "Write the path of a file with the certificates of authorities, in PEM format."
        yield Problem("E005", f'{here}["CA_BUNDLE"] is wrong: {why}.', hint)


def _unreadable_bundle(path: object) -> str:
    """Return why authorities cannot be read from this file; "" if they can."""
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


def _is_number(value: object, kind: type, low: float, high: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
        return False
    return low <= value <= high
