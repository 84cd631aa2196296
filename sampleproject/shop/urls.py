"""The shop's addresses: /w/<workspace>/... belongs to one workspace."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
