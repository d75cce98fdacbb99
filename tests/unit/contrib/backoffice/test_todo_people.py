"""Who sees which rows of the to-do list, and what they do with them: done, snoozed, assigned, put back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import models
from django.test import Client
from django.test.utils import isolate_apps
from django.utils import translation

from example_project.shop.models import Order
from payments_integration import erasure, reconciliation
from payments_integration.contrib.backoffice import handling
from payments_integration.contrib.backoffice.admin.overview import todo
from payments_integration.contrib.backoffice.models import Todo
from payments_integration.exceptions import UNREACHABLE
from payments_integration.models import EventState, Operation, OperationState, Payment, Payout, RunState
from tests.factories import rows
from tests.unit.admin.conftest import browser, page, url
from tests.unit.contrib.backoffice.test_overview import DASHBOARD
from tests.unit.contrib.backoffice.test_todo import (
    NOW,
    TODO,
    _now,  # noqa: F401  (the clock stands still)
    ago,
    became,
    form,
    kinds,
    lines,
    ordered,
    paid,
    press,
    refused,
    things,
    user,
)

VIEW = ("view_payment", "view_payout", "view_refund", "view_operation")
HANDLE = (*VIEW, "handle_todo")


def on_hold(**fields: Any) -> Payment:
    """One row that can be done."""
    return became(rows.payment(**fields), "on_hold", ago(hours=2))  # type: ignore[no-any-return]


def erase(*objects: Payment | Payout | Operation) -> erasure.Erased:
    found = erasure.select(erasure.Selection(ids=frozenset(str(each.pk) for each in objects)))
    return erasure.erase(found, actor="test")


def seen_by(*codenames: str) -> list[str]:
    return lines(browser(user(f"user-{User.objects.count()}", *codenames)))


# Who sees what.


def test_the_payment_of_a_row_is_shown_to_users_who_may_see_payments() -> None:
    def payment() -> Payment:
        named = {"payer": {"name": "Ana"}, "merchant_reference": "order-7"}
        return rows.payment(amount_received=1000, refunded_amount=0, **named)

    became(rows.refund(payment=payment(), amount=500), "failed")
    asked = {"operation": "create_refund", "target_id": payment().pk, "merchant_reference": ""}
    rows.operation(state=OperationState.NEEDS_PERSON, **asked)
    personal = ("view_refund", "view_operation", "close_operation", "view_personal_data")
    for codenames, sees in ((personal, False), ((*personal, "view_payment"), True)):
        html = page(browser(user(f"user-{sees}", *codenames)), TODO)
        assert html.count('<li class="pi-todo') == 2
        for words in ("Ana", "order-7"):
            assert html.count(words) >= 2 if sees else words not in html, words


def test_users_see_the_rows_of_models_that_they_may_view() -> None:
    on_hold()
    became(rows.payout(created_at=ago(days=3)), "failed")
    payment = rows.payment(amount_received=1000, refunded_amount=0)
    became(rows.refund(payment=payment, amount=500), "failed")
    for codename, words in (("view_payment", "on hold"), ("view_payout", "payout"), ("view_refund", "refund")):
        [line] = seen_by(codename)
        assert words in line
    nobody = browser(user("nobody", "view_balance"))
    assert nobody.get(TODO).status_code == 403
    assert "pi-todo" not in page(nobody, DASHBOARD)


def test_operations_are_rows_of_people_who_can_end_them() -> None:
    for state in (OperationState.NEEDS_PERSON, OperationState.AWAITING_APPROVAL, OperationState.UNKNOWN):
        rows.operation(state=state, created_at=ago(hours=3))
    assert seen_by("view_operation") == []
    for codename in ("change_operation", "close_operation"):
        shown = seen_by("view_operation", codename)
        assert len(shown) == 2
        assert not any("approval" in line for line in shown)
    [line] = seen_by("view_operation", "approve_operation")
    assert "waits for approval" in line


def test_refused_calls_are_rows_of_people_who_see_operations() -> None:
    refused(operation="create_payout", arguments={"destination": {"holder_name": "Ana Soto"}})
    [line] = seen_by("view_operation", "view_personal_data")
    assert "Ana Soto" in line
    assert "the provider refused it" in line
    assert seen_by("view_payment") == []


def test_people_see_their_own_requests_as_waiting_for_another_person() -> None:
    ana = user("ana", "view_operation", "approve_operation")
    rows.operation(state=OperationState.AWAITING_APPROVAL, actor_id=str(ana.pk), actor=f"{ana.pk}:ana")
    [line] = lines(browser(ana))
    assert "waits for another person" in line
    assert "urgent" not in line
    assert "See the request" in page(browser(ana), TODO)
    eva = browser(user("eva", "view_operation", "approve_operation"))
    assert "urgent" in lines(eva)[0]
    assert "Approve or reject" in page(eva, TODO)


def test_actions_are_offered_to_people_who_may_do_them() -> None:
    became(rows.payout(created_at=ago(days=3)), "failed")
    payment = rows.payment(amount_received=1000, refunded_amount=0)
    refund = became(rows.refund(payment=payment, amount=500), "failed")
    html = page(browser(user("viewer", *VIEW)), TODO)
    assert not any(word in html for word in ("Pay again", "Refund again", "popover"))
    html = page(browser(user("fina", *HANDLE, "create_payout", "refund_payment")), TODO)
    assert all(word in html for word in ("Pay again", "Refund again", "popover"))
    assert f"?again={refund.pk}" in html


def test_orders_are_shown_to_people_who_may_view_them() -> None:
    ordered("ORD-1", paid_at=NOW)
    ordered("ORD-2")
    paid("ORD-2", amount_received=1050)
    shown = seen_by("view_payment")
    assert [line for line in shown if "ORD-1" in line] == []
    assert len(shown) == 1
    for right in ("view_order", "change_order"):
        assert len(seen_by("view_payment", right)) == 2
    assert seen_by("view_refund", "view_order") == []


def test_open_operations_of_a_removed_account_are_named() -> None:
    for state in (OperationState.NEEDS_PERSON, OperationState.AWAITING_APPROVAL, OperationState.DONE):
        rows.operation(account="gone", state=state)
    named = f'2</span> <a href="{url("operation", "changelist")}?account=gone">open operations of the account gone'
    for name, rights, sees in (("ana", VIEW, True), ("eva", ("view_payment",), False)):
        assert (named in page(browser(user(name, *rights)), TODO)) is sees


def test_technical_problems_are_for_people_who_see_the_technical_state() -> None:
    rows.event(state=EventState.PARKED, attempts=6)
    support = browser(user("sofia", *VIEW, "view_event", "view_statuschange"))
    olga = browser(user("olga", *VIEW, "view_event", "view_reconciliationrun"))
    for address in (TODO, DASHBOARD):
        assert "event is parked" not in page(support, address)
        assert "event is parked" in page(olga, address)


def test_an_outage_of_the_provider_is_shown_to_everybody() -> None:
    support = browser(user("sofia", *VIEW, "view_event"))
    for address in (TODO, DASHBOARD):
        assert "Technical problems" not in page(support, address)
    rows.run(state=RunState.FAILED, error=f"{UNREACHABLE[0]}: timeout", started_at=ago(minutes=1))
    rows.event(state=EventState.PARKED, attempts=6)
    cache.clear()
    for address in (TODO, DASHBOARD):
        html = page(support, address)
        assert "the provider cannot be reached" in html
        assert 'href=""' not in html
        assert "event is parked" not in html
    link = url("reconciliationrun", "changelist")
    assert f'<a href="{link}?state=failed' in page(browser(user("olga", *VIEW, "view_reconciliationrun")), TODO)


def test_personal_data_is_masked_without_the_permission() -> None:
    became(
        rows.payout(created_at=ago(days=3), destination={"holder_name": "Ana Soto"}, failure_reason="Soto moved"),
        "failed",
    )
    rows.operation(
        operation="create_payout", state=OperationState.AWAITING_APPROVAL,
        arguments={"destination": {"holder_name": "Eva Paz"}},
    )  # fmt: skip
    masked = " ".join(seen_by(*VIEW, "approve_operation"))
    assert "•••" in masked
    assert not {"Soto", "Paz"} & set(masked.split())
    shown = " ".join(seen_by(*VIEW, "approve_operation", "view_personal_data"))
    assert "Ana Soto" in shown
    assert "Soto moved" in shown
    assert "Eva Paz" in shown


# Done.


def test_done_asks_for_a_note_and_takes_the_row_off_the_list() -> None:
    on_hold(pk="pay_1", amount=1000, currency="USD")
    ana = browser(user("ana", *HANDLE, "view_personal_data"))
    given = form(ana)
    assert press(ana, given, do="done", note="  ") == "The note is empty. Write what you did."
    assert len(lines(ana)) == 1
    assert press(ana, given, do="done", note="called the bank\r\ntwice") == "Done. The note is kept."
    assert lines(ana) == []
    mark = Todo.objects.get()
    assert (mark.note, mark.done_by.partition(":")[2], mark.object_id) == ("called the bank\ntwice", "ana", "pay_1")
    done = page(ana, f"{TODO}?view=done")
    assert "called the bank" in done
    assert "payment on hold" in done
    assert ">USD\xa010.00<" in done
    assert "called the bank" not in page(browser(user("eva", *VIEW)), f"{TODO}?view=done")


def test_a_note_that_is_too_long_is_refused() -> None:
    on_hold()
    with pytest.raises(ValidationError) as caught:
        handling.done(things()[0], "x" * (handling.MAX_LENGTH + 1), author="a job")
    assert list(caught.value.message_dict) == ["note"]


def test_from_the_overview_the_person_comes_back_to_it() -> None:
    on_hold()
    ana = browser(user("ana", *HANDLE))
    given = form(ana, DASHBOARD)
    response = ana.post(TODO, {**given, "do": "done", "note": "seen"})
    assert response.headers["Location"].split("?")[0] == DASHBOARD


def test_of_two_people_who_press_done_the_second_is_told() -> None:
    on_hold()
    ana, eva = (browser(user(name, *HANDLE)) for name in ("ana", "eva"))
    given, same = form(ana), form(eva)
    assert given == same
    assert press(ana, given, do="done", note="called the bank") == "Done. The note is kept."
    assert press(eva, same, do="done", note="I called too") == "Ana has already done this."
    # A double click is the same call.
    assert press(ana, given, do="done", note="called the bank") == "Done. The note is kept."
    [mark] = Todo.objects.all()
    assert mark.note == "called the bank"
    for further in ({"do": "snooze", "days": "1"}, {"do": "assign", "assignee": "me"}):
        assert press(eva, same, **further) == "Ana has already done this."


@pytest.mark.django_db(transaction=True)
def test_of_two_that_are_saved_at_once_the_first_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one reads before the first one is committed: its INSERT meets the key, and it looks again."""
    on_hold()
    [thing] = things()
    handling.done(thing, "hers", author="eva")
    find, seen = handling._mark, []

    def read_too_early(of: Any) -> Todo:
        seen.append(find(of))
        if len(seen) > 1:
            return seen[-1]
        first = seen[0]
        return Todo(
            account=first.account, kind=first.kind, thing=first.thing, since=first.since,
            object_kind=first.object_kind, object_id=first.object_id,
        )  # fmt: skip

    monkeypatch.setattr(handling, "_mark", read_too_early)
    with pytest.raises(handling.AlreadyDone, match="eva has already done this"):
        handling.done(thing, "mine", author="ana")
    assert len(seen) == 2
    assert Todo.objects.get().note == "hers"


def test_what_is_over_or_happened_again_is_not_done_unseen() -> None:
    payment = on_hold()
    ana = browser(user("ana", *HANDLE))
    given = form(ana)
    became(payment, "succeeded", ago(hours=1))
    assert press(ana, given, do="done", note="x") == "This is not to be done any more."
    became(payment, "on_hold", ago(minutes=5))
    assert "This happened again" in press(ana, given, do="done", note="x")
    assert Todo.objects.count() == 0
    for wrong in ({"kind": "quark"}, {"thing": "pay_absent"}, {"thing": ""}):
        assert press(ana, {**form(ana), **wrong}, do="done", note="x") == "This is not to be done any more."
    for since in ("", "yesterday", "2026-05-20T12:00:00", "2026-99-99T00:00:00+00:00"):
        assert "This happened again" in press(ana, {**form(ana), "since": since}, do="done", note="x")
    assert press(ana, form(ana), do="quark") == "Choose what to do."
    # PostgreSQL refuses such a text with an error.
    assert press(ana, {**form(ana), "thing": "a\x00b"}, do="done", note="x") == "This is not to be done any more."
    assert "There is no user" in press(ana, form(ana), do="assign", name="a\x00b")


@pytest.mark.parametrize("start", [TODO, DASHBOARD])
def test_a_refused_note_can_be_sent_again(start: str) -> None:
    payment = on_hold()
    ana, eva = (browser(user(name, *HANDLE)) for name in ("ana", "eva"))
    given = form(ana, start)
    became(payment, "succeeded", ago(hours=1))
    became(payment, "on_hold", ago(minutes=5))
    typed = {**given, "do": "done", "note": "called <Ana>\r\ntwice"}
    response = ana.post(TODO, typed)
    assert b"This happened again" in response.content
    # The row as it is now has the form, open and with the note.
    row = response.content.decode().split('<li class="pi-todo')[1]
    assert "called &lt;Ana&gt;\ntwice</textarea>" in row.replace("\r\n", "\n")
    assert row.count(" popover ") == 1
    # The field has the focus, so on a phone the messages are out of sight. The form says why, and leads back.
    own = row.split("</form>")[0]
    assert "This happened again" in own.partition('id="pi-todo-0-why"')[2].partition("</div>")[0]
    assert 'aria-describedby="pi-todo-0-why"' in own
    assert f'<a class="pi-button" href="{TODO}?account=default">Back</a>' in own
    # If the row is gone, the note is shown above the others.
    typed |= form(ana)
    press(eva, form(eva), do="done", note="I called")
    response = ana.post(TODO, typed)
    assert b"Eva has already done this." in response.content
    assert b"called &lt;Ana&gt;" in response.content.partition(b'<ol class="pi-todos"')[0]
    assert "called" not in page(ana, start)
    # Nothing was typed, or the note is kept.
    assert ana.post(TODO, {**typed, "note": ""}).status_code == 302
    assert eva.post(TODO, {**form(eva, f"{TODO}?view=done"), "do": "put-back"}).status_code == 302


@pytest.mark.parametrize(
    ("given", "kept", "why"),
    [
        ({"do": "done", "note": "  "}, "-note", "The note is empty."),
        ({"do": "assign", "name": "ana<maria"}, 'value="ana&lt;maria"', "There is no user “ana&lt;maria”."),
    ],
)
def test_what_was_refused_can_be_typed_again(given: dict[str, str], kept: str, why: str) -> None:
    on_hold()
    ana = browser(user("ana", *HANDLE))
    html = ana.post(TODO, {**form(ana), **given}).content.decode()
    row = html.split('<li class="pi-todo')[1]
    assert row.count(" popover ") == 1
    assert kept in row
    own = row.partition('id="pi-todo-0-why"')[2]
    assert why in own.partition("</div>")[0]
    assert own.partition("autofocus")[2].split(">")[0].count('aria-describedby="pi-todo-0-why"') == 1
    assert "Your note was not kept" not in html


def test_a_thing_that_the_person_may_not_see_cannot_be_done() -> None:
    on_hold()
    given = form(browser(user("ana", *HANDLE)))
    other = browser(user("eva", "view_payout", "handle_todo"))
    assert press(other, given, do="done", note="x") == "This is not to be done any more."


@isolate_apps("tests.factories.receivers")
def test_the_user_model_of_the_project_may_have_properties_for_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the one of Django's documentation, "A full example": the list must not fail as soon as it has a row."""

    class Person(AbstractBaseUser):
        email = models.EmailField(unique=True)
        is_staff = True

        class Meta:
            app_label = "receivers"

        USERNAME_FIELD = "email"

    on_hold()
    someone = browser(user("someone", *HANDLE))
    assert "pi-people" in page(someone, TODO)
    monkeypatch.setattr(todo, "get_user_model", lambda: Person)
    assert "pi-people" not in page(someone, TODO).replace('list="pi-people"', "")


def test_only_people_with_the_permission_change_anything() -> None:
    on_hold()
    given = form(browser(user("ana", *HANDLE)))
    viewer = user("vera", *VIEW)
    for do in ("done", "snooze", "assign", "put-back"):
        assert browser(viewer).post(TODO, {**given, "do": do, "note": "x", "days": "1"}).status_code == 403
    [thing] = things()
    for call in (
        lambda: handling.done(thing, "x", author=viewer),
        lambda: handling.snooze(thing, 1, author=viewer),
        lambda: handling.assign(thing, viewer, author=viewer),
        lambda: handling.put_back(Todo(), author=viewer),
        lambda: handling.done(thing, "x", author=None),
    ):
        with pytest.raises(PermissionDenied):
            call()
    assert Todo.objects.count() == 0


def test_what_was_done_can_be_put_back() -> None:
    on_hold()
    ana = browser(user("ana", *HANDLE))
    press(ana, form(ana), do="done", note="by mistake")
    [mark] = Todo.objects.all()
    given = {"account": "default", "view": "done", "do": "put-back"}
    for language, words in (("es", "Devolver a la lista"), ("pt-br", "Devolver à lista")):
        # "Volver a la lista" reads as a way back to the page with the list.
        with translation.override(language):
            assert f">{words}</button>" in page(ana, f"{TODO}?view=done")
    assert "on the list again" in press(ana, given, id=str(mark.pk))
    assert len(lines(ana)) == 1
    for wrong in ("", "x", "9" * 30, str(mark.pk + 1)):
        assert press(ana, given, id=wrong) == "There is no such row."
    eva = browser(user("eva", *HANDLE))
    assert press(eva, form(eva), do="done", note="really") == "Done. The note is kept."
    assert Todo.objects.get().note == "really"


def test_the_button_works_where_numbers_have_separators(settings: Any) -> None:
    settings.USE_THOUSAND_SEPARATOR = True
    on_hold()
    ana = browser(user("ana", *HANDLE))
    press(ana, form(ana), do="done", note="by mistake")
    Todo.objects.update(id=1234)
    given = form(ana, f"{TODO}?view=done")
    assert given["id"] == "1234"
    assert "on the list again" in press(ana, given, do="put-back")


def test_the_list_of_done_things_says_that_it_has_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(todo, "DONE", 2)
    ana = browser(user("ana", *HANDLE))
    for number in range(3):
        on_hold()
        assert "The newest 2" not in page(ana, f"{TODO}?view=done")
        press(ana, form(ana), do="done", note=f"note {number}")
    html = page(ana, f"{TODO}?view=done")
    assert "The newest 2 are shown." in html
    assert html.count('value="put-back"') == 2


# Snoozed and assigned.


def test_a_snoozed_row_comes_back() -> None:
    on_hold()
    ordered("ORD-1")
    paid("ORD-1", amount_received=1050)
    ana = browser(user("ana", *HANDLE))
    for _row in range(2):
        assert press(ana, form(ana), do="snooze", days="3") == "Snoozed until 2026-05-23 12:00:00."
    assert lines(ana) == []
    assert len(lines(ana, f"{TODO}?view=snoozed")) == 2
    for days in ("0", "2", "-1", "x", "99999"):
        shown = press(ana, form(ana, f"{TODO}?view=snoozed"), do="snooze", days=days)
        assert shown == ("It is shown again." if days == "0" else "Choose one of the periods.")
    assert len(lines(ana)) == 1
    with time_machine.travel(NOW + timedelta(days=3, seconds=1), tick=False):
        assert len(lines(browser(user("eva", *HANDLE)))) == 2


def test_a_row_is_assigned_to_a_person_and_mine_filters_by_it() -> None:
    on_hold(pk="pay_1")
    ordered("ORD-1")
    paid("ORD-1", amount_received=1050)
    eva = user("eva", *HANDLE)
    user("vera", *VIEW)
    ana = browser(user("ana", *HANDLE))
    html = page(ana, TODO)
    assert '<option value="eva">' in html
    assert '<option value="vera">' not in html
    for number in range(2):
        assert press(ana, form(ana, number=number), do="assign", name="eva") == "Assigned to eva."
    assert lines(ana, f"{TODO}?view=mine") == []
    assert len(lines(browser(eva), f"{TODO}?view=mine")) == 2
    assert "assigned to eva" in lines(ana)[0]
    User.objects.filter(pk=eva.pk).update(username="evita")
    assert press(ana, form(ana), do="assign", name="evita") == "Assigned to evita."
    assert "assigned to evita" in lines(ana)[0]
    assert press(ana, form(ana), do="assign", assignee="me") == "Assigned to ana."
    assert len(lines(ana, f"{TODO}?view=mine")) == 1
    assert press(ana, form(ana), do="assign") == "It is assigned to nobody."
    assert press(ana, form(ana), do="assign", name="vera") == "This person may not handle what is to be done."
    assert "There is no user" in press(ana, form(ana), do="assign", name="nobody")


def test_a_row_of_a_person_who_is_gone_is_free() -> None:
    for _row in range(3):
        on_hold()
    ana = user("ana", *HANDLE)
    eva, ida, uma = (user(name, *HANDLE) for name in ("eva", "ida", "uma"))
    for thing, person in zip(things(), (eva, ida, uma), strict=True):
        handling.assign(thing, person, author=ana)
    client = browser(ana)
    assert [line.count("assigned to") for line in lines(client)] == [1, 1, 1]
    User.objects.filter(pk=eva.pk).update(is_active=False)
    User.objects.filter(pk=ida.pk).update(is_staff=False)
    for address in (TODO, DASHBOARD):
        assert [line.count("assigned to uma") for line in lines(client, address)] == [0, 0, 1]
    uma.delete()
    assert not any("assigned" in line for line in lines(client))
    # The project may have replaced its user model. A key of the earlier one finds no user.
    Todo.objects.update(assignee="a-uuid-perhaps")
    assert not any("assigned" in line for line in lines(client))
    # A key that is stored as its hash cannot be asked for.
    Todo.objects.update(assignee="f" * 64)
    assert all("assigned to" in line for line in lines(client))


def test_the_history_of_the_object_says_who_did_what() -> None:
    payment, operation = on_hold(), rows.operation(state=OperationState.UNKNOWN)
    order = ordered("ORD-1", paid_at=NOW)
    ana = browser(user("ana", *HANDLE, "view_order", "change_operation"))
    eva = user("eva", *HANDLE)
    for number in range(3):
        press(ana, form(ana, number=number), do="assign", name="eva")
        press(ana, form(ana, number=number), do="snooze", days="1")
        press(ana, form(ana, f"{TODO}?view=snoozed"), do="snooze", days="0")
    given = form(browser(eva))
    for second in (1, 2):
        with time_machine.travel(NOW + timedelta(seconds=second), tick=False):
            press(browser(eva), given, do="done", note="called Ana Rojas")
    done = {"account": "default", "view": "done", "do": "put-back", "id": str(Todo.objects.get(note__gt="").pk)}
    press(ana, done)
    shared = ["Assigned to eva.", "Snoozed until 2026-05-21 12:00:00.", "It is shown again."]
    told = {
        obj.pk: [
            f"{entry.user}: {entry.get_change_message()}"
            for entry in LogEntry.objects.filter(object_id=str(obj.pk)).order_by("pk")
        ]
        for obj in (payment, operation, order)
    }
    expected = [f"ana: To do: {words}" for words in shared]
    end = ["eva: To do: Done. The note is kept.", "ana: To do: It is on the list again, unless it is over."]
    assert told == {payment.pk: [*expected, *end], operation.pk: expected, order.pk: expected}
    assert "eva: To do: Done." in page(ana, url("payment", "change", payment.pk))


def test_a_double_click_leaves_one_entry_in_the_history() -> None:
    payment = on_hold()
    ana = browser(user("ana", *HANDLE))
    user("eva", *HANDLE)
    given = form(ana)
    back = {"account": "default", "view": "done", "do": "put-back"}
    for clicked in (
        {**given, "do": "assign", "name": "eva"},
        {**given, "do": "snooze", "days": "1"},
        {**given, "do": "snooze", "days": "0"},
        {**given, "do": "assign"},
        {**given, "do": "done", "note": "called the bank"},
        back,
    ):
        if clicked is back:
            clicked["id"] = str(Todo.objects.get().pk)
        told = set()
        for second in (0, 2):
            with time_machine.travel(NOW + timedelta(seconds=second), tick=False):
                told.add(press(ana, clicked))
        assert len(told) == 1
    assert [entry.get_change_message() for entry in LogEntry.objects.filter(object_id=payment.pk).order_by("pk")] == [
        "To do: Assigned to eva.",
        "To do: Snoozed until 2026-05-21 12:00:00.",
        "To do: It is shown again.",
        "To do: It is assigned to nobody.",
        "To do: Done. The note is kept.",
        "To do: It is on the list again, unless it is over.",
    ]
    # Another period, or another person, is another click.
    for further in ({"do": "snooze", "days": "1"}, {"do": "snooze", "days": "3"}, {"do": "assign", "name": "eva"}):
        press(ana, {**given, **further})
    assert LogEntry.objects.filter(object_id=payment.pk).count() == 9


def test_what_happens_anew_is_assigned_to_nobody() -> None:
    payment = on_hold()
    ana = user("ana", *HANDLE)
    handling.assign(things()[0], ana, author=ana)
    became(payment, "succeeded", ago(hours=1))
    became(payment, "on_hold", ago(minutes=5))
    assert "assigned" not in lines(browser(ana))[0]


# Erasing.


def test_an_erasure_empties_the_notes_and_keeps_who_did_it() -> None:
    payment = on_hold(payer={"name": "Ana Soto"})
    twice = [paid("ORD-9", amount_received=1050, payer={"name": "Eva Paz"}) for _tab in range(2)]
    reconciliation.report_doubles("default")
    for thing in things():
        handling.done(thing, "called Ana Soto", author="7:fina")
    erased = erase(payment, *twice)
    assert erased.done["note of something done"] == 2
    assert {(mark.note, mark.done_by) for mark in Todo.objects.all()} == {("", "7:fina")}


def test_a_note_about_an_erased_payer_is_not_kept() -> None:
    payment = on_hold(payer={"name": "Ana Soto"})
    erase(payment)
    ana = browser(user("ana", *HANDLE, "view_personal_data"))
    assert "erased" in lines(ana)[0]
    assert press(ana, form(ana), do="done", note="called Ana Soto") == "Done."
    assert Todo.objects.get().note == ""


def test_an_erasure_empties_the_note_about_a_refused_call() -> None:
    ana = browser(user("ana", *HANDLE, "view_operation", "view_personal_data"))
    payment = rows.payment()
    calls = [
        refused(operation="create_payout", arguments={"destination": {"holder_name": "Ana Soto"}}),
        refused(operation="create_refund", target_id=payment.pk),
    ]
    for _call in calls:
        assert press(ana, form(ana), do="done", note="called Ana Soto") == "Done. The note is kept."
    erase(calls[0], payment)
    assert [mark.note for mark in Todo.objects.all()] == ["", ""]
    Todo.objects.all().delete()
    for _call in calls:
        assert press(ana, form(ana), do="done", note="called Ana Soto") == "Done."
    assert [mark.note for mark in Todo.objects.all()] == ["", ""]


def test_an_erasure_of_what_a_refused_call_made_all_the_same_empties_its_note() -> None:
    ana = browser(user("ana", *HANDLE, "view_operation", "view_personal_data"))
    call = refused(operation="create_payout", arguments={"destination": {"holder_name": "Ana Soto"}})
    press(ana, form(ana), do="done", note="called Ana Soto")
    made = rows.payout(merchant_reference=call.pk)
    Operation.objects.update(state=OperationState.DONE, result_kind="payout", result_id=made.pk)
    erase(made)
    assert Todo.objects.get().note == ""


def test_the_menu_has_the_list_for_people_who_see_something_in_it() -> None:
    for codename, is_there in (("view_payment", True), ("view_balance", False)):
        assert (f'href="{TODO}"' in page(browser(user(codename, codename)), "/admin/")) is is_there


def test_orders_without_a_page_in_the_admin_have_no_link(monkeypatch: pytest.MonkeyPatch, boss: Client) -> None:
    registry: Any = admin.site._registry
    ordered("ORD-1", paid_at=NOW)
    monkeypatch.delitem(registry, Order)
    assert len(lines(boss)) == 1
    assert "/shop/order/" not in page(boss, TODO)
    assert kinds() == ["without_payment"]


@pytest.mark.parametrize("reference", ["<script>x</script>", "A\u202eB"])
def test_references_are_shown_as_text(boss: Client, reference: str) -> None:
    ordered(reference)
    paid(reference)
    assert len(lines(boss)) == 1
    assert reference not in page(boss, TODO)
