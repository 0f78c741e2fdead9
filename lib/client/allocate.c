/*
 * The simple strategies of sharing queues: see allocate.h for the table. Pure: no state, no
 * threads, no failure but wrong input.
 */
#include "client/allocate.h"

#include <string.h>

enum tern_code allocate_queues(const struct allocate_strategy *strategy,
                               const struct allocate_input *input, size_t *mine, size_t *count,
                               struct tern_error *err)
{
    *count = 0;
    if (!input->client_id || !input->client_id[0])
        return error_set(err, TERN_INVALID, "client id is empty");
    if (input->queue_count == 0)
        return error_set(err, TERN_INVALID, "the list of queues is empty");
    if (input->member_count == 0)
        return error_set(err, TERN_INVALID, "the list of members is empty");
    for (size_t i = 0; i < input->member_count; i++) {
        if (strcmp(input->members[i], input->client_id) != 0)
            continue;
        enum tern_code code = strategy->share(strategy, input, i, mine, count, err);
        if (code != TERN_OK)
            *count = 0;
        ENSURE(*count <= input->queue_count);
        return code;
    }
    return error_set(err, TERN_NOT_FOUND, "client %s is not among the %zu members",
                     input->client_id, input->member_count);
}

/* RocketMQ's AllocateMessageQueueAveragely: contiguous runs, the larger ones first. */
static enum tern_code share_averagely(const struct allocate_strategy *strategy,
                                      const struct allocate_input *input, size_t own, size_t *mine,
                                      size_t *count, struct tern_error *err)
{
    (void)strategy;
    (void)err;
    size_t each = input->queue_count / input->member_count;
    size_t more = input->queue_count % input->member_count;
    size_t size = each + (own < more ? 1 : 0);
    size_t start = own * each + (own < more ? own : more);
    for (size_t i = 0; i < size; i++)
        mine[i] = start + i;
    *count = size;
    return TERN_OK;
}

const struct allocate_strategy allocate_averagely = {.name = "AVG", .share = share_averagely};

/* AllocateMessageQueueAveragelyByCircle: one to each in turn. */
static enum tern_code share_by_circle(const struct allocate_strategy *strategy,
                                      const struct allocate_input *input, size_t own, size_t *mine,
                                      size_t *count, struct tern_error *err)
{
    (void)strategy;
    (void)err;
    *count = 0;
    for (size_t i = own; i < input->queue_count; i += input->member_count)
        mine[(*count)++] = i;
    return TERN_OK;
}

const struct allocate_strategy allocate_by_circle = {.name = "AVG_BY_CIRCLE",
                                                     .share = share_by_circle};

static bool fixed_has(const struct allocate_fixed *fixed, const struct tern_queue *queue)
{
    for (size_t i = 0; i < fixed->count; i++)
        if (fixed->queues[i].queue_id == queue->queue_id &&
            strcmp(fixed->queues[i].broker_name, queue->broker_name) == 0 &&
            strcmp(fixed->queues[i].topic, queue->topic) == 0)
            return true;
    return false;
}

/* AllocateMessageQueueByConfig: the queues given, as far as the topic has them. */
static enum tern_code share_by_config(const struct allocate_strategy *strategy,
                                      const struct allocate_input *input, size_t own, size_t *mine,
                                      size_t *count, struct tern_error *err)
{
    (void)own;
    (void)err;
    *count = 0;
    for (size_t i = 0; i < input->queue_count; i++)
        if (fixed_has(strategy->settings, &input->queues[i]))
            mine[(*count)++] = i;
    return TERN_OK;
}

const struct allocate_strategy allocate_by_config = {.name = "CONFIG", .share = share_by_config};

/* Whether the list "a;b" has the room of `len` bytes. */
static bool room_listed(const char *list, const char *room, size_t len)
{
    for (const char *at = list;; at++) {
        size_t size = strcspn(at, ";");
        if (size == len && memcmp(at, room, len) == 0)
            return true;
        at += size;
        if (!*at)
            return false;
    }
}

/*
 * Broker names are "room@name": exactly two parts, as Java's split() counts, which forgets empty
 * parts at the end.
 */
static bool in_rooms(const char *list, const char *broker_name)
{
    size_t len = strlen(broker_name);
    while (len > 0 && broker_name[len - 1] == '@')
        len--;
    const char *at = memchr(broker_name, '@', len);
    if (!at || memchr(at + 1, '@', len - (size_t)(at + 1 - broker_name)))
        return false;
    return room_listed(list, broker_name, (size_t)(at - broker_name));
}

/* AllocateMessageQueueByMachineRoom: equal runs first, then what is left, one each. */
static enum tern_code share_by_room(const struct allocate_strategy *strategy,
                                    const struct allocate_input *input, size_t own, size_t *mine,
                                    size_t *count, struct tern_error *err)
{
    const struct allocate_rooms *rooms = strategy->settings;
    (void)err;
    size_t total = 0;
    for (size_t i = 0; i < input->queue_count; i++)
        total += in_rooms(rooms->list, input->queues[i].broker_name);
    size_t each = total / input->member_count;
    size_t more = total % input->member_count;
    size_t extra = each * input->member_count + own; /* mine when own < more */
    size_t nth = 0;
    *count = 0;
    for (size_t i = 0; i < input->queue_count; i++) {
        if (!in_rooms(rooms->list, input->queues[i].broker_name))
            continue;
        if ((nth >= own * each && nth < (own + 1) * each) || (own < more && nth == extra))
            mine[(*count)++] = i;
        nth++;
    }
    return TERN_OK;
}

const struct allocate_strategy allocate_by_room = {.name = "MACHINE_ROOM", .share = share_by_room};
