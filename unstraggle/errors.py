"""The errors of the project: each gives the rule, the value that broke it, and the way out."""


class UnstraggleError(Exception):
    """Base of everything that this package raises on purpose."""


class Invalid(UnstraggleError, ValueError):
    """An argument or a table breaks a rule."""


class NotRecovered(UnstraggleError):
    """The messages that arrived do not determine the gradient."""
