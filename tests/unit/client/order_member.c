#include "tests/unit/client/order_member.h"

#include "base/sched.h"

struct played *played;
struct order_member order_members[MEMBERS];

int64_t order_now_ms(void)
{
    return clock_mono_ns(played->fake->env.clock) / 1000000;
}

enum tern_orderly_result order_play(void *arg, const struct tern_message *const *messages,
                                    size_t count)
{
    const struct order_member *member = arg;
    enum tern_orderly_result result = TERN_ORDERLY_SUCCESS;
    int32_t queue_id = tern_message_queue_id(messages[0]);
    played->overlapped = played->overlapped || played->running[queue_id] > 0;
    played->running[queue_id]++;
    if (count > played->largest_batch)
        played->largest_batch = count;
    for (size_t i = 0; i < count; i++) {
        assert_true(played->count < PLAYED_MAX);
        int64_t offset = tern_message_queue_offset(messages[i]);
        played->items[played->count].member = member->number;
        played->items[played->count].queue_id = queue_id;
        played->items[played->count].offset = offset;
        played->items[played->count].reconsume = tern_message_reconsume_times(messages[i]);
        played->items[played->count++].at_ms = order_now_ms();
        if (offset == played->fail_offset && played->fail_times != 0) {
            played->fail_times -= played->fail_times > 0;
            played->failed++;
            result = TERN_ORDERLY_SUSPEND_CURRENT_QUEUE_A_MOMENT;
        }
    }
    if (played->handler_ms > 0) {
        struct latch never;
        latch_init(&never);
        int64_t until_ns = clock_mono_ns(played->fake->env.clock) + ms_to_ns(played->handler_ms);
        assert_false(latch_wait(played->fake->env.sched, &never, until_ns));
    }
    played->running[queue_id]--;
    return result;
}

struct tern_consumer_options *order_options(int number)
{
    char name[8];
    snprintf(name, sizeof name, "m%d", number);
    struct tern_consumer_options *options = fake_options(played->fake, "group", name);
    assert_ok(tern_consumer_options_from(options, TERN_FROM_FIRST, 0));
    return options;
}

void order_join_with(int number, struct tern_consumer_options *options)
{
    struct tern_error err = {.text = ""};
    struct order_member *member = &order_members[number];
    *member = (struct order_member){.played = played, .number = number};
    assert_ok(tern_push_consumer_create(options, &member->consumer, &err));
    assert_ok(tern_push_consumer_subscribe(member->consumer, FAKE_TOPIC, "*", &err));
    assert_ok(tern_push_consumer_listener_orderly(member->consumer, order_play, member));
    if (tern_push_consumer_start(member->consumer, &err) != TERN_OK)
        fail_msg("%s", err.text);
    tern_consumer_options_destroy(options);
}

void order_join(int number)
{
    order_join_with(number, order_options(number));
}

void order_leave(int number)
{
    tern_push_consumer_destroy(order_members[number].consumer);
    order_members[number].consumer = NULL;
}

void order_begin(int queue_count)
{
    played = calloc(1, sizeof *played);
    assert_non_null(played);
    played->fake = fake_create(queue_count);
    played->fail_offset = -1;
    memset(order_members, 0, sizeof order_members);
}

void order_end(void)
{
    for (int i = 0; i < MEMBERS; i++)
        tern_push_consumer_destroy(order_members[i].consumer);
    fake_destroy(played->fake);
    free(played);
}

void order_run_ms(int64_t ms)
{
    fake_run_ms(played->fake, ms);
}

void order_check(int64_t per_queue)
{
    int64_t next[FAKE_QUEUES + 1] = {0};
    for (unsigned i = 0; i < played->count; i++) {
        int32_t queue = played->items[i].queue_id;
        if (played->items[i].offset != next[queue])
            fail_msg("queue %d: offset %lld at %lld ms, %lld was next", queue,
                     (long long)played->items[i].offset, (long long)played->items[i].at_ms,
                     (long long)next[queue]);
        bool fails = played->items[i].offset == played->fail_offset && i + 1 < played->count &&
                     played->items[i + 1].offset == played->fail_offset;
        next[queue] += !fails;
    }
    for (int i = 0; i < played->fake->queue_count; i++)
        assert_int_equal(next[i], per_queue);
    assert_false(played->overlapped);
}
