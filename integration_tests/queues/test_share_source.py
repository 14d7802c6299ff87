"""What a query gets of a share group's records."""

from __future__ import annotations

from collections import Counter

from harness import committed
from newcomer import blocks
from share_job import numbered


def test_the_page_of_share_groups_works_as_it_is_written(share_copy, spark, tmp_path) -> None:
    job = share_copy
    job.publish(numbered(7), headers=[("h", b"x")])
    _, block, command = blocks("docs/queues.md")
    for setting in ("auto.offset.reset=earliest", "isolation.level=read_committed"):
        assert f"share.{setting}" in command.content
    code = block.content
    for written, here in {
        "billing": job.group,
        '"queue", "orders"': f'"queue", "{job.queue}"',
        "orders-inbox": job.source_topic,
        "localhost:9092": job.servers,
    }.items():
        assert written in code, written
        code = code.replace(written, here)
    names = {"spark": spark}
    exec(code, names)
    assert names["messages"].columns[8:] == [
        *("messageId", "exchange", "routingKey", "redelivered", "deliveries", "sent"),
        "properties",
    ]
    writer = names["messages"].writeStream.format("memory").queryName("shared")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    rows = spark.table("shared").orderBy("offset").collect()
    assert Counter(row.value for row in rows) == committed(job.servers, job.source_topic)
    assert [bytes(row.key) for row in rows] == numbered(7)
    assert [row.messageId for row in rows] == [f"{job.queue}-0-{number}" for number in range(7)]
    first = rows[0]
    assert (first.exchange, first.redelivered, first.deliveries) == (None, False, 0)
    assert first.properties["offset"] == "0"
    assert [(one.key, bytes(one.value)) for one in first.headers] == [("h", b"x")]
    assert first.sent.timestamp() <= first.timestamp.timestamp()
