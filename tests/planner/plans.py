"""A small plan, made up."""

from outrider.planner.document import (
    SCHEMA,
    Curve,
    Figure,
    LeftOutDraft,
    MemoryUse,
    Outcome,
    Passes,
    PassTime,
    Plan,
    PlannedModel,
    Position,
    Prompts,
    Ranks,
    Settings,
    Speed,
)
from outrider.planner.machine import this_machine

CURVE = Curve(((1, 0.02), (2, 0.021), (64, 0.1)), 1e-6, 1e-7)


def passes(model):
    timed = tuple(PassTime(rows, context, 1, 0.02, 0.019, 0.021, 5) for rows in (1, 8) for context in (0, 500))
    return Passes(model, timed, CURVE, 0.1, 1.05)


def outcome(name, rate, *, drafts=(), length=None, **fields):
    speed = Speed(Figure(rate, rate - 1, rate + 1), Figure(rate / 10, rate / 10 - 0.1, rate / 10 + 0.1))
    positions = tuple(Position(Figure(0.8, 0.7, 0.9), 50) for _ in range(length or 0))
    given = {
        "name": name,
        "drafts": drafts,
        "num_speculative_tokens": length,
        "draft_tree": 0,
        "rule": "auto",
        "tokens_per_round": 2.0,
        "drafted_per_round": 3.0,
        "positions": positions,
        "speed": speed,
        "families": {"code": speed, "chat": speed},
        "side_by_side": {"1": rate, "2": 1.5 * rate},
        "shares": {"target": 0.7, "drafts": 0.2, "other": 0.1},
    }
    return Outcome(**{**given, **fields})


def made_up(target="target.gguf", draft="draft.gguf", fingerprints=("aa", "bb"), **fields):
    choices = (
        outcome("plain", 10.0, measured_tokens_per_s=9.0, measured_families={"code": 9.0, "chat": 9.5}),
        outcome("draft, 4", 20.0, drafts=(draft,), length=4),
        outcome("draft, 8", 15.0, drafts=(draft,), length=8),
    )
    given = {
        "outrider_plan": SCHEMA,
        "created": "2026-01-01T00:00:00+00:00",
        "machine": this_machine({}, 1),
        "target": PlannedModel(target, "target", fingerprints[0], 1000),
        "drafts": (PlannedModel(draft, "draft", fingerprints[1], 100, "identical"),),
        "settings": Settings(0.0, None, None, None, None, (), "auto", 256, True, None, 96),
        "prompts": Prompts(5, 4, 300, {"code": 2, "chat": 2}),
        "passes": (passes("target"), passes("draft")),
        "is_noisy": False,
        "choices": choices,
        "recommended": 1,
        "by_family": {"code": 1, "chat": 0},
        "ranks": {"draft.gguf": Ranks((0.8, 0.1, 0.05, 0.01), Figure(0.8, 0.7, 0.9))},
        "memory": MemoryUse(50, {"target": {"weights": 900, "cache": 10, "buffers": 20, "tokenizer": 30}}, 1010),
        "left_out": (LeftOutDraft("proteins.gguf", "it is refused"),),
    }
    return Plan(**{**given, **fields})
