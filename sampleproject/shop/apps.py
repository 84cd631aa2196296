"""The app's registration."""

from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "sampleproject.shop"
    label = "shop"
    default_auto_field = "django.db.models.BigAutoField"
