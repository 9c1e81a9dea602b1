"""Settings: strict keys, one clear line."""

from pathlib import Path

import pytest

from store.errors import BadSetting
from store.settings import Settings, read_settings


class Wall(Settings):
    """A wall to grow along."""

    height_cm: int


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("height_cm: 180\nwidth: 2\n", "width: Extra inputs are not permitted; the keys here are height_cm"),
        ("{}", "height_cm: Field required"),
        ("- 1\n", "holds a list, not a mapping"),
        ("a: [", "is no YAML"),
        (b"\xff\xfe", "is no YAML"),
    ],
)
def test_a_wrong_settings_file_is_one_line_that_names_the_file(tmp_path: Path, monkeypatch, text, message):
    monkeypatch.setenv("ESPALIER_CONF", str(tmp_path))
    (tmp_path / "wall.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadSetting) as raised:
        read_settings(Wall, "wall.yaml")
    assert message in str(raised.value)
    assert "wall.yaml" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_settings_file_names_the_variable_that_moves_it(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("ESPALIER_CONF", str(tmp_path))
    with pytest.raises(BadSetting, match="ESPALIER_CONF"):
        read_settings(Wall, "wall.yaml")


def test_settings_cannot_be_changed_after_reading(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("ESPALIER_CONF", str(tmp_path))
    (tmp_path / "wall.yaml").write_text("height_cm: 180\n")
    wall = read_settings(Wall, "wall.yaml")
    with pytest.raises(ValueError, match="frozen"):
        wall.height_cm = 3
