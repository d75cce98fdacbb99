"""The setting: lazily read, typed, and every mistake told with what to write instead."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from django.utils import timezone

from payments_integration import conf, handlers
from payments_integration.checks import check_api, check_deployment, check_handlers, check_keys, check_settings
from payments_integration.models import Payment, WebhookEndpoint
from payments_integration.projection import store_secret
from payments_integration.schedule import BEAT_SCHEDULE, beat_schedule

ACCOUNT = {"BASE_URL": "https://api.example.com", "API_KEY": "sk_test_1"}


def setting(**options: Any) -> dict[str, Any]:
    return {"ACCOUNTS": {"default": ACCOUNT}, **options}


def account(**fields: Any) -> dict[str, Any]:
    return {"ACCOUNTS": {"default": {**ACCOUNT, **fields}}}


def test_defaults_are_sound() -> None:
    with override_settings(PAYMENTS_INTEGRATION=setting()):
        current = conf.current()
    assert current.PROCESSING == "inline"
    assert current.account() == conf.Account("default", "https://api.example.com", "sk_test_1")
    assert not list(conf.problems(setting()))


def test_it_is_read_lazily() -> None:
    with override_settings(PAYMENTS_INTEGRATION=setting(BATCH_SIZE=7)):
        assert conf.current().BATCH_SIZE == 7
        with override_settings(PAYMENTS_INTEGRATION=setting(BATCH_SIZE=8)):
            assert conf.current().BATCH_SIZE == 8
        assert conf.current().BATCH_SIZE == 7


def test_a_change_in_place_is_seen(settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = setting()
    assert conf.current().BATCH_SIZE == 500
    settings.PAYMENTS_INTEGRATION["BATCH_SIZE"] = 9
    assert conf.current().BATCH_SIZE == 9


@pytest.mark.case(85)
def test_no_secret_in_a_repr() -> None:
    with override_settings(
        PAYMENTS_INTEGRATION={
            "ACCOUNTS": {"default": {**ACCOUNT, "WEBHOOK_SECRETS": ["whsec_hidden"]}},
            "ENCRYPTION_KEYS": ["key_hidden"],
        }
    ):
        assert "hidden" not in repr(conf.current())
        assert "sk_test_1" not in repr(conf.current())


def test_an_unknown_account_is_told_with_the_known_ones() -> None:
    with pytest.raises(ImproperlyConfigured, match=r'no account "other" \(known: default, second\)'):
        conf.account("other")


WRONG: dict[str, tuple[str, Any, str]] = {
    "no dict": ("E001", [], "must be a dict"),
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
    "key with newline": ("E005", account(API_KEY="sk\n"), "API_KEY"),
    "secrets as text": ("E005", account(WEBHOOK_SECRETS="whsec"), "WEBHOOK_SECRETS"),
    "empty secret": ("E005", account(WEBHOOK_SECRETS=[""]), "WEBHOOK_SECRETS"),
    "one key twice": ("E005", {"ACCOUNTS": {"a": ACCOUNT, "b": ACCOUNT}}, "same key as 'a'"),
    "processing": ("E006", setting(PROCESSING="async"), "PROCESSING"),
    "number as text": ("E007", setting(BATCH_SIZE="500"), "BATCH_SIZE"),
    "number as bool": ("E007", setting(BATCH_SIZE=True), "BATCH_SIZE"),
    "float for a whole number": ("E007", setting(REORDER_WINDOW=1.5), "REORDER_WINDOW"),
    "negative": ("E007", setting(REORDER_WINDOW=-1), "REORDER_WINDOW"),
    "retention too short": ("E007", setting(EVENT_DAYS=30), "EVENT_DAYS"),
    "zero timeout": ("E007", setting(READ_TIMEOUT=0), "READ_TIMEOUT"),
    "retries": ("E008", setting(RECEIVER_RETRIES=[10, -1]), "RECEIVER_RETRIES"),
    "keys": ("E009", setting(ENCRYPTION_KEYS="secret"), "ENCRYPTION_KEYS"),
    "limits no dict": ("E012", setting(APPROVAL_LIMITS=1000), "must be a dict"),
    "limit of no currency": ("E012", setting(APPROVAL_LIMITS={"clp": 1000}), "unknown currency 'clp'"),
    "limit of zero": ("E012", setting(APPROVAL_LIMITS={"CLP": 0}), '["CLP"]'),
    "limit as float": ("E012", setting(APPROVAL_LIMITS={"CLP": 1e6}), '["CLP"]'),
    "limit as text": ("E012", setting(APPROVAL_LIMITS={"CLP": "1000"}), '["CLP"]'),
    "limit as bool": ("E012", setting(APPROVAL_LIMITS={"CLP": True}), '["CLP"]'),
    "a class as text": ("E013", setting(API_AUTHENTICATION_CLASSES="a.B"), "API_AUTHENTICATION_CLASSES"),
    "a class itself": ("E013", setting(API_THROTTLE_CLASSES=[dict]), "API_THROTTLE_CLASSES"),
    "no dotted path": ("E013", setting(API_PERMISSION_CLASSES=["AllowAny"]), "API_PERMISSION_CLASSES"),
    "nobody is asked": ("E013", setting(API_PERMISSION_CLASSES=[]), "open to everybody"),
    "rows by a function": ("E013", setting(API_QUERYSET=print), "API_QUERYSET"),
    "rates no dict": ("E013", setting(API_THROTTLE_RATES="5/min"), "must be a dict"),
    "a rate of no name": ("E013", setting(API_THROTTLE_RATES={"reads": "5/min"}), "unknown name 'reads'"),
    "a rate as a number": ("E013", setting(API_THROTTLE_RATES={"read": 5}), '["read"]'),
    "a rate of zero": ("E013", setting(API_THROTTLE_RATES={"read": "0/min"}), '["read"]'),
    "a rate per fortnight": ("E013", setting(API_THROTTLE_RATES={"read": "5/fortnight"}), '["read"]'),
}


@pytest.mark.parametrize(("id", "raw", "says"), WRONG.values(), ids=WRONG)
def test_wrong_settings_are_check_errors(id: str, raw: Any, says: str) -> None:
    with override_settings(PAYMENTS_INTEGRATION=raw):
        (error,) = [message for message in check_settings() if message.is_serious()]
        assert error.id == f"payments_integration.{id}"
        assert says in error.msg
        assert error.hint
        with pytest.raises(ImproperlyConfigured, match="PAYMENTS_INTEGRATION"):
            conf.current()


def test_limits_are_read_and_cannot_be_changed_by_code() -> None:
    given = {"CLP": 1_000_000, "USD": 1}
    with override_settings(PAYMENTS_INTEGRATION=setting(APPROVAL_LIMITS=given)):
        limits = conf.current().APPROVAL_LIMITS
        assert limits == given
        with pytest.raises(TypeError):
            limits["CLP"] = 2  # type: ignore[index]
    with override_settings(PAYMENTS_INTEGRATION=setting()):
        assert conf.current().APPROVAL_LIMITS == {}


def test_a_rate_that_is_not_named_keeps_its_default() -> None:
    with override_settings(PAYMENTS_INTEGRATION=setting(API_THROTTLE_RATES={"read": None})):
        assert conf.current().API_THROTTLE_RATES == {"read": None, "write": "30/minute"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, []),
        ({"API_QUERYSET": "nowhere.visible"}, ["API_QUERYSET", "'nowhere.visible'", "cannot be imported"]),
        ({"API_QUERYSET": "payments_integration.conf.NAME"}, ["API_QUERYSET", "conf.NAME", "no function"]),
        (
            {"API_PERMISSION_CLASSES": ["payments_integration.api.permissions.Nobody"]},
            ["API_PERMISSION_CLASSES", "permissions.Nobody", "cannot be imported"],
        ),
        (
            {"API_AUTHENTICATION_CLASSES": ["payments_integration.api.permissions.StaffByPermission"]},
            ["API_AUTHENTICATION_CLASSES", "StaffByPermission", "authenticate()"],
        ),
        ({"API_THROTTLE_CLASSES": ["payments_integration.conf.current"]}, ["API_THROTTLE_CLASSES", "allow_request()"]),
    ],
)
def test_what_the_api_is_told_to_use_must_be_there(options: dict[str, Any], says: list[str]) -> None:
    with override_settings(PAYMENTS_INTEGRATION=setting(**options)):
        found = check_api()
    assert [message.id for message in found] == ["payments_integration.E014"] * bool(says)
    for text in says:
        assert text in found[0].msg


def test_the_paths_are_not_followed_where_the_setting_is_wrong() -> None:
    with override_settings(PAYMENTS_INTEGRATION=setting(API_QUERYSET="nowhere.visible", PROCESING="celery")):
        assert check_api() == []


@pytest.mark.parametrize("host", ["http://127.0.0.1:8001", "http://localhost:8001", "http://[::1]:1"])
def test_http_is_for_this_machine(host: str) -> None:
    assert not list(conf.problems(account(BASE_URL=host)))


def test_no_account_is_a_warning() -> None:
    with override_settings(PAYMENTS_INTEGRATION={}):
        assert "payments_integration.W001" in [message.id for message in check_settings()]


@pytest.mark.django_db
def test_the_checks_are_registered() -> None:
    with override_settings(PAYMENTS_INTEGRATION={"X": 1}):
        assert "payments_integration.E002" in [message.id for message in checks.run_checks()]


def test_deployment(settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = True
    assert {message.id for message in check_deployment()} == {
        "payments_integration.W003",
        "payments_integration.W004",
    }
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.PAYMENTS_INTEGRATION = setting(ENCRYPTION_KEYS=["key"])
    assert check_deployment() == []


def ids(messages: list[checks.CheckMessage]) -> set[str | None]:
    return {message.id for message in messages}


def test_without_time_zones_nothing_can_be_stored(settings: Any) -> None:
    assert "payments_integration.E011" not in ids(check_settings())
    settings.USE_TZ = False
    assert "payments_integration.E011" in ids(check_settings())


def test_a_schedule_without_the_sweeper_is_told(settings: Any) -> None:
    settings.PAYMENTS_INTEGRATION = setting(PROCESSING="celery")
    assert "payments_integration.W005" in ids(check_settings())
    settings.CELERY_BEAT_SCHEDULE = {}
    assert "payments_integration.W005" in ids(check_settings())
    settings.CELERY_BEAT_SCHEDULE = {**BEAT_SCHEDULE}
    assert "payments_integration.W005" not in ids(check_settings())


def test_an_account_that_the_schedule_leaves_out_is_told(settings: Any) -> None:
    entry = {"BASE_URL": "https://x.example", "API_KEY": "sk_1"}
    accounts = {alias: {**entry, "API_KEY": f"sk_{alias}"} for alias in ("one", "two", "three")}
    settings.PAYMENTS_INTEGRATION = {"PROCESSING": "celery", "ACCOUNTS": accounts}
    settings.CELERY_BEAT_SCHEDULE = beat_schedule(["two"])
    (told,) = [message.msg for message in check_settings() if message.id == "payments_integration.W005"]
    assert told.endswith("for 'one', 'three'.")
    settings.CELERY_BEAT_SCHEDULE = beat_schedule(accounts)
    assert "payments_integration.W005" not in ids(check_settings())
    # One for all accounts, kept beside those of some.
    settings.CELERY_BEAT_SCHEDULE = {**BEAT_SCHEDULE, **beat_schedule(["two"])}
    assert "payments_integration.W005" not in ids(check_settings())


def test_handlers_that_wait_for_nothing_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "registered", [])

    def fine(instance: Any, **kwargs: Any) -> None: ...
    def narrow(instance: Any) -> None: ...

    handlers.registered += [(fine, Payment, ("succeeded",)), (fine, None, ("payment.*",))]
    assert check_handlers() == []
    handlers.registered += [(fine, Payment, ("succeded",)), (fine, None, ("paymnt.*",)), (narrow, Payment, ())]
    told = [message.msg for message in check_handlers()]
    assert len(told) == 3
    assert "'succeded', which is not a status of Payment" in told[0]
    assert "'paymnt.*'" in told[1]
    assert "**kwargs" in told[2]


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
    assert check_keys() == []
