"""What can go wrong with an embedded server: one sentence each."""


class EmbeddedError(RuntimeError):
    """The message is one sentence that says what was wrong and what to do; it may be followed by a server's last log lines."""
