"""The least that a durable inbox in Django can do: check the signature, parse, one INSERT.

    python -m benchmarks.contenders.floor

makes its table.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time

import django
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from benchmarks.contenders.common import SECRET

TABLE = "CREATE TABLE floor_event (id text PRIMARY KEY, body text NOT NULL)"
INSERT = "INSERT INTO floor_event (id, body) VALUES (%s, %s) ON CONFLICT DO NOTHING"
_KEY = SECRET.encode()


@csrf_exempt
def webhook(request: HttpRequest) -> HttpResponse:
    body = request.body
    fields = dict(part.split("=", 1) for part in request.headers["Service-Signature"].split(","))
    expected = hmac.new(_KEY, fields["t"].encode() + b"." + body, hashlib.sha256).hexdigest()
    if abs(time.time() - int(fields["t"])) > 300 or not hmac.compare_digest(expected, fields["v1"]):
        return HttpResponse(status=400)
    with connection.cursor() as cursor:
        cursor.execute(INSERT, [json.loads(body)["id"], body.decode()])
    return HttpResponse(status=200)


urlpatterns = [path("webhook/", webhook)]

if __name__ == "__main__":
    django.setup()
    with connection.cursor() as cursor:
        cursor.execute(TABLE)
