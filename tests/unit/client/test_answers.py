"""A 2xx is a success only if it holds the requested object, complete and of the right kind."""

from __future__ import annotations

import json
from typing import Any

import pytest
import responses

from payments_integration.client import Client
from payments_integration.exceptions import NoAnswer
from tests.unit.client import samples
from tests.unit.client.samples import BASE, CASES, Case

#: DELETE ignores its body.
readers = [case for case in CASES if case.method != "DELETE"]


def every(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=str)


def refuse(case: Case, body: bytes | str, client: Client, provider: responses.RequestsMock) -> str:
    provider.add(case.method, BASE + case.path, body=body, headers={"X-Request-Id": "req_9"})
    with pytest.raises(NoAnswer) as caught:
        case.call(client)
    error = caught.value
    assert error.status_code == 200
    assert error.request_id == "req_9"
    assert error.__context__ is None
    assert str(error).startswith(f"{case.method} {case.path}: ")
    assert str(error).endswith(" (HTTP 200)")
    return str(error)


@every(readers)
@pytest.mark.parametrize(
    "body",
    [
        "",
        "<html>hello</html>",
        "null",
        "[]",
        "17",
        '"text"',
        "{}",
        "{",
        b'{"id": "\xff"}',
        b"\xff",
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"data": {}}',
        '{"object": "list", "has_more": false}',
    ],
    ids=range(14),
)
def test_json_of_another_shape_is_no_answer(
    case: Case, body: str | bytes, client: Client, provider: responses.RequestsMock
) -> None:
    refuse(case, body, client, provider)


@every(readers)
def test_truncated_json_is_no_answer(case: Case, client: Client, provider: responses.RequestsMock) -> None:
    refuse(case, json.dumps(case.reply)[:-2], client, provider)


def first_object(case: Case) -> dict[str, Any]:
    found: dict[str, Any] = case.reply["data"][0] if case.listed else case.reply
    return found


def replaced(case: Case, **changes: Any) -> str:
    """The case's good reply with changed fields in its first object."""
    item = {name: value for name, value in {**first_object(case), **changes}.items() if value is not ...}
    return json.dumps({**case.reply, "data": [item]} if case.listed else item)


#: Events are returned as bytes.
parsed = [case for case in readers if case.kind and case.name != "events.list"]


@every(parsed)
@pytest.mark.parametrize("other", ["refunds", "list", "Payment", "", 1, None])
def test_an_object_of_another_kind_is_no_answer(
    case: Case, other: Any, client: Client, provider: responses.RequestsMock
) -> None:
    message = refuse(case, replaced(case, object=other), client, provider)
    assert "object" in message


@every([case for case in parsed if case.asked])
@pytest.mark.parametrize("other", ["{}2", "{} ", ""])
def test_another_objects_id_is_no_answer(
    case: Case, other: str, client: Client, provider: responses.RequestsMock
) -> None:
    refuse(case, replaced(case, id=other.format(case.asked)), client, provider)


@every([case for case in parsed if "balance" not in case.name])
def test_an_id_with_another_kinds_prefix_is_no_answer(
    case: Case, client: Client, provider: responses.RequestsMock
) -> None:
    message = refuse(case, replaced(case, id="xyz_1"), client, provider)
    assert "$.id" in message


REQUIRED = {"currency", "amount", "available", "debt", "payment_id", "details", "status", "url", "created_at"}


@pytest.mark.parametrize(
    ("case", "missing"),
    [
        pytest.param(case, name, id=f"{case}-{name}")
        for case in parsed
        for name in sorted(REQUIRED.intersection(first_object(case)))
    ],
)
def test_an_object_without_a_required_field_is_no_answer(
    case: Case, missing: str, client: Client, provider: responses.RequestsMock
) -> None:
    message = refuse(case, replaced(case, **{missing: ...}), client, provider)
    assert f"`{missing}`" in message
    assert ("$.data[0]" in message) == case.listed


@every([case for case in parsed if "amount" in str(case.reply)])
@pytest.mark.parametrize("value", ["15000", 1.0, True, 2**63, -(2**63) - 1, None])
def test_an_amount_that_is_not_an_integer_is_no_answer(
    case: Case, value: Any, client: Client, provider: responses.RequestsMock
) -> None:
    message = refuse(case, replaced(case, amount=value), client, provider)
    assert "`$.amount`" in message or "malformed" in message or "out of range" in message
    assert "15000" not in message


def test_the_error_names_the_malformed_item_of_a_list(client: Client, provider: responses.RequestsMock) -> None:
    bad = {**samples.PAYMENT, "amount": ["secret"]}
    provider.get(f"{BASE}/payments", json=samples.page(samples.PAYMENT, bad))
    with pytest.raises(NoAnswer, match=r"\$\.data\[1\]: .*\$\.amount") as caught:
        list(client.payments.list())
    assert "secret" not in str(caught.value)


def test_pages_return_the_other_items_beside_a_malformed_one(client: Client, provider: responses.RequestsMock) -> None:
    bad = {**samples.PAYMENT, "merchant_reference": "x" * 300}
    provider.get(f"{BASE}/payments", json=samples.page(samples.PAYMENT, bad))
    (answer,) = client.payments.pages()
    assert [item.id for item in answer.data.items] == [samples.PAYMENT["id"]]
    assert "$.data[1]" in answer.data.unreadable[0]
    with pytest.raises(NoAnswer):
        list(client.payments.list())


@every([case for case in CASES if case.paged])
@pytest.mark.parametrize(
    "change",
    [{"object": "payments"}, {"object": ...}, {"has_more": ...}, {"has_more": None}, {"has_more": "no"}],
)
def test_a_list_without_its_page_fields_is_no_answer(
    case: Case, change: dict[str, Any], client: Client, provider: responses.RequestsMock
) -> None:
    body = {name: value for name, value in {**case.reply, **change}.items() if value is not ...}
    refuse(case, json.dumps(body), client, provider)


def test_a_malformed_event_does_not_hide_the_others(client: Client, provider: responses.RequestsMock) -> None:
    items: list[Any] = [{"id": 7}, None, [], {**samples.EVENT, "created_at": "?"}, samples.EVENT]
    provider.get(f"{BASE}/events", json=samples.page(*items))
    page = next(client.events.pages()).data
    assert [json.loads(event.body) for event in page.items] == items
    assert page.cursor == "evt_1"


def test_the_repr_of_an_answer_shows_no_data(client: Client, provider: responses.RequestsMock) -> None:
    provider.get(f"{BASE}/payments/pay_1", json=samples.PAYMENT)
    provider.get(f"{BASE}/payments", json=samples.page(samples.PAYMENT))
    provider.get(f"{BASE}/payouts/pout_1", json=samples.PAYOUT)
    provider.get(f"{BASE}/events", json=samples.page(samples.EVENT))
    page, events = next(client.payments.pages()), next(client.events.pages())
    seen = [
        client,
        client.payments,
        client.account,
        (payment := client.payments.get("pay_1")),
        payment.data,
        client.payouts.get("pout_1").data,
        page,
        page.data,
        page.data.items,
        events.data,
        events.data.items,
    ]
    for secret in (samples.API_KEY, samples.DOCUMENT_NUMBER, samples.ACCOUNT_NUMBER, "Ana"):
        assert secret not in repr(seen) + str(seen)
    assert repr(payment.data) == "Payment(id='pay_1', status='requires_action')"
    assert "data" not in repr(payment)  # the struct's own repr hides it too
