"""DQN for static CVaR: the mean of the worst share α of episodes, by a state that knows what is still owed.

With G = Σ_t γᵗ·r_t the return of an episode and b a target,

    CVaR_α(G)  =  max_b  b − E[(b − G)⁺] / α,

so the best policy minimises an expected shortfall (b − G)⁺. It may depend on the rewards so far, but only through the
amount that is still *owed*:

    c_0 = b,      c_{t+1} = (c_t − r_t)/γ        ⇒        γᵗ·c_t  =  b − Σ_{k<t} γᵏ·r_k,      (b − G)⁺ = γᵀ·c_T⁺

for an episode of T steps. So on states (s, c) the shortfall is an ordinary discounted sum of rewards: 0, and −γ·c_T⁺ =
−(c − r)⁺ at the last step. Adding the potential −c⁺ (Ng et al. 1999) gives a reward at every step,

    r̃  =  c⁺ − γ·c'⁺  =  c⁺ − (c − r)⁺,      Σ_t γᵗ·r̃_t  =  b⁺ − (b − G)⁺,

and leaves the best policy unchanged. The sum telescopes, so the last step is no exception. With Q̃ the values of r̃,

    b*(s₀)  =  argmax_b  b − (b⁺ − max_a Q̃(s₀, b, a)) / α.

*Time limits.* A truncated episode is continued by the value of its last state, Q̃(s', c'), as by SB3's DQN: the time limit is
no part of the task.

*The window.* Let all returns from a state lie between m ≤ 0 and M ≥ 0. Then Q̃ is 0 for every c ≤ m, and the mean return
for every c ≥ M. So the network is asked at c clipped to [m, M], which is exact. m and M are the least and the greatest return
from any step of any training episode so far, and 0.

*Replay.* The next c is a function of c and r. So a stored transition (s, a, r, s') is a valid one for any c, and each time it is
replayed, c is drawn from U(m, M). In training episodes b is drawn from U(m, M), too.

Once nothing is owed that the policy could miss, all actions are equal. ``mean`` adds ``mean``·r to r̃, which maximises
CVaR_α + (mean/α)·E[G] instead.

Ref: Bäuerle & Ott (2011), Markov decision processes with Average-Value-at-Risk criteria; Lim & Malik (2022), Distributional
reinforcement learning for risk-sensitive policies; Ng, Harada & Russell (1999), Policy invariance under reward transformations.
"""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import DQN

from safereplay import _checks
from safereplay.point import Vector

from .rivals import GradientSteps

TARGETS = 129  #: the values of b among which b* is chosen
FAR = 1e9  #: the owed amount is kept below this, far outside any window

Choose = Callable[[Any], float]


class Owed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Appends the owed amount c to vector observations; rewards are unchanged.

    The learner's rewards are (r − penalty·unsafe)/scale, and c is in their unit: the wrapper is placed below those that
    change rewards. ``chosen_by`` sets the function of the first observation that gives b; it is 0 before.

    >>> import safereplay as sr
    >>> from studies.deep.wrappers import OneHot
    >>> env = Owed(OneHot(sr.TabularEnv(sr.grids.from_map("S.G", start="S", goal=3.0))), gamma=0.5).chosen_by(lambda _: 2.0)
    >>> env.reset(seed=0)[0]
    array([1., 0., 0., 2.], dtype=float32)
    """

    def __init__(self, env: Any, gamma: float, *, scale: float = 1.0, penalty: float = 0.0) -> None:
        super().__init__(env)
        self._gamma = _checks.between("gamma", gamma, "(0, 1]")
        self._scale = _checks.between("scale", scale, "(0, inf)")
        self._penalty = _checks.between("penalty", penalty, "[0, inf)")
        space = env.observation_space
        if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
            _checks.fail("observations of env", "be vectors", space)
        low, high = np.append(space.low, -np.inf), np.append(space.high, np.inf)
        self.observation_space = gymnasium.spaces.Box(low.astype(np.float32), high.astype(np.float32))
        self._choose: Choose = lambda _: 0.0
        self.owed = 0.0

    def chosen_by(self, choose: Choose) -> "Owed":
        """Let a function of an episode's first observation choose b; return the environment itself."""
        self._choose = choose
        return self

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode, and owe b."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.owed = self._choose(observation)
        return self._with_owed(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step: c ← (c − r)/γ."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        r = (float(reward) - self._penalty * bool(info.get("unsafe", False))) / self._scale
        self.owed = min(max((self.owed - r) / self._gamma, -FAR), FAR)
        return self._with_owed(observation), reward, terminated, truncated, info

    def _with_owed(self, observation: Any) -> Vector:
        return np.append(observation, self.owed).astype(np.float32)


class StaticCVaRDQN(GradientSteps, DQN):
    """DQN on states with the owed amount, for static CVaR_α. Its environment is an :class:`Owed`, also in evaluation.

    ``alpha`` only matters for b*: one model serves every α. ``scale`` and ``penalty`` are those of :class:`Owed`; ``mean`` is
    explained at the top of the module.
    """

    def __init__(
        self,
        *args: Any,
        alpha: float = 0.25,
        mean: float = 0.0,
        scale: float = 1.0,
        penalty: float = 0.0,
        **kwargs: Any,
    ) -> None:
        self.alpha = _checks.between("alpha", alpha, "(0, 1)")
        self.mean = _checks.between("mean", mean, "[0, inf)")
        self.scale = _checks.between("scale", scale, "(0, inf)")
        self.penalty = _checks.between("penalty", penalty, "[0, inf)")
        self.low, self.high = 0.0, 0.0
        super().__init__(*args, **kwargs)

    def judged(self, env: Any) -> Owed:
        """An environment for evaluation, in the world's unit: b* is chosen at the start of each episode."""
        return Owed(env, self.gamma, scale=self.scale, penalty=self.penalty).chosen_by(self.target)

    def target(self, first: Any) -> float:
        """b* for the first observation of an episode, without c; one of TARGETS values in the window."""
        b = torch.linspace(self.low, self.high, TARGETS, device=self.device)[:, None]
        seen = torch.as_tensor(np.asarray(first, np.float32), device=self.device).expand(TARGETS, -1)
        with torch.no_grad():
            best = self.q_net(torch.cat((seen, b), dim=1)).max(dim=1, keepdim=True).values
        return float(b[(b - (b.relu() - best) / self.alpha).argmax()])

    def predict(self, observation: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """SB3's, with c clipped to the window."""
        seen = np.array(observation)
        seen[..., -1] = seen[..., -1].clip(self.low, self.high)
        return super().predict(seen, *args, **kwargs)

    def _setup_model(self) -> None:
        super()._setup_model()
        self._rng = np.random.default_rng(self.seed)
        self._rewards: list[list[float]] = [[] for _ in range(self.n_envs)]

    def _setup_learn(self, *args: Any, **kwargs: Any) -> tuple[int, Any]:
        assert self.env is not None
        self.env.env_method("chosen_by", lambda _: float(self._rng.uniform(self.low, self.high)))
        return super()._setup_learn(*args, **kwargs)

    def _store_transition(
        self, replay_buffer: Any, buffer_action: Any, new_obs: Any, reward: Any, dones: Any, infos: Any
    ) -> None:
        super()._store_transition(replay_buffer, buffer_action, new_obs, reward, dones, infos)
        for episode, r, done in zip(self._rewards, reward, dones, strict=True):
            episode.append(float(r))
            if done:
                self._widen(episode)
                episode.clear()

    def _widen(self, rewards: list[float]) -> None:
        """Widen the window to the returns from every step of an episode."""
        ahead = 0.0
        for r in reversed(rewards):
            ahead = r + self.gamma * ahead
            self.low, self.high = min(self.low, ahead), max(self.high, ahead)

    def _loss(self, batch: Any) -> torch.Tensor:
        drawn = self._rng.uniform(self.low, self.high, (len(batch.rewards), 1))
        c = torch.as_tensor(drawn, dtype=torch.float32, device=self.device)
        discount = self._discount(batch)
        left = c - batch.rewards
        with torch.no_grad():
            after = torch.cat((batch.next_observations[:, :-1], (left / discount).clamp(self.low, self.high)), dim=1)
            best = self.q_net_target(after).max(dim=1, keepdim=True).values
            gain = c.relu() - left.relu() + self.mean * batch.rewards
            target = gain + (1.0 - batch.dones) * discount * best
        seen = torch.cat((batch.observations[:, :-1], c), dim=1)
        current = self.q_net(seen).gather(1, batch.actions.long())
        return torch.nn.functional.smooth_l1_loss(current, target)
