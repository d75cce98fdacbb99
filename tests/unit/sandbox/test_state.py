"""A sandbox's content in a file: all of it comes back, and no other file is ever overwritten."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from payments_integration.sandbox import Clock, Engine, Fault, Project
from payments_integration.sandbox.catalog import Terms
from payments_integration.sandbox.common_rules import IdempotencyKeys
from payments_integration.sandbox.deliveries import Dispatcher
from payments_integration.sandbox.delivery_queue import DeliveryQueue
from payments_integration.sandbox.deposits import DepositReferences
from payments_integration.sandbox.endpoints import Endpoints
from payments_integration.sandbox.faults import FaultRegistry
from payments_integration.sandbox.ledger import Ledger
from payments_integration.sandbox.payments import Payments
from payments_integration.sandbox.payouts import Payouts
from payments_integration.sandbox.project import ProjectState
from payments_integration.sandbox.protocol import CURRENCIES, DAY
from payments_integration.sandbox.refunds import Refunds
from payments_integration.sandbox.resources import Collection, EventStore
from payments_integration.sandbox.state import FIELDS, StateError, StateFile

from .support import ACCOUNT, CARD, DEPOSIT, PAYER, PAYOUT, TRANSFER, Client, Receiver

URL = "https://shop.example/webhook/"
#: The attributes of each class that holds state: those that come back, and the others. Dataclasses come back whole.
ATTRIBUTES: dict[type, tuple[str, str]] = {
    Engine: (
        "faults _projects default_project",
        "lock auto_progress base_url checkpoint outlet first_endpoint limiter gateway scheduler _seed _funds",
    ),
    Clock: ("_offset _frozen _last_stamp", "_lock _listeners"),
    FaultRegistry: ("_faults", "_lock _seed _random _common"),
    Dispatcher: (
        "log old_signature_first queue _count",
        "ack_timeout changes _api_key _clock _lock _faults _endpoints _outlet _in_flight _one_settled _lanes",
    ),
    DeliveryQueue: ("_heaps _held", ""),
    Project: ("state", "lock"),
    ProjectState: (
        (
            "api_key clock faults dispatcher keys terms idempotency endpoints events ledger _first_funds "
            "payments payouts refunds deposit_references"
        ),
        "context",
    ),
    IdempotencyKeys: ("uses", "_clock"),
    Endpoints: ("by_id notifications", "_clock"),
    EventStore: ("items _bodies", "_clock _on_emit"),
    Collection: ("_items _order", "_position _dropped"),
    Ledger: ("entries balances", "_clock _emit"),
    Payments: ("items internals in_progress_since", "_context _expiries _next_steps"),
    Payouts: ("items in_progress_since", "_context on_change"),
    Refunds: ("items in_progress_since", "_context _payments _payouts"),
    DepositReferences: ("items payers", "_context _payments"),
}


class Walk:
    """The values of every saved attribute, by class and name, and all of them as plain data."""

    def __init__(self, engine: Engine) -> None:
        self.values: dict[tuple[str, str], list[Any]] = defaultdict(list)
        self.all = self.plain(engine)

    def plain(self, value: Any) -> Any:
        kind = type(value)
        if is_dataclass(value):
            return {field.name: self.note(kind, field.name, getattr(value, field.name)) for field in fields(kind)}
        if kind in ATTRIBUTES:
            saved, others = (names.split() for names in ATTRIBUTES[kind])
            assert set(vars(value)) == {*saved, *others}, kind
            return {name: self.note(kind, name, getattr(value, name)) for name in saved}
        if isinstance(value, dict):
            return {name: self.plain(item) for name, item in value.items()}
        if isinstance(value, list | tuple | set):
            return [self.plain(item) for item in value]
        assert value is None or isinstance(value, str | int | float | bytes | datetime) or "timedelta" in str(kind), (
            kind
        )
        return value

    def note(self, kind: type, name: str, value: Any) -> Any:
        if name == "_heaps":
            value = sorted((item[2] for heap in value.values() for item in heap), key=lambda one: one.number)
        plain = sorted(self.plain(value)) if isinstance(value, set) else self.plain(value)
        self.values[kind.__name__, name].append(plain)
        return plain


def rich(engine: Engine, receiver: Receiver) -> None:
    """Bring something into every field."""
    client = Client(engine)
    engine.faults.add(Fault("duplicate", times=2, event_type="payment.succeeded"))
    endpoint = client.make("/webhook-endpoints", {"url": URL})
    client.post(f"/webhook-endpoints/{endpoint['id']}/rotate-secret")
    gone = engine.add_endpoint(URL + "2", ["payment.created"])
    for currency in CURRENCIES:
        engine.fund(currency, 1_000_000_000)
    engine.set_reserve("CLP", 1_000)
    card = client.card(
        payer={**PAYER, "name": "Ñandú 🐦"}, return_url="https://shop.example/back", metadata={"a": "ü"}
    )
    client.card()
    direct = client.card(method_code="cl_card_direct", flow="s2s")
    engine.pay(card["id"])
    refund = client.make("/refunds", {"payment_id": card["id"], "amount": 10})
    engine.process_refund(refund["id"])
    client.make("/refunds", {"payment_id": card["id"], "amount": 5})
    engine.hold(client.card()["id"])
    charged = client.card()
    engine.pay(charged["id"])
    engine.chargeback(charged["id"])
    bank = client.bank()
    engine.pay(bank["id"], 4_000)
    client.make("/refunds", {"payment_id": bank["id"], "destination": ACCOUNT, "reason": "gift"})
    client.payout()
    engine.process_payout(client.payout()["id"])
    deposit = client.make("/deposit-references", {**DEPOSIT, "payer": PAYER, "merchant_reference": "m"})
    engine.transfer(deposit["id"], 77)
    engine.deliver_due()
    receiver.status = 500
    client.post("/payments", {"amount": -1}, key="refused")
    client.payout()
    engine.deliver_due()
    engine.endpoint(gone["id"]).failing_since = engine.clock.now()
    engine.clock.advance(8 * DAY)
    engine.deliver_due()
    engine.add_endpoint(URL)
    engine.faults.add(Fault("reorder", event_type="payment.created", count=3, delay=1e6))
    engine.pay(client.bank()["id"], 1)
    client.card(merchant_reference="sandbox-chargeback-1")
    engine.clock.advance(5)
    engine.deliver_due()
    engine.add_key("sk_test_further")
    engine.revoke_key("sk_test_further")
    engine.set_terms(
        active=True, countries=["CL"], forbidden_methods=["cl_khipu"], unavailable_methods=["cl_mach"],
        broken_methods=["cl_chek"], blocked_payers=["x"], require_whitelist=True,
    )  # fmt: skip
    engine.whitelist("123")
    engine.terms.active = False
    engine.dispatcher.old_signature_first = True
    client.post("/payments", CARD, key="refused while inactive")
    second = engine.add_project("sk_test_two")
    second.clock.set_offset(5_000)
    second.faults.add(Fault("html", times=3, method="GET"))
    Client(engine, "sk_test_two").make("/webhook-endpoints", {"url": URL + "3", "events": ["payment.created"]})
    Client(engine, "sk_test_two").card()
    assert second.payments
    assert direct["id"] in engine.default_project.state.payments.in_progress_since


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


def save(engine: Engine, file: Path) -> None:
    state = StateFile(file, engine)
    state.open()
    assert state.save(True) == ""


def reopen(file: Path, **options: Any) -> Engine:
    engine = Engine("sk_other", rate_limits=False, **options)
    assert StateFile(file, engine).open()
    return engine


def test_every_field_of_the_engine_comes_back(engine: Engine, receiver: Receiver, file: Path) -> None:
    fresh = Walk(Engine(clock=Clock())).values
    rich(engine, receiver)
    save(engine, file)
    before, after = Walk(engine), Walk(reopen(file))
    for place, values in before.values.items():
        assert after.values[place] == values, place
    assert after.all == before.all
    # Of an attribute that is as in a new engine, the comparison would say nothing.
    for kind, (saved, _) in ATTRIBUTES.items():
        for name in set(saved.split()) - {"_offset"}:
            place = (kind.__name__, name)
            assert before.values[place] != fresh[place], place


def test_the_terms_and_every_other_dataclass_are_filled_by_the_history(engine: Engine, receiver: Receiver) -> None:
    rich(engine, receiver)
    values = Walk(engine).values
    for field in fields(Terms):
        assert values["Terms", field.name][0] != Walk(Engine()).values["Terms", field.name][0], field.name
    for kind, name in (("Endpoint", "old_secret_until"), ("Endpoint", "failing_since"), ("Delivery", "first_at"),
                       ("Delivery", "fault"), ("Delivery", "held_for"), ("PaymentInternals", "return_url"),
                       ("PaymentInternals", "in_pending"), ("PaymentInternals", "steps"),
                           ("PaymentInternals", "charged_back"), ("Fault", "used"),
                       ("KeyUse", "response")):  # fmt: skip
        assert any(values[kind, name]), name


def test_a_running_clock_keeps_its_offset(file: Path) -> None:
    engine = Engine()
    engine.clock.set_offset(86_400.25)
    save(engine, file)
    ahead = reopen(file).clock.now() - datetime.now(UTC)
    assert 86_340 <= ahead.total_seconds() <= 86_401


def test_a_restored_payment_takes_its_next_step(engine: Engine, client: Client, file: Path) -> None:
    payment = client.card(merchant_reference="sandbox-chargeback-7")
    engine.clock.advance(4)
    save(engine, file)
    restored = reopen(file)
    assert restored.payments[payment["id"]]["status"] == "succeeded"
    restored.clock.advance(60)
    assert restored.payments[payment["id"]]["status"] == "chargeback"
    assert restored.audit() == []


def test_each_project_keeps_its_own_clock_and_faults(engine: Engine, file: Path) -> None:
    engine.add_project("sk_test_two").clock.freeze(datetime(2030, 1, 1, tzinfo=UTC))
    engine.projects["sk_test_two"].faults.add(Fault("html"))
    save(engine, file)
    restored = reopen(file)
    assert restored.clock.now() == engine.clock.now()
    assert restored.projects["sk_test_two"].clock.now() == datetime(2030, 1, 1, tzinfo=UTC)
    assert [len(project.faults.all()) for project in restored.projects.values()] == [0, 1]


def test_a_restored_sandbox_goes_on(engine: Engine, client: Client, receiver: Receiver, file: Path) -> None:
    endpoint = client.make("/webhook-endpoints", {"url": URL})
    first = client.post("/payments", {**TRANSFER, "payer": PAYER}, key="once")
    payment_id = first.json["id"]
    receiver.status = 503
    engine.deliver_due()
    save(engine, file)

    again = Receiver()
    restored = reopen(file, transport=again)
    client = Client(restored)
    assert client.post("/payments", {**TRANSFER, "payer": PAYER}, key="once").raw == first.raw
    assert client.post("/payments", TRANSFER, key="once").error["code"] == "idempotency_conflict"
    assert client.get("/payments", starting_after=payment_id).json["data"] == []
    assert restored.endpoint(endpoint["id"]).secret == endpoint["secret"]
    assert restored.deliver_due() == 0
    restored.clock.advance(61)
    assert restored.deliver_due() == 1
    assert again.got[0][2] == receiver.got[0][2]
    restored.pay(payment_id)
    refund = client.make("/refunds", {"payment_id": payment_id, "amount": 10, "destination": ACCOUNT})
    restored.succeed_payout(refund["payout_id"])
    assert restored.payments[payment_id]["refunded_amount"] == 10
    expiring = client.card()
    save(restored, file.with_name("second"))
    third = reopen(file.with_name("second"))
    third.clock.advance(DAY)
    assert third.payments[expiring["id"]]["status"] == "expired"
    assert third.audit() == []


def test_a_request_that_still_runs_is_not_saved(engine: Engine, file: Path) -> None:
    engine.default_project.state.idempotency.begin("running", "POST", "/v1/payments", b"")
    save(engine, file)
    assert Client(reopen(file)).post("/payments", CARD, key="running").status == 201


def test_a_delivery_under_way_is_sent_again(engine: Engine, client: Client, file: Path) -> None:
    engine.add_endpoint(URL)
    payment = client.card()
    state = StateFile(file, engine)
    state.open()
    engine.transport = lambda url, headers, body: len(state.save(True)) or 200  # saved in the midst of it
    engine.deliver_due()
    restored = reopen(file, transport=(receiver := Receiver()))
    restored.deliver_due()
    assert [event["data"]["id"] for event in receiver.events] == [payment["id"]]


# when it is saved

REQUESTS: list[Callable[[Client, Engine, str], object]] = [
    lambda client, engine, payment: client.card(),
    lambda client, engine, payment: client.post("/payouts", PAYOUT),
    lambda client, engine, payment: client.post("/payments", {"amount": 0}),
    lambda client, engine, payment: client.post("/refunds", {"payment_id": payment, "amount": 3}),
    lambda client, engine, payment: client.get("/payments"),
    lambda client, engine, payment: client.call("GET", f"/checkout/{payment}"),
    lambda client, engine, payment: client.call("POST", f"/checkout/{payment}", b"action=pay"),
    lambda client, engine, payment: client.control("clock", {"advance": 3_000}),
    lambda client, engine, payment: client.control("faults", {"kind": "error", "times": 2, "method": "GET"}),
    lambda client, engine, payment: client.control("faults", {"kind": "delay", "delay": 5}),
    lambda client, engine, payment: client.control("terms", {"broken_methods": ["cl_khipu"]}),
    lambda client, engine, payment: client.control("endpoints", {"url": URL}),
    lambda client, engine, payment: client.control(f"payments/{payment}/chargeback"),
    lambda client, engine, payment: client.post("/webhook-endpoints", {"url": URL}),
    lambda client, engine, payment: (engine.clock.advance(4_000), client.get("/events")),
    lambda client, engine, payment: (engine._run_due(lambda: False), engine.stop_scheduler()),
    lambda client, engine, payment: client.control("deliver"),
]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.sampled_from(REQUESTS), st.integers(0, 5)), min_size=1, max_size=12))
def test_whatever_was_answered_or_sent_is_in_the_file(
    steps: list[tuple[Any, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("state") / "state.json"
    engine = Engine(rate_limits=False, auto_progress=60.0, transport=Receiver(status=503), funds={"CLP": 10_000_000})
    engine.clock.freeze()
    StateFile(file, engine).open()
    client = Client(engine)
    client.card()
    for step, chosen in steps:
        payments = list(engine.payments)
        step(client, engine, payments[chosen % len(payments)])
        assert Walk(reopen(file, auto_progress=60.0)).all == Walk(engine).all
    assert engine.audit() == []


def test_nothing_is_written_without_a_change(engine: Engine, client: Client, file: Path) -> None:
    StateFile(file, engine).open()
    client.card()
    before = file.stat()
    client.get("/payments")
    client.control("clock", {})
    engine._run_due(lambda: False)
    assert file.stat() == before


def test_an_answer_that_cannot_be_saved_is_an_error(
    engine: Engine, client: Client, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    StateFile(file, engine).open()
    blocker = file.with_name("state.json.tmp")
    blocker.mkdir()
    with caplog.at_level(logging.ERROR):
        replies = [client.post("/payments", CARD, key="k"), client.get("/payments"), client.call("GET", "/")]
        engine._run_due(lambda: False)
    assert [reply.status for reply in replies] == [500, 500, 500]
    assert replies[0].error["code"] == "internal_error"
    assert f"cannot write {file}" in replies[0].error["message"]
    assert len(caplog.records) == 1
    blocker.rmdir()
    assert client.post("/payments", CARD, key="k").status == 201
    assert len(reopen(file).payments) == 1


def test_two_sandboxes_do_not_overwrite_each_others_file(engine: Engine, client: Client, file: Path) -> None:
    StateFile(file, engine).open()
    client.card()
    other = Client(other_engine := Engine(rate_limits=False), engine.default_project.api_key)
    StateFile(file, other_engine).open()
    assert other.post("/payments", CARD).status == 201
    reply = client.post("/payments", CARD)
    assert reply.status == 500
    assert "another program has changed" in reply.error["message"]
    assert len(reopen(file).payments) == 2
    file.unlink()  # on purpose, by hand
    assert client.post("/payments", CARD).status == 201


def test_only_the_owner_can_read_the_file_and_nothing_is_left_beside_it(engine: Engine, file: Path) -> None:
    file.with_name("state.json.tmp").write_text("of a sandbox that was killed")
    old = os.umask(0)
    try:
        save(engine, file)
    finally:
        os.umask(old)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_link_to_the_file_stays_a_link(engine: Engine, file: Path) -> None:
    link = file.with_name("link.json")
    link.symlink_to(file)
    save(engine, link)
    assert link.is_symlink()
    assert file.is_file()


# files that are something else


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "damaged or no state"),
        (b"\x89PNG\r\n\x1a\n\xff", "damaged or no state"),
        (b"[" * 100_000, "damaged or no state"),
        (b"[]", "is not the state of a sandbox"),
        (b'{"name": "package", "version": 1}', "is not the state of a sandbox"),
        (b'{"format": "payments-sandbox-state", "version": 1}', "version 1 of the format; this sandbox reads 2"),
        (b'{"format": "payments-sandbox-state", "version": 2}', "state lacks faults, projects"),
    ],
    ids=["empty", "picture", "nested", "list", "other", "older", "bare"],
)  # fmt: skip
def test_a_file_that_is_no_state_is_refused_and_stays(content: bytes, says: str, file: Path) -> None:
    file.write_bytes(content)
    with pytest.raises(StateError, match=says) as caught:
        StateFile(file, Engine()).open()
    assert str(file) in str(caught.value)
    assert "Name another file" in str(caught.value)
    assert file.read_bytes() == content


def test_a_folder_and_a_truncated_file_are_refused(engine: Engine, receiver: Receiver, file: Path) -> None:
    with pytest.raises(StateError, match="cannot read"):
        StateFile(file.parent, Engine()).open()
    rich(engine, receiver)
    save(engine, file)
    whole = file.read_bytes()
    for length in (1, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(StateError, match="damaged or no state"):
            StateFile(file, Engine()).open()
        assert file.read_bytes() == whole[:length]


def test_books_that_do_not_add_up_are_refused(engine: Engine, file: Path) -> None:
    engine.fund("CLP", 5)
    save(engine, file)
    file.write_text(file.read_text().replace('"available":5', '"available":6', 1))
    with pytest.raises(StateError, match="its books do not add up: CLP"):
        StateFile(file, Engine()).open()


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in parsed JSON."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for name, item in items:
        yield (*path, name)
        yield from places(item, (*path, name))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    file = tmp_path_factory.mktemp("state") / "state.json"
    clock = Clock()
    clock.freeze(datetime(2026, 1, 15, 12, tzinfo=UTC))
    engine = Engine(clock=clock, rate_limits=False, transport=(receiver := Receiver()))
    rich(engine, receiver)
    save(engine, file)
    return file, file.read_text()


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_damaged_value_is_refused_or_harmless(saved: tuple[Path, str], data: st.DataObject) -> None:
    file, text = saved
    state = json.loads(text)
    holder = data.draw(st.sampled_from([state["faults"], state["projects"], *state["projects"][0].values()]))
    holder = holder if isinstance(holder, dict | list) and holder else state["projects"]
    path = data.draw(st.sampled_from(list(places(holder))))
    for name in path[:-1]:
        holder = holder[name]
    junk = data.draw(st.sampled_from([None, "remove", -1, 1e300, True, "", "x", [], {}, [[]], {"a": []}]))
    if junk == "remove":
        del holder[path[-1]]
    else:
        holder[path[-1]] = junk
    file.write_text(json.dumps(state))
    engine = Engine(rate_limits=False, transport=Receiver())
    try:
        StateFile(file, engine).open()
    except StateError:
        assert json.loads(file.read_text()) == state
        return
    engine.books()
    engine.tick()


def test_the_fields_of_the_objects_are_those_that_they_have(saved: tuple[Path, str]) -> None:
    optional = {"merchant_reference", "payer"}
    (project, _) = json.loads(saved[1])["projects"]
    for collection, names in FIELDS.items():
        assert {name for item in project[collection] for name in item} - optional == {"id", "object", *names}
