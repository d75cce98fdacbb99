"""A body that could not be read is never taken for an empty one: that would refund everything."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client

from payments_integration import services
from tests.factories import rows
from tests.unit.api.conftest import API, Caller

pytestmark = [pytest.mark.django_db, pytest.mark.promise(5), pytest.mark.any_database]

BODY = b'{"amount": 100}'


class Broken(BytesIO):
    """A connection that is reset while the body is read."""

    def read(self, *size: Any) -> bytes:
        raise OSError("reset by peer")


@pytest.fixture
def refunds(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls that would refund."""
    called: list[Any] = []
    monkeypatch.setattr(services, "create_refund", lambda *args, **named: called.append((args, named)))
    return called


def post(client: Client, **environ: Any) -> Any:
    payment = rows.payment(amount=1000, amount_received=1000)
    named = {"HTTP_IDEMPOTENCY_KEY": "k", "CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(BODY))}
    named |= {"wsgi.input": BytesIO(BODY), "PATH_INFO": f"{API}payments/{payment.pk}/refunds/"}
    named |= {"REQUEST_METHOD": "POST", **environ}
    return client.request(**{name: value for name, value in named.items() if value is not None})


def careful(boss: Caller) -> tuple[Client, str]:
    """A client whose CSRF token is checked, and the token."""
    client = Caller(boss.user, enforce_csrf_checks=True).client
    client.get("/admin/")
    client.cookies["csrftoken"] = token = "a" * 32
    return client, token


def test_the_body_is_read(boss: Caller, refunds: list[Any]) -> None:
    client, token = careful(boss)
    with pytest.raises(AttributeError):  # what the service returned has no account
        post(client, HTTP_X_CSRFTOKEN=token)
    ((_, named),) = refunds
    assert named["amount"] == 100


def test_a_body_that_breaks_off_in_the_check_of_the_token(boss: Caller, refunds: list[Any]) -> None:
    client, token = careful(boss)
    response = post(client, HTTP_X_CSRFTOKEN=token, **{"wsgi.input": Broken()})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "parameter_invalid")
    assert refunds == []


def test_a_body_that_breaks_off_later(boss: Caller, refunds: list[Any]) -> None:
    response = post(boss.client, **{"wsgi.input": Broken()})
    assert response.status_code == 400
    assert refunds == []


@pytest.mark.parametrize("content_type", ["multipart/form-data; boundary=x", "application/x-www-form-urlencoded"])
@pytest.mark.parametrize("length", [None, "0", "15"])
def test_a_form(boss: Caller, refunds: list[Any], content_type: str, length: str | None) -> None:
    response = post(boss.client, CONTENT_TYPE=content_type, CONTENT_LENGTH=length)
    assert response.status_code == 415
    assert refunds == []


@pytest.mark.parametrize("length", [None, "", "x", "-1"])
def test_a_body_in_chunks(boss: Caller, refunds: list[Any], length: str | None) -> None:
    response = post(boss.client, HTTP_TRANSFER_ENCODING="chunked", CONTENT_LENGTH=length)
    assert (response.status_code, response.json()["error"]["code"]) == (411, "length_required")
    assert refunds == []


@pytest.mark.parametrize("does", [lambda request: request.read(), lambda request: (request.read(3), request.POST)])
def test_a_middleware_that_has_read_it(
    boss: Caller, refunds: list[Any], settings: Any, does: Callable[[HttpRequest], object]
) -> None:
    global _does
    _does = does
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.reading"]
    boss.client.raise_request_exception = False
    response = post(boss.client)
    assert response.status_code in (400, 500)
    assert refunds == []


_does: Callable[[HttpRequest], object] = HttpRequest.read


def reading(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    def middleware(request: HttpRequest) -> HttpResponse:
        _does(request)
        return get_response(request)

    return middleware
