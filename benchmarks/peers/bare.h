/* What the bare programs share: those parts of librdkafka's stable API that they use, declared here
 * so that its header is not needed to build them, and a client on one partition. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_partitions_s rd_kafka_partitions_t;
typedef struct {
    int err;
    rd_kafka_topic_t *topic;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private_;
} rd_kafka_message_t;
typedef struct {
    char *topic;
    int32_t partition;
    int64_t offset;
} rd_kafka_topic_partition_t; /* only its beginning is written to */

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
rd_kafka_t *rd_kafka_new(int, rd_kafka_conf_t *, char *, size_t);
void rd_kafka_destroy(rd_kafka_t *);
int rd_kafka_poll_set_consumer(rd_kafka_t *);
rd_kafka_partitions_t *rd_kafka_topic_partition_list_new(int);
rd_kafka_topic_partition_t *rd_kafka_topic_partition_list_add(rd_kafka_partitions_t *,
                                                              const char *, int32_t);
void rd_kafka_topic_partition_list_destroy(rd_kafka_partitions_t *);
int rd_kafka_assign(rd_kafka_t *, const rd_kafka_partitions_t *);
rd_kafka_queue_t *rd_kafka_queue_get_consumer(rd_kafka_t *);
void rd_kafka_queue_destroy(rd_kafka_queue_t *);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t);
int64_t rd_kafka_message_timestamp(const rd_kafka_message_t *, int *);
void rd_kafka_message_destroy(rd_kafka_message_t *);
const char *rd_kafka_topic_name(const rd_kafka_topic_t *);
const char *rd_kafka_err2str(int);

enum { PRODUCER = 0, CONSUMER = 1, PARTITION_EOF = -191 };

static void die(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

/* A client with `count` settings, each NAME=VALUE. */
static rd_kafka_t *client(int kind, int count, char **setting) {
    char why[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    for (int i = 0; i < count; i++) {
        char *name = strdup(setting[i]), *value = strchr(name, '=');
        if (!value) die(name, "no value");
        *value++ = 0;
        if (rd_kafka_conf_set(conf, name, value, why, sizeof why)) die(name, why);
        free(name);
    }
    rd_kafka_t *made = rd_kafka_new(kind, conf, why, sizeof why);
    if (!made) die("no client", why);
    return made;
}

static rd_kafka_t *consumer(const char *topic, int32_t partition, int count, char **setting) {
    rd_kafka_t *made = client(CONSUMER, count, setting);
    rd_kafka_poll_set_consumer(made);
    rd_kafka_partitions_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, topic, partition)->offset = 0;
    if (rd_kafka_assign(made, list)) die(topic, "not assigned");
    rd_kafka_topic_partition_list_destroy(list);
    return made;
}
