"""The one error a user sees: a single line that names the cause and, where there is one, the fix."""


class LoadgenError(Exception):
    """Ends a command with one line on stderr and exit code 2."""


class InterruptedEarlyError(LoadgenError):
    """Ctrl-C came before there was anything to show: exit code 130."""
