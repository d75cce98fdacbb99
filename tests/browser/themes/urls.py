from django.conf import settings
from django.urls import include, path

from tests.urls import urlpatterns as usual

urlpatterns = [*usual]
if settings.ADMIN_THEME == "grappelli":
    urlpatterns.insert(0, path("grappelli/", include("grappelli.urls")))
