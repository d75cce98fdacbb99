"""The simulation itself: some schedules, the same ones for the same seed, and mutants that still fit the code."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db.models import F

from payments_integration import tasks
from payments_integration.exceptions import KeyReplaced
from payments_integration.models import Event, EventState, Operation, OperationState, Payment
from payments_integration.outbox import repeats
from tests.factories.receivers.models import ReceiverCall
from tests.simulation import draining, running
from tests.simulation.clock import START
from tests.simulation.faults import ENDED, FAMILIES, KINDS
from tests.simulation.limits import LIMITS
from tests.simulation.machine import BUTTONS, NO_READ_AFTER, TASKS, WEBS, WORKERS, Schedule
from tests.simulation.merchant import PAYS, payout_intent
from tests.simulation.mutants import ROOT, apply
from tests.simulation.network import REFUSALS, SPOILED
from tests.simulation.rules import MUTANTS, Mutant
from tests.simulation.scheduler import GO, WAIT, Fault, Plan, Scheduler
from tests.simulation.world import RENEWED_KEY, Violation, World

# `make simulate` runs on each database.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.any_database]


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    with running.scheduler() as held:
        yield held


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize("seed", [1, 2])
def test_some_schedules_violate_no_invariant(seed: int) -> None:
    findings = running.run(seed, schedules=8, steps=20, shrink=0)
    assert not findings.violation, "\n".join([*findings.trace, findings.violation])
    assert findings.schedules >= 8
    assert findings.counts["passed committed"] > 100


@pytest.mark.usefixtures("scheduler")
def test_the_same_seed_gives_the_same_run() -> None:
    first, second = (running.run(3, schedules=3, steps=15, shrink=0) for _ in range(2))
    assert first.digests == second.digests
    assert len(set(first.digests)) >= 3


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize("kind", ["", "drop"])
def test_a_worker_that_is_kept_beyond_its_turn_publishes_a_message_for_the_rest(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    schedule = Schedule()
    schedule.begin("celery", "", False, set(FAMILIES), sold=2, window=0, approvals=False, has_gaps=False)
    world = schedule._world
    schedule._pay(0, ("process", "pay"), after=NO_READ_AFTER)
    draining.deliver_due(world, all_of_them=True)
    world.messages.clear()
    world.step("beat: process_events", [Fault("committed", WAIT), *([Fault("publish", kind)] if kind else [])])
    world.task("worker-1", "process_events")
    world.time.advance(tasks.TURN_SECONDS + 1)
    world.resume(0)
    assert len(world.messages) == (not kind)
    assert world.counts["publish drop"] == bool(kind)
    schedule.teardown()
    assert finished == [world]


@pytest.mark.usefixtures("scheduler")
@pytest.mark.promise(4)
@pytest.mark.parametrize("given_up", [True, False])
def test_a_gap_in_which_the_provider_forgets_events_violates_no_invariant(
    monkeypatch: pytest.MonkeyPatch, given_up: bool
) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    schedule = Schedule()
    schedule.begin("celery", "", False, set(FAMILIES), sold=2, window=0, approvals=False, has_gaps=True)
    hold_and_chargeback = [("payments", 0, 7), ("payments", 0, 8), ("payments", 1, 8)]
    schedule.long_gap(40, hold_and_chargeback, given_up, "reconcile_events", [])
    schedule.teardown()
    [world] = finished
    forgotten = world.watch.emitted.keys() - set(Event.objects.values_list("pk", flat=True))
    late = Event.objects.filter(received_at__gt=F("created_at") + timedelta(days=37), state=EventState.DONE)
    assert forgotten
    assert late.exists() is not given_up
    assert not late.exclude(dispatched_at=None).exists()
    assert "gap_too_long" in {reason for reason, _ in world.attentions}


@pytest.mark.usefixtures("scheduler")
def test_no_request_is_under_way_for_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    schedule = Schedule()
    schedule.begin("celery", "", False, set(FAMILIES), sold=0, window=0, approvals=False, has_gaps=False)
    schedule.create_payout(
        0, 0, 0, False, [Fault("send", "wait", method="POST"), Fault("send", "late", method="POST")]
    )
    schedule.pass_time(25 * 3600)
    schedule.teardown()
    [world] = finished
    [arrived] = [line for line in world.trace if "a late POST /v1/payouts reaches the provider: 201" in line]
    assert arrived.startswith("01 12:"), "the schedule began on the 1st at 12:00"


def schedule(**options: Any) -> Schedule:
    begun = Schedule()
    calm: dict[str, Any] = {
        "mode": "celery",
        "pays": "",
        "database_only": False,
        "families": set(FAMILIES),
        "sold": 0,
        "window": 0,
        "approvals": False,
        "has_gaps": False,
    }
    begun.begin(**{**calm, **options})
    return begun


@pytest.mark.usefixtures("scheduler")
@pytest.mark.promise(6)
@pytest.mark.parametrize("mode", ["inline", "celery"])
@pytest.mark.parametrize("point", ["receiver", "callback"])
def test_no_mistake_of_the_merchants_code_violates_an_invariant(
    monkeypatch: pytest.MonkeyPatch, mode: str, point: str
) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    for kind in dict.fromkeys(KINDS[point]):
        begun = schedule(mode=mode)
        begun.mistakes_at_the_border(0, [((point, kind), 3)])
        begun.teardown()
        assert finished.pop().counts[f"{point} {kind}"] == 1


@pytest.mark.usefixtures("scheduler")
@pytest.mark.promise(5)
def test_no_mistake_of_a_receiver_of_attention_violates_an_invariant(monkeypatch: pytest.MonkeyPatch) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    for kind in KINDS["attention"]:
        begun = schedule()
        begun.attention_fails(kind, "unprocessable", 0)
        begun.teardown()
        assert finished.pop().counts[f"attention {kind}"] == 3


@pytest.mark.usefixtures("scheduler")
@pytest.mark.promise(6)
@pytest.mark.parametrize("database_only", [False, True])
def test_an_erasure_and_a_pruning_under_running_workers_violate_no_invariant(
    monkeypatch: pytest.MonkeyPatch, database_only: bool
) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    begun = schedule(sold=1, database_only=database_only)
    begun.declare((WEBS[0], "worker-1"), not database_only)
    begun._pay(0, ("process", "pay"), after=NO_READ_AFTER)
    for nth in (1, 3):
        begun.erase(nth // 2, Fault("begin", WAIT, nth), [])
    begun.pass_time(40 * 24 * 3600)
    begun.run_task("prune", 0, [])
    begun.teardown()
    [world] = finished
    assert Payment.objects.exclude(erased_at=None).count() == 2
    assert world.pruned - set(Event.objects.values_list("pk", flat=True))


@pytest.mark.usefixtures("scheduler")
@pytest.mark.promise(6)
@pytest.mark.parametrize("limit", LIMITS)
def test_a_time_limit_at_any_line_violates_no_invariant(
    monkeypatch: pytest.MonkeyPatch, limit: type[BaseException]
) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    for at_line, part in ((20, "inbox/dispatching.py"), (35, "inbox/calling.py"), (150, "outbox/")):
        begun = schedule(pays="keyed")
        begun.time_limit("process_events", limit, at_line, part)
        begun.teardown()
        assert finished.pop().counts["time limits"] == 1


@pytest.mark.usefixtures("scheduler")
@pytest.mark.promise(6)
@pytest.mark.parametrize("pays", PAYS)
def test_one_object_for_which_handlers_always_fail_blocks_no_other(monkeypatch: pytest.MonkeyPatch, pays: str) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    begun = schedule(is_stubborn=True, pays=pays)
    begun.mistakes_at_the_border(0, [(("callback", "fail"), 1), (("saved", "fail"), 0)])
    begun.teardown()
    [world] = finished
    assert any(mark.startswith("of-") for mark in world.intents) is (pays in ("keyed", "callback"))


@pytest.mark.usefixtures("scheduler")
@pytest.mark.promise(5)
@pytest.mark.parametrize("looks", [True, False])
def test_what_waited_in_a_backup_and_was_sent_since_is_made_once(monkeypatch: pytest.MonkeyPatch, looks: bool) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    if not looks:
        monkeypatch.setattr(repeats, "find_result", lambda operation: None)
    begun = schedule(sold=1)
    world = begun._world
    world.plan.add([Fault("send", "refuse", method="POST")])
    begun._ask(payout_intent("i1", 700, None), 0, False, [], in_transaction=True)
    begun.back_up()
    begun.resume_later(65, 0, [])
    assert Operation.objects.get(operation="create_payout").state == OperationState.DONE
    begun.pass_time(26 * 3600)
    begun.restore(0, False)
    operation = Operation.objects.get(operation="create_payout")
    world.start("web-1", "send it now", partial(world.merchant.press, "retry", operation, "Ana"))
    if looks:
        begun.teardown()
        assert finished == [world]
        assert Operation.objects.get(operation="create_payout").state == OperationState.DONE
    else:
        with pytest.raises(Violation, match="more than once"):
            begun.teardown()


@pytest.mark.usefixtures("scheduler")
@pytest.mark.promise(5)
@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.parametrize("kind", ["payment", "payout", "refund"])
def test_what_a_restored_ledger_takes_for_unsent_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch, kind: str, by_hand: bool
) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    begun = schedule(sold=1)
    begun.restored_ledger(kind, 26, False, True, by_hand, 0)
    begun.teardown()
    [world] = finished
    assert any("-- the ledger is restored" in line for line in world.trace)


@pytest.mark.usefixtures("scheduler")
@pytest.mark.promise(5)
@pytest.mark.parametrize("deferred", [True, False])
def test_after_a_restore_a_free_key_with_another_amount_moves_no_money_twice(
    monkeypatch: pytest.MonkeyPatch, deferred: bool
) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    begun = schedule(sold=1)
    begun.other_amount_after_a_restore(deferred, 26, 0)
    begun.teardown()
    [world] = finished
    assert world.counts["backups restored"] == 1
    assert world.lost == {"i1"}


@pytest.mark.usefixtures("scheduler")
@pytest.mark.promise(6)
def test_an_event_that_a_person_has_marked_as_done_is_not_dispatched(monkeypatch: pytest.MonkeyPatch) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    for nth in range(3, 10):
        begun = schedule()
        begun.finish_by_hand(0, nth, 0)
        begun.teardown()
        if finished[-1].finished:
            break
    assert finished[-1].finished
    assert not finished[-1].finished & finished[-1].watch.dispatched.keys()


@pytest.mark.usefixtures("scheduler")
@pytest.mark.promise(6)
@pytest.mark.parametrize("kind", ["payment", "payout", "refund"])
def test_handlers_wait_for_reads_that_fail_for_a_minute(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    begun = schedule(sold=1)
    begun.succeed_at_once(kind, 0, ["drop", "error", "page"], 11)
    begun.teardown()
    assert len(finished) == 1


@pytest.mark.usefixtures("scheduler")
@pytest.mark.promise(6)
@pytest.mark.parametrize(("mode", "since"), [("inline", None), ("celery", None), ("celery", timedelta(days=20))])
def test_no_handler_is_called_for_what_was_before_the_installation(
    monkeypatch: pytest.MonkeyPatch, mode: str, since: timedelta | None
) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    begun = schedule(mode=mode, is_new=True, since=START - since if since else None)
    begun.run_task("reconcile_events", 0, [])
    begun.teardown()
    [world] = finished
    border = START - (since or timedelta(hours=1))
    before = {event_id for event_id, at in world.watch.emitted.items() if at < border}
    assert before
    assert not before & world.watch.dispatched.keys()
    assert world.watch.dispatched.keys() - before


@pytest.mark.usefixtures("scheduler")
@pytest.mark.promise(4)
def test_attention_is_called_if_the_first_pass_comes_long_after_the_first_contact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    begun = schedule(is_new=True, has_gaps=True, sold=1)
    begun.long_gap(31, [("payments", 0, 7), ("payments", 0, 8)], True, "reconcile_events", [])
    begun.teardown()
    assert "gap_too_long" in {reason for reason, _ in finished[0].attentions}


@pytest.mark.usefixtures("scheduler")
@pytest.mark.promise(5)
@pytest.mark.parametrize("database_only", [False, True])
@pytest.mark.parametrize("task", ["process_events", "reconcile_events", "resume_operations"])
def test_a_refused_commit_is_repeated_and_reaches_nobody(
    monkeypatch: pytest.MonkeyPatch, task: str, database_only: bool
) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    for nth in (0, 3, 6):
        begun = schedule(database_only=database_only)
        begun.busy_cluster(0, [nth, nth + 1], task)
        begun.teardown()
        assert finished.pop().counts["certify conflict"] >= 1


@pytest.mark.usefixtures("scheduler")
@pytest.mark.promise(5)
@pytest.mark.parametrize("which", [0, 1], ids=["test", "live"])
def test_nothing_is_sent_or_written_with_the_key_of_another_project(
    monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    begun = schedule(sold=2, has_projects=True)
    begun.another_projects_key(which, (*WEBS, *WORKERS), 0, "call", [])
    begun.happen("payments", 0, 7)
    begun.deliver(4, [0, 0, 0, 0], "arrive", 0, [])
    for task in TASKS:
        begun.run_task(task, 0, [])
    begun.right_key((WEBS[0], WORKERS[0]))
    begun.ask_again(0, 0, [])
    begun.teardown()
    [world] = finished
    assert "key_replaced" in {reason for reason, _ in world.attentions}
    calls = [intent for intent in world.intents.values() if intent.function == "create_payout"]
    assert {type(error) for intent in calls for error in intent.errors} == {KeyReplaced}
    assert [bool(intent.returned) for intent in calls] == [True, False, False, False]


@pytest.mark.usefixtures("scheduler")
@pytest.mark.promise(5)
@pytest.mark.parametrize("loss", [Fault("answer", "lost", method="POST"), Fault("send", "refuse", method="POST")])
def test_buttons_pressed_while_a_worker_has_the_call_in_hand_move_no_money_twice(
    monkeypatch: pytest.MonkeyPatch, loss: Fault
) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    for outlasts, is_slow in ((False, False), (False, True), (True, True)):
        for button in BUTTONS[:4]:
            begun = schedule()
            pause = Fault("begin" if is_slow else "send", "wait", method="" if is_slow else "POST")
            begun.press_while_held(loss, pause, [button, button], outlasts, is_slow, False)
            begun.teardown()
            assert len(finished.pop().intents) == 1


@pytest.mark.usefixtures("scheduler")
@pytest.mark.promise(6)
@pytest.mark.parametrize("presses", [1, 2])
def test_a_replayed_event_is_dispatched_once_more_for_each_press_that_found_it_done(
    monkeypatch: pytest.MonkeyPatch, presses: int
) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    begun = schedule(sold=1)
    begun.replay(0, presses, Fault("write", "wait"), "any")
    begun.teardown()
    [world] = finished
    [replayed] = world.replays
    assert world.watch.reopened[replayed] == presses
    assert ReceiverCall.objects.filter(what__startswith=f"event:{replayed}:").count() == 1 + presses


@pytest.mark.usefixtures("scheduler")
@pytest.mark.promise(5)
@pytest.mark.parametrize("revoked", [False, True])
def test_a_call_without_an_answer_is_not_sent_under_another_api_key(
    monkeypatch: pytest.MonkeyPatch, revoked: bool
) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    begun = schedule(sold=2)
    begun.process_otherwise(WEBS, "worker")
    begun.renew_key(WORKERS, Fault("answer", "lost", method="POST"), revoked, 0)
    assert Operation.objects.get(operation="create_payout").state == OperationState.DONE
    begun.teardown()
    [world] = finished
    assert {process.key for process in world.processes.values()} == {RENEWED_KEY}


@pytest.mark.usefixtures("scheduler")
@pytest.mark.promise(1)
def test_deliveries_are_accepted_while_the_secret_is_rotated(monkeypatch: pytest.MonkeyPatch) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    begun = schedule()
    begun.rotate_under_way([25 * 3600, 11, 11])
    begun.teardown()
    assert len(finished[0].intents) == 3


@pytest.mark.usefixtures("scheduler")
@pytest.mark.promise(5)
def test_another_attempt_pays_an_order_after_the_first_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    begun = schedule()
    for is_reopened in (True, False, True):
        begun.pay_order(0, is_reopened, ["cl_webpay_card", "cl_bank_transfer"], [], "fail", [])
    begun.pay_order(0, True, ["cl_webpay_card"], [], "pay", [])
    begun.pay_order(0, True, ["cl_webpay_card"], [], "", [])
    begun.teardown()
    assert [row.status for row in Payment.objects.order_by("created_at")] == ["failed", "failed", "succeeded"]


@pytest.mark.usefixtures("scheduler")
@pytest.mark.promise(5)
def test_a_renamed_account_makes_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    finished: list[World] = []
    monkeypatch.setattr(Schedule, "finished", finished.append, raising=False)
    begun = schedule(sold=1)
    begun.create_payout(0, 0, 0, True, [Fault("answer", "lost", method="POST")])
    begun.rename(0)
    begun.teardown()
    [intent] = [each for each in finished[0].intents.values() if each.function == "create_payout"]
    assert (intent.outcomes, len(set(intent.returned))) == (["unknown", "returned", "returned"], 1)


def test_a_fault_of_a_post_waits_for_one() -> None:
    plan = Plan()
    plan.add([Fault("send", "drop", method="POST"), Fault("send", "late", 1)])
    taken = [plan.take("send", may_wait=True, method=method) for method in ("GET", "GET", "POST", "POST")]
    assert taken == [GO, "late", "drop", GO]


def test_every_network_fault_is_in_the_list_of_kinds() -> None:
    assert {*REFUSALS, *ENDED, "wait", "crash", "drop", "late", "twice"} == set(KINDS["send"])
    assert set(SPOILED) | {"wait", "crash", "lost", "truncate", "slow", "undated"} == set(KINDS["answer"])


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_applies_to_exactly_one_place_and_is_python(mutant: Mutant, tmp_path: Path) -> None:
    for path, old, new in mutant.changes:
        assert old != new
        copy = tmp_path / "payments_integration" / path
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / "payments_integration" / path, copy)
    apply(mutant, tmp_path)
    for path, _, _ in mutant.changes:
        ast.parse((tmp_path / "payments_integration" / path).read_text())
