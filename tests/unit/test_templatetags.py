"""``{% load payments_integration %}``, and the tag libraries of a site without the admin."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.template import Context, Template
from django.utils.translation import override

from tests.factories import checkout as rows


def rendered(source: str, **values: Any) -> str:
    return Template("{% load payments_integration %}" + source).render(Context(values)).strip()


@pytest.mark.parametrize(
    ("language", "amount", "currency", "expected"),
    [
        ("en", 29_980, "CLP", "CLP 29,980"),
        ("en", 125_050, "USD", "USD 1,250.50"),
        ("es", 125_050, "USD", "USD 1.250,50"),
        ("pt-br", 125_050, "BRL", "BRL 1.250,50"),
        ("en", 0, "CLP", "CLP 0"),
        ("en", -5, "MXN", "MXN \N{MINUS SIGN}0.05"),
        ("en", 100, "<b>", "&lt;b&gt; 1.00"),
    ],
)
def test_the_money_filter_uses_the_decimals_of_the_currency(
    language: str, amount: int, currency: str, expected: str
) -> None:
    with override(language):
        shown = rendered("{{ amount|money:currency }}", amount=amount, currency=currency)
    assert shown == expected.replace(" ", "\xa0")


@pytest.mark.parametrize("language", ["en", "es", "pt-br"])
def test_the_money_of_a_payment_is_written_as_its_country_does(language: str) -> None:
    with override(language):
        shown = rendered("{{ payment.amount|money:payment }}", payment=rows.unsaved(amount=14_990))
    assert shown == "$14.990"


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


SITE = """
import sys
import django
from django.conf import settings

settings.configure(
    SECRET_KEY="a-key-for-this-test-only",
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "payments_integration", *sys.argv[1:]],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
    PAYMENTS_INTEGRATION={"ACCOUNTS": {"default": {"BASE_URL": "https://provider.example", "API_KEY": "sk_test_x"}}},
)
django.setup()
from django.template import engines
"""
WITHOUT_ADMIN = """
print(engines["django"].from_string("{% load payments_integration payments_admin %}{{ 5|money:'CLP' }}").render())
print([name for name in sys.modules if name.startswith("payments_integration.admin")])
"""


def site(program: str, *apps: str, path: Path | str = "") -> list[str]:
    """What a program prints on a site without the admin, with these apps next to ours."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", SITE + program, *apps],
        env={**os.environ, "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_a_site_without_the_admin_renders_templates() -> None:
    assert site(WITHOUT_ADMIN) == ["CLP\xa05", "[]"]


def test_a_merchants_app_may_have_a_library_of_the_name_payments(tmp_path: Path) -> None:
    library = tmp_path / "payments" / "templatetags" / "payments.py"
    library.parent.mkdir(parents=True)
    library.write_text("from django.template import Library\n\nregister = Library()\n")
    for folder in (library.parent, library.parent.parent):
        (folder / "__init__.py").touch()
    program = 'print(engines["django"].get_template("payments_integration/checkout/status.html").template.name)'
    assert site(program, "payments", path=tmp_path) == ["payments_integration/checkout/status.html"]
