"""A small federation in Flower's simulation engine, and in fedkit's own loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkit.datasets import load
from fedkit.extras import need
from fedkit.federated.federation import Federation, make_federation
from fedkit.federated.history import History
from fedkit.federated.partition import Dirichlet
from fedkit.federated.policies import Exact, Proportional, UniformSelection
from fedkit.federated.rounds import Plan, Strategy, run
from fedkit.flower.valued import Valued, to_arrays, to_row
from fedkit.learning import Evaluator, LocalSGD, Model, build, train_clients
from fedkit.streams import Streams

need("flwr.serverapp", extra="flower")

from flwr.app import (  # noqa: E402
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import Grid, ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402


@dataclass(frozen=True)
class Setting:
    """The federation of the demonstration."""

    clients: int = 3
    rounds: int = 2
    seed: int = 0
    timeout: float = 300.0  # seconds that a round may take

    def federation(self) -> Federation:
        """Digits, uneven in labels and sizes."""
        return make_federation(load("digits"), self.clients, Dirichlet(0.5), seed=self.seed)

    def architecture(self) -> Model:
        """A small perceptron."""
        return build("mlp-16", (1, 8, 8), 10)

    def plan(self) -> Plan:
        """All clients in every round; the loss, which no rounding moves from sample to sample."""
        local = LocalSGD(lr=0.1, batch_size=16)
        return Plan(self.rounds, self.clients, local, utility="negative_loss")

    def strategy(self) -> Strategy:
        """Exact values, which are the weights of the next model."""
        return Strategy(UniformSelection(), Exact(), Proportional())

    def own(self) -> History:
        """What fedkit's own loop gives."""
        return run(
            [self.federation()], self.architecture(), self.strategy(), self.plan(), [self.seed],
            device="cpu",
        )  # fmt: skip


def client_app(setting: Setting) -> ClientApp:
    """The clients: they train as ``fk.run`` would, batches from the same random streams."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model, i = setting.architecture(), int(context.node_config["partition-id"])
        sent = message.content
        number = int(str(sent.config_records["config"]["server-round"]))
        rng = Streams(setting.seed).child("round", number - 1).generator("client", i)
        data = setting.federation().client_data(i)
        start = to_row(model, sent.array_records["arrays"])
        local = setting.plan().local
        (trained,) = train_clients(model, start[None], [data], local, [rng], device="cpu")
        reply: dict[str, ArrayRecord | MetricRecord | ConfigRecord] = {
            "arrays": to_arrays(model, trained),
            "metrics": MetricRecord({"num-examples": len(data[1])}),
            "fedkit": ConfigRecord({"client": i}),
        }
        return Message(RecordDict(reply), reply_to=message)

    return app


def server_app(setting: Setting, histories: list[History]) -> ServerApp:
    """The server: it values and weighs the clients round by round, and appends its history."""
    app = ServerApp()

    @app.main()
    def serve(grid: Grid, context: Context) -> None:
        f, model, ours, n = (
            setting.federation(), setting.architecture(), setting.strategy(), setting.clients,
        )  # fmt: skip
        strategy = Valued(
            FedAvg(fraction_evaluate=0.0, min_train_nodes=n, min_available_nodes=n),
            ours.value,
            Evaluator(model, f.x_val, f.y_val, setting.plan().utility, device="cpu"),
            aggregate=ours.aggregate,
            test=Evaluator(model, f.x_test, f.y_test, device="cpu"),
            seed=setting.seed,
        )
        start = to_arrays(model, model.init(Streams(setting.seed).generator("model")))
        strategy.start(grid, start, setting.rounds, timeout=setting.timeout)
        histories.append(strategy.history)

    return app


def play(setting: Setting) -> History:
    """Run the demonstration in Flower's simulation engine, which runs on Ray."""
    need("ray", extra="ray")
    simulation = need("flwr.simulation", extra="flower")
    histories: list[History] = []
    simulation.run_simulation(
        server_app(setting, histories),
        client_app(setting),
        setting.clients,
        backend_config={"client_resources": {"num_cpus": 1}},
    )
    if not histories:
        raise ValueError("Flower's server gave no history; its log above says why")
    return histories[0]


def difference(one: History, other: History) -> float:
    """Return the largest difference between values, weights and models of two runs."""
    pairs: list[Any] = [(one.models, other.models)]
    for name in ("round", "client", "value", "weight"):
        pairs.append([[row[name] for row in history.clients] for history in (one, other)])
    return max(float(np.abs(np.subtract(*pair)).max()) for pair in pairs)
