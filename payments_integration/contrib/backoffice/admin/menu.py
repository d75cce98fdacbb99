"""Give the overview an entry in the admin's index, as models have for their lists."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, reverse

from payments_integration.admin.base import ReadOnlyAdmin
from payments_integration.admin.shared.buttons import may_view
from payments_integration.contrib.backoffice.models import Overview
from payments_integration.models import Payment


@admin.register(Overview)
class OverviewAdmin(ReadOnlyAdmin):
    """The entry of the overview in the admin's index. It redirects to the overview."""

    def get_urls(self) -> list[URLPattern]:
        return [self._path("", "changelist", self.overview_view)]

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        # The page is the core app's index, which opens for users who see one of its models there.
        return any(
            may_view(self.admin_site, request, model) and model_admin.has_module_permission(request)
            for model, model_admin in self.admin_site._registry.items()
            if model._meta.app_label == Payment._meta.app_label
        )

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def overview_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        index = reverse("admin:app_list", args=[Payment._meta.app_label], current_app=self.admin_site.name)
        return HttpResponseRedirect(index)
