"""The shop's addresses: /w/<workspace>/... belongs to one workspace."""

from __future__ import annotations

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import URLPattern, URLResolver, include, path

from .views import jobs, reports, resets, uploads, webhooks, workspaces

in_workspace = [
    path("", workspaces.overview, name="overview"),
    path("uploads/new/", uploads.new_upload, name="new_upload"),
    path("uploads/<int:upload_id>/", uploads.upload, name="upload"),
    path("uploads/<int:upload_id>/progress/", uploads.upload_progress, name="upload_progress"),
    path("reports/", reports.reports, name="reports"),
    path("reports/new/", reports.new_report, name="new_report"),
    path("reports/<int:report_id>/", reports.report, name="report"),
    path("jobs/", jobs.jobs, name="jobs"),
    path("webhooks/", webhooks.endpoints, name="webhooks"),
    path("webhooks/<int:endpoint_id>/test/", webhooks.send_test, name="webhook_test"),
    path("password-reset/", resets.reset_request, name="reset_request"),
    path("password-reset/<slug:token>/", resets.reset_confirm, name="reset_confirm"),
]
urlpatterns: list[URLPattern | URLResolver] = [
    path("", workspaces.home, name="home"),
    path("login/", LoginView.as_view(template_name="shop/login.html", redirect_authenticated_user=True), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("password-reset/", resets.find_workspace, name="reset_find"),
    path("w/<slug:workspace_id>/", include(in_workspace)),
]
