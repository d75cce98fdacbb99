"""The webhook view: what is taken in, what is refused, and what it costs."""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from django.core.handlers.wsgi import WSGIRequest
from django.db import DatabaseError, connection, transaction
from django.test import AsyncRequestFactory, Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from payments_integration import inbox, webhooks
from payments_integration.db.encryption import DecryptionError
from payments_integration.models import Event, Payment
from payments_integration.signatures import HEADER, sign
from payments_integration.testing import signed_delivery
from tests import factories

URL = "/payments/webhook/"
SECRET = "whsec_default"
EVENT = factories.event(factories.payment())
RAW = json.dumps(EVENT).encode()

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("woken")]


@pytest.fixture
def strict_client() -> Client:
    return Client(enforce_csrf_checks=True)


def post(client: Client, body: bytes = RAW, *, url: str = URL, secret: str = SECRET, **kwargs: Any) -> Any:
    return client.post(url, **{**signed_delivery(body, secret), **kwargs})


def statements(queries: CaptureQueriesContext) -> list[str]:
    """The statements that went to the database, without the transaction's own."""
    own = ("SAVEPOINT", "RELEASE", "ROLLBACK", "BEGIN", "COMMIT")
    return [query["sql"] for query in queries.captured_queries if not query["sql"].startswith(own)]


def test_the_webhook_has_its_documented_urls() -> None:
    assert reverse("payments_integration:webhook") == URL
    assert reverse("payments_integration:webhook-account", kwargs={"account": "second"}) == f"{URL}second/"


@pytest.mark.promise(1)
def test_a_signed_event_is_stored_and_processing_woken(client: Client, woken: list[str]) -> None:
    assert post(client).status_code == 200
    event = Event.objects.get()
    assert (event.id, event.account, bytes(event.body or b"")) == (EVENT["id"], "default", RAW)
    assert (event.type, event.object_kind, event.object_id) == ("payment.created", "payment", "pay_1")
    assert woken == ["default"]


def test_each_account_has_its_url_and_secrets(client: Client, woken: list[str]) -> None:
    assert post(client, url=f"{URL}second/", secret="whsec_second").status_code == 200
    assert Event.objects.get().account == "second"
    assert woken == ["second"]
    assert client.post(f"{URL}missing/").status_code == 404


class TestCost:
    """Nothing unauthenticated costs a statement; a new event costs one INSERT."""

    @pytest.fixture(autouse=True)
    def _warm(self, client: Client) -> None:
        client.post(URL)

    def test_a_new_delivery_is_stored_and_answered(self, client: Client) -> None:
        with CaptureQueriesContext(connection) as queries:
            assert post(client).status_code == 200
        assert len(statements(queries)) == 1
        assert statements(queries)[0].startswith("INSERT")

    @pytest.mark.promise(7)
    @pytest.mark.case(1)
    def test_a_delivery_with_a_bad_signature_is_refused(self, client: Client) -> None:
        with CaptureQueriesContext(connection) as queries:
            assert post(client, secret="wrong").status_code == 400
        assert not queries.captured_queries
        assert not Event.objects.exists()

    @pytest.mark.promise(2)
    def test_a_duplicate_delivery_is_answered_and_not_stored(self, client: Client) -> None:
        post(client)
        with CaptureQueriesContext(connection) as queries:
            assert post(client).status_code == 200
        assert len(statements(queries)) <= 2
        assert Event.objects.count() == 1


class TestRefused:
    @pytest.mark.case(13)
    @pytest.mark.parametrize("method", ["get", "head", "put", "delete", "options", "patch"])
    def test_other_methods_than_post_are_refused(self, client: Client, method: str) -> None:
        response = getattr(client, method)(URL)
        assert response.status_code == 405
        assert response["Allow"] == "POST"

    @pytest.mark.case(13)
    def test_a_missing_slash_is_not_redirected(self, client: Client) -> None:
        assert post(client, url=URL.rstrip("/")).status_code == 200
        assert post(client, url=f"{URL}second", secret="whsec_second").status_code == 200

    @pytest.mark.case(13)
    def test_a_delivery_needs_no_csrf_token_and_no_login(self, strict_client: Client, settings: Any) -> None:
        settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
        assert post(strict_client).status_code == 200

    @pytest.mark.case(1)
    def test_a_delivery_without_a_usable_header_is_refused(self, client: Client) -> None:
        assert client.post(URL, data=RAW, content_type="application/json").status_code == 400
        assert not Event.objects.exists()

    @pytest.mark.case(2)
    @pytest.mark.parametrize(("off", "status"), [(298, 200), (-298, 200), (302, 400), (-302, 400)])
    def test_a_delivery_is_accepted_up_to_five_minutes_either_way(self, client: Client, off: int, status: int) -> None:
        delivery = signed_delivery(RAW, SECRET, now=time.time() + off)
        assert client.post(URL, **delivery).status_code == status

    @pytest.mark.case(4)
    def test_a_header_that_is_not_ascii_is_refused(self, client: Client) -> None:
        header = sign(RAW, SECRET) + "é"
        assert post(client, headers={HEADER: header}).status_code == 400

    @pytest.mark.case(7)
    def test_a_delivery_signed_for_another_account_is_refused(self, client: Client) -> None:
        assert post(client, secret="whsec_second").status_code == 400

    @pytest.mark.case(8)
    def test_a_delivery_with_changed_bytes_is_refused(self, client: Client) -> None:
        delivery = signed_delivery(RAW, SECRET)
        assert client.post(URL, **{**delivery, "data": RAW + b" "}).status_code == 400

    @pytest.mark.case(9)
    def test_chunked_body_is_refused_with_a_hint(self, caplog: pytest.LogCaptureFixture) -> None:
        request = RequestFactory().post(
            URL, data=b"", content_type="application/json", headers={HEADER: sign(RAW, SECRET)}
        )
        request.META.update(HTTP_TRANSFER_ENCODING="chunked", CONTENT_LENGTH="")
        with caplog.at_level(logging.WARNING):
            assert webhooks.webhook(request).status_code == 400
        assert "chunks" in caplog.text
        assert not Event.objects.exists()

    @pytest.mark.case(10)
    @pytest.mark.parametrize("length", ["abc", "-1", "+5", "1_0", "٣", "5"])
    def test_a_wrong_content_length_is_refused(self, client: Client, length: str) -> None:
        assert post(client, CONTENT_LENGTH=length).status_code == 400

    @pytest.mark.case(10)
    def test_a_body_that_ends_too_soon_is_refused(self) -> None:
        request = RequestFactory().post(
            URL, data=RAW, content_type="application/json", headers={HEADER: sign(RAW, SECRET)}
        )
        cut = WSGIRequest({**request.environ, "wsgi.input": io.BytesIO(RAW[:-10])})
        assert webhooks.webhook(cut).status_code == 400

    @pytest.mark.case(11)
    @pytest.mark.parametrize("length", [str(1024 * 1024 + 1), "9" * 5000])
    def test_a_body_over_the_limit_is_refused_unread(self, length: str) -> None:
        request = RequestFactory().post(URL, data=RAW, content_type="application/json")
        request.META["CONTENT_LENGTH"] = length
        request._stream = mock.Mock(read=mock.Mock(side_effect=AssertionError("it was read")))  # type: ignore[attr-defined]
        assert webhooks.webhook(request).status_code == 413

    @pytest.mark.case(11)
    def test_a_body_over_djangos_own_limit_is_refused(
        self, client: Client, settings: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10
        assert post(client).status_code == 413
        assert "larger than MAX_WEBHOOK_BYTES or Django's DATA_UPLOAD_MAX_MEMORY_SIZE" in caplog.text

    @pytest.mark.case(12)
    def test_a_body_that_was_read_as_form_data_is_answered_503(self, caplog: pytest.LogCaptureFixture) -> None:
        request = RequestFactory().post(URL, {"a": "b"}, headers={HEADER: sign(RAW, SECRET)})
        assert request.POST
        assert webhooks.webhook(request).status_code == 503
        assert "exempt the webhook URL" in caplog.text

    @pytest.mark.case(12)
    @pytest.mark.parametrize(("read", "status"), [("read", 503), ("body", 200)])
    def test_a_body_without_a_length_that_a_middleware_has_read(
        self, read: str, status: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        request: Any = AsyncRequestFactory().post(URL, **signed_delivery(RAW, SECRET))
        del request.META["CONTENT_LENGTH"]  # sent in chunks, or by HTTP/2
        assert (request.read() if read == "read" else request.body) == RAW
        assert webhooks.webhook(request).status_code == status
        assert ("exempt the webhook URL" in caplog.text) == (status == 503)

    @pytest.mark.case(12)
    def test_a_body_without_a_length_can_be_logged_after_the_answer(self) -> None:
        """Otherwise a middleware that does so makes a 500 of the 200, and the provider sends the delivery for days."""
        request: Any = AsyncRequestFactory().post(URL, **signed_delivery(RAW, SECRET))
        del request.META["CONTENT_LENGTH"]
        assert webhooks.webhook(request).status_code == 200
        assert request.body == RAW

    def test_a_middleware_that_opens_a_transaction_is_answered_503(self, caplog: pytest.LogCaptureFixture) -> None:
        request = RequestFactory().post(URL, **signed_delivery(RAW, SECRET))
        with transaction.atomic():
            assert webhooks.webhook(request).status_code == 503
        assert "exempt the webhook URL" in caplog.text
        assert not Event.objects.exists()


class TestDown:
    """What is our fault is answered 503, so that the provider comes again."""

    @pytest.fixture(autouse=True)
    def _quiet(self, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
        with caplog.at_level(logging.CRITICAL, logger="payments_integration.webhooks"):
            yield

    @pytest.mark.case(76)
    def test_a_database_that_is_down_is_answered_503(self, client: Client) -> None:
        def refuse(execute: Any, sql: str, *rest: Any) -> Any:
            if sql.startswith("INSERT"):
                raise DatabaseError("read only")
            return execute(sql, *rest)

        with connection.execute_wrapper(refuse):
            assert post(client).status_code == 503
        assert not Event.objects.exists()
        # The session may be in a bad state: Django closes it after the request.
        assert connection.close_at is not None
        assert connection.close_at <= time.monotonic()

    @pytest.mark.case(86)
    def test_a_key_store_that_is_down_is_answered_503(self, client: Client) -> None:
        with mock.patch("payments_integration.projection.active_secrets", side_effect=DecryptionError("no key")):
            assert post(client).status_code == 503

    @pytest.mark.case(34)
    def test_a_duplicate_whose_first_delivery_was_rolled_back(self, client: Client) -> None:
        post(client)
        with mock.patch("payments_integration.db.statements.values_by_key", return_value=None):
            assert post(client).status_code == 503

    @pytest.mark.case(68)
    def test_a_failing_wake_up_does_not_matter(self, client: Client) -> None:
        with mock.patch("payments_integration.wakeup._hook", side_effect=OSError("broker is down")):
            assert post(client).status_code == 200
        assert Event.objects.exists()


def deep(levels: int) -> bytes:
    return RAW[:-2] + b', "extra": ' + b"[" * levels + b"]" * levels + b"}}"


def changed(**fields: Any) -> bytes:
    return json.dumps({**EVENT, "data": {**EVENT["data"], **fields}}).encode()


QUARANTINED: dict[str, tuple[int, bytes]] = {
    "not JSON": (15, b"hello"),
    "empty": (15, b""),
    "list at the root": (15, b"[]"),
    "no id": (15, json.dumps({**EVENT, "id": None}).encode()),
    "no data": (15, json.dumps({key: value for key, value in EVENT.items() if key != "data"}).encode()),
    "object is not event": (15, json.dumps({**EVENT, "object": "payment"}).encode()),
    "NaN": (17, RAW.replace(b"10000", b"NaN")),
    "1e999": (17, RAW.replace(b"10000", b"1e999")),
    "deep": (18, deep(32)),
    "very deep": (18, deep(100_000)),
    "lone surrogate": (20, RAW.replace(b"cl_card", rb"\ud800")),
    "BOM": (21, b"\xef\xbb\xbf" + RAW),
    "UTF-16": (21, RAW.decode().encode("utf-16")),
    "Latin-1": (21, RAW.replace(b"cl_card", b"\xe9")),
    "amount 2^63": (22, changed(amount=2**63)),
    "amount 1.9": (22, changed(amount=1.9)),
    "amount 1.0": (22, RAW.replace(b"10000", b"1.0")),
    "amount true": (22, changed(amount=True)),
    "amount as text": (22, changed(amount="12")),
    "amount null": (22, changed(amount=None)),
    "bad date": (23, changed(created_at="2026-02-30T00:00:00Z")),
    "leap second": (23, changed(created_at="2026-06-30T23:59:60Z")),
    "no zone": (23, changed(created_at="2026-06-30T23:59:59")),
    "year 1": (23, changed(created_at="0001-01-01T00:00:00+10:00")),
    "type and object disagree": (25, json.dumps({**EVENT, "type": "payout.created"}).encode()),
    "over-long id": (32, changed(id="pay_" + "x" * 300)),
    "over-long reference": (32, changed(merchant_reference="x" * 256)),
}


@pytest.mark.parametrize(
    "body",
    [pytest.param(body, id=name, marks=pytest.mark.case(case)) for name, (case, body) in QUARANTINED.items()],
)
def test_a_signed_body_that_cannot_be_understood_is_quarantined(
    client: Client, body: bytes, attentions: list[dict[str, Any]]
) -> None:
    assert post(client, body).status_code == 200
    event = Event.objects.get()
    assert event.id.startswith("quarantine_")
    assert event.state == "quarantined"
    assert event.error
    assert bytes(event.body or b"") == body
    assert [seen["reason"] for seen in attentions] == ["event_quarantined"]
    # Again: no second row, no second alarm; and it does not stand in the way of a good copy.
    assert post(client, body).status_code == 200
    assert len(attentions) == 1
    assert post(client).status_code == 200
    assert set(Event.objects.values_list("state", flat=True)) == {"quarantined", "pending"}


def test_a_bad_body_is_not_logged(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    secret_number = "1234567890123"
    post(client, changed(payer={"document": {"type": "CC", "number": secret_number}}, amount=secret_number))
    assert Event.objects.get().state == "quarantined"
    assert secret_number not in caplog.text
    assert secret_number not in Event.objects.get().error


@pytest.mark.case(24)
@pytest.mark.parametrize(
    "event",
    [
        {**EVENT, "type": "payment.teleported"},
        {**EVENT, "type": "dispute.created"},
        factories.event(factories.payment(status="teleported")),
        factories.event(factories.payment(new_field={"a": [1]})),
        {**EVENT, "type": "dispute.created", "data": {"object": "dispute", "id": "dis_1"}},
        {**EVENT, "type": "x", "data": {}},
        {**EVENT, "more": 1},
    ],
)
def test_unknown_types_and_fields_are_stored(client: Client, event: dict[str, Any]) -> None:
    assert post(client, json.dumps(event).encode()).status_code == 200
    assert Event.objects.get().state == "pending"
    inbox.process()
    assert Event.objects.get().state == "done"


@pytest.mark.case(16)
def test_the_last_of_duplicate_json_keys_counts(client: Client) -> None:
    body = RAW.replace(b'"amount": 10000', b'"amount": 1, "amount": 77')
    assert post(client, body).status_code == 200
    inbox.process()
    assert Payment.objects.get().amount == 77


@pytest.mark.case(28)
def test_a_known_id_with_different_content_keeps_the_first(client: Client, attentions: list[dict[str, Any]]) -> None:
    post(client)
    assert post(client, changed(amount=1)).status_code == 200
    assert bytes(Event.objects.get(id=EVENT["id"]).body or b"") == RAW
    assert Event.objects.get(state="quarantined").error.startswith("this event id came before with other content")
    assert len(attentions) == 1


@pytest.mark.case(29)
def test_the_same_content_in_different_json_is_the_same_event(
    client: Client, attentions: list[dict[str, Any]]
) -> None:
    post(client)
    shuffled = json.dumps(dict(reversed(EVENT.items())), separators=(",", ":")).encode()
    assert shuffled != RAW
    assert post(client, shuffled).status_code == 200
    assert Event.objects.count() == 1
    assert not attentions


@pytest.mark.case(93)
def test_an_event_id_of_another_account(client: Client, attentions: list[dict[str, Any]]) -> None:
    post(client)
    assert post(client, url=f"{URL}second/", secret="whsec_second").status_code == 200
    assert Event.objects.get(id=EVENT["id"]).account == "default"
    stray = Event.objects.get(state="quarantined")
    assert stray.account == "second"
    assert len(attentions) == 1


@pytest.mark.case(77)
def test_the_insert_is_committed_despite_atomic_requests() -> None:
    assert "default" in webhooks.webhook._non_atomic_requests  # type: ignore[attr-defined]


def test_inline_processing_gets_four_seconds(client: Client, inline_seconds: float) -> None:
    deadlines: list[float | None] = []
    with (
        mock.patch("payments_integration.wakeup._hook", lambda account, deadline: deadlines.append(deadline)),
        mock.patch("payments_integration.wakeup.INLINE_SECONDS", inline_seconds),
    ):
        before = time.monotonic()
        post(client)
    assert deadlines[0] is not None
    assert before + 3 < deadlines[0] < time.monotonic() + 4.1
