from django.contrib import admin
from django.urls import include, path

from example_project.minimal import views

urlpatterns = [
    path("", views.Buy.as_view(), name="buy"),
    path("orders/<uuid:number>/", views.pay, name="pay"),
    path("admin/", admin.site.urls),
    path("payments/", include("payments_integration.urls")),
]
