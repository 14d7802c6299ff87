/* The bare transactional copy that exactly-once systems are measured against: librdkafka alone.
 *
 *     bare_copy TOPIC OUTPUT PARTITIONS SECONDS NAME=VALUE... -- NAME=VALUE...
 *
 * Settings of the consumers, then of the producers. One thread a partition, with a consumer and a
 * transactional producer of its own: takes a thousand messages a call, hands key and value of each
 * to the producer, for the same partition of OUTPUT, and commits every SECONDS and at the end of the
 * partition. It stores no offsets, decides nothing and could not go on after a crash: nobody who
 * must can do less work with this client.
 */
#include "bare.h"

typedef struct rd_kafka_error_s rd_kafka_error_t;
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *, void *);
void rd_kafka_topic_destroy(rd_kafka_topic_t *);
int rd_kafka_produce_batch(rd_kafka_topic_t *, int32_t, int, rd_kafka_message_t *, int);
int rd_kafka_poll(rd_kafka_t *, int);
rd_kafka_error_t *rd_kafka_init_transactions(rd_kafka_t *, int);
rd_kafka_error_t *rd_kafka_begin_transaction(rd_kafka_t *);
rd_kafka_error_t *rd_kafka_commit_transaction(rd_kafka_t *, int);
const char *rd_kafka_error_string(const rd_kafka_error_t *);

enum { TAKEN = 1000, COPY = 2, QUEUE_FULL = -184, WAIT_MS = 60000 };

struct task {
    const char *topic, *output;
    int32_t partition;
    double seconds;
    int consumer_settings, producer_settings;
    char **consumer_setting, **producer_setting;
};

static void must(rd_kafka_error_t *error) {
    if (error) die("the transaction", rd_kafka_error_string(error));
}

static void send(rd_kafka_t *producer, rd_kafka_topic_t *topic, int32_t partition,
                 rd_kafka_message_t *rows, int count) {
    while (count) {
        rd_kafka_produce_batch(topic, partition, COPY, rows, count);
        int left = 0; /* those that had no room, in order */
        for (int i = 0; i < count; i++) {
            if (!rows[i].err) continue;
            if (rows[i].err != QUEUE_FULL) die("a record", rd_kafka_err2str(rows[i].err));
            rows[left++] = rows[i];
        }
        count = left;
        if (count) rd_kafka_poll(producer, 10);
    }
}

static void *copy_partition(void *given) {
    struct task *task = given;
    rd_kafka_t *from = consumer(task->topic, task->partition, task->consumer_settings,
                                task->consumer_setting);
    rd_kafka_t *to = client(PRODUCER, task->producer_settings, task->producer_setting);
    rd_kafka_topic_t *output = rd_kafka_topic_new(to, task->output, NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(from);
    rd_kafka_message_t *messages[TAKEN], rows[TAKEN];
    must(rd_kafka_init_transactions(to, WAIT_MS));
    must(rd_kafka_begin_transaction(to));
    double committed = now();
    for (int ended = 0; !ended;) {
        int count = 0;
        ssize_t got = rd_kafka_consume_batch_queue(queue, 10, messages, TAKEN);
        for (ssize_t i = 0; i < got; i++) {
            if (messages[i]->err == PARTITION_EOF) ended = 1;
            else if (messages[i]->err) die(task->topic, rd_kafka_err2str(messages[i]->err));
            else rows[count++] = (rd_kafka_message_t){
                .payload = messages[i]->payload, .len = messages[i]->len,
                .key = messages[i]->key, .key_len = messages[i]->key_len};
        }
        send(to, output, task->partition, rows, count);
        for (ssize_t i = 0; i < got; i++) rd_kafka_message_destroy(messages[i]);
        rd_kafka_poll(to, 0);
        if (ended || now() - committed >= task->seconds) {
            must(rd_kafka_commit_transaction(to, WAIT_MS)); /* flushes */
            if (!ended) must(rd_kafka_begin_transaction(to));
            committed = now();
        }
    }
    rd_kafka_topic_destroy(output);
    rd_kafka_queue_destroy(queue);
    rd_kafka_destroy(from);
    rd_kafka_destroy(to);
    return NULL;
}

int main(int count, char **given) {
    if (count < 5) die("usage", "bare_copy TOPIC OUTPUT PARTITIONS SECONDS NAME=VALUE... -- ...");
    int partitions = atoi(given[3]), divide = 5;
    while (divide < count && strcmp(given[divide], "--")) divide++;
    if (divide == count) die("usage", "no settings of the producers");
    struct task *tasks = calloc((size_t)partitions, sizeof *tasks);
    pthread_t *threads = calloc((size_t)partitions, sizeof *threads);
    for (int i = 0; i < partitions; i++) {
        char **ids = calloc((size_t)(count - divide), sizeof *ids);
        memcpy(ids, given + divide + 1, (size_t)(count - divide - 1) * sizeof *ids);
        ids[count - divide - 1] = malloc(300);
        snprintf(ids[count - divide - 1], 300, "transactional.id=%s-%d", given[2], i);
        tasks[i] = (struct task){.topic = given[1], .output = given[2], .partition = i,
                                 .seconds = atof(given[4]),
                                 .consumer_settings = divide - 5, .consumer_setting = given + 5,
                                 .producer_settings = count - divide, .producer_setting = ids};
        if (pthread_create(&threads[i], NULL, copy_partition, &tasks[i])) die("no thread", "");
    }
    for (int i = 0; i < partitions; i++) pthread_join(threads[i], NULL);
    return 0;
}
