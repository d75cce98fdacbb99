"""The shop speaks the language that the browser asks for, or that its payer chose."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client

from example_project.shop.models import Order, Price, Product
from payments_integration.models import Payment
from payments_integration.payable import OrderStatus
from payments_integration.testing import ProviderSandbox
from tests.integration.shop.shopping import PAGE, bought, filled_in, seen

pytestmark = [
    pytest.mark.urls("example_project.urls"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.any_database,
]

LANGUAGES = [("en", "English"), ("es", "Español"), ("pt-br", "Português (Brasil)")]


@pytest.fixture(autouse=True)
def _languages(settings: Any, example_templates: None) -> None:
    """As in the example's settings."""
    usual = list(django_settings.MIDDLEWARE)
    after = usual.index("django.contrib.sessions.middleware.SessionMiddleware") + 1
    settings.MIDDLEWARE = [*usual[:after], "django.middleware.locale.LocaleMiddleware", *usual[after:]]
    settings.LANGUAGES = LANGUAGES


def choose(browser: Client, language: str, page: str = "/") -> None:
    """A button of the footer."""
    address = f"http://localhost{page}"
    answer = browser.post("/i18n/setlang/", {"language": language}, headers={"referer": address})
    assert (answer.status_code, answer["Location"]) == (302, address)


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("en", ("Products", "Pay with", "You pay from", "Peru (USD)", "2 for $11.980")),
        ("es", ("Productos", "Medio de pago", "Usted paga desde", "Perú (USD)", "2 por $11.980")),
        ("pt-br", ("Produtos", "Forma de pagamento", "Você paga de", "Peru (USD)", "2 por $11.980")),
    ],
)
def test_a_page_is_in_the_chosen_language(
    shop: ProviderSandbox, browser: Client, language: str, words: tuple[str, ...]
) -> None:
    choose(browser, language, PAGE)
    html = browser.get(PAGE).content.decode()
    for word in words:
        assert word in html
    assert f'<html lang="{language}">' in html
    assert re.findall(r'value="([\w-]+)" lang="[\w-]+" aria-current="true"', html) == [language]
    # Each in its own words, so that its reader finds it.
    assert re.findall(r'name="language"[^>]*>([^<]+)<', html) == ["English", "Español", "Português Brasileiro"]


def test_without_a_choice_it_is_the_browsers(shop: ProviderSandbox, browser: Client) -> None:
    assert "¿Qué le gustaría?" in browser.get("/", headers={"accept-language": "es-CL"}).content.decode()
    assert "Aquí no hay nada" in browser.get("/nowhere/", headers={"accept-language": "es"}).content.decode()
    assert "What would you like?" in browser.get("/", headers={"accept-language": "fr"}).content.decode()


def test_an_order_is_shown_in_the_words_of_its_payer(shop: ProviderSandbox, browser: Client) -> None:
    choose(browser, "es")
    order = bought(browser)
    assert "Su pago está pendiente." in seen(browser, order)
    shop.engine.pay(Payment.objects.get().pk)
    shop.settle()
    html = seen(browser, order)
    assert "¡Gracias! Recibimos su pago." in html
    assert 'data-order-status="paid">pagado<' in html
    assert "pagado" in browser.get("/orders/").content.decode()


def test_mistakes_are_explained_in_the_same_language(shop: ProviderSandbox, browser: Client) -> None:
    choose(browser, "pt-br")
    html = browser.post(PAGE, filled_in(browser, method_code="cl_other")).content.decode()
    assert "Esta forma de pagamento não aceita este valor. Escolha outra." in html


def test_the_mail_about_an_account_is_in_the_language_of_the_page(
    shop: ProviderSandbox, browser: Client, stranger: Client
) -> None:
    form = {"market": "MX-MXN", "name": "Ana", "email": "ana@example.com"}
    browser.post("/deposits/", form)
    choose(stranger, "es")
    assert "Ya tiene una cuenta" in stranger.post("/deposits/", form).content.decode()
    [message] = mail.outbox
    assert message.subject == "Su cuenta en The Corner Shop"
    assert message.body.startswith("Su cuenta de depósitos está aquí:\n\nhttp://localhost/deposits/")


def test_the_admin_of_the_shop_is_translated(shop: ProviderSandbox, browser: Client) -> None:
    order = bought(browser)
    shop.engine.pay(Payment.objects.get().pk)
    shop.settle()
    Order.objects.filter(pk=order.pk).update(status=OrderStatus.PAID, note="more was paid than asked: refund the rest")
    staff = Client(headers={"host": "localhost"})
    staff.force_login(User.objects.create_superuser("boss"))
    choose(staff, "es")
    listed = staff.get("/admin/shop/order/").content.decode()
    shown = staff.get(f"/admin/shop/order/{order.pk}/change/").content.decode()
    for html in (listed, shown):
        assert "se pagó de más: reembolsar la diferencia" in html
        assert "(pagado)" in html
        assert "pagado" in html
    assert "recibido CLP" in shown.replace("\xa0", " ")
    assert "Tienda" in listed


def test_notes_do_not_depend_on_the_language_of_a_request(shop: ProviderSandbox, browser: Client) -> None:
    """They are stored."""
    choose(browser, "es")
    order = bought(browser, flow="s2s", method_code="cl_bank_transfer")
    shop.engine.pay(Payment.objects.get().pk, amount=20_000)
    shop.settle()
    seen(browser, order)
    order.refresh_from_db()
    assert order.note == "more was paid than asked: refund the rest"


@pytest.mark.parametrize(
    ("language", "product", "method"),
    [
        ("en", "Coffee beans", "Webpay card"),
        ("es", "Café en grano", "Tarjeta con Webpay"),
        ("pt-br", "Café em grãos", "Cartão com Webpay"),
    ],
)
def test_products_and_methods_are_in_the_chosen_language(
    shop: ProviderSandbox, browser: Client, language: str, product: str, method: str
) -> None:
    Product.objects.filter(slug="coffee").delete()  # that of the migration, which is gone after the first test
    coffee = Product.objects.create(
        slug="coffee", name="Coffee beans", name_es="Café en grano", name_pt="Café em grãos", description="A kilo."
    )
    Price.objects.create(product=coffee, currency="CLP", amount=14_990)
    choose(browser, language)
    page = "/buy/coffee/?market=CL-CLP"
    order = bought(browser, page)
    for html in (browser.get(page).content.decode(), seen(browser, order)):
        assert product in html
        assert method in html
        assert "shop/products/coffee.svg" in html
        assert "payments_integration/methods/card.svg" in html
    front = browser.get("/").content.decode()
    assert product in front
    # A product without words of its own in a language, and without a drawing.
    assert "Mug" in front
    assert "shop/products/other.svg" in front
