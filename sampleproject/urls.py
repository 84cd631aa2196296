"""The site's addresses."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.staticfiles.views import serve
from django.urls import URLPattern, URLResolver, include, path, re_path

urlpatterns: list[URLPattern | URLResolver] = [
    path("admin/", admin.site.urls),
    # The sample serves its own few files, also with DEBUG off; a real site leaves that to a web server or WhiteNoise.
    re_path(r"^static/(?P<path>.*)$", serve, {"insecure": True}),
    path("", include("sampleproject.shop.urls")),
]
