"""The reward rule for kernels (conf/rewards.yaml): from two estimates to fitness and reward."""

import math

from pydantic import Field, model_validator

from store.settings import Settings, read_settings


class KernelRewards(Settings):
    """The rule that turns a verdict on a kernel into fitness and reward."""

    version: int
    bucket: float = Field(gt=0)
    failure_reward: float
    floor: float = Field(ge=0, le=1)
    lowest_fitness: float
    highest_fitness: float

    @model_validator(mode="after")
    def _working_outranks_failing(self) -> "KernelRewards":
        if self.failure_reward >= self.floor:
            raise ValueError(f"failure_reward {self.failure_reward} must lie below floor {self.floor}")
        if self.lowest_fitness >= self.highest_fitness:
            raise ValueError(f"lowest_fitness {self.lowest_fitness} must lie below {self.highest_fitness}")
        return self

    def fitness(self, baseline_us: float, estimate_us: float) -> float:
        """ln(baseline / estimate), floored to buckets; 0.0 for the baseline itself."""
        steps = math.floor(math.log(baseline_us / estimate_us) / self.bucket + 1e-9)
        return round(steps * self.bucket, 6) + 0.0

    def reward(self, fitness: float) -> float:
        """What a working kernel of this fitness earns, from `floor` to 1."""
        span = self.highest_fitness - self.lowest_fitness
        share = min(1.0, max(0.0, (fitness - self.lowest_fitness) / span))
        return round(self.floor + (1.0 - self.floor) * share, 6)


class Rewards(Settings):
    """conf/rewards.yaml: one rule per domain."""

    kernel: KernelRewards


def kernel_rewards() -> KernelRewards:
    """Read the kernels' rule in conf/rewards.yaml."""
    return read_settings(Rewards, "rewards.yaml").kernel
