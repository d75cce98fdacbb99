from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("payments/", include("payments_integration.urls")),
    path("payments/", include("payments_integration.contrib.receipts.urls")),
]
