"""Server's treatment of tokens, prompt and image, probed with a shipped page before any page is compared."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pytest_dsocr.adapters.chat import Chat
from pytest_dsocr.adapters.completion import FAILED, Completion, StatusError
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.words import listed
from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.markup import DET
from pytest_dsocr.contract.presets import Preset, image_token_count
from pytest_dsocr.contract.prompt import IMAGE, TextTokenizer
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.subjects.calls import current

Body = Callable[[Path, str, Preset, int], dict[str, Any]]
"""Makes a request of a page, a prompt, a preset and the ceiling of the output."""
PROBED_TOKENS = 96
TEMPLATE_TOKENS = 16
"""Most tokens of a template in addition to the prompt's; presets differ by more."""
WITHOUT_TOKENS = re.compile(r"\[\d+, ?\d+, ?\d+, ?\d+\]")
SPECIAL = re.compile(r"<\|[^|]*\|>")
NO_LIST = (404, 405, 501)


class Met(NamedTuple):
    """Findings of the handshake."""

    model: str
    preset: str
    """The server's fixed preset; empty if each page's request names one, or if the server's counts show none."""


def shake_hands(chat: Chat, model: str, body: Body, family: ModelSpec, tokenizer: TextTokenizer) -> Met:
    """Ask for the family's first prompt, note what the server does, and return its model and its preset.

    Raises:
        DsocrError: if it does not answer, or changes the text so that no page could be right.
    """
    found = _model(chat, model)
    page, [prompt, *_] = shipped("dev-3")[0], family.prompts.values()
    asked = {**body(page, prompt, family.presets[family.default_preset], PROBED_TOKENS), "model": found}
    answer = _answered(chat, asked)
    is_told = len({json.dumps(body(page, prompt, preset, 1)) for preset in family.presets.values()}) > 1
    preset = "" if is_told else _preset(answer, page, prompt, family, tokenizer)
    findings = [
        f"model {found}",
        _special(chat, answer.text),
        _prompt(chat, answer.text, asked),
        *([f"its prompts have as many tokens as in {preset}"] if preset else ()),
    ]
    current().note(f"the server at {chat.url}: {'; '.join(findings)}")
    return Met(found, preset)


def _preset(answer: Completion, page: Path, prompt: str, family: ModelSpec, tokenizer: TextTokenizer) -> str:
    """Return the only preset whose count of tokens is the server's, up to a template; else an empty text."""
    text = 1 + sum(len(tokenizer.encode(piece)) for piece in prompt.strip().split(IMAGE))
    size, counted = load_image(page).size, answer.prompt_tokens or 0
    counts = {one.name: text + image_token_count(one, one.grid(*size)) for one in family.presets.values()}
    near = [name for name, tokens in counts.items() if abs(counted - tokens) <= TEMPLATE_TOKENS]
    return near[0] if len(near) == 1 else ""


def _model(chat: Chat, model: str) -> str:
    try:
        names = chat.models()
    except StatusError as error:
        if error.status in NO_LIST and model:
            return model
        raise
    if model in names or (not model and len(names) == 1):
        return model or names[0]
    has = f"it has {listed(names)}" if names else "it lists none"
    wrong = f"has no model {model!r}" if model else "has not one model"
    raise DsocrError(f"the server at {chat.url} {wrong}; {has}: name one, ?model=NAME")


def _answered(chat: Chat, asked: dict[str, Any]) -> Completion:
    """Send the request; raise advice if the server refuses one of our fields that OpenAI's API lacks."""
    try:
        return chat.whole(asked)
    except StatusError as error:
        if error.status >= FAILED or "skip_special_tokens" not in str(error):
            raise
        how = "leave it away, ?skip_special_tokens=null, and let the server keep special tokens by its own means"
        raise DsocrError(f"the server at {chat.url} refuses skip_special_tokens; {how} ({error})") from error


def _special(chat: Chat, text: str) -> str:
    """Say whether special tokens are kept."""
    if DET in text:
        return "it keeps special tokens"
    if WITHOUT_TOKENS.search(text):
        raise DsocrError(
            f"the server at {chat.url} takes special tokens out of its text (there are boxes without "
            f"{DET}), so that no page can be compared; let it keep them, as skip_special_tokens=false does in vLLM"
        )
    return "whether it keeps special tokens is unknown, as it found no box on a page that has some"


def _prompt(chat: Chat, text: str, asked: dict[str, Any]) -> str:
    """Check that the server does not repeat the prompt before the text, and return that as a sentence."""
    prompt = next(part["text"] for part in asked["messages"][0]["content"] if part["type"] == "text")
    bare = SPECIAL.sub("", prompt).strip()
    if bare and bare in text[: 2 * len(prompt) + len("<image>")]:
        raise DsocrError(
            f"the server at {chat.url} repeats the prompt in front of its text, so that no page can be "
            "compared; let it give the answer alone, such as by echo=false"
        )
    return "it does not repeat the prompt"
