"""Every page shows its rows, odd ones too, and no secret."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.widgets import ForeignKeyRawIdWidget
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from payments_integration.db.encryption import encrypt
from payments_integration.models import (
    AccountState,
    DoublePayment,
    DueAttention,
    DueRefresh,
    Erasure,
    ObjectDispatch,
    Payment,
    Refund,
    WebhookEndpoint,
)
from tests.factories import rows
from tests.unit.admin.conftest import page, places_of, url

pytestmark = pytest.mark.slow


def test_every_model_has_its_page() -> None:
    without = {AccountState, DoublePayment, DueAttention, DueRefresh, Erasure, ObjectDispatch}
    models = set(apps.get_app_config("payments_integration").get_models()) - without
    assert {model._meta.model_name for model in models} == {*rows.MAKERS} - {"note"}
    assert all(admin.site.is_registered(model) for model in models)


@pytest.mark.parametrize("model", rows.MAKERS)
def test_a_plain_row_is_listed_and_shown(boss: Client, model: str) -> None:
    row = rows.MAKERS[model]()
    address = url(model, "change", row.pk)
    assert f'href="{address}' in page(boss, url(model, "changelist"))
    html = page(boss, address)
    # Nothing can be changed, so "View" says nothing.
    assert "| View " not in html
    assert "<h1>View " not in html
    assert "payments_integration/admin.css" in page(boss, url(model, "history", row.pk))


def test_odd_rows_are_listed_and_shown_and_their_markup_is_escaped(boss: Client) -> None:
    for row in rows.odd_rows():
        for address in places_of(row):
            html = page(boss, address)
            assert "<script>alert" not in html, address
            assert 'href="javascript' not in html.lower(), address


def test_odd_values_stay_readable(boss: Client) -> None:
    row = rows.payment(status="quarked", metadata={"note": "<b>x</b> 漢字"}, merchant_reference="Ñandú")
    html = page(boss, url("payment", "change", row.pk))
    assert "quarked" in html
    assert "&lt;b&gt;x&lt;/b&gt; 漢字" in html
    assert "quarked" in page(boss, url("payment", "changelist"))
    assert "Ñandú" in page(boss, url("payment", "changelist"))


def test_control_and_direction_characters_of_payers_are_escaped(boss: Client) -> None:
    row = rows.payment(merchant_reference="a\u202eb\x07c", payer={"name": "d\u2066e"})
    html = page(boss, url("payment", "change", row.pk)) + page(boss, url("payment", "changelist"))
    assert "a\\u202eb\\u0007c" in html
    assert "d\\u2066e" in html
    assert not set("\u202e\u2066\x07") & set(html)


@pytest.mark.case(84)
@pytest.mark.parametrize(
    ("address", "is_link"),
    [
        ("https://pay.example/checkout?a=1&b=2", True),
        ("HTTP://127.0.0.1:8000/pay", True),
        ("javascript:alert(1)", False),
        ("JaVaScRiPt:alert(1)", False),
        ("java\nscript:alert(1)", False),
        (" javascript:alert(1)", False),
        ("data:text/html,x", False),
        ("//evil.example", False),
        ("https:evil", False),
        ("https://pay.example@evil.example/checkout", False),
        ('https://x.example/" onclick="x', False),
    ],
)
def test_only_web_addresses_become_links(boss: Client, address: str, is_link: bool) -> None:
    row = rows.payment(checkout_url=address)
    html = page(boss, url("payment", "change", row.pk))
    shown = html.split("field-checkout_link")[1].split("form-row")[0]
    assert ("<a " in shown) is is_link
    assert 'onclick="' not in shown


def test_amounts_have_the_decimals_of_their_currency(boss: Client) -> None:
    rows.payment(currency="CLP", amount=12345, amount_received=12345)
    rows.payment(currency="USD", amount=12345, amount_received=12345)
    html = page(boss, url("payment", "changelist"))
    assert "CLP\xa012,345<" in html
    assert "USD\xa0123.45<" in html


def test_the_refundable_amount_leaves_out_refunds_in_progress(boss: Client) -> None:
    row = rows.payment(currency="USD", amount=1000, amount_received=1000, status="succeeded", refunded_amount=0)
    address, refund_page = url("payment", "change", row.pk), f'href="{url("payment", "refund", row.pk)}"'

    def refundable() -> str:
        return page(boss, address).split("Left")[1].split("</tr>")[0]

    rows.refund(payment=row, amount=300, currency="USD", status="processing")
    assert "USD\xa07.00" in refundable()
    rows.operation(operation="create_refund", target_id=row.pk, amount=600, currency="USD", state="due")
    assert "USD\xa01.00" in refundable()
    assert refund_page in page(boss, address)
    rows.operation(operation="create_refund", target_id=row.pk, amount=200, currency="USD", state="unknown")
    assert "USD\xa0\N{MINUS SIGN}1.00" in refundable(), "more is asked for than there is"
    assert refund_page not in page(boss, address)


def test_amounts_beyond_floats_are_exact(boss: Client) -> None:
    row = rows.payment(currency="USD", amount=2**63 - 1)
    assert "USD\xa092,233,720,368,547,758.07" in page(boss, url("payment", "change", row.pk))


@pytest.mark.promise(7)
def test_secrets_and_their_tokens_are_never_shown(boss: Client) -> None:
    row = rows.endpoint()
    made = rows.operation(sent_to="hash-of-a-key", claim_token="claim-token")
    rows.account_state(account="default", claim_token="claim-token")
    for address in (
        url("webhookendpoint", "changelist"),
        url("webhookendpoint", "change", row.pk),
        url("operation", "change", made.pk),
        url("reconciliationrun", "technical"),
    ):
        html = page(boss, address)
        assert rows.SECRET not in html
        assert "hash-of-a-key" not in html
        assert "claim-token" not in html
    assert "secret known" in page(boss, url("webhookendpoint", "changelist")).lower()


def test_a_secret_that_no_key_can_read_is_not_called_known(boss: Client) -> None:
    row = rows.endpoint(secret_token=encrypt("whsec_it"))
    shown = re.compile(r'field-secret_shown"><img [^>]*alt="(True|False)"')
    assert shown.findall(page(boss, url("webhookendpoint", "changelist"))) == ["True"]
    WebhookEndpoint.objects.filter(pk=row.pk).update(secret_token="encrypted with a lost key")
    assert shown.findall(page(boss, url("webhookendpoint", "changelist"))) == ["False"]


def test_an_object_links_to_related_rows(boss: Client) -> None:
    pay = rows.payment()
    out = rows.payout()
    ref = rows.refund(payment=pay, payout=out)
    out.refund = ref
    out.save()
    event = rows.event(pay)
    step = rows.change(pay, event=event)
    asked = rows.operation(target_id=pay.pk, result_kind="refund", result_id=ref.pk)
    links = {
        "payment": url("payment", "change", pay.pk),
        "payout": url("payout", "change", out.pk),
        "refund": url("refund", "change", ref.pk),
        "event": url("event", "change", event.pk),
        "step": url("statuschange", "change", step.pk),
        "operation": url("operation", "change", asked.pk),
    }
    leads = {
        "payment": {"refund", "payout", "event", "step", "operation"},
        "refund": {"payment", "payout", "operation"},
        "payout": {"refund", "payment"},
        "event": {"payment", "step"},
        "step": {"payment", "event"},
        "operation": {"payment", "refund"},
    }
    for start, ends in leads.items():
        html = page(boss, links[start])
        assert {end for end in ends if f'href="{links[end]}"' in html} == ends, start


def test_a_reference_is_a_link_only_if_its_page_opens(staff: Callable[..., Client]) -> None:
    pay, out, balance = rows.payment(), rows.payout(), rows.balance()
    ref = rows.refund(payment=pay, payout=out)
    event = rows.event(balance)
    step = rows.change(pay, event=rows.event(pay))
    # The list of operations also shows it above the others.
    asked = rows.operation(target_id=pay.pk, result_kind="refund", result_id=ref.pk, state="needs_person")
    leads = {
        "refund": (ref, {"payment": pay.pk, "payout": out.pk}),
        "event": (event, {"balance": balance.currency}),
        "statuschange": (step, {"payment": pay.pk, "event": step.event_id}),
        "operation": (asked, {"payment": pay.pk, "refund": ref.pk}),
    }
    for name, (row, ends) in leads.items():
        for permissions in ([], [f"view_{end}" for end in ends]):
            client = staff(f"view_{name}", *permissions)
            for address in (url(name, "changelist"), url(name, "change", row.pk)):
                html = page(client, address)
                for end, shown in ends.items():
                    if shown in html:  # a list may have fewer columns than the page
                        assert (f'href="{url(end, "changelist")}' in html) == bool(permissions), (address, end)


def test_more_rows_ask_for_no_more_permissions(staff: Callable[..., Client], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    payments = type(admin.site.get_model_admin(Payment))
    usual = payments.has_view_permission
    monkeypatch.setattr(payments, "has_view_permission", lambda *args: asked.append(args) or usual(*args))
    client, counts = staff("view_refund"), []
    for _ in range(2):
        rows.refund(payment=rows.payment())
        asked.clear()
        page(client, url("refund", "changelist"))
        counts.append(len(asked))
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("may", [False, True])
@pytest.mark.parametrize("state", ["needs_person", "awaiting_approval"])
def test_the_panel_of_an_operation_links_to_the_payment_only_if_it_opens(
    staff: Callable[..., Client], state: str, may: bool
) -> None:
    pay = rows.payment()
    asked = rows.operation(operation="create_refund", target_id=pay.pk, amount=5, currency="USD", state=state)
    html = page(staff("view_operation", *(["view_payment"] if may else [])), url("operation", "change", asked.pk))
    assert pay.pk in html
    assert (f'href="{url("payment", "change", pay.pk)}"' in html) == may


@pytest.mark.parametrize("may", [False, True])
def test_the_technical_state_links_only_to_what_opens(staff: Callable[..., Client], may: bool) -> None:
    pay = rows.payment()
    DueRefresh.objects.create(account=pay.account, object_kind="payment", object_id=pay.pk, due_at=timezone.now())
    client = staff("view_reconciliationrun", "view_duerefresh", *(["view_payment"] if may else []))
    html = page(client, url("reconciliationrun", "technical"))
    assert pay.pk in html
    assert (f'href="{url("payment", "change", pay.pk)}"' in html) == may


def test_rows_of_another_account_do_not_mix(boss: Client) -> None:
    pay = rows.payment()
    other = rows.event(pay, account="second")
    assert other.pk not in page(boss, url("payment", "change", pay.pk))


def test_related_rows_need_their_view_permission(staff: Callable[..., Client]) -> None:
    pay = rows.payment()
    asked = rows.operation(target_id=pay.pk)
    event = rows.event(pay)
    html = page(staff("view_payment", "view_event"), url("payment", "change", pay.pk))
    assert event.pk in html
    assert asked.pk not in html


def test_long_tables_are_cut_and_link_to_the_list(boss: Client) -> None:
    pay = rows.payment()
    events = [rows.event(pay) for _ in range(55)]
    html = page(boss, url("payment", "change", pay.pk))
    assert f"{events[-1].pk}<" in html
    assert f"{events[0].pk}<" not in html
    assert f"{url('event', 'changelist')}?q={pay.pk}" in html
    assert f"{events[10].pk}<" in page(boss, f"{url('event', 'changelist')}?q={pay.pk}")


def test_an_event_is_indented_and_a_quarantined_one_shown_as_delivered(boss: Client) -> None:
    good = rows.event(body=b'{"a":{"b":1}}')
    assert "&quot;b&quot;: 1\n" in page(boss, url("event", "change", good.pk))
    odd = rows.event(body=b'{"a":1,"a":2}', state="quarantined", error="no id")
    html = page(boss, url("event", "change", odd.pk))
    assert "{&quot;a&quot;:1,&quot;a&quot;:2}" in html
    assert "no id" in html


def test_an_event_needs_the_permission_to_view_events(staff: Callable[..., Client]) -> None:
    row = rows.event()
    assert staff("view_payment", "view_personal_data").get(url("event", "change", row.pk)).status_code == 403
    page(staff("view_event"), url("event", "change", row.pk))


def test_the_heading_of_an_operation_says_what_how_much_and_where_it_stands(boss: Client) -> None:
    payout = rows.operation(operation="create_payout", state="awaiting_approval", amount=1050, currency="USD")
    cancel = rows.operation(operation="cancel_payment", amount=None, currency="")
    unknown = rows.operation(operation="<b>", state="<i>", amount=None, currency="")
    for row, heading in (
        (payout, "new payout · USD\xa010.50 · waits for approval"),
        (cancel, "cancel of a payment · done"),
        (unknown, "&lt;b&gt; · &lt;i&gt;"),
    ):
        html = page(boss, url("operation", "change", row.pk))
        assert f"<h2>{heading}</h2>" in html
        # The tab of the browser begins with it.
        assert f"<title>{heading} |" in html


def test_an_operation_shows_its_note_error_and_request_ids(boss: Client) -> None:
    row = rows.operation(
        state="needs_person", note="two refunds match", error={"code": "invalid_state"}, request_ids=["req_9", "req_8"]
    )
    html = page(boss, url("operation", "change", row.pk))
    for shown in ("a person must decide", "two refunds match", "invalid_state", "req_9, req_8", ">ana<"):
        assert shown in html


@pytest.mark.parametrize("zone", ["", " UTC"])
def test_people_are_shown_by_their_names(boss: Client, zone: str) -> None:
    uuid = "0f8fad5b-d9cb-469f-a165-70867728950e"
    note = f"2026-01-31 12:00:00{zone}: 2:ana approved it: 5:30 is fine\n    2026-01-31 12:00:00{zone}: no entry"
    row = rows.operation(actor="2:ana", approved_by=f"{uuid}:luz", note=note, state="needs_person")
    job = rows.operation(actor="job:nightly", state="needs_person")
    rows.erasure(actor="2:ana")
    for address in (
        url("operation", "change", row.pk), url("operation", "changelist"), url("reconciliationrun", "technical"),
    ):  # fmt: skip
        html = page(boss, address)
        assert "ana" in html
        assert "2:ana" not in html
        assert uuid not in html
    assert f"{zone}: ana approved it: 5:30 is fine" in page(boss, url("operation", "change", row.pk))
    assert "job:nightly" in page(boss, url("operation", "change", job.pk))


@pytest.mark.parametrize("state", ["quarantined", "pending"])
def test_who_may_replay_reads_why_an_event_cannot_be_applied(staff: Callable[..., Client], state: str) -> None:
    row = rows.event(
        body=b'{"data":{"payer":{"name":"Ana Rojas"}}}', state=state, error="$.data.payer is Ana Rojas, not a list"
    )
    html = page(staff("view_event", "replay_event"), url("event", "change", row.pk))
    assert "$.data.payer is •••, not a list" in html
    assert "Ana Rojas" not in html
    assert "Ana Rojas" in page(staff("view_event", "view_personal_data"), url("event", "change", row.pk))


def test_who_may_replay_reads_the_traceback_without_its_message(staff: Callable[..., Client]) -> None:
    trace = (
        'Traceback (most recent call last):\n  File "shop/handlers.py", line 7, in book\n    raise LookupError(who)\n'
    )
    row = rows.event(state="parked", error=f"{trace}LookupError: Ana Rojas\n")
    html = page(staff("view_event", "replay_event"), url("event", "change", row.pk))
    assert "shop/handlers.py&quot;, line 7, in book" in html
    assert "LookupError: •••" in html
    assert "Ana Rojas" not in html


def test_times_have_one_format(boss: Client) -> None:
    pay = rows.payment(created_at=rows.AT, expires_at=None)
    rows.event(pay, created_at=rows.AT)
    rows.balance(currency="CLP", updated_at=rows.AT)
    for model, pk in (("payment", pay.pk), ("balance", pay.pk)):
        html = page(boss, url(model, "changelist"))
        if model == "payment":
            html += page(boss, url(model, "change", pk))
        assert "2025-03-04 05:06:07" in html
        assert "March 4" not in html
        assert "5:06 a.m." not in html


@pytest.mark.parametrize("model", rows.MAKERS)
def test_no_page_has_a_time_in_another_format(boss: Client, model: str) -> None:
    row = rows.MAKERS[model]()
    for address in (url(model, "changelist"), url(model, "change", row.pk)):
        html = page(boss, address).split('id="changelist-filter"')[0]
        assert "a.m." not in html
        assert "p.m." not in html


def test_lists_are_sorted_by_their_time(boss: Client) -> None:
    first, second = rows.payment(), rows.payment()
    column = [str(getattr(name, "__name__", name)) for name in
              boss.get(url("payment", "changelist")).context["cl"].list_display].index("created_at")  # fmt: skip
    for order, expected in ((column, [first.pk, second.pk]), (-column, [second.pk, first.pk])):
        response = boss.get(url("payment", "changelist"), {"o": str(order)})
        assert [row.pk for row in response.context["cl"].result_list] == expected
    assert 'class="sortable column-created_at' in response.content.decode()


def test_countries_are_shown_in_the_words_of_the_filter(boss: Client) -> None:
    row, odd = rows.payment(country="CL"), rows.payment(country="ZZ")
    html = page(boss, url("payment", "changelist"))
    assert '<span class="pi-less">Chile</span>' in html
    assert '<span class="pi-less">ZZ</span>' in html
    rows.payout(country="CL")
    assert '<span class="pi-less">Chile</span>' in page(boss, url("payout", "changelist"))
    assert "Chile" in page(boss, url("payment", "change", row.pk))
    assert "ZZ" in page(boss, url("payment", "change", odd.pk))


@pytest.mark.parametrize(
    ("received", "refunded", "shown"),
    [
        (1000, 400, "refunded 40 %"),
        (1000, 1000, "refunded in full"),
        (1000, 1001, "refunded in full"),
        (0, 5, "refunded in full"),
        (10**6, 1, "refunded 1 %"),
        (10**6, 10**6 - 1, "refunded 99 %"),
        (1000, 0, ""),
        (1000, None, ""),
    ],
)
def test_the_refunded_share_is_shown_beside_the_status(
    boss: Client, received: int, refunded: int | None, shown: str
) -> None:
    rows.payment(amount_received=received, refunded_amount=refunded)
    html = page(boss, url("payment", "changelist"))
    cell = html.split('class="field-state_shown"')[1].split("</td>")[0]
    assert ("refunded" in cell) is bool(shown)
    assert shown in cell


def test_lists_show_the_age_and_the_exact_time(boss: Client) -> None:
    rows.payment(created_at=timezone.now() - timedelta(days=3, hours=4))
    html = page(boss, url("payment", "changelist")).replace("\xa0", " ")
    assert ' · 3 days ago">' in html
    assert '<time datetime="' in html
    rows.payment(created_at=timezone.now() + timedelta(seconds=20))
    assert ' · just now">' in page(boss, url("payment", "changelist"))


def test_the_list_of_operations_links_to_target_and_result(boss: Client) -> None:
    rows.operation(target_id="pay_7", result_kind="refund", result_id="ref_8")
    html = page(boss, url("operation", "changelist"))
    assert f'href="{url("payment", "change", "pay_7")}"' in html
    assert f'href="{url("refund", "change", "ref_8")}"' in html


def test_an_event_that_is_held_is_shown_and_found(boss: Client) -> None:
    row = rows.event(state="held")
    rows.event(state="done")
    assert found(boss, "event", "state=held") == {row.pk}
    html = page(boss, url("event", "changelist") + "?state=held")
    assert '<span class="pi-status pi-status-open">applied, dispatched when its window is complete</span>' in html


def test_erased_data_is_shown_as_erased(boss: Client) -> None:
    row = rows.payment(payer={}, erased_at=rows.AT)
    shown = page(boss, url("payment", "change", row.pk)).split("<h2>Payer</h2>")[1].split("</table>")[0]
    assert "erased" in shown


@pytest.mark.parametrize("model", rows.MAKERS)
def test_a_list_takes_as_many_queries_for_many_rows_as_for_one(boss: Client, model: str) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            page(boss, url(model, "changelist"))
        return len(queries)

    def fill() -> None:
        fields: dict[str, Any] = {}
        if model == "refund":
            fields["payment"] = rows.payment()
        rows.MAKERS[model](**fields)

    fill()
    page(boss, url(model, "changelist"))  # content types and the like are read once
    one = count()
    for _ in range(5):
        fill()
    assert count() == one
    # Over the list of operations stand those of three states.
    assert one <= (7 if model == "operation" else 5)


def test_lists_leave_large_fields_in_the_database(boss: Client) -> None:
    rows.event()
    with CaptureQueriesContext(connection) as queries:
        page(boss, url("event", "changelist"))
    assert not any('_event"."body"' in query["sql"] for query in queries)


def test_a_page_takes_as_many_queries_for_a_long_history_as_for_a_short_one(boss: Client) -> None:
    pay = rows.payment()

    def add() -> None:
        rows.refund(payment=pay, payout=rows.payout())
        rows.change(pay, event=rows.event(pay))
        rows.operation(target_id=pay.pk)
        rows.note(pay)

    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            page(boss, url("payment", "change", pay.pk))
        return len(queries)

    add()
    count()
    one = count()
    for _ in range(5):
        add()
    assert count() == one
    # With notes, and with a few models of the tests' merchants.
    assert one <= 21


def found(client: Client, model: str, query: str) -> set[Any]:
    response = client.get(f"{url(model, 'changelist')}?{query}")
    assert response.status_code == 200
    return {row.pk for row in response.context["cl"].result_list}


def test_filters_find_known_and_unknown_values(boss: Client) -> None:
    good = rows.payment(status="succeeded", country="CL", currency="CLP", method_family="wallet").pk
    odd = rows.payment(status="quarked", country="CL", account="second").pk
    assert found(boss, "payment", "status=succeeded") == {good}
    assert found(boss, "payment", "status=~other") == {odd}
    assert found(boss, "payment", "country=CL") == {good, odd}
    assert found(boss, "payment", "currency=CLP") == {good}
    assert found(boss, "payment", "method_family=wallet") == {good}
    assert found(boss, "payment", "account=second") == {odd}


@pytest.mark.parametrize("model", rows.MAKERS)
def test_every_filter_offered_works(boss: Client, model: str) -> None:
    response = boss.get(url(model, "changelist"))
    changes = response.context["cl"]
    for spec in changes.filter_specs:
        for choice in spec.choices(changes):
            assert boss.get(url(model, "changelist") + choice["query_string"]).status_code == 200


def test_search_takes_ids_and_references(boss: Client) -> None:
    first = rows.payment(id="pay_abc1", merchant_reference="order 12").pk
    second = rows.payment(id="pay_abc2", merchant_reference="order 13").pk
    assert found(boss, "payment", "q=pay_abc1") == {first}
    assert found(boss, "payment", "q=pay_abc") == {first, second}
    assert found(boss, "payment", "q=order+12") == {first}
    assert found(boss, "payment", "q=order") == set()
    assert found(boss, "payment", "q=%27%25_%00") <= {first, second}
    made = rows.refund(payment=Payment.objects.get(pk=first)).pk
    assert found(boss, "refund", f"q={first}") == {made}


def test_changes_are_newest_first(boss: Client) -> None:
    made = [rows.payment().pk for _ in range(3)]
    response = boss.get(url("payment", "changelist"))
    assert [row.pk for row in response.context["cl"].result_list] == made[::-1]


@pytest.mark.parametrize("model", ["payment", "event", "operation"])
@pytest.mark.parametrize("step", ["change", "history", "delete", "refresh", "replay", "refund"])
def test_an_address_with_a_nul_character_is_not_found(boss: Client, model: str, step: str) -> None:
    """PostgreSQL refuses to compare with such a text."""
    # Django redirects an unknown step to the row's page.
    assert boss.get(f"/admin/payments_integration/{model}/pay%00_1/{step}/", follow=True).status_code == 404


@pytest.mark.parametrize("raw", ["pay_22a", "pay_2f40", "pay_22_22"])
def test_a_link_that_django_does_not_quote_leads_to_the_row(boss: Client, raw: str) -> None:
    """Such as the one beside a field of ``raw_id_fields``."""
    rows.payment(id=raw, amount_received=1050)
    for page_name in ("", "change/", "history/", "refund/"):
        response = boss.get(f"{url('payment', 'changelist')}{raw}/{page_name}", follow=True)
        assert response.status_code == 200
        assert raw in response.content.decode(), page_name
    widget = ForeignKeyRawIdWidget(Refund._meta.get_field("payment").remote_field, admin.site)
    assert raw in boss.get(widget.label_and_url_for_value(raw)[1]).content.decode()
