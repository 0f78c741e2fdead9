/* broker/ha/source on real threads: an appender, a committer, the task and two slaves at once. Each
 * slave gets every byte once and in order, each fetch one answer, and what is told as confirmed
 * only grows. */
#include <pthread.h>

#include "tests/unit/ha/source_world.h"

#include "base/clock.h"

enum { SLAVES = 2, BYTES = 400000, APPEND_MAX = 300 };

static struct source_world w;
static struct env real, mixed; /* mixed: real, but for the disk */
static struct task *task;
static _Atomic bool failed;
static _Atomic uint64_t own_progress;
static _Atomic int64_t confirmed;
static _Atomic uint64_t progress_seen;

static Tern__Wire__HaTables *fill(void *arg, const struct ha_held *held, bool progress_only,
                                  struct arena *arena)
{
    (void)arg;
    (void)held;
    (void)progress_only;
    Tern__Wire__HaTables *tables = arena_alloc(arena, sizeof *tables);
    if (!tables)
        return NULL;
    tern__wire__ha_tables__init(tables);
    tables->has_progress = true;
    tables->progress_to = own_progress;
    return tables;
}

static bool agree(void *arg, const struct ha_held *held)
{
    (void)arg;
    (void)held;
    return true;
}

static bool differs(void *arg, const struct ha_held *held, bool progress_only)
{
    (void)arg;
    (void)progress_only;
    return held->progress != own_progress;
}

static void own(void *arg, struct ha_held *held)
{
    (void)arg;
    *held = (struct ha_held){.progress = own_progress};
}

static void on_confirmed(void *arg, int64_t end, bool alone)
{
    (void)arg;
    (void)alone;
    if (end < confirmed || end > w.store.whole)
        failed = true;
    confirmed = end;
}

static void on_progress_seen(void *arg, uint64_t change)
{
    (void)arg;
    progress_seen = change;
}

static void on_heard(void *arg, const struct ha_member *member, bool has_cut, int64_t cut_at)
{
    (void)arg;
    (void)member;
    (void)has_cut;
    (void)cut_at;
}

static void wake_task(void *arg)
{
    (void)arg;
    task_wake(task);
}

static void self(void *arg, struct ha_member *out)
{
    (void)arg;
    struct slave like = slave_of(&w, 0);
    *out = like.member;
    memcpy(out->uuid, w.ha.uuid, sizeof out->uuid);
}

static int64_t step(void *arg, int64_t now_ns)
{
    return source_step(arg, now_ns);
}

/* The same request as the slave of a simulated world makes, answered on whichever thread. */
static struct fake_ask *make_fetch(const struct slave *s)
{
    struct fake_ask *ask = fake_ask_new(&real, s->peer_id);
    ask->position.appended = s->appended;
    ask->position.flushed = s->appended;
    ask->position.dispatched = s->appended;
    ask->held.progress = s->held.progress;
    ask->fetch.session = s->session;
    ask->fetch.from = s->appended;
    ask->fetch.suspend_timeout_ms = HA_PARK_MAX_MS;
    ask->fetch.position = &ask->position;
    ask->fetch.held = &ask->held;
    ask->header.body_case = TERN__WIRE__REQUEST__BODY_HA_FETCH;
    ask->header.ha_fetch = &ask->fetch;
    return ask;
}

static bool take(struct slave *s, const struct fake_ask *ask)
{
    const Tern__Wire__HaFetchResponse *got = ask->response->ha_fetch;
    if (ask->response->code != 0 || !got || got->from != s->appended)
        return false;
    for (size_t i = 0; i < ask->payload_size; i++)
        if (ask->reserved[i] != fake_byte(s->appended + (int64_t)i))
            return false;
    s->appended += (int64_t)ask->payload_size;
    if (got->tables)
        s->held.progress = got->tables->progress_to;
    return true;
}

static void *run_slave(void *arg)
{
    struct slave *s = arg;
    struct sched *sched = real.sched;
    struct fake_ask *before = NULL;
    while (!failed && (s->appended < BYTES || s->held.progress < APPEND_MAX)) {
        struct fake_ask *ask = make_fetch(s);
        source_fetch(w.source, &ask->pub);
        if (!latch_wait(sched, &ask->answered, clock_mono_ns(real.clock) + ms_to_ns(60000)) ||
            !take(s, ask))
            failed = true;
        if (before)
            fake_ask_free(before); /* whoever set its latch has let go of it by now */
        before = ask;
        if (failed)
            break;
    }
    return before;
}

static void *run_appender(void *arg)
{
    struct rng_seeded random;
    (void)arg;
    rng_seeded_init(&random, 31);
    while (w.store.whole < BYTES && !failed) {
        int64_t end = w.store.whole + 1 + (int64_t)rng_below(&random.rng, APPEND_MAX);
        w.store.whole = end < BYTES ? end : BYTES;
        source_on_end(w.source, w.store.whole);
        if (rng_below(&random.rng, 8) == 0) {
            w.store.cold = !w.store.cold;
            sched_yield();
        }
    }
    w.store.cold = false;
    return NULL;
}

static void *run_committer(void *arg)
{
    (void)arg;
    for (uint64_t change = 1; change <= APPEND_MAX && !failed; change++) {
        own_progress = change;
        source_on_change(w.source);
        sched_yield();
    }
    return NULL;
}

static void attach(struct slave *s)
{
    struct fake_ask *ask = fake_ask_new(&real, s->peer_id);
    s->member.log_end = s->member.flushed = 0;
    ask->handshake.from = ha_member_to_wire(&ask->arena, &s->member);
    ask->header.ha_handshake = &ask->handshake;
    source_handshake(w.source, &ask->pub);
    assert_int_equal(fake_ask_code(ask), 0);
    s->session = ask->response->ha_handshake->session;
    fake_ask_free(ask);
}

static void begin(void)
{
    source_world_init(&w, HA_MODE_SYNC_MASTER);
    source_stop(w.source);
    source_destroy(w.source);
    env_init_system(&real, NULL);
    mixed = real;
    mixed.fs = w.sim.env.fs; /* the task alone uses it */
    w.store.whole = w.store.flushed = 1;
    w.ha.tables =
        (struct ha_tables){.fill = fill, .topics_agree = agree, .differs = differs, .own = own};
    struct source_options options = {
        .part = {.env = &mixed, .ha = &w.ha, .epochs = w.epochs, .self = self, .wake = wake_task},
        .on_heard = on_heard,
        .on_confirmed = on_confirmed,
        .on_progress_seen = on_progress_seen};
    assert_ok(source_create(&options, &w.source));
    assert_ok(task_start(real.sched, "ha", step, w.source, &task));
}

static void every_byte_once_and_in_order_on_threads(void **state)
{
    struct slave slaves[SLAVES];
    pthread_t threads[SLAVES + 2];
    void *last[SLAVES];
    (void)state;
    begin();
    source_world_open(&w);
    for (int i = 0; i < SLAVES; i++) {
        slaves[i] = slave_of(&w, i + 1);
        attach(&slaves[i]);
    }
    for (int i = 0; i < SLAVES; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_slave, &slaves[i]), 0);
    assert_int_equal(pthread_create(&threads[SLAVES], NULL, run_appender, NULL), 0);
    assert_int_equal(pthread_create(&threads[SLAVES + 1], NULL, run_committer, NULL), 0);
    for (int i = SLAVES + 1; i >= 0; i--)
        pthread_join(threads[i], i < SLAVES ? &last[i] : NULL);
    assert_false(failed);
    for (int i = 0; i < SLAVES; i++) {
        assert_int_equal(slaves[i].appended, BYTES);
        /* one more fetch acknowledges the last bytes */
        struct fake_ask *ask = make_fetch(&slaves[i]);
        source_fetch(w.source, &ask->pub);
        fake_ask_free(last[i]);
        last[i] = ask;
    }
    task_stop(task);
    assert_int_equal(confirmed, BYTES);
    assert_true(progress_seen == APPEND_MAX || progress_seen == UINT64_MAX);
    source_close(w.source);
    for (int i = 0; i < SLAVES; i++)
        fake_ask_free(last[i]);
    source_world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_once_and_in_order_on_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
