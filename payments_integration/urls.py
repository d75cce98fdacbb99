"""Include under any prefix: ``path("payments/", include("payments_integration.urls"))``."""

from django.urls import include, path

from payments_integration.webhooks import webhook

app_name = "payments_integration"
urlpatterns = [
    path("webhook/", webhook, name="webhook"),
    path("webhook/<slug:account>/", webhook, name="webhook-account"),
    # Without the slash too: a redirect would lose the delivery.
    path("webhook", webhook),
    path("webhook/<slug:account>", webhook),
    path("api/", include("payments_integration.api.urls")),
    path("checkout/", include("payments_integration.checkout.urls")),
]
