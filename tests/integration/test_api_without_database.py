"""The database is down or lost while the API is called: 503 in the API's error envelope, at every step."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from rest_framework.authentication import BaseAuthentication

from payments_integration.models import Operation
from tests.databases import POSTGRES, SQLITE
from tests.fake_provider import PAYMENT
from tests.integration.test_database_trouble import down

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("woken")]

PAYMENTS = "/payments/api/payments/"


class WithoutDatabase(BaseAuthentication):
    """A signed token names the user."""

    def authenticate(self, request: Any) -> tuple[User, None]:
        return User(pk=1, username="boss", is_staff=True, is_superuser=True, is_active=True), None


@pytest.fixture
def boss() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    return client


def call(client: Client, method: str) -> Any:
    if method == "GET":
        return client.get(PAYMENTS)
    return client.post(PAYMENTS, PAYMENT, content_type="application/json", headers={"Idempotency-Key": "k1"})


def assert_unavailable(response: Any) -> None:
    assert (response.status_code, response["Content-Type"]) == (503, "application/json")
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("api_error", "database_unavailable")
    assert error["request_id"] == response["Request-Id"]
    assert int(response["Retry-After"]) > 0


@pytest.mark.case(113)
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("step", ["authentication", "view"])
def test_a_call_while_the_database_is_down(boss: Client, settings: Any, step: str, method: str) -> None:
    if step == "view":
        named = f"{WithoutDatabase.__module__}.{WithoutDatabase.__qualname__}"
        settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, "API_AUTHENTICATION_CLASSES": [named]}
    with down():
        assert_unavailable(call(boss, method))
    assert Operation.objects.count() == 0
    assert call(boss, "GET").status_code == 200


@pytest.mark.skipif(SQLITE, reason="it has no server to end a session")
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_call_whose_session_is_ended_by_the_server(boss: Client, method: str) -> None:
    """The connection breaks between the authentication and the view's own statement."""
    ended = False

    def end(execute: Any, sql: str, *further: Any) -> Any:
        nonlocal ended
        if "payments_integration" in sql and not ended:
            ended = True
            with connection.connection.cursor() as cursor, suppress(Exception):
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())" if POSTGRES else "KILL CONNECTION_ID()")
        return execute(sql, *further)

    with connection.execute_wrapper(end):
        response = call(boss, method)
    connection.close()
    assert ended
    assert_unavailable(response)
    assert Operation.objects.count() == 0
