"""Record the test bed of estimators: ``python -m benchmarks.recorded [--margins]``.

Trains rounds of twelve clients, asks for all their 4,096 coalitions and writes the tables by
accuracy and by loss into ``fedkit/games/recorded.npz``, with two games of retraining and two of
attributing a forest's prediction to columns.  The margins behind the accuracies, which are too
large to be shipped, stay in the folder (by default `_rounds`), where ``benchmarks.testbed`` looks.
All seeds are below; bits may differ between processors, so that the file is made once and kept.
``--margins`` makes what is missing of the margins alone, of rounds whose data are there.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import fedkit as fk

TABLES = Path(__file__).parents[1] / "fedkit" / "games" / "recorded.npz"
FOLDER = Path("_rounds")
CLIENTS = 12

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Round:
    """A round of a training run; `alpha` of Dirichlet's label skew, None for equal parts."""

    data: str
    model: str
    alpha: float | None
    number: int
    shuffled: int = 0  # clients whose labels are shuffled


ROUNDS = {
    # for choosing among designs of an estimator
    "digits-a": Round("digits", "mlp-16", 0.5, 1),
    "digits-b": Round("digits", "mlp-64", 0.2, 5),
    "mnist-a": Round("mnist", "mlp-64", 0.5, 1),
    "fashion-a": Round("fashionmnist", "mlp-64", 0.3, 5),
    "cancer-a": Round("cancer", "mlp-8", 0.5, 2),
    "cifar-a": Round("cifar10", "mlp-64", 0.5, 5),
    # for the final table alone
    "digits-c": Round("digits", "mlp-32", None, 3),
    "wine-a": Round("wine", "mlp-8", 0.5, 2),
    "mnist-b": Round("mnist", "lenet5", 0.3, 2),
    "fashion-b": Round("fashionmnist", "mlp-128", 0.8, 1),
    "cancer-b": Round("cancer", "mlp-8", 0.2, 5),
    "digits-d": Round("digits", "mlp-32", 1.0, 4, shuffled=3),
}


def columns(name: str) -> tuple[Floats, NDArray[np.int64]]:
    """Return the standardised columns and the labels of a table that scikit-learn has."""
    from sklearn import datasets

    load = {"cancer": datasets.load_breast_cancer, "wine": datasets.load_wine}[name]
    x, y = load(return_X_y=True)
    return (x - x.mean(axis=0)) / x.std(axis=0), y.astype(np.int64)


def federation(round_: Round, seed: int) -> fk.Federation:
    """Divide the data of a round among its clients and the server."""
    scheme = fk.IID() if round_.alpha is None else fk.Dirichlet(round_.alpha, by="class")
    if round_.data not in ("cancer", "wine"):
        share = 0.2 if round_.data == "digits" else 0.01
        return fk.make_federation(
            fk.load(round_.data), CLIENTS, scheme, seed, validation=share, min_size=10,
            empty="refill",
        )  # fmt: skip
    x, y = columns(round_.data)
    order = np.random.default_rng(seed).permutation(len(x))
    held, left = np.split(order, [len(x) * 3 // 10])
    for attempt in range(1000):  # until nobody has less than two samples
        parts = scheme.split(y[left], CLIENTS, np.random.default_rng([seed, attempt]))
        if min(len(part) for part in parts) > 1:
            break
    clients = [(x[left[part]], y[left[part]]) for part in parts]
    return fk.federation_from_arrays(clients, (x[held], y[held]), (x[held], y[held]), seed=seed)


def tables(round_: Round, seed: int) -> dict[str, NDArray]:
    """Return sizes, margins and losses of all coalitions of a round."""
    shared = federation(round_, seed)
    model = fk.build(round_.model, shared.input_shape, shared.n_classes)
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(shared.x_val))[:500]
    most = rng.integers(40, 500, size=CLIENTS)  # of images: clients of large sets differ, too
    data = [tuple(part[: most[i]] for part in shared.client_data(i)) for i in range(CLIENTS)]
    for i in range(round_.shuffled):
        features, labels = data[i]
        data[i] = features, labels[rng.permutation(len(labels))]
    sizes = np.array([len(labels) for _, labels in data], dtype=np.float64)
    streams = fk.Streams(seed)
    base = model.init(streams.generator("model"))
    for number in range(1, round_.number + 1):
        batches = [streams.generator("client", number, i) for i in range(CLIENTS)]
        rows = base.repeat(CLIENTS, 1)
        trained = fk.train_clients(model, rows, data, fk.LocalSGD(lr=0.1), batches)
        before, base = base, base + trained.new_tensor(sizes / sizes.sum()) @ (trained - base)
    found = {"sizes": sizes}
    for utility in ("margins", "negative_loss"):
        scores = fk.Evaluator(model, shared.x_val[chosen], shared.y_val[chosen], utility)
        game = fk.round_game(scores, before, trained, sizes)
        found[utility] = fk.tabulate(game, batch_size=1024).table.astype(np.float32)
    return found


def retraining(name: str, seed: int) -> dict[str, NDArray]:
    """Return accuracies and losses of a ridge regression of classes, trained by each coalition."""
    from sklearn import datasets

    x, y = datasets.load_digits(return_X_y=True) if name == "digits" else columns(name)
    x = np.concatenate([x / np.abs(x).max(), np.ones((len(x), 1))], axis=1)
    order = np.random.default_rng(seed).permutation(len(x))
    held, left = np.split(order, [len(x) * 3 // 10])
    left = left[:300]
    scheme = fk.Dirichlet(0.5, by="class")
    parts = scheme.split(y[left], CLIENTS, np.random.default_rng(seed))
    sizes = np.array([len(part) for part in parts], dtype=np.float64)
    targets = np.eye(y.max() + 1)[y]
    mine = [left[part] for part in parts]
    grams = np.array([x[part].T @ x[part] for part in mine])
    sums = np.array([x[part].T @ targets[part] for part in mine])
    rows = fk.all_coalitions(CLIENTS).astype(float)
    left_side = np.tensordot(rows, grams, axes=1) + 0.1 * np.eye(x.shape[1])
    made = x[held] @ np.linalg.solve(left_side, np.tensordot(rows, sums, axes=1))
    accuracy = (made.argmax(axis=2) == y[held]).mean(axis=1)
    return {
        "sizes": sizes,
        "accuracy": accuracy,
        "loss": -((made - targets[held]) ** 2).sum(axis=2).mean(axis=1),
    }


def attribution(name: str, seed: int) -> NDArray:
    """Return a forest's mean prediction for a row whose columns outside a coalition vary."""
    from sklearn.ensemble import RandomForestClassifier

    x, y = columns(name)
    x = x[:, :CLIENTS]
    forest = RandomForestClassifier(50, max_depth=6, random_state=seed).fit(x, y)
    order = np.random.default_rng(seed).permutation(len(x))
    one, background = x[order[0]], x[order[1:61]]
    rows = fk.all_coalitions(CLIENTS)
    mixed = np.where(rows[:, None], one, background).reshape(-1, CLIENTS)
    class_ = forest.predict(one[None])[0]
    return forest.predict_proba(mixed)[:, class_].reshape(len(rows), -1).mean(axis=1)


def write_margins(name: str, found: dict[str, NDArray]) -> None:
    """Keep the margins of a round, and its clients' sizes, in the folder."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    np.savez(FOLDER / f"{name}.npz", margins=found["margins"], sizes=found["sizes"])


def main(margins: bool = False) -> None:
    """Record all games, or the margins that are missing."""
    kept: dict[str, NDArray] = {}
    for seed, (name, round_) in enumerate(ROUNDS.items()):
        if margins and (FOLDER / f"{name}.npz").exists():
            continue
        try:
            found = tables(round_, seed)
        except FileNotFoundError as error:
            if not margins:
                raise
            print(f"{name} without margins: {error}")
            continue
        write_margins(name, found)
        kept[f"{name}-accuracy"] = fk.share_right(found["margins"]).astype(np.float32)
        kept[f"{name}-loss"] = found["negative_loss"]
        kept[f"{name}-sizes"] = found["sizes"].astype(np.float32)
    if margins:
        return
    for seed, name in enumerate(("cancer", "digits")):
        for key, table in retraining(name, seed).items():
            kept[f"{name}-retrained-{key}"] = table.astype(np.float32)
    for seed, name in enumerate(("cancer", "wine")):
        kept[f"{name}-attribution"] = attribution(name, seed).astype(np.float32)
    np.savez_compressed(TABLES, **kept)
    print(f"{TABLES}: {TABLES.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main("--margins" in sys.argv[1:])
