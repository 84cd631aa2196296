"""The app's configuration."""

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class TenantQueueConfig(AppConfig):
    name = "django_tenant_queue"
    verbose_name = "Tenant queue"
    default_auto_field = "django.db.models.BigAutoField"  # Django 6.0 changed the default; pinned so that migrations agree

    def ready(self) -> None:
        from . import checks  # noqa: F401 - registers system checks

        autodiscover_modules("tasks")
