"""`python -m tests.process.project COMMAND`: its manage.py."""

import os
import sys

from django.core.management import execute_from_command_line

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.process.project.settings"
execute_from_command_line(sys.argv)
