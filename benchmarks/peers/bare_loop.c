/* The bare consumer loop that the read path is measured against: librdkafka, and nothing else.
 *
 *     bare_loop TOPIC PARTITIONS NAME=VALUE...      (settings of the consumers)
 *
 * One thread a partition, each with a consumer of its own. Every record's seven columns (key,
 * value, topic, partition, offset, timestamp, timestampType) are copied out of the message into
 * column buffers of 20,000 rows, which are used again: no Arrow, no Python, nothing is handed on.
 * Prints a line for each thread:
 *
 *     <rows behind the first call> <seconds they took> <rows> <sum of keys> <bytes of values>
 */
#include "bare.h"

enum { TAKEN = 1000, ROWS = 20000, ROW_BYTES_MAX = 1 << 14 };

struct columns {
    char *key, *value, *topic;
    int32_t key_at[ROWS + 1], value_at[ROWS + 1], topic_at[ROWS + 1], partition[ROWS], kind[ROWS];
    int64_t offset[ROWS], timestamp[ROWS];
};

struct task {
    const char *topic;
    int32_t partition;
    int settings;
    char **setting;
    int64_t rows, timed, key_sum, value_bytes;
    double seconds;
};

static int32_t put(char *column, int32_t at, const void *bytes, size_t size) {
    if (size) memcpy(column + at, bytes, size);
    return at + (int32_t)size;
}

static void take(struct columns *to, int row, rd_kafka_message_t *message, struct task *task) {
    int kind;
    const char *topic = rd_kafka_topic_name(message->topic);
    if (message->len > ROW_BYTES_MAX || message->key_len > ROW_BYTES_MAX) die("a record", "too long");
    to->key_at[row + 1] = put(to->key, to->key_at[row], message->key, message->key_len);
    to->value_at[row + 1] = put(to->value, to->value_at[row], message->payload, message->len);
    to->topic_at[row + 1] = put(to->topic, to->topic_at[row], topic, strlen(topic));
    to->partition[row] = message->partition;
    to->offset[row] = message->offset;
    to->timestamp[row] = 1000 * rd_kafka_message_timestamp(message, &kind);
    to->kind[row] = kind;
    uint64_t key = 0;
    if (message->key_len == sizeof key) memcpy(&key, message->key, sizeof key);
    task->key_sum += (int64_t)__builtin_bswap64(key);
    task->value_bytes += (int64_t)message->len;
    task->rows++;
}

static void *read_partition(void *given) {
    struct task *task = given;
    struct columns *columns = calloc(1, sizeof *columns);
    columns->key = malloc((size_t)ROWS * ROW_BYTES_MAX); /* touched only as far as it is used */
    columns->value = malloc((size_t)ROWS * ROW_BYTES_MAX);
    columns->topic = malloc((size_t)ROWS * 256);
    rd_kafka_t *client =
        consumer(task->topic, task->partition, task->settings, task->setting);
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(client);
    rd_kafka_message_t *messages[TAKEN];
    double began = 0;
    int row = 0, ended = 0;
    while (!ended) {
        ssize_t got = rd_kafka_consume_batch_queue(queue, 10, messages, TAKEN);
        for (ssize_t i = 0; i < got; i++) {
            if (messages[i]->err == PARTITION_EOF) ended = 1;
            else if (messages[i]->err) die(task->topic, rd_kafka_err2str(messages[i]->err));
            else take(columns, row, messages[i], task), row = (row + 1) % ROWS;
            rd_kafka_message_destroy(messages[i]);
        }
        if (!began && got > 0) began = now(), task->timed = -task->rows;
    }
    task->seconds = now() - began;
    task->timed += task->rows;
    rd_kafka_queue_destroy(queue);
    rd_kafka_destroy(client);
    return NULL;
}

int main(int count, char **given) {
    if (count < 3) die("usage", "bare_loop TOPIC PARTITIONS NAME=VALUE...");
    int partitions = atoi(given[2]);
    struct task *tasks = calloc((size_t)partitions, sizeof *tasks);
    pthread_t *threads = calloc((size_t)partitions, sizeof *threads);
    for (int i = 0; i < partitions; i++) {
        tasks[i] = (struct task){.topic = given[1], .partition = i, .settings = count - 3,
                                 .setting = given + 3};
        if (pthread_create(&threads[i], NULL, read_partition, &tasks[i])) die("no thread", "");
    }
    for (int i = 0; i < partitions; i++) {
        pthread_join(threads[i], NULL);
        printf("%lld %.6f %lld %lld %lld\n", (long long)tasks[i].timed, tasks[i].seconds,
               (long long)tasks[i].rows, (long long)tasks[i].key_sum,
               (long long)tasks[i].value_bytes);
    }
    return 0;
}
