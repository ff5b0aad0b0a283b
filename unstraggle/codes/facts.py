"""Facts: what a scheme's file says of it besides the code. The catalogue, citations and contract tests are made from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from ..doors import door
from ..errors import Invalid

Group = Literal["one", "several", "handed", "join", "change", "approximate"]

GROUPS: dict[Group, str] = {
    "one": "Exact, one message per worker",
    "several": "Exact, several messages per worker",
    "handed": "Exact, tasks handed out while the round runs",
    "join": "Joining codes",
    "change": "Changing codes",
    "approximate": "Approximate",
}
"""Where a scheme stands in the catalogue; "approximate" means that its gradient is not exact: it goes with a deadline."""

Scheme = TypeVar("Scheme", bound=Callable[..., Any])


@dataclass(frozen=True)
class Facts:
    """A scheme in the catalogue, among the citations, and in the contract tests.

    example: an expression with 12 workers, in which {p} stands for straggle probabilities. sent, decoded: the rule, in the
    letters of the catalogue. papers: BibTeX, or keys of app/references.bib. tried: expressions that the contract tests run on,
    by default the example. limit: a few words beside its name in the overview. note: a sentence on how to read its numbers.
    """

    name: str
    group: Group
    example: str
    sent: str
    decoded: str
    papers: tuple[str, ...]
    tried: tuple[str, ...] = ()
    limit: str = ""
    note: str = ""

    @property
    def exact(self) -> bool:
        return self.group != "approximate"

    @property
    def shown(self) -> str:
        """The expression as a reader sees it."""
        return self.example.format(p="p")

    @property
    def needs_p(self) -> bool:
        return "{p}" in self.example

    def expression(self, p: Sequence[float]) -> str:
        """The example, designed for these straggle probabilities where it needs them."""
        return self.example.format(p=list(p))


def scheme(
    group: Group,
    example: str,
    *,
    sent: str,
    decoded: str,
    papers: Sequence[str],
    tried: Sequence[str] = (),
    limit: str = "",
    note: str = "",
) -> Callable[[Scheme], Scheme]:
    """Attach its facts to a function that makes a code, and make it a `door`.

    >>> @scheme("one", "alone(12)", sent="m_i = g_i", decoded="g = m_0 + ... + m_{n-1}", papers=())
    ... def alone(n): ...
    >>> facts_of(alone).name, facts_of(alone).exact
    ('alone', True)
    """
    if group not in GROUPS:
        raise Invalid(f"scheme needs one of the groups {', '.join(GROUPS)}, but got {group!r}.")

    def attach(function: Scheme) -> Scheme:
        name = function.__name__
        if not example.startswith(f"{name}("):
            raise Invalid(f"scheme needs an example that calls {name}, such as {name}(12, ...), but got {example!r}.")
        facts = Facts(name, group, example, sent, decoded, tuple(papers), tuple(tried), limit, note)
        opened = door(function)
        opened.facts = facts  # type: ignore[attr-defined]
        return opened

    return attach


def facts_of(function: Any) -> Facts | None:
    """The facts of a scheme; None of anything else."""
    found = getattr(function, "facts", None)
    return found if isinstance(found, Facts) else None
