"""The demo's checks find every mistake. (The demo itself runs in .ci/run.)"""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import requests
from django.db import transaction
from stdnum.cl import rut

from example_project.demo import closing, story
from example_project.demo.closing import Expected, compare
from example_project.demo.home import Home
from example_project.demo.management.commands import demo
from example_project.demo.payer import _forms
from example_project.demo.processes import Children, DemoError
from example_project.demo.provider import Books, Provider
from example_project.demo.stage import Screen
from example_project.shop import checkout
from example_project.shop.models import Notice, Order, Product
from payments_integration import reconciliation, services
from payments_integration.models import (
    Balance,
    DepositReference,
    DueRefresh,
    Event,
    EventState,
    Operation,
    Payment,
    Refund,
    deletion_allowed,
)
from payments_integration.payable import OrderStatus
from payments_integration.sandbox import Engine, Fault, SandboxServer
from payments_integration.testing import ProviderSandbox

pytestmark = [pytest.mark.urls("example_project.urls"), pytest.mark.any_database]
database = pytest.mark.django_db(transaction=True)


def books(sandbox: ProviderSandbox) -> Books:
    return Books.read(copy.deepcopy(sandbox.engine.books()))


@pytest.fixture
def day(payments_sandbox: ProviderSandbox) -> tuple[ProviderSandbox, Expected]:
    """A short day after which every check holds: a lost event, a refused one, an order, a refund, a deposit."""
    engine = payments_sandbox.engine
    engine.fund("CLP", 50_000)
    product = Product.objects.create(slug="mug", name="Mug", description="")
    order = checkout.place(
        "one", product=product, amount=5_000, currency="CLP", country="CL",
        method_code="cl_webpay_card", name="Ana", email="ana@example.com",
    )  # fmt: skip
    payment = checkout.pay(order)
    payments_sandbox.settle()
    engine.faults.add(Fault("drop", event_type="payment.processing"))
    engine.faults.add(Fault("bad_signature", event_type="payment.succeeded"))
    engine.pay(payment.pk)
    payments_sandbox.settle()
    engine.clock.advance(61)
    refund = services.create_refund(payment, amount=1_000)
    engine.succeed_refund(refund.pk)
    reference = services.create_deposit_reference(country="CL", currency="CLP", method_code="cl_deposit")
    engine.transfer(reference.pk, 700)
    payments_sandbox.settle()
    engine.clock.advance(2)
    reconciliation.reconcile_events("default")
    payments_sandbox.settle()
    return payments_sandbox, Expected({order.reference: OrderStatus.PARTIALLY_REFUNDED}, deposits=1, refunds=1)


def failing(found: Books, expected: Expected) -> list[str]:
    return [check.name for check in closing.checks(found, expected) if not check.holds]


@database
def test_all_checks_pass_after_a_day_without_mistakes(day: tuple[ProviderSandbox, Expected]) -> None:
    sandbox, expected = day
    assert {check.name: check.problems for check in closing.checks(books(sandbox), expected) if check.problems} == {}
    assert ("mirror equals provider", "yes") in closing.state_table(books(sandbox))
    assert ("  recovered by reconciliation", "1") in closing.events_table(books(sandbox))


MIRROR = "the mirror equals the provider, field by field"
STORED = "every event of the provider is stored and done"
DISPATCHED = "every event was dispatched to handlers exactly once"
FOUND = "every lost event was found by reconciliation"
INTENTS = "one intent is one payment, payout or refund"
ORDERS = "every order ended as it should"
RESOLVED = "no operation is unresolved and nothing is due"
MONEY = "money in, out and refunded is the same on both sides"


def _forget_the_lost_event() -> None:
    Event.objects.filter(type="payment.processing").delete()


def _dispatch_once_more() -> None:
    Notice.objects.create(
        event_id=Event.objects.values_list("pk", flat=True)[0], type="x", object_id="x", is_stale=False
    )


#: Changes to our rows, and the checks that must notice them.
HARMS: list[tuple[Callable[[], object], set[str]]] = [
    (lambda: Payment.objects.filter(flow="hosted").update(status="created"), {MIRROR}),
    (lambda: Payment.objects.filter(flow="hosted").update(refunded_amount=0), {MIRROR}),
    (lambda: Payment.objects.filter(flow="hosted").update(amount_received=1), {MIRROR, MONEY}),
    (lambda: Payment.objects.filter(flow="hosted").update(metadata=None), {MIRROR}),
    (lambda: Payment.objects.filter(flow="hosted").update(succeeded_at=None), {MIRROR}),
    (lambda: Payment.objects.filter(flow="hosted").update(extra={"colour": "red"}), {MIRROR}),
    (lambda: Payment.objects.filter(flow="deposit_reference").delete(), {MIRROR, MONEY}),
    (lambda: Refund.objects.update(payment_id="pay_other"), {MIRROR}),
    (lambda: Refund.objects.update(status="processing"), {MIRROR, MONEY}),
    (lambda: Balance.objects.filter(currency="CLP").update(available=0), {MIRROR}),
    (lambda: DepositReference.objects.all().delete(), {MIRROR}),
    (lambda: Event.objects.filter(type="payment.created").update(state=EventState.PARKED), {STORED}),
    (_forget_the_lost_event, {STORED, FOUND}),
    (lambda: Event.objects.filter(type="payment.processing").update(source="webhook"), {FOUND}),
    (_dispatch_once_more, {DISPATCHED}),
    (lambda: Notice.objects.filter(type="refund.created").delete(), {DISPATCHED}),
    (lambda: Order.objects.update(status=OrderStatus.NEW), {ORDERS}),
    (lambda: Operation.objects.filter(operation="create_payment").update(state="unknown"), {RESOLVED}),
    (
        lambda: DueRefresh.objects.create(account="default", object_kind="payment", object_id="pay_1", reason="tie"),
        {RESOLVED},
    ),
]


@database
def test_a_mistake_in_the_mirror_is_found(day: tuple[ProviderSandbox, Expected]) -> None:
    sandbox, expected = day
    for number, (harm, found) in enumerate(HARMS):
        with transaction.atomic(), deletion_allowed():
            harm()
            assert (number, set(failing(books(sandbox), expected))) == (number, found)
            transaction.set_rollback(True)
    assert failing(books(sandbox), expected) == []


@database
def test_a_mistake_at_the_provider_is_found(day: tuple[ProviderSandbox, Expected]) -> None:
    sandbox, expected = day
    doubled = books(sandbox)
    doubled.payments.append({**doubled.payments[0], "id": "pay_double"})
    assert {MIRROR, INTENTS, MONEY} <= set(failing(doubled, expected))

    unsettled = books(sandbox)
    unsettled.audit.append("CLP available is below zero")
    assert failing(unsettled, expected) == ["the provider's books add up"]

    unspent = books(sandbox)
    unspent.faults[0]["used"] = 0
    assert failing(unspent, expected) == ["every planned fault occurred"]

    accepted = books(sandbox)
    accepted.struck("bad_signature")[0]["status"] = 200
    assert failing(accepted, expected) == ["every delivery with a wrong signature was refused"]

    peaceful = books(sandbox)
    peaceful.deliveries.clear()
    assert FOUND in failing(peaceful, expected)


@database
def test_the_comparison_includes_types(day: tuple[ProviderSandbox, Expected]) -> None:
    sandbox, _expected = day
    found = books(sandbox)
    found.payments[0]["amount"] = float(found.payments[0]["amount"])
    assert len(compare(found).differences) == 1


@database
def test_an_empty_comparison_fails() -> None:
    assert not compare(Books()).is_equal


class TestChildren:
    """No child process survives."""

    SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")
    STUBBORN = (
        sys.executable,
        "-c",
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
    )

    def test_children_end_with_the_block(self, tmp_path: Path) -> None:
        with Children(tmp_path) as children:
            child = children.start("sleeper", self.SLEEP)
            children.check()
        assert child.process.returncode == -signal.SIGTERM

    def test_children_that_ignore_the_signal_are_killed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("example_project.demo.processes.GRACE", 0.2)
        with Children(tmp_path) as children:
            child = children.start("mule", self.STUBBORN)
            children.wait_until("its start", lambda: "up" in child.log.read_text())
        assert child.process.returncode == -signal.SIGKILL

    def test_a_child_that_dies_is_named_with_its_last_output(self, tmp_path: Path) -> None:
        with Children(tmp_path) as children:
            child = children.start("canary", (sys.executable, "-c", "raise SystemExit('no air')"))
            child.process.wait()
            with pytest.raises(DemoError, match=r"(?s)canary ended by itself.*no air"):
                children.check()

    def test_children_end_with_a_killed_parent(self, tmp_path: Path) -> None:
        script = (
            "import sys, time; from pathlib import Path; from example_project.demo.processes import Children\n"
            f"child = Children(Path({str(tmp_path)!r})).start('sleeper', {self.SLEEP!r})\n"
            "print(child.process.pid, flush=True); time.sleep(60)"
        )
        parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        parent.stdout.close()
        end = time.monotonic() + 30
        while _runs(pid) and time.monotonic() < end:
            time.sleep(0.02)
        is_left = _runs(pid)
        if is_left:
            os.kill(pid, signal.SIGKILL)
        # Only Linux notifies a child that its parent was killed.
        assert is_left == (sys.platform != "linux")


class TestCommand:
    """The command around the story."""

    SCRIPT = """
import sys, django
django.setup()
from example_project.demo.management.commands.demo import Command

def run(self, home, children, *, once):
    child = children.start("sleeper", [sys.executable, "-c", "import time; time.sleep(60)"])
    while True:
        print(child.process.pid, flush=True)

Command._run = run
Command().handle(once=True)
"""

    def test_a_closed_pipe_ends_the_demo_quietly(self, tmp_path: Path) -> None:
        folder = tmp_path / "home"
        (folder / "logs").mkdir(parents=True)
        places = {"DEMO_HOME": str(folder), "DEMO_SITE_URL": "http://x:1", "DEMO_SANDBOX_URL": "http://x:2"}
        process = subprocess.Popen(
            [sys.executable, "-c", self.SCRIPT],
            env={**os.environ, **places, "DJANGO_SETTINGS_MODULE": "example_project.settings"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        child = int(process.stdout.readline())
        process.stdout.close()
        assert process.wait(30) == 1
        assert process.stderr.read() == ""
        process.stderr.close()
        assert not folder.exists()
        assert not _runs(child)

    def test_the_last_screen_explains_a_bank_refund(self, capsys: pytest.CaptureFixture[str]) -> None:
        demo.invite(Home(Path(), "http://x:1", "http://x:2"), Screen())
        assert f"a RUT that is valid, such as {story.EXAMPLE_RUT}" in capsys.readouterr().out
        assert rut.is_valid(story.EXAMPLE_RUT)


def test_the_providers_clock_is_right_after_the_demo_minute() -> None:
    """The clock starts behind and catches up, so that events of the story keep their order."""
    engine = Engine()
    with SandboxServer(engine) as server:
        provider = Provider(server.url)
        moments = []
        for seconds in (story.BEHIND, 0):
            provider.run_behind(seconds)
            engine.fund("CLP", 1)
            before = datetime.now(UTC)
            books = provider.books()
            moments.append(datetime.fromisoformat(books.balances[0]["updated_at"]))
            behind, tolerance = timedelta(seconds=seconds), timedelta(seconds=1)
            assert before - tolerance <= datetime.fromisoformat(books.now) + behind <= datetime.now(UTC) + tolerance
    assert moments[1] - moments[0] >= timedelta(seconds=60)
    assert moments[1] <= datetime.now(UTC)


def test_the_payer_sends_the_same_request_as_a_browser() -> None:
    page = requests.Response()
    page._content = b"""<form method="post"><select name="country"><option value="CL"><option value="PE" selected>
        </select><select name="quantity"><option value="1"><option value="2"></select><input name="name" value="Ana">
        <input type="radio" name="flow" value="a"><input type="radio" name="flow" value="b" checked></form>"""
    assert _forms(page)[0].fields == {"country": "PE", "quantity": "1", "name": "Ana", "flow": "b"}


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    # Without an init process that reaps orphans, a dead process stays listed.
    return state not in ("Z", "X") and os.path.exists(f"/proc/{pid}")
