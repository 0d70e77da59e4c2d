"""The engine as a subject of another class, and ways to change how it computes."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from torch import Tensor, nn

from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.model import EngineModel
from pytest_dsocr.engine.pipeline import Pipeline
from pytest_dsocr.records.config import Setup
from pytest_dsocr.subjects.engine import EngineSubject

ModuleT = TypeVar("ModuleT", bound=nn.Module)
Forward = Callable[..., Tensor]


class Variant(EngineSubject):
    """A subject that no part of the tool takes for the engine, because its class is another."""

    dtypes = ()  # they do not all round where the vendor rounds, so a run asks for bfloat16


def copied(setup: Setup, **options: Any) -> Variant:
    """Load the engine as a variant; ``options`` are further ones of :meth:`Engine.from_checkpoint`."""
    own = {"device": setup.device, "dtype": setup.dtype, "attention": setup.attention, **options}
    return Variant(Engine.from_checkpoint(setup.checkpoint, **own))


def modules_of(subject: Variant) -> Iterator[nn.Module]:
    """Yield every module of the model."""
    model = subject.engine.model
    assert isinstance(model, EngineModel)
    return model.modules()


def with_forward(subject: Variant, kind: type[ModuleT], made: Callable[[ModuleT], Forward]) -> Variant:
    """Replace how every module of ``kind`` computes; names, weights and hooks stay."""
    for module in modules_of(subject):
        if isinstance(module, kind):
            module.forward = made(module)
    return subject


def with_pipeline(subject: Variant, kind: type[Pipeline[Any]]) -> Variant:
    """Replace the order and the number of the calls of the model."""
    engine = subject.engine
    engine.pipeline = kind(engine.model, engine.stages, autocast=engine.pipeline.autocast)
    return subject
