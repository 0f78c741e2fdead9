/*
 * mqstore diff: two logs record by record, from the higher beginning to the lower end.
 *
 * The two are walked side by side by physical offset. A record that only one of them has at an
 * offset is a difference, and the other is walked on; so the walks meet again behind it. Where one
 * of them has already ended, nothing is compared any more: that is no difference. Nor is a last
 * record that lacks its end: a slave that was killed has what came, and zeros behind it, which the
 * lengths and the body's CRC do not always tell from the whole record. Threads: one.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/mqstore/log_reader.h"
#include "tools/mqstore/mqstore.h"

enum { SHOWN_MAX = 10 };

struct side {
    struct store_dir dir;
    struct log_reader reader;
    struct log_item item; /* the record it stands at, or LOG_END */
    bool open;
    bool reading;
};

struct diff {
    const struct mqstore_options *options;
    struct side sides[2];
    struct progress progress;
    int64_t from, end; /* compared */
    uint64_t compared, different, only[2];
    json_t *first; /* differences to show */
};

static bool is_record(const struct log_item *item)
{
    return item->kind == LOG_RECORD || item->kind == LOG_BAD_CRC || item->kind == LOG_BAD_POSITION;
}

/* To the next record. */
static enum tern_code step(struct side *side, struct tern_error *err)
{
    do {
        enum tern_code code = log_reader_next(&side->reader, &side->item, err);
        if (code)
            return code;
    } while (!is_record(&side->item) && side->item.kind != LOG_END);
    return TERN_OK;
}

static void show(struct diff *diff, int64_t phys_off, const char *what)
{
    if (json_array_size(diff->first) < SHOWN_MAX)
        json_array_append_new(
            diff->first, json_pack("{s:I,s:s}", "physOffset", (json_int_t)phys_off, "what", what));
}

/* The first thing in which two records at one offset differ; NULL: they are the same bytes. */
static const char *difference(const struct log_item *a, const struct log_item *b)
{
    const struct record *x = &a->record;
    const struct record *y = &b->record;
    if (a->size_bytes == b->size_bytes && memcmp(a->bytes, b->bytes, (size_t)a->size_bytes) == 0)
        return NULL;
    if (x->topic_len != y->topic_len || memcmp(x->topic, y->topic, x->topic_len) != 0)
        return "topic";
    if (x->queue_id != y->queue_id)
        return "queue";
    if (x->queue_off != y->queue_off)
        return "queue offset";
    if (x->store_ms != y->store_ms)
        return "store time";
    if (x->body_len != y->body_len || (x->body_len && memcmp(x->body, y->body, x->body_len) != 0))
        return "body";
    if (x->props_len != y->props_len ||
        (x->props_len && memcmp(x->props, y->props, x->props_len) != 0))
        return "properties";
    return "other fields";
}

/* Which of two records at one offset is the other's beginning and zeros; -1: neither. */
static int incomplete_side(const struct log_item *a, const struct log_item *b)
{
    const struct log_item *items[2] = {a, b};
    int64_t at = 0;
    if (a->size_bytes != b->size_bytes)
        return -1;
    while (at < a->size_bytes && a->bytes[at] == b->bytes[at])
        at++;
    for (int side = 0; side < 2; side++) {
        int64_t i = at;
        while (i < items[side]->size_bytes && items[side]->bytes[i] == 0)
            i++;
        if (i == items[side]->size_bytes)
            return side;
    }
    return -1;
}

/* Two records at one offset. *incomplete: the side whose record only counts when another follows
 * it. */
static void compare(struct diff *diff, int *incomplete)
{
    const struct log_item *a = &diff->sides[0].item;
    const struct log_item *b = &diff->sides[1].item;
    const char *what = difference(a, b);
    diff->compared++;
    if (!what)
        return;
    *incomplete = incomplete_side(a, b);
    diff->different++;
    show(diff, a->phys_off, what);
}

/* The last record that was compared lacks its end on the side that has ended with it. */
static void forget_last(struct diff *diff, int64_t phys_off)
{
    size_t shown = json_array_size(diff->first);
    const json_t *last = json_array_get(diff->first, shown - 1);
    diff->compared--;
    diff->different--;
    if (shown > 0 && json_integer_value(json_object_get(last, "physOffset")) == phys_off)
        json_array_remove(diff->first, shown - 1);
    diff->sides[0].item.phys_off = diff->sides[1].item.phys_off = phys_off;
}

static enum tern_code walk(struct diff *diff, struct tern_error *err)
{
    struct side *a = &diff->sides[0];
    struct side *b = &diff->sides[1];
    enum tern_code code = step(a, err);
    if (!code)
        code = step(b, err);
    while (!code && a->item.kind != LOG_END && b->item.kind != LOG_END) {
        int64_t x = a->item.phys_off;
        int64_t y = b->item.phys_off;
        if ((diff->compared & 1023) == 0)
            progress_show(&diff->progress, "compared", (x < y ? x : y) - diff->from,
                          diff->end - diff->from);
        int incomplete = -1;
        if (x == y) {
            compare(diff, &incomplete);
        } else {
            diff->only[x < y ? 0 : 1]++;
            show(diff, x < y ? x : y, x < y ? "only in the first" : "only in the second");
        }
        if (x <= y)
            code = step(a, err);
        if (!code && y <= x)
            code = step(b, err);
        if (!code && incomplete >= 0 && diff->sides[incomplete].item.kind == LOG_END) {
            forget_last(diff, x);
            break;
        }
    }
    int64_t end_a = a->item.phys_off;
    int64_t end_b = b->item.phys_off;
    diff->end = end_a < end_b ? end_a : end_b;
    return code;
}

/* ---- printing ---- */

static void print_text(const struct diff *diff, bool same, FILE *out)
{
    size_t i;
    const json_t *row;
    if (diff->compared == 0 && same)
        fputs("nothing is common\n", out);
    fprintf(out,
            "%" PRIu64 " records compared from %" PRId64 " to %" PRId64 ": %" PRIu64
            " differ, %" PRIu64 " only in the first, %" PRIu64 " only in the second\n",
            diff->compared, diff->from, diff->end, diff->different, diff->only[0], diff->only[1]);
    json_array_foreach(diff->first, i, row)
        fprintf(out, "at %" JSON_INTEGER_FORMAT ": %s\n",
                json_integer_value(json_object_get(row, "physOffset")),
                json_string_value(json_object_get(row, "what")));
}

static int report(struct diff *diff)
{
    bool same = diff->different + diff->only[0] + diff->only[1] == 0;
    bool ok = same && diff->compared > 0;
    if (diff->options->json)
        mqstore_print_json(json_pack("{s:b,s:I,s:I,s:I,s:I,s:I,s:I,s:O}", "same", (int)ok, "from",
                                     (json_int_t)diff->from, "to", (json_int_t)diff->end,
                                     "compared", (json_int_t)diff->compared, "different",
                                     (json_int_t)diff->different, "onlyFirst",
                                     (json_int_t)diff->only[0], "onlySecond",
                                     (json_int_t)diff->only[1], "first", diff->first),
                           diff->options);
    else
        print_text(diff, same, diff->options->out);
    return ok ? MQSTORE_OK : MQSTORE_FAILED;
}

/* The last segment's end, for progress. */
static int64_t space_end(const struct store_dir *dir)
{
    if (!dir->segment_count)
        return 0;
    return dir->segments[dir->segment_count - 1].base + dir->segment_bytes;
}

static int run(struct diff *diff)
{
    struct tern_error err = {TERN_OK, ""};
    for (int i = 0; i < 2; i++) {
        int64_t min = log_reader_min(&diff->sides[i].dir);
        int64_t end = space_end(&diff->sides[i].dir);
        diff->from = min > diff->from ? min : diff->from;
        diff->end = i == 0 || end < diff->end ? end : diff->end;
    }
    if (diff->end <= diff->from) {
        diff->end = diff->from;
        return report(diff);
    }
    for (int i = 0; i < 2; i++) {
        log_reader_init(&diff->sides[i].reader, &diff->sides[i].dir, diff->from);
        diff->sides[i].reading = true;
    }
    enum tern_code code = walk(diff, &err);
    progress_end(&diff->progress);
    return code ? mqstore_fail(diff->options, code, &err) : report(diff);
}

int mqstore_diff(const struct env *env, const char *root_a, const char *root_b,
                 const struct mqstore_options *options)
{
    struct diff diff = {.options = options};
    const char *const roots[2] = {root_a, root_b};
    int status = MQSTORE_OK;
    progress_init(&diff.progress, env, options);
    for (int i = 0; i < 2 && !status; i++) {
        status = mqstore_open(&diff.sides[i].dir, env, roots[i], false, options);
        diff.sides[i].open = status == MQSTORE_OK;
    }
    if (!status) {
        diff.first = json_array();
        status = run(&diff);
        json_decref(diff.first);
    }
    for (int i = 0; i < 2; i++) {
        if (diff.sides[i].reading)
            log_reader_fini(&diff.sides[i].reader);
        if (diff.sides[i].open)
            store_dir_close(&diff.sides[i].dir);
    }
    return status;
}
