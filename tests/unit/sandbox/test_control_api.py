from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from payments_integration.sandbox import Clock, Engine, deliveries, gateway
from payments_integration.sandbox.control_fields import OBJECT_FIELDS, PROJECT_FIELDS

from .support import ACCOUNT, CARD, DEPOSIT, Client, Receiver, types_of


@pytest.mark.parametrize(
    ("action", "body", "status"),
    [
        ("open", None, "requires_action"),
        ("pay", None, "succeeded"),
        ("pay", {"amount": 4_000}, "partially_paid"),
        ("process", None, "processing"),
        ("fail", {"reason": "no_funds"}, "failed"),
        ("expire", None, "expired"),
        ("hold", None, "on_hold"),
    ],
)
def test_a_payment_can_be_changed_over_http(
    engine: Engine, client: Client, action: str, body: Any, status: str
) -> None:
    payment = client.bank()
    reply = client.control(f"payments/{payment['id']}/{action}", body)
    assert (reply.status, reply.json["status"]) == (200, status)
    assert engine.payments[payment["id"]] == reply.json
    assert reply.json["failure_reason"] == ("no_funds" if action == "fail" else None)


def test_a_payment_can_be_charged_back_over_http(client: Client) -> None:
    payment = client.card()
    client.control(f"payments/{payment['id']}/pay")
    assert client.control(f"payments/{payment['id']}/chargeback").json["status"] == "chargeback"


@pytest.mark.parametrize(
    ("actions", "status"),
    [
        (["process"], "processing"),
        (["succeed"], "succeeded"),
        (["fail"], "failed"),
        (["succeed", "return"], "returned"),
        (["hold"], "on_hold"),
        (["delay"], "created"),
    ],
)
def test_a_payout_can_be_changed_over_http(client: Client, actions: list[str], status: str) -> None:
    assert client.control("fund", {"currency": "CLP", "amount": 100_000}).json["available"] == 100_000
    payout = client.payout()
    for action in actions:
        reply = client.control(f"payouts/{payout['id']}/{action}")
    assert (reply.status, reply.json["status"]) == (200, status)


@pytest.mark.parametrize(
    ("actions", "status"),
    [
        (["process"], "processing"),
        (["succeed"], "succeeded"),
        (["fail"], "failed"),
        (["succeed", "return"], "returned"),
        (["cancel"], "canceled"),
    ],
)
def test_a_refund_can_be_changed_over_http(engine: Engine, client: Client, actions: list[str], status: str) -> None:
    engine.fund("CLP", 100_000)
    payment = client.card()
    engine.pay(payment["id"])
    refund = client.make("/refunds", {"payment_id": payment["id"]})
    for action in actions:
        reply = client.control(f"refunds/{refund['id']}/{action}")
    assert (reply.status, reply.json["status"]) == (200, status)


def test_a_deposit_reference_takes_transfers_and_can_be_disabled_over_http(engine: Engine, client: Client) -> None:
    reference = client.make("/deposit-references", DEPOSIT)
    payment = client.control(f"deposit-references/{reference['id']}/transfer", {"amount": 900}).json
    assert engine.payments[payment["id"]]["amount_received"] == 900
    assert client.control(f"deposit-references/{reference['id']}/disable").json["status"] == "disabled"
    assert client.control(f"deposit-references/{reference['id']}/transfer", {"amount": 900}).status == 422


def test_the_clock_can_be_moved_over_http(client: Client, clock: Clock) -> None:
    payment = client.card()
    assert client.control("clock", {"advance": 7_200}).json["now"].startswith("2026-01-15T14:00:00")
    assert client.get(f"/payments/{payment['id']}").json["status"] == "expired"
    assert client.control("clock", {"freeze": "2026-02-01T00:00:00Z"}).json == {
        "now": "2026-02-01T00:00:00.000000Z", "frozen": True,
    }  # fmt: skip
    assert client.control("clock", {"unfreeze": True}).json["frozen"] is False
    assert client.control("clock", {"offset": 10}).json["frozen"] is False
    assert client.control("clock", method="GET").status == 200
    for body in ({"advance": "soon"}, {"freeze": "tomorrow"}, {"warp": 9}):
        assert client.control("clock", body).status == 400


def test_faults_can_be_added_and_cleared_over_http(engine: Engine, client: Client) -> None:
    added = client.control("faults", {"kind": "error", "code": "blocked_payer", "times": 2})
    assert (added.status, added.json["used"]) == (200, 0)
    assert client.post("/payments", CARD).error["code"] == "blocked_payer"
    assert client.control("faults", method="GET").json["faults"][0]["used"] == 1
    assert client.control("faults", method="DELETE").json == {"faults": []}
    assert client.post("/payments", CARD).status == 201
    assert client.control("faults", {"kind": "nonsense"}).status == 400
    assert engine.faults.all() == []


def test_deliveries_can_be_sent_and_repeated_over_http(engine: Engine, client: Client, receiver: Receiver) -> None:
    endpoint = client.control(
        "endpoints", {"url": "http://host.docker.internal/hook", "events": ["payment.created"], "secret": "s"}
    ).json
    assert endpoint["secret"] == "s"
    client.card()
    assert client.control("deliver").json == {"attempts": 1}
    event = engine.events[0]
    assert client.control(f"events/{event['id']}/redeliver").json == {"queued": 1}
    assert client.control(f"events/{event['id']}/redeliver", {"endpoint_id": endpoint["id"]}).json == {"queued": 1}
    client.control("deliver")
    assert receiver.types == ["payment.created"] * 3
    engine.endpoint(endpoint["id"]).status = "disabled"
    assert client.control(f"endpoints/{endpoint['id']}/enable").json["status"] == "active"


def test_terms_and_api_keys_can_be_changed_over_http(engine: Engine, client: Client) -> None:
    terms = client.control("terms", {"active": False, "countries": ["PE"]}).json
    assert (terms["active"], terms["countries"], terms["require_whitelist"]) == (False, ["PE"], False)
    assert client.get("/balances").error["code"] == "merchant_not_active"
    client.control("terms", {"active": True, "require_whitelist": True, "countries": ["CL"]})
    client.control("whitelist", {"account_number": ACCOUNT["account_number"]})
    assert ACCOUNT["account_number"] in engine.terms.whitelist
    for body in ({"active": "no"}, {"countries": "CL"}, {"whitelist": []}):
        reply = client.control("terms", body)
        assert (reply.status, reply.error["param"]) == (400, next(iter(body)))
    client.control("keys", {"api_key": "sk_test_second"})
    client.control("revoke", {"api_key": "sk_test_sandbox"})
    assert client.get("/balances").error["code"] == "api_key_revoked"
    assert Client(engine, "sk_test_second").get("/balances").status == 200


def test_the_reserve_can_be_set_and_projects_added_over_http(engine: Engine, client: Client) -> None:
    assert client.control("projects", {"api_key": "sk_test_two"}).status == 200
    assert client.control("projects", {"api_key": "sk_test_two"}).status == 400
    body = {"currency": "PEN", "amount": 500}
    assert client.control("fund", body, project="sk_test_two").json["available"] == 500
    assert client.control("reserve", {**body, "amount": 200}, project="sk_test_two").json["reserve"] == 200
    assert engine.balances["PEN"]["available"] == 0
    assert client.control("fund", body, project="sk_test_none").status == 404
    assert client.control("tick").status == 200


def test_books_returns_the_whole_content(engine: Engine, client: Client) -> None:
    engine.fund("CLP", 1_000)
    client.card()
    client.get("/payments")
    client.get("/nothing")
    books = client.control("books", method="GET").json
    project = books["projects"][0]
    assert project["payments"] == list(engine.payments.values())
    assert [event["type"] for event in project["events"]] == types_of(engine)
    assert project["balances"][0]["available"] == 1_000
    assert project["ledger"][0]["outside"] == 1_000
    assert (project["audit"], books["audit"]) == ([], [])
    assert books["request_counts"] == {"create_payment": 1, "list_payments": 1, "unknown": 1}
    assert [entry["status"] for entry in books["requests"]] == [201, 200, 404]
    assert set(project) >= {"payouts", "refunds", "deposit_references", "endpoints", "notifications"}
    assert client.control("books").status == 405


def test_unknown_objects_and_impossible_actions_are_errors(engine: Engine, client: Client) -> None:
    payment = client.card()
    assert client.control("payments/pay_none/pay").status == 404
    assert client.control(f"payouts/{payment['id']}/succeed").status == 404
    assert client.control(f"payments/{payment['id']}/dance").status == 404
    assert client.control("dance").status == 404
    assert client.control(f"payments/{payment['id']}/pay", method="GET").status == 405
    assert client.control(f"payments/{payment['id']}/chargeback").status == 422
    assert client.control(f"payments/{payment['id']}/pay", {"amount": "10"}).status == 400
    assert client.control("fund", {"currency": "EUR", "amount": 5}).status == 400
    assert client.control("fund", {}).status == 400
    assert client.control("fund", [1]).status == 400
    reply = client.call("POST", "/_sandbox/fund", b"{")
    assert (reply.status, set(reply.error)) == (400, {"type", "code", "message", "request_id"})
    assert engine.payments[payment["id"]]["status"] == "created"


def test_requests_from_pages_of_other_sites_are_refused(engine: Engine, client: Client) -> None:
    body = json.dumps({"currency": "CLP", "amount": 5}).encode()
    reply = client.call("POST", "/_sandbox/fund", body, origin="https://evil.example", host="127.0.0.1")
    assert reply.status == 403
    assert engine.balances["CLP"]["available"] == 0


@pytest.mark.parametrize("path", ["fund", "tick", "trigger", "faults", "payments/pay_1/pay"])
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_requests_that_a_browser_marks_as_foreign_are_refused(client: Client, path: str, site: str) -> None:
    assert client.call("POST", f"/_sandbox/{path}", b"{}", sec_fetch_site=site).status == 403


def test_requests_of_own_pages_and_of_programs_are_accepted(client: Client) -> None:
    for headers in ({}, {"sec_fetch_site": "same-origin"}, {"sec_fetch_site": "none"}):
        assert client.call("POST", "/_sandbox/tick", b"", None, **headers).status == 200
    # a link on another site
    assert client.call("GET", "/_sandbox/payments", b"", None, sec_fetch_site="cross-site").status == 200


def test_each_kind_of_object_is_listed_newest_first(engine: Engine, client: Client) -> None:
    for event in ("payment.succeeded", "payout.created", "refund.created"):
        engine.trigger(event)
    references = [client.make("/deposit-references", {**DEPOSIT, "merchant_reference": name}) for name in "ab"]
    endpoint = engine.add_endpoint("https://shop.example/hook", secret="whsec_never_shown")
    stored = {
        "payments": list(engine.payments), "payouts": list(engine.payouts), "refunds": list(engine.refunds),
        "deposit-references": [item["id"] for item in references], "endpoints": [endpoint["id"]],
        "events": [event["id"] for event in engine.events],
    }  # fmt: skip
    for name, ids in stored.items():
        page = client.listed(name, limit="100").json
        assert (page["object"], page["has_more"]) == ("list", False)
        assert [item["id"] for item in page["data"]] == ids[::-1], name
        first = client.listed(name, limit="1").json
        assert (len(first["data"]), first["has_more"]) == (1, len(ids) > 1)
        if len(ids) > 1:
            second = client.listed(name, limit="1", starting_after=first["data"][0]["id"]).json
            assert second["data"][0]["id"] == ids[-2]
    assert b"whsec_never_shown" not in client.listed("endpoints").raw


def test_lists_can_be_filtered(engine: Engine, client: Client) -> None:
    engine.trigger("payment.succeeded", {"merchant_reference": "7"})
    engine.trigger("payment.failed")
    for query, count in (
        ({"status": "failed"}, 1), ({"merchant_reference": "7"}, 1), ({"status": "expired"}, 0), ({}, 2),
    ):  # fmt: skip
        assert len(client.listed("payments", **query).json["data"]) == count
    assert len(client.listed("events", type="payment.failed").json["data"]) == 1
    client.make("/deposit-references", DEPOSIT)
    assert client.listed("deposit-references", merchant_reference="7").json["data"] == []


def test_the_requests_received_are_listed_without_secrets(engine: Engine, client: Client) -> None:
    client.post("/payments", CARD, key="order-7")
    client.post("/payments", {"amount": "x"})
    Client(engine, "sk_live_by_mistake").get("/balances")
    client.get("/balances")
    reply = client.listed("requests")
    newest, refused, wrong, created = reply.json["data"]
    assert (newest["method"], newest["path"], newest["status"], newest["error"]) == ("GET", "/v1/balances", 200, None)
    assert (refused["status"], refused["error"]) == (401, "api_key_invalid")
    assert (wrong["status"], wrong["error"]) == (400, "parameter_missing")
    assert (created["idempotency_key"], created["operation"]) == ("order-7", "create_payment")
    assert created["at"].startswith("2026-01-15T12:00:00")
    assert b"sk_" not in reply.raw
    assert "sk_live_by_mistake" not in json.dumps(engine.books())
    for query, ids in (
        ({"status": "401"}, [refused]), ({"path": "/v1/payments"}, [wrong, created]), ({"method": "PUT"}, []),
        ({"error": "parameter_missing"}, [wrong]), ({"operation": "create_payment", "status": "201"}, [created]),
        ({"limit": "2", "starting_after": newest["request_id"]}, [refused, wrong]),
    ):  # fmt: skip
        assert client.listed("requests", **query).json["data"] == ids


def test_the_attempts_to_deliver_are_listed(engine: Engine, client: Client, receiver: Receiver) -> None:
    endpoint = engine.add_endpoint("https://shop.example/hook")
    receiver.status = 500
    engine.trigger("payment.requires_action")
    engine.deliver_due()
    page = client.listed("deliveries", limit="1").json
    assert page["has_more"] is True
    assert (page["data"][0]["event_type"], page["data"][0]["status"]) == ("payment.requires_action", 500)
    older = client.listed("deliveries", starting_after=page["data"][0]["id"]).json["data"]
    assert [item["event_type"] for item in older] == ["payment.created"]
    for query, count in (
        ({"event_id": engine.events[0]["id"]}, 1), ({"status": "200"}, 0), ({"endpoint_id": endpoint["id"]}, 2),
    ):  # fmt: skip
        assert len(client.listed("deliveries", **query).json["data"]) == count


@pytest.mark.parametrize(
    "name", ["payments", "payouts", "refunds", "deposit-references", "endpoints", "events", "requests", "deliveries"]
)
def test_wrong_queries_of_lists_are_errors_that_name_the_parameter(client: Client, name: str) -> None:
    for query, status, code in (
        ({"limit": "101"}, 400, "parameter_invalid"),
        ({"limit": "x"}, 400, "parameter_invalid"),
        ({"starting_after": "none"}, 404, "resource_not_found"),
        ({"color": "red"}, 400, "parameter_invalid"),
    ):
        reply = client.listed(name, **query)
        assert (reply.status, reply.error["code"], reply.error["param"]) == (status, code, next(iter(query)))
    assert "This parameter is not known. Use limit, starting_after" in reply.error["message"]


def test_the_logs_keep_a_bounded_number_of_entries(
    engine: Engine, client: Client, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "LOG_SIZE", 3)
    engine.add_endpoint("https://shop.example/hook")
    for _ in range(5):
        client.card()
    engine.deliver_due()
    assert [item["event_id"] for item in engine.deliveries] == [event["id"] for event in engine.events[-3:]]
    assert engine.gateway.log.maxlen == gateway.LOG_SIZE == 100_000


def test_a_project_is_named_by_any_of_its_keys(engine: Engine, client: Client) -> None:
    two = engine.add_project("sk_test_two")
    two.add_key("sk_test_two_b")
    Client(engine, "sk_test_two_b").card()
    for caller, query in ((Client(engine, "sk_test_two_b"), {}), (client, {"project": "sk_test_two"})):
        assert len(caller.listed("payments", **query).json["data"]) == 1
    assert client.listed("payments").json["data"] == []
    assert Client(engine, None).listed("payments").json["data"] == []
    refused = Client(engine, "sk_test_unknown").listed("payments")
    assert (refused.status, refused.error["code"]) == (404, "resource_not_found")
    assert b"sk_test_unknown" not in refused.raw


def test_an_unknown_field_of_an_action_is_refused(engine: Engine, client: Client) -> None:
    payment = client.bank()
    for action, body in (("pay", {"ammount": 5}), ("expire", {"reason": "x"})):
        reply = client.control(f"payments/{payment['id']}/{action}", body)
        assert (reply.status, reply.error["code"], reply.error["param"]) == (
            400,
            "parameter_invalid",
            next(iter(body)),
        )
    assert engine.payments[payment["id"]]["status"] == "created"


def test_a_missing_field_is_named(client: Client) -> None:
    reply = client.control("fund", {"amount": 5})
    assert (reply.status, reply.error["code"], reply.error["param"]) == (400, "parameter_missing", "currency")


#: For each field of each body: a wrong value, and what the error says is allowed.
WRONG: dict[str, dict[str, tuple[Any, str]]] = {
    "fund": {"currency": ("EUR", "one of CLP, COP"), "amount": (1.5, "an integer from 1 to 1000000000000000")},
    "reserve": {"currency": (5, "one of CLP"), "amount": (True, "an integer from 0 to 1000000000000000, in minor")},
    "clock": {
        "advance": ("soon", "a number from -3.15576e+09 to 3.15576e+09 of seconds"),
        "offset": (float("nan"), "a number from"),
        "freeze": ("2026-01-01", "true or an ISO 8601 date-time with a time zone"),
        "unfreeze": (False, "true"),
    },
    "trigger": {
        "event": (["payment.succeeded"], "one of payment.created"), "set": ([], "an object"),
        "object": (7, "a string"),
    },
    "faults": {
        "kind": ("nonsense", "one of reset, error"), "times": (0, "an integer above 0, or null for no end"),
        "probability": (1.1, "a number from 0 to 1"), "method": ("get", "one of GET"), "path": ("payments", "a path"),
        "operation": ("pay", "one of list_payment_methods"), "event_type": ("payment", "one of payment.created"),
        "endpoint_id": ("", "a string of 1 to 500 characters"), "api_key": ("a b", "an API key of 1 to 255 visible"),
        "work": ("yes", "true or false"), "status": (99, "an integer from 200 to 599"),
        "code": ("oops", "one of parameter_invalid"), "retry_after": (5, "a string"),
        "delay": (-1, "a number from 0 to"), "count": (0, "an integer from 1 to 1000"),
    },
    "endpoints": {
        "url": ("ftp://x", "an absolute http or https URL"), "events": ([], "a list with any of payment.created"),
        "secret": ("", "a string of 1 to 500 characters"),
    },
    "projects": {"api_key": (" ", "an API key of 1 to 255 visible ASCII characters")},
    "keys": {"api_key": ("", "an API key")},
    "revoke": {"api_key": (5, "an API key")},
    "whitelist": {"account_number": (5, "a string of 1 to 500 characters")},
    "terms": {
        "active": ("no", "true or false"), "countries": ("CL", "a list with any of CL, CO"),
        "forbidden_methods": (["cl_none"], "a list with any of cl_webpay_card"),
        "unavailable_methods": ([5], "a list with any of cl_webpay_card"),
        "broken_methods": ({}, "a list with any of cl_webpay_card"), "blocked_payers": ([5], "a list of strings"),
        "require_whitelist": (1, "true or false"),
    },
}  # fmt: skip
WRONG_OF_OBJECTS: dict[tuple[str, str], dict[str, tuple[Any, str]]] = {
    ("payments", "pay"): {"amount": (0, "an integer from 1 to 1000000000000, in minor units")},
    ("payments", "fail"): {"reason": (5, "a string of 1 to 500 characters")},
    ("payouts", "fail"): {"reason": ("x" * 501, "a string of 1 to 500 characters")},
    ("payouts", "return"): {"reason": ([], "a string of 1 to 500 characters")},
    ("deposit-references", "transfer"): {"amount": ("5", "an integer from 1 to 1000000000000, in minor units")},
    ("events", "redeliver"): {"endpoint_id": (True, "a string of 1 to 500 characters")},
}


def test_the_error_of_every_field_names_it_and_what_is_allowed(engine: Engine, client: Client) -> None:
    assert {action: set(fields) for action, fields in WRONG.items()} == {
        action: set(fields) for action, fields in PROJECT_FIELDS.items()
    }
    assert {action: set(fields) for action, fields in WRONG_OF_OBJECTS.items()} == {
        action: set(fields) for action, fields in OBJECT_FIELDS.items()
    }
    bodies = [(action, PROJECT_FIELDS[action], fields) for action, fields in WRONG.items()] + [
        (f"{collection}/any/{action}", OBJECT_FIELDS[collection, action], fields)
        for (collection, action), fields in WRONG_OF_OBJECTS.items()
    ]
    good: dict[str, Any] = {"currency": "CLP", "amount": 1, "kind": "html", "url": "http://x/", "event": "x"}
    before = engine.books()
    for path, known, fields in bodies:
        needed = {name: good.get(name, "sk_x") for name, field in known.items() if field.required}
        for name, (value, allowed) in fields.items():
            error = client.control(path, {**needed, name: value}).error
            assert (error["code"], error["param"]) == ("parameter_invalid", name), path
            assert f"This must be {allowed}" in error["message"], (path, name)
        for name in needed:
            error = client.control(path, {**needed, name: None}).error
            assert (error["code"], error["param"]) == ("parameter_missing", name)
            assert error["message"].startswith("This is required. It must be ")
        error = client.control(path, {**needed, "colour": 1}).error
        assert (error["code"], error["param"]) == ("parameter_invalid", "colour")
        assert f"Use {', '.join(known)}." in error["message"]
    assert "This request takes none." in client.control("tick", {"x": 1}).error["message"]
    assert engine.books() == before


def test_the_error_of_a_wrong_path_says_what_there_is(client: Client) -> None:
    for path, method, status, text in (
        ("dance", "POST", 404, "there is no /_sandbox/dance; use books, payments, "),
        ("payments/pay_1/dance", "POST", 404, "there is no 'dance' for payments; use open, pay, process, "),
        ("dances/1/pay", "POST", 404, "there is no 'dances'; use payments, payouts, "),
        ("fund", "GET", 405, "only POST is allowed here"),
        ("faults", "PUT", 405, "only GET, POST, DELETE is allowed here"),
        ("payments", "POST", 405, "only GET is allowed here"),
        ("books", "POST", 405, "only GET is allowed here"),
        ("projects/sk_test_sandbox", "POST", 405, "only DELETE is allowed here"),
    ):
        reply = client.control(path, method=method)
        assert reply.status == status, path
        assert text in reply.error["message"]
        if status == 405:
            assert reply.headers["Allow"] == text.partition("only ")[2].partition(" is")[0]


def test_values_that_do_not_fit_the_state_are_refused_with_the_field(engine: Engine, client: Client) -> None:
    engine.add_project("sk_test_two")
    engine.fund("CLP", 50)
    for path, body, param, text in (
        ("reserve", {"currency": "CLP", "amount": 51}, "amount", "at most 50"),
        ("projects", {"api_key": "sk_test_two"}, "api_key", "a key of no other project"),
        ("keys", {"api_key": "sk_test_two"}, "api_key", "a key of no other project"),
        ("revoke", {"api_key": "sk_test_two"}, "api_key", "an API key of the project"),
        ("faults", {"kind": "drop", "path": "/payments"}, "path", "does not fit 'drop', a fault of deliveries"),
    ):
        error = client.control(path, body).error
        assert (error["code"], error["param"]) == ("parameter_invalid", param)
        assert text in error["message"]
    engine.clock.freeze(datetime(9990, 1, 1, tzinfo=UTC))
    assert client.control("clock", {"advance": 3_000_000_000}).error["param"] == "advance"
    for raw in (b"{", b"[1]", b"\xff", b"[" * 100_000):
        error = client.call("POST", "/_sandbox/fund", raw).error
        assert error["message"].startswith('the body must be a JSON object, such as {"amount": 500}')


def test_an_impossible_change_names_the_statuses_that_allow_it(client: Client) -> None:
    payment = client.card()
    client.control(f"payments/{payment['id']}/fail")
    error = client.control(f"payments/{payment['id']}/expire").error
    assert (error["code"], error["type"]) == ("invalid_state", "invalid_state_error")
    assert error["message"] == "a payment that is failed cannot expire; allowed from created, requires_action"
