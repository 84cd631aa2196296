"""Who the servers run as: ourselves, or, since Postgres refuses root, the `nobody` user when we are root."""

from __future__ import annotations

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path

from embedded.errors import EmbeddedError


@dataclass(frozen=True)
class Identity:
    uid: int
    gid: int

    @classmethod
    def for_servers(cls) -> Identity | None:
        """None: no change of user. initdb wants a name in the user database, so a bare number would not do."""
        if os.geteuid() != 0:
            return None
        try:
            nobody = pwd.getpwnam("nobody")
        except KeyError:
            raise EmbeddedError(
                "Postgres refuses to run as root and this system has no user `nobody` to run it as; "
                "run this as a plain user, or set DATABASE_URL and REDIS_URL to servers of your own."
            ) from None
        return cls(nobody.pw_uid, nobody.pw_gid)

    def can_use(self, path: Path) -> bool:
        """Whether this user may enter the directory (or execute the file), asked of the kernel, so that ACLs and noexec mounts count."""
        asked = subprocess.run(
            ["test", "-x", str(path)], user=self.uid, group=self.gid, extra_groups=[], cwd="/", stdin=subprocess.DEVNULL, check=False
        )
        return asked.returncode == 0

    def own(self, path: Path) -> None:
        os.chown(path, self.uid, self.gid)
