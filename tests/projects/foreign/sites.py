"""The sites: what is installed, how the official generator makes the project, and what is added to it."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent


@dataclass(frozen=True)
class Site:
    """A project called ``project``. Its files are made by ``generator`` and then by ``additions``."""

    name: str
    #: What pip installs before our wheel, each in its newest release.
    packages: tuple[str, ...]
    #: The generator's command, a program of the environment. The folder exists and is empty.
    generator: tuple[str, ...]
    settings: str
    #: Text that is appended to files of the project; a file that does not exist is made.
    additions: dict[str, str]
    #: The addresses of the pages on which staff log in and begin, and the names of the form's fields.
    login: str
    admin: str
    login_fields: tuple[str, str] = ("username", "password")
    #: Its own apps that need migrations.
    apps: tuple[str, ...] = ()
    #: Aliases of the databases that ``migrate`` runs for.
    databases: tuple[str, ...] = ("default",)
    #: Whether its policy refuses inline scripts and styles.
    strict: bool = False
    #: Text that each page has with DEBUG.
    debug_mark: str = ""


#: docs/install.md, and what any site has on a server.
_APP = """

import os

from payments_integration import conf

DEBUG = os.environ["SITE_DEBUG"] == "true"
SECRET_KEY = "a-key-for-the-tests-of-foreign-sites-and-for-nothing-else"
ALLOWED_HOSTS = ["127.0.0.1"]
USE_TZ = True
INSTALLED_APPS += ["rest_framework", "payments_integration", "shop"]
INSTALLED_APPS += ["payments_integration.contrib.finance", "payments_integration.contrib.backoffice"]
INSTALLED_APPS += ["payments_integration.contrib.receipts"]
PAYMENTS_INTEGRATION = conf.from_env()
for database in DATABASES.values():
    database["OPTIONS"] = {"transaction_mode": "IMMEDIATE", "timeout": 20}
STATIC_ROOT = BASE_DIR / "collected"
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(levelname)s %(name)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
}
"""
#: Before the routes of the site: Wagtail's last one matches everything.
_URLS = """

from django.urls import include, path

urlpatterns = [path("payments/", include("payments_integration.urls")), *urlpatterns]
"""
#: A handler whose second call for a payment fails. It writes where the site's users are.
HANDLERS = """
from django.contrib.auth.models import Group

from payments_integration.handlers import on_status
from payments_integration.models import Payment


@on_status(Payment, "succeeded")
def paid(payment, **kwargs):
    Group.objects.create(name=f"paid {payment.pk}")
"""
_ASGI = """
import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings.production")
application = get_asgi_application()
"""
_MANIFEST = "django.contrib.staticfiles.storage.ManifestStaticFilesStorage"
#: The project's template of Django is for development.
_PRODUCTION = f'''
MAILERS = {{"default": {{"BACKEND": "django.core.mail.backends.smtp.EmailBackend"}}}}
STORAGES = {{
    "default": {{"BACKEND": "django.core.files.storage.FileSystemStorage"}},
    "staticfiles": {{"BACKEND": "{_MANIFEST}"}},
}}
'''
_STARTPROJECT = ("django-admin", "startproject", "project", ".")

WAGTAIL = Site(
    name="wagtail",
    packages=("wagtail",),
    generator=("wagtail", "start", "project", "."),
    settings="project.settings.production",
    additions={
        "project/settings/production.py": _APP,
        "project/urls.py": _URLS,
        "project/asgi.py": _ASGI,  # Wagtail's template has only wsgi.py
    },
    login="/django-admin/login/",
    admin="/django-admin/",
)

#: "Building your own shop" in Oscar's documentation.
OSCAR_SETTINGS = dedent(
    """

    from django.urls import reverse_lazy
    from oscar.defaults import *

    INSTALLED_APPS += [
        "django.contrib.sites", "django.contrib.flatpages",
        "oscar.config.Shop",
        "oscar.apps.analytics.apps.AnalyticsConfig",
        "oscar.apps.checkout.apps.CheckoutConfig",
        "oscar.apps.address.apps.AddressConfig",
        "oscar.apps.shipping.apps.ShippingConfig",
        "oscar.apps.catalogue.apps.CatalogueConfig",
        "oscar.apps.catalogue.reviews.apps.CatalogueReviewsConfig",
        "oscar.apps.communication.apps.CommunicationConfig",
        "oscar.apps.partner.apps.PartnerConfig",
        "oscar.apps.basket.apps.BasketConfig",
        "oscar.apps.payment.apps.PaymentConfig",
        "oscar.apps.offer.apps.OfferConfig",
        "oscar.apps.order.apps.OrderConfig",
        "oscar.apps.customer.apps.CustomerConfig",
        "oscar.apps.search.apps.SearchConfig",
        "oscar.apps.voucher.apps.VoucherConfig",
        "oscar.apps.wishlists.apps.WishlistsConfig",
        "oscar.apps.dashboard.apps.DashboardConfig",
        "oscar.apps.dashboard.reports.apps.ReportsDashboardConfig",
        "oscar.apps.dashboard.users.apps.UsersDashboardConfig",
        "oscar.apps.dashboard.orders.apps.OrdersDashboardConfig",
        "oscar.apps.dashboard.catalogue.apps.CatalogueDashboardConfig",
        "oscar.apps.dashboard.offers.apps.OffersDashboardConfig",
        "oscar.apps.dashboard.partners.apps.PartnersDashboardConfig",
        "oscar.apps.dashboard.pages.apps.PagesDashboardConfig",
        "oscar.apps.dashboard.ranges.apps.RangesDashboardConfig",
        "oscar.apps.dashboard.reviews.apps.ReviewsDashboardConfig",
        "oscar.apps.dashboard.vouchers.apps.VouchersDashboardConfig",
        "oscar.apps.dashboard.communications.apps.CommunicationsDashboardConfig",
        "oscar.apps.dashboard.shipping.apps.ShippingDashboardConfig",
        "widget_tweaks", "haystack", "treebeard", "sorl.thumbnail", "django_tables2",
    ]
    SITE_ID = 1
    MIDDLEWARE += [
        "oscar.apps.basket.middleware.BasketMiddleware",
        "django.contrib.flatpages.middleware.FlatpageFallbackMiddleware",
    ]
    TEMPLATES[0]["OPTIONS"]["context_processors"] += [
        "oscar.apps.search.context_processors.search_form",
        "oscar.apps.checkout.context_processors.checkout",
        "oscar.apps.communication.notifications.context_processors.notifications",
        "oscar.core.context_processors.metadata",
    ]
    AUTHENTICATION_BACKENDS = [
        "oscar.apps.customer.auth_backends.EmailBackend",
        "django.contrib.auth.backends.ModelBackend",
    ]
    HAYSTACK_CONNECTIONS = {"default": {"ENGINE": "haystack.backends.simple_backend.SimpleEngine"}}
    """
)

OSCAR = Site(
    name="oscar",
    packages=("django-oscar[sorl-thumbnail]",),
    generator=_STARTPROJECT,
    settings="project.settings",
    additions={
        "project/settings.py": OSCAR_SETTINGS + _PRODUCTION + _APP,
        "project/urls.py": dedent(
            """

            from django.apps import apps
            from django.urls import include, path

            urlpatterns += [
                path("i18n/", include("django.conf.urls.i18n")),
                path("", include(apps.get_app_config("oscar").urls[0])),
            ]
            """
        )
        + _URLS,
    },
    login="/admin/login/",
    admin="/admin/",
)

_BUSY_SETTINGS = (
    dedent(
        """

        from csp.constants import NONCE, SELF, UNSAFE_EVAL

        INSTALLED_APPS = [
            "unfold",
            "people",
            *INSTALLED_APPS,
            "allauth", "allauth.account",
            "csp", "debug_toolbar", "axes", "django_celery_beat",
        ]
        AUTH_USER_MODEL = "people.Person"
        AUTHENTICATION_BACKENDS = [
            "axes.backends.AxesStandaloneBackend",
            "django.contrib.auth.backends.ModelBackend",
            "allauth.account.auth_backends.AuthenticationBackend",
        ]
        ACCOUNT_LOGIN_METHODS = {"username"}
        ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*", "password2*"]
        ACCOUNT_EMAIL_VERIFICATION = "none"
        MIDDLEWARE = [
            "django.middleware.security.SecurityMiddleware",
            "whitenoise.middleware.WhiteNoiseMiddleware",
            "csp.middleware.CSPMiddleware",
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.locale.LocaleMiddleware",
            "debug_toolbar.middleware.DebugToolbarMiddleware",
            "django.middleware.common.CommonMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.auth.middleware.LoginRequiredMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
            "django.middleware.clickjacking.XFrameOptionsMiddleware",
            "allauth.account.middleware.AccountMiddleware",
            "axes.middleware.AxesMiddleware",
        ]
        INTERNAL_IPS = ["127.0.0.1"]
        CONTENT_SECURITY_POLICY = {
            "DIRECTIVES": {
                "default-src": [SELF],
                "script-src": [SELF, NONCE, UNSAFE_EVAL],  # eval: Unfold's Alpine
                "style-src": [SELF, NONCE],
                "img-src": [SELF, "data:"],
            }
        }
        LANGUAGE_CODE = "pt-br"
        LANGUAGES = [("en", "English"), ("es", "Español"), ("pt-br", "Português (Brasil)")]
        TIME_ZONE = "America/Sao_Paulo"
        DATABASES["default"]["ATOMIC_REQUESTS"] = True
        DATABASES["money"] = {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": BASE_DIR / "money.sqlite3",
            "ATOMIC_REQUESTS": True,
        }
        DATABASE_ROUTERS = ["people.routers.MoneyRouter"]
        SILENCED_SYSTEM_CHECKS = ["payments_integration.W015"]  # its views are exempt from ATOMIC_REQUESTS
        LOGIN_REDIRECT_URL = "/"
        """
    )
    + _PRODUCTION.replace(_MANIFEST, "whitenoise.storage.CompressedManifestStaticFilesStorage")
    + _APP
)

BUSY = Site(
    name="busy",
    packages=(
        "django-allauth", "django-csp", "django-debug-toolbar", "django-axes", "whitenoise", "django-unfold",
        "django-celery-beat",
    ),
    generator=_STARTPROJECT,
    settings="project.settings",
    additions={
        "project/settings.py": _BUSY_SETTINGS,
        "project/urls.py": dedent(
            '''

            from allauth.account.decorators import secure_admin_login
            from debug_toolbar.toolbar import debug_toolbar_urls
            from django.conf.urls.i18n import i18n_patterns
            from django.urls import include, path

            admin.autodiscover()
            admin.site.login = secure_admin_login(admin.site.login)
            urlpatterns = [
                *debug_toolbar_urls(),
                *i18n_patterns(path("admin/", admin.site.urls), path("accounts/", include("allauth.urls"))),
            ]
            '''
        )
        + _URLS,
        "people/__init__.py": "",
        "people/models.py": dedent(
            '''
            import uuid

            from django.contrib.auth.models import AbstractUser
            from django.db import models


            class Person(AbstractUser):
                id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
            '''
        ),
        "people/migrations/__init__.py": "",
        # As in Django's documentation, "Using routers".
        "people/routers.py": dedent(
            '''
            class MoneyRouter:
                apps = {"payments_integration", "payments_finance", "payments_backoffice", "payments_receipts"}

                def db_for_read(self, model, **hints):
                    return "money" if model._meta.app_label in self.apps else None

                db_for_write = db_for_read

                def allow_relation(self, obj1, obj2, **hints):
                    return {obj1._meta.app_label, obj2._meta.app_label} <= self.apps or None

                def allow_migrate(self, db, app_label, **hints):
                    return db == "money" if app_label in self.apps else None
            '''
        ),
    },
    login="/pt-br/accounts/login/",
    login_fields=("login", "password"),
    admin="/pt-br/admin/",
    apps=("people",),
    databases=("default", "money"),
    strict=True,
    debug_mark="djDebug",  # the toolbar
)  # fmt: skip

SITES = (WAGTAIL, OSCAR, BUSY)
