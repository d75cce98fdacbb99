"""The input of the webhook: headers, middleware before the view, odd bodies, and data that must stay private."""

from __future__ import annotations

import gzip
import json
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart
from django.test.utils import CaptureQueriesContext
from django.views.debug import ExceptionReporter

from payments_integration import checks, health, inbox, projection, reconciliation, schemas
from payments_integration.enums import EVENT_TYPES
from payments_integration.inbox import Receipt
from payments_integration.models import DueRefresh, Event, Payment, StateBy, WebhookEndpoint
from payments_integration.projection import forget_secrets, store_secret
from payments_integration.signatures import HEADER, sign
from payments_integration.testing import signed_delivery
from tests import factories
from tests.factories import rows
from tests.fuzz import oracles

PACKAGE = Path(schemas.__file__).parent
URL = "/payments/webhook/"
SECRET = "whsec_default"
EVENT = factories.event(factories.payment())
RAW = json.dumps(EVENT).encode()

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("woken")]


def v1(secret: str = SECRET, t: int | None = None) -> str:
    return sign(RAW, secret, now=t).split("v1=")[1]


def no_t(t: int) -> str:
    return f"v1={v1(t=t)}"


#: What a header is made from, by the signature's time.
REFUSED: dict[str, tuple[int, Callable[[int], str]]] = {
    "empty": (1, lambda t: ""),
    "no t": (1, no_t),
    "no v1": (1, lambda t: f"t={t}"),
    "two t": (1, lambda t: f"t={t},t={t},v1={v1(t=t)}"),
    "301 s ago": (2, lambda t: f"t={t - 302},v1={v1(t=t - 302)}"),
    "301 s ahead": (2, lambda t: f"t={t + 302},v1={v1(t=t + 302)}"),
    "t with an underscore": (3, lambda t: f"t={t:_},v1={v1(t=t)}"),
    "t with a sign": (3, lambda t: f"t=+{t},v1={v1(t=t)}"),
    "t in Arabic digits": (
        3,
        lambda t: f"t={str(t).translate(str.maketrans('0123456789', '٠١٢٣٤٥٦٧٨٩'))},v1={v1(t=t)}",
    ),
    "v1 that is not ASCII": (4, lambda t: f"t={t},v1=é{v1(t=t)[1:]}"),
    "another v1 that is not ASCII": (4, lambda t: f"t={t},v1={v1(t=t)},v1=漢"),
    "t of 5,000 digits": (5, lambda t: f"t={'9' * 5000},v1={v1(t=t)}"),
    "t of 5,000 digits in front": (5, lambda t: f"t={'0' * 5000}{t},v1={v1(t=t)}"),
    "1,000 v1": (5, lambda t: f"t={t}," + "v1=0," * 1000 + f"v1={v1(t=t)}"),
    "nine v1": (5, lambda t: f"t={t}," + "v1=0," * 8 + f"v1={v1(t=t)}"),
    "an unknown secret": (7, lambda t: f"t={t},v1={v1('whsec_unknown', t)}"),
    "another account's secret": (7, lambda t: f"t={t},v1={v1('whsec_second', t)}"),
    "two that do not fit": (7, lambda t: f"t={t},v1={v1('whsec_unknown', t)},v1={v1('whsec_second', t)}"),
}


@pytest.mark.promise(7)
@pytest.mark.parametrize(
    "header",
    [pytest.param(header, id=name, marks=pytest.mark.case(case)) for name, (case, header) in REFUSED.items()],
)
def test_a_refused_header_costs_no_query(client: Client, header: Callable[[int], str]) -> None:
    client.post(URL)  # the cache of secrets is warm
    delivery: dict[str, Any] = {"data": RAW, "content_type": "application/json"}
    with CaptureQueriesContext(connection) as queries:
        response = client.post(URL, **delivery, headers={HEADER: header(int(time.time()))})
    assert response.status_code == 400
    assert not queries.captured_queries
    assert not Event.objects.exists()
    assert client.post(URL, **signed_delivery(RAW, SECRET)).status_code == 200


@pytest.mark.case(6)
@pytest.mark.parametrize("order", [1, -1])
def test_either_of_two_signatures_is_accepted(client: Client, order: int) -> None:
    t = int(time.time())
    signatures = [f"v1={v1('whsec_rotated_away', t)}", f"v1={v1(t=t)}"][::order]
    header = {HEADER: ",".join([f"t={t}", *signatures])}
    assert client.post(URL, data=RAW, content_type="application/json", headers=header).status_code == 200
    assert Event.objects.get().id == EVENT["id"]


@pytest.mark.case(8)
@pytest.mark.parametrize(
    "body",
    [
        json.dumps(EVENT, separators=(",", ":")).encode(),
        json.dumps(dict(reversed(EVENT.items()))).encode(),
        RAW.replace(b"10000", b"10001"),
        RAW + b"\n",
        RAW[:-1],
        b"",
    ],
    ids=["compact", "reordered", "one byte", "one more", "one less", "empty"],
)
def test_the_signature_is_over_the_exact_bytes(client: Client, body: bytes) -> None:
    assert client.post(URL, **{**signed_delivery(RAW, SECRET), "data": body}).status_code == 400
    assert not Event.objects.exists()


# What stands before the view

Respond = Callable[[HttpRequest], HttpResponse]


def reading_the_form(respond: Respond) -> Respond:
    """A middleware that looks for a field of a form, as logging and method-override middlewares do."""

    def middleware(request: HttpRequest) -> HttpResponse:
        request.POST.get("_method")
        return respond(request)

    return middleware


def reading_the_stream(respond: Respond) -> Respond:
    def middleware(request: HttpRequest) -> HttpResponse:
        request.read(10)
        return respond(request)

    return middleware


def reading_the_body(respond: Respond) -> Respond:
    def middleware(request: HttpRequest) -> HttpResponse:
        assert request.body
        return respond(request)

    return middleware


def unpacking_the_body(respond: Respond) -> Respond:
    def middleware(request: HttpRequest) -> HttpResponse:
        request._body = gzip.decompress(request.body)
        request.META["CONTENT_LENGTH"] = len(request._body)
        return respond(request)

    return middleware


FORM = encode_multipart(BOUNDARY, {"a": "b"})


class TestBodyReadBefore:
    @pytest.mark.case(12)
    @pytest.mark.parametrize(
        ("middleware", "body", "content_type"),
        [
            pytest.param("reading_the_form", FORM, MULTIPART_CONTENT, id="form"),
            pytest.param("reading_the_stream", RAW, "application/json", id="stream"),
        ],
    )
    def test_a_body_that_a_middleware_has_read_is_a_clear_error(
        self,
        settings: Any,
        caplog: pytest.LogCaptureFixture,
        middleware: str,
        body: bytes,
        content_type: str,
    ) -> None:
        settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.{middleware}"]
        client, headers = Client(enforce_csrf_checks=True), {HEADER: sign(body, SECRET)}
        # 503: once the middleware is mended the provider's repetition is taken in.
        assert client.generic("POST", URL, body, content_type, headers=headers).status_code == 503
        assert "read before the view: exempt the webhook URL from that middleware" in caplog.text
        assert not Event.objects.exists()

    @pytest.mark.case(12)
    @pytest.mark.parametrize("middleware", ["reading_the_form", "reading_the_body"])
    @pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/x-www-form-urlencoded"])
    def test_a_middleware_that_leaves_the_body_unread_is_harmless(
        self, settings: Any, middleware: str, content_type: str
    ) -> None:
        settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.{middleware}"]
        delivery = {**signed_delivery(RAW, SECRET), "content_type": content_type}
        assert Client(enforce_csrf_checks=True).post(URL, **delivery).status_code == 200
        assert bytes(Event.objects.get().body or b"") == RAW

    @pytest.mark.case(12)
    def test_a_middleware_may_unpack_the_body(self, settings: Any) -> None:
        settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.unpacking_the_body"]
        delivery = {**signed_delivery(RAW, SECRET), "data": gzip.compress(RAW)}
        assert Client().post(URL, **delivery).status_code == 200
        assert bytes(Event.objects.get().body or b"") == RAW


#: A site that sends every visitor to its login page, to HTTPS and to addresses with a slash.
STRICT_SITE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django.middleware.gzip.GZipMiddleware",
    "django.middleware.http.ConditionalGetMiddleware",
]
URLS = [URL, URL.rstrip("/"), f"{URL}default/", f"{URL}default"]


class TestNoRedirect:
    @pytest.fixture(autouse=True)
    def _strict_site(self, settings: Any) -> None:
        settings.MIDDLEWARE = STRICT_SITE
        settings.APPEND_SLASH = True
        settings.SECURE_SSL_REDIRECT = True
        settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

    @pytest.fixture
    def proxied(self) -> Client:
        """Behind a proxy that speaks HTTPS to the world."""
        return Client(enforce_csrf_checks=True, headers={"X-Forwarded-Proto": "https"})

    @pytest.mark.case(13)
    def test_the_test_site_redirects_and_requires_a_login(self, client: Client, proxied: Client) -> None:
        assert client.get("/admin/").status_code == 301
        assert proxied.get("/admin/").status_code == 302

    @pytest.mark.case(13)
    @pytest.mark.parametrize("url", URLS)
    def test_a_delivery_is_accepted_on_a_strict_site(self, proxied: Client, url: str) -> None:
        delivery = signed_delivery(RAW, SECRET)
        delivery["headers"] = {**delivery["headers"], "X-Forwarded-Proto": "https"}
        assert proxied.post(url, **delivery).status_code == 200
        assert Event.objects.get().id == EVENT["id"]

    @pytest.mark.case(13)
    @pytest.mark.parametrize("url", URLS)
    @pytest.mark.parametrize("method", ["get", "head", "put", "patch", "delete", "options", "trace"])
    def test_other_methods_are_refused_on_a_strict_site(self, proxied: Client, url: str, method: str) -> None:
        response = getattr(proxied, method)(url, headers={"X-Forwarded-Proto": "https"})
        assert (response.status_code, response["Allow"]) == (405, "POST")

    @pytest.mark.case(13)
    def test_the_webhook_can_be_exempt_from_the_redirect_to_https(self, client: Client, settings: Any) -> None:
        settings.SECURE_PROXY_SSL_HEADER = None
        settings.SECURE_REDIRECT_EXEMPT = [r"^payments/webhook"]
        for url in URLS:
            assert client.post(url, **signed_delivery(RAW, SECRET)).status_code == 200
            assert client.get(url).status_code == 405

    @pytest.mark.case(13)
    def test_a_system_check_warns_of_settings_that_would_redirect_a_delivery(self, settings: Any) -> None:
        def found() -> list[str]:
            return [each.msg for each in checks.check_deployment() if each.id == "payments_integration.W003"]

        accounts = list(settings.PAYMENTS_INTEGRATION["ACCOUNTS"])
        assert accounts == ["default", "second"]
        assert found() == []
        settings.SECURE_PROXY_SSL_HEADER = None
        for exempt, redirected in (
            ([], "/payments/webhook/, /payments/webhook/second/"),
            ([r"^healthz$", r"^/payments/webhook/"], "/payments/webhook/, /payments/webhook/second/"),
            ([r"^payments/webhook/$"], "/payments/webhook/second/"),
            ([r"^healthz$", r"webhook/"], ""),
        ):
            settings.SECURE_REDIRECT_EXEMPT = exempt
            words = f"SECURE_SSL_REDIRECT may redirect webhook deliveries to {redirected}; "
            assert [words in each for each in found()] == [True] * bool(redirected)
        settings.PREPEND_WWW = True
        (warning,) = found()
        assert warning.startswith("PREPEND_WWW redirects")


# What is in the body


@pytest.mark.case(23)
def test_times_that_differ_by_less_than_a_microsecond_are_equal(client: Client) -> None:
    first = {**EVENT, "id": "evt_a", "created_at": "2026-11-01T12:00:00.123456111Z"}
    later = {**factories.event(factories.payment(status="processing")), "id": "evt_b"}
    later["created_at"] = "2026-11-01T12:00:00.123456222Z"
    for event in (first, later):
        assert client.post(URL, **signed_delivery(event, SECRET)).status_code == 200
        inbox.process()
    at = datetime(2026, 11, 1, 12, 0, 0, 123456, tzinfo=UTC)
    assert list(Event.objects.values_list("created_at", flat=True)) == [at, at]
    assert Payment.objects.get().status == "created"
    assert DueRefresh.objects.get().reason == "order_unclear"


@pytest.mark.case(21)
@pytest.mark.parametrize(
    "body",
    [RAW[:-1] + b', "new": "\xff"}', RAW[:-1] + b', "new": {"\xc0\x80": 1}}'],
    ids=["value", "key"],  # RAW has the time in it, and xdist compares the names of its processes
)
def test_invalid_utf_8_in_an_unknown_field_is_quarantined(client: Client, body: bytes) -> None:
    assert client.post(URL, **signed_delivery(body, SECRET)).status_code == 200
    assert (Event.objects.get().state, Event.objects.get().error) == ("quarantined", "not UTF-8")


@pytest.mark.case(24)
@pytest.mark.parametrize(
    "data", [{"object": []}, {"object": {}}, {"object": ["payment"]}, {"object": 1.5}, {"id": []}]
)
def test_an_event_of_an_unknown_type_is_stored(client: Client, data: dict[str, Any]) -> None:
    event = {**EVENT, "type": "dispute.created", "data": data}
    assert client.post(URL, **signed_delivery(event, SECRET)).status_code == 200
    inbox.process()
    assert (Event.objects.get().state, Event.objects.get().object_kind) == ("done", "event")


@pytest.mark.case(18)
@pytest.mark.parametrize("field", ["metadata", "a_new_field"])
def test_the_deepest_json_that_every_database_accepts_and_one_level_more(client: Client, field: str) -> None:
    """The object is the first level: MariaDB takes 31 of JSON, and not 32."""
    nested = {"a": json.loads("[" * 29 + "]" * 29)}
    for value, state in ((nested, "done"), ({"a": nested}, "quarantined")):
        item = factories.event(factories.payment(id=f"pay_{state}", **{field: value}), id=f"evt_{state}")
        assert client.post(URL, **signed_delivery(item, SECRET)).status_code == 200
        inbox.process()
        assert list(Event.objects.filter(state=state).values_list("object_id", flat=True)) in (["pay_done"], [""])
    payment = Payment.objects.get()
    assert (payment.metadata or payment.extra[field]) == nested
    assert Event.objects.count() == 2


@pytest.mark.case(23)
@pytest.mark.parametrize("field", ["created_at", "expires_at"])
@pytest.mark.parametrize(
    "time",
    [
        "0001-01-01T00:00:00Z",
        "0999-12-31T23:59:59Z",
        "1969-12-31T23:59:59Z",
        "9999-12-31T23:59:59Z",
        "9999-12-31T23:59:59.9999999Z",
        "9999-12-31T23:59:59-14:00",
        "2026-06-30T24:00:00Z",
        "2026-06-30T23:59:59.Z",
        "",
    ],
)
def test_times_that_a_database_cannot_store_are_quarantined(client: Client, field: str, time: str) -> None:
    events = [{**EVENT, "data": {**EVENT["data"], field: time}}]
    if field == "created_at":
        events.append({**EVENT, "id": "evt_2", "created_at": time})
    for event in events:
        assert client.post(URL, **signed_delivery(event, SECRET)).status_code == 200
    assert list(Event.objects.values_list("state", flat=True)) == ["quarantined"] * len(events)


@pytest.mark.case(28)
def test_an_id_twice_in_one_page_keeps_the_first_and_quarantines_the_other(attentions: list[dict[str, Any]]) -> None:
    other = {**EVENT, "data": {**EVENT["data"], "amount": 1}}
    bodies = [RAW, json.dumps(other).encode(), RAW, json.dumps(dict(reversed(EVENT.items()))).encode()]
    counts = inbox.receive_many("default", bodies, source="reconciliation")
    assert counts == {Receipt.NEW: 1, Receipt.QUARANTINED: 1, Receipt.KNOWN: 2}
    assert bytes(Event.objects.get(pk=EVENT["id"]).body or b"") == RAW
    assert bytes(Event.objects.get(state="quarantined").body or b"") == bodies[1]
    assert [seen["reason"] for seen in attentions] == ["event_quarantined"]
    again = inbox.receive_many("default", reversed(bodies), source="reconciliation")
    assert (again[Receipt.NEW], Event.objects.count(), len(attentions)) == (0, 2, 1)


def test_no_event_replaces_a_body_in_quarantine(client: Client) -> None:
    bad = b"no JSON"
    place = inbox.receiving.quarantined("default", bad, source="webhook", reason="x").pk
    assert client.post(URL, **signed_delivery({**EVENT, "id": place}, SECRET)).status_code == 200
    assert client.post(URL, **signed_delivery(bad, SECRET)).status_code == 200
    assert bytes(Event.objects.get(pk=place).body or b"") == bad
    assert set(Event.objects.values_list("state", flat=True)) == {"quarantined"}


def test_every_database_returns_large_floats_unchanged(client: Client) -> None:
    numbers = [1e300, 1e16, -1e22, 1.5, 5e-324, -0.0, 123456789.123456789, 2**63, 10**400, 0.1]
    item = factories.event(factories.payment(metadata={"numbers": numbers}))
    assert client.post(URL, **signed_delivery(item, SECRET)).status_code == 200
    inbox.process()
    payment = Payment.objects.get()
    assert payment.metadata == {"numbers": numbers}
    assert oracles.problems(payment) == []
    theirs = schemas.parse_resource(schemas.decode_object(json.dumps(item["data"]).encode()), schemas.Payment)
    assert projection.differences(payment, theirs) == {}


# Data that must stay private


@pytest.fixture
def endpoint() -> WebhookEndpoint:
    return WebhookEndpoint.objects.create(
        id="whk_1",
        account="default",
        url="https://shop.example/hook/",
        events=["payment.succeeded"],
        status="active",
        state_at=factories.T0,
        state_by=StateBy.ANSWER,
        synced_at=factories.T0,
    )


def configure(settings: Any, **options: Any) -> None:
    settings.PAYMENTS_INTEGRATION = {**settings.PAYMENTS_INTEGRATION, **options}
    forget_secrets()


@pytest.mark.case(86)
def test_a_rotated_key_reads_old_rows_and_a_missing_one_calls_attention(
    client: Client, endpoint: WebhookEndpoint, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    configure(settings, ENCRYPTION_KEYS=["old"])
    store_secret("default", endpoint.pk, "whsec_stored")
    configure(settings, ENCRYPTION_KEYS=["new", "old"])
    assert client.post(URL, **signed_delivery(RAW, "whsec_stored")).status_code == 200
    call_command("check", databases=["default"])

    configure(settings, ENCRYPTION_KEYS=["new"])
    other = factories.event(factories.payment(), id="evt_2")
    # What it may have signed comes again. Another secret still verifies.
    assert client.post(URL, **signed_delivery(other, "whsec_stored")).status_code == 503
    assert Event.objects.count() == 1
    third = factories.event(factories.payment(), id="evt_3")
    assert client.post(URL, **signed_delivery(third, SECRET)).status_code == 200
    assert client.post(URL, data=b"{}", content_type="application/json").status_code == 400, "no signature at all"
    assert "DecryptionError" in caplog.text
    assert "whsec_stored" not in caplog.text
    with pytest.raises(SystemCheckError, match=r"payments_integration\.E010"):
        call_command("check", databases=["default"])

    configure(settings, ENCRYPTION_KEYS=["new", "old"])
    assert client.post(URL, **signed_delivery(other, "whsec_stored")).status_code == 200
    assert Event.objects.count() == 3


@pytest.mark.case(155)
@pytest.mark.parametrize("token", ["not a token", "ñ", "gAAAAABo"])
def test_one_secret_that_cannot_be_read_does_not_refuse_what_another_one_signs(
    client: Client, endpoint: WebhookEndpoint, settings: Any, token: str, attentions: list[dict[str, Any]]
) -> None:
    account = {**settings.PAYMENTS_INTEGRATION["ACCOUNTS"]["default"], "WEBHOOK_SECRETS": []}
    configure(settings, ACCOUNTS={**settings.PAYMENTS_INTEGRATION["ACCOUNTS"], "default": account})
    store_secret("default", endpoint.pk, "whsec_stored")
    broken = rows.endpoint(id="whk_broken", secret_token=token, events=list(EVENT_TYPES))
    forget_secrets()
    assert client.post(URL, **signed_delivery(RAW, "whsec_stored")).status_code == 200
    other = factories.event(factories.payment(), id="evt_2")
    assert client.post(URL, **signed_delivery(other, "whsec_of_the_broken_one")).status_code == 503
    assert [problem.code for problem in health.examine("default").accounts["default"].problems].count(
        "secret_unreadable"
    ) == 1
    with mock.patch("payments_integration.reconciliation.accounts.sync_webhook_endpoints"):
        reconciliation.check_endpoints()
        reconciliation.check_endpoints()
    told = [(seen["reason"], seen["instance"].pk) for seen in attentions if seen["reason"] != "endpoint"]
    assert told == [("secret_unreadable", broken.pk)]


PERSONAL = ("Ana Rojas", "12345678-5", "00998877")
PRIVATE = factories.event(
    factories.payment(
        payer={"name": PERSONAL[0], "document": {"type": "RUT", "number": PERSONAL[1]}},
        next_action={"type": "none", "bank_transfer": {"account_number": PERSONAL[2]}},
    )
)


def assert_masked(text: str) -> None:
    assert text
    assert [secret for secret in (*PERSONAL, SECRET, "whsec_second", "sk_test_default") if secret in text] == []


PRIVATE_BODY = json.dumps(PRIVATE).encode()


def shown(error: BaseException) -> tuple[list[str], str]:
    """What Django's report of an error has of our code: the functions, and their variables."""
    frames = [
        frame
        for frame in ExceptionReporter(None, type(error), error, error.__traceback__).get_traceback_frames()
        if Path(frame["filename"]).is_relative_to(PACKAGE)
    ]
    return [frame["function"] for frame in frames], str([frame["vars"] for frame in frames])


@pytest.mark.case(85)
@pytest.mark.promise(7)
@pytest.mark.parametrize(
    "broken", ["schemas.canonical", "inbox.receive", "schemas.decode_event", "schemas.event_resource"]
)
@pytest.mark.parametrize("door", ["webhook", "receive", "receive_many"])
def test_an_error_report_shows_no_body_and_no_secret(
    client: Client, caplog: pytest.LogCaptureFixture, door: str, broken: str
) -> None:
    caplog.set_level(logging.DEBUG)
    calls: dict[str, Callable[[], object]] = {
        "webhook": lambda: client.post(URL, **signed_delivery(PRIVATE_BODY, SECRET)),
        "receive": partial(inbox.receive, "default", PRIVATE_BODY),
        "receive_many": partial(inbox.receive_many, "default", [PRIVATE_BODY], source="reconciliation"),
    }
    if broken == "inbox.receive" and door != "webhook":
        broken = "inbox.receiving.read"
    bug = mock.patch(f"payments_integration.{broken}", side_effect=RuntimeError("a bug"))
    with bug, pytest.raises(RuntimeError) as caught:
        calls[door]()
    functions, variables = shown(caught.value)
    assert door in functions
    assert_masked(f"{variables}{caplog.text}{caught.value!r}")


class Reports(logging.Handler):
    """Makes the report while the error is handled, as the handler that writes to administrators does."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[list[str], str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self.seen.append(shown(record.exc_info[1]))


@pytest.mark.case(85)
def test_an_error_report_of_an_event_that_cannot_be_applied_shows_no_payer(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.post(URL, **signed_delivery(PRIVATE_BODY, SECRET))
    reports = Reports()
    logging.getLogger("payments_integration").addHandler(reports)
    try:
        with mock.patch("payments_integration.projection.rows.new_row", side_effect=TypeError):
            inbox.process()
    finally:
        logging.getLogger("payments_integration").removeHandler(reports)
    assert reports.seen
    for functions, variables in reports.seen:
        assert functions[-1] == "_apply"
        assert_masked(variables)
    assert_masked(f"{caplog.text}{Event.objects.get().error}")


@pytest.mark.case(85)
@pytest.mark.parametrize(
    "change",
    [
        {"amount": "x"},
        {"payer": [PERSONAL[0], PERSONAL[1]]},
        {"merchant_reference": PERSONAL[0] * 50},
        {"created_at": PERSONAL[1]},
        {"object": PERSONAL[0]},
        {},
    ],
    ids=str,
)
def test_logs_and_error_columns_never_contain_a_body(
    client: Client, caplog: pytest.LogCaptureFixture, attentions: list[dict[str, Any]], change: dict[str, Any]
) -> None:
    caplog.set_level(logging.DEBUG)
    event = {**PRIVATE, "data": {**PRIVATE["data"], **change}}
    assert client.post(URL, **signed_delivery(event, SECRET)).status_code == 200
    assert client.post(URL, **signed_delivery(event, "whsec_second")).status_code == 400
    inbox.process()
    inbox.dispatch()
    rows = [*Event.objects.all(), *Payment.objects.all()]
    assert len(rows) == (1 if change else 2)
    assert_masked(f"{caplog.text}{rows}{[(row.error, str(row)) for row in Event.objects.all()]}{attentions}")
