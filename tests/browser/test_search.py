"""The search over everything, from the dashboard's box, in every language."""

from __future__ import annotations

import pytest

from payments_integration.testing import ProviderSandbox
from tests.browser import provider_data
from tests.browser.accessibility import grave
from tests.browser.conftest import Person, Visit, address
from tests.browser.test_dashboard import DASHBOARD

MAY = ("view_payment", "view_personal_data")


@pytest.mark.parametrize("locale", ["en", "es", "pt-BR"])
def test_a_payment_is_found_by_what_people_have_in_hand(
    visit: Visit, person: Person, provider: ProviderSandbox, locale: str
) -> None:
    payer = {"name": "José Núñez", "email": "jose@example.com"}
    wanted = provider_data.paid(provider, payer=payer, amount=123_450, merchant_reference="order-1")
    other = provider_data.paid(provider, payer={"name": "Ana Rojas"})
    visitor = visit(person("ana", *MAY), language=locale)
    amount = "123,450" if locale == "en" else "123.450"
    for text in ("nunez", "JOSE@", "order-1", f"núñez {amount}", f"CLP {amount}"):
        visitor.open(DASHBOARD)
        visitor.page.fill("#pi-search", text)
        visitor.press(".pi-search button")
        shown = visitor.find("#content").inner_text()
        assert wanted.pk in shown, text
        assert other.pk not in shown, text
    visitor.shoot(f"search-{locale}")
    with visitor.unheard():
        assert not grave(visitor.page)
    visitor.open(DASHBOARD)
    visitor.shoot(f"search-box-{locale}")
    # Nothing is found: the page says what would match.
    for empty in (f"{address('payment', 'search')}?q=nadie", f"{address('payment', 'changelist')}?q=nadie"):
        visitor.open(empty)
        assert visitor.find(".pi-what-matches li").count() == 5
        visitor.shoot(f"search-{'list' if 'search' not in empty else 'nothing'}-{locale}")
        with visitor.unheard():
            assert not grave(visitor.page)
