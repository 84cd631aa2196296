"""The messages the shop sends."""

from __future__ import annotations

from uuid import UUID

from django.conf import settings
from django.core.mail import EmailMessage
from django.utils.crypto import salted_hmac

from .models import PasswordReset
from .models.resets import digest_of


def reset_token(reset: PasswordReset, job_id: UUID) -> str:
    """The secret of the link. Derived, so that a job that runs twice sends one and the same link."""
    return salted_hmac("sampleproject.shop.reset", f"{reset.tenant_id}:{reset.pk}:{job_id}", algorithm="sha256").hexdigest()


def reset_message(reset: PasswordReset, token: str) -> EmailMessage:
    """The message with the link. Its Message-ID is the job's: a mail program shows a repeated message once."""
    link = f"{settings.SHOP_BASE_URL}/w/{reset.tenant_id}/password-reset/{token}/"
    return EmailMessage(
        subject="Set a new password",
        body=(
            f"Hello {reset.user.get_username()},\n\nsomebody, probably you, asked for a new password.\n"
            f"Set it here, within an hour:\n\n{link}\n\n"
            "If it was not you, do nothing: your password stays as it is.\n"
        ),
        to=[reset.user.email],
        headers={"Message-ID": f"<{reset.job_id}@{settings.SHOP_MAIL_DOMAIN}>", "Auto-Submitted": "auto-generated"},
    )


__all__ = ["digest_of", "reset_message", "reset_token"]
