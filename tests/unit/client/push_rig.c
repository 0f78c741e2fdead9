#include "tests/unit/client/push_rig.h"

struct rig rig_create(int queue_count)
{
    struct rig rig = {.fake = fake_create(queue_count)};
    rig.heard = heard_create(rig.fake);
    rig.options = fake_options(rig.fake, "group", "a");
    assert_ok(tern_consumer_options_from(rig.options, TERN_FROM_FIRST, 0));
    return rig;
}

void rig_start(struct rig *rig, const char *expression)
{
    struct tern_error err = {.text = ""};
    assert_ok(tern_push_consumer_create(rig->options, &rig->consumer, &err));
    assert_ok(tern_push_consumer_subscribe(rig->consumer, FAKE_TOPIC, expression, &err));
    assert_ok(tern_push_consumer_listener(rig->consumer, listen_and_remember, rig->heard));
    if (tern_push_consumer_start(rig->consumer, &err) != TERN_OK)
        fail_msg("%s", err.text);
}

void rig_destroy(struct rig *rig)
{
    tern_push_consumer_destroy(rig->consumer);
    tern_consumer_options_destroy(rig->options);
    fake_destroy(rig->fake);
    free(rig->heard);
}

struct tern_consumer_stats rig_stats(struct rig *rig)
{
    struct tern_consumer_stats stats;
    tern_push_consumer_stats(rig->consumer, &stats);
    return stats;
}
