"""A Flower strategy around another one: it values, weighs and selects the clients of each round."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch

from fedkit.checks import choice, having, whole_or_none
from fedkit.extras import need
from fedkit.federated import rounds
from fedkit.federated.history import History
from fedkit.federated.policies import UniformSelection
from fedkit.games.ledger import Ledger
from fedkit.games.valuation import Valuation
from fedkit.learning.evaluation import Evaluator
from fedkit.learning.models import Model
from fedkit.streams import Streams

need("flwr.serverapp.strategy", extra="flower")

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord  # noqa: E402
from flwr.serverapp import Grid  # noqa: E402
from flwr.serverapp.strategy import Strategy  # noqa: E402

_NO_LOCAL = "this valuation asks how clients train; give local=fk.LocalSGD(...)"
_NO_DATA = (
    "this valuation asks for a utility, and Valued got a model alone; give fk.Evaluator(model, "
    "x_val, y_val), or a valuation that looks at updates only, such as fk.CosineValues()"
)
_MOST_CLIENTS = 1 << 16  # no client may ask for a larger number
_MOST_SAMPLES = 1 << 40  # nor claim more samples: sums of sizes stay exact


def to_row(model: Model, arrays: ArrayRecord) -> torch.Tensor:
    """The row ``[P]`` of a model in arrays, by their names; numbered ones are its whole state."""
    state = {name: array.numpy() for name, array in arrays.items()}
    keys = list(model.module.state_dict())
    if list(state) == [str(i) for i in range(len(keys))]:  # a list of arrays, as Flower stores it
        state = dict(zip(keys, state.values(), strict=True))
    return model.row(state, "arrays", others=True)


def to_arrays(model: Model, row: torch.Tensor) -> ArrayRecord:
    """The whole state of a model as arrays under their names."""
    return ArrayRecord(model.state(row.cpu()))


def _leave(r: rounds.Round, valuation: Valuation, table: rounds.ClientTable) -> torch.Tensor:
    """Leave the next model to the inner strategy."""
    return r.base


@dataclass(eq=False, repr=False)
class Valued(Strategy):
    """Runs a Flower strategy, and values its clients after each round of training.

    The inner strategy samples nodes, writes their messages and aggregates their replies.  What is
    no update is left out; the values of the others can decide how much each client counts
    (`aggregate`) and who is asked next (`select`).

    Parameters
    ----------
    inner : flwr.serverapp.strategy.Strategy
        Such as ``FedAvg(fraction_evaluate=0.0)``.
    value, remember, outputs, aggregate
        As in ``fk.Strategy``; the weights of ``round.average`` take the place of the number of
        samples in the replies, by which `inner` must average.
    evaluator : Evaluator or Model
        Utility on the server's validation set; its model has the state that clients send:
        ``ArrayRecord(module.state_dict())``.  The model alone will do for a valuation that looks
        at updates only.
    select : callable, optional
        Keeps some of the nodes that `inner` has sampled; all are asked until one has replied.
    participants : int, optional
        So many are kept.
    newcomers : int, optional
        How many nodes that never replied are asked beside them; by default `participants`.
    test : Evaluator, optional
        Measures the accuracy of the history.
    local : LocalSGD, optional
        How clients train, for the valuers that ask (``fk.FedTSV``).
    weighting : {"size", "uniform"}
        How a coalition's updates are averaged.
    ledger : fk.Ledger, optional
        Where a round is written down before the next one begins; rounds count on from those it has.
    seed : int
        Root of the random streams of valuation and selection.
    """

    inner: Strategy
    value: rounds.Value
    evaluator: Any
    _: KW_ONLY
    select: rounds.Select | None = None
    participants: int | None = None
    newcomers: int | None = None
    aggregate: rounds.Aggregate | None = None
    remember: rounds.Remember = rounds.keep_latest
    outputs: int | None = None
    test: Evaluator | None = None
    local: Any = None
    weighting: Literal["size", "uniform"] = "size"
    ledger: Ledger | None = None
    seed: int = 0
    history: History = field(default_factory=History, init=False)  #: as ``fk.run`` leaves it
    #: number of each node that replied; what its reply names in ``{"fedkit": {"client": number}}``
    #: (a ``ConfigRecord``) where that is free, else the lowest free one
    numbers: dict[int, int] = field(default_factory=dict, init=False)
    #: what is known of the clients; None before the first reply
    table: rounds.ClientTable | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        having("inner", self.inner, "configure_train", "aggregate_train")
        if isinstance(self.evaluator, Model):
            self.evaluator = rounds.Missing(_NO_DATA, model=self.evaluator)
        else:
            having("evaluator", self.evaluator, "model", "prepare", "evaluate")
        needs = {"ledger": ("add", "rounds"), "test": ("utilities",), "local": ("lr", "n_steps")}
        for name, methods in needs.items():
            if getattr(self, name) is not None:
                having(name, getattr(self, name), *methods)
        if (self.select is None) != (self.participants is None):
            raise ValueError("select and participants belong together; give both or neither")
        if self.newcomers is not None and self.select is None:
            raise ValueError("newcomers stand beside those whom select keeps; give select as well")
        whole_or_none("participants", self.participants)
        whole_or_none("newcomers", self.newcomers, 0)
        choice("weighting", self.weighting, ("size", "uniform"))
        self.policies = rounds.Strategy(
            self.select or UniformSelection(), self.value, self.aggregate or _leave, self.remember,
            self.outputs,
        )  # fmt: skip
        if self.newcomers is None:
            self.newcomers = self.participants
        self.local = self.local or rounds.Missing(_NO_LOCAL)
        self.streams = Streams(self.seed)
        self._before = 0  # rounds that the ledger held when the strategy was started
        self._base = torch.zeros(0)
        self._shapes: dict[str, tuple[int, ...]] = {}  # of the arrays that were sent
        self._size_key: str = getattr(self.inner, "weighted_by_key", "num-examples")

    # ------------------------------------------------------------- what the inner one does

    def summary(self) -> None:
        """Log the settings of the inner strategy."""
        self.inner.summary()

    def configure_evaluate(self, *given: Any, **named: Any) -> Iterable[Message]:
        """Leave evaluation on the clients to the inner strategy."""
        return self.inner.configure_evaluate(*given, **named)

    def aggregate_evaluate(self, *given: Any, **named: Any) -> MetricRecord | None:
        """Leave it to the inner strategy."""
        return self.inner.aggregate_evaluate(*given, **named)

    # ---------------------------------------------------------------------------- a round

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Keep the messages of the inner strategy to nodes that are selected, and some unknown."""
        if self.ledger is not None and server_round == 1:
            numbers = (n for n in self.ledger.rounds if isinstance(n, int))
            self._before = max(numbers, default=0)
        self._base = to_row(self.evaluator.model, arrays)
        self._shapes = {name: array.numpy().shape for name, array in arrays.items()}
        messages = list(self.inner.configure_train(server_round, arrays, config, grid))
        if self.participants is None or self.table is None:
            return messages
        asked = [self.numbers.get(m.metadata.dst_node_id) for m in messages]
        new = [k for k, i in enumerate(asked) if i is None]
        rng = self._stream(server_round).generator("newcomers")
        kept = set(rng.permutation(new)[: self.newcomers].tolist())
        here = np.isin(np.arange(len(self.table.sizes)), [i for i in asked if i is not None])
        self.table.round = server_round - 1
        table = replace(self.table, sizes=np.where(here, self.table.sizes, 0))
        if len(table.available):
            rng = self._stream(server_round).generator("select")
            ids = self.policies.select(table, self.participants, rng)
            chosen = rounds.check_selection(self.policies.select, ids, len(here)).tolist()
            kept.update(k for k, i in enumerate(asked) if i in chosen)
        return [m for k, m in enumerate(messages) if k in kept]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Value the clients, then let the inner strategy aggregate, by their values if asked to."""
        replies = list(replies)
        errors = [m for m in replies if m.has_error()]
        answers = [(m, *self._read(m)) for m in replies if not m.has_error()]
        self._number([m for m, _, _ in answers])
        table = self._meet({self._of(m): size for m, _, size in answers})
        read = [(self._of(m), m, u, size) for m, u, size in answers if u is not None]
        layouts = [_layout(m) for _, m, *_ in read]  # strategies of Flower want all alike
        usual = max(layouts, key=layouts.count, default=None)
        read = [reply for reply, layout in zip(read, layouts, strict=True) if layout == usual]
        if not read:
            return self.inner.aggregate_train(server_round, errors)
        ids, good, updates, sizes = zip(*sorted(read, key=lambda item: item[0]), strict=True)
        unusable = np.setdiff1d([self._of(m) for m, _, _ in answers], ids)
        r = rounds.Round(
            server_round - 1, self.evaluator.model, self._base, torch.stack(updates), np.array(ids),
            np.array(sizes), self.evaluator, self.local, self.weighting,
            self._stream(server_round), left_out=tuple(unusable.tolist()),
        )  # fmt: skip
        (valuation,) = rounds.values_of(self.policies, [r])
        rounds.next_model(self.policies, table, r, valuation)
        if self.ledger is not None:
            self.ledger.add(self._before + server_round, valuation, r.participants)
        if self.aggregate is not None:
            if not r.noted:
                raise ValueError("aggregate gave no weights; Flower needs round.average(weights)")
            weighed = list(zip(good, r.noted[-1], strict=True))
            for message, weight in weighed:
                _metrics(message)[self._size_key] = float(weight)
            good = tuple(message for message, weight in weighed if weight > 0)
        arrays, metrics = None, None  # no weight at all keeps the model
        if good:
            arrays, metrics = self.inner.aggregate_train(server_round, [*errors, *good])
        model = self._base if arrays is None else to_row(self.evaluator.model, arrays)
        accuracy = float("nan") if self.test is None else float(self.test.utilities(model[None])[0])
        for before in self.history.rounds[-1:]:
            before["last"] = False
        self.history.add(r, valuation, server_round, accuracy, {"last": True})
        self.history.models = model[None]
        return arrays, metrics

    def _stream(self, server_round: int) -> Streams:
        # a server that starts again draws anew, or the errors of its rounds would be alike
        return self.streams.child("round", self._before + server_round - 1)

    def _of(self, message: Message) -> int:
        return self.numbers[message.metadata.src_node_id]

    def _read(self, message: Message) -> tuple[torch.Tensor | None, int]:
        """Return update, in the order that was sent, and size of a reply; else None and 1."""
        size = 1
        try:
            stated = int(_metrics(message)[self._size_key])  # type: ignore[arg-type]
            if not 0 < stated <= _MOST_SAMPLES:
                return None, size
            size = stated
            ((key, arrays),) = message.content.array_records.items()
            if {name: array.numpy().shape for name, array in arrays.items()} != self._shapes:
                return None, size
            message.content[key] = ordered = ArrayRecord({n: arrays[n] for n in self._shapes})
            update = to_row(self.evaluator.model, ordered) - self._base
        except Exception:  # a client can send any bytes
            return None, size
        return (update if bool(torch.isfinite(update.square().sum())) else None), size

    def _number(self, messages: list[Message]) -> None:
        """Give new nodes their numbers: first those that name one, then the others."""

        def named(message: Message) -> int:
            number = message.content.config_records.get("fedkit", ConfigRecord()).get("client")
            if isinstance(number, int) and 0 <= number < _MOST_CLIENTS:
                return number
            return _MOST_CLIENTS

        new = [m for m in messages if m.metadata.src_node_id not in self.numbers]
        for message in sorted(new, key=lambda m: (named(m), m.metadata.src_node_id)):
            taken, number = set(self.numbers.values()), named(message)
            if number == _MOST_CLIENTS or number in taken:
                number = next(i for i in range(len(taken) + 1) if i not in taken)
            self.numbers[message.metadata.src_node_id] = number

    def _meet(self, sizes: dict[int, int]) -> rounds.ClientTable:
        """Note the sizes of clients, in a table with a row for each number."""
        n = max(self.numbers.values(), default=-1) + 1
        table = rounds.ClientTable.new(
            np.zeros(n, np.int64), np.zeros((n, 0), np.int64), self.policies.outputs
        )
        if (old := self.table) is not None:
            for name in ("sizes", "values", "counts", "missed"):
                getattr(table, name)[: len(old.sizes)] = getattr(old, name)
            table.round, table.memory = old.round, old.memory
        for number, size in sizes.items():
            table.sizes[number] = size
        if sizes:
            self.table = table
        return table


def _metrics(message: Message) -> MetricRecord:
    (metrics,) = message.content.metric_records.values()
    return metrics


def _layout(message: Message) -> tuple[str, ...]:
    """Names in a reply."""
    content = message.content
    return (*content.array_records, *content.metric_records, *sorted(_metrics(message)))
