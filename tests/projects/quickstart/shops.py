"""Projects as they are before docs/add-to-your-shop.md: an app ``shop`` with orders and a page that shows one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

from tests.projects.foreign.sites import OSCAR_SETTINGS

PAGE = """
from django.shortcuts import get_object_or_404, render

from shop.models import Order


def show(request, pk):
    return render(request, "order.html", {"order": get_object_or_404(Order, pk=pk)})
"""
TEMPLATE = "<html><body><h1>Order</h1>{{ order.paid_at }}\n</body></html>\n"


#: Of an order of Oscar: the page's reader writes the proxy later.
PAGE_OF_OSCAR = """
from django.shortcuts import get_object_or_404, render


def show(request, pk):
    from shop.models import PaidOrder

    order = get_object_or_404(PaidOrder, pk=pk)
    return render(request, "order.html", {"order": order, "is_paid": order.is_paid(*order.payments_price()) or None})
"""
URLS_OF_OSCAR = """
from django.apps import apps
from django.contrib import admin
from django.urls import include, path

from shop.views import show

urlpatterns = [
    path("admin/", admin.site.urls),
    path("orders/<int:pk>/", show),
    path("i18n/", include("django.conf.urls.i18n")),
    path("", include(apps.get_app_config("oscar").urls[0])),
]
"""


@dataclass(frozen=True)
class Shop:
    models: str
    settings: str
    #: Of the page's URL.
    key: str
    #: Makes an order, in the shell; prints its key.
    order: str
    #: What the page has the reader add to the command.
    options: str
    #: Files that differ from those of the others.
    files: Mapping[str, str] = field(default_factory=dict)

    def build(self, folder: Path) -> None:
        files = {
            "project/settings.py": (folder / "project/settings.py").read_text() + dedent(self.settings),
            "project/urls.py": dedent(
                f"""\
                from django.contrib import admin
                from django.urls import path

                from shop.views import show

                urlpatterns = [
                    path("admin/", admin.site.urls),
                    path("orders/<{self.key}:pk>/", show),
                ]
                """
            ),
            "shop/models.py": dedent(self.models),
            "shop/views.py": PAGE,
            "shop/templates/order.html": TEMPLATE,
            "pytest.ini": "[pytest]\nDJANGO_SETTINGS_MODULE = project.settings\npython_files = test*.py\n",
            **self.files,
        }
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)


DECIMALS = Shop(
    models="""
        import uuid

        from django.conf import settings
        from django.contrib.auth.models import AbstractUser
        from django.db import models


        class Person(AbstractUser):
            phone = models.CharField(max_length=20)


        class Order(models.Model):
            '''What a customer bought.'''

            id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
            customer = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
            total = models.DecimalField(max_digits=10, decimal_places=2)
            currency = models.CharField(max_length=3, default="USD")
            address = models.TextField()
            created_at = models.DateTimeField(auto_now_add=True)
            paid_at = models.DateTimeField(null=True, blank=True)
        """,
    settings="""
        import os

        INSTALLED_APPS += ["shop"]
        AUTH_USER_MODEL = "shop.Person"
        DATABASES["default"]["ATOMIC_REQUESTS"] = True
        SECURE_SSL_REDIRECT = "HTTPS" in os.environ
        """,
    key="uuid",
    order="""
        from shop.models import Person
        ana = Person.objects.create_superuser("ana", "ana@example.com", "ana")
        print(Order.objects.create(customer=ana, total="119.90", address="x").pk)
        """,
    options="",
)

MINOR_UNITS = Shop(
    models="""
        from django.db import models


        class Order(models.Model):
            name = models.CharField(max_length=80)
            amount = models.PositiveIntegerField()
            paid_at = models.DateTimeField(null=True, blank=True)

            class Meta:
                ordering = ["pk"]
        """,
    settings='INSTALLED_APPS += ["shop"]\n',
    key="int",
    order="""
        from django.contrib.auth import get_user_model
        get_user_model().objects.create_superuser("ana", "ana@example.com", "ana")
        print(Order.objects.create(name="Ana", amount=11_990).pk)
        """,
    options=" --currency CLP",
)

OF_OSCAR = Shop(
    models="",
    settings=OSCAR_SETTINGS + 'INSTALLED_APPS += ["shop"]\n',
    key="int",
    order="""
        from django.contrib.auth import get_user_model
        from django.utils import timezone
        from oscar.apps.order.models import Order
        get_user_model().objects.create_superuser("ana", "ana@example.com", "ana")
        price = {"total_incl_tax": "119.90", "total_excl_tax": "100.00", "currency": "USD"}
        print(Order.objects.create(number="100001", date_placed=timezone.now(), **price).pk)
        """,
    options="",
    files={
        "project/urls.py": URLS_OF_OSCAR,
        "shop/views.py": PAGE_OF_OSCAR,
        "shop/templates/order.html": TEMPLATE.replace("order.paid_at", "is_paid"),
    },
)
