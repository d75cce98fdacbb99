"""Serve the page that Prometheus reads."""

from __future__ import annotations

import hmac

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_safe

from payments_integration.contrib.prometheus import options
from payments_integration.contrib.prometheus.exposition import exposition
from payments_integration.db.transactions import outside_transactions

_UNSET = f"The metrics are not shown: set {options.NAME}, and give it to Prometheus as its bearer token.\n"
_REFUSED = f"The metrics are shown to a client that sends {options.NAME} as its bearer token.\n"


@outside_transactions  # without a database, opening one would fail before the text can say so
@login_not_required
@require_safe
@never_cache
@sensitive_variables()
def metrics(request: HttpRequest) -> HttpResponse:
    """Return the metrics of the database and of all processes to a client that sends the token of the settings."""
    token = options.token()
    if not token:
        return HttpResponse(_UNSET, content_type="text/plain", status=403)
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(given.encode(), token.encode()):
        answer = HttpResponse(_REFUSED, content_type="text/plain", status=401)
        answer.headers["WWW-Authenticate"] = "Bearer"
        return answer
    body, content_type = exposition(request.headers.get("Accept", ""))
    return HttpResponse(body, headers={"Content-Type": content_type})
