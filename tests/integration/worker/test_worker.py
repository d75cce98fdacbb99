"""``payments_worker`` as a process: at once after a wake-up, once however many work, and nothing lost when it dies."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from payments_integration.models import Event, ObjectDispatch
from tests.databases import DRIVER, POSTGRES, SQLITE, execute, other_sessions
from tests.factories.receivers.models import ReceiverCall
from tests.integration.worker.conftest import NEVER, Site, done, until

pytestmark = [pytest.mark.django_db(transaction=True)]

#: Neither a look nor the schedule finds anything for an hour.
DEAF = ("--poll", str(int(NEVER)))


def calls() -> Counter[str]:
    """How often each event's receiver has committed its work."""
    return Counter(ReceiverCall.objects.values_list("what", flat=True))


def claims() -> int:
    return ObjectDispatch.objects.exclude(claim_token="").count()


def test_an_event_is_applied_and_dispatched_without_a_broker(site: Site) -> None:
    worker = site.worker()
    ids = site.deliver(3)
    until(lambda: done() == 3)
    assert calls() == Counter(ids)
    worker.stop()
    assert "3 events applied, 3 dispatched, 0 attempts failed, 0 operations sent" in worker.log


def test_work_that_no_wake_up_was_about_is_found(site: Site) -> None:
    """Such as events that were delivered while no worker ran."""
    ids = site.deliver(2)
    assert done() == 0, "the request has only stored them"
    site.worker(*DEAF)
    until(lambda: done() == 2)
    assert calls() == Counter(ids)


@pytest.mark.skipif(DRIVER != "psycopg", reason="others have no notifications")
def test_a_notification_wakes_the_worker(site: Site) -> None:
    """Its first look and pass are over, and the next ones are an hour away: only the notification can be the cause."""
    worker = site.worker(*DEAF)
    first = site.deliver()
    until(lambda: done() == 1)
    # Now it certainly listens, and has looked.
    ids = [*first, *site.deliver(), *site.deliver()]
    until(lambda: done() == 3)
    assert calls() == Counter(ids)
    worker.stop()


@pytest.mark.skipif(DRIVER == "psycopg", reason="it is notified there")
def test_without_notifications_the_worker_looks(site: Site) -> None:
    site.worker("--poll", "0.1")
    for number in range(1, 4):
        site.deliver()
        until(lambda expected=number: done() == expected)


@pytest.mark.skipif(SQLITE, reason="it has no server to end a session")
def test_a_lost_connection_is_replaced(site: Site) -> None:
    worker = site.worker("--poll", "0.2")
    site.deliver()
    until(lambda: done() == 1)

    for session in other_sessions():
        execute(f"SELECT pg_terminate_backend({session})" if POSTGRES else f"KILL CONNECTION {session}")
    worker.says("connecting again")  # after an OperationalError, or psycopg2's InterfaceError
    site.deliver()
    until(lambda: done() == 2)
    worker.stop()


def test_sigterm_finishes_the_item_in_hand_and_leaves_no_claim(site: Site) -> None:
    site.hold.touch()
    ids = site.deliver(20)
    worker = site.worker()
    until(site.entered.exists)
    worker.send(signal.SIGTERM)
    until(site.asked.exists)
    # It waits for the receiver, which nothing interrupts.
    site.hold.unlink()
    assert worker.ends() == 0, worker.log
    assert sum(calls().values()) == done() < len(ids), "the item in hand, and no further one"
    assert done() >= 1
    assert claims() == 0
    # Nothing is lost: the next worker does the rest.
    site.worker()
    until(lambda: done() == len(ids))
    assert calls() == Counter(ids)


def test_a_second_signal_interrupts_the_receiver(site: Site) -> None:
    site.hold.touch()
    (event_id,) = site.deliver()
    worker = site.worker()
    until(site.entered.exists)
    worker.send(signal.SIGINT)
    until(site.asked.exists)
    worker.send(signal.SIGINT)
    assert worker.ends() == 128 + signal.SIGINT, worker.log
    assert not calls(), "its work was rolled back"
    assert Event.objects.get(pk=event_id).state == "applied"
    site.hold.unlink()
    site.worker()
    until(lambda: done() == 1)
    assert calls() == Counter([event_id])


def test_a_worker_that_is_killed_between_claim_and_commit_loses_nothing(site: Site) -> None:
    site.hold.touch()
    ids = site.deliver(5)
    worker = site.worker()
    until(site.entered.exists)
    worker.kill()
    assert claims() > 0, "it had claimed a page"
    assert not calls(), "and committed no call"
    site.hold.unlink()
    site.worker()
    until(lambda: done() == 5)
    assert calls() == Counter(ids)


def test_two_workers_and_cron_apply_each_event_once(site: Site) -> None:
    workers = [site.worker("--poll", "0.05"), site.worker("--poll", "0.05", interval=0.2)]
    ids: list[str] = []
    for _ in range(3):
        cron = site.start("payments_process")
        ids += site.deliver(10)
        cron.ends()
    until(lambda: done() == len(ids))
    for worker in workers:
        worker.stop()
    assert calls() == Counter(ids)
    assert claims() == 0


def test_the_heartbeat_is_there_while_the_worker_lives(site: Site) -> None:
    heartbeat = site.folder / "alive"
    worker = site.worker("--heartbeat", str(heartbeat))
    until(heartbeat.exists)
    worker.stop()
    assert not heartbeat.exists()
