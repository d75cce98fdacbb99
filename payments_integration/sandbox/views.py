"""Serve the API, the OpenAPI document, and the checkout page, where you act as the payer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast
from urllib.parse import parse_qsl, urlsplit

from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template import Context, Engine as TemplateEngine

from .catalog import METHODS
from .engine import Engine
from .openapi import document
from .payments import CANCELABLE, TRANSFERS, WAITING
from .protocol import EXPONENTS, ApiRequest, Json, encode_json
from .resources import SandboxError, UnknownObjectError

ENGINE_KEY: Final = "payments_sandbox.engine"
CONNECTION_FAULT_KEY: Final = "payments_sandbox.connection_fault"
TEMPLATES: Final = Path(__file__).resolve().parent.parent / "templates"
# The countries that write decimals with a point. The others write a comma.
POINT_COUNTRIES: Final = ("PE", "MX")
# Each country's own symbols, with the space that follows them. Other currencies are written as their code.
SYMBOLS: Final = {
    "CL": {"CLP": "$", "USD": "US$"},
    "CO": {"COP": "$", "USD": "US$"},
    "EC": {"USD": "$"},
    "PE": {"PEN": "S/\xa0"},
    "MX": {"MXN": "$"},
    "BR": {"BRL": "R$\xa0", "USD": "US$\xa0", "MXN": "MX$\xa0"},
}
PAYABLE: Final = (*WAITING, "expired", "partially_paid", "on_hold")
# The statuses to which each button of the checkout page leads. If a second click finds the payment in one of them, it
# is no error.
RESULTS: Final[dict[str, tuple[str, ...]]] = {
    "pay": ("succeeded", "overpaid"),
    "fail": ("failed",),
    "expire": ("expired",),
}

# A separate engine, so that the pages do not depend on the merchant's TEMPLATES setting.
_templates = TemplateEngine(dirs=[str(TEMPLATES)])


def engine_of(request: HttpRequest) -> Engine:
    """Return the engine that the WSGI application put into the request."""
    return cast("Engine", request.META[ENGINE_KEY])


def render(name: str, context: dict[str, object], status: int = 200) -> HttpResponse:
    """Return an HTML page from the sandbox's own templates."""
    html = _templates.get_template(f"payments_sandbox/{name}").render(Context(context, use_l10n=False))
    response = HttpResponse(html, status=status, content_type="text/html; charset=utf-8")
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


def query_params(request: HttpRequest) -> dict[str, str]:
    """Return the query parameters, parsed without the merchant's settings. The last of repeated values counts."""
    return dict(parse_qsl(request.META.get("QUERY_STRING", ""), keep_blank_values=True))


def form_fields(request: HttpRequest) -> dict[str, str]:
    """Return the fields of a posted form."""
    return dict(parse_qsl(request.read().decode("utf-8", "replace"), keep_blank_values=True))


def json_body(request: HttpRequest) -> Json:
    """Return the JSON object in the body; empty if there is no body. Raises ValueError."""
    raw = request.read()
    data = json.loads(raw) if raw.strip() else {}
    if not isinstance(data, dict):
        raise ValueError("the body must be a JSON object")
    return data


def is_cross_site(request: HttpRequest) -> bool:
    """Return True if a browser sent this from another site's page. A page of another port is another site.

    Every browser sends Origin with a POST. Sec-Fetch-Site is a second line of defence. It is ignored for a GET,
    because a link to a page may be on any site.
    """
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("Host"):
        return True
    sent_from = request.headers.get("Sec-Fetch-Site", "none")
    return request.method not in ("GET", "HEAD") and sent_from not in ("none", "same-origin")


def format_amount(amount: int, currency: str, country: str = "") -> str:
    """Format minor units as the country writes them: 14990 CLP is ``$14.990`` in Chile.

    Without a country, the result is ``CLP 14,990``.
    """
    symbol = SYMBOLS.get(country, {}).get(currency, f"{currency}\xa0")
    return f"{symbol}{format_number(amount, currency, country)}"


def format_number(amount: int, currency: str, country: str = "") -> str:
    """Format minor units without the symbol, as the field of the checkout page shows them."""
    exponent = EXPONENTS.get(currency, 2)
    text = f"{amount:,}"
    if exponent:
        whole, rest = divmod(amount, 10**exponent)
        # Colombians do not write the decimals of a whole number of pesos.
        text = f"{whole:,}" if currency == "COP" and not rest else f"{whole:,}.{rest:0{exponent}d}"
    return text if country in ("", *POINT_COUNTRIES) else text.translate(str.maketrans(",.", ".,"))


def api(request: HttpRequest, operations: Mapping[str, str], object_id: str = "") -> HttpResponse:
    """Answer any path under ``/v1``. ``operations`` maps HTTP methods to operations; empty for unknown paths."""
    api_response = engine_of(request).handle(
        ApiRequest(
            method=request.method or "",
            path=request.path_info,
            query=query_params(request),
            headers={name.lower(): value for name, value in request.headers.items()},
            body=request.read(),
            operations=operations,
            object_id=object_id,
        )
    )
    response = HttpResponse(api_response.body, status=api_response.status, headers=api_response.headers)
    request.META[CONNECTION_FAULT_KEY] = api_response.connection_fault
    return response


def openapi(request: HttpRequest) -> HttpResponse:
    """Answer ``GET /openapi.json`` with the OpenAPI document of this address, without key, faults and rate limits."""
    if request.method not in ("GET", "HEAD"):
        return HttpResponseNotAllowed(["GET"])
    content = encode_json(document(engine_of(request).base_url or ""))
    return HttpResponse(content, content_type="application/json")


def checkout(request: HttpRequest, payment_id: str) -> HttpResponse:
    """Show the page for a GET, execute the pressed button for a POST. A created payment becomes requires_action."""
    engine = engine_of(request)
    engine.tick()
    try:
        payment = engine.open_checkout(payment_id)
    except UnknownObjectError:
        text = "This checkout does not exist. Without --state, the sandbox forgets all payments when it stops."
        return render("message.html", {"title": "No such payment", "text": text}, 404)
    if request.method == "GET":
        return _checkout_page(engine, payment)
    if request.method != "POST":
        return HttpResponseNotAllowed(["GET", "POST"])
    if is_cross_site(request):
        return render("message.html", {"title": "Refused", "text": "Another site sent this form."}, 403)
    fields = form_fields(request)
    action = fields.get("action", "")
    try:
        _act(engine, payment, action, fields.get("amount", ""))
    except SandboxError as error:
        payment = engine.open_checkout(payment_id)  # read its current status
        if payment["status"] not in RESULTS.get(action, ()):
            return _checkout_page(engine, payment, str(error), typed=fields.get("amount", ""))
    return HttpResponse(status=303, headers={"Location": _return_url(engine, payment_id) or request.path_info})


def _act(engine: Engine, payment: Json, action: str, amount: str) -> None:
    payment_id = payment["id"]
    if action == "pay":
        engine.pay(payment_id)
    elif action == "pay_other":
        engine.pay(payment_id, parse_amount(amount, payment["currency"], payment["country"]))
    elif action == "fail":
        engine.fail(payment_id)
    elif action == "expire":
        engine.expire(payment_id)
    else:
        raise SandboxError("choose one of the buttons")


def parse_amount(text: str, currency: str, country: str) -> int:
    """Return the minor units of a typed amount: ``12.34`` or ``12,34`` USD is 1234, ``1234`` CLP is 1234.

    Accepts only the country's thousands separators, because ``1.000`` can mean one or one thousand. Raises
    SandboxError.
    """
    exponent = EXPONENTS[currency]
    point = "." if country in POINT_COUNTRIES else ","
    group = "," if point == "." else "."
    typed = text.strip()
    found = re.fullmatch(r"([0-9]{1,13})(?:[.,]([0-9]{1,2}))?", typed) or re.fullmatch(
        rf"([0-9]{{1,3}}(?:\{group}[0-9]{{3}}){{1,4}})(?:\{point}([0-9]{{1,2}}))?", typed
    )
    if found is None or len(decimals := found[2] or "") > exponent:
        example = format_number(123450, currency, country)
        raise SandboxError(f"Write the amount in {currency} like this: {example}.")
    return int(found[1].replace(group, "") + decimals.ljust(exponent, "0"))


def _return_url(engine: Engine, payment_id: str) -> str | None:
    """Return the merchant's return_url as it was given; None if there is none."""
    with engine.lock:
        return engine.project_of(payment_id).payments.internals[payment_id].return_url


def _checkout_page(engine: Engine, payment: Json, problem: str = "", typed: str = "") -> HttpResponse:
    status, expires_at = payment["status"], payment["expires_at"]
    currency, country = payment["currency"], payment["country"]
    received = payment["amount_received"]
    rest = payment["amount"] - received
    due = payment["amount"] if status == "on_hold" else rest
    return render(
        "checkout.html",
        {
            "payment": payment,
            "method": METHODS[payment["method_code"]].name,
            "amount": format_amount(payment["amount"], currency, country),
            "due": format_amount(max(due, 0), currency, country),
            "received": format_amount(received, currency, country) if received else "",
            "status": status.replace("_", " "),
            "until": f"{expires_at[:10]} {expires_at[11:16]} UTC" if expires_at and status in CANCELABLE else "",
            "payable": status in PAYABLE,
            "transfer": payment["method_family"] in TRANSFERS and status != "on_hold",
            "example": format_number(123450, currency, country),
            "typed": typed,
            "can_fail": status in (*WAITING, "on_hold"),
            "can_expire": status in CANCELABLE,
            "return_url": _return_url(engine, payment["id"]),
            "problem": problem,
        },
        422 if problem else 200,
    )
