"""The setting: its values, its system checks, and reading it from the environment."""

from __future__ import annotations

import dataclasses
import importlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

import certifi
import pytest
from celery import Celery
from celery.beat import ScheduleEntry
from django.apps import apps
from django.conf.urls.i18n import i18n_patterns
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.models.signals import post_save, pre_save
from django.test import override_settings
from django.urls import clear_script_prefix, include, path, set_script_prefix
from django.utils import timezone

from payments_integration import conf, handlers
from payments_integration.attention import ACTIONS
from payments_integration.checks import (
    check_api,
    check_database,
    check_deployment,
    check_handlers,
    check_keys,
    check_orders,
    check_settings,
    check_webhook_urls,
)
from payments_integration.models import Payment, Payout, WebhookEndpoint
from payments_integration.projection import store_secret
from payments_integration.schedule import BEAT_SCHEDULE, EXPIRES, beat_schedule
from payments_integration.signals import Reason, event_received, status_changed
from payments_integration.tasks import process_events
from tests.databases import POSTGRES
from tests.factories.receivers.models import ReceiverCall
from tests.unit.payable.payables import Order

ROOT = Path(__file__).resolve().parents[2]
ACCOUNT = {"BASE_URL": "https://api.example.com", "API_KEY": "sk_test_1"}


def setting(**options: Any) -> dict[str, Any]:
    return {"ACCOUNTS": {"default": ACCOUNT}, **options}


def account(**fields: Any) -> dict[str, Any]:
    return {"ACCOUNTS": {"default": {**ACCOUNT, **fields}}}


def test_an_account_is_all_that_the_setting_needs() -> None:
    with override_settings(PAYMENTS_INTEGRATION=setting()):
        current = conf.current()
    assert current.PROCESSING == "inline"
    assert current.ACCOUNTS["default"] == conf.Account("default", "https://api.example.com", "sk_test_1")
    assert not list(conf.problems(setting()))


def test_the_setting_may_be_read_only() -> None:
    raw = MappingProxyType({"ACCOUNTS": MappingProxyType({"default": MappingProxyType(ACCOUNT)})})
    with override_settings(PAYMENTS_INTEGRATION=raw):
        assert conf.current() is conf.current()
        assert conf.account().api_key == "sk_test_1"


def test_a_change_of_the_setting_in_place_is_noticed() -> None:
    entry = {**ACCOUNT, "WEBHOOK_SECRETS": ["whsec_1"]}
    with override_settings(PAYMENTS_INTEGRATION={"ACCOUNTS": {"default": entry}}):
        assert conf.account().webhook_secrets == ("whsec_1",)
        entry["WEBHOOK_SECRETS"].append("whsec_2")  # type: ignore[attr-defined]
        assert conf.account().webhook_secrets == ("whsec_1", "whsec_2")


def test_the_setting_is_read_at_each_use() -> None:
    with override_settings(PAYMENTS_INTEGRATION=setting(BATCH_SIZE=7)):
        assert conf.current().BATCH_SIZE == 7
        with override_settings(PAYMENTS_INTEGRATION=setting(BATCH_SIZE=8)):
            assert conf.current().BATCH_SIZE == 8
        assert conf.current().BATCH_SIZE == 7


def test_a_setting_changed_in_place_is_read_again(settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = setting()
    assert conf.current().BATCH_SIZE == 500
    settings.PAYMENTS_INTEGRATION["BATCH_SIZE"] = 9
    assert conf.current().BATCH_SIZE == 9


@pytest.mark.case(85)
def test_the_repr_of_the_settings_shows_no_secret() -> None:
    with override_settings(
        PAYMENTS_INTEGRATION={
            "ACCOUNTS": {"default": {**ACCOUNT, "WEBHOOK_SECRETS": ["whsec_hidden"]}},
            "ENCRYPTION_KEYS": ["key_hidden"],
        }
    ):
        assert "hidden" not in repr(conf.current())
        assert "sk_test_1" not in repr(conf.current())


def test_the_error_for_an_unknown_account_names_the_known_ones() -> None:
    with pytest.raises(ImproperlyConfigured, match=r'no account "other" \(known: default, second\)'):
        conf.account("other")


WRONG: dict[str, tuple[str, Any, str]] = {
    "no dict": ("E001", [], "must be a dict"),
    "flat": ("E002", {"API_KEY": "sk_test_1"}, "'API_KEY' outside of ACCOUNTS"),
    "unknown option": ("E002", setting(PROCESING="celery"), "unknown option 'PROCESING'"),
    "accounts no dict": ("E003", {"ACCOUNTS": []}, "must be a dict"),
    "alias": ("E004", {"ACCOUNTS": {"a b": ACCOUNT}}, "alias 'a b'"),
    "alias with newline": ("E004", {"ACCOUNTS": {"a\n": ACCOUNT}}, "alias"),
    "aliases that differ by case": (
        "E004",
        {"ACCOUNTS": {"shop": ACCOUNT, "Shop": {**ACCOUNT, "API_KEY": "sk_other"}}},
        "'shop' and 'Shop'",
    ),
    "account no dict": ("E005", {"ACCOUNTS": {"default": "sk"}}, "must be a dict"),
    "unknown key": ("E005", account(KEY="x"), "unknown key 'KEY'"),
    "no base url": ("E005", {"ACCOUNTS": {"default": {"API_KEY": "x"}}}, "BASE_URL"),
    "http": ("E005", account(BASE_URL="http://api.example.com"), "BASE_URL"),
    "javascript": ("E005", account(BASE_URL="javascript:alert(1)"), "BASE_URL"),
    "password in url": ("E005", account(BASE_URL="https://a:b@example.com"), "BASE_URL"),
    "v1": ("E005", account(BASE_URL="https://api.example.com/v1/"), "ends in /v1"),
    "no key": ("E005", account(API_KEY=""), "API_KEY"),
    "key with newline": ("E005", account(API_KEY="sk\n"), '"API_KEY"] begins or ends with a blank or a line break'),
    "key with a blank": ("E005", account(API_KEY="sk test"), '"API_KEY"] has a blank, a line break or a character'),
    "key in quotation marks": ("E005", account(API_KEY="'sk'"), '"API_KEY"] is written within quotation marks'),
    "key as bytes": ("E005", account(API_KEY=b"sk"), '"API_KEY"] is not a text'),
    "key of blanks": ("E005", account(API_KEY="  "), '"API_KEY"] is empty'),
    "url with newline": (
        "E005",
        account(BASE_URL="https://api.example.com\n"),
        '"BASE_URL"] begins or ends with a blank or a line break',
    ),
    "secret with newline": (
        "E005",
        account(WEBHOOK_SECRETS=["a", " b\n"]),
        '"WEBHOOK_SECRETS"] has a value, number 2, that begins or ends with a blank or a line break',
    ),
    "secret in quotation marks": ("E005", account(WEBHOOK_SECRETS=['"a"']), "within quotation marks"),
    "secrets as text": ("E005", account(WEBHOOK_SECRETS="whsec"), "WEBHOOK_SECRETS"),
    "dispatch since a naive time": ("E005", account(DISPATCH_SINCE=datetime(2026, 1, 31)), "DISPATCH_SINCE"),  # noqa: DTZ001
    "dispatch since a text": ("E005", account(DISPATCH_SINCE="2026-01-31T00:00:00Z"), "DISPATCH_SINCE"),
    "empty secret": ("E005", account(WEBHOOK_SECRETS=[""]), "WEBHOOK_SECRETS"),
    "one key twice": ("E005", {"ACCOUNTS": {"a": ACCOUNT, "b": ACCOUNT}}, "same key as 'a'"),
    "name as a number": ("E005", account(NAME=1), "NAME"),
    "name of two lines": ("E005", account(NAME="Shop\nBrazil"), "NAME"),
    "name with blanks": ("E005", account(NAME=" Shop"), "NAME"),
    "long name": ("E005", account(NAME="x" * 101), "NAME"),
    "name of another account": (
        "E005",
        {"ACCOUNTS": {"br": {**ACCOUNT, "NAME": "Shop"}, "cl": {**ACCOUNT, "API_KEY": "sk_2", "NAME": "Shop"}}},
        "is called like 'br'",
    ),
    "name that is another alias": (
        "E005",
        {"ACCOUNTS": {"br": ACCOUNT, "cl": {**ACCOUNT, "API_KEY": "sk_2", "NAME": "br"}}},
        "is called like 'br'",
    ),
    "proxy without a port": ("E005", account(PROXY="http://proxy.example"), "PROXY"),
    "proxy without a scheme": ("E005", account(PROXY="proxy.example:3128"), "PROXY"),
    "proxy over TLS": ("E005", account(PROXY="https://proxy.example:3128"), "PROXY"),
    "socks": ("E005", account(PROXY="socks5://proxy.example:1080"), "PROXY"),
    "proxy with a path": ("E005", account(PROXY="http://proxy.example:3128/x"), "PROXY"),
    "proxy with a newline": ("E005", account(PROXY="http://proxy.example:3128\n"), "PROXY"),
    "proxy as bool": ("E005", account(PROXY=True), "PROXY"),
    "authorities that are not there": ("E005", account(CA_BUNDLE="/nowhere.pem"), "No such file"),
    "authorities in a folder": ("E005", account(CA_BUNDLE="/"), "cannot be read"),
    "authorities that are none": ("E005", account(CA_BUNDLE=__file__), "no certificates"),
    "authorities as bool": ("E005", account(CA_BUNDLE=True), "no path"),
    "authorities with a null": ("E005", account(CA_BUNDLE="\0"), "cannot be read"),
    "processing": ("E006", setting(PROCESSING="async"), "PROCESSING"),
    "document checks": ("E006", setting(DOCUMENT_CHECKS="off"), "DOCUMENT_CHECKS"),
    "number as text": ("E007", setting(BATCH_SIZE="500"), "BATCH_SIZE"),
    "number as bool": ("E007", setting(BATCH_SIZE=True), "BATCH_SIZE"),
    "float for a whole number": ("E007", setting(REORDER_WINDOW=1.5), "REORDER_WINDOW"),
    "negative": ("E007", setting(REORDER_WINDOW=-1), "REORDER_WINDOW"),
    "retention too short": ("E007", setting(EVENT_DAYS=30), "EVENT_DAYS"),
    "zero timeout": ("E007", setting(READ_TIMEOUT=0), "READ_TIMEOUT"),
    "network as text": ("E007", setting(ALLOW_NETWORK_IN_TESTS="no"), "ALLOW_NETWORK_IN_TESTS"),
    "doubles as text": ("E007", setting(REPORT_DOUBLE_PAYMENTS="no"), "REPORT_DOUBLE_PAYMENTS"),
    "retries": ("E008", setting(RECEIVER_RETRIES=[10, -1]), "RECEIVER_RETRIES"),
    "keys": ("E009", setting(ENCRYPTION_KEYS="secret"), "ENCRYPTION_KEYS"),
    "key with a blank at its end": (
        "E009",
        setting(ENCRYPTION_KEYS=["secret "]),
        "has a value, number 1, that begins or ends with a blank",
    ),
    "limits no dict": ("E012", setting(APPROVAL_LIMITS=1000), "must be a dict"),
    "limit of no currency": ("E012", setting(APPROVAL_LIMITS={"clp": 1000}), "unknown currency 'clp'"),
    "limit of zero": ("E012", setting(APPROVAL_LIMITS={"CLP": 0}), '["CLP"]'),
    "limit as float": ("E012", setting(APPROVAL_LIMITS={"CLP": 1e6}), '["CLP"]'),
    "limit as text": ("E012", setting(APPROVAL_LIMITS={"CLP": "1000"}), '["CLP"]'),
    "limit as bool": ("E012", setting(APPROVAL_LIMITS={"CLP": True}), '["CLP"]'),
    "a class as text": ("E013", setting(API_AUTHENTICATION_CLASSES="a.B"), "API_AUTHENTICATION_CLASSES"),
    "a class itself": ("E013", setting(API_THROTTLE_CLASSES=[dict]), "API_THROTTLE_CLASSES"),
    "no dotted path": ("E013", setting(API_PERMISSION_CLASSES=["AllowAny"]), "API_PERMISSION_CLASSES"),
    "no permission classes": ("E013", setting(API_PERMISSION_CLASSES=[]), "open to everyone"),
    "rows by a function": ("E013", setting(API_QUERYSET=print), "API_QUERYSET"),
    "names as a list": ("E007", setting(NAMES=["cl_card"]), "NAMES"),
    "a name that is no text": ("E007", setting(NAMES={"cl_card": None}), "NAMES"),
    "orders by a function": ("E013", setting(ORDER_URL=print), "ORDER_URL"),
    "wake-up by a function": ("E013", setting(WAKE_UP=print), "WAKE_UP"),
    "references by a function": ("E013", setting(API_REFERENCE_CHECK=print), "API_REFERENCE_CHECK"),
    "accounts by a function": ("E013", setting(API_ACCOUNT_CHECK=print), "API_ACCOUNT_CHECK"),
    "rates no dict": ("E013", setting(API_THROTTLE_RATES="5/min"), "must be a dict"),
    "a rate of no name": ("E013", setting(API_THROTTLE_RATES={"reads": "5/min"}), "unknown name 'reads'"),
    "a rate as a number": ("E013", setting(API_THROTTLE_RATES={"read": 5}), '["read"]'),
    "a rate of zero": ("E013", setting(API_THROTTLE_RATES={"read": "0/min"}), '["read"]'),
    "a rate per fortnight": ("E013", setting(API_THROTTLE_RATES={"read": "5/fortnight"}), '["read"]'),
}


@pytest.mark.case(139)
@pytest.mark.parametrize(("id", "raw", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_setting_is_a_check_error(id: str, raw: Any, says: str) -> None:
    with override_settings(PAYMENTS_INTEGRATION=raw):
        (error,) = [message for message in check_settings() if message.is_serious()]
        assert error.id == f"payments_integration.{id}"
        assert says in error.msg
        assert error.hint
        with pytest.raises(ImproperlyConfigured, match="PAYMENTS_INTEGRATION"):
            conf.current()


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({"API_KEY": "sk_test_1"}, 'write {"ACCOUNTS": {"default": {"BASE_URL": …, "API_KEY": …}}}'),
        (setting(PROCESING="celery"), 'Did you mean "PROCESSING"?'),
        (setting(batch_size=7), 'Did you mean "BATCH_SIZE"?'),
        (account(WEBHOOK_SECRET=["x"]), 'Did you mean "WEBHOOK_SECRETS"?'),
        (setting(API_THROTTLE_RATES={"reads": "5/min"}), 'Did you mean "read"?'),
        (setting(QX=7), "Known: ACCOUNTS"),
    ],
)
def test_the_hint_says_what_was_probably_meant(raw: Any, says: str) -> None:
    (problem,) = conf.problems(raw)
    assert says in problem.hint
    assert problem.hint.count("Did you mean") == says.count("Did you mean")


def test_approval_limits_are_read_only() -> None:
    given = {"CLP": 1_000_000, "USD": 1}
    with override_settings(PAYMENTS_INTEGRATION=setting(APPROVAL_LIMITS=given)):
        limits = conf.current().APPROVAL_LIMITS
        assert limits == given
        with pytest.raises(TypeError):
            limits["CLP"] = 2  # type: ignore[index]
    with override_settings(PAYMENTS_INTEGRATION=setting()):
        assert conf.current().APPROVAL_LIMITS == {}


def test_a_throttle_rate_that_is_not_given_keeps_its_default() -> None:
    with override_settings(PAYMENTS_INTEGRATION=setting(API_THROTTLE_RATES={"read": None})):
        assert conf.current().API_THROTTLE_RATES == {"read": None, "write": "30/minute"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, []),
        ({"API_QUERYSET": "nowhere.visible"}, ["API_QUERYSET", "'nowhere.visible'", "cannot be imported"]),
        ({"API_REFERENCE_CHECK": "", "ORDER_URL": ""}, []),
        ({"ORDER_URL": "nowhere.order"}, ["ORDER_URL", "'nowhere.order'", "cannot be imported"]),
        ({"WAKE_UP": "nowhere.wake_up"}, ["WAKE_UP", "'nowhere.wake_up'", "cannot be imported"]),
        ({"WAKE_UP": "payments_integration.conf.NAME"}, ["WAKE_UP", "it is not a function"]),
        ({"WAKE_UP": "asyncio.sleep"}, ["WAKE_UP", "'asyncio.sleep'", "it is async, and nothing awaits it"]),
        ({"API_REFERENCE_CHECK": "nowhere.mine"}, ["API_REFERENCE_CHECK", "'nowhere.mine'", "cannot be imported"]),
        ({"API_ACCOUNT_CHECK": "nowhere.may"}, ["API_ACCOUNT_CHECK", "'nowhere.may'", "cannot be imported"]),
        ({"API_QUERYSET": "payments_integration.conf.NAME"}, ["API_QUERYSET", "conf.NAME", "not a function"]),
        (
            {"API_PERMISSION_CLASSES": ["payments_integration.api.permissions.Missing"]},
            ["API_PERMISSION_CLASSES", "permissions.Missing", "cannot be imported"],
        ),
        (
            {"API_AUTHENTICATION_CLASSES": ["payments_integration.api.permissions.StaffByPermission"]},
            ["API_AUTHENTICATION_CLASSES", "StaffByPermission", "authenticate()"],
        ),
        ({"API_THROTTLE_CLASSES": ["payments_integration.conf.current"]}, ["API_THROTTLE_CLASSES", "allow_request()"]),
    ],
)
def test_an_api_option_with_an_unusable_path_is_a_check_error(options: dict[str, Any], says: list[str]) -> None:
    with override_settings(PAYMENTS_INTEGRATION=setting(**options)):
        found = check_api()
    assert [message.id for message in found] == ["payments_integration.E014"] * bool(says)
    for text in says:
        assert text in found[0].msg


_OPENED = {"API_PERMISSION_CLASSES": ["payments_integration.api.permissions.StaffAndCustomers"]}
_OWN_ROWS = {"API_QUERYSET": "payments_integration.api.querysets.own"}


@pytest.mark.case(132)
@pytest.mark.parametrize(
    ("accounts", "options", "warns"),
    [
        (2, {}, False),
        (2, _OPENED, True),
        (2, _OWN_ROWS, True),
        (1, _OPENED, False),
        (2, {**_OPENED, "API_ACCOUNT_CHECK": "payments_integration.permissions.may"}, False),
    ],
)
def test_several_accounts_need_a_rule_about_who_may_use_which(
    accounts: int, options: dict[str, Any], warns: bool
) -> None:
    entries = {
        alias: {"BASE_URL": "https://provider.example", "API_KEY": f"sk_{alias}"}
        for alias in ("default", "second")[:accounts]
    }
    with override_settings(PAYMENTS_INTEGRATION=setting(ACCOUNTS=entries, **options)):
        found = check_api()
    assert [message.id for message in found] == ["payments_integration.W014"] * warns


_CORS = "corsheaders.middleware.CorsMiddleware"
_HEADERS = {"CORS_ALLOW_HEADERS": ["Idempotency-Key"], "CORS_EXPOSE_HEADERS": ["Request-Id", "Retry-After"]}


@pytest.mark.parametrize(
    ("middleware", "options", "headers", "named"),
    [
        ([_CORS], _OPENED, {}, ["CORS_ALLOW_HEADERS", "CORS_EXPOSE_HEADERS"]),
        ([_CORS], _OPENED, {**_HEADERS, "CORS_ALLOW_HEADERS": ["accept"]}, ["CORS_ALLOW_HEADERS"]),
        ([_CORS], _OPENED, {**_HEADERS, "CORS_EXPOSE_HEADERS": ["request-id"]}, ["CORS_EXPOSE_HEADERS"]),
        ([_CORS], _OPENED, _HEADERS, []),
        ([_CORS], _OPENED, {"CORS_ALLOW_HEADERS": ["*"], "CORS_EXPOSE_HEADERS": ["*"]}, []),
        ([_CORS], {}, {}, []),
        ([], _OPENED, {}, []),
    ],
)
def test_front_ends_of_other_origins_need_headers(
    middleware: list[str], options: dict[str, Any], headers: dict[str, Any], named: list[str]
) -> None:
    with override_settings(PAYMENTS_INTEGRATION=setting(**options), MIDDLEWARE=middleware, **headers):
        found = check_api()
    assert [message.id for message in found] == ["payments_integration.W026"] * len(named)
    for message, option in zip(found, named, strict=True):
        assert option in str(message.hint)


def test_api_paths_are_not_imported_while_the_setting_is_wrong() -> None:
    with override_settings(PAYMENTS_INTEGRATION=setting(API_QUERYSET="nowhere.visible", PROCESING="celery")):
        assert check_api() == []


@pytest.mark.parametrize("host", ["http://127.0.0.1:8001", "http://localhost:8001", "http://[::1]:1"])
def test_plain_http_is_accepted_for_this_machine_only(host: str) -> None:
    assert not list(conf.problems(account(BASE_URL=host)))


def test_a_setting_without_an_account_is_a_warning() -> None:
    with override_settings(PAYMENTS_INTEGRATION={}):
        assert "payments_integration.W001" in [message.id for message in check_settings()]


def test_accounts_without_a_default_are_a_warning(settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = {"ACCOUNTS": {"shop": ACCOUNT}}
    (warning,) = check_settings()
    assert warning.id == "payments_integration.W008"
    assert 'no account "default"' in warning.msg
    settings.PAYMENTS_INTEGRATION = setting()
    assert check_settings() == []


def test_a_webhook_secret_of_two_accounts_is_a_warning(settings: Any) -> None:
    """A delivery to the wrong URL would pass, and its object belong to the wrong account for ever."""
    one, two = {**ACCOUNT, "WEBHOOK_SECRETS": ["old", "new"]}, {**ACCOUNT, "API_KEY": "sk_2"}
    settings.PAYMENTS_INTEGRATION = {"ACCOUNTS": {"default": one, "br": {**two, "WEBHOOK_SECRETS": ["new"]}}}
    (warning,) = check_settings()
    assert warning.id == "payments_integration.W034"
    assert "br and default have a webhook secret in common" in warning.msg
    settings.PAYMENTS_INTEGRATION = {"ACCOUNTS": {"default": one, "br": two}}
    assert check_settings() == []


@pytest.mark.promise(6)
def test_a_border_of_history_in_the_future_is_a_warning(settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = account(DISPATCH_SINCE=timezone.now() + timedelta(hours=1))
    (warning,) = check_settings()
    assert (warning.id, '["default"]["DISPATCH_SINCE"] is in the future' in warning.msg) == (
        "payments_integration.W032", True
    )  # fmt: skip
    settings.PAYMENTS_INTEGRATION = account(DISPATCH_SINCE=timezone.now() - timedelta(hours=1))
    assert check_settings() == []


def test_a_reorder_window_without_a_worker_is_a_warning(settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = setting(REORDER_WINDOW=5)
    assert ids(check_settings()) == {"payments_integration.W009"}
    settings.PAYMENTS_INTEGRATION = setting(REORDER_WINDOW=5, PROCESSING="celery")
    assert "payments_integration.W009" not in ids(check_settings())
    settings.PAYMENTS_INTEGRATION = setting(REORDER_WINDOW=5, PROCESSING="worker")
    (warning,) = check_settings()
    assert (warning.id, '"PROCESSING": "worker"' in warning.msg) == ("payments_integration.W009", True)


@pytest.mark.parametrize("processing", ["inline", "celery"])
def test_a_wake_up_that_is_never_called_is_an_error(processing: str, settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = setting(WAKE_UP="shop.tasks.wake_up", PROCESSING=processing)
    error = next(message for message in check_settings() if message.id == "payments_integration.E024")
    assert error.is_serious()
    assert f'"PROCESSING": "{processing}"' in error.msg
    assert error.hint == 'Set "PROCESSING": "worker", or leave WAKE_UP out.'


@pytest.mark.parametrize("processing", ["inline", "celery", "worker"])
@pytest.mark.parametrize(
    ("apps", "is_per_tenant"),
    [
        (["payments_integration.apps.PaymentsIntegrationConfig"], True),
        (["payments_integration"], True),
        (["shop"], False),
    ],
)
def test_with_a_schema_for_each_tenant_only_requests_and_cron_work(
    processing: str, apps: list[str], is_per_tenant: bool, settings: Any
) -> None:
    settings.PAYMENTS_INTEGRATION = setting(PROCESSING=processing)
    settings.TENANT_APPS = apps
    found = [message.is_serious() for message in check_settings() if message.id == "payments_integration.E027"]
    assert found == [True] * (is_per_tenant and processing != "inline")


def test_a_worker_needs_no_wake_up_and_no_schedule_of_celery(settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = setting(PROCESSING="worker")
    settings.CELERY_BEAT_SCHEDULE = {}
    assert check_settings() == []
    settings.PAYMENTS_INTEGRATION = setting(PROCESSING="worker", WAKE_UP="shop.tasks.wake_up")
    assert check_settings() == []


def test_a_project_without_the_app_of_the_rest_framework_is_warned(settings: Any) -> None:
    settings.INSTALLED_APPS = [name for name in settings.INSTALLED_APPS if name != "rest_framework"]
    (warning,) = check_settings()
    assert warning.id == "payments_integration.W010"
    assert "rest_framework is missing from INSTALLED_APPS" in warning.msg


def test_urls_without_the_app_name_the_missing_app() -> None:
    code = (
        "from django.conf import settings; settings.configure(SECRET_KEY='x', INSTALLED_APPS=[]);"
        "import django; django.setup(); from django.urls import include; include('payments_integration.urls')"
    )
    ended = subprocess.run([sys.executable, "-W", "error", "-c", code], check=False, capture_output=True, text=True)
    assert ended.stderr.splitlines()[-1] == (
        "django.core.exceptions.ImproperlyConfigured: payments_integration.urls needs the app: add "
        '"payments_integration" to INSTALLED_APPS.'
    )


def catch_all(request: Any, path: str) -> Any: ...


OURS = path("payments/", include("payments_integration.urls"))


class Included:
    urlpatterns = [OURS]


class Forgotten:
    urlpatterns = [path("shop/", include("payments_integration.checkout.urls"))]


class Shadowed:
    urlpatterns = [path("<path:path>", catch_all, name="wagtail_serve"), OURS]


class ShadowedByOne:
    urlpatterns = [path("payments/webhook/<slug:path>/", catch_all, name="other"), OURS]


class Below:
    urlpatterns = [OURS, path("<path:path>", catch_all)]


@pytest.mark.case(110)
@pytest.mark.parametrize(
    ("urls", "says"),
    [
        (Included, []),
        (Below, []),
        (Forgotten, ["payments_integration:webhook is not in"]),
        (Shadowed, ["/payments/webhook/ leads to another view (wagtail_serve)"]),
        (ShadowedByOne, ["/payments/webhook/default/ leads to another view (other)"]),
    ],
)
def test_a_webhook_url_that_does_not_lead_to_the_view_is_a_check_error(
    urls: type, says: list[str], settings: Any
) -> None:
    settings.ROOT_URLCONF = urls
    found = [message for message in checks.run_checks() if message.id == "payments_integration.E015"]
    assert len(found) == len(says)
    for error, text in zip(found, says, strict=True):
        assert f"The webhook URL {text}" in error.msg
        assert error.level == checks.ERROR
        assert ("payments_quickstart --write" in str(error.hint)) == (urls is Forgotten)


@pytest.mark.case(110)
def test_the_webhook_url_is_found_below_a_prefix_of_the_server() -> None:
    set_script_prefix("/app/")
    try:
        assert check_webhook_urls() == []
    finally:
        clear_script_prefix()


@pytest.mark.any_database
@pytest.mark.django_db
def test_the_checks_are_registered() -> None:
    with override_settings(PAYMENTS_INTEGRATION={"X": 1}):
        assert "payments_integration.E002" in [message.id for message in checks.run_checks()]


@pytest.mark.parametrize(
    ("limit", "most", "is_warned_of"),
    [
        (None, 2**26, False), (2_621_440, None, False), (2**20, None, False), (2**20 - 1, None, True),
        (2_621_440, 2**22, True), (100_000, 65_536, False),
    ],
)  # fmt: skip
def test_a_limit_of_django_that_refuses_deliveries_is_warned_of(
    settings: Any, limit: int | None, most: int | None, is_warned_of: bool
) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = limit
    settings.PAYMENTS_INTEGRATION = account() | ({} if most is None else {"MAX_WEBHOOK_BYTES": most})
    found = [each for each in check_settings() if each.id == "payments_integration.W035"]
    assert bool(found) is is_warned_of
    assert all(f"DATA_UPLOAD_MAX_MEMORY_SIZE is {limit}" in each.msg for each in found)


def test_deployment_checks_warn_about_redirects_and_the_default_key(settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = True
    settings.PAYMENTS_INTEGRATION = account(API_KEY="sk_live_1")
    assert ids(check_deployment()) == {"payments_integration.W003", "payments_integration.W004"}
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.PAYMENTS_INTEGRATION = account(API_KEY="sk_live_1") | {"ENCRYPTION_KEYS": ["k" * 32]}
    assert check_deployment() == []


@pytest.mark.parametrize(
    ("changes", "id", "says"),
    [
        ({"API_KEY": "sk_test_1"}, "W011", '["default"]["API_KEY"] is a test key'),
        ({"BASE_URL": "http://127.0.0.1:8400"}, "W012", '["default"]["BASE_URL"] is an address of this machine'),
        ({"BASE_URL": "https://localhost"}, "W012", "BASE_URL"),
        ({"ENCRYPTION_KEYS": ["k" * 32, "changeme"]}, "W013", "fewer than 32 characters"),
    ],
)
def test_deployment_checks_warn_about_values_for_development(
    changes: dict[str, Any], id: str, says: str, settings: Any
) -> None:
    keys = changes.pop("ENCRYPTION_KEYS", ["k" * 32])
    settings.PAYMENTS_INTEGRATION = account(**{"API_KEY": "sk_live_1", **changes}) | {"ENCRYPTION_KEYS": keys}
    (warning,) = check_deployment()
    assert warning.id == f"payments_integration.{id}"
    assert says in warning.msg
    assert warning.hint
    assert not any(secret in f"{warning.msg}{warning.hint}" for secret in ("sk_", "changeme", "kkk"))


def ids(messages: list[checks.CheckMessage]) -> set[str | None]:
    return {message.id for message in messages}


#: The apps whose tables no cache may answer for.
OURS = [config.label for config in apps.get_app_configs() if config.name.startswith("payments_integration")]


@pytest.mark.parametrize(
    ("library", "options", "cached"),
    [
        ("cacheops", {"CACHEOPS": {"shop.*": {"ops": "all"}, "*.*": {}}}, False),
        ("cacheops", {"CACHEOPS": {"*.*": {"ops": "all"}}}, True),
        ("cacheops", {"CACHEOPS": {"*.*": {"ops": "all"}, **{f"{label}.*": None for label in OURS}}}, False),
        ("cacheops", {"CACHEOPS": {"*.*": {}}, "CACHEOPS_DEFAULTS": {"ops": "get"}}, True),
        ("cacheops", {"CACHEOPS": {"payments_integration.Payment": {"ops": {"get"}}}}, True),
        ("cachalot", {}, True),
        ("cachalot", {"CACHALOT_ENABLED": False}, False),
        ("cachalot", {"CACHALOT_UNCACHABLE_APPS": OURS}, False),
        ("cachalot", {"CACHALOT_ONLY_CACHABLE_APPS": ["shop"]}, False),
        ("cachalot", {"CACHALOT_ONLY_CACHABLE_TABLES": ["payments_integration_payment"]}, True),
    ],
)
def test_a_library_that_answers_reads_from_a_cache_is_a_check_error(
    library: str, options: dict[str, Any], cached: bool, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cacheops hears nothing of rows that SQL writes. Cachalot keeps what was read while another process wrote."""
    monkeypatch.setattr(apps, "is_installed", lambda name: name == library)
    for name, value in options.items():
        setattr(settings, name, value)
    found = [message for message in check_database() if message.id == "payments_integration.E026"]
    assert len(found) == cached
    assert all(library in message.msg and "'payments_integration'" in str(message.hint) for message in found)


@pytest.mark.parametrize(("zone", "is_wrong"), [(None, False), ("UTC", False), ("America/Santiago", True)])
def test_times_that_a_database_stores_in_another_zone_are_a_check_error(
    zone: str | None, is_wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL stores moments. In the others, the order within the hour that comes twice is lost."""
    monkeypatch.setitem(connections["default"].settings_dict, "TIME_ZONE", zone)
    monkeypatch.delitem(connections["default"].__dict__, "timezone_name", raising=False)
    try:
        found = check_database()
    finally:
        connections["default"].__dict__.pop("timezone_name", None)
    assert ("payments_integration.E016" in ids(found)) is (is_wrong and not POSTGRES)
    assert not is_wrong or POSTGRES or 'DATABASES["default"]["TIME_ZONE"] is America/Santiago' in found[0].msg


@pytest.mark.case(77)
def test_atomic_requests_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "payments_integration.W015" not in ids(check_database())
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    (warning,) = [message for message in check_database() if message.id == "payments_integration.W015"]
    assert warning.level == checks.WARNING
    assert warning.hint is not None
    assert warning.hint.startswith("Decorate these views with django.db.transaction.non_atomic_requests")


def test_a_webhook_below_a_language_is_a_warning(settings: Any) -> None:
    assert check_webhook_urls() == []
    settings.ROOT_URLCONF = type(
        "Routes", (), {"urlpatterns": i18n_patterns(path("payments/", include("payments_integration.urls")))}
    )
    settings.LANGUAGE_CODE = "es-cl"
    assert {message.id for message in check_webhook_urls()} == {"payments_integration.W018"}
    assert "/es/payments/webhook/ begins with a language" in check_webhook_urls()[0].msg


def test_use_tz_off_is_a_check_error(settings: Any) -> None:
    assert "payments_integration.E011" not in ids(check_settings())
    settings.TIME_ZONE = "America/Santiago"
    settings.USE_TZ = False
    assert "payments_integration.E011" in ids(check_settings())
    assert "payments_integration.E016" not in ids(check_database()), "its TIME_ZONE is the site's"


@pytest.fixture(autouse=True)
def _no_celery_app(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks would read the settings of an app that another test has left."""
    monkeypatch.setattr("celery._state.default_app", None)
    monkeypatch.setattr("celery._state._tls.current_app", None)


@pytest.mark.parametrize(("namespace", "reads_it"), [("CELERY", True), ("", False), ("QUEUE", False)])
def test_a_schedule_that_the_celery_app_does_not_read_is_a_warning(
    settings: Any, monkeypatch: pytest.MonkeyPatch, namespace: str, reads_it: bool
) -> None:
    """Its beat would send nothing, and a webhook whose wake-up is lost would stay unprocessed."""
    settings.PAYMENTS_INTEGRATION = setting(PROCESSING="celery")
    settings.CELERY_BEAT_SCHEDULE = {**BEAT_SCHEDULE}
    app = Celery("a project", set_as_current=False)
    app.config_from_object("django.conf:settings", namespace=namespace)
    monkeypatch.setattr("celery._state.default_app", app)
    assert ("payments_integration.W005" not in ids(check_settings())) is reads_it


@pytest.mark.parametrize(
    ("processing", "url", "warns"), [("celery", "", True), ("celery", "x", False), ("inline", "", False)]
)
def test_a_celery_app_that_is_not_imported_is_a_warning(
    settings: Any, monkeypatch: pytest.MonkeyPatch, processing: str, url: str, warns: bool
) -> None:
    """A web process would publish to localhost, and find no broker or somebody else's."""
    monkeypatch.setenv("CELERY_BROKER_URL", url)
    settings.PAYMENTS_INTEGRATION = setting(PROCESSING=processing)
    assert ("payments_integration.W029" in ids(check_settings())) is warns
    # What Celery makes of itself for a task that is called without an app of the project.
    monkeypatch.setattr("celery._state.default_app", Celery("default", fixups=[], set_as_current=False))
    assert ("payments_integration.W029" in ids(check_settings())) is warns
    # A misspelt variable leaves an empty address, and Celery takes localhost for it.
    app = Celery("a project", broker="", set_as_current=False)
    monkeypatch.setattr("celery._state.default_app", app)
    assert ("payments_integration.W029" in ids(check_settings())) is warns
    app.conf.broker_url = "redis://broker"
    assert "payments_integration.W029" not in ids(check_settings())
    app.conf.update(broker_url="", task_always_eager=True)
    assert "payments_integration.W029" not in ids(check_settings())


@pytest.mark.parametrize(
    "broker",
    [
        {"broker_write_url": "redis://broker"},
        {"broker_host": "broker"},
        {"broker_transport": "redis"},
        {"broker_transport": "sqs", "broker_transport_options": {"region": "sa-east-1"}},
        {"broker_user": "shop", "broker_password": "secret", "broker_vhost": "shop"},
    ],
    ids=str,
)
def test_a_celery_app_may_name_its_broker_in_any_way(
    settings: Any, monkeypatch: pytest.MonkeyPatch, broker: dict[str, Any]
) -> None:
    settings.PAYMENTS_INTEGRATION = setting(PROCESSING="celery")
    app = Celery("a project", set_as_current=False)
    monkeypatch.setattr("celery._state.default_app", app)
    assert "payments_integration.W029" in ids(check_settings())
    app.conf.update(broker)
    assert "payments_integration.W029" not in ids(check_settings())


def test_the_broker_is_that_of_the_celery_app_that_publishes(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wake-ups are published in a thread, where Celery uses its default app, not the last one that was made."""
    settings.PAYMENTS_INTEGRATION = setting(PROCESSING="celery")
    with_broker = Celery("one", broker="redis://broker", set_as_current=False)
    without = Celery("other", set_as_current=False)
    for default, last, warns in ((with_broker, without, False), (without, with_broker, True)):
        monkeypatch.setattr("celery._state.default_app", default)
        monkeypatch.setattr("celery._state._tls.current_app", last)
        assert ("payments_integration.W029" in ids(check_settings())) is warns
        with ThreadPoolExecutor() as pool:
            assert pool.submit(lambda: process_events.app).result() is default


def test_either_of_two_celery_apps_may_have_the_schedule(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PAYMENTS_INTEGRATION = setting(PROCESSING="celery")
    settings.CELERY_BEAT_SCHEDULE = {**BEAT_SCHEDULE}
    first, last = Celery("first", set_as_current=False), Celery("last", set_as_current=False)
    last.config_from_object("django.conf:settings", namespace="CELERY")
    monkeypatch.setattr("celery._state.default_app", first)
    assert "payments_integration.W005" in ids(check_settings())
    monkeypatch.setattr("celery._state._tls.current_app", last)
    assert "payments_integration.W005" not in ids(check_settings())
    monkeypatch.setattr("celery._state.default_app", last)
    monkeypatch.setattr("celery._state._tls.current_app", first)
    assert "payments_integration.W005" not in ids(check_settings())


def test_what_the_code_of_the_celery_app_sets_counts(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PAYMENTS_INTEGRATION = setting(PROCESSING="celery")
    app = Celery("a project", set_as_current=False)
    monkeypatch.setattr("celery._state.default_app", app)
    app.conf.beat_schedule = {**BEAT_SCHEDULE}
    before = ids(check_settings())
    app.conf.task_annotations = {"*": {"rate_limit": "1/m", "time_limit": 60}}
    found = {"payments_integration.W027", "payments_integration.W028"}
    assert "payments_integration.W005" not in before
    assert not found & set(before)
    assert found <= set(ids(check_settings()))


def test_a_schedule_without_process_events_is_a_warning(settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = setting(PROCESSING="celery")
    assert "payments_integration.W005" in ids(check_settings())
    settings.CELERY_BEAT_SCHEDULE = {}
    assert "payments_integration.W005" in ids(check_settings())
    settings.CELERY_BEAT_SCHEDULE = {**BEAT_SCHEDULE}
    assert "payments_integration.W005" not in ids(check_settings())


def test_a_schedule_may_have_entries_of_celery(settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = setting(PROCESSING="celery")
    report = ScheduleEntry(name="report", task="shop.tasks.report", schedule=60.0)
    settings.CELERY_BEAT_SCHEDULE = {"report": report}
    assert "payments_integration.W005" in ids(check_settings())
    ours = ScheduleEntry(name="ours", task="payments_integration.tasks.process_events", schedule=30.0)
    settings.CELERY_BEAT_SCHEDULE = {"report": report, "ours": ours}
    assert "payments_integration.W005" not in ids(check_settings())


def test_a_schedule_that_leaves_an_account_out_is_a_warning(settings: Any) -> None:
    entry = {"BASE_URL": "https://x.example", "API_KEY": "sk_1"}
    accounts = {alias: {**entry, "API_KEY": f"sk_{alias}"} for alias in ("one", "two", "three")}
    settings.PAYMENTS_INTEGRATION = {"PROCESSING": "celery", "ACCOUNTS": accounts}
    settings.CELERY_BEAT_SCHEDULE = beat_schedule(["two"])
    (warning,) = [message.msg for message in check_settings() if message.id == "payments_integration.W005"]
    assert "for 'one', 'three':" in warning
    settings.CELERY_BEAT_SCHEDULE = beat_schedule(accounts)
    assert "payments_integration.W005" not in ids(check_settings())
    # One for all accounts, kept beside those of some.
    settings.CELERY_BEAT_SCHEDULE = {**BEAT_SCHEDULE, **beat_schedule(["two"])}
    assert "payments_integration.W005" not in ids(check_settings())


@pytest.mark.parametrize(
    ("annotations", "limited"),
    [
        (None, ""),
        ({"shop.tasks.mail": {"rate_limit": "10/m"}, "*": {"acks_late": True}}, ""),
        ({"*": {"rate_limit": "10/s"}}, "process_events, resume_operations, "),
        ([{"*": {"rate_limit": "10/s"}}, object()], "process_events, resume_operations, "),
        ({"payments_integration.tasks.prune": {"rate_limit": "1/m"}}, "prune: "),
        (
            {"*": {"rate_limit": "9/s"}, **{f"payments_integration.tasks.{n}": {"rate_limit": "0"} for n in EXPIRES}},
            "",
        ),
    ],
)
def test_an_annotation_that_limits_the_rate_of_the_tasks_is_a_warning(
    settings: Any, annotations: Any, limited: str
) -> None:
    settings.PAYMENTS_INTEGRATION = setting(PROCESSING="celery")
    settings.CELERY_TASK_ANNOTATIONS = annotations
    found = [message.msg for message in check_settings() if message.id == "payments_integration.W027"]
    assert len(found) == bool(limited)
    assert all(f"limits the rate of {limited}" in message for message in found)
    settings.PAYMENTS_INTEGRATION = setting()
    assert "payments_integration.W027" not in ids(check_settings())


@pytest.mark.parametrize(
    ("annotations", "cut"),
    [
        (None, ""),
        ({"shop.tasks.mail": {"time_limit": 10}, "*": {"soft_time_limit": None, "time_limit": 43200}}, ""),
        ({"*": {"soft_time_limit": 300}}, "process_events, resume_operations, "),
        ([object(), {"*": {"time_limit": 3600}}], "reconcile_events, reconcile_objects, prune: "),
        ({"payments_integration.tasks.prune": {"time_limit": 60}}, "prune: "),
    ],
)
def test_an_annotation_that_limits_the_time_of_the_tasks_is_a_warning(
    settings: Any, annotations: Any, cut: str
) -> None:
    """The daily sweep is not resumed: ended each time, it would never compare the last objects of its lists."""
    settings.PAYMENTS_INTEGRATION = setting(PROCESSING="celery")
    settings.CELERY_TASK_ANNOTATIONS = annotations
    found = [message.msg for message in check_settings() if message.id == "payments_integration.W028"]
    assert len(found) == bool(cut)
    assert all(f"limits the time of {cut}" in message for message in found)
    settings.PAYMENTS_INTEGRATION = setting()
    assert "payments_integration.W028" not in ids(check_settings())


def test_a_handler_for_an_unknown_event_type_or_status_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "registered", [])

    def fine(instance: Any, **kwargs: Any) -> None: ...
    def narrow(instance: Any) -> None: ...

    handlers.registered += [(fine, Payment, ("succeeded",)), (fine, None, ("payment.*",))]
    assert check_handlers() == []
    handlers.registered += [(fine, Payment, ("succ*",)), (fine, None, ("paymnt.*",)), (narrow, Payment, ())]
    messages = [message.msg for message in check_handlers()]
    assert len(messages) == 3
    assert "'succ*', which is not a status of Payment" in messages[0]
    assert "'paymnt.*'" in messages[1]
    assert "**kwargs" in messages[2]


@pytest.mark.promise(6)
@pytest.mark.parametrize("is_an_app", [True, False], ids=["misspelt", "of no app"])
def test_a_module_of_handlers_that_nothing_imports_is_a_warning(
    settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_an_app: bool
) -> None:
    monkeypatch.setattr(handlers, "registered", [])
    package, module = tmp_path / "package_of_a_shop", "payments_handlers" if is_an_app else "payment_handlers"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / f"{module}.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with mock.patch.dict(sys.modules):
        importlib.import_module(package.name)
        assert check_handlers() == []
        if is_an_app:
            settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, package.name]
        else:
            settings.ROOT_URLCONF = f"{package.name}.urls"
        (warning,) = check_handlers()
        assert (warning.id, f"{package.name}.{module}" in warning.msg) == ("payments_integration.W033", True)
        importlib.import_module(f"{package.name}.{module}")
        assert check_handlers() == []


def test_orders_that_no_handler_follows_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "registered", [])
    monkeypatch.setattr(apps, "get_models", lambda: [Payment, Order])

    def follow(**kwargs: Any) -> None: ...

    (warning,) = check_orders()
    assert warning.id == "payments_integration.W031"
    assert warning.msg.startswith(f"No handler is called when a payment succeeds: {Order._meta.label} ")
    for signal in (event_received, status_changed):
        for sender, told in ((Payment, True), (None, True), (Payout, False)):
            signal.connect(follow, sender=sender)
            try:
                assert (check_orders() == []) is told
            finally:
                signal.disconnect(follow, sender=sender)
    for model, names, told in (
        (Payment, ("failed", "succeeded"), True),
        (Payment, (), True),
        (None, ("payment.*",), True),
        (Payment, ("failed",), False),
        (Payout, (), False),
        (None, ("payout.*", "payment.failed"), False),
    ):
        handlers.registered[:] = [(follow, model, names)]
        assert (check_orders() == []) is told, (model, names)
    handlers.registered.clear()
    monkeypatch.setattr(apps, "get_models", lambda: [Payment])
    assert check_orders() == []


@pytest.mark.parametrize("signal", [pre_save, post_save])
def test_a_receiver_of_djangos_signals_for_a_mirror_is_a_warning(monkeypatch: pytest.MonkeyPatch, signal: Any) -> None:
    monkeypatch.setattr(handlers, "registered", [])

    def deliver(**kwargs: Any) -> None: ...

    # An audit log watches every model; a receiver of the project's own models is fine.
    signal.connect(deliver)
    signal.connect(deliver, sender=ReceiverCall)
    try:
        assert check_handlers() == []
        signal.connect(deliver, sender=Payment)
        (warning,) = check_handlers()
        assert warning.id == "payments_integration.W017"
        assert "for Payment does not see" in warning.msg
    finally:
        for sender in (None, ReceiverCall, Payment):
            signal.disconnect(deliver, sender=sender)


@pytest.mark.django_db
@pytest.mark.case(86)
def test_a_missing_encryption_key_is_a_check_error(settings: Any) -> None:
    WebhookEndpoint.objects.create(
        id="whk_1", account="default", url="https://x", events=[], status="active", state_at=timezone.now(),
        state_by="answer", synced_at=timezone.now(),
    )  # fmt: skip
    settings.PAYMENTS_INTEGRATION = setting(ENCRYPTION_KEYS=["old"])
    store_secret("default", "whk_1", "whsec_1")
    settings.PAYMENTS_INTEGRATION = setting(ENCRYPTION_KEYS=["new", "old"])
    assert check_keys(databases=["default"]) == []
    settings.PAYMENTS_INTEGRATION = setting(ENCRYPTION_KEYS=["new"])
    (error,) = check_keys(databases=["default"])
    assert error.id == "payments_integration.E010"
    # Without ENCRYPTION_KEYS the missing key is the old SECRET_KEY.
    assert "SECRET_KEY_FALLBACKS" in str(error.hint)
    assert "SECRET_KEY_FALLBACKS" in ACTIONS[Reason.SECRET_UNREADABLE]
    assert check_keys() == []
    settings.PAYMENTS_INTEGRATION = setting(PROCESING="celery")
    assert check_keys(databases=["default"]) == [], "check lists the wrong option, instead of ending with an error"


def test_tests_are_told_from_a_site() -> None:
    assert conf.in_test_environment()
    code = (
        "import sys; from payments_integration import conf;"
        "print(conf.in_test_environment(), 'django.test' in sys.modules);"
        "import django.test; print(conf.in_test_environment());"
        "from django.conf import settings; settings.configure(); from django.test.utils import *;"
        "setup_test_environment(); print(conf.in_test_environment()); teardown_test_environment();"
        "print(conf.in_test_environment())"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ended.stdout.split() == ["False", "False", "False", "True", "False"]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No variable of ours, and a working directory without a ``.env``."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # restored after the test
    monkeypatch.setattr(conf, "misspelt", {})
    for name in os.environ:
        if name.startswith("PAYMENTS_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PAYMENTS_BASE_URL", "https://api.example.com")
    monkeypatch.setenv("PAYMENTS_API_KEY", "sk_test_1")
    return monkeypatch


def test_from_env_reads_one_account_and_leaves_defaults_out(environment: pytest.MonkeyPatch) -> None:
    assert conf.from_env() == {"ACCOUNTS": {"default": {**ACCOUNT, "WEBHOOK_SECRETS": []}}}
    assert not list(conf.problems(conf.from_env()))


def test_from_env_reads_every_option(environment: pytest.MonkeyPatch) -> None:
    written: dict[str, tuple[str, Any]] = {
        "PROCESSING": ("celery", "celery"),
        "WAKE_UP": ("shop.tasks.wake_up", "shop.tasks.wake_up"),
        "REORDER_WINDOW": ("5", 5),
        "ENCRYPTION_KEYS": ("new,old", ["new", "old"]),
        "MAX_WEBHOOK_BYTES": ("65536", 65536),
        "BATCH_SIZE": ("100", 100),
        "RECEIVER_RETRIES": ("1,2", [1, 2]),
        "CONNECT_TIMEOUT": ("2.5", 2.5),
        "READ_TIMEOUT": ("10", 10.0),
        "REQUEST_DEADLINE": ("20", 20.0),
        "SILENT_AFTER": ("3600", 3600),
        "SWEEP_DAYS": ("40", 40),
        "EVENT_BODY_DAYS": ("50", 50),
        "EVENT_DAYS": ("60", 60),
        "BACKLOG_ALERT": ("30", 30),
        "APPROVAL_LIMITS": ("CLP=1000000,USD=50000", {"CLP": 1_000_000, "USD": 50_000}),
        "API_AUTHENTICATION_CLASSES": ("shop.auth.Token", ["shop.auth.Token"]),
        "API_PERMISSION_CLASSES": ("shop.api.A,shop.api.B", ["shop.api.A", "shop.api.B"]),
        "API_THROTTLE_CLASSES": ("shop.api.Throttle", ["shop.api.Throttle"]),
        "API_THROTTLE_RATES": ("read=9/minute,write=3/hour", {"read": "9/minute", "write": "3/hour"}),
        "API_QUERYSET": ("shop.api.rows", "shop.api.rows"),
        "API_REFERENCE_CHECK": ("shop.api.is_own_order", "shop.api.is_own_order"),
        "API_ACCOUNT_CHECK": ("shop.api.may_use", "shop.api.may_use"),
        "API_PAYMENT": ("shop.api.payment_of_order", "shop.api.payment_of_order"),
        "DOCUMENT_CHECKS": ("warn", "warn"),
        "ORDER_URL": ("shop.orders.url_of", "shop.orders.url_of"),
        "NAMES": ("cl_card=Webpay", {"cl_card": "Webpay"}),
        "REPORT_DOUBLE_PAYMENTS": ("false", False),
        "ALLOW_NETWORK_IN_TESTS": ("true", True),
    }
    for name, (text, _value) in written.items():
        environment.setenv(f"PAYMENTS_{name}", text)
    found = conf.from_env()
    del found["ACCOUNTS"]
    assert found == {name: value for name, (_text, value) in written.items()}
    assert {"ACCOUNTS", *written} == {option.name for option in dataclasses.fields(conf.Settings)}
    with override_settings(PAYMENTS_INTEGRATION=conf.from_env()):
        assert conf.current().RECEIVER_RETRIES == (1, 2)


def test_from_env_reads_since_when_an_account_dispatches(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("PAYMENTS_ACCOUNTS", "default,br")
    environment.setenv("PAYMENTS_BR_API_KEY", "sk_test_br")
    environment.setenv("PAYMENTS_BR_DISPATCH_SINCE", "2026-01-31T12:00:00Z")
    with override_settings(PAYMENTS_INTEGRATION=conf.from_env()):
        assert conf.account("br").dispatch_since == datetime(2026, 1, 31, 12, tzinfo=UTC)
        assert conf.account().dispatch_since is None
    for wrong in ("yesterday", "2026-01-31T12:00:00"):
        environment.setenv("PAYMENTS_BR_DISPATCH_SINCE", wrong)
        with pytest.raises(ImproperlyConfigured, match="PAYMENTS_BR_DISPATCH_SINCE"):
            conf.from_env()


def test_from_env_reads_several_accounts(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("PAYMENTS_ACCOUNTS", "default,br,mx-2")
    environment.setenv("PAYMENTS_BR_API_KEY", "sk_test_br")
    environment.setenv("PAYMENTS_BR_WEBHOOK_SECRETS", "whsec_1,whsec_2")
    environment.setenv("PAYMENTS_MX_2_API_KEY", "sk_test_mx")
    environment.setenv("PAYMENTS_MX_2_BASE_URL", "https://other.example.com")
    assert conf.from_env()["ACCOUNTS"] == {
        "default": {**ACCOUNT, "WEBHOOK_SECRETS": []},
        "br": {**ACCOUNT, "API_KEY": "sk_test_br", "WEBHOOK_SECRETS": ["whsec_1", "whsec_2"]},
        "mx-2": {"BASE_URL": "https://other.example.com", "API_KEY": "sk_test_mx", "WEBHOOK_SECRETS": []},
    }


BUNDLE = certifi.where()


def test_an_account_has_a_name_for_people() -> None:
    with override_settings(PAYMENTS_INTEGRATION=account(NAME="Shop Brazil")):
        assert conf.account_name("default") == "Shop Brazil"
        assert conf.account_choices() == [("default", "Shop Brazil")]
        assert conf.account_name("removed") == "removed"
    with override_settings(PAYMENTS_INTEGRATION=account()):
        assert conf.account_choices() == [("default", "default")]


def test_from_env_reads_the_names(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("PAYMENTS_ACCOUNTS", "default,br")
    environment.setenv("PAYMENTS_BR_API_KEY", "sk_test_br")
    environment.setenv("PAYMENTS_BR_NAME", "Shop Brazil")
    found = conf.from_env()["ACCOUNTS"]
    assert "NAME" not in found["default"]
    assert found["br"]["NAME"] == "Shop Brazil"


@pytest.mark.parametrize(("key", "is_test"), [("sk_test_1", True), ("sk_live_1", False)])
def test_a_test_key_is_told_by_its_beginning(key: str, is_test: bool) -> None:
    with override_settings(PAYMENTS_INTEGRATION=account(API_KEY=key)):
        assert conf.is_test("default") is is_test
        assert conf.is_test("removed") is False


@pytest.mark.case(149)
@pytest.mark.parametrize("bundle", [BUNDLE, Path(BUNDLE)])
def test_an_account_may_have_a_way_out(bundle: Any) -> None:
    way_out = {"PROXY": "http://me:hid%20den@proxy.example:3128/", "CA_BUNDLE": bundle}
    with override_settings(PAYMENTS_INTEGRATION=account(**way_out)):
        found = conf.account()
    assert (found.proxy, found.ca_bundle) == ("http://me:hid%20den@proxy.example:3128", BUNDLE)
    assert "hid" not in repr(found)
    with override_settings(PAYMENTS_INTEGRATION=account(PROXY="", CA_BUNDLE=None)):
        assert (conf.account().proxy, conf.account().ca_bundle) == ("", "")


@pytest.mark.case(149)
def test_from_env_reads_the_way_out(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("PAYMENTS_ACCOUNTS", "default,br")
    environment.setenv("PAYMENTS_BR_API_KEY", "sk_test_br")
    environment.setenv("PAYMENTS_PROXY", "http://proxy.example:3128")
    environment.setenv("PAYMENTS_CA_BUNDLE", BUNDLE)
    environment.setenv("PAYMENTS_BR_PROXY", "http://other.example:3128")
    found = conf.from_env()["ACCOUNTS"]
    assert {key: found["default"][key] for key in ("PROXY", "CA_BUNDLE")} == {
        "PROXY": "http://proxy.example:3128",
        "CA_BUNDLE": BUNDLE,
    }
    assert (found["br"]["PROXY"], found["br"]["CA_BUNDLE"]) == ("http://other.example:3128", BUNDLE)


@pytest.mark.case(139)
def test_from_env_leaves_blanks_and_line_breaks_out(environment: pytest.MonkeyPatch) -> None:
    for name, text in {
        "BASE_URL": " https://api.example.com\n",
        "API_KEY": "sk_test_1\r\n",
        "WEBHOOK_SECRETS": "a, b\n",
        "ENCRYPTION_KEYS": " new ,\told, ",
        "PROCESSING": "celery ",
        "RECEIVER_RETRIES": "1, 2",
        "APPROVAL_LIMITS": "CLP=1000000, USD = 50000",
        "API_THROTTLE_RATES": "read=9/minute, write=3/hour",
        "API_PERMISSION_CLASSES": "shop.api.A, shop.api.B",
        "BR_API_KEY": " \n sk_test_br",
        "ACCOUNTS": "default, br",
    }.items():
        environment.setenv(f"PAYMENTS_{name}", text)
    assert conf.from_env() == {
        "ACCOUNTS": {
            "default": {**ACCOUNT, "WEBHOOK_SECRETS": ["a", "b"]},
            "br": {**ACCOUNT, "API_KEY": "sk_test_br", "WEBHOOK_SECRETS": []},
        },
        "ENCRYPTION_KEYS": ["new", "old"],
        "PROCESSING": "celery",
        "RECEIVER_RETRIES": [1, 2],
        "APPROVAL_LIMITS": {"CLP": 1_000_000, "USD": 50_000},
        "API_THROTTLE_RATES": {"read": "9/minute", "write": "3/hour"},
        "API_PERMISSION_CLASSES": ["shop.api.A", "shop.api.B"],
    }


def test_a_misspelt_variable_is_a_check_error(environment: pytest.MonkeyPatch, settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = setting()
    environment.setenv("PAYMENTS_ACCOUNTS", "default,br")
    environment.setenv("PAYMENTS_BR_API_KEY", "sk_test_br")
    # Variables of the project itself, and of another prefix.
    for name in ("PAYMENTS_METRICS_TOKEN", "PAYMENTS_DATABASE_URL", "PAYMENTS_PUBLIC_API_KEY", "SHOP_BATCHSIZE"):
        environment.setenv(name, "x")
    conf.from_env()
    assert check_settings() == []
    misspelt = {
        "PAYMENTS_APPROVAL_LIMIT": "PAYMENTS_APPROVAL_LIMITS",
        "PAYMENTS_BATCHSIZE": "PAYMENTS_BATCH_SIZE",
        "PAYMENTS_BR_WEBHOOK_SECRET": "PAYMENTS_BR_WEBHOOK_SECRETS",
        "PAYMENTS_DEFAULT_WEBHOOK_SECRETS": "PAYMENTS_WEBHOOK_SECRETS",
        "payments_processing": "PAYMENTS_PROCESSING",
    }
    for name in misspelt:
        environment.setenv(name, "7")
    conf.from_env()
    found = check_settings()
    assert ids(found) == {"payments_integration.E017"}
    assert [error.msg for error in found] == [
        f"The environment variable {name} is not read. Did you mean {meant}?" for name, meant in misspelt.items()
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("API_KEY", "sk_test_br"),
        ("WEBHOOK_SECRETS", "whsec_br"),
        ("WEBHOOK_SECRET", "whsec_br"),
        ("DISPATCH_SINCE", "2026-01-31T00:00:00Z"),
        ("CA_BUNDLE", "/etc/br.pem"),
    ],
)
def test_a_variable_of_an_account_that_is_not_listed_is_a_check_error(
    environment: pytest.MonkeyPatch, settings: Any, name: str, value: str
) -> None:
    """Under the similar name, PAYMENTS_WEBHOOK_SECRETS, Brazil's secret would be the default account's."""
    settings.PAYMENTS_INTEGRATION = setting()
    environment.setenv("PAYMENTS_ACCOUNTS", "default,mx-2")
    environment.setenv("PAYMENTS_MX_2_API_KEY", "sk_test_mx")
    environment.setenv("PAYMENTS_MX_2_WEBHOOK_SECRETS", "whsec_mx")
    environment.setenv(f"PAYMENTS_BR_{name}", value)
    conf.from_env()
    (found,) = check_settings()
    assert found.id == "payments_integration.E017"
    assert found.msg == f"The environment variable PAYMENTS_BR_{name} is not read. PAYMENTS_ACCOUNTS does not list br."
    assert str(found.hint).startswith("Write PAYMENTS_ACCOUNTS=default,mx-2,br. ")


@pytest.mark.parametrize(
    ("words", "flag"),
    [("1 true True YES on y T", True), ("0 false FALSE no Off n f", False), ("si enabled ja 2 ok", None)],
)
def test_from_env_reads_flags(environment: pytest.MonkeyPatch, words: str, flag: bool | None) -> None:
    """A word that it does not know would be False."""
    for word in words.split():
        environment.setenv("PAYMENTS_REPORT_DOUBLE_PAYMENTS", word)
        if flag is None:
            with pytest.raises(ImproperlyConfigured, match=r"_PAYMENTS cannot be read\. Write true or false\."):
                conf.from_env()
        else:
            assert conf.from_env()["REPORT_DOUBLE_PAYMENTS"] is flag


@pytest.mark.parametrize(
    ("name", "wrong", "written"),
    [
        ("APPROVAL_LIMITS", "CLP:1000", "CLP=1000000,USD=50000"),
        ("RECEIVER_RETRIES", "a", "10,30,60"),
        ("API_THROTTLE_RATES", "read", "read=120/minute,write=30/minute"),
        ("NAMES", "Webpay", "cl_webpay_card=Webpay"),
        ("BATCH_SIZE", "many", "a whole number"),
        ("READ_TIMEOUT", "long", "a number"),
        ("DISPATCH_SINCE", "yesterday", "2026-01-31T00:00:00Z"),
        ("BR_DISPATCH_SINCE", "yesterday", "2026-01-31T00:00:00Z"),
    ],
)
def test_a_variable_that_cannot_be_read_says_how_to_write_it(
    environment: pytest.MonkeyPatch, name: str, wrong: str, written: str
) -> None:
    environment.setenv("PAYMENTS_ACCOUNTS", "default,br")
    environment.setenv("PAYMENTS_BR_API_KEY", "sk_test_br")
    environment.setenv(f"PAYMENTS_{name}", wrong)
    with pytest.raises(ImproperlyConfigured) as caught:
        conf.from_env()
    assert str(caught.value) == f"The environment variable PAYMENTS_{name} cannot be read. Write {written}."


@pytest.mark.parametrize("name", ["check", "migrate", "runserver", "payments_health"])
def test_a_command_ends_with_one_line_about_a_wrong_variable(
    name: str, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "shop_settings.py").write_text(
        "from payments_integration import conf\nPAYMENTS_INTEGRATION = conf.from_env()\n"
    )
    environment.setenv("PAYMENTS_BASE_URL", "http://api.example.com")
    environment.setenv("DJANGO_SETTINGS_MODULE", "shop_settings")
    environment.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-m", "django", name], check=False, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith(
        "ImproperlyConfigured: The environment variable PAYMENTS_BASE_URL is missing or wrong. Write an https://"
    )


def test_other_errors_are_printed_as_before(environment: pytest.MonkeyPatch) -> None:
    printed: list[BaseException] = []
    environment.setattr(sys, "excepthook", lambda kind, error, traceback: printed.append(error))
    environment.delenv("PAYMENTS_API_KEY")
    for _ in range(2):
        with pytest.raises(ImproperlyConfigured) as caught:
            conf.from_env()
    sys.excepthook(caught.type, caught.value, caught.tb)
    assert printed == []
    other = ImproperlyConfigured("of another app")
    sys.excepthook(type(other), other, None)
    assert printed == [other]


@pytest.mark.parametrize("name", ["BASE_URL", "API_KEY", "ENCRYPTION_KEYS", "PROCESSING"])
@pytest.mark.parametrize("text", ["a-value   # what it is", "# what it is"])
def test_a_comment_behind_a_value_is_no_part_of_it(environment: pytest.MonkeyPatch, name: str, text: str) -> None:
    environment.setenv(f"PAYMENTS_{name}", text)
    with pytest.raises(ImproperlyConfigured, match=f"PAYMENTS_{name} has a comment behind its value"):
        conf.from_env()


def test_the_name_of_an_account_may_have_a_number(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("PAYMENTS_NAME", "Tienda #2")
    assert conf.from_env()["ACCOUNTS"]["default"]["NAME"] == "Tienda #2"


def test_a_clone_of_a_project_without_its_env_file_is_told_so(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.delenv("PAYMENTS_BASE_URL")
    hint = f"There is no {tmp_path / '.env'}; docs/quickstart.md shows one for the sandbox."
    with pytest.raises(ImproperlyConfigured) as caught:
        conf.from_env()
    assert str(caught.value).endswith(hint)
    (tmp_path / ".env").write_text("X=1\n")  # with manage.py in another folder, the project may have two
    with pytest.raises(ImproperlyConfigured) as caught:
        conf.from_env()
    assert str(caught.value).endswith(f" {tmp_path / '.env'} has no value for it.")
    environment.setenv("PAYMENTS_BASE_URL", "shop")
    with pytest.raises(ImproperlyConfigured) as caught:
        conf.from_env()
    assert ".env" not in str(caught.value)


def test_from_env_reads_another_prefix(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("SHOP_BASE_URL", "https://shop.example.com")
    environment.setenv("SHOP_API_KEY", "sk_test_shop")
    assert conf.from_env("SHOP_")["ACCOUNTS"]["default"]["API_KEY"] == "sk_test_shop"


def test_from_env_reads_a_file_that_the_environment_overrides(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PAYMENTS_API_KEY=sk_from_file\nPAYMENTS_PROCESSING=celery\n")
    found = conf.from_env()
    assert found["PROCESSING"] == "celery"
    assert found["ACCOUNTS"]["default"]["API_KEY"] == "sk_test_1"
    assert "PAYMENTS_PROCESSING" not in os.environ
    (tmp_path / "other.env").write_text("PAYMENTS_PROCESSING=inline\n")
    assert conf.from_env(env_file=tmp_path / "other.env")["PROCESSING"] == "inline"


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("PAYMENTS_BASE_URL", None, "Write an https:// address"),
        ("PAYMENTS_BASE_URL", "http://api.example.com", "Write an https:// address"),
        ("PAYMENTS_BASE_URL", "https://api.example.com/v1", "Leave /v1 off"),
        ("PAYMENTS_API_KEY", None, "Write the secret key"),
        ("PAYMENTS_API_KEY", "sk secret", "Write the secret key"),
        ("PAYMENTS_API_KEY", None, "is missing."),
        ("PAYMENTS_API_KEY", "sk secret", "has a blank, a line break or a character that is not ASCII."),
        ("PAYMENTS_API_KEY", '"secret"', "is written within quotation marks."),
        ("PAYMENTS_WEBHOOK_SECRETS", "'secret'", "that is written within quotation marks."),
        ("PAYMENTS_PROXY", "http://me:secret@proxy.example", "Write http://host:port"),
        ("PAYMENTS_CA_BUNDLE", "/secret.pem", "Write the path of a file"),
        ("PAYMENTS_PROCESSING", "secret", 'Write "inline", "celery" or "worker"'),
        ("PAYMENTS_BATCH_SIZE", "secret", "cannot be read"),
        ("PAYMENTS_BATCH_SIZE", "0", "Write a whole number from 1 to 1000"),
        ("PAYMENTS_RECEIVER_RETRIES", "1,secret", "cannot be read"),
        ("PAYMENTS_APPROVAL_LIMITS", "CLP", "cannot be read"),
        ("PAYMENTS_APPROVAL_LIMITS", "CLP=0", "Write a whole number"),
        ("PAYMENTS_ACCOUNTS", "default,a b", "Use ASCII letters"),
        ("PAYMENTS_ACCOUNTS", "a-b,a_b", "Use ASCII letters"),
        ("PAYMENTS_BR_API_KEY", "", "Write the secret key"),
        ("PAYMENTS_ACCOUNTS", "default,twin", "One account per provider project"),
    ],
)
def test_from_env_names_the_variable_that_is_wrong(
    name: str, text: str | None, hint: str, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("PAYMENTS_TWIN_API_KEY", "sk_test_1")
    environment.setenv("PAYMENTS_A_B_API_KEY", "sk_test_2")
    if name == "PAYMENTS_BR_API_KEY":
        environment.setenv("PAYMENTS_ACCOUNTS", "default,br")
    if text is None:
        environment.delenv(name)
    else:
        environment.setenv(name, text)
    with pytest.raises(ImproperlyConfigured) as caught:
        conf.from_env()
    assert f"The environment variable {name} " in str(caught.value)
    assert hint in str(caught.value)
    assert "secret" not in str(caught.value).replace("Write the secret key", "")
