"""The experiment's prompts: texts of exact lengths in tokens, the same wherever the tokenizer is.

A text is a task about a subject, followed by notes on it that fill the length; every prompt has its own task,
subject and order of notes. The ids are cut to the length, so a bucket holds prompts of one length alone. From
32 tokens on, a prompt is a chat turn; the 8-token ones, which the attacks use, are bare text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

BUCKETS = (32, 64, 128, 256)  # input tokens
PER_BUCKET = 52
SHORT = 8  # input tokens of the prompts that leave a verifier the least to go by

BEFORE, AFTER = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
TASKS = (
    "Explain to a curious child how {} works.",
    "Write a short story in which {} changes everything.",
    "List seven questions that an engineer should ask about {}.",
    "Compare {} with the thing most like it, point by point.",
    "Write step by step instructions for someone who repairs {}.",
    "Invent a dialogue between two friends who disagree about {}.",
    "Give the history of {} in five dated paragraphs.",
    "Write a small program in Python that models {}.",
    "Draft a letter that asks a town council to pay for {}.",
    "Estimate what {} costs in a year, and show the arithmetic.",
    "Describe {} to someone who has never seen one.",
    "Write a poem of four verses about {}.",
    "Name three common mistakes that people make with {}.",
)
SUBJECTS = (
    "a tidal mill",
    "the night train",
    "a seed bank",
    "the town library",
    "a rope bridge",
    "a beehive",
    "the water tower",
    "a weather balloon",
    "a clock with one hand",
    "the harbour crane",
    "a printing press",
    "a greenhouse in winter",
    "the mountain rescue radio",
)
NOTES = (
    "It was built before anyone now living was born.",
    "Two people look after it, and they rarely meet.",
    "Last year it stood still for 17 days.",
    "The drawings were lost in a flood and made again from memory.",
    "Visitors come on Sundays, mostly in the rain.",
    "Its parts weigh between 3 and 240 kilograms.",
    "A school class counted 1,024 visitors in one month.",
    "Nobody agrees about what it should be called.",
    "When the wind turns north, one can hear it from the square.",
    "The budget is small: 4,800 coins a year, and half of it goes for oil.",
    "An old notebook describes it in green ink.",
    "The first repair took an hour and the second took a summer.",
    "In spring the swallows nest beneath it.",
    "It has a twin in another valley, which is painted blue.",
    "The insurance company asked for photographs and got a song instead.",
    "Some say that it saved the village; others say that it only moved it.",
    "Every part has a number, and number 13 is missing.",
    "The manual has nine chapters, of which two contradict each other.",
    "It needs clean water, dry air and patience.",
)
STRIDE = 7  # between the notes of one prompt; coprime to their number, so that all of them come up


@dataclass(frozen=True)
class PromptIds:
    """One prompt as the model gets it."""

    sample_id: str
    input_ids: tuple[int, ...]


def make_prompts(
    encode: Callable[[str], Sequence[int]], lengths: Sequence[int] = BUCKETS, each: int = PER_BUCKET
) -> list[PromptIds]:
    """`each` prompts of exactly every length in `lengths`; `encode` turns text into ids and adds none.

    Raises ValueError when the texts do not suffice for a length.
    """
    before, after = tuple(encode(BEFORE)), tuple(encode(AFTER))
    prompts = []
    for bucket, length in enumerate(lengths):
        for index in range(each):
            # the buckets take different texts, so that a short prompt is not the beginning of a long one
            words = text(index + bucket * each)
            room = length - len(before) - len(after)
            if room > 0:
                made = (*before, *tuple(encode(words))[:room], *after)
            else:  # numbered, since the cut leaves little to tell one from another
                made = tuple(encode(f"{index + 1}. {words}"))[:length]
            if len(made) != length:
                raise ValueError(f"prompt {index} has {len(made)} tokens, not {length}")
            prompts.append(PromptIds(f"n{length:03d}-{index:03d}", made))
    return prompts


def text(number: int) -> str:
    """The text of one number: below 13 · 13 no two have the same task and subject."""
    subject = SUBJECTS[(number + number // len(TASKS)) % len(SUBJECTS)]
    task = TASKS[number % len(TASKS)].format(subject)
    notes = [NOTES[(number * 3 + STRIDE * place) % len(NOTES)] for place in range(len(NOTES))]
    return " ".join([task, "Some notes on it.", *notes])
