/*
 * Who counts, and what is confirmed.
 *
 * Its place: the source tells of what it hears, its own end and lost links; asks what the disk has
 * to be told (insync_next), does it, and tells back (insync_saved); and answers sends by what
 * insync_confirmed() says.
 *
 * Invariants:
 *   - Two sets matter: `set`, and `next` while the disk may hold it. A master that starts waits for
 *     all members of the set it finds, so a byte is confirmed only when the master and k members
 *     of each of them have it: the acknowledgement of a joining slave does not help yet, a leaving
 *     one cannot be left out yet, and one that comes back while it is being written off does not
 *     help either.
 *   - confirmed only rises. What a member claims may fall (it lost its tail and attached anew).
 *   - An id is in a set at most once; a free slot's id is −1; members of both sets have a slot.
 *   - After a failed save the very same `next` is tried again, so that never more than two sets are
 *     possible.
 *
 *   - A member that claims less than before has lost something: it must draw level before it counts
 *     as keeping up again.
 *
 * Keeping up: goal is the master's end at goal_ns. When the counted end reaches it, the peer was
 * caught up as of goal_ns, and the next goal is set. A peer that is never more than max_behind late
 * stays, however busy the master is and however rarely it draws level.
 *
 * Threads: one at a time, the owner's lock. Failure modes: more than INSYNC_MAX peers: the ones
 * without link that count for nothing make room, else TERN_LIMIT.
 */
#include "broker/ha/insync.h"

#include <string.h>

#define JOIN_RECENT_NS INT64_C(1000000000)

/* ---- peers ---- */

bool insync_same(const struct insync_member *a, const struct insync_member *b)
{
    return a->id == b->id && memcmp(a->uuid, b->uuid, sizeof a->uuid) == 0;
}

static bool in_set(const struct insync_set *set, const struct insync_member *member)
{
    for (size_t i = 0; i < set->count; i++)
        if (insync_same(&set->members[i], member))
            return true;
    return false;
}

/* Whether the disk may hold `next`. */
static bool may_be_next(const struct insync *insync)
{
    return insync->saving || insync->unsettled;
}

static const struct insync_peer *find(const struct insync *insync, int64_t id,
                                      const uint8_t uuid[HA_UUID_BYTES])
{
    for (size_t i = 0; i < INSYNC_MAX; i++) {
        const struct insync_peer *peer = &insync->peers[i];
        if (peer->member.id == id && memcmp(peer->member.uuid, uuid, HA_UUID_BYTES) == 0)
            return peer;
    }
    return NULL;
}

static struct insync_peer *find_mine(struct insync *insync, int64_t id,
                                     const uint8_t uuid[HA_UUID_BYTES])
{
    return (struct insync_peer *)(uintptr_t)find(insync, id, uuid);
}

/* Whether the slot can be used for another peer. */
static bool is_spare(const struct insync *insync, const struct insync_peer *peer)
{
    if (peer->member.id < 0)
        return true;
    return !peer->link_up && !peer->durable &&
           !(may_be_next(insync) && in_set(&insync->next, &peer->member));
}

/* NULL: all are taken. */
static struct insync_peer *make_peer(struct insync *insync, const struct insync_member *member,
                                     int64_t now_ns)
{
    for (size_t i = 0; i < INSYNC_MAX; i++) {
        struct insync_peer *peer = &insync->peers[i];
        if (!is_spare(insync, peer))
            continue;
        *peer = (struct insync_peer){.member = *member,
                                     .counted_end = -1,
                                     .heard_ns = now_ns,
                                     .caught_up_ns = INT64_MIN,
                                     .goal = -1};
        return peer;
    }
    return NULL;
}

void insync_init(struct insync *insync, const struct insync_options *options,
                 const struct insync_set *set, int64_t confirmed, int64_t now_ns)
{
    memset(insync, 0, sizeof *insync);
    insync->options = *options;
    insync->confirmed = confirmed;
    for (size_t i = 0; i < INSYNC_MAX; i++)
        insync->peers[i].member.id = -1;
    insync->set = *set;
    for (size_t i = 0; i < set->count; i++) {
        struct insync_peer *peer = make_peer(insync, &set->members[i], now_ns);
        peer->durable = true;
        peer->caught_up_ns = now_ns; /* it has max_behind to catch up */
    }
}

const struct insync_peer *insync_find(const struct insync *insync, int64_t id)
{
    const struct insync_peer *found = NULL;
    for (size_t i = 0; i < INSYNC_MAX && id >= 0; i++) {
        const struct insync_peer *peer = &insync->peers[i];
        if (peer->member.id == id && (peer->link_up || (peer->durable && !found)))
            found = peer;
    }
    return found;
}

/* ---- events ---- */

static bool is_level(const struct insync *insync, const struct insync_peer *peer)
{
    return peer->counted_end >= insync->own_end;
}

static void note_level(const struct insync *insync, struct insync_peer *peer, int64_t now_ns)
{
    if (is_level(insync, peer)) {
        peer->caught_up_ns = now_ns;
        peer->goal = -1;
        return;
    }
    if (peer->goal >= 0 && peer->counted_end < peer->goal)
        return;
    if (peer->goal >= 0 && peer->goal_ns > peer->caught_up_ns)
        peer->caught_up_ns = peer->goal_ns;
    peer->goal = insync->own_end;
    peer->goal_ns = now_ns;
}

enum tern_code insync_heard(struct insync *insync, const struct insync_member *member,
                            int64_t counted_end, int64_t now_ns)
{
    struct insync_peer *peer = find_mine(insync, member->id, member->uuid);
    if (!peer)
        peer = make_peer(insync, member, now_ns);
    if (!peer)
        return TERN_LIMIT;
    if (strcmp(peer->member.ha_address, member->ha_address) != 0)
        peer->member = *member;
    if (counted_end < peer->counted_end) { /* it attached anew without its tail */
        peer->caught_up_ns = INT64_MIN;
        peer->goal = -1;
    }
    peer->link_up = true;
    peer->heard_ns = now_ns;
    peer->counted_end = counted_end;
    note_level(insync, peer, now_ns);
    return TERN_OK;
}

void insync_link_down(struct insync *insync, int64_t id, const uint8_t uuid[HA_UUID_BYTES])
{
    struct insync_peer *peer = find_mine(insync, id, uuid);
    if (!peer)
        return;
    peer->link_up = false;
    if (is_spare(insync, peer))
        peer->member.id = -1;
}

void insync_progress(struct insync *insync, int64_t id, const uint8_t uuid[HA_UUID_BYTES],
                     uint64_t seen)
{
    struct insync_peer *peer = find_mine(insync, id, uuid);
    if (peer)
        peer->progress_seen = seen;
}

void insync_own_end(struct insync *insync, int64_t counted_end, int64_t now_ns)
{
    if (counted_end <= insync->own_end)
        return;
    for (size_t i = 0; i < INSYNC_MAX; i++) {
        struct insync_peer *peer = &insync->peers[i];
        if (peer->member.id < 0 || peer->counted_end < 0 || !is_level(insync, peer))
            continue;
        peer->caught_up_ns = now_ns; /* until this moment it had everything */
        peer->goal = counted_end;
        peer->goal_ns = now_ns;
    }
    insync->own_end = counted_end;
}

/* ---- coming and going ---- */

/* The last moment at which the peer is not yet too late; since: INT64_MIN is long ago. */
static int64_t until(const struct insync *insync, int64_t since_ns)
{
    return since_ns == INT64_MIN ? INT64_MIN : since_ns + insync->options.max_behind_ns;
}

/* NULL: it stays; *wake_ns falls to when that is to be asked again. */
static const char *why_leave(const struct insync *insync, const struct insync_peer *peer,
                             int64_t now_ns, int64_t *wake_ns)
{
    int64_t heard_until = until(insync, peer->heard_ns);
    if (!peer->link_up && peer->counted_end >= 0)
        return "its link is down";
    if (now_ns > heard_until)
        return peer->counted_end < 0 ? "not heard since the master opened" : "not heard";
    if (heard_until + 1 < *wake_ns)
        *wake_ns = heard_until + 1;
    if (peer->counted_end < 0 || is_level(insync, peer))
        return NULL;
    int64_t level_until = until(insync, peer->caught_up_ns);
    if (now_ns > level_until)
        return peer->caught_up_ns == INT64_MIN ? "it lost bytes that it had"
                                               : "behind for too long";
    if (level_until + 1 < *wake_ns)
        *wake_ns = level_until + 1;
    return NULL;
}

/*
 * It keeps up and has reached the confirmed end, or did so a moment ago: on a master that is alone
 * and busy the confirmed end moves on with every append, and a slave is always one answer behind.
 */
static bool may_join(const struct insync *insync, const struct insync_peer *peer, int64_t now_ns)
{
    int64_t caught_up_ns = is_level(insync, peer) ? now_ns : peer->caught_up_ns;
    bool recent = caught_up_ns != INT64_MIN && now_ns - caught_up_ns <= JOIN_RECENT_NS;
    return peer->link_up && now_ns <= until(insync, peer->heard_ns) &&
           now_ns <= until(insync, caught_up_ns) &&
           (recent || peer->counted_end >= insync->confirmed);
}

static void set_remove_id(struct insync_set *set, int64_t id)
{
    for (size_t i = 0; i < set->count; i++) {
        if (set->members[i].id == id) {
            set->members[i] = set->members[--set->count];
            return;
        }
    }
}

/* Another peer with its id was heard later and may join as well. */
static bool is_outdone(const struct insync *insync, const struct insync_peer *peer, int64_t now_ns)
{
    for (size_t i = 0; i < INSYNC_MAX; i++) {
        const struct insync_peer *other = &insync->peers[i];
        if (other != peer && other->member.id == peer->member.id && !other->durable &&
            may_join(insync, other, now_ns) &&
            (other->heard_ns > peer->heard_ns ||
             (other->heard_ns == peer->heard_ns && other > peer)))
            return true;
    }
    return false;
}

/* The set as it should be; true when the disk has to be told. why, when given, has a place for each
 * peer. */
static bool wanted(const struct insync *insync, int64_t now_ns, struct insync_set *next,
                   const char *why[INSYNC_MAX], int64_t *wake_ns)
{
    bool changes = false;
    *next = (struct insync_set){0};
    for (size_t i = 0; i < INSYNC_MAX; i++) {
        const struct insync_peer *peer = &insync->peers[i];
        why[i] = NULL;
        if (peer->member.id < 0 || !peer->durable)
            continue;
        why[i] = why_leave(insync, peer, now_ns, wake_ns);
        if (why[i])
            changes = true;
        else
            next->members[next->count++] = peer->member;
    }
    for (size_t i = 0; i < INSYNC_MAX; i++) {
        const struct insync_peer *peer = &insync->peers[i];
        if (peer->member.id < 0 || peer->durable || !may_join(insync, peer, now_ns) ||
            is_outdone(insync, peer, now_ns))
            continue;
        set_remove_id(next, peer->member.id);
        next->members[next->count++] = peer->member;
        changes = true;
    }
    for (size_t i = 0; !changes && i < insync->set.count; i++) {
        const struct insync_member *old = &insync->set.members[i];
        const struct insync_peer *peer = find(insync, old->id, old->uuid);
        changes = strcmp(peer->member.ha_address, old->ha_address) != 0;
    }
    return changes;
}

bool insync_due(const struct insync *insync, int64_t now_ns)
{
    struct insync_set next;
    const char *why[INSYNC_MAX];
    int64_t wake_ns = INT64_MAX;
    if (insync->saving)
        return false;
    return insync->unsettled || wanted(insync, now_ns, &next, why, &wake_ns);
}

enum insync_step insync_next(struct insync *insync, int64_t now_ns, int64_t *wake_ns)
{
    struct insync_set next;
    const char *why[INSYNC_MAX];
    *wake_ns = INT64_MAX;
    if (insync->saving)
        return INSYNC_NONE;
    if (!insync->unsettled) {
        if (!wanted(insync, now_ns, &next, why, wake_ns))
            return INSYNC_NONE;
        insync->next = next;
        insync->leaves = false;
        for (size_t i = 0; i < INSYNC_MAX; i++) {
            struct insync_peer *peer = &insync->peers[i];
            bool stays = peer->member.id < 0 || !peer->durable || in_set(&next, &peer->member);
            peer->why = stays ? NULL : why[i] ? why[i] : "another store has its id";
            insync->leaves |= !stays;
        }
    }
    insync->saving = true;
    return insync->leaves ? INSYNC_LEAVE : INSYNC_JOIN;
}

void insync_saved(struct insync *insync, bool ok)
{
    insync->saving = false;
    insync->unsettled = !ok;
    if (!ok)
        return;
    insync->set = insync->next;
    for (size_t i = 0; i < INSYNC_MAX; i++) {
        struct insync_peer *peer = &insync->peers[i];
        if (peer->member.id < 0)
            continue;
        peer->durable = in_set(&insync->set, &peer->member);
        if (is_spare(insync, peer))
            peer->member.id = -1;
    }
}

/* ---- confirmed ---- */

/* What the master and k members of this set have; −1: nothing that counts. */
static int64_t had_by(const struct insync *insync, const struct insync_set *set)
{
    int64_t ends[INSYNC_MAX]; /* highest first */
    size_t count = 0;
    if (set->count < insync->options.min_replicas)
        return -1;
    for (size_t i = 0; i < set->count; i++) {
        const struct insync_peer *peer = find(insync, set->members[i].id, set->members[i].uuid);
        size_t at = count++;
        for (; at > 0 && ends[at - 1] < peer->counted_end; at--)
            ends[at] = ends[at - 1];
        ends[at] = peer->counted_end;
    }
    size_t k = insync->options.replicas < count ? insync->options.replicas : count;
    int64_t end = insync->own_end;
    if (k > 0 && ends[k - 1] < end)
        end = ends[k - 1];
    return end;
}

int64_t insync_confirmed(struct insync *insync)
{
    int64_t end = had_by(insync, &insync->set);
    if (may_be_next(insync)) {
        int64_t next = had_by(insync, &insync->next);
        end = next < end ? next : end;
    }
    if (insync->confirmed < end)
        insync->confirmed = end;
    return insync->confirmed;
}

uint64_t insync_progress_seen(const struct insync *insync)
{
    uint64_t seen = UINT64_MAX;
    for (size_t i = 0; i < INSYNC_MAX; i++) {
        const struct insync_peer *peer = &insync->peers[i];
        bool counts =
            peer->member.id >= 0 &&
            (peer->durable || (may_be_next(insync) && in_set(&insync->next, &peer->member)));
        if (counts && peer->progress_seen < seen)
            seen = peer->progress_seen;
    }
    return seen;
}

uint32_t insync_size(const struct insync *insync)
{
    return (uint32_t)insync->set.count;
}

bool insync_enough(const struct insync *insync)
{
    return insync->set.count >= insync->options.min_replicas;
}
