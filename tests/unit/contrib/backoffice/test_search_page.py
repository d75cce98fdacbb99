"""One search over everything, and each list's own: what people have in hand, and who may find what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.html import strip_tags

from payments_integration.admin.lists import filters
from payments_integration.contrib.backoffice import index, search as terms
from payments_integration.models import Payment, Refund, deletion_allowed
from tests.factories import rows
from tests.unit.admin.conftest import page, url
from tests.unit.contrib.backoffice.test_search import found

SEARCH = reverse("admin:payments_integration_payment_search")
PAYER = {"name": "José Ángel Núñez", "email": "Jose.Nunez@Example.com", "document": {"type": "RUT", "number": "1-9"}}


@pytest.fixture
def scene(db: None) -> dict[str, Any]:
    """One object of each kind by the same person, and another payment."""
    pay = rows.payment(
        id="pay_wanted", payer=PAYER, amount=123450, amount_received=0, merchant_reference="order-77",
        next_action={"type": "voucher", "voucher_code": "5555-6666", "qr_payload": "00020126580014br.gov.bcb.pix"},
    )  # fmt: skip
    made = {
        "payment": pay,
        "payout": rows.payout(id="pout_wanted", destination={"holder_name": "José Núñez", "account_number": "000-42"}),
        "refund": rows.refund(id="ref_wanted", payment=pay, amount=123450),
        "depositreference": rows.deposit_reference(id="dep_wanted", details={"reference": "NUNEZ 1234"}),
        "operation": rows.operation(id="op_wanted", merchant_reference="order-77", target_id="pay_wanted"),
    }
    rows.payment(payer={"name": "Pedro Nuñoa"}, amount=5, amount_received=5, merchant_reference="order-8")
    index.rebuild("default")
    return made


def everywhere(client: Client, text: str) -> set[str]:
    response = client.get(SEARCH, {"q": text})
    assert response.status_code == 200
    ids = "".join(row[-1] for table in response.context["tables"] for row in table.rows)
    return {name for name in ("pay", "pout", "ref", "dep", "op") if f">{name}_wanted<" in ids}


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("nunez", {"pay", "pout", "ref", "dep"}),
        ("NÚÑEZ josé", {"pay", "pout", "ref"}),
        ("jose.nunez@ex", {"pay", "ref"}),
        ("nunez@example.com", {"pay", "ref"}),
        ("1-9", {"pay", "ref"}),
        ("5555 6666", {"pay", "ref"}),
        ("00020126580014br.gov.bcb.pix", {"pay", "ref"}),
        ("000-42", {"pout"}),
        ("nunez 1234", {"dep"}),
        ("order-77", {"pay", "ref", "op"}),
        ("77", {"pay", "ref"}),
        ("1,234.50", {"pay", "ref"}),
        ("1,234.50 nunez", {"pay"}),
        ("pay_wanted", {"pay", "ref", "op"}),
        ("pay_w", {"pay"}),
        ("op_w", {"op"}),
        ("ref_wan", {"ref"}),
        ("nunez pedro", set()),
        ("1,234.51", set()),
        ("unez", set()),
    ],
)
def test_one_search_finds_every_kind(boss: Client, scene: dict[str, Any], text: str, ids: set[str]) -> None:
    assert everywhere(boss, text) == ids


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("payment", "nunez jose"), ("payment", "77"), ("payment", "1,234.50"), ("payment", "5555-6"),
        ("payout", "nunez"), ("payout", "00042"), ("refund", "USD 1234.50"), ("refund", "pay_wanted"),
        ("refund", "nunez jose"), ("refund", "77"),
        ("depositreference", "nunez"), ("depositreference", "1234"),
    ],
)  # fmt: skip
def test_each_list_finds_its_own(boss: Client, scene: dict[str, Any], model: str, text: str) -> None:
    assert found(boss, model, text) == {scene[model].pk}


@pytest.mark.parametrize("text", ["O'Brien", "o\u2019brien maría", "Pérez-Gómez", "perez gomez", "maria perez-gomez"])
def test_names_are_found_as_they_are_written(boss: Client, db: None, text: str) -> None:
    rows.payment(id="pay_wanted", payer={"name": "María O'Brien Pérez-Gómez"})
    rows.payment(payer={"name": "María Pérez"})
    index.rebuild("default")
    assert everywhere(boss, text) == {"pay"}


def test_an_amount_is_read_in_the_users_language(boss: Client, scene: dict[str, Any]) -> None:
    for language, text in (("es", "1.234,50"), ("pt-br", "1.234,50"), ("en", "1,234.50")):
        response = boss.get(url("payment", "changelist"), {"q": text}, headers={"accept-language": language})
        assert [row.pk for row in response.context["cl"].result_list] == ["pay_wanted"], language


PERSONAL = ("nunez", "jose.nunez@example.com", "1-9", "5555-6666", "00020126580014br.gov.bcb.pix", "000-42", "19")


@pytest.mark.parametrize("text", PERSONAL)
def test_personal_data_is_found_only_with_the_permission(
    staff: Callable[..., Client], scene: dict[str, Any], text: str
) -> None:
    views = [f"view_{model}" for model in scene]
    without, with_it = staff(*views), staff(*views, "view_personal_data")
    assert everywhere(without, text) == set()
    assert everywhere(with_it, text) != set()
    assert "only for users who may see personal data" in page(without, f"{SEARCH}?q={text}")
    for model in ("payment", "payout", "refund", "depositreference"):
        assert found(without, model, text) == set()
    assert everywhere(without, "order-77") == {"pay", "ref", "op"}


@pytest.mark.parametrize("model", ["payment", "payout", "refund", "depositreference", "operation"])
def test_the_search_shows_only_what_the_user_may_see(
    staff: Callable[..., Client], scene: dict[str, Any], model: str
) -> None:
    client = staff(f"view_{model}", "view_personal_data")
    prefix = scene[model].pk.partition("_")[0]
    for text in ("nunez", "order-77", "1,234.50", "pay_wanted", f"{prefix}_wanted"):
        assert everywhere(client, text) <= {prefix}, text
    assert everywhere(client, f"{prefix}_wanted") == {prefix}
    assert staff("view_event").get(SEARCH).status_code == 403


def test_a_projects_list_may_select_every_relation(
    boss: Client, scene: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for model in (Payment, Refund):
        monkeypatch.setattr(type(admin.site.get_model_admin(model)), "list_select_related", True)
    rows.refund(payment_id="pay_later")
    assert everywhere(boss, "order-77") == {"pay", "ref", "op"}
    assert "pay_later" in page(boss, f"{SEARCH}?q=pay_later")


def test_a_search_finds_only_what_a_projects_list_shows(
    boss: Client, scene: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def limited(self: Any, request: Any) -> Any:
        return admin.ModelAdmin.get_queryset(self, request).filter(account="second")

    monkeypatch.setattr(type(admin.site.get_model_admin(Payment)), "get_queryset", limited)
    for text in ("nunez", "pay_w", "order-77", "1,234.50"):
        assert "pay" not in everywhere(boss, text), text
    Payment.objects.update(account="second")
    assert "pay" in everywhere(boss, "pay_w")


def test_a_refund_is_not_found_by_the_amount_of_its_payment(boss: Client, db: None) -> None:
    paid = rows.payment(amount=123450, payer=PAYER)
    refund = rows.refund(payment=paid, amount=100)
    index.rebuild("default")
    assert found(boss, "refund", "nunez") == {refund.pk}
    assert found(boss, "refund", "1,234.50") == set()


def test_the_dashboard_has_a_search_box(boss: Client, staff: Callable[..., Client]) -> None:
    dashboard = reverse("admin:app_list", args=["payments_integration"])
    for client in (boss, staff("view_refund")):
        assert f'action="{SEARCH}"' in page(client, dashboard)
    assert SEARCH not in page(staff("view_event"), dashboard)


def test_an_empty_result_says_what_was_searched_and_what_would_match(boss: Client, scene: dict[str, Any]) -> None:
    html = page(boss, f"{SEARCH}?q=nobody+<b>")
    assert "Nothing matches “nobody &lt;b&gt;”" in html
    for words in ("payments, payouts, refunds, deposit references, operations", "1,234.50", "QR codes"):
        assert words in html
    html = page(boss, f"{url('payment', 'changelist')}?q=nobody")
    assert "Nothing in this list matches “nobody”" in html
    assert "1,234.50" in html
    assert f'href="{SEARCH}?q=nobody"' in html
    assert "Nothing in this list" not in page(boss, f"{url('payment', 'changelist')}?q=nunez")
    assert "Nothing matches" not in page(boss, SEARCH)


@pytest.mark.parametrize("text", ["nunez", "jose nunez 1,234.50 x y z", "pay_wanted", "5555 6666 7777 8888 9999 0000"])
def test_a_page_takes_at_most_twelve_statements(
    staff: Callable[..., Client], scene: dict[str, Any], text: str
) -> None:
    client = staff(*(f"view_{model}" for model in scene), "view_personal_data")
    for address in (SEARCH, *(url(model, "changelist") for model in scene)):
        client.get(address, {"q": text})
        with CaptureQueriesContext(connection) as queries:
            client.get(address, {"q": text})
        assert len(queries) <= 12, (address, [query["sql"][:90] for query in queries])


def test_only_the_newest_rows_are_shown_and_the_list_has_the_others(boss: Client) -> None:
    made = [rows.payment(payer={"name": "Ana"}).pk for _ in range(12)]
    index.rebuild("default")
    html = page(boss, f"{SEARCH}?q=ana")
    assert [pk for pk in made if f">{pk}<" in html] == made[2:]
    assert html.index(made[-1]) < html.index(made[-2])
    assert f'href="{url("payment", "changelist")}?q=ana"' in html


@pytest.mark.parametrize("address", [SEARCH, url("payment", "changelist")])
def test_a_search_that_finds_too_much_says_so(boss: Client, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        rows.payment(id=f"pay_{number}", payer={"name": f"Ana {'Rojas' if number == 3 else 'Soto'}"})
    index.rebuild("default")
    monkeypatch.setattr(terms, "_MAX_ENTRIES", 4)
    assert "not all are shown" in page(boss, f"{address}?q=ana")
    assert "not all are shown" in page(boss, f"{address}?q=ana+soto")
    # A rare word makes the search complete, however frequent the other one is.
    html = page(boss, f"{address}?q=ana+rojas")
    assert "not all are shown" not in html
    assert ">pay_3<" in html
    assert ">pay_2<" not in html
    monkeypatch.undo()
    assert "not all are shown" not in page(boss, f"{address}?q=ana")
    monkeypatch.setattr(terms, "MAX_OBJECTS", 4)
    assert "not all are shown" in page(boss, f"{address}?q=ana")
    assert "not all are shown" not in page(boss, f"{address}?q=rojas")


def test_many_rows_with_one_reference_are_all_found(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "MAX_IDS", 3)
    monkeypatch.setattr(terms, "MAX_OBJECTS", 3)
    made = {rows.payment(merchant_reference="same").pk for _ in range(5)}
    index.rebuild("default")
    assert found(boss, "payment", "same") == made
    assert "not all are shown" not in page(boss, f"{url('payment', 'changelist')}?q=same")


def test_odd_texts_are_no_error(boss: Client) -> None:
    rows.payment()
    for text in (
        "\x00",
        "'",
        '"',
        "\\",
        "%",
        "_",
        "a" * 5000,
        "\U0010ffff",
        "🦙",
        "\u202e",
        "  ",
        "{{ 1 }}",
        "$",
        "1" * 99,
    ):
        assert boss.get(SEARCH, {"q": text}).status_code == 200


def test_the_terms_of_a_row_that_is_gone_find_nothing(boss: Client, scene: dict[str, Any]) -> None:
    with deletion_allowed():
        Payment.objects.filter(pk="pay_wanted").delete()
    assert everywhere(boss, "jose") == {"pout"}


def test_the_results_say_who_and_how(staff: Callable[..., Client], scene: dict[str, Any]) -> None:
    def cells(client: Client) -> dict[str, list[str]]:
        tables = client.get(SEARCH, {"q": "pay_wanted"}).context["tables"]
        return {str(table.title): [str(cell) for cell in table.rows[0]] for table in tables}

    seen = ("view_payment", "view_refund")
    shown = cells(staff(*seen, "view_personal_data"))
    assert url("payment", "change", "pay_wanted") in shown["Payments"][0]
    assert "José Ángel Núñez" in shown["Payments"][2]
    assert "José Ángel Núñez" in shown["Refunds"][2]
    assert shown["Payments"][4]
    masked = cells(staff(*seen))
    assert [masked["Payments"][2], masked["Refunds"][2]] == ["•••", "•••"]
    assert masked["Payments"][4] == shown["Payments"][4]


def test_the_results_say_what_was_refunded_and_why_it_failed(staff: Callable[..., Client], db: None) -> None:
    same = {"merchant_reference": "order-9", "amount": 500, "currency": "CLP"}
    rows.payment(amount_received=500, refunded_amount=500, **same)
    rows.payment(amount_received=500, **same)
    rows.payout(status="failed", failure_reason="account closed", **same)
    index.rebuild("default")

    def statuses(client: Client) -> list[list[str]]:
        tables = client.get(SEARCH, {"q": "order-9"}).context["tables"]
        return [[strip_tags(row[1]) for row in table.rows] for table in tables]

    seen = ("view_payment", "view_payout")
    payments, payouts = statuses(staff(*seen, "view_personal_data"))
    assert sorted(payments) == ["succeeded", "succeeded refunded in full"]
    assert payouts == ["failed the account is closed"]
    assert statuses(staff(*seen))[1] == ["failed"]
