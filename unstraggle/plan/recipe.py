"""Recipe: a scheme and its arguments, so that planners can name many codes and build the one that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..scheme.code import Code


class Recipe:
    """The call of a scheme; arguments may be recipes.

    >>> from unstraggle.codes import cluster, uncoded
    >>> recipe = Recipe(cluster, Recipe(uncoded, 3), times=2)
    >>> recipe.name, recipe.code().n
    ('cluster(uncoded(3), times=2)', 6)
    """

    def __init__(self, make: Callable[..., Code], *args: Any, **options: Any) -> None:
        self.make, self.args, self.options = make, args, options

    @property
    def name(self) -> str:
        """The name of the code."""
        given = [arg.name if isinstance(arg, Recipe) else repr(arg) for arg in self.args]
        return f"{self.make.__name__}({', '.join([*given, *(f'{key}={value!r}' for key, value in self.options.items())])})"

    def code(self) -> Code:
        """The code."""
        return self.make(*(arg.code() if isinstance(arg, Recipe) else arg for arg in self.args), **self.options)
