"""The shop with something to sell, and a provider behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

import example_project
from example_project.shop.models import Price, Product
from payments_integration.testing import ProviderSandbox


@pytest.fixture
def browser() -> Client:
    # Without https only this machine is an address to return to.
    return Client(headers={"host": "localhost"})


@pytest.fixture
def stranger() -> Client:
    """Somebody else, who knows an address."""
    return Client(headers={"host": "localhost"})


@pytest.fixture
def example_templates(settings: Any) -> None:
    """The pages of errors, as in the example's settings."""
    folder = Path(example_project.__file__).parent / "templates"
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [folder]}]


@pytest.fixture
def shop(payments_sandbox: ProviderSandbox) -> ProviderSandbox:
    product = Product.objects.create(slug="mug", name="Mug", description="Holds coffee.")
    Price.objects.create(product=product, currency="CLP", amount=5_990)
    Price.objects.create(product=product, currency="BRL", amount=3_490)
    return payments_sandbox
