"""A project's plain ModelAdmin for a model of ours: Django finds our templates by the app's label."""

from __future__ import annotations

import pytest
from django.contrib.admin import AdminSite, ModelAdmin
from django.test import Client
from django.urls import include, path

from payments_integration.models import AccountState
from tests.unit.admin.conftest import page, url

site = AdminSite(name="plain")
site.register(AccountState, ModelAdmin)

urlpatterns = [path("admin/", site.urls), path("payments/", include("payments_integration.urls"))]


@pytest.mark.urls(__name__)
@pytest.mark.django_db
@pytest.mark.parametrize("name", ["changelist", "change", "history"])
def test_its_pages_open(boss: Client, name: str) -> None:
    AccountState.objects.create(account="default")
    keys = [] if name == "changelist" else ["default"]
    assert 'class="pi-test"' in page(boss, url("accountstate", name, *keys))
