"""Config files: options of commands from TOML, or from the config.json that a run leaves behind."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...checks import parsed_json, suggestion
from ...errors import Invalid


def defaults(path: Path, group: Any) -> dict[str, Any]:
    """What stands in a file, as the parser wants it: commands, and their parameters by the names that functions have.

    Keys above all tables are for every command that has such an option. group: the command that has all others.
    """
    given = _read(path, group)
    tables = {key: value for key, value in given.items() if isinstance(value, dict) or key in group.commands}
    shared = {key: value for key, value in given.items() if key not in tables}
    known = {_key(name) for command in _leaves(group) for name in _parameters(command)}
    for key in shared:
        _require(path, _key(key), known, "")
    return _tables(path, group, tables, shared, "")


def key_of(param: Any) -> str:
    """How a file calls a parameter: by its long option, or by the name of an argument.

    >>> from types import SimpleNamespace
    >>> key_of(SimpleNamespace(name="as_json", opts=["--json"])), key_of(SimpleNamespace(name="code", opts=["code"]))
    ('json', 'code')
    """
    return _key(max(param.opts, key=len))


def _key(name: str) -> str:
    return name.lstrip("-").replace("_", "-").lower()


def _tables(path: Path, group: Any, tables: Mapping[str, Any], shared: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The tables of a group of commands, and of groups in it."""
    for name in tables:
        _require(path, name, group.commands, where, "command")
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        table = tables.get(name, {})
        if not isinstance(table, dict):
            raise Invalid(f"{path}: {where}{name} is a command, so it needs a table, but got {table!r}. Write [{where}{name}].")
        inner = _tables if hasattr(command, "commands") else _options
        found[name] = inner(path, command, table, shared, f"{where}{name}.")
    return found


def _options(path: Path, command: Any, table: Mapping[str, Any], shared: Mapping[str, Any], where: str) -> dict[str, Any]:
    """{parameter: value} of one command; its own table wins over what is for all."""
    known = _parameters(command)
    for key in table:
        _require(path, _key(key), known, where)
    values = {_key(key): value for key, value in {**shared, **table}.items() if _key(key) in known and value is not None}
    return dict(_value(known[key], key, value) for key, value in values.items())


def _value(param: Any, key: str, value: Any) -> tuple[str, Any]:
    """A parameter's name and value: an option that turns another off is its opposite; one of several is a list of one."""
    if key != key_of(param):
        return param.name, not value
    several = param.nargs == -1 or getattr(param, "multiple", False)
    return param.name, [value] if several and not isinstance(value, list) else value


def _parameters(command: Any) -> dict[str, Any]:
    """By the keys of a file."""
    named = {key_of(param): param for param in command.params if param.name != "help"}
    return named | {_key(opt): param for param in command.params for opt in getattr(param, "secondary_opts", ())}


def _leaves(group: Any) -> Iterator[Any]:
    for command in group.commands.values():
        yield from _leaves(command) if hasattr(command, "commands") else (command,)


def _require(path: Path, name: str, known: Any, where: str, kind: str = "option") -> None:
    if name not in known:
        raise Invalid(f"{path}: unknown {kind} {where}{name}. {suggestion(name, known)}")


def _read(path: Path, group: Any) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    try:
        given = parsed_json(text) if path.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{path} cannot be read as {'JSON' if path.suffix == '.json' else 'TOML'}: {error}.") from None
    if not isinstance(given, dict):
        raise Invalid(f"{path} must hold a table for each command, but holds {type(given).__name__}.")
    return _of_a_run(path, given, group) if path.suffix == ".json" and "command" in given else given


def _of_a_run(path: Path, given: dict[str, Any], group: Any) -> dict[str, Any]:
    """The options that a run wrote down, for the command that it was."""
    words = [word for word in given["command"] if word in group.commands]
    if not words or not isinstance(given.get("options"), dict):
        raise Invalid(f"{path} is not the config.json of a run: it has no command of this program, or no options.")
    return {words[0]: given["options"]}
