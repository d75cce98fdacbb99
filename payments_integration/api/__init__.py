"""Serve a REST API to the merchant's own front ends and back offices, with the provider's names.

``payments_integration.urls`` imports it only if the extra ``api`` is installed. Views hold no rules: they ask who may
call (``permissions``) and which rows a user may see (``querysets``), call a service, and show the resulting row
(``serializers``).
"""
