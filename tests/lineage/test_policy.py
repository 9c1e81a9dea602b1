"""The policy of conf/governance.yaml: what it says, and refusal for everything else."""

from pathlib import Path

import pytest
import yaml

from lineage.policy import GovernanceSettings, Policy, read_policy
from store.errors import BadSetting, RefusedByPolicy
from views.settings import read_view_settings

RULES = {
    "tags": {"open": {}, "secret": {"about": "not for training"}, "reviewed": {}},
    "principals": {"trainer": {"train": ["open"], "audit": ["open", "secret"]}},
}


@pytest.fixture
def policy() -> Policy:
    return Policy(GovernanceSettings.model_validate(RULES))


def test_data_without_tags_and_with_allowed_tags_is_open(policy: Policy) -> None:
    assert policy.check("trainer", "train", ()).allowed
    assert policy.check("trainer", "train", ["open"]).allowed


@pytest.mark.parametrize(
    ("principal", "purpose", "tags", "reason"),
    [
        ("trainer", "train", ["open", "secret"], "tag secret"),
        ("trainer", "train", ["open", "novel"], "unknown tag novel"),
        ("trainer", "export", [], "trainer has no purpose export"),
        ("trainer", "sell", [], "trainer has no purpose sell"),
        ("stranger", "train", [], "unknown principal stranger"),
    ],
)
def test_what_the_policy_does_not_say_is_refused_with_its_reason(
    policy: Policy, principal: str, purpose: str, tags: list[str], reason: str
) -> None:
    decision = policy.check(principal, purpose, tags)
    assert (decision.allowed, decision.reason) == (False, reason)


def test_a_purpose_allows_only_its_own_tags(policy: Policy) -> None:
    assert policy.check("trainer", "audit", ["secret"]).allowed


def test_demanding_an_unknown_principal_says_who_is_known(policy: Policy) -> None:
    with pytest.raises(RefusedByPolicy, match=r"unknown principal stranger.*trainer: audit, train"):
        policy.demand("stranger", "train")


def test_every_shipped_tag_that_stays_where_it_is_is_a_tag_that_the_policy_names() -> None:
    staying = set(read_view_settings().tags_that_stay)
    assert staying == {"reviewed"}
    assert staying <= set(read_policy().settings.tags)


def test_the_digest_follows_the_rules_and_not_the_layout_of_the_file(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESPALIER_CONF", str(tmp_path))
    (tmp_path / "governance.yaml").write_text("# a comment\n" + yaml.safe_dump(RULES, default_flow_style=True))
    assert read_policy().digest == policy.digest
    (tmp_path / "governance.yaml").write_text(yaml.safe_dump({**RULES, "principals": {}}))
    assert read_policy().digest != policy.digest


@pytest.mark.parametrize(
    ("principals", "message"),
    [
        ({"trainer": {"train": ["opn"]}}, "'opn', which is no tag under tags"),
        ({"trainer": {"trian": ["open"]}}, "the purpose 'trian'; there are train, export, retrieve, audit"),
    ],
)
def test_a_misspelt_tag_or_purpose_in_the_file_is_an_error(
    principals: dict, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESPALIER_CONF", str(tmp_path))
    (tmp_path / "governance.yaml").write_text(yaml.safe_dump({**RULES, "principals": principals}))
    with pytest.raises(BadSetting, match=message):
        read_policy()


def test_the_shipped_policy_lets_local_train_and_export_what_is_open_and_no_personal_data() -> None:
    policy = read_policy()
    for purpose in ("train", "export", "audit"):
        assert policy.check("local", purpose, ()).allowed
        assert policy.check("local", purpose, ["licence:apache-2.0"]).allowed
    assert policy.check("local", "train", ["pii"]).reason == "tag pii"
    assert policy.check("local", "audit", ["pii"]).allowed
