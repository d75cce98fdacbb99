"""The home page: what it shows, and its forms."""

from __future__ import annotations

import html
import json
import re
from typing import Any
from urllib.parse import urlencode

import pytest
from django.utils import translation

from payments_integration.sandbox import Engine, Fault, gateway, home
from payments_integration.sandbox.faults import DELIVERY_KINDS, REQUEST_KINDS
from payments_integration.sandbox.magic import TABLE
from payments_integration.sandbox.protocol import EVENT_TYPES

from .support import CARD, Client, Receiver, Reply, types_of

FORM = "application/x-www-form-urlencoded"


def press(client: Client, action: str, headers: dict[str, str] | None = None, /, **fields: str) -> Reply:
    raw = urlencode({"action": action, **fields}).encode()
    return client.call("POST", "/", raw, None, content_type=FORM, **(headers or {}))


def follow(client: Client, reply: Reply) -> str:
    """The text of the page that a form leads to."""
    assert reply.status == 303, reply.raw
    path, _, query = reply.headers["Location"].partition("#")[0].partition("?")
    return client.call("GET", path, b"", dict([query.split("=")] if query else [])).raw.decode()


def problem(reply: Reply) -> str:
    assert reply.status == 422
    (text,) = re.findall(r'role="alert">(.*?)</p>', reply.raw.decode())
    return html.unescape(text)


def test_the_page_shows_what_a_project_starts_with() -> None:
    text = Client(Engine(funds={"CLP": 5_000})).call("GET", "/").raw.decode()
    assert "CLP\xa05,000" in text
    assert "BRL" not in text


def test_the_page_shows_objects_events_deliveries_and_requests(engine: Engine, client: Client) -> None:
    engine.fund("CLP", 1_000_000)
    endpoint = engine.add_endpoint("https://shop.example/hook", secret="whsec_never_shown")
    payment = client.card(merchant_reference="<b>7</b>")
    engine.pay(payment["id"])
    payout, refund = client.payout(), client.make("/refunds", {"payment_id": payment["id"]})
    reference = engine.trigger("payment.succeeded", {"flow": "deposit_reference"})
    client.post("/payments", {}, key="<i>key</i>")
    engine.deliver_due()
    engine.faults.add(Fault("html")).operation = "<u>"
    text = client.call("GET", "/").raw.decode()
    ids = (
        payment["id"], payout["id"], refund["id"], endpoint["id"], engine.events[-1]["id"], reference["object"]["id"],
        *engine.deposit_references, engine.requests[0]["request_id"],
    )  # fmt: skip
    texts = (
        "https://shop.example/hook", "sk_test_sandbox", "CLP\xa0999,330", "Active faults", "400 parameter_missing",
        "&lt;b&gt;7&lt;/b&gt;", "&lt;i&gt;key&lt;/i&gt;", "&lt;u&gt;", f'href="/checkout/{payment["id"]}"',
    )  # fmt: skip
    heads = (
        "Payment",
        "Payout",
        "Refund",
        "Deposit reference",
        "Endpoint",
        "Event",
        "Attempt",
        "Available",
        "Type and body",
        "Request and bodies",
    )
    # Times are short; all of them is in the title.
    times = (
        '<td title="2026-01-15T12:00:00.',
        '">2026-01-15 12:00:00</td>',
        '<span title="2026-01-15T12:00:00.',
        '">2026-01-15 12:00:00 UTC</span>',
    )
    shown = (*ids, *texts, *times, *(f'<th scope="col">{name}</th>' for name in heads))
    assert [wanted for wanted in shown if wanted not in text] == []
    assert [secret for secret in ("whsec_never_shown", "<b>7", "<i>key", "<u>") if secret in text] == []
    assert client.call("PUT", "/").status == 405


def test_every_field_of_the_page_has_a_label_and_no_id_stands_twice(engine: Engine, client: Client) -> None:
    engine.add_project("sk_test_two")
    engine.trigger("payment.succeeded")
    text = client.call("GET", "/").raw.decode()
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    fields = re.findall(r"<(?:select|textarea|input)(?![^>]*hidden)[^>]*>", text)
    labels = set(re.findall(r'<label for="([^"]+)"', text))
    assert {re.findall(r' id="([^"]+)"', field)[0] for field in fields} == labels
    assert set(re.findall(r'aria-labelledby="([^"]+)"', text)) <= set(ids)
    assert [event for event in EVENT_TYPES if f">{event}</option>" not in text] == []


def test_the_page_needs_no_translations(client: Client, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """They need installed apps, which a sandbox without a Django project does not have."""

    class Refused:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"the page calls {name}")

    engine.add_endpoint("https://shop.example/hook")
    for event in EVENT_TYPES:
        engine.trigger(event)
    engine.deliver_due()
    client.post("/payments", CARD)
    monkeypatch.setattr(translation, "_trans", Refused())
    assert client.call("GET", "/", b"", {"event": engine.events[-1]["id"]}).status == 200


def test_a_form_triggers_an_event(engine: Engine, client: Client, receiver: Receiver) -> None:
    engine.add_endpoint("https://shop.example/hook")
    reply = press(
        client,
        "trigger",
        event="payment.overpaid",
        set="amount=11980\r\n\r\npayer.email=ana@example.cl\r\n",
        object="",
    )
    (payment,) = engine.payments.values()
    assert (payment["status"], payment["amount"], payment["payer"]["email"]) == ("overpaid", 11_980, "ana@example.cl")
    text = follow(client, reply)
    assert f"payment.overpaid of <code>{payment['id']}</code> goes to 1 webhook endpoint:" in text
    engine.deliver_due()
    assert receiver.types == types_of(engine)
    press(client, "trigger", event="payment.overpaid", object=f" {payment['id']} ")
    assert types_of(engine)[-2:] == ["payment.overpaid", "balance.updated"]
    assert len(engine.payments) == 1


def test_a_form_triggers_in_the_chosen_project(engine: Engine, client: Client) -> None:
    assert 'name="project"' not in client.call("GET", "/").raw.decode()
    two = engine.add_project("sk_test_two")
    assert '<option value="1">sk_test_two</option>' in client.call("GET", "/").raw.decode()
    text = follow(client, press(client, "trigger", event="payment.created", project="1"))
    assert (len(engine.payments), len(two.payments)) == (0, 1)
    assert "is stored, and no webhook endpoint takes it" in text
    for wrong in ("2", "-1", "x", "٣", "9" * 5_000):
        assert (
            problem(press(client, "trigger", event="payment.created", project=wrong)) == "choose one of the projects"
        )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"event": "payment.overpaid", "set": "color=<b>"}, "color: This parameter is not known."),
        ({"event": "payment.overpaid", "set": "amount"}, "set: Write key=value, such as amount=11980, not 'amount'."),
        ({"event": "payment.overpaid", "object": "pay_none"}, "there is no 'pay_none' in this project of the sandbox"),
        ({"event": "<script>"}, "event: There is no event type '<script>'."),
        ({}, "event: There is no event type ''."),
    ],
)
def test_a_refused_trigger_says_why_and_keeps_what_was_typed(
    engine: Engine, client: Client, fields: dict[str, str], text: str
) -> None:
    reply = press(client, "trigger", **fields)
    assert problem(reply).startswith(text)
    page = reply.raw.decode()
    assert html.escape(fields.get("set", "")) in page
    assert html.escape(fields.get("object", "")) in page
    assert "<script>" not in page
    assert "<b>" not in page
    if fields.get("event") == "payment.overpaid":
        assert "<option selected>payment.overpaid</option>" in page
    assert engine.events == []


def test_a_form_makes_the_next_requests_fail(engine: Engine, client: Client) -> None:
    text = follow(client, press(client, "request", fault="internal", times="2", seconds="10"))
    assert "error internal_error, 0 of 2 used" in text
    assert [client.get("/balances").status for _ in range(3)] == [500, 500, 200]
    press(client, "request", fault="slow", times="1", seconds="7")
    assert (engine.default_project.faults.all()[-1].kind, engine.default_project.faults.all()[-1].delay) == ("slow", 7)
    assert "Active faults" not in follow(client, press(client, "clear"))
    assert engine.default_project.faults.all() == []


def test_a_form_delays_the_next_delivery(engine: Engine, client: Client, receiver: Receiver) -> None:
    engine.add_endpoint("https://shop.example/hook", ["payment.succeeded"])
    press(client, "delivery", fault="delay", times="1", seconds="90")
    engine.trigger("payment.succeeded")
    engine.deliver_due()
    engine.clock.advance(89)
    assert (engine.deliver_due(), receiver.types) == (0, [])
    engine.clock.advance(1)
    engine.deliver_due()
    assert receiver.types == ["payment.succeeded"]


def test_every_choice_of_fault_is_one_of_its_kind(engine: Engine, client: Client) -> None:
    for action, choices, kinds in (
        ("request", home.REQUEST_FAULTS, REQUEST_KINDS),
        ("delivery", home.DELIVERY_FAULTS, DELIVERY_KINDS),
    ):
        for name in choices:
            assert press(client, action, fault=name, times="1", seconds="5").status == 303
            assert engine.default_project.faults.all()[-1].kind in kinds
    assert {fault["kind"] for _, fault in home.DELIVERY_FAULTS.values()} == set(DELIVERY_KINDS)


@pytest.mark.parametrize(
    ("action", "fields", "text"),
    [
        ("request", {"fault": "delay"}, "choose one of the faults"),
        ("request", {}, "choose one of the faults"),
        ("request", {"fault": "html", "times": "0"}, "times: write a number from 1 to 1000"),
        ("request", {"fault": "slow", "seconds": "3601"}, "seconds: write a number from 1 to 3600"),
        ("delivery", {"fault": "delay", "seconds": "1.5"}, "seconds: write a number from 1 to 3600"),
        ("delivery", {"fault": "drop", "times": "9" * 5_000}, "times: write a number from 1 to 1000"),
        ("resend", {"event": "evt_none"}, "there is no 'evt_none' in the sandbox"),
        ("resend", {}, "there is no '' in the sandbox"),
        ("advance", {"advance": "0"}, "advance: write a number from 1 to 31536000"),
        ("real", {"project": "1"}, "choose one of the projects"),
        ("dance", {}, "choose one of the buttons"),
        ("", {}, "choose one of the buttons"),
    ],
)
def test_a_wrong_form_is_refused(
    client: Client, engine: Engine, action: str, fields: dict[str, str], text: str
) -> None:
    assert problem(press(client, action, **{"times": "1", "seconds": "1", **fields})) == text
    assert engine.default_project.faults.all() == []


def test_buttons_send_an_event_again_to_all_or_to_one_endpoint(
    engine: Engine, client: Client, receiver: Receiver
) -> None:
    one, two = (engine.add_endpoint(f"https://{name}.example/hook") for name in ("one", "two"))
    client.card()
    engine.deliver_due()
    receiver.got.clear()
    event_id = engine.events[0]["id"]
    assert "payment.created of" in follow(client, press(client, "resend", event=event_id))
    engine.deliver_due()
    press(client, "resend", event=event_id, endpoint=two["id"])
    engine.deliver_due()
    assert [url for url, _, _ in receiver.got] == [one["url"], two["url"], two["url"]]
    engine.endpoint(one["id"]).status = "disabled"
    assert problem(press(client, "resend", event=event_id, endpoint=one["id"])) == "the endpoint is disabled"
    assert problem(press(client, "resend", event=event_id, endpoint="whk_none")).startswith("there is no 'whk_none'")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example", "host": "127.0.0.1:8400"},
        {"origin": "http://127.0.0.1:3000", "host": "127.0.0.1:8400"},
        {"origin": "null", "host": "127.0.0.1:8400"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_forms_of_other_sites_are_refused(engine: Engine, client: Client, headers: dict[str, str]) -> None:
    assert press(client, "trigger", headers, event="payment.created").status == 403
    assert engine.events == []


def test_a_form_of_the_page_itself_is_accepted(engine: Engine, client: Client) -> None:
    headers = {"origin": "http://127.0.0.1:8400", "host": "127.0.0.1:8400", "sec_fetch_site": "same-origin"}
    assert press(client, "trigger", headers, event="payment.created").status == 303


def test_no_other_page_can_frame_this_one_and_it_runs_one_script(client: Client) -> None:
    page = client.call("GET", "/")
    policy = dict(part.split(" ", 1) for part in page.headers["Content-Security-Policy"].split("; "))
    assert (policy["default-src"], policy["frame-ancestors"]) == ("'none'", "'none'")
    assert (policy["script-src"], policy["connect-src"]) == ("'self'", "'self'")
    assert re.findall(r"<script[^>]*>(.*?)</script>", page.raw.decode()) == [""]
    (address,) = re.findall(r'<script src="([^"]+)"', page.raw.decode())
    script = client.call("GET", address)
    assert (script.status, script.headers["Content-Type"]) == (200, "text/javascript; charset=utf-8")
    assert script.headers["X-Content-Type-Options"] == "nosniff"
    assert script.raw == home.LIVE_SCRIPT.read_bytes()
    assert client.call("POST", address).status == 405


def test_the_page_shows_the_bodies_of_events_requests_and_answers(engine: Engine, client: Client) -> None:
    client.post("/payments", {**CARD, "amount": 77, "colour": "<b>red</b>"})
    client.make("/webhook-endpoints", {"url": "https://shop.example/hook"})
    payment = client.card(merchant_reference="pedido ñ")
    client.call("POST", "/v1/payments", b"\xffno json", idempotency_key="k")
    secret = next(iter(engine.default_project.state.endpoints.by_id.values())).secret
    engine.faults.add(Fault("reset"))
    with pytest.raises(ConnectionResetError):
        client.get("/balances")
    text = client.call("GET", "/").raw.decode()
    shown = [html.unescape(found) for found in re.findall(r"<pre>(.*?)</pre>", text, re.DOTALL)]
    event, requests = json.loads(shown[0]), shown[1:]
    assert (event["type"], event["data"]) == ("payment.created", payment)
    assert requests[:2] == ["(empty)", "(none)"]
    assert requests[2].endswith("no json")
    assert json.loads(requests[5]) == payment
    assert json.loads(requests[7])["secret"] == "(hidden)"
    assert json.loads(requests[8])["colour"] == "<b>red</b>"
    assert json.loads(requests[9])["error"]["param"] == "colour"
    assert secret not in text
    assert "<b>red" not in text


def test_only_the_newest_bodies_are_kept_and_not_more_than_a_part_of_them(
    engine: Engine, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "BODIES", 3)
    monkeypatch.setattr(gateway, "BODY_BYTES", 10)
    for _ in range(5):
        client.card()
    assert list(engine.gateway.bodies) == [entry["request_id"] for entry in engine.requests[-3:]]
    assert {len(text) for pair in engine.gateway.bodies.values() for text in pair} == {10}


def test_the_page_shows_each_clock_and_moves_it(engine: Engine, client: Client) -> None:
    def clocks(text: str) -> list[str]:
        return re.findall(r"Its clock: <span[^>]*>([^<]*)</span>, ([^<]*)</p>", text)

    assert clocks(client.call("GET", "/").raw.decode()) == [("2026-01-15 12:00:00 UTC", "frozen")]
    text = follow(client, press(client, "advance", advance="3600"))
    assert clocks(text) == [("2026-01-15 13:00:00 UTC", "frozen")]
    two = engine.add_project("sk_test_two")
    text = follow(client, press(client, "advance", advance="7200", project="1"))
    assert 7_190 < two.clock.ahead < 7_210
    assert re.fullmatch(r"7,(19|20)\d seconds ahead of real time", clocks(text)[1][1])
    assert clocks(text)[0] == ("2026-01-15 13:00:00 UTC", "frozen")
    assert clocks(follow(client, press(client, "real", project="1")))[1][1] == "in real time"
    two.clock.set_offset(-60)
    assert clocks(client.call("GET", "/").raw.decode())[1][1] == "60 seconds behind real time"


def test_a_form_makes_the_requests_of_the_chosen_project_fail(engine: Engine, client: Client) -> None:
    two = engine.add_project("sk_test_two")
    text = follow(client, press(client, "request", fault="internal", times="1", seconds="1", project="1"))
    assert "error internal_error, 0 of 1 used, in sk_test_two" in text
    assert client.get("/balances").status == 200
    assert Client(engine, "sk_test_two").get("/balances").status == 500
    engine.faults.add(Fault("html"))
    two.faults.add(Fault("html"))
    press(client, "clear")
    assert engine.all_faults() == []


def test_the_page_shows_every_magic_value(client: Client) -> None:
    text = client.call("GET", "/").raw.decode()
    rows = re.findall(r"<tr>(<td><code>\S+@.*?)</tr>", text)
    assert [re.findall(r"<td>(?:<code>)?(.*?)(?:</code>)?</td>", row) for row in rows] == [
        [row.email, row.reference, str(row.amount), row.effect, ", ".join(row.families) or "all"] for row in TABLE
    ]


def test_an_unknown_event_in_the_address_shows_nothing(client: Client) -> None:
    page = client.call("GET", "/", b"", {"event": "<b>evt</b>"}).raw.decode()
    assert "evt</b>" not in page
    assert 'role="status"' not in page
