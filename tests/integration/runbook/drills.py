"""A drill per code: it breaks a site, yields, and then does what the entry says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from unittest import mock

from cryptography.fernet import Fernet
from django.db import transaction

from payments_integration import inbox, schemas, services
from payments_integration.exceptions import ApprovalRequired, OutcomeUnknown
from payments_integration.inbox import processing
from payments_integration.models import AccountState, Event, EventState, Payout, ReconciliationRun, WebhookEndpoint
from payments_integration.signals import Reason
from payments_integration.testing import signed_delivery
from tests.integration.reconciling import after_each_page
from tests.integration.runbook.page import entries
from tests.integration.runbook.site import WEBHOOK, Site, the_operation

Drill = Callable[[Site], Iterator[None]]
DRILLS: dict[str, Drill] = {}


def drill(code: Reason) -> Callable[[Drill], Drill]:
    def add(function: Drill) -> Drill:
        DRILLS[code] = function
        return function

    return add


# work that waits for a process


@drill(Reason.EVENTS_PENDING)
def _no_worker(site: Site) -> Iterator[None]:
    site.sell()
    site.wait(minutes=11)
    yield
    site.run("payments_process")


@drill(Reason.EVENTS_UNDISPATCHED)
def _a_worker_that_died(site: Site) -> Iterator[None]:
    site.handler_fails = True
    site.sell()
    site.run("payments_process")
    site.wait(minutes=11)
    yield
    site.handler_fails = False
    site.run("payments_process")


@drill(Reason.OPERATIONS_DUE)
def _deferred_by_a_process_that_died(site: Site) -> Iterator[None]:
    # A test's transaction is not committed, as if the process had died after its commit.
    with transaction.atomic():
        site.pay_out(partial(services.defer, services.create_payout))
    site.wait(minutes=11)
    yield
    site.run("payments_process")


@drill(Reason.REFRESHES_DUE)
def _refreshes_without_a_worker(site: Site) -> Iterator[None]:
    payment = site.sell()
    site.run("payments_process")
    services.create_refund(payment, amount=1_000)
    site.engine.deliver_due()
    inbox.process()
    inbox.dispatch()
    site.wait(minutes=11)
    yield
    site.run("payments_process")


@drill(Reason.RUNS_STOPPED)
def _beat_stopped(site: Site) -> Iterator[None]:
    site.wait(minutes=65)
    yield
    site.run("payments_process")


# what a person decides


@drill(Reason.OPERATION_NEEDS_RESOLUTION)
def _lost_answer(site: Site) -> Iterator[None]:
    site.fail("reset", work=True, method="POST")
    with suppress(OutcomeUnknown):
        services.create_deposit_reference(country="CL", currency="CLP", method_code="cl_deposit")
    site.live(minutes=24 * 60, every=60)
    yield
    operation = the_operation()
    site.press(operation, "look-up")
    (made,) = site.engine.deposit_references
    site.press(operation, "happened", object_id=made, comment="seen in the dashboard")


@drill(Reason.OPERATION_AWAITS_APPROVAL)
def _over_the_limit(site: Site) -> Iterator[None]:
    site.configure(APPROVAL_LIMITS={"CLP": 1_000})
    _asks_for_approval(site)
    yield
    site.press(operation := the_operation(), "approve", digest=operation.body_digest)


def _asks_for_approval(site: Site) -> None:
    with suppress(ApprovalRequired):
        site.pay_out(actor="clerk")


@drill(Reason.OPERATION_UNKNOWN)
def _answers_are_lost_for_an_hour(site: Site) -> Iterator[None]:
    site.fail("reset", work=True, method="POST")
    with suppress(OutcomeUnknown):
        site.pay_out()
    site.live(minutes=70)
    yield
    site.press(the_operation(), "look-up")


@drill(Reason.DISPATCH_PARKED)
def _a_handler_that_fails(site: Site) -> Iterator[None]:
    site.handler_fails = True
    site.sell()
    site.live(minutes=15, every=1)
    yield
    site.handler_fails = False
    first, *_others = Event.objects.filter(state=EventState.PARKED).order_by("created_at")
    site.press(first, "replay")
    exec(entries()[Reason.DISPATCH_PARKED].pasted(), {})
    site.run("payments_process")


@drill(Reason.EVENT_QUARANTINED)
def _bodies_that_are_not_understood(site: Site) -> Iterator[None]:
    later = schemas.WireError("$.data.object is of a later version")
    with mock.patch.object(schemas, "event_resource", side_effect=later):
        site.sell()
    body = signed_delivery(b"[]", site.sandbox.webhook_secret)
    assert site.admin().post("/payments/webhook/", **body).status_code == 200
    yield
    for row in Event.objects.filter(state=EventState.QUARANTINED):
        site.press(row, "replay")
    (row,) = Event.objects.filter(state=EventState.QUARANTINED)
    site.run(f"payments_erase --id {row.pk} --yes")
    site.run("payments_process")


@drill(Reason.EVENT_NOT_APPLIED)
def _a_mistake_of_ours(site: Site) -> Iterator[None]:
    site.sell()
    with mock.patch.object(processing, "apply_events", side_effect=TypeError("a bug")):
        site.run("payments_process")
    yield
    site.run("payments_process")


# the provider


@drill(Reason.API_KEY_REFUSED)
def _key_revoked(site: Site) -> Iterator[None]:
    site.run("payments_process --all")
    site.engine.revoke_key()
    site.run("payments_process --all")
    yield
    # The schedule asks for no pass yet, because one was done just before.
    site.engine.add_key("sk_test_new")
    site.account(API_KEY="sk_test_new")
    site.run("payments_process --all")


@drill(Reason.PROVIDER_UNREACHABLE)
def _provider_down(site: Site) -> Iterator[None]:
    site.fail("error", status=503)
    site.wait(minutes=16)
    site.run("payments_process")
    yield
    site.recover()
    site.live(minutes=20)


@drill(Reason.PROVIDER_CLOCK)
def _our_clock_is_behind(site: Site) -> Iterator[None]:
    site.engine.clock.set_offset(120)
    site.run("payments_reconcile")
    yield
    site.engine.clock.set_offset(0)
    site.run("payments_reconcile")


@drill(Reason.REFRESHES_FAIL)
def _an_object_that_cannot_be_read(site: Site) -> Iterator[None]:
    payment = site.sell()
    site.run("payments_process")
    services.create_refund(payment, amount=1_000)
    site.engine.deliver_due()
    site.fail("html", path=f"/payments/{payment.pk}")
    site.live(minutes=180)
    yield
    site.recover()
    site.live(minutes=60)


# reconciliation


@drill(Reason.NEVER_RECONCILED)
def _a_new_site(site: Site) -> Iterator[None]:
    AccountState.objects.all().delete()
    ReconciliationRun.objects.all().delete()
    yield
    site.run("payments_reconcile")


@drill(Reason.RUNS_FAIL)
def _a_page_in_between(site: Site) -> Iterator[None]:
    site.fail("html", path="/balances")
    site.live(minutes=90)
    yield
    site.recover()
    site.run("payments_process --all")


@drill(Reason.WATERMARK_OLD)
def _events_cannot_be_read(site: Site) -> Iterator[None]:
    site.fail("html", path="/events")
    site.live(minutes=90)
    yield
    site.recover()
    site.run("payments_reconcile")


@drill(Reason.GAP_TOO_LONG)
def _away_for_a_month(site: Site) -> Iterator[None]:
    site.wait(days=31)
    site.fail("html", path="/payments")
    site.run("payments_process")
    yield
    site.recover()
    site.run("payments_reconcile --full")


@drill(Reason.EVENTS_HELD)
def _a_window_that_is_not_completed(site: Site) -> Iterator[None]:
    site.sell(delivered=False)

    def dies(page: int) -> None:
        raise KeyboardInterrupt

    site.wait(minutes=6)
    with after_each_page(dies), suppress(KeyboardInterrupt):
        site.run("payments_reconcile")
    inbox.process()
    site.wait(minutes=11)
    yield
    site.run("payments_reconcile")


# webhooks


@drill(Reason.ENDPOINT)
def _disabled(site: Site) -> Iterator[None]:
    row = WebhookEndpoint.objects.get()
    site.sandbox.project.state.endpoints.by_id[row.pk].status = "disabled"
    site.live(minutes=20)
    yield
    site.run(f"payments_endpoints delete {row.pk}")
    site.run(f"payments_endpoints create {WEBHOOK}")


@drill(Reason.NO_ENDPOINT)
def _nowhere_to_deliver(site: Site) -> Iterator[None]:
    site.account(WEBHOOK_SECRETS=[])
    site.run(f"payments_endpoints delete {WebhookEndpoint.objects.get().pk}")
    yield
    site.run(f"payments_endpoints create {WEBHOOK}")


@drill(Reason.SECRET_MISSING)
def _made_in_the_dashboard(site: Site) -> Iterator[None]:
    site.account(WEBHOOK_SECRETS=[])
    yield
    site.run(f"payments_endpoints rotate {WebhookEndpoint.objects.get().pk}")


@drill(Reason.SECRET_UNREADABLE)
def _key_lost(site: Site) -> Iterator[None]:
    lost, new = (Fernet.generate_key().decode() for _ in range(2))
    site.configure(ENCRYPTION_KEYS=[lost])
    site.run(f"payments_endpoints rotate {WebhookEndpoint.objects.get().pk}")
    site.configure(ENCRYPTION_KEYS=[new])
    yield
    site.run(f"payments_endpoints rotate {WebhookEndpoint.objects.get().pk}")


@drill(Reason.DELIVERIES_MISSING)
def _deliveries_are_lost(site: Site) -> Iterator[None]:
    site.fail("drop")
    for _ in range(3):
        site.sell()
    site.live(minutes=20)
    yield
    site.recover()
    site.sell()
    site.run("payments_process")


# money


@drill(Reason.PAID_TWICE)
def _paid_in_two_tabs(site: Site) -> Iterator[None]:
    first, _second = (site.sell(merchant_reference="order-1") for _tab in range(2))
    site.live(minutes=10)
    yield
    services.create_refund(first)
    site.live(minutes=10)


# personal data and accounts


@drill(Reason.KEY_REPLACED)
def _a_live_key_for_a_test_mirror(site: Site) -> Iterator[None]:
    site.account(API_KEY=site.engine.add_project("sk_live_shop").api_key)
    yield
    site.run("payments_forget default --no-input")
    site.typed.add("payments_forget default")
    site.run("payments_process --all")


@drill(Reason.ERASURE_UNFINISHED)
def _an_open_operation(site: Site) -> Iterator[None]:
    site.configure(APPROVAL_LIMITS={"CLP": 1_000})
    _asks_for_approval(site)
    site.run("payments_erase --document 12.345.678-5 --yes")
    site.live(minutes=25 * 60, every=60)
    yield
    site.press(the_operation(), "reject", comment="the payer is gone")
    site.run("payments_prune")


@drill(Reason.REMOVED_ACCOUNT)
def _an_alias_is_gone(site: Site) -> Iterator[None]:
    old = site.engine.add_project("sk_test_old").api_key
    site.account("old", API_KEY=old)
    with transaction.atomic():
        site.pay_out(partial(services.defer, services.create_payout), account="old")
    site.remove("old")
    yield
    site.account("old", API_KEY=old)
    site.run("payments_process")
    services.cancel_payout(Payout.objects.get(account="old"))
    site.remove("old")
