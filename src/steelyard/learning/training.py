"""What training needs of JAX and optax, the extra `learn`; nothing here is needed where a trained policy is used."""

from __future__ import annotations

from typing import Any, NamedTuple

from steelyard.core.errors import OptionError, SteelyardError


class LearningError(SteelyardError):
    """Training cannot run; the message says what to install."""


class Jax(NamedTuple):
    """The libraries, as modules."""

    jax: Any
    numpy: Any
    """`jax.numpy`"""
    optax: Any


def libraries() -> Jax:
    """JAX and optax; LearningError where one of them is not installed."""
    try:
        import jax  # noqa: PLC0415 - an extra, and slow to import
        import jax.numpy  # noqa: PLC0415
        import optax  # type: ignore[import-untyped]  # noqa: PLC0415
    except ImportError as error:
        raise LearningError(
            "training needs JAX and optax, which are not installed: pip install 'steelyard[learn]'"
        ) from error
    return Jax(jax, jax.numpy, optax)


def adam(rate: float, clip: float | None = None) -> Any:
    """Adam at a learning rate; gradients whose norm over all weights is above `clip` are cut down to it."""
    if not rate > 0:
        raise OptionError(f"a learning rate is above 0, got {rate}")
    if clip is not None and not clip > 0:
        raise OptionError(f"gradients are clipped to a norm above 0, got clip={clip}")
    optax = libraries().optax
    steps = [] if clip is None else [optax.clip_by_global_norm(clip)]
    return optax.chain(*steps, optax.adam(rate))
