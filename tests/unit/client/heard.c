#include "tests/unit/client/heard.h"

struct heard *heard_create(struct fake *fake)
{
    struct heard *heard = calloc(1, sizeof *heard);
    assert_non_null(heard);
    heard->fake = fake;
    heard->fail_offset = -1;
    return heard;
}

enum tern_consume_result listen_and_remember(void *arg, const struct tern_message *const *messages,
                                             size_t count)
{
    struct heard *heard = arg;
    enum tern_consume_result result = TERN_CONSUME_SUCCESS;
    if (count > heard->largest_batch)
        heard->largest_batch = count;
    for (size_t i = 0; i < count; i++) {
        assert_true(heard->count < HEARD_MAX);
        int64_t offset = tern_message_queue_offset(messages[i]);
        heard->items[heard->count].queue_id = tern_message_queue_id(messages[i]);
        heard->items[heard->count].offset = offset;
        heard->items[heard->count++].reconsume = tern_message_reconsume_times(messages[i]);
        snprintf(heard->topic, sizeof heard->topic, "%s", tern_message_topic(messages[i]));
        if (offset == heard->fail_offset && heard->fail_times != 0) {
            heard->fail_times -= heard->fail_times > 0;
            result = TERN_RECONSUME_LATER;
        }
    }
    return result;
}

unsigned heard_times(const struct heard *heard, int32_t queue_id, int64_t offset)
{
    unsigned times = 0;
    for (unsigned i = 0; i < heard->count; i++)
        times += heard->items[i].queue_id == queue_id && heard->items[i].offset == offset;
    return times;
}
