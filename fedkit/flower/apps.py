"""The two sides of the demonstration as Flower runs them: a ServerApp and a ClientApp."""

from __future__ import annotations

from pathlib import Path

from fedkit.extras import need
from fedkit.federated.history import History
from fedkit.flower.demo import Setting
from fedkit.flower.valued import Valued, to_arrays, to_row
from fedkit.learning.evaluation import Evaluator
from fedkit.learning.training import train_clients
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

__all__ = ["client", "server"]

client = ClientApp()
server = ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    """Train as :func:`fedkit.run` would: the same batches, from the same random stream."""
    setting = Setting.read(context.run_config)
    federation, architecture = setting.federation(), setting.architecture()
    i = int(context.node_config["partition-id"])
    sent = message.content
    number = sent.config_records["config"]["server-round"]
    rng = Streams(setting.seed).child("round", int(str(number)) - 1).generator("client", i)
    data = federation.client_data(i)
    start = to_row(architecture, sent.array_records["arrays"])
    local = setting.plan().local
    (model,) = train_clients(architecture, start[None], [data], local, [rng], device="cpu")
    reply: dict[str, ArrayRecord | MetricRecord | ConfigRecord] = {
        "arrays": to_arrays(architecture, model),
        "metrics": MetricRecord({"num-examples": len(data[1])}),
        "fedkit": ConfigRecord({"client": i}),
    }
    return Message(RecordDict(reply), reply_to=message)


@server.main()
def serve(grid: Grid, context: Context) -> None:
    """Value and weigh the clients round by round, and save the history or what went wrong."""
    out = Path(str(context.run_config["out"]))
    part = out.with_name(out.name + ".part")
    try:
        _play(grid, Setting.read(context.run_config)).save(part)
        part.replace(out)
    except Exception as error:
        part.write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
        part.replace(out.with_name(out.name + ".error"))
        raise


def _play(grid: Grid, setting: Setting) -> History:
    federation, architecture = setting.federation(), setting.architecture()
    x, y = federation.x_val, federation.y_val
    n, ours = setting.clients, setting.strategy()
    strategy = Valued(
        FedAvg(
            fraction_evaluate=0.0, min_train_nodes=n, min_available_nodes=n
        ),
        ours.value,
        Evaluator(architecture, x, y, setting.plan().utility, device="cpu"),
        aggregate=ours.aggregate,
        test=Evaluator(architecture, federation.x_test, federation.y_test, device="cpu"),
        seed=setting.seed,
    )  # fmt: skip
    start = architecture.init(Streams(setting.seed).generator("model"))
    strategy.start(grid, to_arrays(architecture, start), setting.rounds, timeout=setting.timeout)
    return strategy.history
