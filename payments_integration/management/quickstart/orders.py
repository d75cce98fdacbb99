"""What the app of the model that payments are for lacks: the model's fields, a view, its URL, a test and handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from django.apps import AppConfig, apps
from django.db import models
from django.urls import get_resolver

from payments_integration import handlers
from payments_integration.management.quickstart import order_files, project_files
from payments_integration.management.quickstart.gaps import (
    Gap,
    as_shown,
    change,
    create,
    is_own,
    route,
    source_of,
    text_of,
)
from payments_integration.management.quickstart.order_model import OrderModel, candidates, model_named
from payments_integration.payable import Payable
from payments_integration.payable.models import payables


def gaps(root: Path, order: OrderModel) -> Iterator[Gap]:
    """Yield what the app of the order's model lacks. A file that exists stays as it is."""
    yield from _model(root, order)
    folder = Path(order.app.path)
    tests = folder / "tests" if (folder / "tests").is_dir() else folder
    views, urls = folder / "payment_views.py", folder / "payment_urls.py"
    has_view = not views.exists() or project_files.binds(text_of(views), "pay")
    has_urls = not urls.exists() or project_files.sets(text_of(urls), "app_name", "pay")
    # A URLconf that imports something missing would keep the site from starting.
    by_hand = not (has_view and has_urls)
    # The app's URLconf does not name the model of its view.
    of_another = _of_another_model(views, order) if has_urls and urls.exists() else ""
    files = [
        ("View", views, order_files.views(order), of_another if has_view else "has no pay"),
        (
            "URL of the view",
            urls,
            order_files.urls(order),
            of_another if has_urls else 'does not set app_name = "pay"',
        ),
    ]
    test = ("Test", tests / "test_payments.py", order_files.tests(order), "")
    for what, path, text, lacking in [*files, test] if order.has_view else [test]:
        if lacking:
            yield Gap(what, f"{as_shown(path, root)}, which {lacking}; add to it", text)
        elif not path.exists():
            write = None if by_hand and what != "Test" else partial(create, path, text)
            yield Gap(what, f"{as_shown(path, root)}, a new file", text, write)
    if not order.has_view:
        return
    module = f"{order.app.name}.payment_urls"
    yield from route(
        root, "Route of the view", "pay/", module, lambda: "pay" in get_resolver().namespace_dict, by_hand=by_hand
    )


def _of_another_model(path: Path, order: OrderModel) -> str:
    """Say that a module names other models that payments are for, and not this one; "" if it does not."""
    text = text_of(path) if path.exists() else ""
    names = {model.__name__ for model in payables()} - {order.name}
    others = sorted(name for name in names if project_files.binds(text, name))
    is_of_another = others and not project_files.binds(text, order.name)
    return f"is for {', '.join(others)} (name yours differently)" if is_of_another else ""


def _model(root: Path, order: OrderModel) -> Iterator[Gap]:
    """Yield the change that makes the model a Payable."""
    if not (lines := order.options):
        return
    source = source_of(order.model.__module__)
    shown = "\n".join(f"    {line}" for line in lines)
    place = f"{as_shown(source, root)}; the table stays as it is, and no migration is made"
    snippet = f"class {order.name}({_bases(order)}):\n{shown}"
    if not order.is_payable:
        snippet = f"from payments_integration.payable import Payable\n\n{snippet}"
    write: Callable[[], None] | None = None
    if not order.is_payable and any(not manager.auto_created for manager in order.model._meta.managers):
        place += ". Let its manager inherit from payments_integration.payable.PayableManager. "
        place += "If it has its own queryset, let that inherit from PayableQuerySet"
    elif order.is_payable or order.model.__bases__ == (models.Model,):
        edit = partial(project_files.with_payable, name=order.name, lines=lines, is_payable=order.is_payable)
        write = partial(change, source, edit)
    yield Gap(f"{order.name} as a Payable", place, snippet, write)


def _bases(order: OrderModel) -> str:
    """Return the base classes that the model needs: its own, with Payable in the place of ``models.Model``."""
    found = list(order.model.__bases__)
    if not order.is_payable:
        found = [Payable if base is models.Model else base for base in found]
        found += [] if Payable in found else [Payable]
    return ", ".join(base.__name__ for base in found)


def gaps_of_handlers(root: Path, named: str | None, order: OrderModel | None) -> Iterator[Gap]:
    own = [found for found in apps.get_app_configs() if is_own(Path(found.path), root)]
    model, assumed = (order.model, f"for {order.model._meta.label}") if order else _subject(own, named)
    mine = [path for found in own if (path := Path(found.path) / "payment_handlers.py").exists()]
    of_another = [order is not None and _of_another_model(path, order) for path in mine]
    if handlers.follow_payments() and not (mine and all(of_another)):
        return
    snippet = order_files.handlers(model, order)
    mine_first = [found for found in own if model is not None and found.label == model._meta.app_label] + own
    if not mine_first:
        place = "payment_handlers.py, in an app of yours (python manage.py startapp orders)"
        yield Gap("Handlers", place, snippet)
        return
    path = Path(mine_first[0].path) / "payment_handlers.py"
    if mine and all(of_another):
        if path.exists():
            yield Gap("Handlers", f"{as_shown(path, root)}, which {of_another[0]}; add to it", snippet)
            return
    elif mine:
        yield Gap("Handlers", f"{as_shown(mine[0], root)} has none for a change of a payment; for example", snippet)
        return
    yield Gap("Handlers", f"{as_shown(path, root)}, a new file; {assumed}", snippet, partial(create, path, snippet))


def _subject(own: list[AppConfig], named: str | None) -> tuple[type[models.Model] | None, str]:
    """Return the model that payments are for, and the assumption that found it."""
    if named:
        return model_named("--model", named), f"for {named}"
    likely = candidates(own)
    if not likely:
        return None, "no model of yours has the name of an order: if there is one, name it with --model app.Model"
    why = "it is a Payable" if issubclass(likely[0], Payable) else "by its name; it is no Payable yet"
    labels = [model._meta.label for model in likely]
    others = f", and not for {' or '.join(labels[1:])}" if labels[1:] else ""
    return likely[0], f"assumed: payments are for {labels[0]} ({why}){others}; name another with --model app.Model"
