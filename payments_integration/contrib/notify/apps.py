"""Configure the app: connect it to the signals, and check its setting."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.core import checks
from django.utils.translation import gettext_lazy as _

from payments_integration import signals
from payments_integration.contrib.notify import options


class NotifyConfig(AppConfig):
    name = "payments_integration.contrib.notify"
    label = "payments_notify"
    verbose_name = _("Notices about payments")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        notices = import_module("payments_integration.contrib.notify.notices")  # needs the models
        signals.attention.connect(notices.record, dispatch_uid="payments_notify")
        signals.pass_ended.connect(notices.deliver, dispatch_uid="payments_notify")
        checks.register(options.check_setting, checks.Tags.compatibility)
