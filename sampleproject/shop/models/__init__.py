"""The shop's tables. Every table but Workspace, Membership and JobEffect is a tenant table under FORCE ROW LEVEL SECURITY."""

from .effects import JobEffect
from .orders import MonthlyReport, Order, OrderUpload, RejectedRow
from .resets import PasswordReset
from .tenant import TenantRow
from .webhooks import WebhookDelivery, WebhookEndpoint
from .workspaces import Membership, Role, Workspace

__all__ = [
    "JobEffect",
    "Membership",
    "MonthlyReport",
    "Order",
    "OrderUpload",
    "PasswordReset",
    "RejectedRow",
    "Role",
    "TenantRow",
    "WebhookDelivery",
    "WebhookEndpoint",
    "Workspace",
]
