"""A limit on risk that is kept by itself: the dial moves during training, and the result has a certificate.

    model.learn(50_000, callback=RiskLimit(make_env, max_p_unsafe=0.05, folder="limit"))

**The controller.** The policy is evaluated at regular intervals. It *keeps* the limit if a certificate of :data:`PLANNED` episodes could be expected from what was
seen; a value just under the limit is not enough. In the first fifth of training, and until learning starts, replay is plain. After it, if the policy does not keep the
limit on all episodes at the present level of the dial v (for CVaR: on those of the last evaluation), the dial goes up a level; else it stays. Levels are factors R = 1/(1 − v) of :data:`FACTORS`. After each change the networks get time for
two evaluations. If the highest level does not keep the limit either, the dial returns to the level with the least risk and stays there.

**The certificate.** Evaluations choose among models, so their numbers are too good. Three sets of episodes are therefore kept apart, with their own seeds:

    evaluation     some episodes at each interval; a model that kept the limit on them is a candidate
    confirmation   more episodes of each candidate, best return first, until one keeps the limit on these, too
    certificate    N fresh episodes of that one model; N is fixed before the first of them, from the confirmation's estimate

With k unsafe episodes of N, the exact upper bound of P(unsafe) at confidence c is the p with P(Binomial(N, p) ≤ k) = 1 − c (Clopper & Pearson 1934). The limit is
certified if this bound does not exceed it. If it does, the next candidate is tried, on other episodes, at most :data:`TRIES` times; each try has the confidence
1 − (1 − c)/TRIES, so that all of them together have c. If none is certified, the result is the one with the best bound.

For a floor on CVaR_α of the return the bound is that of Dvoretzky, Kiefer & Wolfowitz: a share √(log(1/(1 − c))/(2N)) of the probability is moved to the worst return.
That must be known; by default it is the lowest return seen in any episode, and the certificate's sentence says so.

Evaluations happen at checkpoints (:class:`~safereplay.sb3.TrainingCheckpoint`), so a killed training continues to the same certificate, bit for bit. There the
running episodes end, so an interval must be longer than an episode. With VecNormalize a candidate is judged with the statistics of its own step, which are stored with it.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from scipy import stats
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecEnvWrapper, VecNormalize

from .. import __version__, _checks, _files
from .._checks import Bools, Floats
from .._progress import Bar
from ..errors import BadFile, Once
from .buffers import ShapedReplayBuffer
from .callbacks import TrainingCheckpoint

FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)  #: R of each level of the dial; v = 1 − 1/R
TRIES = 3  #: certificates that may be tried
COPIES = 16  #: environments that are evaluated at once, if they can be made here
KEPT_MODELS = 4  #: candidates whose parameters are stored, by return, and again as many by risk
PLANNED = 2_500  #: episodes of the certificate that the controller aims at
LEAST, MOST = 300, 10_000  #: episodes of a certificate
USUAL, SEEN = (
    100,
    4,
)  #: episodes of an evaluation, or as many as have this number of unsafe ones at the limit: fewer say too little about a small limit
POWER = 0.9  #: wanted probability of a certificate if the confirmation's estimate is exact
#: The first seed of each set of episodes.
EVALUATION, CONFIRMATION, CERTIFICATE = 1_000_000_000, 1_400_000_000, 1_800_000_000

#: The attributes of :class:`RiskLimit` that are saved with a checkpoint.
STATE = ("history", "every", "_level", "_rest", "_top", "_since", "_lowest", "_reported")
BEST, STATISTICS = "best_model.zip", "best_normalizer.pkl"  #: files of the result; the second with VecNormalize only

Unsafe = str | Callable[[dict[str, Any], float, bool], Any]


class Episodes(NamedTuple):
    """The returns of some episodes, and whether each was unsafe."""

    returns: Floats
    unsafe: Bools
    steps: float = 0.0  #: mean length

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(self.returns.mean())

    @property
    def bad(self) -> int:
        """The number of unsafe episodes."""
        return int(self.unsafe.sum())


@dataclass(frozen=True)
class Limit:
    """A limit on risk: P(unsafe) at most ``most``, or CVaR_α of the return at least ``least``."""

    most: float | None = None
    least: float | None = None
    alpha: float = 0.1
    worst: float | None = None  #: the lowest possible return, if known

    @property
    def name(self) -> str:
        """The quantity that is limited."""
        return "P(unsafe)" if self.most is not None else f"CVaR_{self.alpha:g}"

    def excess(self, bad: float, n: float, returns: Floats, confidence: float, lowest: float) -> float:
        """How far a certificate of :data:`PLANNED` episodes like those seen would miss the limit; at most 0 if it would not.

        A limit so small that it needs more episodes, even if none is unsafe, gets them.
        """
        if self.most is not None:
            planned = max(PLANNED, math.ceil(math.log(1.0 - confidence) / math.log1p(-self.most)) + 1)
            return clopper_pearson(round(bad / n * planned), planned, confidence) - self.most
        assert self.least is not None
        lowest = lowest if self.worst is None else self.worst
        return self.least - lowest_cvar(returns, self.alpha, confidence, min(lowest, float(returns.min())), PLANNED)

    def value(self, episodes: Episodes) -> float:
        """P(unsafe), or CVaR."""
        return float(episodes.unsafe.mean()) if self.most is not None else cvar(episodes.returns, self.alpha)

    def bound(self, episodes: Episodes, confidence: float, lowest: float) -> float:
        """The bound of P(unsafe) from above, or of CVaR from below."""
        if self.most is not None:
            return clopper_pearson(episodes.bad, episodes.unsafe.size, confidence)
        return lowest_cvar(episodes.returns, self.alpha, confidence, min(lowest, float(episodes.returns.min())))

    def check(self, confidence: float) -> None:
        """Refuse a limit that no certificate can prove, even if each episode is safe."""
        log = math.log(1.0 / (1.0 - confidence))
        if self.most is not None:
            least = -math.expm1(-log / MOST)
            how = f"else {MOST:,} safe episodes do not prove it"
            _checks.require(self.most >= least, "max_p_unsafe", f"be at least {least:.3g}", self.most, how)
        else:
            moved = math.sqrt(log / (2.0 * PLANNED))
            how = f"the share that the bound of {PLANNED:,} episodes moves to the worst return"
            _checks.require(self.alpha > moved, "alpha", f"be above {moved:.3g}", self.alpha, how)

    def keeps(self, bound: float) -> bool:
        """Whether a bound proves the limit."""
        return bound <= self.most if self.most is not None else bound >= (self.least or 0.0)

    def episodes_needed(self, seen: Episodes, confidence: float) -> int:
        """The least N from :data:`LEAST` to :data:`MOST` at which a certificate is likely, if the risk is as seen; MOST if none is."""
        if self.most is None:
            return PLANNED
        p = (seen.bad + 0.5) / (seen.unsafe.size + 1.0)
        n = LEAST
        while n < MOST:
            likely = (
                stats.binom.cdf(np.arange(n + 1), n, self.most) <= 1.0 - confidence
            )  # of k: whether the bound would be kept
            if stats.binom.cdf(likely.sum() - 1, n, p) >= POWER:
                return n
            n = math.ceil(1.25 * n)
        return MOST


def clopper_pearson(bad: int, n: int, confidence: float = 0.95) -> float:
    """The exact upper bound of a probability after ``bad`` of n.

    >>> round(clopper_pearson(0, 299), 5), round(clopper_pearson(3, 300), 4)
    (0.00997, 0.0256)
    """
    return 1.0 if bad >= n else float(stats.beta.ppf(confidence, bad + 1, n - bad))


def cvar(returns: Floats, alpha: float) -> float:
    """The mean of the worst share α of equally likely returns.

    >>> cvar(np.array([4.0, 1.0, 2.0, 3.0]), 0.375)
    1.3333333333333333
    """
    ordered = np.sort(returns)
    weights = np.clip(alpha * ordered.size - np.arange(ordered.size), 0.0, 1.0)
    return float(ordered @ weights / weights.sum())


def lowest_cvar(returns: Floats, alpha: float, confidence: float, worst: float, n: int | None = None) -> float:
    """A lower bound of CVaR_α: the distribution function is at most the empirical one plus √(log(1/(1 − c))/(2N)), and no return is below ``worst``.

    ``n`` is N, if another number of episodes is planned than was seen.

    >>> bool(-1.0 < lowest_cvar(np.linspace(0.0, 1.0, 10_000), 0.1, 0.95, worst=-1.0) < 0.05)
    True
    """
    moved = min(math.sqrt(math.log(1.0 / (1.0 - confidence)) / (2.0 * (n or returns.size))), alpha)
    rest = alpha - moved
    return (moved * worst + rest * (cvar(returns, rest) if rest * returns.size > 1e-9 else worst)) / alpha


@dataclass(frozen=True)
class Certificate:
    """What fresh episodes say about the risk of one trained policy; ``str`` is one sentence."""

    kept: bool  #: whether the bound proves the limit
    quantity: str  #: P(unsafe), or CVaR_α
    limit: float
    value: float  #: in the fresh episodes
    bound: float  #: at the stated confidence
    confidence: float
    episodes: int
    unsafe: int
    mean_return: float
    first_seed: int
    environments: int  #: they were seeded with first_seed, first_seed + 1, ...
    model: str  #: the file of the policy
    step: int  #: of training at which it was taken
    settings: dict[str, Any] = field(default_factory=dict)
    tries: int = 1  #: certificates tried, this one included
    history: list[dict[str, Any]] = field(default_factory=list)  #: the evaluations during training

    def __str__(self) -> str:
        part = (
            f"{self.unsafe} of {self.episodes:,} fresh episodes were unsafe"
            if self.quantity == "P(unsafe)"
            else f"{self.value:.4g} in {self.episodes:,} fresh episodes"
        )
        if "lowest_return_assumed" in self.settings:
            part += f", if no return is below {self.settings['lowest_return_assumed']:.4g}"
        sign = "at most" if self.quantity == "P(unsafe)" else "at least"
        bound = _shown(self.quantity, self.bound)
        said = f"{self.quantity} is {sign} {bound} with {100 * self.confidence:g}% confidence ({part}; mean return {self.mean_return:.4g})"
        asked = f"the limit of {_shown(self.quantity, self.limit)}"
        verdict = "is kept." if self.kept else "is not certified; this is the best policy seen."
        return f"{said}: {asked} {verdict}{self._price()}"

    def _price(self) -> str:
        """A sentence on the highest mean return in training, if it is higher than the certified policy's."""
        best = max(self.history, key=lambda entry: float(entry["mean_return"]), default=None)
        if best is None or best["mean_return"] <= self.mean_return:
            return ""
        value = _shown(self.quantity, best["value"])
        return f" The highest mean return in training was {best['mean_return']:.4g}, with {self.quantity} {value}."

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {"sentence": str(self), **asdict(self)}

    def save(self, path: str | Path) -> Path:
        """Write it as JSON."""
        return _files.write_atomic(path, json.dumps(self.to_dict(), indent=1) + "\n")

    @staticmethod
    def load(path: str | Path) -> Certificate:
        """Read it again.

        Raises
        ------
        BadFile : the file is not a certificate
        """
        try:
            content = json.loads(_files.read_text(path))
            return Certificate(**{name: x for name, x in content.items() if name != "sentence"})
        except (OSError, ValueError, TypeError, AttributeError):
            raise BadFile(f"{path} must be a certificate, got another file") from None


def _shown(quantity: str, value: float) -> str:
    return f"{100 * value:.3g} %" if quantity == "P(unsafe)" else f"{value:.4g}"


class RiskLimit(TrainingCheckpoint):
    """Keeps a limit on risk: moves the dial v during training, stores the best model under the limit, and certifies it.

    Pass it to ``learn`` of a model with a :class:`ShapedReplayBuffer`. After training, ``certificate`` has the result, and the folder has
    ``best_model.zip`` and ``certificate.json``, and with VecNormalize the model's statistics, ``best_normalizer.pkl``. A killed training continues with :func:`load_training` and a new ``RiskLimit`` with the same
    arguments.

    Parameters
    ----------
    eval_env : callable, str, Env or VecEnv; makes an environment, or its id, or an environment other than the training one
    max_p_unsafe : float in (0, 1); largest probability of an unsafe episode
    min_cvar : float; instead of it: smallest CVaR_α of the undiscounted return
    alpha : float in (0, 1); of CVaR
    worst : float, optional; the lowest possible return, for the certificate of a CVaR; default: the lowest one seen
    unsafe : str or callable; the name of an entry of ``info`` that is true, or above 0, in an unsafe step; or a function of (info, reward, terminated) with such a value
    folder : str or Path; for checkpoints, the best model and the certificate
    evaluations : int; number of evaluations during training
    episodes : int, optional; in each of them, and a third of those that confirm a candidate; default: 100, or so many that four are unsafe at the limit
    confidence : float in (0, 1); of the certificate
    verbose : int; 1 prints a line per evaluation

    >>> RiskLimit("CartPole-v1", max_p_unsafe=0.05, unsafe=lambda info, reward, terminated: terminated).limit
    Limit(most=0.05, least=None, alpha=0.1, worst=None)
    """

    def __init__(
        self,
        eval_env: Any,
        max_p_unsafe: float | None = None,
        min_cvar: float | None = None,
        *,
        alpha: float = 0.1,
        worst: float | None = None,
        unsafe: Unsafe = "unsafe",
        folder: str | Path = "risk-limit",
        evaluations: int = 40,
        episodes: int | None = None,
        confidence: float = 0.95,
        verbose: int = 0,
    ) -> None:
        super().__init__(folder, 1, verbose)
        one = (max_p_unsafe is None) != (min_cvar is None)
        given = {"max_p_unsafe": max_p_unsafe, "min_cvar": min_cvar}
        _checks.require(one, "limit", "be either max_p_unsafe or min_cvar", given)
        most = None if max_p_unsafe is None else _checks.between("max_p_unsafe", max_p_unsafe, "(0, 1)")
        least = None if min_cvar is None else _checks.real("min_cvar", min_cvar)
        low = None if worst is None else _checks.real("worst", worst)
        self.limit = Limit(most, least, _checks.between("alpha", alpha, "(0, 1)"), low)
        ok = isinstance(unsafe, str) or callable(unsafe)
        _checks.require(ok, "unsafe", "be the name of an entry of info, or a function", unsafe)
        self.unsafe = unsafe
        self.evaluations = _checks.whole("evaluations", evaluations, 5)
        usual = USUAL if most is None else max(USUAL, math.ceil(SEEN / most))
        self.episodes = usual if episodes is None else _checks.whole("episodes", episodes, 10)
        self.confidence = _checks.between("confidence", confidence, "(0, 1)")
        self.limit.check(self._each)
        self.eval_env = eval_env
        self._envs: Any = None
        self._end = 0
        self._judged: Any = None  # the model that the state is of
        self._once = Once()
        self._begin()

    def _begin(self) -> None:
        """The state before the first evaluation."""
        self.certificate: Certificate | None = None
        self.history: list[dict[str, Any]] = []
        self._level, self._rest, self._top = 0, 0, False
        self._since = 0  # the first evaluation that counts at this level
        self._lowest = math.inf
        self._reported = (
            callable(self.unsafe) or self.limit.most is None
        )  # whether evaluations are known to report harm

    # -- the controller ------------------------------------------------------------------------------------------------

    def _on_training_start(self) -> None:
        super()._on_training_start()
        buffer = getattr(self.model, "replay_buffer", None)
        if not isinstance(buffer, ShapedReplayBuffer):
            _checks.fail("replay_buffer_class", "be ShapedReplayBuffer, for a limit on risk", type(buffer).__name__)
        _files.make_folder(self.folder)  # a folder that cannot be written to is refused before training
        self._end = int(self.locals.get("total_timesteps", 0))
        self._envs = self._made_envs()
        if self.model.num_timesteps == 0 or self._judged is not self.model:
            self._begin()
            self._judged = self.model
        self.every = max((self._end - self.model.num_timesteps) // self.evaluations, 1)
        self._resume()
        buffer.v = 1.0 - 1.0 / FACTORS[self._level]

    def _made_envs(self) -> VecEnv:
        """The environments of evaluation, as a VecEnv that is not the training one."""
        given: Any = self.eval_env
        if isinstance(given, VecEnv):
            envs: VecEnv = given
        else:
            ok = callable(given) or isinstance(given, str | gymnasium.Env)
            _checks.require(ok, "eval_env", "be a function that makes an environment, its id, or one", given)
            made = [given] if isinstance(given, gymnasium.Env) else [_made(given) for _ in range(COPIES)]
            others = len({id(env.unwrapped) for env in made}) == len(made)
            _checks.require(others, "eval_env", "make another environment at each call", "the same one twice")
            each = iter(made)
            envs = DummyVecEnv([lambda: next(each)] * len(made))
        training = _innermost(self.model.env)
        own = _innermost(envs) is not training and not {id(env) for env in _parts(envs)} & {
            id(env) for env in _parts(training)
        }
        how = "make another one: its episodes would be cut, and its randomness used"
        _checks.require(own, "eval_env", "not be the training environment", type(given).__name__, how)
        if isinstance(envs, VecNormalize):  # the model's own statistics are used
            envs = envs.venv
        envs = type(self.model)._wrap_env(
            envs, verbose=0, monitor_wrapper=False
        )  # images are transposed as in training
        fits = envs.observation_space == self.model.observation_space and envs.action_space == self.model.action_space
        _checks.require(fits, "eval_env", "have the spaces of the training environment", envs.observation_space)
        return envs

    def _on_rollout_start(self) -> None:
        """Evaluate, move the dial, and save a checkpoint: between training and collecting, when no update is half done."""
        if self.model.num_timesteps - self._saved_at >= self.every:
            self._evaluate()
        super()._on_rollout_start()

    def _evaluate(self) -> None:
        found = self._run(self.episodes, EVALUATION + len(self.history) * 1_000)
        step, buffer = self.model.num_timesteps, self._buffer
        self._lowest = min(self._lowest, float(found.returns.min()))
        entry = {
            "step": step,
            "v": buffer.v,
            "value": self.limit.value(found),
            "excess": self._excess(found),
            "unsafe": found.bad,
            "episodes": found.unsafe.size,
            "mean_return": found.mean,
        }
        self._check_length(found.steps)
        self.history.append(entry)
        self._store(entry)
        self._move(found)
        self.logger.record("limit/value", entry["value"])
        self.logger.record("limit/mean_return", found.mean)
        self.logger.record("limit/v", buffer.v)
        if self.verbose:
            kept = "kept" if entry["excess"] <= 0.0 else "not kept"
            value = _shown(self.limit.name, entry["value"])
            text = (
                f"step {step:,}: v = {entry['v']:.2f}, {self.limit.name} {value} ({kept}), mean return {found.mean:.4g}"
            )
            print(text, flush=True)  # noqa: T201  as SB3's callbacks do
        state = {name: getattr(self, name) for name in STATE} | {"terms": self._terms()}
        _files.write_atomic(self._state_file(step), json.dumps(state))
        last = {x["step"] for x in self.history[-2:]}  # the last checkpoint may still be the one before
        self._keep_only("limit", last)

    def _check_length(self, steps: float) -> None:
        """Warn if training episodes are cut by evaluations so early that their ends are seldom seen."""
        each = self.every / self.model.n_envs
        if 2.0 * steps > each:
            cut = f"each evaluation ends the running episodes, every {each:,.0f} steps of an environment"
            text = f"an episode has {steps:,.0f} steps, and {cut}: take fewer evaluations, now {self.evaluations}, or train longer"
            self._once.advise("length", text)

    def _terms(self) -> dict[str, Any]:
        """What a resumed training must have in common with the one before."""
        return {**asdict(self.limit), "unsafe": _named(self.unsafe), "episodes": self.episodes}

    @property
    def _buffer(self) -> ShapedReplayBuffer:
        buffer: Any = self.model.replay_buffer
        return buffer  # type: ignore[no-any-return]

    @property
    def _each(self) -> float:
        """The confidence of each try of a certificate."""
        return 1.0 - (1.0 - self.confidence) / TRIES

    def _excess(self, found: Episodes) -> float:
        return self.limit.excess(found.bad, found.unsafe.size, found.returns, self._each, self._lowest)

    def _move(self, found: Episodes) -> None:
        """The dial's level after an evaluation."""
        if self.model.num_timesteps < max(self._end // 5, self.model.learning_starts):
            self._since = len(self.history)
            return  # a dial needs a learner that has learned something
        if self._rest > 0:
            self._rest -= 1
            self._since = len(self.history)
            return
        here = self.history[self._since :]
        bad, n = sum(x["unsafe"] for x in here), sum(x["episodes"] for x in here)
        if self._top or self.limit.excess(bad, n, found.returns, self._each, self._lowest) <= 0.0:
            return
        if self._level + 1 < len(FACTORS):
            self._level += 1
        else:
            by_level: dict[float, list[float]] = {}
            for entry in self.history:
                by_level.setdefault(entry["v"], []).append(entry["excess"])
            best = min(by_level, key=lambda v: (np.mean(by_level[v]), v))
            self._level = int(np.argmin([abs(1.0 - 1.0 / R - best) for R in FACTORS]))
            self._top = True
        self._rest = 2
        self._buffer.v = 1.0 - 1.0 / FACTORS[self._level]

    # -- files ---------------------------------------------------------------------------------------------------------

    def _state_file(self, step: int) -> Path:
        return self.folder / f"limit-{step}.json"

    def _model_file(self, step: int) -> Path:
        return self.folder / f"candidate-{step}.zip"

    def _statistics_file(self, step: int) -> Path:
        return self.folder / f"candidate-{step}.pkl"

    def _store(self, entry: dict[str, Any]) -> None:
        """Save the model if it is among the best so far; delete models that are not any more."""
        self.model.save(self._model_file(entry["step"]))
        if (normalizer := self.model.get_vec_normalize_env()) is not None:
            normalizer.save(str(self._statistics_file(entry["step"])))
        self._keep_only("candidate", {x["step"] for x in self._candidates()})

    def _keep_only(self, kind: str, steps: set[int]) -> None:
        """Delete the files of a kind that are of other steps. Those of an earlier training stay until this one has a checkpoint."""
        if len(self.history) > 1:
            for file in self.folder.glob(f"{kind}-*"):
                ours = re.fullmatch(rf"{kind}-(\d+)\.(json|zip|pkl)", file.name)
                if ours and int(ours[1]) not in steps:
                    file.unlink(missing_ok=True)

    def _candidates(self) -> list[dict[str, Any]]:
        """The best evaluations: first those that kept the limit, by their return; then those with the least risk."""
        kept = [x for x in self.history if x["excess"] <= 0.0]
        kept.sort(key=lambda x: (-x["mean_return"], -x["step"]))
        safest = sorted(self.history, key=lambda x: (x["excess"], -x["mean_return"], -x["step"]))
        chosen = kept[:KEPT_MODELS]
        return chosen + [x for x in safest[:KEPT_MODELS] if x not in chosen]

    def _resume(self) -> None:
        """Continue from the state that was saved with the model's checkpoint."""
        step = self.model.num_timesteps
        if step == 0 or not self._state_file(step).exists():
            return
        try:
            state = json.loads(_files.read_text(self._state_file(step)))
            terms, found = state["terms"], {name: state[name] for name in STATE}
        except (OSError, ValueError, KeyError, TypeError):
            raise BadFile(f"{self._state_file(step)} must be written by RiskLimit, got another file") from None
        how = "resume with the same limit, or take another folder"
        _checks.require(terms == self._terms(), "folder", f"hold a training with {self._terms()}", terms, how)
        self.__dict__.update(found)

    # -- episodes ------------------------------------------------------------------------------------------------------

    def _run(self, n: int, seed: int, step: int | None = None) -> Episodes:
        """n greedy episodes, the same number in each environment, with these seeds: of the model, or of a candidate's."""
        model = self.model if step is None else self._loaded(step)
        envs, count = self._envs, self._envs.num_envs
        n = -(-n // count) * count
        normalizer = self.model.get_vec_normalize_env()
        if normalizer is not None and step is not None:
            normalizer = VecNormalize.load(str(self._statistics_file(step)), envs)
        envs.seed(seed)
        obs = envs.reset()
        returns, flags = np.zeros(count), np.zeros(count, bool)
        left = np.full(count, n // count)
        found: tuple[list[float], list[bool]] = ([], [])
        steps = 0
        with Bar("episodes of evaluation", n) as bar:
            while left.any():
                bar.update(n - int(left.sum()))
                seen = obs if normalizer is None else normalizer.normalize_obs(obs)
                actions, _ = model.predict(seen, deterministic=True)
                obs, rewards, dones, infos = envs.step(actions)
                for i in np.flatnonzero(left):
                    info = infos[i]
                    steps += 1
                    returns[i] += float(rewards[i])
                    ended = bool(dones[i]) and not info.get("TimeLimit.truncated", False)
                    flags[i] |= self._is_unsafe(info, float(rewards[i]), ended)
                    if dones[i]:
                        found[0].append(returns[i])
                        found[1].append(bool(flags[i]))
                        returns[i], flags[i] = 0.0, False
                        left[i] -= 1
        how = "set it in safe steps, too, or give unsafe= another entry or a function of (info, reward, terminated)"
        _checks.require(self._reported, "eval_env", f"report harm in info[{self.unsafe!r}]", "no such entry", how)
        return Episodes(np.array(found[0]), np.array(found[1], bool), steps / n)

    def _is_unsafe(self, info: dict[str, Any], reward: float, terminated: bool) -> bool:
        """Whether a step is unsafe."""
        if callable(self.unsafe):
            return _flag(self.unsafe(info, reward, terminated), "unsafe", "return")
        if self.unsafe not in info:
            return False
        self._reported = True
        return _flag(info[self.unsafe], f"info[{self.unsafe!r}]", "be")

    # -- the certificate -----------------------------------------------------------------------------------------------

    def _on_training_end(self) -> None:
        if not self.history or self.history[-1]["step"] != self.model.num_timesteps:
            self._evaluate()
        self.certificate = self._certified()
        self.certificate.save(self.folder / "certificate.json")
        if self.verbose:
            print(self.certificate, flush=True)  # noqa: T201
        if not isinstance(self.eval_env, VecEnv | gymnasium.Env):
            self._envs.close()

    def _certified(self) -> Certificate:
        """Confirm candidates, best first, and certify the first that keeps the limit on fresh episodes."""
        tested: list[Certificate] = []
        seen: list[tuple[float, float, dict[str, Any], Episodes]] = []
        for k, entry in enumerate(self._candidates()):
            found = self._run(3 * self.episodes, CONFIRMATION + 1_000 * k, entry["step"])
            self._lowest = min(self._lowest, float(found.returns.min()))
            excess = self._excess(found)
            seen.append((excess, -found.mean, entry, found))
            if excess > 0.0:
                continue
            tested.append(self._tested(entry, found, len(tested)))
            if tested[-1].kept or len(tested) == TRIES:
                break
        if not tested:
            _, _, entry, found = min(seen, key=lambda x: x[:2])
            tested.append(self._tested(entry, found, 0))
        best = min(tested, key=lambda told: told.bound if self.limit.most is not None else -told.bound)
        self._loaded(best.step).save(self.folder / BEST)
        (self.folder / STATISTICS).unlink(missing_ok=True)
        if self.model.get_vec_normalize_env() is not None:
            shutil.copyfile(self._statistics_file(best.step), self.folder / STATISTICS)
        return replace(best, tries=len(tested))

    def _tested(self, entry: dict[str, Any], seen: Episodes, tried: int) -> Certificate:
        """A certificate for a candidate, from fresh episodes; ``seen`` are those of its confirmation."""
        confidence = self._each
        seed = CERTIFICATE + 1_000_000 * tried
        fresh = self._run(self.limit.episodes_needed(seen, confidence), seed, entry["step"])
        self._lowest = min(self._lowest, float(fresh.returns.min()))
        given = math.inf if self.limit.worst is None else self.limit.worst
        worst = min(given, self._lowest)
        bound = self.limit.bound(fresh, confidence, worst)
        target = self.limit.most if self.limit.most is not None else self.limit.least
        assert target is not None
        settings = {
            "algorithm": type(self.model).__name__,
            "safereplay": __version__,
            "steps": self.model.num_timesteps,
            "model_seed": self.model.seed,
            "v": entry["v"],
            "beta": self._buffer.beta,
            "confidence_of_each_try": confidence,
            "unsafe": _named(self.unsafe),
        }
        if self.limit.most is None:
            settings |= {"lowest_return" if worst == given else "lowest_return_assumed": worst}
        return Certificate(
            kept=self.limit.keeps(bound),
            quantity=self.limit.name,
            limit=target,
            value=self.limit.value(fresh),
            bound=bound,
            confidence=self.confidence,
            episodes=fresh.unsafe.size,
            unsafe=fresh.bad,
            mean_return=fresh.mean,
            first_seed=seed,
            environments=self._envs.num_envs,
            model=BEST,
            step=entry["step"],
            settings=settings,
            history=self.history,
        )

    def _loaded(self, step: int) -> BaseAlgorithm:
        file = self._model_file(step)
        _checks.require(
            file.exists(), "folder", f"hold {file.name}", str(self.folder), "it was removed during training"
        )
        return type(self.model).load(file, device=self.model.device)


def _flag(value: Any, name: str, verb: str) -> bool:
    """Whether a flag or a cost says unsafe; anything else is refused."""
    try:
        cost = math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError, RuntimeError):
        cost = math.nan
    _checks.require(math.isfinite(cost), name, f"{verb} True, False or a finite cost", value)
    return cost > 0.0


def _named(unsafe: Unsafe) -> str:
    return unsafe if isinstance(unsafe, str) else getattr(unsafe, "__name__", "a function")


def _made(make: Any) -> gymnasium.Env[Any, Any]:
    env = gymnasium.make(make) if isinstance(make, str) else make()
    _checks.require(isinstance(env, gymnasium.Env), "eval_env", "make an environment of Gymnasium", type(env).__name__)
    return env


def _parts(env: Any) -> list[Any]:
    """The environments of a VecEnv, if they are in this process."""
    return [part.unwrapped for part in getattr(_innermost(env), "envs", [])]


def _innermost(env: Any) -> Any:
    while isinstance(env, VecEnvWrapper):
        env = env.venv
    return env
