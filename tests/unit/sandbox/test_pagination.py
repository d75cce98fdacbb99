from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from payments_integration.sandbox import Clock, Engine

from .support import DEPOSIT, Client

LISTS = ("/payments", "/payouts", "/refunds", "/events")


def fill(engine: Engine, client: Client, path: str, count: int) -> None:
    engine.fund("CLP", 1_000_000)
    if path == "/refunds":
        payment = client.card()
        engine.pay(payment["id"])
    for index in range(count):
        if path == "/payments":
            client.card(amount=index + 1)
        elif path == "/payouts":
            client.payout(amount=index + 1)
        elif path == "/refunds":
            client.make("/refunds", {"payment_id": payment["id"], "amount": index + 1})
        else:
            engine.fund("CLP", 1)


@pytest.mark.parametrize("path", LISTS)
def test_pages_contain_every_object_newest_first(engine: Engine, client: Client, path: str) -> None:
    fill(engine, client, path, 60)
    seen: list[dict[str, Any]] = []
    query: dict[str, Any] = {}
    sizes = []
    while True:
        page = client.get(path, **query).json
        assert set(page) == {"object", "has_more", "data"}
        assert page["object"] == "list"
        seen += page["data"]
        sizes.append(len(page["data"]))
        if not page["has_more"]:
            break
        query = {"starting_after": page["data"][-1]["id"]}
    assert sizes[:2] == [25, 25]
    times = [item["created_at"] for item in seen]
    assert times == sorted(times, reverse=True)
    assert len({item["id"] for item in seen}) == len(seen) >= 60


@pytest.mark.parametrize("path", LISTS)
def test_the_limit_sets_the_page_size(engine: Engine, client: Client, path: str) -> None:
    fill(engine, client, path, 3)
    everything = client.get(path, limit=100).json
    count = len(everything["data"])
    assert everything["has_more"] is False
    exact = client.get(path, limit=count).json
    assert (len(exact["data"]), exact["has_more"]) == (count, False)
    short = client.get(path, limit=count - 1).json
    assert (len(short["data"]), short["has_more"]) == (count - 1, True)
    last = client.get(path, starting_after=everything["data"][-1]["id"]).json
    assert (last["data"], last["has_more"]) == ([], False)


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("limit", ["0", "101", "-1", "ten", "1.5", "", "٣"])
def test_a_limit_out_of_range_is_refused(client: Client, path: str, limit: str) -> None:
    reply = client.get(path, limit=limit)
    assert (reply.status, reply.error["code"], reply.error["param"]) == (400, "parameter_invalid", "limit")


@pytest.mark.parametrize("path", LISTS)
def test_an_unknown_cursor_or_parameter_is_refused(client: Client, path: str) -> None:
    reply = client.get(path, starting_after="pay_unknown")
    assert (reply.status, reply.error["code"], reply.error["param"]) == (404, "resource_not_found", "starting_after")
    reply = client.get(path, colour="red")
    assert (reply.status, reply.error["code"], reply.error["param"]) == (400, "parameter_invalid", "colour")


def test_new_objects_do_not_change_later_pages(client: Client) -> None:
    old = [client.card()["id"] for _ in range(4)]
    first = client.get("/payments", limit=2).json["data"]
    client.card()
    second = client.get("/payments", limit=2, starting_after=first[-1]["id"]).json["data"]
    assert [item["id"] for item in first + second] == old[::-1]


def test_payments_can_be_filtered_by_status_and_reference(engine: Engine, client: Client) -> None:
    paid = client.card(merchant_reference="a")
    engine.pay(paid["id"])
    other = client.card(merchant_reference="b")
    assert [item["id"] for item in client.get("/payments", status="succeeded").json["data"]] == [paid["id"]]
    assert [item["id"] for item in client.get("/payments", merchant_reference="b").json["data"]] == [other["id"]]
    assert client.get("/payments", status="succeeded", merchant_reference="b").json["data"] == []
    assert client.get("/payments", status="done").error["param"] == "status"


def test_payouts_can_be_filtered_by_status_and_reference(engine: Engine, client: Client) -> None:
    engine.fund("CLP", 100_000)
    first = client.payout(merchant_reference="a")
    second = client.payout(merchant_reference="b")
    engine.fail_payout(second["id"])
    assert [item["id"] for item in client.get("/payouts", status="failed").json["data"]] == [second["id"]]
    assert [item["id"] for item in client.get("/payouts", merchant_reference="a").json["data"]] == [first["id"]]
    assert client.get("/payouts", status="expired").error["param"] == "status"


def test_a_filter_and_a_cursor_can_be_combined(client: Client) -> None:
    wanted = []
    for index in range(8):
        item = client.card(merchant_reference="even" if index % 2 == 0 else "odd")
        if index % 2 == 0:
            wanted.append(item["id"])
    page = client.get("/payments", merchant_reference="even", limit=2).json
    assert page["has_more"] is True
    rest = client.get("/payments", merchant_reference="even", limit=2, starting_after=page["data"][-1]["id"]).json
    assert rest["has_more"] is False
    assert [item["id"] for item in page["data"] + rest["data"]] == wanted[::-1]


def spaced(client: Client, clock: Clock, make: Callable[[], object], path: str) -> list[dict[str, Any]]:
    for _ in range(4):
        make()
        clock.advance(60)
    return list(reversed(client.get(path, limit=100).json["data"]))


@pytest.mark.parametrize("path", ["/payments", "/events"])
def test_time_filters_include_both_ends(engine: Engine, client: Client, clock: Clock, path: str) -> None:
    items = spaced(client, clock, client.card, path)
    query = {"created_from": items[1]["created_at"], "created_to": items[2]["created_at"]}
    assert client.get(path, **query).json["data"] == [items[2], items[1]]
    assert client.get(path, created_from=items[3]["created_at"]).json["data"] == [items[3]]
    assert client.get(path, created_to=items[0]["created_at"]).json["data"] == [items[0]]
    elsewhere = items[1]["created_at"].replace("Z", "+00:00")
    assert client.get(path, created_to=elsewhere).json["data"] == [items[1], items[0]]


@pytest.mark.parametrize("path", ["/payments", "/events"])
@pytest.mark.parametrize("name", ["created_from", "created_to"])
@pytest.mark.parametrize(
    "value",
    ["yesterday", "2026-01-15", "2026-01-15T12:00:00", "", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00+23:59"],
)
def test_a_time_without_a_time_zone_or_out_of_range_is_refused(
    client: Client, path: str, name: str, value: str
) -> None:
    reply = client.get(path, **{name: value})
    assert (reply.status, reply.error["code"], reply.error["param"]) == (400, "parameter_invalid", name)


def test_payouts_and_refunds_have_no_time_filter(client: Client) -> None:
    for path in ("/payouts", "/refunds"):
        assert client.get(path, created_from="2026-01-15T12:00:00Z").error["param"] == "created_from"


def test_events_can_be_filtered_by_type(engine: Engine, client: Client) -> None:
    engine.pay(client.card()["id"])
    assert [event["type"] for event in client.get("/events", type="payment.succeeded").json["data"]] == [
        "payment.succeeded"
    ]
    assert client.get("/events", type="refund.canceled").error["param"] == "type"


def test_lists_without_pages_refuse_page_parameters(engine: Engine, client: Client) -> None:
    client.make("/webhook-endpoints", {"url": "https://shop.example/hook"})
    for path in ("/payment-methods", "/balances", "/webhook-endpoints"):
        reply = client.get(path)
        assert set(reply.json) == {"data"}
    for path in ("/balances", "/webhook-endpoints"):
        assert client.get(path, limit=1).error["param"] == "limit"
    currencies = [balance["currency"] for balance in client.get("/balances").json["data"]]
    assert currencies == ["CLP", "COP", "PEN", "MXN", "BRL", "USD"]


def test_deposit_references_have_no_list(client: Client) -> None:
    client.make("/deposit-references", DEPOSIT)
    reply = client.get("/deposit-references")
    assert (reply.status, reply.headers["Allow"]) == (405, "POST")
