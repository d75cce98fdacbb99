"""Each event type can be triggered, by legal transitions only, and the books add up afterwards."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from payments_integration.sandbox import ApiError, Clock, Engine, SandboxError
from payments_integration.sandbox.catalog import MAX_AMOUNT, METHODS
from payments_integration.sandbox.engine import DEFAULT_FUNDS
from payments_integration.sandbox.protocol import EVENT_TYPES
from payments_integration.sandbox.trigger import STEPS, parse_assignments

from .support import ACCOUNT, CARD, DOCUMENT, TRANSFER, Client, Receiver

#: From the provider's "States and transitions" and the table of controls in docs/sandbox.md. "" is no object yet.
PAID = {"succeeded", "overpaid", "partially_paid"}
LEGAL = {
    "payment": {
        "": {"created"},
        "created": {"requires_action", "processing", "failed", "expired", "canceled", "on_hold", *PAID},
        "requires_action": {"processing", "failed", "expired", "canceled", "on_hold", *PAID},
        "processing": {"succeeded", "failed", "on_hold"},
        "succeeded": {"chargeback", "overpaid"},
    },
    "payout": {
        "": {"created"},
        "created": {"processing", "failed", "canceled", "on_hold"},
        "processing": {"succeeded", "failed", "on_hold", "processing"},  # delayed: the status stays
        "succeeded": {"returned"},
    },
    "refund": {
        "": {"created"},
        "created": {"processing", "failed"},
        "processing": {"succeeded", "failed"},
        "succeeded": {"returned"},
    },
}


def check_stream(events: list[dict[str, Any]]) -> None:
    """The events are in order, each shows its object as its type says, and each status may follow the one before."""
    assert [event["created_at"] for event in events] == sorted({event["created_at"] for event in events})
    status: dict[str, str] = defaultdict(str)
    for event in events:
        kind, _, name = event["type"].partition(".")
        data = event["data"]
        assert data["object"] == kind
        if kind == "balance":
            continue
        assert data["status"] == (name if name != "delayed" else status[data["id"]])
        assert data["status"] in LEGAL[kind].get(status[data["id"]], set()), event["type"]
        status[data["id"]] = data["status"]


@pytest.mark.parametrize("event", EVENT_TYPES)
def test_every_event_type_is_triggered_by_legal_transitions_and_delivered(
    engine: Engine, receiver: Receiver, event: str
) -> None:
    engine.add_endpoint("https://shop.example/hook")
    found = engine.trigger(event)  # without money: what a payout needs is paid in first
    assert found["events"] == engine.events
    assert found["event"] == event
    assert found["endpoints"] == list(engine.endpoints)
    check_stream(engine.events)
    of_type = [item["data"] for item in engine.events if item["type"] == event]
    assert len(of_type) == 1 or event == "balance.updated"
    assert of_type[-1] == found["object"]
    engine.deliver_due()
    assert receiver.events == engine.events


def refusal(engine: Engine, event: str, values: dict[str, Any]) -> str | None:
    """The field that is refused; None if the event was sent."""
    try:
        found = engine.trigger(event, values)
    except ApiError as error:
        return error.param
    assert event in [item["type"] for item in found["events"]]
    return None


def test_the_steps_name_every_event_type() -> None:
    assert tuple(STEPS) == EVENT_TYPES


@pytest.mark.parametrize("flow", ["hosted", "s2s"])
@pytest.mark.parametrize("method", [method for method in METHODS.values() if "payment" in method.uses], ids=str)
def test_a_payment_by_any_method_is_triggered_or_refused_as_a_whole(method: Any, flow: str) -> None:
    for event in (event for event in EVENT_TYPES if event.startswith("payment.")):
        engine = Engine()
        refused = refusal(engine, event, {"method_code": method.code, "flow": flow})
        assert refused in (None, "method_code", "flow")
        assert len(engine.payments) == (refused is None)
        check_stream(engine.events)
        assert engine.audit() == []


AMOUNTS = st.one_of(st.integers(1, 1_000), st.sampled_from([1, 2, 10_000, 999_999, MAX_AMOUNT - 1, MAX_AMOUNT]))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(EVENT_TYPES), AMOUNTS, st.sampled_from(["CL", "CO", "EC", "PE", "MX", "BR"])),
        min_size=1, max_size=8,
    ),
    st.booleans(),
)  # fmt: skip
def test_the_audit_finds_no_error_after_any_sequence(wanted: list[tuple[str, int, str]], funded: bool) -> None:
    clock = Clock()
    clock.freeze(datetime(2026, 1, 15, tzinfo=UTC))
    engine = Engine(clock=clock, funds=DEFAULT_FUNDS if funded else None)
    for event, amount, country in wanted:
        values = {"amount": amount} if event.startswith("refund.") else {"amount": amount, "country": country}
        refused = refusal(engine, event, values)
        if amount < 999_999 and (event, amount) != ("payment.partially_paid", 1):
            assert refused is None
        else:  # no transfer is larger than the largest, and no payment brings that much money
            assert refused in (None, "amount")
        assert engine.audit() == []
    check_stream(engine.events)


def test_the_values_are_fields_of_the_request(engine: Engine) -> None:
    values = {
        "amount": 11_980, "payer": {"email": "ana@example.cl"}, "metadata": {"a": "b"}, "merchant_reference": "7",
    }  # fmt: skip
    payment = engine.trigger("payment.succeeded", values)["object"]
    assert {name: payment[name] for name in values} == values
    assert (payment["currency"], payment["method_code"], payment["amount_received"]) == (
        "CLP",
        "cl_webpay_card",
        11_980,
    )
    payout = engine.trigger("payout.failed", {"destination": {"holder_name": "Eva"}, "amount": 5})["object"]
    assert (payout["destination"]["holder_name"], payout["amount"]) == ("Eva", 5)
    assert payout["destination"]["holder_document"]["type"] == "RUT"
    refund = engine.trigger("refund.succeeded", {"amount": 40, "reason": "late"})["object"]
    assert (refund["amount"], refund["reason"], refund["payout_id"]) == (40, "late", None)
    assert engine.payments[refund["payment_id"]]["refunded_amount"] == 40


@pytest.mark.parametrize(
    ("event", "values", "method"),
    [
        ("payment.succeeded", {"country": "BR"}, "br_card"),
        ("payment.overpaid", {"currency": "MXN"}, "mx_spei"),
        ("payment.chargeback", {"currency": "USD"}, "ec_card"),
        ("payment.succeeded", {"country": "PE", "currency": "USD"}, "pe_bank_transfer_usd"),
        ("payment.succeeded", {"method_code": "br_pix"}, "br_pix"),
        ("payout.succeeded", {"country": "CO"}, "co_bank_transfer"),
        ("payment.succeeded", {"flow": "deposit_reference", "currency": "MXN"}, "mx_deposit"),
    ],
)
def test_country_currency_and_method_fit_what_is_given(
    engine: Engine, event: str, values: dict[str, Any], method: str
) -> None:
    found = engine.trigger(event, values)["object"]
    assert found["method_code"] == method
    assert (found["country"], found["currency"]) == (METHODS[method].country, METHODS[method].currency)


def test_a_refund_of_a_payment_that_exists(engine: Engine, client: Client) -> None:
    payment = client.bank()
    engine.pay(payment["id"])
    refund = engine.trigger("refund.succeeded", {"payment_id": payment["id"], "amount": 100})["object"]
    assert engine.payments[payment["id"]]["refunded_amount"] == 100
    assert engine.payouts[refund["payout_id"]]["destination"]["type"] == "bank_account"
    for payment_id, code in ((client.card()["id"], "invalid_state"), ("pay_none", "resource_not_found")):
        with pytest.raises(ApiError) as caught:
            engine.trigger("refund.created", {"payment_id": payment_id})
        assert (caught.value.code, caught.value.param) == (code, "payment_id")


def test_a_refund_with_a_destination_is_of_a_transfer(engine: Engine) -> None:
    refund = engine.trigger("refund.returned", {"destination": {"holder_document": DOCUMENT}})["object"]
    assert refund["status"] == "returned"
    assert engine.payments[refund["payment_id"]]["method_family"] == "bank_transfer"
    check_stream(engine.events)


@pytest.mark.parametrize("event", ["payment.created", "payment.succeeded", "payment.overpaid", "balance.updated"])
def test_a_transfer_to_a_deposit_reference(engine: Engine, event: str) -> None:
    values = {"flow": "deposit_reference", "amount": 700, "merchant_reference": "ana", "payer": {"name": "Ana"}}
    engine.trigger(event, values)
    (reference,) = engine.deposit_references.values()
    (payment,) = engine.payments.values()
    assert (reference["merchant_reference"], payment["merchant_reference"]) == ("ana", "ana")
    assert (payment["flow"], payment["amount"], payment["payer"]) == ("deposit_reference", 700, {"name": "Ana"})
    check_stream(engine.events)


@pytest.mark.parametrize(
    ("event", "values", "code", "param"),
    [
        ("payment.succeeded", {"color": "red"}, "parameter_invalid", "color"),
        ("payment.succeeded", {"payer": {"email": "no"}}, "parameter_invalid", "payer.email"),
        ("payment.succeeded", {"amount": "5"}, "parameter_invalid", "amount"),
        ("payment.succeeded", {"amount": None}, "parameter_missing", "amount"),
        ("payment.succeeded", {"country": "AR"}, "parameter_invalid", "country"),
        ("payment.succeeded", {"country": "CL", "currency": "BRL"}, "method_not_available", "method_code"),
        ("payment.succeeded", {"method_code": ["x"]}, "parameter_invalid", "method_code"),
        ("payment.overpaid", {"method_code": "cl_khipu"}, "parameter_invalid", "method_code"),
        ("payment.chargeback", {"method_code": "cl_khipu"}, "parameter_invalid", "method_code"),
        ("payment.partially_paid", {"amount": 1}, "amount_out_of_range", "amount"),
        ("payment.overpaid", {"amount": MAX_AMOUNT}, "amount_out_of_range", "amount"),
        ("payment.expired", {"method_code": "cl_card_direct", "flow": "s2s"}, "parameter_invalid", "flow"),
        ("payment.failed", {"flow": "deposit_reference"}, "parameter_invalid", "flow"),
        ("payment.created", {"flow": "deposit_reference", "amount": True}, "parameter_invalid", "amount"),
        ("payment.created", {"flow": "deposit_reference", "metadata": {}}, "parameter_invalid", "metadata"),
        ("payout.created", {"destination": None}, "parameter_missing", "destination"),
        ("payout.created", {"destination": 5}, "parameter_invalid", "destination"),
        ("payout.created", {"destination": {"type": "iban"}}, "parameter_invalid", "destination.type"),
        ("refund.created", {"reason": 5}, "parameter_invalid", "reason"),
        ("refund.created", {"amount": 0}, "amount_out_of_range", "amount"),
        ("refund.created", {"destination": {"holder_name": ""}}, "parameter_invalid", "destination.holder_name"),
        ("refund.created", {"payment_id": None}, "parameter_missing", "payment_id"),
    ],
)
def test_a_wrong_value_is_refused_by_name_before_anything_is_made(
    engine: Engine, event: str, values: dict[str, Any], code: str, param: str
) -> None:
    with pytest.raises(ApiError) as caught:
        engine.trigger(event, values)
    assert (caught.value.code, caught.value.param) == (code, param)
    assert engine.events == []


def test_an_unknown_event_is_refused_with_the_closest_and_all_types(engine: Engine) -> None:
    with pytest.raises(
        ApiError, match=r"no event type 'payment\.suceeded'\. Did you mean payment\.succeeded\?"
    ) as found:
        engine.trigger("payment.suceeded")
    assert all(event in found.value.message for event in EVENT_TYPES)
    with pytest.raises(ApiError, match=r"no event type 'x'\. One of"):
        engine.trigger("x")


def test_an_object_that_exists_makes_one_legal_change(engine: Engine, client: Client) -> None:
    payment = client.bank()
    assert engine.trigger("payment.partially_paid", object_id=payment["id"])["object"]["amount_received"] == 5_000
    assert engine.trigger("payment.succeeded", object_id=payment["id"])["object"]["amount_received"] == 10_000
    found = engine.trigger("payment.overpaid", object_id=payment["id"])
    assert [event["type"] for event in found["events"]] == ["payment.overpaid", "balance.updated"]
    payout = engine.trigger("payout.created")["object"]
    assert engine.trigger("payout.on_hold", object_id=payout["id"])["object"]["status"] == "on_hold"
    assert engine.trigger("payout.delayed", object_id=payout["id"])["object"]["status"] == "on_hold"
    refund = engine.trigger("refund.created")["object"]
    assert engine.trigger("refund.failed", object_id=refund["id"])["object"]["status"] == "failed"


def test_an_object_that_exists_refuses_an_illegal_change(engine: Engine, client: Client) -> None:
    card = client.card()
    for event in ("payment.chargeback", "payment.partially_paid", "payment.overpaid"):
        with pytest.raises(SandboxError):
            engine.trigger(event, object_id=card["id"])
    engine.process(card["id"])
    with pytest.raises(SandboxError, match=r"a payment that is processing does not come to payment\.requires_action"):
        engine.trigger("payment.requires_action", object_id=card["id"])
    with pytest.raises(ApiError, match="invalid_state"):
        engine.trigger("payment.canceled", object_id=card["id"])
    for event, values, param in (
        ("payment.created", None, "object"),
        ("balance.updated", None, "object"),
        ("payment.succeeded", {"amount": 5}, "set"),
        ("payout.failed", None, "object"),
        ("refund.failed", None, "object"),
    ):
        with pytest.raises(ApiError) as caught:
            engine.trigger(event, values, card["id"])
        assert caught.value.param == param
    with pytest.raises(SandboxError, match="no 'pay_none'"):
        engine.trigger("payment.failed", object_id="pay_none")
    assert engine.payments[card["id"]]["status"] == "processing"


def test_assignments_are_read_by_type() -> None:
    lines = [
        "amount=11980", "payer.email=ana@example.cl", 'payer.document.number="11"', "payer.name=a=b", "a=true",
        "b=null", "c=", "d= x ", 'e={"k": [1]}', "f=1.5", "g=NaN", "h=" + "9" * 5_000, "i=" + "[" * 100_000,
    ]  # fmt: skip
    assert parse_assignments(lines) == {
        "amount": 11_980,
        "payer": {"email": "ana@example.cl", "document": {"number": "11"}, "name": "a=b"},
        "a": True, "b": None, "c": "", "d": "x", "e": {"k": [1]}, "f": 1.5, "g": "NaN", "h": "9" * 5_000,
        "i": "[" * 100_000,
    }  # fmt: skip
    assert parse_assignments([]) == {}


@pytest.mark.parametrize(
    ("lines", "param"),
    [
        (["amount"], "set"), (["=5"], "set"), (["a..b=5"], "set"), ([".=5"], "set"),
        (["payer=5", "payer.email=x"], "payer.email"), (["amount=5", "amount=6"], "amount"),
        (["payer.email=x", "payer=5"], "payer"),
    ],
)  # fmt: skip
def test_an_assignment_that_cannot_be_read_is_refused(lines: list[str], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_assignments(lines)
    assert caught.value.param == param


def test_an_event_is_triggered_over_http(engine: Engine, client: Client) -> None:
    reply = client.control("trigger", {"event": "payment.succeeded", "set": {"amount": 70}})
    assert (reply.status, reply.json["object"]["amount"]) == (200, 70)
    assert reply.json["events"] == engine.events
    reply = client.control("trigger", {"event": "payment.chargeback", "object": reply.json["object"]["id"]})
    assert (reply.status, reply.json["object"]["status"]) == (200, "chargeback")
    engine.add_project("sk_test_two")
    other = Client(engine, "sk_test_two").control(
        "trigger", {"event": "payout.created", "set": {"destination": ACCOUNT}}
    )
    assert list(engine.projects["sk_test_two"].payouts) == [other.json["object"]["id"]]


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({}, 400, "parameter_missing", "event"),
        ({"event": 5}, 400, "parameter_invalid", "event"),
        ({"event": "payment.paid"}, 400, "parameter_invalid", "event"),
        ({"event": "payment.created", "set": [1]}, 400, "parameter_invalid", "set"),
        ({"event": "payment.created", "sett": {}}, 400, "parameter_invalid", "sett"),
        ({"event": "payment.created", "set": {"amount": -1}}, 422, "amount_out_of_range", "amount"),
        ({"event": "payment.failed", "object": "pay_none"}, 404, "resource_not_found", None),
    ],
)
def test_errors_over_http_name_the_field(
    client: Client, body: dict[str, Any], status: int, code: str, param: str | None
) -> None:
    reply = client.control("trigger", body)
    assert (reply.status, reply.error["code"], reply.error.get("param")) == (status, code, param)


def test_a_trigger_uses_up_no_fault_idempotency_key_or_rate(client: Client, engine: Engine) -> None:
    client.control("faults", {"kind": "error", "code": "internal_error"})
    assert client.control("trigger", {"event": "payment.created"}).status == 200
    assert engine.requests == []
    assert client.post("/payments", CARD).status == 500
    assert client.post("/payments", TRANSFER).status == 201
