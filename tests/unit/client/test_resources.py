"""Every call sends the request of the spec, byte for byte, and reads its answer."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import responses

import payments_integration
from payments_integration import schemas
from payments_integration.client import Answer, Client, PageOf, RawEvent
from payments_integration.exceptions import NoAnswer, UnsendableRequest
from tests.unit.client import samples
from tests.unit.client.samples import BASE, BODY, CASES, DATE, KEY, SINCE, Case

every_case = pytest.mark.parametrize("case", CASES, ids=str)
posts = pytest.mark.parametrize("case", [case for case in CASES if case.method == "POST"], ids=str)


def reply(provider: responses.RequestsMock, case: Case, **more: Any) -> None:
    provider.add(
        case.method,
        BASE + case.path,
        json=case.reply,
        headers={"Date": DATE, "X-Request-Id": "req_9"},
        **more,
    )


def test_the_client_has_the_calls_of_the_spec_but_that_of_a_single_event() -> None:
    assert len(CASES) == len({(case.method, case.name) for case in CASES}) == 20


@every_case
def test_every_call_sends_the_request_of_the_spec(
    case: Case, client: Client, provider: responses.RequestsMock
) -> None:
    reply(provider, case)
    case.call(client)
    (sent,) = (call.request for call in provider.calls)
    assert sent.method == case.method
    assert sent.url is not None
    assert sent.url.split("?")[0] == BASE + case.path
    assert sent.headers["Authorization"] == f"Bearer {samples.API_KEY}"
    assert sent.headers["Accept"] == "application/json"
    assert sent.headers["User-Agent"] == f"payments_integration/{payments_integration.__version__}"
    assert sent.body == case.body
    assert sent.headers.get("Content-Type") == ("application/json" if case.body else None)
    assert sent.headers.get("Idempotency-Key") == (KEY if case.method == "POST" else None)
    assert sent.headers.get("Cache-Control") == ("no-cache" if case.method == "GET" else None)


@every_case
def test_every_call_returns_the_answer_of_the_spec(
    case: Case, client: Client, provider: responses.RequestsMock
) -> None:
    reply(provider, case)
    answer = case.call(client)
    assert isinstance(answer, Answer)
    assert answer.status_code == 200
    assert answer.request_id == "req_9"
    assert answer.answered_at == datetime(2026, 3, 1, 12, 0, 1, tzinfo=UTC)
    assert 0 <= answer.duration < 5
    data = answer.data
    if case.paged:
        assert isinstance(data, PageOf)
        assert data.has_more is False
        data = data.items
    if case.listed:
        (data,) = data
    if case.name.startswith("events."):
        assert isinstance(data, RawEvent)
        assert schemas.decode_event(data.body).id == "evt_1"
    elif case.struct is None:
        assert data is None
    else:
        assert isinstance(data, case.struct)
        for name, value in samples_of(case).items():
            if hasattr(data, name) and not name.endswith("_at"):
                assert getattr(data, name) == value


def samples_of(case: Case) -> dict[str, Any]:
    found = case.reply["data"][0] if case.listed else case.reply
    assert isinstance(found, dict)
    return found


@every_case
@pytest.mark.parametrize("status", [200, 201, 202, 299])
def test_any_2xx_is_success(case: Case, status: int, client: Client, provider: responses.RequestsMock) -> None:
    reply(provider, case, status=status)
    assert case.call(client).status_code == status


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"id": "whk_1"}'])
@pytest.mark.parametrize("status", [200, 204])
def test_delete_needs_no_body(body: bytes, status: int, client: Client, provider: responses.RequestsMock) -> None:
    provider.delete(f"{BASE}/webhook-endpoints/whk_1", body=body, status=status)
    assert client.webhook_endpoints.delete("whk_1").data is None


def test_create_and_rotate_bring_the_secret(client: Client, provider: responses.RequestsMock) -> None:
    provider.post(f"{BASE}/webhook-endpoints", json=samples.WEBHOOK_ENDPOINT)
    provider.post(f"{BASE}/webhook-endpoints/whk_1/rotate-secret", json=samples.WEBHOOK_ENDPOINT)
    assert client.webhook_endpoints.create(BODY, idempotency_key="k").data.secret == "whsec_only_once"
    assert client.webhook_endpoints.rotate_secret("whk_1", idempotency_key="k").data.secret == "whsec_only_once"


def test_an_endpoint_may_leave_out_its_object(client: Client, provider: responses.RequestsMock) -> None:
    endpoint = {name: value for name, value in samples.WEBHOOK_ENDPOINT.items() if name != "object"}
    provider.get(f"{BASE}/webhook-endpoints", json={"data": [endpoint]})
    assert client.webhook_endpoints.list().data[0].id == "whk_1"


def test_events_keep_their_exact_bytes(client: Client, provider: responses.RequestsMock) -> None:
    odd = b'{"object" :"event",  "id":"evt_1","amount":1.50,"note":"\\u0000"}'
    provider.get(f"{BASE}/events", body=b'{"object":"list","has_more":false,"data":[ ' + odd + b" ]}")
    assert [event.body for event in samples.each(client, "events")] == [odd]


def query(provider: responses.RequestsMock) -> dict[str, str]:
    url = provider.calls[-1].request.url
    return dict(parse_qsl(urlsplit(str(url)).query))


def test_list_filters_are_sent_as_query_parameters(client: Client, provider: responses.RequestsMock) -> None:
    for path in ("payments", "payouts", "refunds", "events"):
        provider.get(f"{BASE}/{path}", json=samples.page())
    santiago = timezone(timedelta(hours=-3))
    list(
        client.payments.list(
            status="failed",
            merchant_reference="a&b=ñ",
            created_from=SINCE,
            created_to=SINCE.astimezone(santiago),
        )
    )
    since = "2026-03-01T09:00:00.000000Z"
    assert query(provider) == {
        "limit": "100",
        "status": "failed",
        "merchant_reference": "a&b=ñ",
        "created_from": since,
        "created_to": since,
    }
    list(client.payouts.list(status="failed", merchant_reference=None))
    assert query(provider) == {"limit": "100", "status": "failed"}
    list(client.refunds.list(payment_id="pay_1"))
    assert query(provider) == {"limit": "100", "payment_id": "pay_1"}
    list(client.events.pages(type="payment.failed", created_from=SINCE + timedelta(microseconds=7)))
    assert query(provider) == {
        "limit": "100",
        "type": "payment.failed",
        "created_from": "2026-03-01T09:00:00.000007Z",
    }
    list(client.events.pages("evt_5"))
    assert query(provider) == {"limit": "100", "starting_after": "evt_5"}
    client.events.newest()
    assert query(provider) == {"limit": "1"}


def test_payment_method_filters(client: Client, provider: responses.RequestsMock) -> None:
    provider.get(f"{BASE}/payment-methods", json={"data": [samples.METHOD]})
    (method,) = client.payment_methods.list("CL", "CLP", 15000).data
    assert query(provider) == {"country": "CL", "currency": "CLP", "amount": "15000"}
    assert method.extra == {"family": "card"}


@pytest.mark.parametrize("asked", ["pay_1/cancel", "../payouts", "pay_1?x=1", "pay_1#x", "a%2Fb", "a b", "..;", "/"])
def test_an_id_stays_one_segment(asked: str, client: Client, provider: responses.RequestsMock) -> None:
    provider.get(re.compile(".*"), status=404)
    with pytest.raises(NoAnswer):
        client.payments.get(asked)
    path = provider.calls[0].request.path_url
    prefix, _, last = path.rpartition("/")
    assert prefix == "/v1/payments"
    assert not set("?#/ ") & set(last)


@pytest.mark.parametrize("asked", ["", ".", "..", "é", "a\nb", "x" * 256, "\udc80"])
def test_an_id_that_cannot_be_part_of_a_path_is_not_sent(
    asked: str, client: Client, provider: responses.RequestsMock
) -> None:
    for call in (
        lambda: client.payments.get(asked),
        lambda: client.payouts.cancel(asked, idempotency_key="k"),
        lambda: client.webhook_endpoints.delete(asked),
        lambda: client.webhook_endpoints.rotate_secret(asked, idempotency_key="k"),
    ):
        with pytest.raises(UnsendableRequest):
            call()
    assert not provider.calls


@posts
@pytest.mark.parametrize("key", ["", "x" * 256, "a\r\nX: y", "ñ", " a", "a ", "a\tb"])
def test_a_key_that_cannot_be_a_header_is_not_sent(
    case: Case, key: str, client: Client, provider: responses.RequestsMock
) -> None:
    with pytest.raises(UnsendableRequest):
        call_with_key(client, case, key)
    assert not provider.calls


def call_with_key(client: Client, case: Case, key: str) -> None:
    group, verb = case.name.split(".")
    first: Any = BODY if verb == "create" else case.asked
    getattr(getattr(client, group), verb)(first, idempotency_key=key)


@posts
def test_the_longest_key_is_sent(case: Case, client: Client, provider: responses.RequestsMock) -> None:
    reply(provider, case)
    call_with_key(client, case, "k" * 255)
    assert provider.calls[0].request.headers["Idempotency-Key"] == "k" * 255


def test_a_body_over_256_kb_is_not_sent(client: Client, provider: responses.RequestsMock) -> None:
    provider.post(f"{BASE}/payments", json=samples.PAYMENT)
    with pytest.raises(ValueError, match="at most 262144 bytes"):
        client.payments.create(b"x" * (256 * 1024 + 1), idempotency_key="k")
    assert not provider.calls
    client.payments.create(b"x" * 256 * 1024, idempotency_key="k")
    assert len(provider.calls) == 1


def test_filters_that_cannot_be_sent(client: Client, provider: responses.RequestsMock) -> None:
    with pytest.raises(UnsendableRequest):
        next(client.payments.pages(created_from=datetime(2026, 1, 1)))  # noqa: DTZ001
    with pytest.raises(UnsendableRequest):
        next(client.payments.pages(merchant_reference="\udc80"))
    assert not provider.calls


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "yesterday",
        "2026-03-01T12:00:00Z",
        "Sun, 01 Mar 2026 12:00:01",
        "Sun, 99 Mar 2026 12:00:01 GMT",
    ],
)
def test_an_answer_without_a_usable_date_has_none(
    header: str | None, client: Client, provider: responses.RequestsMock
) -> None:
    provider.get(f"{BASE}/payments/pay_1", json=samples.PAYMENT, headers={} if header is None else {"Date": header})
    assert client.payments.get("pay_1").answered_at is None


@pytest.mark.parametrize("header", [{}, {"X-Request-Id": "ñ"}])
def test_an_answer_without_a_usable_request_id_has_an_empty_one(
    header: dict[str, str], client: Client, provider: responses.RequestsMock
) -> None:
    provider.get(f"{BASE}/payments/pay_1", json=samples.PAYMENT, headers=header)
    assert client.payments.get("pay_1").request_id == ""
