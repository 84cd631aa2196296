"""Its settings: everything comes from the test that starts the tree."""

import json
import os

SECRET_KEY = os.environ["PROCESS_SECRET_KEY"]
INSTALLED_APPS = ["django_tenant_queue", "tests.process.project"]
DATABASES = {"default": json.loads(os.environ["PROCESS_DATABASE"])}
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    "tenant_queue": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": os.environ["PROCESS_REDIS"]},
}
TENANT_QUEUE = json.loads(os.environ["PROCESS_TENANT_QUEUE"])
USE_TZ = True
