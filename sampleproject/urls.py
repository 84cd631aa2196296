"""The site's addresses."""

from django.urls import URLPattern, URLResolver, include, path

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("sampleproject.shop.urls")),
]
