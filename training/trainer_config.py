"""YAML files whose keys are TRL's own argument names, passed to its config classes unchanged."""

import dataclasses
from pathlib import Path
from typing import Any, TypeVar

import yaml

from store.errors import BadSetting
from store.settings import conf_folder
from training.quiet import expected_warnings_hidden

ConfigType = TypeVar("ConfigType")
CHOSEN_BY_THE_RUN = ("output_dir",)


def read_trainer_settings(path: Path | str | None, *, default: str) -> dict[str, Any]:
    """Read a trainer's settings.

    Args:
        path: The file; None reads `default` from the folder of settings.
        default: Such as `training/sft.yaml`.

    Raises:
        BadSetting: The file cannot be read or is no mapping.
    """
    file = Path(path) if path is not None else conf_folder() / default
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise BadSetting(
            f"trainer settings {file} cannot be read ({error.strerror}); name a file with --config."
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadSetting(f"trainer settings {file} are no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise BadSetting(f"trainer settings {file} hold a {type(content).__name__}, not a mapping of TRL's arguments.")
    return content


def build_trainer_config(config_class: type[ConfigType], settings: dict[str, Any], *, output_dir: Path) -> ConfigType:
    """Build TRL's config from settings.

    Raises:
        BadSetting: A key that the class does not have, one that the run chooses itself, or a refused value.
    """
    known = sorted(field.name for field in dataclasses.fields(config_class) if field.init)  # type: ignore[arg-type]
    for key in sorted(settings, key=str):
        if key in CHOSEN_BY_THE_RUN:
            raise BadSetting(f"trainer setting {key!r} is chosen by the run; take it out.")
        if key not in known:
            raise BadSetting(
                f"trainer setting {key!r} is unknown to {config_class.__name__}; it has {', '.join(known)}."
            )
    try:
        with expected_warnings_hidden():
            return config_class(output_dir=str(output_dir), **settings)
    except (TypeError, ValueError) as error:
        raise BadSetting(f"{config_class.__name__} refuses these settings: {' '.join(str(error).split())}") from error
