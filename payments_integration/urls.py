"""Include under any prefix: ``path("payments/", include("payments_integration.urls"))``."""

import uuid
from importlib import import_module
from typing import Any

from django.apps import apps
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, JsonResponse
from django.urls import URLPattern, URLResolver, include, path, re_path
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt

EXTRA = 'pip install "payments-integration[api]"'


@login_not_required
@csrf_exempt
@never_cache
def api_not_installed(request: HttpRequest) -> JsonResponse:
    """501 in the API's error envelope, for every path and method."""
    request_id = f"req_{uuid.uuid4().hex}"
    error = {
        "type": "api_error",
        "code": "not_installed",
        "message": _("The REST API is not installed on this server: %(command)s") % {"command": EXTRA},
        "request_id": request_id,
    }
    response = JsonResponse({"error": error}, status=501, headers={"Request-Id": request_id})
    # Django logs such a status as an error, and may mail it to the admins: anybody can ask.
    response._has_been_logged = True  # type: ignore[attr-defined]
    return response


def _webhook() -> Any:
    """Return the view. It needs the models, whose own error would not say what to do."""
    if not apps.is_installed("payments_integration"):
        raise ImproperlyConfigured(
            'payments_integration.urls needs the app: add "payments_integration" to INSTALLED_APPS.'
        )
    return import_module("payments_integration.webhooks").webhook


def _api() -> Any:
    """Return the API's URLs; without the extra ``api``, a URL that answers 501."""
    try:
        for name in ("django_filters", "drf_spectacular"):
            import_module(name)
    except ImportError:
        return [re_path("", api_not_installed)]
    return "payments_integration.api.urls"


app_name = "payments_integration"
webhook = _webhook()
urlpatterns: list[URLPattern | URLResolver] = [
    path("webhook/", webhook, name="webhook"),
    path("webhook/<slug:account>/", webhook, name="webhook-account"),
    # Also without the slash: a redirect would lose the delivery.
    path("webhook", webhook),
    path("webhook/<slug:account>", webhook),
    path("api/", include(_api())),
    path("checkout/", include("payments_integration.checkout.urls")),
]
