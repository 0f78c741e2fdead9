/*
 * Consistent hashing: each member stands at HASH_NODES_PER_MEMBER places of a ring of 2^32, each
 * queue belongs to the first place at or after its own.
 *
 *   0 ──a-3──b-7──q1──a-0────b-1──q2──c-4── … ──► 2^32, and round again
 *                 └─► a         └─► c
 *
 * Where two places coincide the member that comes later has it, as in RocketMQ, whose map is
 * written over.
 *
 * Pure. Failure modes: no memory for the ring.
 */
#include "client/allocate.h"

#include <inttypes.h>
#include <md5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ring_node {
    uint32_t place;
    uint32_t member;
};

uint32_t allocate_ring_hash(const char *text)
{
    uint8_t digest[MD5_DIGEST_LENGTH];
    MD5_CTX md5;
    MD5Init(&md5);
    MD5Update(&md5, (const uint8_t *)text, strlen(text));
    MD5Final(digest, &md5);
    return (uint32_t)digest[0] << 24 | (uint32_t)digest[1] << 16 | (uint32_t)digest[2] << 8 |
           digest[3];
}

static int compare_nodes(const void *a, const void *b)
{
    const struct ring_node *left = a;
    const struct ring_node *right = b;
    if (left->place != right->place)
        return left->place < right->place ? -1 : 1;
    /* The later member first, so that a search for the first finds it. */
    return left->member > right->member ? -1 : left->member < right->member;
}

/* NULL without memory; the caller frees. */
static struct ring_node *ring_build(const struct allocate_input *input, size_t *count)
{
    struct ring_node *nodes =
        malloc(input->member_count * HASH_NODES_PER_MEMBER * sizeof(struct ring_node));
    *count = 0;
    for (size_t i = 0; nodes && i < input->member_count; i++) {
        for (int n = 0; n < HASH_NODES_PER_MEMBER; n++) {
            char key[512];
            snprintf(key, sizeof key, "%.480s-%d", input->members[i], n);
            nodes[(*count)++] = (struct ring_node){allocate_ring_hash(key), (uint32_t)i};
        }
    }
    if (nodes)
        qsort(nodes, *count, sizeof nodes[0], compare_nodes);
    return nodes;
}

/* The member of the first node at or after the place. */
static uint32_t ring_find(const struct ring_node *nodes, size_t count, uint32_t place)
{
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (nodes[middle].place < place)
            low = middle + 1;
        else
            high = middle;
    }
    return nodes[low < count ? low : 0].member;
}

/* AllocateMessageQueueConsistentHash. */
static enum tern_code share_by_hash(const struct allocate_strategy *strategy,
                                    const struct allocate_input *input, size_t own, size_t *mine,
                                    size_t *count, struct tern_error *err)
{
    (void)strategy;
    size_t node_count;
    struct ring_node *nodes = ring_build(input, &node_count);
    if (!nodes)
        return error_set(err, TERN_NO_MEMORY, "hash ring of %zu members", input->member_count);
    *count = 0;
    for (size_t i = 0; i < input->queue_count; i++) {
        char key[sizeof(struct tern_queue) + 64];
        const struct tern_queue *queue = &input->queues[i];
        snprintf(key, sizeof key, "MessageQueue [topic=%s, brokerName=%s, queueId=%" PRId32 "]",
                 queue->topic, queue->broker_name, queue->queue_id);
        if (ring_find(nodes, node_count, allocate_ring_hash(key)) == own)
            mine[(*count)++] = i;
    }
    free(nodes);
    return TERN_OK;
}

const struct allocate_strategy allocate_by_hash = {.name = "CONSISTENT_HASH",
                                                   .share = share_by_hash};
