"""Artifacts: short texts stay in the row, long ones become files under their digest."""

from pathlib import Path

import pytest

from store.artifacts import INLINE_LIMIT_BYTES, artifact_path, load_artifact, store_artifact
from store.errors import UnknownName
from store.home import open_home


def test_a_short_text_stays_in_its_row(tmp_path: Path):
    home = open_home(tmp_path)
    inline, digest = store_artifact(home, "x = 1")
    assert inline == "x = 1"
    assert load_artifact(home, inline, digest) == "x = 1"
    assert not artifact_path(home, digest).exists()


def test_a_long_text_is_a_file_that_reads_back_equal(tmp_path: Path):
    home = open_home(tmp_path)
    text = "é" * INLINE_LIMIT_BYTES
    inline, digest = store_artifact(home, text)
    assert inline is None
    assert store_artifact(home, text) == (None, digest)
    assert load_artifact(home, inline, digest) == text


def test_no_artifact_is_none_and_an_empty_one_is_empty(tmp_path: Path):
    home = open_home(tmp_path)
    assert store_artifact(home, None) == (None, None)
    assert load_artifact(home, *store_artifact(home, "")) == ""


def test_a_missing_file_is_a_named_error(tmp_path: Path):
    home = open_home(tmp_path)
    _, digest = store_artifact(home, "y" * (INLINE_LIMIT_BYTES + 1))
    artifact_path(home, digest).unlink()
    with pytest.raises(UnknownName, match=digest):
        load_artifact(home, None, digest)
