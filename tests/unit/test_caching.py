"""Django's cache: two sites that share one, and one that does not work."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache.backends.base import memcache_key_warnings

from payments_integration import caching
from tests.caches import DOWN


def test_sites_with_other_accounts_at_the_provider_have_other_keys(settings: Any) -> None:
    configured = settings.PAYMENTS_INTEGRATION
    here = caching.key("methods", "CL")
    assert here == caching.key("methods", "CL")
    assert here != caching.key("methods CL")
    # The order of the accounts does not matter.
    accounts = configured["ACCOUNTS"]
    settings.PAYMENTS_INTEGRATION = {**configured, "ACCOUNTS": dict(reversed(accounts.items()))}
    assert here == caching.key("methods", "CL")
    other = {**accounts, "default": {**accounts["default"], "API_KEY": "sk_live_production"}}
    settings.PAYMENTS_INTEGRATION = {**configured, "ACCOUNTS": other}
    assert here != caching.key("methods", "CL")


def test_every_cache_takes_a_key() -> None:
    assert list(memcache_key_warnings(caching.key("a b", "x" * 300, "ñ"))) == []


def test_a_value_is_kept_and_one_caller_is_the_first() -> None:
    assert caching.read(["a", "b"]) == {}
    caching.keep({"a": 1}, 60)
    assert caching.read(["a", "b"]) == {"a": 1}
    assert [caching.is_first("c", 60), caching.is_first("c", 60)] == [True, False]


def test_a_cache_that_does_not_work_is_logged_and_holds_nothing(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.CACHES = DOWN
    caching.keep({"a": 1}, 60)
    assert caching.read(["a"]) == {}
    assert caching.is_first("a", 60) is None
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 3
    assert {record.exc_info[0] for record in caplog.records if record.exc_info} == {ConnectionError}


def test_what_ends_the_process_is_not_contained() -> None:
    with pytest.raises(KeyboardInterrupt), caching.contained():
        raise KeyboardInterrupt
