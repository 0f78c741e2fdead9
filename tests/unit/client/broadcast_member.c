#include "tests/unit/client/broadcast_member.h"

struct member member_create(struct fake *fake, const char *name)
{
    struct member member = {.options = tern_consumer_options_create(), .heard = heard_create(fake)};
    assert_ok(tern_consumer_options_namesrv(member.options, fake->namesrv.address));
    assert_ok(tern_consumer_options_group(member.options, "group"));
    if (name)
        assert_ok(tern_consumer_options_instance(member.options, name));
    assert_ok(tern_consumer_options_model(member.options, TERN_BROADCASTING));
    assert_ok(tern_consumer_options_offset_dir(member.options, DIR_TEXT));
    tern_consumer_options_world(member.options, &fake->env, fake->client);
    return member;
}

enum tern_code member_try_start(struct member *member, struct tern_error *err)
{
    *err = (struct tern_error){.text = ""};
    assert_ok(tern_push_consumer_create(member->options, &member->consumer, err));
    assert_ok(tern_push_consumer_subscribe(member->consumer, FAKE_TOPIC, "*", err));
    assert_ok(tern_push_consumer_listener(member->consumer, listen_and_remember, member->heard));
    return tern_push_consumer_start(member->consumer, err);
}

void member_start(struct member *member)
{
    struct tern_error err;
    if (member_try_start(member, &err) != TERN_OK)
        fail_msg("%s", err.text);
}

void member_stop(struct member *member)
{
    tern_push_consumer_destroy(member->consumer);
    member->consumer = NULL;
}

void member_end(struct member *member)
{
    member_stop(member);
    tern_consumer_options_destroy(member->options);
    free(member->heard);
}

struct tern_consumer_stats member_stats(const struct member *member)
{
    struct tern_consumer_stats stats;
    tern_push_consumer_stats(member->consumer, &stats);
    return stats;
}
