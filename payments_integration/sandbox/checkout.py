"""The hosted checkout page, where a person plays the payer."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed

from .catalog import METHODS
from .engine import Engine
from .errors import SandboxError, UnknownObjectError
from .payments import CANCELABLE, TRANSFERS, WAITING
from .shapes import EXPONENTS, Wire, show_amount
from .web import engine_of, form, from_elsewhere, page

#: How an amount is written, by the decimals of its currency.
_EXAMPLES = {0: "1250", 2: "12.50 or 12,50"}
PAYABLE = (*WAITING, "expired", "partially_paid", "on_hold")


def checkout(request: HttpRequest, payment_id: str) -> HttpResponse:
    """GET shows the page and marks a created payment as requires_action; POST does what its buttons say."""
    engine = engine_of(request)
    engine.tick()
    try:
        payment = engine.open_checkout(payment_id)
    except UnknownObjectError:
        return page("message.html", {"title": "No such payment", "text": "This checkout does not exist."}, 404)
    if request.method == "GET":
        return _show(engine, payment)
    if request.method != "POST":
        return HttpResponseNotAllowed(["GET", "POST"])
    if from_elsewhere(request):
        return page("message.html", {"title": "Refused", "text": "Another site sent this form."}, 403)
    fields = form(request)
    try:
        _act(engine, payment, fields.get("action", ""), fields.get("amount", ""))
    except SandboxError as error:
        return _show(engine, payment, str(error), typed=fields.get("amount", ""))
    return HttpResponse(status=303, headers={"Location": _way_back(engine, payment_id) or request.path_info})


def _act(engine: Engine, payment: Wire, action: str, amount: str) -> None:
    payment_id = payment["id"]
    if action == "pay":
        engine.pay(payment_id)
    elif action == "pay_other":
        engine.pay(payment_id, parse_amount(amount, payment["currency"]))
    elif action == "fail":
        engine.fail(payment_id)
    elif action == "expire":
        engine.expire(payment_id)
    else:
        raise SandboxError("choose one of the buttons")


def parse_amount(text: str, currency: str) -> int:
    """Minor units out of what a person types: ``12.34`` or ``12,34`` USD is 1234, ``1234`` CLP is 1234.

    Nothing between thousands: in these countries ``1.000`` is a thousand to some people and one to others. Raises
    SandboxError.
    """
    exponent = EXPONENTS[currency]
    found = re.fullmatch(r"([0-9]{1,13})(?:[.,]([0-9]{1,2}))?", text.strip())
    if found is None or len(decimals := found[2] or "") > exponent:
        raise SandboxError(f"Write the amount in {currency} like this: {_EXAMPLES[exponent]}.")
    return int(found[1] + decimals.ljust(exponent, "0"))


def _way_back(engine: Engine, payment_id: str) -> str | None:
    """The merchant's return_url with the payment's id in its query."""
    with engine.lock:
        url = engine.project_of(payment_id).pay_ins.asides[payment_id].return_url
    if url is None:
        return None
    parts = urlsplit(url)
    pairs = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] != "payment_id"]
    return urlunsplit(parts._replace(query=urlencode([*pairs, ("payment_id", payment_id)])))


def _minute(moment: str | None) -> str:
    return f"{moment[:10]} {moment[11:16]} UTC" if moment else ""


def _show(engine: Engine, payment: Wire, problem: str = "", typed: str = "") -> HttpResponse:
    status, currency = payment["status"], payment["currency"]
    rest = payment["amount"] - payment["amount_received"]
    due = payment["amount"] if status == "on_hold" else rest
    return page(
        "checkout.html",
        {
            "payment": payment,
            "method": METHODS[payment["method_code"]].name,
            "amount": show_amount(payment["amount"], currency),
            "due": show_amount(max(due, 0), currency),
            "received": show_amount(payment["amount_received"], currency) if payment["amount_received"] else "",
            "status": status.replace("_", " "),
            "until": _minute(payment["expires_at"]) if status in CANCELABLE else "",
            "payable": status in PAYABLE,
            "transfer": payment["method_family"] in TRANSFERS and status != "on_hold",
            "example": _EXAMPLES[EXPONENTS[currency]],
            "typed": typed,
            "can_fail": status in (*WAITING, "on_hold"),
            "can_expire": status in CANCELABLE,
            "way_back": _way_back(engine, payment["id"]),
            "problem": problem,
        },
        422 if problem else 200,
    )
