"""Columns and fields of the admin, made from a field's name. Assigned in a ModelAdmin they are its methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.db.models import Model
from django_stubs_ext import StrPromise

from payments_integration.admin import display
