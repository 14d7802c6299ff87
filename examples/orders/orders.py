"""Three maps: orders come in one, customers are looked up in another, totals by minute and customer
go to the third, each order counted once.

    python examples/orders/orders.py                        maps are compacted topics
    python examples/orders/orders.py --backend hazelcast    maps are Hazelcast's

It starts its own Kafka, or Hazelcast, unless it is told where one is. The query is stopped half way
and started again from its checkpoint. Exits with 0 only if the totals are those of the orders.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

os.environ["PYSPARK_PYTHON"] = sys.executable

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import eo_kafka
from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.broker.hazelcast import HazelcastCluster
from eo_kafka.broker.hazelcast_settings import journal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Options = dict[str, str]
ORDER = "customer STRING, at TIMESTAMP, amount BIGINT"
REGIONS = ("north", "south", "east", "west")
CUSTOMERS = 7


def main() -> int:
    arguments = _arguments()
    spark = session()
    with maps(arguments) as (place, name), tempfile.TemporaryDirectory() as folder:
        customers = [
            (f"c{number}", json.dumps({"region": REGIONS[number % len(REGIONS)]}))
            for number in range(CUSTOMERS)
        ]
        put(spark, {**place, "map": f"{name}customers"}, customers)
        orders = [(f"{number}", json.dumps(order(number))) for number in range(arguments.orders)]
        half = len(orders) // 2
        for some in (orders[:half], orders[half:]):
            put(spark, {**place, "map": f"{name}orders"}, some)
            count(spark, place, name, folder)
        found = totals(spark, {**place, "map": f"{name}totals"})
    for key in sorted(found):
        print(f"{key:20} {found[key]}")
    right = found == expected(arguments.orders)
    print(f"{arguments.orders} orders, {len(found)} totals: {'right' if right else 'WRONG'}")
    return 0 if right else 1


def order(number: int) -> dict[str, object]:
    """One of them: three a second."""
    minute, second = divmod(number // 3, 60)
    return {
        "customer": f"c{number % CUSTOMERS}",
        "at": f"2024-01-01T{minute // 60:02}:{minute % 60:02}:{second:02}Z",
        "amount": number % 10,
    }


def put(spark: SparkSession, place: Options, entries: list[tuple[str, str]]) -> None:
    """Write entries as a batch."""
    rows = spark.createDataFrame(entries, "key STRING, value STRING")
    rows.write.format("eo-map").options(**place).option("value.format", "json").mode(
        "append"
    ).save()


def count(spark: SparkSession, place: Options, name: str, folder: str) -> None:
    """The query, until it has seen what is there: changes of the orders, counted in windows, joined
    with the customers as they were when the batch first ran, into the totals."""
    typed = {"value.format": "json", "value.schema": ORDER}
    changes = spark.readStream.format("eo-map").options(
        **place, map=f"{name}orders", maxEventsPerTrigger="500", **typed
    )
    counts = (
        changes.load()
        .select("value.*")
        .withWatermark("at", "1 hour")
        .groupBy("customer", F.window("at", "1 minute"))
        .agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))
    )
    of_customers = {"value.format": "json", "value.schema": "region STRING"}
    customers = eo_kafka.SideInput(
        {**place, "map": f"{name}customers", **of_customers}, f"{folder}/customers"
    )
    job = {"jobName": f"{name}totals"} if place["backend"] == "kafka" else {}
    write = eo_kafka.foreach_batch({**place, **job, "map": f"{name}totals", "value.format": "json"})

    def enrich(rows: DataFrame, batch: int) -> None:
        found = customers.join(rows, batch, on="customer")
        minute = F.date_format("window.start", "yyyy-MM-dd HH:mm")
        entry = F.struct("entry.region", "orders", "amount")
        write(
            found.select(F.concat_ws(" ", minute, "customer").alias("key"), entry.alias("value")),
            batch,
        )

    query = (
        counts.writeStream.outputMode("update")
        .foreachBatch(enrich)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def totals(spark: SparkSession, place: Options) -> dict[str, object]:
    """What the map of totals holds."""
    rows = spark.read.format("eo-map").options(**place).load().select("key", "value").collect()
    return {row.key: json.loads(row.value) for row in rows}


def expected(orders: int) -> dict[str, object]:
    """The same, from the orders themselves."""
    found: dict[str, dict[str, object]] = {}
    for number in range(orders):
        one = order(number)
        customer, at = str(one["customer"]), str(one["at"])
        region = REGIONS[int(customer[1:]) % len(REGIONS)]
        key = f"{at[:10]} {at[11:16]} {customer}"
        total = found.setdefault(key, {"region": region, "orders": 0, "amount": 0})
        total["orders"] = int(str(total["orders"])) + 1
        total["amount"] = int(str(total["amount"])) + int(str(one["amount"]))
    return dict(found)


@contextlib.contextmanager
def maps(arguments: argparse.Namespace) -> Iterator[tuple[Options, str]]:
    """Where the maps are, as options, and what their names begin with."""
    name = arguments.prefix
    with contextlib.ExitStack() as own:
        if arguments.backend == "hazelcast":
            members = arguments.members
            if members is None:
                grid = own.enter_context(HazelcastCluster(1, {f"{name}orders": journal()}))
                members = ",".join(grid.addresses)
            yield {"backend": "hazelcast", "hazelcast.members": members}, name
            return
        servers = arguments.bootstrap_servers
        if servers is None:
            servers = own.enter_context(KafkaBroker()).bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        compacted = {"cleanup.policy": "compact"}
        for made in admin.create_topics(
            [
                NewTopic(f"{name}{of}", 2, config=compacted)
                for of in ("customers", "orders", "totals")
            ]
        ).values():
            made.result()
        yield {"backend": "kafka", "kafka.bootstrap.servers": servers}, name


def session() -> SparkSession:
    """Spark on two cores."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("WARN")
    return spark


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backend", choices=("kafka", "hazelcast"), default="kafka")
    parser.add_argument("--bootstrap-servers", help="a Kafka that runs; its own without")
    parser.add_argument(
        "--members", help="a Hazelcast that runs, with a journal for the orders; its own without"
    )
    parser.add_argument("--prefix", default="shop-", help="what the maps' names begin with")
    parser.add_argument("--orders", type=int, default=2000)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
