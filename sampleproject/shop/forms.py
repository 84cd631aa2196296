"""What people may send, and the sentence for what they may not."""

from __future__ import annotations

import re

from django import forms
from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.template.defaultfilters import filesizeformat

from .models import Workspace

FIRST_YEAR, LAST_YEAR = 2000, 2100


class UploadForm(forms.Form):
    """A CSV file of orders."""

    file = forms.FileField(
        label="Orders file",
        help_text="CSV with the columns order_number, customer_email, placed_on, amount and currency, separated by comma or semicolon.",
        widget=forms.ClearableFileInput(attrs={"accept": ".csv,text/csv"}),
        error_messages={"empty": "The file is empty: choose a CSV file with a header line and one line for each order."},
    )

    def clean_file(self) -> UploadedFile:
        file: UploadedFile = self.cleaned_data["file"]
        most = settings.SHOP_UPLOAD_MAX_BYTES
        if (file.size or 0) > most:
            raise forms.ValidationError(
                f"The file has {filesizeformat(file.size or 0)}; at most {filesizeformat(most)} are possible: send it in parts."
            )
        return file


class ReportForm(forms.Form):
    """A month. `cleaned_data["month"]` is (year, month)."""

    month = forms.CharField(label="Month", help_text="For example 2024-05.", widget=forms.TextInput(attrs={"type": "month"}))

    def clean_month(self) -> tuple[int, int]:
        found = re.fullmatch(r"([0-9]{4})-([0-9]{2})", self.cleaned_data["month"])
        year, month = (int(found[1]), int(found[2])) if found else (0, 0)
        if not (FIRST_YEAR <= year <= LAST_YEAR and 1 <= month <= 12):
            raise forms.ValidationError(f"Write the month as year and month, like 2024-05, from {FIRST_YEAR} to {LAST_YEAR}.")
        return year, month


class ResetForm(forms.Form):
    """Who forgot the password."""

    email = forms.EmailField(label="E-mail address", widget=forms.EmailInput(attrs={"autocomplete": "email"}))


class FindWorkspaceForm(forms.Form):
    """A workspace's code."""

    workspace = forms.SlugField(label="Workspace code", help_text="The part after /w/ in its address.")

    def clean_workspace(self) -> str:
        code: str = self.cleaned_data["workspace"]
        if not Workspace.objects.filter(pk=code).exists():
            raise forms.ValidationError(f"There is no workspace “{code}”: look at the address in a message or bookmark of yours.")
        return code


class EndpointForm(forms.Form):
    """A receiver of webhooks."""

    url = forms.URLField(label="Address", assume_scheme="https", max_length=500, help_text="Begins with https:// or http://.")

    def clean_url(self) -> str:
        url: str = self.cleaned_data["url"]
        if not url.startswith(("https://", "http://")):
            raise forms.ValidationError("A webhook's address begins with https:// or http://.")
        return url
