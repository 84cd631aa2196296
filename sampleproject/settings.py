"""Settings of the sample shop. Servers come from DATABASE_URL and REDIS_URL (`make demo` and `make test` set them)."""

from pathlib import Path

import environ

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.Env()

SECRET_KEY = env("SECRET_KEY", default="the sample shop has no secrets worth keeping, do not copy this line")
DEBUG = env.bool("DEBUG", default=False)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "testserver"])

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_tenant_queue",
    "sampleproject.shop",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_tenant_queue.middleware.TenantEnvelopeMiddleware",
]
ROOT_URLCONF = "sampleproject.urls"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
WSGI_APPLICATION = "sampleproject.wsgi.application"

DATABASES = {"default": env.db("DATABASE_URL", default="postgres://shop_app@127.0.0.1:5432/shop")}
if env.bool("SHOP_PREPARED_STATEMENTS", default=False):
    # A third less work for Postgres in a job. Not behind PgBouncer in transaction mode, unless it is 1.21 or newer.
    DATABASES["default"].setdefault("OPTIONS", {}).update(server_side_binding=True, prepare_threshold=3)
REDIS_URL = env("REDIS_URL", default="redis://127.0.0.1:6379/0")
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    # A cache alias of its own: `cache.clear()` on a shared database would delete the schedule.
    "tenant_queue": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS_URL},
}
TENANT_QUEUE = {
    "REDIS_ALIAS": "tenant_queue",
    "TENANT": "sampleproject.shop.tenancy.tenant_of_request",
    "NAMESPACE": env("TENANT_QUEUE_NAMESPACE", default="shop"),
}
# For the demo's comparison only: one lane for everybody and one queue for everything, as in a queue without fairness.
# Site, workers and whoever enqueues must agree on it; tenant, context and row security stay each job's own.
SHOP_ONE_LINE = env.bool("SHOP_ONE_LINE", default=False)
if SHOP_ONE_LINE:
    TENANT_QUEUE |= {"LANE_KEY": "everybody", "QUEUES": {"line": {"max_share": 1.0}}}

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / ".run" / "static"
MEDIA_ROOT = env.path("MEDIA_ROOT", default=str(BASE_DIR / ".run" / "media"))
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
EMAIL_BACKEND = env("EMAIL_BACKEND", default="django.core.mail.backends.filebased.EmailBackend")
EMAIL_FILE_PATH = env("EMAIL_FILE_PATH", default=str(BASE_DIR / ".run" / "mail"))
DEFAULT_FROM_EMAIL = "shop@example.com"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "login"
SHOP_BASE_URL = env("SHOP_BASE_URL", default="http://localhost:8000")  # in links of messages, which no request asks for
SHOP_MAIL_DOMAIN = "shop.example.com"
SHOP_UPLOAD_MAX_BYTES = 32 * 1024 * 1024
