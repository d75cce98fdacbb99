"""One client per account and key, for as long as they stay the same."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from payments_integration.client import Client, get_client, provider


def accounts(**changes: Any) -> Any:
    account = {"BASE_URL": "https://pay.example", "API_KEY": "sk_test_1", **changes}
    other = {"BASE_URL": "https://pay.example", "API_KEY": "sk_test_2"}
    return override_settings(PAYMENTS_INTEGRATION={"ACCOUNTS": {"default": account, "other": other}})


def test_one_client() -> None:
    with accounts():
        client = get_client()
        assert client is get_client("default")
        assert client.account.api_key == "sk_test_1"
        assert get_client("other") is not client
        assert get_client("other") is get_client("other")
        assert get_client("other").account.alias == "other"
        assert get_client() is client
    with accounts(WEBHOOK_SECRETS=["whsec_new"]):
        assert get_client() is client


@pytest.mark.parametrize("change", [{"API_KEY": "sk_test_9"}, {"BASE_URL": "https://other.example"}])
def test_another_key_is_another_client(change: dict[str, str]) -> None:
    with accounts():
        client = get_client()
    with accounts(**change):
        assert get_client() is not client
        assert get_client() is get_client()
        assert client not in provider._clients.values()


def test_an_unknown_account() -> None:
    with pytest.raises(ImproperlyConfigured, match="nobody"):
        get_client("nobody")


def test_threads_get_the_same_one(monkeypatch: pytest.MonkeyPatch) -> None:
    provider._clients.clear()
    together = threading.Barrier(4)

    class Slow(Client):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            together.wait(10)

    monkeypatch.setattr(provider, "Client", Slow)
    found: list[Client] = []
    with accounts():
        threads = [threading.Thread(target=lambda: found.append(get_client())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 4
    assert len(set(map(id, found))) == 1
    provider._clients.clear()
