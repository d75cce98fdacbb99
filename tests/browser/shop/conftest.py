"""The example's shop, with goods on its shelves and a provider that calls it over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

from example_project.shop.models import Price, Product
from payments_integration.testing import ProviderSandbox
from tests.browser.conftest import Visit
from tests.browser.shop.customer import Customer

Welcome = Callable[..., Customer]

#: Minor units; CLP has no decimals.
GOODS = {
    "coffee": (
        "Coffee beans",
        "A kilo from the south of Colombia, roasted on Tuesday.",
        {"CLP": 14_990, "COP": 6_200_000, "PEN": 5_890, "MXN": 28_900, "BRL": 8_490, "USD": 1_590},
    ),
    "chocolate": (
        "Dark chocolate",
        "Ten bars of 72 %, from Ecuador.",
        {"CLP": 19_990, "COP": 8_400_000, "PEN": 7_990, "MXN": 38_900, "BRL": 11_490, "USD": 2_150},
    ),
    "blanket": (
        "Alpaca blanket",
        "Woven in Cusco. Two metres by one and a half.",
        {"CLP": 89_900, "COP": 37_500_000, "PEN": 35_900, "MXN": 174_900, "BRL": 51_900, "USD": 9_690},
    ),
    "hammock": (
        "Hammock",
        "For two, or for one and a book.",
        {"CLP": 49_900, "COP": 20_900_000, "PEN": 19_900, "MXN": 97_500, "BRL": 28_900, "USD": 5_390},
    ),
}


@pytest.fixture
def provider(transactional_db: None, settings: Any, site: str) -> Iterator[ProviderSandbox]:
    """The provider behind the shop; ``deliver()`` posts what is due to the site's webhook."""
    settings.PAYMENTS_INTEGRATION = {"ACCOUNTS": {}}
    # A customer of a test may pay the other way.
    settings.SHOP_FLOW = "hosted"
    # As in the example's settings: the footer has a button for each.
    settings.LANGUAGES = [("en", "English"), ("es", "Español"), ("pt-br", "Português (Brasil)")]
    with ProviderSandbox(webhook_url=f"{site}/payments/webhook/") as sandbox:
        settings.FORMS_LEAD_TO = sandbox.url
        yield sandbox


@pytest.fixture
def goods(transactional_db: None) -> None:
    Product.objects.all().delete()  # those of the migration, which are gone after the first test
    for slug, (name, description, prices) in GOODS.items():
        texts = import_module("example_project.shop.migrations.0003_product_languages_and_pictures").TEXTS[slug]
        (name_es, description_es), (name_pt, description_pt) = texts
        product = Product.objects.create(
            slug=slug, name=name, description=description, name_es=name_es, description_es=description_es,
            name_pt=name_pt, description_pt=description_pt,
        )  # fmt: skip
        for currency, amount in prices.items():
            Price.objects.create(product=product, currency=currency, amount=amount)


@pytest.fixture
def welcome(visit: Visit, provider: ProviderSandbox, goods: None) -> Callable[..., Customer]:
    """``welcome(dark=True)``: somebody new in the shop, with a browser window of their own."""

    def make(**options: Any) -> Customer:
        return Customer(visit(None, leads_to=provider.url, **options), provider)

    return make
