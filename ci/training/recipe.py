"""What the embedded checkpoint is, and how it is trained: every number that was chosen."""

from __future__ import annotations

from dataclasses import dataclass

from ci.training.vocabulary import mini_vocabulary
from pytest_dsocr.engine.architecture import Architecture, ClipConfig, DecoderConfig, SamConfig

SEED = 1


def architecture() -> Architecture:
    """Give the dimensions: every kind of part that the vendor's model has, in 10 million parameters."""
    return Architecture(
        SamConfig(
            width=128,
            layers=4,
            heads=4,
            global_attn_indexes=(2,),
            neck_channels=128,
            downsample_channels=(160, 192),
        ),
        ClipConfig(width=192, layers=4, heads=6),
        DecoderConfig(
            vocab_size=mini_vocabulary().get_vocab_size(),
            hidden_size=256,
            intermediate_size=768,
            num_hidden_layers=5,
            num_attention_heads=4,
            num_key_value_heads=4,
            n_routed_experts=8,
            n_shared_experts=2,
            num_experts_per_tok=2,
            moe_intermediate_size=128,
            max_position_embeddings=8192,
        ),
    )


PRESET_SHARES = {"gundam": 0.84, "base": 0.06, "large": 0.04, "small": 0.03, "tiny": 0.03}
"""How often a batch is seen in each preset."""

FREE_SHARE = 0.2
"""Of the rows, those that the free-OCR prompt asks."""

BLIND_SHARE = 0.02
"""Of the rows, those whose separator is zeroed and whose answer is empty: so the separator comes to matter."""

READABLE_VIEW_PX = 1024
"""The smallest view of a whole page in which words are asked of the vision tokens."""


@dataclass(frozen=True)
class Schedule:
    """How things go from the first step to the last.

    Pages grow from one block to full ones twice: the vision towers learn to read in the first course, too late for the
    decoder, which learns it in the second. From then on each step is rehearsed: the decoder alone learns from vision
    tokens kept from earlier steps, which takes a third of the time.
    """

    steps: int = 8_850
    warmup_steps: int = 200
    decay_share: float = 0.237
    """Of the steps, the last ones, over which the learning rate falls."""
    courses: tuple[tuple[int, int], ...] = ((0, 3_900), (4_300, 900))
    """The first step of each course, and after how many more its pages are full."""
    rehearsals: int = 2
    """In the second course, how often the decoder alone learns after each step."""
    batch_pages: int = 24
    pool_batches: int = 64
    peak_learning_rate: float = 1e-3
    least_learning_rate: float = 1e-5
    weight_decay: float = 0.02
    gradient_norm: float = 1.0

    def learning_rate(self, step: int, since_start: int) -> float:
        """Give the rate: level, then falling to nearly nothing; a fresh optimiser is warmed up."""
        left = min(1.0, (1 - step / self.steps) / self.decay_share)
        rate = self.least_learning_rate + (self.peak_learning_rate - self.least_learning_rate) * max(left, 0.0)
        return rate * min(1.0, (since_start + 1) / self.warmup_steps)

    def level(self, step: int) -> float:
        """Give the level of the easy half of the batches."""
        first, length = [course for course in self.courses if course[0] <= step][-1]
        return min(1.0, (step - first) / length)

    def word_weight(self, step: int) -> float:
        """Give the weight of the vision tokens' own loss: 5 at the start, 2 from the first course's end on."""
        return 5 - 3 * min(1.0, step / self.courses[0][1])

    def rehearsals_at(self, step: int) -> int:
        """Give how often the decoder alone learns after ``step``."""
        return self.rehearsals if step >= self.courses[-1][0] else 0


SCHEDULE = Schedule()
