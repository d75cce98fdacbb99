"""Without the extra ``api`` the API answers 501 and names the extra; all other URLs work."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator

import pytest
from django.test import Client
from django.urls import clear_url_caches, reverse

from payments_integration import urls

pytestmark = pytest.mark.any_database


@pytest.fixture(params=["django_filters", "drf_spectacular"])
def _not_installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, request.param, None)
        importlib.reload(urls)
        clear_url_caches()
        importlib.reload(importlib.import_module("tests.urls"))
        yield
    importlib.reload(urls)
    importlib.reload(importlib.import_module("tests.urls"))
    clear_url_caches()


@pytest.mark.usefixtures("_not_installed")
@pytest.mark.parametrize("path", ["", "payments/", "payments/pay_1/cancel/", "schema/", "unknown"])
@pytest.mark.parametrize("method", ["get", "post", "put", "delete", "options"])
def test_every_path_and_method_is_answered_501_and_names_the_extra(client: Client, path: str, method: str) -> None:
    response = getattr(client, method)(f"/payments/api/{path}")
    assert response.status_code == 501
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("api_error", "not_installed")
    assert 'pip install "payments-integration[api]"' in error["message"]
    assert error["request_id"] == response["Request-Id"]


@pytest.mark.usefixtures("_not_installed")
def test_such_an_answer_is_no_error_in_the_log(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """Django would mail one to the admins for each request of anybody."""
    client.get("/payments/api/payments/")
    assert not caplog.records


@pytest.mark.django_db
@pytest.mark.usefixtures("_not_installed")
def test_webhook_and_checkout_urls_still_work(client: Client) -> None:
    assert (
        client.post(reverse("payments_integration:webhook"), b"{}", content_type="application/json").status_code == 400
    )
    assert client.get(reverse("payments_integration:checkout-status", args=["x"])).status_code == 404


def test_with_the_extra_the_api_answers(client: Client) -> None:
    assert client.get("/payments/api/unknown").status_code == 404
