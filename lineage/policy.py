"""Who may use what for what: conf/governance.yaml, and refusal for everything that it does not say."""

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import Field, model_validator

from store.errors import RefusedByPolicy
from store.ids import canonical_json, sha256_text
from store.settings import Settings, read_settings

PURPOSES = ("train", "export", "retrieve", "audit")


class TagRule(Settings):
    """What a governance tag means."""

    about: str = ""


class GovernanceSettings(Settings):
    """conf/governance.yaml."""

    tags: dict[str, TagRule] = Field(default_factory=dict)
    principals: dict[str, dict[str, list[str]]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _every_purpose_and_allowed_tag_is_known(self) -> "GovernanceSettings":
        for principal, purposes in self.principals.items():
            for purpose, tags in purposes.items():
                if purpose not in PURPOSES:
                    raise ValueError(f"{principal} has the purpose {purpose!r}; there are {', '.join(PURPOSES)}")
                unknown = sorted(set(tags) - set(self.tags))
                if unknown:
                    raise ValueError(f"{principal} may {purpose} {unknown[0]!r}, which is no tag under tags:")
        return self


@dataclass(frozen=True)
class Decision:
    """The answer of a policy; `reason` says in a few words why it refuses."""

    allowed: bool
    reason: str | None = None


@dataclass(frozen=True)
class Policy:
    """The rules of one conf/governance.yaml; refuses by default."""

    settings: GovernanceSettings

    @property
    def digest(self) -> str:
        """SHA-256 of what the rules say; comments and layout of the file do not count."""
        return sha256_text(canonical_json(self.settings.model_dump()))

    def check(self, principal: str, purpose: str, tags: Iterable[str]) -> Decision:
        """May this principal use content under these tags for this purpose?

        The tags are looked at in order of their names, and the first one that is refused is the reason.
        """
        rules = self.settings.principals.get(principal)
        if rules is None:
            return Decision(False, f"unknown principal {principal}")
        if purpose not in rules:
            return Decision(False, f"{principal} has no purpose {purpose}")
        for tag in sorted(set(tags)):
            if tag not in self.settings.tags:
                return Decision(False, f"unknown tag {tag}")
            if tag not in rules[purpose]:
                return Decision(False, f"tag {tag}")
        return Decision(True)

    def demand(self, principal: str, purpose: str) -> None:
        """Check a principal and a purpose before any row is looked at.

        Raises:
            RefusedByPolicy: The policy knows no such principal, or not for this purpose.
        """
        decision = self.check(principal, purpose, ())
        if not decision.allowed:
            known = "; ".join(
                f"{name}: {', '.join(sorted(purposes))}" for name, purposes in sorted(self.settings.principals.items())
            )
            raise RefusedByPolicy(
                f"{decision.reason}, refused; conf/governance.yaml knows {known or 'nobody'}. Name one of these with "
                "--principal and --purpose, or add to that file."
            )


def read_policy() -> Policy:
    """Read conf/governance.yaml.

    Raises:
        BadSetting: The file is missing, or allows a tag that it does not name.
    """
    return Policy(read_settings(GovernanceSettings, "governance.yaml"))
