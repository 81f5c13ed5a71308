"""Settings: from the command line, else the environment, else a file, else a default.

    [config file]                  $TIMINGWHEEL_CONFIG, else ./timingwheel.toml, else
                                   ~/.config/timingwheel/config.toml ($XDG_CONFIG_HOME)
    data = "/var/lib/jobs"         as --data, TIMINGWHEEL_DATA
    url = "https://jobs:8765"      as --url, TIMINGWHEEL_URL
    store = "postgresql://db/jobs" as --store, TIMINGWHEEL_STORE
    token = "..."                  as --token, TIMINGWHEEL_TOKEN
    app = "shop.jobs:app"          as --app, TIMINGWHEEL_APP
    json = false                   as --json, TIMINGWHEEL_JSON
    utc = true                     as --utc, TIMINGWHEEL_UTC
    host = "127.0.0.1"             as serve --host, TIMINGWHEEL_HOST
    port = 8765                    as serve --port, TIMINGWHEEL_PORT
    hints = "auto"                 as serve --hints, TIMINGWHEEL_HINTS

Each setting knows where it came from, for `timingwheel config show`. Of `data`, `url` and
`store` the one from the nearest place counts; two from one place are refused.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from typing import Final, NamedTuple

from timingwheel.cli.refusal import MisuseError
from timingwheel.scheduler.opening import is_database

PREFIX: Final = "TIMINGWHEEL_"
CONFIG_VARIABLE: Final = "TIMINGWHEEL_CONFIG"
Value = str | bool | int | None
DEFAULTS: Final[Mapping[str, Value]] = {
    "data": "./data",
    "url": None,
    "store": None,
    "token": None,
    "app": None,
    "json": False,
    "utc": False,
    "host": "127.0.0.1",
    "port": 8765,
    "hints": "auto",
}
PLACES: Final = ("data", "url", "store")
"""Settings that say where the jobs are."""
_HERE: Final = "timingwheel.toml"
_FORMS: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a whole number",
    str: "a text in quotes",
}
_YES: Final = {"1": True, "true": True, "yes": True, "on": True}
_NO: Final = {"0": False, "false": False, "no": False, "off": False, "": False}


class Setting(NamedTuple):
    """One setting.

    Attributes:
        value: what counts.
        origin: where it came from, as people would look for it.
        rank: 0 for the command line, 1 the environment, 2 the file, 3 the default.
    """

    value: Value
    origin: str
    rank: int


class Place(NamedTuple):
    """Which setting says where the jobs are.

    Attributes:
        name: of the setting, one of PLACES.
        origin: where it came from.
    """

    name: str
    origin: str


class Settings:
    """All settings of one command.

    Attributes:
        all: by name.

    Args:
        flags: what the command line says.
        environment: the variables of the process.

    Raises:
        MisuseError: one of them is invalid; its origin is named.
    """

    def __init__(
        self, flags: Mapping[str, object], environment: Mapping[str, str]
    ) -> None:
        path = config_path(environment)
        file = {} if path is None else _read(path)
        found: dict[str, Setting] = {}
        for name, default in DEFAULTS.items():
            variable = PREFIX + name.upper()
            if name in flags:
                setting = Setting(_of(flags[name]), f"--{name}", 0)
            elif environment.get(variable):
                value = _from_text(name, environment[variable], variable)
                setting = Setting(value, f"{variable} in the environment", 1)
            elif name in file:
                setting = Setting(file[name], f"{path}", 2)
            else:
                setting = Setting(default, "default", 3)
            found[name] = setting
        self.all: Final = found
        self.config: Final = path

    def text(self, name: str) -> str | None:
        """Return a setting that is text, None if it is not set."""
        value = self.all[name].value
        return value if isinstance(value, str) else None

    def number(self, name: str) -> int:
        """Return a setting that is a number."""
        value = self.all[name].value
        assert type(value) is int, (name, value)
        return value

    def flag(self, name: str) -> bool:
        """Return a setting that is yes or no."""
        return bool(self.all[name].value)

    @property
    def url(self) -> str | None:
        """The server's address if jobs are to be asked for there, else None.

        Raises:
            MisuseError: another place is named, too, and as near.
        """
        return self.text("url") if self.place.name == "url" else None

    @property
    def store(self) -> str | None:
        """The database's URL if the jobs are there, else None.

        Raises:
            MisuseError: another place is named, too, and as near; or it is no URL of
                a database.
        """
        if self.place.name != "store":
            return None
        store = self.text("store") or ""
        if not is_database(store):
            raise MisuseError(
                f"{self.place.origin} is {store!r}: pass postgresql://…, or name a "
                "directory with --data"
            )
        return store

    @property
    def place(self) -> Place:
        """Which setting says where the jobs are.

        Raises:
            MisuseError: two do, and neither is nearer.
        """
        near = sorted(
            (setting.rank, name, setting.origin)
            for name in PLACES
            if (setting := self.all[name]).value is not None
        )
        (rank, name, origin), *others = near
        if others and others[0][0] == rank:
            raise MisuseError(
                f"{origin} and {others[0][2]} both say where the jobs are: keep one"
            )
        return Place(name, origin)

    @property
    def data(self) -> str:
        """The directory."""
        return self.text("data") or ""


def config_path(environment: Mapping[str, str]) -> str | None:
    """Return the configuration file that counts, None if there is none.

    Raises:
        MisuseError: the environment names one that is not there.
    """
    named = environment.get(CONFIG_VARIABLE)
    if named:
        if not os.path.isfile(named):
            raise MisuseError(
                f"{CONFIG_VARIABLE} is {named!r}, and there is no such file: write it, "
                "or unset the variable"
            )
        return named
    home = environment.get("XDG_CONFIG_HOME") or os.path.join(
        environment.get("HOME", ""), ".config"
    )
    places = (_HERE, os.path.join(home, "timingwheel", "config.toml"))
    return next((place for place in places if os.path.isfile(place)), None)


def _read(path: str) -> dict[str, Value]:
    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise MisuseError(f"{path} cannot be read: {error}") from error
    for name, value in found.items():
        if name not in DEFAULTS:
            known = ", ".join(DEFAULTS)
            raise MisuseError(f"{path} sets {name!r}, which is no setting: {known}")
        wanted = _kind_of(name)
        if type(value) is not wanted:
            raise MisuseError(f"{path}: {name} is {value!r}: write {_FORMS[wanted]}")
    return found


def _kind_of(name: str) -> type[str | bool | int]:
    default = DEFAULTS[name]
    return str if default is None else type(default)


def _from_text(name: str, text: str, variable: str) -> Value:
    kind = _kind_of(name)
    if kind is str:
        return text
    if kind is int:
        if not text.strip().isdecimal():
            raise MisuseError(f"{variable} is {text!r}: set it to a whole number")
        return int(text)
    word = text.strip().lower()
    if word in _YES or word in _NO:
        return word in _YES
    raise MisuseError(f"{variable} is {text!r}: set it to 1 or 0")


def _of(value: object) -> str | bool:
    assert isinstance(value, str | bool)
    return value
