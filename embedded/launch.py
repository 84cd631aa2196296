"""The step between fork and exec: drop privileges, ask to be signalled when the parent dies, become the program.

Run as a script by the interpreter (`python -I -S launch.py PARENT SIGNAL UID GID GROUP PROGRAM ARGUMENT...`), so that nothing runs
between fork and exec in a process that may have threads. UID and GID may be `-`; GROUP is `own` or `same` (process group).
Order: a change of user clears the parent-death signal, so it is set afterwards; the parent may have died before, so look again.
"""

import ctypes  # here, not later: the interpreter's library may be out of reach for the user we become
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, death_signal, uid, gid, group, *command = sys.argv[1:]
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts its background jobs with SIGINT ignored
        signal.signal(number, signal.SIG_DFL)
    if uid != "-":
        os.setgroups([])
        os.setgid(int(gid))
        os.setuid(int(uid))
        os.umask(0o077)
    if group == "own":
        os.setpgid(0, 0)
    if sys.platform == "linux":
        die_with_parent(int(death_signal))
    if os.getppid() != int(parent):
        sys.exit(f"The process that started {command[0]} is gone.")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]} cannot be run: {error.strerror}.", file=sys.stderr)
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def die_with_parent(death_signal: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)


if __name__ == "__main__":
    main()
