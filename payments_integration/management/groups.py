"""Three groups for the people who use the admin: what each of them needs for the day's work, and no more."""

from __future__ import annotations

from django.apps import apps

from payments_integration.permissions import APP

#: What support looks at: a customer's money, and what became of it.
_OF_CUSTOMERS = ("payment", "refund", "payout", "depositreference", "event", "statuschange", "operation")


def groups() -> dict[str, frozenset[str]]:
    """Names of groups, and the codenames of their permissions. Only once models are loaded."""
    everything = {f"view_{model._meta.model_name}" for model in apps.get_app_config(APP).get_models()}
    return {
        "Payments: support": frozenset(
            {
                *(f"view_{name}" for name in _OF_CUSTOMERS),
                "refund_payment",
                "cancel_payment",
                "view_personal_data",
            }
        ),
        "Payments: finance": frozenset(
            {
                *everything,
                "refund_payment",
                "cancel_payment",
                "create_payout",
                "cancel_payout",
                "approve_operation",
                "view_personal_data",
            }
        ),
        # No money, and nobody's name: they keep the machine running.
        "Payments: operations": frozenset(
            {
                *everything,
                "replay_event",
                "change_operation",
                "close_operation",
                "manage_webhookendpoint",
                "rotate_webhookendpoint",
                "run_reconciliation",
            }
        ),
    }
