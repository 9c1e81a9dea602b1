"""Reads conf/*.yaml into one frozen model per file; an unknown key is an error that lists the known ones."""

import os
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from store.errors import BadSetting

CONF = Path(__file__).resolve().parent.parent / "conf"


class Settings(BaseModel):
    """Base of every settings model: frozen, and strict about its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


SettingsType = TypeVar("SettingsType", bound=Settings)


def conf_folder() -> Path:
    """The folder of settings: ESPALIER_CONF where it is set, else the one that ships with the code."""
    return Path(os.environ.get("ESPALIER_CONF") or CONF)


def read_settings(model: type[SettingsType], file: str) -> SettingsType:
    """Read one settings file, such as `views.yaml`, into its model.

    Raises:
        BadSetting: The file is missing, is no YAML mapping, or has a key or value the model refuses.
    """
    path = conf_folder() / file
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise BadSetting(
            f"settings file {path} cannot be read ({error.strerror}); set ESPALIER_CONF to its folder."
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadSetting(f"settings file {path} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise BadSetting(f"settings file {path} holds a {type(content).__name__}, not a mapping of keys.")
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        known = ", ".join(sorted(model.model_fields))
        raise BadSetting(f"settings file {path}: {place}: {first['msg']}; the keys here are {known}.") from error
