"""Unified diffs: what one makes of a text, and how many lines it adds."""

import re

HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@")


def added(diff):
    """Lines that a diff adds or writes anew."""
    return sum(line.startswith("+") and not line.startswith("+++") for line in diff.splitlines())


def applied(text, diff):
    """The text after the diff. What the diff says of the text must stand there, at its line.

    >>> applied("a\\nb\\nc\\n", "--- x\\n+++ x\\n@@ -1,3 +1,3 @@\\n a\\n-b\\n+B\\n c\\n")
    'a\\nB\\nc\\n'
    """
    lines, made, at = text.splitlines(), [], 0
    for line in diff.splitlines():
        if line.startswith(("---", "+++")):
            continue
        if found := HUNK.match(line):
            begin = int(found[1]) - 1 + (found[2] == "0")
            made, at = made + lines[at:begin], begin
            continue
        kind, words = line[:1], line[1:]
        if kind != "+":
            assert lines[at] == words, f"line {at + 1} is {lines[at]!r}, but the diff has {words!r}"
            at += 1
        if kind != "-":
            made.append(words)
    return "\n".join([*made, *lines[at:]]) + "\n"
