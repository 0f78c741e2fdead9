/* broker/ha/insync: what a crash at any moment would find, whatever happened before. */
#include "tests/unit/ha/insync_world.h"

#include "base/clock.h"

/* ---- any order ---- */

enum { IDS = 4, STORES = 2, EVENTS = 120 };

/* What is obvious about a peer. */
struct fact {
    struct insync_member who;
    int64_t claim; /* −1: none since the opening */
    bool link_up, was_heard;
    int64_t heard_ns;
};

struct model {
    struct rng_seeded random;
    struct fact facts[IDS * STORES];
    struct insync_set disk[2]; /* the sets that a crash may find */
    size_t disk_count;
    uint32_t replicas, min_replicas;
    int64_t own, confirmed;
    struct {
        int64_t end, from_ns;
    } history[EVENTS]; /* of own, oldest first */
    size_t history_count;
};

static struct fact *fact_of(struct model *m, const struct insync_member *who)
{
    for (size_t i = 0; i < IDS * STORES; i++)
        if (insync_same(&m->facts[i].who, who))
            return &m->facts[i];
    fail_msg("nobody");
    return NULL;
}

/* How many members of the set have everything before `end`. */
static size_t having(struct model *m, const struct insync_set *set, int64_t end)
{
    size_t count = 0;
    for (size_t i = 0; i < set->count; i++)
        count += fact_of(m, &set->members[i])->claim >= end;
    return count;
}

/* Whether everything before `end` would be found by a master that starts with this set. */
static bool is_safe(struct model *m, const struct insync_set *set, int64_t end)
{
    size_t k = m->replicas < set->count ? m->replicas : set->count;
    return end <= m->own && set->count >= m->min_replicas && having(m, set, end) >= k;
}

static bool is_safe_in_all(struct model *m, int64_t end)
{
    for (size_t i = 0; i < m->disk_count; i++)
        if (!is_safe(m, &m->disk[i], end))
            return false;
    return true;
}

/* confirmed is the highest end that is safe, and never falls. */
static void check_confirmed(struct model *m)
{
    int64_t best = m->confirmed;
    if (is_safe_in_all(m, m->own) && m->own > best)
        best = m->own;
    for (size_t i = 0; i < IDS * STORES; i++)
        if (m->facts[i].claim > best && is_safe_in_all(m, m->facts[i].claim))
            best = m->facts[i].claim;
    assert_true(insync_confirmed(&in) == best);
    m->confirmed = best;
}

/* The last moment whose end the peer has: when own went beyond its claim. */
static int64_t level_ns(const struct model *m, const struct fact *fact)
{
    for (size_t i = 0; i < m->history_count; i++)
        if (m->history[i].end > fact->claim)
            return m->history[i].from_ns;
    return now_ns;
}

static void check_change(struct model *m, enum insync_step step)
{
    bool leaves = false;
    for (size_t i = 0; i < in.next.count; i++) {
        struct fact *fact = fact_of(m, &in.next.members[i]);
        for (size_t j = 0; j < i; j++)
            assert_true(in.next.members[j].id != in.next.members[i].id);
        bool stays = false;
        for (size_t j = 0; j < in.set.count; j++)
            stays |= insync_same(&in.set.members[j], &fact->who);
        if (!stays) {
            assert_true(fact->link_up && now_ns - fact->heard_ns <= ms_to_ns(MAX_BEHIND_MS));
            assert_true(fact->claim >= m->confirmed ||
                        now_ns - level_ns(m, fact) <= ms_to_ns(JUST_NOW_MS));
        }
    }
    for (size_t i = 0; i < in.set.count; i++) {
        struct fact *fact = fact_of(m, &in.set.members[i]);
        bool stays = false, outdone = false;
        for (size_t j = 0; j < in.next.count; j++) {
            stays |= insync_same(&in.next.members[j], &fact->who);
            outdone |= in.next.members[j].id == fact->who.id;
        }
        leaves |= !stays;
        bool silent = now_ns - fact->heard_ns > ms_to_ns(MAX_BEHIND_MS);
        bool cut_off = fact->was_heard && !fact->link_up;
        bool late = fact->claim >= 0 && fact->claim < m->own;
        assert_true(stays || outdone || silent || cut_off || late);
        assert_true(!stays || (!silent && !cut_off));
    }
    assert_int_equal(step, leaves ? INSYNC_LEAVE : INSYNC_JOIN);
}

static void one_event(struct model *m)
{
    struct rng *rng = &m->random.rng;
    struct fact *fact = &m->facts[rng_below(rng, IDS * STORES)];
    int64_t wake_ns;
    switch (rng_below(rng, 10)) {
    case 0:
    case 1:
        m->own += (int64_t)rng_below(rng, 100);
        m->history[m->history_count].end = m->own;
        m->history[m->history_count++].from_ns = now_ns;
        insync_own_end(&in, m->own, now_ns);
        break;
    case 2:
        now_ns += ms_to_ns((int64_t)rng_below(rng, rng_below(rng, 2) ? 100 : MAX_BEHIND_MS / 2));
        break;
    case 3:
        insync_link_down(&in, fact->who.id, fact->who.uuid);
        fact->link_up = false;
        break;
    case 4: /* attaches anew, perhaps without a tail */
        fact->claim = (int64_t)rng_below(rng, (uint64_t)m->own + 1);
        goto tell;
    case 5:
    case 6:
    case 7:
        if (fact->claim < m->own)
            fact->claim += 1 + (int64_t)rng_below(rng, (uint64_t)(m->own - fact->claim));
    tell:
        fact->link_up = true;
        fact->was_heard = true;
        fact->heard_ns = now_ns;
        assert_ok(insync_heard(&in, &fact->who, fact->claim, now_ns));
        break;
    default:
        if (!in.saving) {
            bool due = insync_due(&in, now_ns);
            bool again = in.unsettled;
            struct insync_set before = in.next;
            enum insync_step step = insync_next(&in, now_ns, &wake_ns);
            assert_true(due == (step != INSYNC_NONE));
            assert_true(wake_ns > now_ns);
            if (again)
                assert_memory_equal(&before, &in.next, sizeof before);
            else if (step != INSYNC_NONE)
                check_change(m, step);
            m->disk[1] = in.next;
            m->disk_count = step == INSYNC_NONE ? 1 : 2;
        } else {
            bool ok = rng_below(rng, 4) > 0;
            insync_saved(&in, ok);
            if (ok) {
                m->disk[0] = m->disk[1];
                m->disk_count = 1;
            }
        }
    }
    check_confirmed(m);
    assert_memory_equal(&in.set, &m->disk[0], sizeof in.set);
}

/* In the end those that are linked and level are members, the others are not. */
static void come_to_rest(struct model *m)
{
    int64_t wake_ns;
    if (in.saving)
        insync_saved(&in, true);
    for (size_t i = 0; i < IDS * STORES; i++) {
        struct fact *fact = &m->facts[i];
        fact->link_up = i % STORES == 0 && i < 2 * STORES;
        fact->claim = fact->link_up ? m->own : fact->claim;
        if (fact->link_up)
            assert_ok(insync_heard(&in, &fact->who, fact->claim, now_ns));
        else
            insync_link_down(&in, fact->who.id, fact->who.uuid);
    }
    now_ns += ms_to_ns(MAX_BEHIND_MS) + 1;
    for (size_t i = 0; i < 2 * STORES; i += STORES)
        assert_ok(insync_heard(&in, &m->facts[i].who, m->own, now_ns));
    for (int i = 0; i < 6; i++)
        if (insync_next(&in, now_ns, &wake_ns) != INSYNC_NONE)
            insync_saved(&in, true);
    assert_false(insync_due(&in, now_ns));
    assert_int_equal(insync_size(&in), 2);
    assert_true(is_member(m->facts[0].who.id) && is_member(m->facts[STORES].who.id));
    if (m->min_replicas <= 2)
        assert_true(insync_confirmed(&in) == m->own);
}

static void confirmed_is_safe_whatever_happens_and_never_falls(void **state)
{
    (void)state;
    static const uint32_t replicas[] = {0, 1, 1, 2, 3, UINT32_MAX};
    for (uint64_t seed = 0; seed < 5000; seed++) {
        struct model m = {.disk_count = 1};
        struct insync_set set = {0};
        rng_seeded_init(&m.random, seed);
        for (size_t i = 0; i < IDS * STORES; i++)
            m.facts[i] = (struct fact){.who = member((int64_t)(i / STORES) + 1, (uint8_t)(i + 1)),
                                       .claim = -1,
                                       .heard_ns = SIM_START_NS};
        for (size_t i = 0; i < IDS; i++)
            if (rng_below(&m.random.rng, 3) == 0)
                set.members[set.count++] = m.facts[i * STORES].who;
        m.replicas = replicas[rng_below(&m.random.rng, 6)];
        m.min_replicas = rng_below(&m.random.rng, 3) ? 0 : (uint32_t)rng_below(&m.random.rng, 3);
        m.disk[0] = set;
        begin(m.replicas, m.min_replicas, &set);
        for (int i = 0; i < EVENTS; i++)
            one_event(&m);
        come_to_rest(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(confirmed_is_safe_whatever_happens_and_never_falls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
