"""``{% load payments %}``, and the tag libraries of a site without the admin."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from django.template import Context, Template
from django.utils.translation import override

from tests.factories import checkout as rows


def rendered(source: str, **values: Any) -> str:
    return Template("{% load payments %}" + source).render(Context(values)).strip()


@pytest.mark.parametrize(
    ("language", "amount", "currency", "expected"),
    [
        ("en", 29_980, "CLP", "CLP29,980"),
        ("en", 125_050, "USD", "$1,250.50"),
        ("es", 125_050, "USD", "1.250,50 US$"),
        ("pt-br", 125_050, "BRL", "R$ 1.250,50"),
        ("en", 0, "CLP", "CLP0"),
        ("en", -5, "MXN", "-MX$0.05"),
        ("en", 100, "<b>", "&lt;b&gt;1.00"),
    ],
)
def test_the_money_filter_uses_the_decimals_of_the_currency(
    language: str, amount: int, currency: str, expected: str
) -> None:
    with override(language):
        shown = rendered("{{ amount|money:currency }}", amount=amount, currency=currency)
    assert "".join(shown.split()) == "".join(expected.split())


@pytest.mark.parametrize("amount", [None, "", "12", 1.5, True, [], 10**30])
def test_the_money_filter_is_empty_for_values_that_are_not_amounts(amount: Any) -> None:
    assert rendered("{{ amount|money:'CLP' }}", amount=amount) == ""


def test_a_status_has_a_headline_and_a_css_class() -> None:
    html = rendered("{% payment_status payment %}", payment=rows.unsaved(status="succeeded", amount_received=10_000))
    assert html == '<span class="payments-status payments-status-good">Paid</span>'


def test_the_status_of_a_missing_payment_has_a_headline() -> None:
    assert "We are looking for your payment" in rendered("{% payment_status payment %}", payment=None)
    assert "We are looking for your payment" in rendered("{% payment_status missing %}")
    assert rendered("{% next_action missing %}") == ""
    assert rendered("{% next_action payment %}", payment=None) == ""


WITHOUT_ADMIN = """
import sys
import django
from django.conf import settings

settings.configure(
    SECRET_KEY="a-key-for-this-test-only",
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "payments_integration"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
    PAYMENTS_INTEGRATION={"ACCOUNTS": {"default": {"BASE_URL": "https://provider.example", "API_KEY": "sk_test_x"}}},
)
django.setup()
from django.template import engines
print(engines["django"].from_string("{% load payments payments_dashboard %}{{ 5|money:'CLP' }}").render())
print([name for name in sys.modules if name.startswith("payments_integration.admin")])
"""


def test_a_site_without_the_admin_renders_templates() -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_ADMIN], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["CLP5", "[]"]
