from django.db import migrations

from sampleproject.shop.row_security import ForceTenantPolicy


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [
        ForceTenantPolicy(
            "OrderUpload",
            "RejectedRow",
            "Order",
            "MonthlyReport",
            "PasswordReset",
            "WebhookEndpoint",
            "WebhookDelivery",
        )
    ]
