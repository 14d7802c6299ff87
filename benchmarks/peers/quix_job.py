"""Copies a topic with Quix Streams until SIGTERM. Runs in Quix's own environment.

    python quix_job.py '{"servers": ..., "topic": ..., "output": ..., "commit_interval": 1,
                         "settings": {...}, "state": FOLDER}'

`output` is also the name of the consumer group: each run's is another.
"""

from __future__ import annotations

import json
import sys

from quixstreams import Application


def main() -> None:
    job = json.loads(sys.argv[1])
    application = Application(
        broker_address=job["servers"],
        consumer_group=job["output"],
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=job["commit_interval"],
        producer_extra_config=job["settings"],
        state_dir=job["state"],
        auto_create_topics=False,
        loglevel="WARNING",
    )
    source = application.topic(job["topic"], key_deserializer="bytes", value_deserializer="bytes")
    sink = application.topic(job["output"], key_serializer="bytes", value_serializer="bytes")
    application.dataframe(source).to_topic(sink)
    application.run()


if __name__ == "__main__":
    main()
