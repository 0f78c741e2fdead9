/*
 * Sharing within rooms: see allocate.h.
 *
 *   queues   0 1 2 │ 3 4 5 │ 6 7           members   a b │ c │
 *   room       X   │   Y   │  Z            room       X  │ Y │
 *
 *   a and b share 0 1 2, c takes 3 4 5, and as nobody is in Z all three share 6 7.
 *
 * The inner strategy sees one room's lists at a time, in the order of the whole ones.
 *
 * Pure but for the resolver. Failure modes: no memory; a resolver that does not know a queue's or a
 * member's room: nobody shares anything then, since all must come to the same result.
 */
#include "client/allocate.h"

#include <stdlib.h>
#include <string.h>

struct room {
    char name[TERN_ROOM_BYTES];
};

/* All lists of one sharing. */
struct nearby {
    const struct allocate_nearby *settings;
    const struct allocate_input *input;
    struct room *queue_rooms, *member_rooms; /* one for each */
    /* one room's part; indexes lead back to the whole */
    struct tern_queue *queues;
    size_t *queue_indexes, *part;
    const char **members;
};

static enum tern_code nearby_init(struct nearby *near, const struct allocate_nearby *settings,
                                  const struct allocate_input *input, struct tern_error *err)
{
    *near = (struct nearby){
        .settings = settings,
        .input = input,
        .queue_rooms = calloc(input->queue_count, sizeof *near->queue_rooms),
        .member_rooms = calloc(input->member_count, sizeof *near->member_rooms),
        .queues = malloc(input->queue_count * sizeof *near->queues),
        .queue_indexes = malloc(input->queue_count * sizeof *near->queue_indexes),
        .part = malloc(input->queue_count * sizeof *near->part),
        .members = malloc(input->member_count * sizeof(const char *)),
    };
    if (!near->queue_rooms || !near->member_rooms || !near->queues || !near->queue_indexes ||
        !near->part || !near->members)
        return error_set(err, TERN_NO_MEMORY, "rooms of %zu queues", input->queue_count);
    return TERN_OK;
}

static void nearby_fini(struct nearby *near)
{
    free(near->queue_rooms);
    free(near->member_rooms);
    free(near->queues);
    free(near->queue_indexes);
    free(near->part);
    free(near->members);
}

/* Asks the resolver about everybody. An empty room is none. */
static enum tern_code resolve_all(struct nearby *near, struct tern_error *err)
{
    const struct tern_room_resolver *resolver = &near->settings->resolver;
    for (size_t i = 0; i < near->input->queue_count; i++) {
        const struct tern_queue *queue = &near->input->queues[i];
        char *room = near->queue_rooms[i].name;
        if (!resolver->broker_room(resolver->arg, queue, room) || !room[0])
            return error_set(err, TERN_INVALID, "no room is known for broker %s of topic %s",
                             queue->broker_name, queue->topic);
        room[TERN_ROOM_BYTES - 1] = '\0';
    }
    for (size_t i = 0; i < near->input->member_count; i++) {
        char *room = near->member_rooms[i].name;
        if (!resolver->client_room(resolver->arg, near->input->members[i], room) || !room[0])
            return error_set(err, TERN_INVALID, "no room is known for member %s",
                             near->input->members[i]);
        room[TERN_ROOM_BYTES - 1] = '\0';
    }
    return TERN_OK;
}

/* Adds the member's part of one room's queues, shared among the room's members or among all. */
static enum tern_code share_room(struct nearby *near, const char *room, bool among_all,
                                 size_t *mine, size_t *count, struct tern_error *err)
{
    struct allocate_input part = {
        .client_id = near->input->client_id, .queues = near->queues, .members = near->members};
    for (size_t i = 0; i < near->input->queue_count; i++) {
        if (strcmp(near->queue_rooms[i].name, room) != 0)
            continue;
        near->queue_indexes[part.queue_count] = i;
        near->queues[part.queue_count++] = near->input->queues[i];
    }
    for (size_t i = 0; i < near->input->member_count; i++)
        if (among_all || strcmp(near->member_rooms[i].name, room) == 0)
            near->members[part.member_count++] = near->input->members[i];
    if (part.queue_count == 0)
        return TERN_OK;
    size_t got;
    enum tern_code code = allocate_queues(near->settings->inner, &part, near->part, &got, err);
    for (size_t i = 0; i < got; i++)
        mine[(*count)++] = near->queue_indexes[near->part[i]];
    return code;
}

static bool room_has_members(const struct nearby *near, const char *room)
{
    for (size_t i = 0; i < near->input->member_count; i++)
        if (strcmp(near->member_rooms[i].name, room) == 0)
            return true;
    return false;
}

/* Whether the queue is the first of its room. */
static bool first_of_room(const struct nearby *near, size_t queue)
{
    for (size_t i = 0; i < queue; i++)
        if (strcmp(near->queue_rooms[i].name, near->queue_rooms[queue].name) == 0)
            return false;
    return true;
}

static int compare_indexes(const void *a, const void *b)
{
    size_t left = *(const size_t *)a;
    size_t right = *(const size_t *)b;
    return left < right ? -1 : left > right;
}

/* AllocateMachineRoomNearby. */
static enum tern_code share_nearby(const struct allocate_strategy *strategy,
                                   const struct allocate_input *input, size_t own, size_t *mine,
                                   size_t *count, struct tern_error *err)
{
    struct nearby near;
    *count = 0;
    enum tern_code code = nearby_init(&near, strategy->settings, input, err);
    if (code == TERN_OK)
        code = resolve_all(&near, err);
    if (code == TERN_OK)
        code = share_room(&near, near.member_rooms[own].name, false, mine, count, err);
    for (size_t i = 0; code == TERN_OK && i < input->queue_count; i++) {
        const char *room = near.queue_rooms[i].name;
        if (i > 0 && strcmp(room, near.queue_rooms[i - 1].name) == 0)
            continue;
        if (!room_has_members(&near, room) && first_of_room(&near, i))
            code = share_room(&near, room, true, mine, count, err);
    }
    nearby_fini(&near);
    qsort(mine, *count, sizeof mine[0], compare_indexes);
    return code;
}

const struct allocate_strategy allocate_near_room = {.name = "MACHINE_ROOM_NEARBY",
                                                     .share = share_nearby};
