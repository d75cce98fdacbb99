"""The test settings with the admin theme that ADMIN_THEME names: an app of that name, or "django"."""

import os

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS as _APPS

ADMIN_THEME = os.environ["ADMIN_THEME"]
# A theme's templates stand before those of Django's admin.
INSTALLED_APPS = _APPS if ADMIN_THEME == "django" else [ADMIN_THEME, *_APPS]
ROOT_URLCONF = "tests.browser.themes.urls"
# All that a page needs comes from the site.
JAZZMIN_SETTINGS = {"use_google_fonts_cdn": False}
