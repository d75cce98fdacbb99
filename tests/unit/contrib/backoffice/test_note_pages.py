"""Notes on an object's page: who reads them, who adds one, and what becomes of a mistake."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client
from django.utils.html import escape

from payments_integration.admin.shared.sections import ROWS
from payments_integration.contrib.backoffice import notes
from payments_integration.contrib.backoffice.models import Note
from tests.factories import rows
from tests.unit.admin.conftest import page, url

pytestmark = pytest.mark.any_database

NOTED = ("payment", "payout", "refund", "depositreference")


def section(html: str) -> str:
    """The form for a note and the link to older ones; empty if the page has none."""
    return html.partition('id="pi-notes"')[2].partition("</section>")[0]


def story(html: str) -> str:
    """What happened, with the notes among it."""
    return html.partition('id="pi-story"')[2].partition("</section>")[0]


def key(html: str) -> str:
    found = re.search(r'name="idempotency_key" value="([^"]+)"', section(html) or html)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("model", NOTED)
def test_a_note_is_added_on_the_page_and_shown_with_author_and_time(boss: Client, model: str) -> None:
    obj = rows.MAKERS[model]()
    address, add = url(model, "change", obj.pk), url(model, "add-note", obj.pk)
    shown = page(boss, address)
    assert f'action="{add}"' in section(shown)
    response = boss.post(
        add, {"text": "Called <Ana>.\r\n\u202eShe waits.", "idempotency_key": key(shown)}, follow=True
    )
    assert response.redirect_chain == [(address, 302)]
    after = story(response.content.decode())
    note = Note.objects.get()
    assert "Called &lt;Ana&gt;.\nShe waits." in after
    assert "boss" in after
    assert f"{note.created_at:%Y-%m-%d}" in after
    assert f"{User.objects.get().pk}:boss" not in after
    # The history in the admin is for everyone who sees the page.
    assert not LogEntry.objects.exists()


def test_a_double_click_adds_one_note_and_a_new_page_another(boss: Client) -> None:
    obj = rows.payment()
    add = url("payment", "add-note", obj.pk)
    first = key(page(boss, url("payment", "change", obj.pk)))
    for _ in range(2):
        assert boss.post(add, {"text": "Called.", "idempotency_key": first}).status_code == 302
    assert Note.objects.count() == 1
    again = key(page(boss, url("payment", "change", obj.pk)))
    assert again != first
    boss.post(add, {"text": "Called.", "idempotency_key": again})
    assert Note.objects.count() == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "The note is empty. Write something first."),
        (" \n", "The note is empty. Write something first."),
        ("ñ" * 2001, "This must have at most 2000 characters."),
    ],
)
def test_a_mistake_is_named_at_the_field_and_what_was_typed_stays(boss: Client, text: str, says: str) -> None:
    obj = rows.payment()
    response = boss.post(url("payment", "add-note", obj.pk), {"text": text, "idempotency_key": "k-1"})
    html = response.content.decode()
    assert response.status_code == 200
    assert "<title>Error:" in html
    assert says in html.split("</ul>", 1)[0] + html
    assert '<label for="pi-note-text">Note' in html
    assert "errorlist" in html
    assert escape(text).strip() in html
    assert key(html) == "k-1"
    assert not Note.objects.exists()
    # The corrected form of the same page.
    assert boss.post(url("payment", "add-note", obj.pk), {"text": "ñ", "idempotency_key": "k-1"}).status_code == 302
    assert Note.objects.get().text == "ñ"


def test_what_was_typed_stays_also_if_the_object_was_erased_meanwhile(boss: Client) -> None:
    obj = rows.payment(erased_at=rows.AT)
    html = boss.post(url("payment", "add-note", obj.pk), {"text": "Called.", "idempotency_key": "k"}).content.decode()
    assert "Its personal data was erased, so no notes can be added." in html
    assert "Called." in html
    shown = section(page(boss, url("payment", "change", obj.pk)))
    assert "<form" not in shown
    assert "no notes can be added" in shown


def test_the_newest_are_shown_and_the_list_has_all_of_them(boss: Client) -> None:
    obj, other = rows.payment(), rows.payment()
    for number in range(ROWS + 1):
        rows.note(obj, text=f"<{number:02}>", created_at=rows.AT + timedelta(seconds=number))
    rows.note(other, text="about another")
    html = page(boss, url("payment", "change", obj.pk))
    shown = section(html)
    order = re.findall(r"&lt;(\d\d)&gt;", story(html))
    assert order == [f"{number:02}" for number in range(1, ROWS + 1)], "in the order in which they were written"
    assert "about another" not in html
    more = f"{url('note', 'changelist')}?q={obj.pk}"
    assert f'href="{more}"' in shown
    listed = page(boss, more)
    assert listed.count("pi-lines") == ROWS + 1
    assert f'href="{url("payment", "change", obj.pk)}"' in listed
    Note.objects.filter(text="<25>")._raw_delete("default")  # now there are as many as a page shows
    assert "Show all" not in section(page(boss, url("payment", "change", obj.pk)))


@pytest.mark.promise(7)
def test_notes_are_personal_data(staff: Callable[..., Client]) -> None:
    obj = rows.payment()
    note = rows.note(obj, text="Ana called")
    addresses = [url("payment", "change", obj.pk), url("note", "changelist"), url("note", "change", note.pk)]
    sees, sees_that = staff("view_payment", "view_note", "view_personal_data"), staff("view_payment", "view_note")
    for address in addresses:
        assert "Ana called" in page(sees, address)
        html = page(sees_that, address)
        assert "Ana called" not in html
        assert "•••" in html
        assert re.search(r">ana( noted)?<", html)  # the author


def test_who_may_neither_view_nor_add_sees_no_notes(staff: Callable[..., Client]) -> None:
    obj = rows.payment()
    rows.note(obj, text="Ana called")
    address = url("payment", "change", obj.pk)
    assert section(page(staff("view_payment", "view_personal_data"), address)) == ""
    only_views = section(page(staff("view_payment", "view_note"), address))
    assert "<form" not in only_views
    only_adds = section(page(staff("view_payment", "view_personal_data", "add_note"), address))
    assert "<form" in only_adds
    assert "Ana called" not in only_adds
    assert "pi-timeline" not in only_adds


def test_who_may_not_view_the_object_comes_to_the_index(staff: Callable[..., Client]) -> None:
    client = staff("add_note")
    response = client.post(url("payment", "add-note", rows.payment().pk), {"text": "x", "idempotency_key": "k"})
    assert (response.status_code, response.headers["Location"]) == (302, "/admin/")
    assert Note.objects.exists()


def test_an_erased_note_is_shown_as_erased(boss: Client) -> None:
    obj = rows.payment()
    note = rows.note(obj, text="")
    for address in (url("payment", "change", obj.pk), url("note", "changelist"), url("note", "change", note.pk)):
        assert "erased" in page(boss, address)


@pytest.mark.promise(7)
def test_the_text_of_a_note_is_in_no_export_and_no_search(boss: Client) -> None:
    obj = rows.payment()
    notes.add(obj, "Zacarias-4711", author="desk")
    for model in ("payment", "event", "operation"):
        exported = boss.get(url(model, "export"), {"format": "csv"})
        content = b"".join(exported)
        assert b"Zacarias" not in content
    found = boss.get(url("payment", "changelist"), {"q": "Zacarias-4711"})
    assert not found.context["cl"].result_list
    everywhere = page(boss, url("payment", "search") + "?q=Zacarias-4711")
    assert obj.pk not in everywhere


@pytest.mark.promise(7)
def test_no_answer_of_the_api_contains_a_note(boss: Client) -> None:
    notes.add(rows.payment(id="pay_1"), "Zacarias-4711", author="desk")
    for path in ("payments/", "payments/pay_1/", "events/", "operations/"):
        response = boss.get(f"/payments/api/{path}")
        assert response.status_code == 200, path
        assert b"Zacarias" not in response.content, path


def test_the_list_of_notes_finds_an_object_and_days_by_index(boss: Client) -> None:
    obj = rows.payout()
    mine = rows.note(obj, created_at=rows.AT)
    rows.note(created_at=rows.AT + timedelta(days=3))
    for query in (f"q={obj.pk}", f"from={rows.AT:%Y-%m-%d}&to={rows.AT:%Y-%m-%d}"):
        listed = boss.get(f"{url('note', 'changelist')}?{query}").context["cl"].result_list
        assert [row.pk for row in listed] == [mine.pk], query


def test_other_methods_are_refused(boss: Client) -> None:
    assert boss.put(url("payment", "add-note", rows.payment().pk)).status_code == 405
    assert boss.post(url("payment", "add-note", "pay_absent"), {"text": "x"}).status_code == 404
