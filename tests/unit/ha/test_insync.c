/* broker/ha/insync: who is in the set, what is confirmed, and what a crash at any moment would
 * find. */
#include "tests/unit/broker/broker_unit.h"

#include <errno.h>

#include "base/clock.h"
#include "broker/ha/insync.h"

#define ROOT "/store"

enum { MAX_BEHIND_MS = 15000, JUST_NOW_MS = 1000 };

static struct insync in;
static int64_t now_ns;

static struct insync_member member(int64_t id, uint8_t mark)
{
    struct insync_member made = {.id = id};
    memset(made.uuid, mark, sizeof made.uuid);
    snprintf(made.ha_address, sizeof made.ha_address, "10.0.0.%d:10912", (int)id);
    return made;
}

static void begin(uint32_t replicas, uint32_t min_replicas, const struct insync_set *set)
{
    struct insync_options options = {.replicas = replicas,
                                     .min_replicas = min_replicas,
                                     .max_behind_ns = ms_to_ns(MAX_BEHIND_MS)};
    struct insync_set none = {0};
    now_ns = SIM_START_NS;
    insync_init(&in, &options, set ? set : &none, 0, now_ns);
}

static struct insync_set set_of(size_t count, ...)
{
    struct insync_set set = {.count = count};
    va_list args;
    va_start(args, count);
    for (size_t i = 0; i < count; i++) {
        int id = va_arg(args, int);
        set.members[i] = member(id, (uint8_t)id);
    }
    va_end(args);
    return set;
}

static void pass_ms(int64_t ms)
{
    now_ns += ms_to_ns(ms);
}

static void own(int64_t end)
{
    insync_own_end(&in, end, now_ns);
    (void)insync_confirmed(&in);
}

static void heard_as(int64_t id, uint8_t mark, int64_t end)
{
    struct insync_member from = member(id, mark);
    assert_ok(insync_heard(&in, &from, end, now_ns));
    (void)insync_confirmed(&in);
}

static void heard(int64_t id, int64_t end)
{
    heard_as(id, (uint8_t)id, end);
}

static void down(int64_t id)
{
    struct insync_member who = member(id, (uint8_t)id);
    insync_link_down(&in, id, who.uuid);
}

static enum insync_step next(void)
{
    int64_t wake_ns;
    return insync_next(&in, now_ns, &wake_ns);
}

/* Does all that is to be done. */
static void settle(void)
{
    for (int i = 0; i < 10 && next() != INSYNC_NONE; i++)
        insync_saved(&in, true);
    assert_int_equal(next(), INSYNC_NONE);
}

static int64_t confirmed(void)
{
    return insync_confirmed(&in);
}

static bool is_member(int64_t id)
{
    for (size_t i = 0; i < in.set.count; i++)
        if (in.set.members[i].id == id)
            return true;
    return false;
}

/* ---- joining ---- */

static void a_slave_counts_only_once_the_disk_has_it(void **state)
{
    (void)state;
    begin(1, 0, NULL);
    own(100);
    assert_int_equal(confirmed(), 100); /* alone */
    heard(1, 90);
    assert_int_equal(next(), INSYNC_NONE);
    heard(1, 100);
    assert_int_equal(next(), INSYNC_JOIN);
    assert_int_equal(in.next.count, 1);
    assert_int_equal(insync_size(&in), 0);
    insync_saved(&in, true);
    assert_int_equal(insync_size(&in), 1);
    own(200);
    assert_int_equal(confirmed(), 100); /* the master alone does not count any more */
    heard(1, 150);
    assert_int_equal(confirmed(), 150);
    heard(1, 200);
    assert_int_equal(confirmed(), 200);
}

static void a_joining_slaves_word_does_not_help_before_it_is_durable(void **state)
{
    (void)state;
    struct insync_set set = set_of(1, 1);
    begin(1, 0, &set);
    own(100);
    heard(1, 50);
    assert_int_equal(confirmed(), 50);
    heard(2, 100);
    assert_int_equal(next(), INSYNC_JOIN);
    assert_int_equal(confirmed(), 50);
    insync_saved(&in, true);
    assert_int_equal(confirmed(), 100);
}

static void a_slave_joins_a_busy_master_that_is_alone(void **state)
{
    (void)state;
    begin(1, 0, NULL);
    own(100);
    heard(1, 10);
    for (int64_t end = 200; next() == INSYNC_NONE; end += 100) {
        pass_ms(1); /* each fetch acknowledges what the master had at the one before */
        own(end);
        heard(1, end - 100);
        assert_true(end < 1000);
    }
    insync_saved(&in, true);
    assert_true(is_member(1));
}

static void a_slave_that_never_draws_near_does_not_join(void **state)
{
    (void)state;
    begin(1, 0, NULL);
    own(100000);
    for (int64_t end = 0; end < 90000; end += 1000) {
        pass_ms(100);
        own(100000 + end);
        heard(1, end);
        assert_int_equal(next(), INSYNC_NONE);
    }
}

/* ---- leaving ---- */

static void a_member_without_link_leaves_at_once_but_counts_until_that_is_durable(void **state)
{
    (void)state;
    struct insync_set set = set_of(1, 1);
    begin(1, 0, &set);
    own(100);
    heard(1, 80);
    down(1);
    own(150);
    assert_int_equal(confirmed(), 80);
    assert_int_equal(next(), INSYNC_LEAVE);
    assert_int_equal(confirmed(), 80); /* being written */
    assert_int_equal(insync_size(&in), 1);
    insync_saved(&in, true);
    assert_int_equal(insync_size(&in), 0);
    assert_int_equal(confirmed(), 150);
    assert_null(insync_find(&in, 1));
}

static void a_member_that_is_not_heard_leaves_in_time(void **state)
{
    (void)state;
    struct insync_set set = set_of(2, 1, 2);
    int64_t wake_ns;
    begin(1, 0, &set);
    own(100);
    heard(1, 100);
    pass_ms(MAX_BEHIND_MS);
    assert_int_equal(insync_next(&in, now_ns, &wake_ns), INSYNC_NONE);
    assert_true(wake_ns == now_ns + 1);
    now_ns = wake_ns;
    assert_true(insync_due(&in, now_ns));
    assert_int_equal(insync_next(&in, now_ns, &wake_ns), INSYNC_LEAVE);
    assert_int_equal(in.next.count, 0); /* 2 was never heard since the opening, 1 not any more */
}

static void a_member_that_falls_behind_leaves_in_time(void **state)
{
    (void)state;
    struct insync_set set = set_of(1, 1);
    begin(1, 0, &set);
    own(100);
    heard(1, 100);
    pass_ms(1000);
    own(200);
    for (int i = 0; i < MAX_BEHIND_MS / 1000; i++) {
        assert_int_equal(next(), INSYNC_NONE);
        pass_ms(1000);
        heard(1, 150 + i); /* alive, but slow */
    }
    assert_int_equal(next(), INSYNC_NONE);
    pass_ms(1);
    assert_int_equal(next(), INSYNC_LEAVE);
}

static void a_member_that_is_always_a_little_late_stays(void **state)
{
    (void)state;
    struct insync_set set = set_of(1, 1);
    begin(1, 0, &set);
    own(100);
    heard(1, 100);
    for (int64_t i = 1; i < 100; i++) {
        pass_ms(1000);
        own(100 + 100 * i);
        heard(1, 100 * i); /* what the master had a second ago */
        assert_int_equal(next(), INSYNC_NONE);
        assert_true(confirmed() == 100 * i);
    }
}

static void a_set_on_record_counts_from_the_opening_on(void **state)
{
    (void)state;
    struct insync_set set = set_of(2, 1, 2);
    begin(1, 0, &set);
    own(500);
    assert_int_equal(confirmed(), 0); /* nobody was heard */
    down(1);                          /* an old link's end is no news of a member not yet heard */
    assert_int_equal(next(), INSYNC_NONE);
    heard(2, 400);
    assert_int_equal(confirmed(), 400);
}

static void a_member_that_lost_its_tail_must_draw_level_again(void **state)
{
    (void)state;
    struct insync_set set = set_of(1, 1);
    begin(1, 0, &set);
    own(100);
    heard(1, 100);
    heard(1, 40);
    assert_int_equal(confirmed(), 100);
    assert_int_equal(next(), INSYNC_LEAVE);
    insync_saved(&in, true);
    assert_int_equal(next(), INSYNC_NONE);
    heard(1, 100);
    assert_int_equal(next(), INSYNC_JOIN);
}

/* ---- identity ---- */

static void another_store_takes_an_ids_place_only_in_sync(void **state)
{
    (void)state;
    struct insync_set set = set_of(1, 1);
    begin(1, 0, &set);
    own(100);
    heard_as(1, 77, 50);
    assert_int_equal(next(), INSYNC_NONE);
    assert_int_equal(confirmed(), 0); /* the old one counts, the new one does not */
    heard_as(1, 77, 100);
    assert_int_equal(next(), INSYNC_LEAVE);
    assert_int_equal(in.next.count, 1);
    assert_int_equal(in.next.members[0].uuid[0], 77);
    insync_saved(&in, true);
    assert_int_equal(confirmed(), 100);
    assert_int_equal(insync_size(&in), 1);
    assert_int_equal(next(), INSYNC_NONE);
}

static void a_new_address_is_written_down(void **state)
{
    (void)state;
    struct insync_set set = set_of(1, 1);
    struct insync_member moved = member(1, 1);
    begin(1, 0, &set);
    snprintf(moved.ha_address, sizeof moved.ha_address, "127.0.0.2:10912");
    assert_ok(insync_heard(&in, &moved, 0, now_ns));
    assert_int_equal(next(), INSYNC_JOIN);
    insync_saved(&in, true);
    assert_string_equal(in.set.members[0].ha_address, "127.0.0.2:10912");
    assert_int_equal(next(), INSYNC_NONE);
}

static void idle_peers_make_room_and_members_do_not(void **state)
{
    (void)state;
    begin(1, 0, NULL);
    own(100);
    for (int i = 0; i < INSYNC_MAX; i++)
        heard(100 + i, 1);
    struct insync_member more = member(1, 1);
    assert_int_equal(insync_heard(&in, &more, 1, now_ns), TERN_LIMIT);
    down(103);
    assert_ok(insync_heard(&in, &more, 1, now_ns));
    assert_non_null(insync_find(&in, 1));
    assert_null(insync_find(&in, 103));
}

/* ---- how many ---- */

static void k_members_and_the_master_have_what_is_confirmed(void **state)
{
    (void)state;
    struct insync_set set = set_of(3, 1, 2, 3);
    const struct {
        uint32_t replicas;
        int64_t want;
    } rows[] = {{0, 1000}, {1, 300}, {2, 200}, {3, 100}, {7, 100}, {UINT32_MAX, 100}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        begin(rows[i].replicas, 0, &set);
        own(1000);
        heard(1, 100);
        heard(2, 300);
        heard(3, 200);
        assert_int_equal(confirmed(), rows[i].want);
    }
    begin(1, 0, &set);
    own(250);
    heard(2, 300); /* SYNC_FLUSH: a slave may flush before the master does */
    assert_int_equal(confirmed(), 250);
}

static void below_the_least_number_confirmed_stands_still(void **state)
{
    (void)state;
    struct insync_set set = set_of(2, 1, 2);
    begin(1, 2, &set);
    own(100);
    heard(1, 100);
    heard(2, 100);
    assert_true(insync_enough(&in));
    down(2);
    settle();
    assert_false(insync_enough(&in));
    own(200);
    heard(1, 200);
    assert_int_equal(confirmed(), 100);
    heard(2, 200);
    settle();
    assert_true(insync_enough(&in));
    assert_int_equal(confirmed(), 200);
}

static void all_members_have_the_progress_that_is_seen(void **state)
{
    (void)state;
    struct insync_set set = set_of(2, 1, 2);
    begin(1, 0, NULL);
    assert_true(insync_progress_seen(&in) == UINT64_MAX);
    begin(1, 0, &set);
    own(10);
    assert_int_equal(insync_progress_seen(&in), 0);
    heard(1, 10);
    heard(2, 10);
    insync_progress(&in, 1, member(1, 1).uuid, 7);
    insync_progress(&in, 2, member(2, 2).uuid, 4);
    assert_int_equal(insync_progress_seen(&in), 4);
    down(2);
    assert_int_equal(insync_progress_seen(&in), 4);
    settle();
    assert_int_equal(insync_progress_seen(&in), 7);
}

/* ---- a failed save ---- */

static void after_a_failed_save_either_set_may_be_found(void **state)
{
    (void)state;
    struct insync_set set = set_of(2, 1, 2);
    begin(1, 0, &set);
    own(100);
    heard(1, 100);
    heard(2, 100);
    down(2);
    assert_int_equal(next(), INSYNC_LEAVE);
    insync_saved(&in, false);
    heard(2, 100); /* it is back before the next try */
    own(200);
    heard(2, 200);
    assert_int_equal(confirmed(), 100); /* a master that starts may wait for 1 alone */
    assert_int_equal(next(), INSYNC_LEAVE);
    assert_int_equal(in.next.count, 1); /* as it was */
    insync_saved(&in, true);
    heard(1, 150);
    assert_int_equal(confirmed(), 150);
    settle();
    assert_true(is_member(2));
    assert_int_equal(confirmed(), 200);
}

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

/* ---- the file ---- */

static struct sim_env sim;
static struct tern_error err;

static int disk_setup(void **state)
{
    (void)state;
    sim_env_init(&sim, 12);
    assert_ok(fs_mkdirs(sim.env.fs, ROOT));
    return 0;
}

static int disk_teardown(void **state)
{
    (void)state;
    sim_env_fini(&sim);
    return 0;
}

static void a_set_survives(void **state)
{
    (void)state;
    struct insync_set got;
    struct insync_set set = set_of(2, 1, 2);
    bool known = true;
    set.members[1].id = INT64_MAX;
    assert_ok(insync_load(&sim.env, ROOT, &got, &known, &err));
    assert_false(known);
    assert_ok(insync_save(&sim.env, ROOT, &set, &err));
    sim_fs_power_loss(sim.fs, SIM_TORN_NONE);
    assert_ok(insync_load(&sim.env, ROOT, &got, &known, &err));
    assert_true(known);
    assert_memory_equal(&got, &set, sizeof set);
    set.count = 0;
    assert_ok(insync_save(&sim.env, ROOT, &set, &err));
    assert_ok(insync_load(&sim.env, ROOT, &got, &known, &err));
    assert_true(known && got.count == 0); /* known to be nobody is not unknown */
}

static void a_failed_save_leaves_one_of_both_sets(void **state)
{
    (void)state;
    for (unsigned nth = 1, failed = 1; failed; nth++) {
        disk_teardown(NULL);
        disk_setup(NULL);
        struct insync_set got;
        struct insync_set old = set_of(2, 1, 2);
        struct insync_set new = set_of(1, 2);
        bool known;
        assert_ok(insync_save(&sim.env, ROOT, &old, &err));
        sim_fs_fail(sim.fs,
                    &(struct sim_fs_fault){.op = SIM_FS_ANY, .nth = nth, .errno_value = EIO});
        failed = insync_save(&sim.env, ROOT, &new, &err) != TERN_OK;
        sim_fs_fail_clear(sim.fs);
        sim_fs_power_loss(sim.fs, SIM_TORN_PAGES);
        assert_ok(insync_load(&sim.env, ROOT, &got, &known, &err));
        assert_true(known);
        if (got.count == 2)
            assert_true(failed && memcmp(&got, &old, sizeof got) == 0);
        else
            assert_memory_equal(&got, &new, sizeof got);
        assert_true(nth < 100);
    }
}

static void a_damaged_set_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{}", "{\"members\": [{\"id\": 1, \"uuid\": \"12\", \"haAddress\": \"a:1\"}]}",
        "{\"members\": [{\"id\": -1, \"uuid\": \"00000000000000000000000000000001\", "
        "\"haAddress\": \"a:1\"}]}",
        "{\"members\": [{\"id\": 1, \"uuid\": \"00000000000000000000000000000001\", "
        "\"haAddress\": \"a:1\"}, {\"id\": 1, \"uuid\": \"00000000000000000000000000000002\", "
        "\"haAddress\": \"a:1\"}]}"};
    assert_ok(fs_mkdirs(sim.env.fs, ROOT "/ternmq"));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct insync_set got;
        bool known;
        put_file(&sim, ROOT "/ternmq/insync.json", bad[i], strlen(bad[i]));
        assert_int_equal(insync_load(&sim.env, ROOT, &got, &known, &err), TERN_CORRUPT);
        assert_contains(err.text, "insync.json");
    }
}

#define DISK(name) cmocka_unit_test_setup_teardown(name, disk_setup, disk_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slave_counts_only_once_the_disk_has_it),
        cmocka_unit_test(a_joining_slaves_word_does_not_help_before_it_is_durable),
        cmocka_unit_test(a_slave_joins_a_busy_master_that_is_alone),
        cmocka_unit_test(a_slave_that_never_draws_near_does_not_join),
        cmocka_unit_test(a_member_without_link_leaves_at_once_but_counts_until_that_is_durable),
        cmocka_unit_test(a_member_that_is_not_heard_leaves_in_time),
        cmocka_unit_test(a_member_that_falls_behind_leaves_in_time),
        cmocka_unit_test(a_member_that_is_always_a_little_late_stays),
        cmocka_unit_test(a_set_on_record_counts_from_the_opening_on),
        cmocka_unit_test(a_member_that_lost_its_tail_must_draw_level_again),
        cmocka_unit_test(another_store_takes_an_ids_place_only_in_sync),
        cmocka_unit_test(a_new_address_is_written_down),
        cmocka_unit_test(idle_peers_make_room_and_members_do_not),
        cmocka_unit_test(k_members_and_the_master_have_what_is_confirmed),
        cmocka_unit_test(below_the_least_number_confirmed_stands_still),
        cmocka_unit_test(all_members_have_the_progress_that_is_seen),
        cmocka_unit_test(after_a_failed_save_either_set_may_be_found),
        cmocka_unit_test(confirmed_is_safe_whatever_happens_and_never_falls),
        DISK(a_set_survives),
        DISK(a_failed_save_leaves_one_of_both_sets),
        DISK(a_damaged_set_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
