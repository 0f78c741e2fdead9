/*
 * Who produces: a copy of the producer groups that clients announced.
 *
 * Its place: the admin tool's producerConnection and producer. Threads: any; the copy is made under
 * the table's lock in two walks, one that counts and one that copies. Failure modes:
 * TERN_NO_MEMORY.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "broker/members_internal.h"

/* Calls fn for each announced group of the client that is wanted. */
static void each_group(const struct member_client *client, const char *wanted,
                       void (*fn)(void *arg, const struct member_client *client, const char *group),
                       void *arg)
{
    for (size_t at = 0; at < client->producers_bytes;) {
        const char *group = client->producers + at;
        at += strlen(group) + 1;
        if (!wanted || !strcmp(wanted, group))
            fn(arg, client, group);
    }
}

struct copy {
    size_t count, text_bytes;
    struct producer_info *infos; /* NULL in the first walk */
    char *text;
    int64_t now_ns;
};

static void measure(void *arg, const struct member_client *client, const char *group)
{
    struct copy *copy = arg;
    copy->count++;
    copy->text_bytes +=
        strlen(group) + strlen(client->id) + strlen(client->language) + strlen(client->version) + 4;
}

static const char *put_text(struct copy *copy, const char *text)
{
    size_t size = strlen(text) + 1;
    const char *start = memcpy(copy->text, text, size);
    copy->text += size;
    return start;
}

static void take(void *arg, const struct member_client *client, const char *group)
{
    struct copy *copy = arg;
    copy->infos[copy->count++] = (struct producer_info){
        .group = put_text(copy, group),
        .client_id = put_text(copy, client->id),
        .language = put_text(copy, client->language),
        .version = put_text(copy, client->version),
        .remote = client->remote,
        .heartbeat_age_ms = (copy->now_ns - client->heartbeat_ns) / 1000000,
    };
}

static int compare(const void *a, const void *b)
{
    const struct producer_info *x = a, *y = b;
    int order = strcmp(x->group, y->group);
    return order ? order : strcmp(x->client_id, y->client_id);
}

enum tern_code members_producers(struct members *members, const char *group,
                                 struct producer_info **out, size_t *count)
{
    struct copy copy = {.now_ns = clock_mono_ns(members->env.clock)};
    *out = NULL;
    *count = 0;
    lock_acquire(&members->lock);
    for (struct member_client *c = members->clients; c; c = c->hh.next)
        each_group(c, group, measure, &copy);
    size_t wanted = copy.count;
    if (wanted > 0)
        copy.infos = malloc(wanted * sizeof *copy.infos + copy.text_bytes);
    if (copy.infos) {
        copy.text = (char *)(copy.infos + wanted);
        copy.count = 0;
        for (struct member_client *c = members->clients; c; c = c->hh.next)
            each_group(c, group, take, &copy);
    }
    lock_release(&members->lock);
    if (!copy.infos)
        return wanted > 0 ? TERN_NO_MEMORY : TERN_OK;
    qsort(copy.infos, copy.count, sizeof *copy.infos, compare);
    *out = copy.infos;
    *count = copy.count;
    return TERN_OK;
}
