"""A process keeps one client per account until its key or address changes."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from payments_integration.client import Client, resources as module
from payments_integration.sync import get_client


def accounts(**changes: Any) -> Any:
    account = {"BASE_URL": "https://pay.example", "API_KEY": "sk_test_1", **changes}
    other = {"BASE_URL": "https://pay.example", "API_KEY": "sk_test_2"}
    return override_settings(PAYMENTS_INTEGRATION={"ACCOUNTS": {"default": account, "other": other}})


def test_a_process_has_one_client_per_account() -> None:
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
def test_a_new_key_or_address_makes_a_new_client(change: dict[str, str]) -> None:
    with accounts():
        client = get_client()
    with accounts(**change):
        assert get_client() is not client
        assert get_client() is get_client()
        assert client not in module._clients.values()


def test_an_unknown_account_has_no_client() -> None:
    with pytest.raises(ImproperlyConfigured, match="missing"):
        get_client("missing")


def test_threads_get_the_same_client(monkeypatch: pytest.MonkeyPatch) -> None:
    module._clients.clear()
    together = threading.Barrier(4)

    class Slow(Client):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            together.wait(10)

    monkeypatch.setattr(module, "Client", Slow)
    found: list[Client] = []
    with accounts():
        threads = [threading.Thread(target=lambda: found.append(get_client())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 4
    assert len(set(map(id, found))) == 1
    module._clients.clear()
