/*
 * Strategies of sharing queues: see allocate.h. Pure: no state, no threads, no failure but wrong
 * input.
 *
 *   averagely, 8 queues, 3 members:   0 1 2 │ 3 4 5 │ 6 7
 *
 * The first (8 mod 3) members get one more.
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
        *count = strategy->share(strategy, input, i, mine);
        ENSURE(*count <= input->queue_count);
        return TERN_OK;
    }
    return error_set(err, TERN_NOT_FOUND, "client %s is not among the %zu members",
                     input->client_id, input->member_count);
}

/* RocketMQ's AllocateMessageQueueAveragely: contiguous runs, the larger ones first. */
static size_t share_averagely(const struct allocate_strategy *strategy,
                              const struct allocate_input *input, size_t own, size_t *mine)
{
    (void)strategy;
    size_t each = input->queue_count / input->member_count;
    size_t more = input->queue_count % input->member_count;
    size_t size = each + (own < more ? 1 : 0);
    size_t start = own * each + (own < more ? own : more);
    for (size_t i = 0; i < size; i++)
        mine[i] = start + i;
    return size;
}

const struct allocate_strategy allocate_averagely = {.name = "AVG", .share = share_averagely};
