"""Links: the whole state of the playground as a few query parameters, and the parameters of every question to it.

A link says only what differs from the world it began with, so that it is short enough to paste. Each field has its
bounds here; what they refuse never reaches the mathematics.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from .sides import Side
from .worlds import LARGEST, World, changed, presets

Reward = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=4_000)]
SideText = Annotated[str, Field(max_length=120, examples=["replay,v:0.5,beta:5,mixing:literal,scheme:variance"])]
Name = Literal["cliff", "volatile", "frozen_lake", "bridge", "lottery", "ledge", "blank"]
SlipTo = Literal["any", "others", "sides", "up", "right", "down", "left"]


class Question(BaseModel):
    """What every question has."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    quiet: bool = Field(default=False, description='Answer a refusal with status 200 and {"problem", "status"}.')


class WorldLink(Question):
    """A world: the one it began with, and what was changed in it."""

    world: Name = Field(default="cliff", description="The world it began with.")
    map: Text | None = Field(
        default=None, description="Rows separated by /; numbers are free cells, W S G X u r d l the rest."
    )
    goal: Reward | None = Field(default=None, description="The reward of a goal.")
    goals: Text | None = Field(default=None, description="Goals of their own: 3.5~50;0.1~20.")
    step: Reward | None = Field(default=None, description="The reward of a step.")
    hazard: Reward | None = Field(default=None, description="The reward of a fall.")
    volatile: Text | None = Field(default=None, description="Probability:reward of a volatile move: 0.6:100,0.4:-100.")
    volatiles: Text | None = Field(default=None, description="Volatile cells of their own: 1.0~0.9:4,0.1:-60.")
    slip: Share | None = Field(default=None, description="The probability that a step goes elsewhere.")
    slip_to: SlipTo | None = Field(default=None, description="Where it goes then; a direction is a wind.")
    fall_ends: bool | None = Field(
        default=None, description="Whether a fall ends the episode, or leads back to the start."
    )
    goal_slips: bool | None = Field(default=None, description="Whether a step into a goal can slip.")
    start: Literal["uniform", "S"] | None = Field(default=None, description="Where learning begins: anywhere, or at S.")
    gamma: float | None = Field(default=None, ge=0.0, le=0.999, allow_inf_nan=False, description="The discount γ.")

    def to_world(self) -> World:
        """The world that is meant."""
        own = {name: getattr(self, name) for name in WorldLink.model_fields if name not in ("quiet", "world")}
        return changed(presets()[self.world], own)


class LearnerLink(WorldLink):
    """A question about one learner in a world."""

    learner: SideText = Field(default="q", description="A learner and its dials.")
    epsilon: Share = Field(default=0.1, description="ε of the exploration.")

    def to_side(self) -> Side:
        """The learner that is meant."""
        return Side.parse(self.learner)

    def check(self) -> None:
        """Refuse a world or a learner that cannot be."""
        self.to_world().mdp()
        self.to_side()


class LearnLink(LearnerLink):
    """A stream of a learner at work."""

    seeds: int = Field(default=1, ge=1, le=9, description="How many runs side by side.")
    since: int = Field(default=0, ge=0, le=2_000_000, description="Iterations that were already seen.")
    by: int = Field(default=200, ge=1, le=50_000, description="Iterations a frame.")
    until: int = Field(default=200_000, ge=1, le=2_000_000, description="Iterations at the end.")
    frames: int = Field(default=100_000, ge=1, le=100_000, description="Frames after which the stream pauses.")
    pace: int = Field(default=100, ge=40, le=5_000, description="Least milliseconds between two frames.")


class TuneLink(LearnerLink):
    """The gentlest replay under a limit."""

    learner: SideText = Field(default="replay,mixing:matched", description="The replay whose dials are looked for.")
    limit: Share = Field(default=0.04, description="The chance of harm, at most.")


class StateLink(WorldLink):
    """The whole state of the page."""

    left: SideText = Field(default="q", description="The learner of the left pane.")
    right: SideText = Field(default="replay,mixing:matched", description="The learner of the right pane.")
    epsilon: Share = Field(default=0.1, description="ε of the exploration.")
    seeds: int = Field(default=1, ge=1, le=9, description="Runs side by side when learning.")
    limit: Share = Field(default=0.04, description="The limit on harm when tuning.")

    def to_state(self) -> dict[str, Any]:
        """As the page holds it; everything that can be wrong with it has been looked at."""
        world = self.to_world()
        sides = {name: Side.parse(getattr(self, name)) for name in ("left", "right")}
        world.mdp()
        return {
            "world": world.to_dict(),
            **{name: side.to_dict() for name, side in sides.items()},
            **{name: getattr(self, name) for name in ("epsilon", "seeds", "limit")},
        }
