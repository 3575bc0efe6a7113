"""What FedValue is compared with: SHAP values of five trained models per party, and VF-PS.

The paper names the models and not their hyperparameters; ours are the libraries' defaults.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree
from scipy.special import digamma

from fedkit.checks import Floats, Ints, choice
from fedkit.extras import need
from fedkit.fedvalue.columns import label_codes
from fedkit.streams import Streams

How = Literal["together", "apart"]

JITTER = 1e-10  # of a column's spread: breaks ties and changes no distance that matters

MODELS = {"svm": "SVM", "gbt": "GBT", "lr": "LR", "rf": "RF", "nn": "NN"}
"""The paper's five models and their names in its tables."""


class KernelSVM:
    """scikit-learn's support vector machines with an RBF kernel, one class against the rest.

    ``C = 1``, ``gamma = 1 / (f Var(x))``.  Decision values come from one kernel matrix for all
    classes, many times as fast as scikit-learn's: an explainer asks for tens of thousands.
    """

    def fit(self, x: Floats, y: Ints) -> KernelSVM:
        """Train one machine per class, or a single one for two classes."""
        svc, many = need("sklearn.svm", "run").SVC, need("sklearn.multiclass", "run")
        self.gamma = 1.0 / (x.shape[1] * x.var())
        self.machines = many.OneVsRestClassifier(svc(gamma=self.gamma)).fit(x, y)
        weights = np.zeros((len(x), len(self.machines.estimators_)))
        for column, machine in zip(weights.T, self.machines.estimators_, strict=True):
            column[machine.support_] = machine.dual_coef_[0]
        used = weights.any(axis=1)
        self.vectors, self.weights = x[used], weights[used]
        self.intercepts = np.array([machine.intercept_[0] for machine in self.machines.estimators_])
        return self

    def decide(self, x: Floats) -> Floats:
        """Return the decision values ``float64[n, classes]``, one column for two classes."""
        kernel = need("sklearn.metrics.pairwise", "run").rbf_kernel
        parts = np.array_split(x, max(1, len(x) * len(self.vectors) // 4_000_000))
        return np.concatenate(
            [kernel(p, self.vectors, self.gamma) @ self.weights + self.intercepts for p in parts]
        )

    def predict(self, x: Floats) -> Ints:
        return np.asarray(self.machines.predict(x))


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained model of a name of :data:`MODELS`, which sees ``(x - centre) / scale``."""

    name: str
    model: Any
    centre: Floats
    scale: Floats

    def scaled(self, x: ArrayLike) -> Floats:
        return (np.asarray(x, dtype=np.float64) - self.centre) / self.scale

    def accuracy(self, x: ArrayLike, y: ArrayLike) -> float:
        return float((self.model.predict(self.scaled(x)) == np.asarray(y)).mean())


def train(name: str, x: ArrayLike, y: ArrayLike, seed: int = 0) -> Fitted:
    """Train one of the five models, a name of :data:`MODELS`, on ``float[n, f]``.

    SVM: RBF kernel, ``C = 1``.  GBT: XGBoost, 100 trees of depth 6, learning rate 0.3.  LR: L2
    penalty with ``C = 1``.  RF: 100 trees, grown out.  NN: one hidden layer of 64 ReLU units,
    Adam, at most 500 epochs.  Labels are 0, 1, ..., each of them present; `seed` is for the forest
    and the initial weights of the network.
    """
    inputs, labels = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.int64)
    choice("name", name, tuple(MODELS))
    centre, spread = inputs.mean(axis=0), inputs.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    scaled = (inputs - centre) / scale
    model = _model(name, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # networks that end at 500 epochs, still improving
        model.fit(scaled, labels)
    return Fitted(name, model, centre, scale)


def _model(name: str, seed: int) -> Any:
    if name == "svm":
        return KernelSVM()
    if name == "gbt":
        return need("xgboost", "vertical").XGBClassifier(n_estimators=100, n_jobs=1)
    if name == "lr":
        return need("sklearn.linear_model", "run").LogisticRegression(max_iter=2000)
    if name == "rf":
        return need("sklearn.ensemble", "run").RandomForestClassifier(100, random_state=seed)
    network = need("sklearn.neural_network", "run").MLPClassifier
    return network((64,), max_iter=500, random_state=seed)


def explain(fitted: Fitted, x: ArrayLike, background: ArrayLike, seed: int = 0) -> Floats:
    """Return the SHAP values of some rows, ``float64[n, f, outputs]`` (Lundberg and Lee 2017).

    Explained are margins or log-odds, one output for two classes or one per class; for the forest
    probabilities of each class.  Rows of `background` stand for "feature unknown" (GBT and RF need
    none); `seed` is of the permutations.
    """
    rows, base = fitted.scaled(x), fitted.scaled(background)
    model = fitted.model
    if fitted.name == "gbt":
        # XGBoost's own file format: no dependence on shap's reader of it
        inputs = need("xgboost", "vertical").DMatrix(rows)
        found = model.get_booster().predict(inputs, pred_contribs=True)
        found = found[:, None, :] if found.ndim == 2 else found
        return np.asarray(found[:, :, :-1].transpose(0, 2, 1), dtype=np.float64)
    shap = need("shap", "vertical")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        masker = shap.maskers.Independent(base, max_samples=len(base))
        if fitted.name == "svm":
            explainer = shap.PermutationExplainer(model.decide, masker, seed=seed)
            values = explainer(rows, max_evals=2 * rows.shape[1] + 1, silent=True).values
        elif fitted.name == "lr":
            values = shap.LinearExplainer(model, masker).shap_values(rows)
        elif fitted.name == "rf":
            values = shap.TreeExplainer(model).shap_values(rows)
        else:
            values = _deep(shap, model, rows, base)
    values = np.asarray(values, dtype=np.float64)
    return values[:, :, None] if values.ndim == 2 else values


def _deep(shap: Any, network: Any, rows: Floats, base: Floats) -> Any:
    """Explain the logits of a scikit-learn network with its weights in torch."""
    import torch

    layers: list[torch.nn.Module] = []
    for weights, bias in zip(network.coefs_, network.intercepts_, strict=True):
        linear = torch.nn.Linear(*weights.shape).double()
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weights.T.copy()))
            linear.bias.copy_(torch.from_numpy(bias.copy()))
        layers += [linear, torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    explainer = shap.DeepExplainer(model, torch.from_numpy(base))
    return explainer.shap_values(torch.from_numpy(rows), check_additivity=False)


def party_values(phi: Floats, parties: Sequence[Sequence[int]], how: How = "together") -> Floats:
    """Return the SHAP value of each party: the mean size of what its features contribute.

    `phi` is from :func:`explain`, `parties` are the columns of each.  "together" takes the size of
    a party's sum over its features, as if they were one (appendix D: "each party's aggregated
    feature"); "apart" adds the sizes of the features.
    """
    own = [phi[:, list(p)] for p in parties]
    if choice("how", how, ("together", "apart")) == "together":
        return np.array([np.abs(x.sum(axis=1)).mean() for x in own])
    return np.array([np.abs(x).sum(axis=1).mean() for x in own])


def ensemble(
    values: Mapping[str, Floats], accuracies: Mapping[str, float], threshold: float
) -> Floats:
    """Return SHAP-ensemble: the mean over the models less than `threshold` below the best.

    The models explain quantities of different units, so each model's values are divided by their
    sum first; the paper's appendix D does not say.
    """
    best = max(accuracies.values())
    chosen = [name for name, accuracy in accuracies.items() if accuracy > best - threshold]
    shares = [values[name] / max(float(values[name].sum()), 1e-300) for name in chosen]
    return np.asarray(np.mean(shares, axis=0))


def draw_groups(parties: int, groups: int, seed: int = 0) -> list[int]:
    """Draw non-empty groups uniformly, as masks (bit i is party i), until every party is in one.

    At least so many `groups`, of up to 62 parties.
    """
    rng = Streams(seed).generator("vfps", "groups")
    drawn: list[int] = []
    everybody = (1 << parties) - 1
    while len(drawn) < groups or np.bitwise_or.reduce(drawn) != everybody:
        drawn.append(int(rng.integers(1, 1 << parties)))
    return drawn


def ross(points: Floats, labels: Ints) -> float:
    """Return Ross's estimate of ``I(X; Y)`` for numbers and a discrete label, in nats (Ross 2014).

    The mean over rows of ``psi(N) - psi(N_q) + psi(k) - psi(m_q)``: ``N_q`` rows have the label
    of row `q`, and ``m_q`` other rows of any label are no farther than the k-th nearest of them (k
    is 3, or less where a label has few rows).  Every label has two rows or more.
    """
    if not len(points):
        return 0.0
    sizes = np.bincount(labels)
    reach, k = np.empty(len(points)), np.empty(len(points))
    for label in np.flatnonzero(sizes):
        own = labels == label
        nearest = min(3, int(sizes[label]) - 1)
        tree = cKDTree(points[own])
        reach[own] = tree.query(points[own], k=[nearest + 1])[0][:, 0]  # the first is the row
        k[own] = nearest
    # a hair more than the distance, so that the k-th neighbour itself counts; less the row
    tree = cKDTree(points)
    m = tree.query_ball_point(points, reach * (1 + 1e-12), return_length=True) - 1
    terms = digamma(len(points)) - digamma(sizes[labels]) + digamma(k) - digamma(np.maximum(m, 1))
    return float(terms.mean())


def vfps_scores(
    parties: Sequence[ArrayLike], y: ArrayLike, *, groups: int = 20, seed: int = 0
) -> Floats:
    """Score every party by VF-PS, in nats: random groups and their information (Jiang 2022).

    A party's score is the mean over the groups that contain it; the authors' code *sums* over
    them.  `parties` are float64[n, f] with aligned rows, `y` the label, ``int[n]``; `seed` is of
    the groups and of the noise that breaks ties.
    """
    label = label_codes(y)
    used = np.bincount(label)[label] > 1  # a label of one row has no neighbour
    tables = [np.asarray(x, dtype=np.float64)[used] for x in parties]
    drawn = draw_groups(len(tables), groups, seed)
    information = {}
    for group in sorted(set(drawn)):
        x = np.column_stack([x for i, x in enumerate(tables) if group >> i & 1])
        spread = x.std(axis=0)
        x = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        x += JITTER * Streams(seed).generator("vfps", "ties").normal(size=x.shape)
        information[group] = ross(x, label[used])
    told = [[information[group] for group in drawn if group >> i & 1] for i in range(len(tables))]
    return np.array([np.mean(values) for values in told])
