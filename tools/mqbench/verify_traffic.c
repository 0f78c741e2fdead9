/*
 * What the messages of a check are besides numbered: when they are due, what becomes of their
 * transaction, their tags and properties, and which reader wants which. All of it follows from run,
 * stream and number, so that whoever reads a message knows what its sender meant; only due times
 * and tries depend on when it was sent, and travel with it as its mark.
 *
 * Threads: any. Failure modes: returned.
 */
#include <inttypes.h>
#include <string.h>

#include "tools/mqbench/verify.h"

const char verify_mark_name[] = "MQBENCH_MARK";

/* ---- delayed ---- */

/* RocketMQ's first levels, which every broker of these checks has. */
static const int64_t level_ms[] = {0, 1000, 5000, 10000, 30000, 60000};
enum { LEVELS = sizeof level_ms / sizeof level_ms[0] };

/* One in four by level, one by a time from now, the others by a time of day. The broker counts from
 * when it has the message, so what is counted from here is the earliest that may be. */
static enum tern_code dress_delayed(const struct verify *verify, uint64_t draw,
                                    struct tern_message *message)
{
    int64_t now_ms = bench_wall_ms();
    int64_t ahead_ms = 1 + (int64_t)(draw / 64 % (uint64_t)verify->options->delayed_ms);
    int levels = 0;
    char mark[32];
    enum tern_code code;
    while (levels + 1 < LEVELS && level_ms[levels + 1] <= verify->options->delayed_ms)
        levels++;
    if (draw % 4 == 0 && levels > 0) {
        int level = 1 + (int)(draw / 4 % (uint64_t)levels);
        ahead_ms = level_ms[level];
        code = tern_message_set_delay_level(message, level);
    } else if (draw % 4 == 1) {
        code = tern_message_set_delay_ms(message, ahead_ms);
    } else {
        code = tern_message_set_deliver_at_ms(message, now_ms + ahead_ms);
    }
    snprintf(mark, sizeof mark, "%" PRId64, now_ms + ahead_ms);
    return code == TERN_OK ? tern_message_set_property(message, verify_mark_name, mark) : code;
}

/* ---- transactional ---- */

enum verify_outcome verify_outcome(const struct verify *verify, uint32_t stream, uint64_t number)
{
    static const enum verify_outcome outcomes[] = {
        OUTCOME_COMMIT,   OUTCOME_COMMIT,   OUTCOME_COMMIT,      OUTCOME_COMMIT,
        OUTCOME_ROLLBACK, OUTCOME_ROLLBACK, OUTCOME_LATE_COMMIT, OUTCOME_LATE_ROLLBACK};
    return outcomes[verify_draw(verify, stream, number) % 8];
}

/* ---- filtered ---- */

/* "Aa" and "BB" have the same hash, so brokers alone cannot tell them apart. */
static const char *const tags[] = {"Aa", "BB", "TagC", "TagD", NULL};
static const char tag_expression[] = "Aa || TagC";
static const char *const regions[] = {"eu", "us", "asia", NULL};
static const char condition[] = "region IN ('eu', 'us') AND amount BETWEEN 20 AND 70.5 "
                                "OR region IS NULL AND urgent = TRUE";

/* A message's properties. */
struct dress {
    const char *tag, *region; /* NULL: it has none */
    bool has_amount, urgent;
    int halves; /* of the amount */
};

static struct dress dress_of(const struct verify *verify, uint32_t stream, uint64_t number)
{
    uint64_t draw = verify_draw(verify, stream, number);
    return (struct dress){.tag = tags[draw % 5],
                          .region = regions[draw / 8 % 4],
                          .has_amount = draw / 64 % 8 != 0,
                          .urgent = draw / 512 % 2 == 0,
                          .halves = (int)(draw / 1024 % 200)};
}

static enum tern_code dress_filtered(const struct verify *verify, uint32_t stream, uint64_t number,
                                     struct tern_message *message)
{
    struct dress dress = dress_of(verify, stream, number);
    enum tern_code code = TERN_OK;
    char amount[16];
    snprintf(amount, sizeof amount, "%d%s", dress.halves / 2, dress.halves % 2 ? ".5" : "");
    if (dress.tag)
        code = tern_message_set_tag(message, dress.tag);
    if (code == TERN_OK && dress.region)
        code = tern_message_set_property(message, "region", dress.region);
    if (code == TERN_OK && dress.has_amount)
        code = tern_message_set_property(message, "amount", amount);
    if (code == TERN_OK)
        code = tern_message_set_property(message, "urgent", dress.urgent ? "true" : "false");
    return code;
}

static bool matches_tags(const struct dress *dress)
{
    return dress->tag && (!strcmp(dress->tag, "Aa") || !strcmp(dress->tag, "TagC"));
}

static bool matches_condition(const struct dress *dress)
{
    if (!dress->region)
        return dress->urgent;
    return strcmp(dress->region, "asia") != 0 && dress->has_amount && dress->halves >= 2 * 20 &&
           dress->halves <= 2 * 70 + 1;
}

/* ---- failing ---- */

bool verify_fails(const struct verify *verify, uint32_t stream, uint64_t number, int32_t times)
{
    uint64_t draw = verify_draw(verify, stream, number);
    for (int32_t i = 0; i < times; i++)
        draw /= 100;
    return (int64_t)(draw % 100) < verify->options->fail_percent;
}

/* ---- all ---- */

enum tern_code verify_dress(const struct verify *verify, uint32_t stream, uint64_t number,
                            struct tern_message *message)
{
    switch (verify->options->check) {
    case CHECK_DELAYED:
        return dress_delayed(verify, verify_draw(verify, stream, number), message);
    case CHECK_FILTERED:
        return dress_filtered(verify, stream, number, message);
    case CHECK_TRANSACTIONAL: /* marks its tries itself */
    case CHECK_PLAIN:
    case CHECK_ORDERLY:
    case CHECK_FAILING:
        break;
    }
    return TERN_OK;
}

bool verify_wanted(const struct verify *verify, uint32_t stream, uint64_t number)
{
    if (verify->options->check == CHECK_TRANSACTIONAL) {
        enum verify_outcome outcome = verify_outcome(verify, stream, number);
        return outcome == OUTCOME_COMMIT || outcome == OUTCOME_LATE_COMMIT;
    }
    if (verify->view == VIEW_ALL)
        return true;
    struct dress dress = dress_of(verify, stream, number);
    return verify->view == VIEW_TAGS ? matches_tags(&dress) : matches_condition(&dress);
}

enum tern_code verify_subscribe(const struct verify *verify, struct tern_push_consumer *consumer,
                                struct tern_error *err)
{
    const char *topic = verify->options->topic;
    if (verify->view == VIEW_CONDITION)
        return tern_push_consumer_subscribe_sql(consumer, topic, condition, err);
    return tern_push_consumer_subscribe(consumer, topic,
                                        verify->view == VIEW_TAGS ? tag_expression : "*", err);
}

void verify_group_name(const struct verify *verify, char *out, size_t size)
{
    static const char *const suffixes[] = {
        [VIEW_ALL] = "", [VIEW_TAGS] = "_TAGS", [VIEW_CONDITION] = "_CONDITION"};
    const char *suffix = suffixes[verify->view];
    char prefix[64];
    if (verify->options->group) {
        snprintf(out, size, "%s%s", verify->options->group, suffix);
    } else {
        snprintf(prefix, sizeof prefix, "MQBENCH_VERIFY%s", suffix);
        bench_unique_name(out, size, prefix);
    }
}
