"""Who may read the metrics, and what they are shown."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client, override_settings
from django.urls import path
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from payments_integration import health
from payments_integration.contrib.prometheus import PaymentsCollector
from payments_integration.contrib.prometheus.options import check_setting
from payments_integration.contrib.prometheus.views import metrics

TOKEN = "a-token-for-the-tests"
urlpatterns = [path("metrics", metrics)]
pytestmark = pytest.mark.urls(__name__)


def get(client: Client, authorization: str = f"Bearer {TOKEN}", **headers: str) -> Any:
    return client.get("/metrics", headers={"Authorization": authorization, **headers})


@pytest.mark.django_db
@override_settings(PAYMENTS_METRICS_TOKEN=TOKEN)
def test_a_client_with_the_token_is_shown_everything_once(client: Client) -> None:
    answer = get(client)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert "no-store" in answer.headers["Cache-Control"]
    names = [family.name for family in text_string_to_metric_families(answer.content.decode())]
    assert len(names) == len(set(names))
    assert {"payments_up", "payments_deliveries_refused", "python_info"} <= set(names)
    open_metrics = get(client, Accept="application/openmetrics-text; version=1.0.0")
    assert open_metrics.headers["Content-Type"].startswith("application/openmetrics-text")
    assert open_metrics.content.endswith(b"# EOF\n")


@pytest.mark.django_db
@override_settings(PAYMENTS_METRICS_TOKEN=TOKEN)
def test_a_collector_that_the_project_has_registered_is_not_read_twice(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[None] = []
    examine = health.examine

    def counted() -> health.Report:
        reads.append(None)
        return examine()

    monkeypatch.setattr(health, "examine", counted)
    collector = PaymentsCollector()
    REGISTRY.register(collector)
    try:
        text = get(client).content.decode()
    finally:
        REGISTRY.unregister(collector)
    assert len(reads) == 1
    assert text.count("\npayments_up ") == 1


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer ñ"])
def test_others_are_refused_without_a_query(client: Client, authorization: str) -> None:
    with override_settings(PAYMENTS_METRICS_TOKEN=TOKEN):
        answer = get(client, authorization)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert b"payments_" not in answer.content


@pytest.mark.parametrize("token", ["", None, "short"])
def test_without_a_token_nobody_is_shown_anything_and_the_answer_says_why(client: Client, token: Any) -> None:
    with override_settings(PAYMENTS_METRICS_TOKEN=token):
        for authorization in ("", "Bearer", f"Bearer {token}"):
            answer = get(client, authorization)
            assert answer.status_code == 403
            assert b"set PAYMENTS_METRICS_TOKEN" in answer.content


@pytest.mark.parametrize("token", ["short", "with a blank in the middle", 1234567890123456, "ñandúñandúñandúñandú"])
def test_a_token_that_cannot_be_used_is_an_error(token: Any) -> None:
    with override_settings(PAYMENTS_METRICS_TOKEN=token):
        assert [message.id for message in check_setting()] == ["payments_integration.E050"]
    with override_settings(PAYMENTS_METRICS_TOKEN=TOKEN):
        assert check_setting() == []


@override_settings(PAYMENTS_METRICS_TOKEN=TOKEN)
def test_it_is_only_read(client: Client) -> None:
    assert client.post("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 405


@pytest.mark.django_db
@override_settings(PAYMENTS_METRICS_TOKEN=TOKEN)
def test_the_page_answers_without_the_database(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OperationalError("no route to db.internal")

    monkeypatch.setattr(health, "examine", fail)
    answer = get(client)
    assert answer.status_code == 200
    assert "\npayments_up 0.0\n" in answer.content.decode()
    assert 'payments_problems{account="",code="database"} 1.0' in answer.content.decode()
    assert "python_info" in answer.content.decode()
    assert "db.internal" not in answer.content.decode()
