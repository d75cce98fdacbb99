from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    # The choice of a language in the footer.
    path("i18n/", include("django.conf.urls.i18n")),
    path("admin/", admin.site.urls),
    path("payments/", include("payments_integration.urls")),
    path("payments/", include("payments_integration.contrib.receipts.urls")),
    path("", include("example_project.shop.urls")),
]
