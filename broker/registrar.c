/*
 * One task does all registrations, one round after the other; registrar_publish() asks for a round
 * that begins after it and waits for its end.
 *
 *              period over, or SOON_MS after a failure
 *   asleep ──────────────────────────────────────────────► round ──► asleep
 *      │   poked, somebody waits: at once                    ▲
 *      └─► a nameserver is there (again): at once, but ──────┘
 *          COMING_MS after the last round began at the earliest
 *
 * A nameserver that was restarted has forgotten us, so its coming begins a round; one that comes
 * and goes all the time costs a round per COMING_MS.
 *
 * What goes wrong at a nameserver is logged when it begins, when it becomes something else and
 * every LOGGED_AGAIN_MS, however often it is tried; and when it is over.
 */
#include "broker/registrar.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "broker/registrar_internal.h"

enum {
    SOON_MS = 1000,
    COMING_MS = 1000,
    LOGGED_AGAIN_MS = 5 * 60000,
    SILENCE_MS = 1000, /* then a nameserver is asked whether it is there */
    ANSWER_BYTES_MAX = 64 << 20
};

/* Wakes the task for a round now. @locks holds:BROKER_REGISTRAR */
static void make_due(struct registrar *registrar)
{
    registrar->due_ns = 0;
    if (registrar->task)
        task_wake(registrar->task); /* under the lock: it cannot be stopped meanwhile */
}

/* @thread link's, or the client's task */
static void on_nameserver(void *arg, struct rpc_peer *peer, bool up)
{
    struct registrar *registrar = arg;
    (void)peer;
    if (!up)
        return;
    lock_acquire(&registrar->lock);
    registrar->coming_ns = registrar->begun_ns + ms_to_ns(COMING_MS);
    if (registrar->task)
        task_wake(registrar->task); /* under the lock: it cannot be stopped meanwhile */
    lock_release(&registrar->lock);
}

/* ---- life ---- */

static enum tern_code make_client(struct registrar *registrar, struct tern_error *err)
{
    struct broker *broker = registrar->broker;
    struct rpc_client_options options = {
        .max_message_bytes = ANSWER_BYTES_MAX,
        .connect_wait_ms = 500,
        .reconnect_min_ms = 100,
        .reconnect_max_ms = 2000, /* an attempt gets no longer than that, either */
        .silence_ms = SILENCE_MS,
        .client_id = "",
        .arg = registrar,
        .on_peer_state = on_nameserver,
    };
    enum tern_code code =
        rpc_client_create(&broker->env, broker->link, &options, &registrar->client);
    return code ? error_set(err, code, "making the nameserver client: %s", tern_code_text(code))
                : TERN_OK;
}

static enum tern_code find_nameservers(struct registrar *registrar, struct tern_error *err)
{
    char list[CONFIG_STRING_BYTES];
    snprintf(list, sizeof list, "%s", registrar->broker->config.namesrv_addr);
    char *rest = list;
    for (char *address; (address = strsep(&rest, ";"));) {
        if (!*address)
            continue;
        if (registrar->count == NAMESERVERS_MAX)
            return error_set(err, TERN_CONFIG, "namesrvAddr: more than %d nameservers",
                             NAMESERVERS_MAX);
        struct nameserver *server = &registrar->servers[registrar->count];
        server->registrar = registrar;
        enum tern_code code = rpc_peer_get(registrar->client, address, &server->peer, err);
        if (code != TERN_OK)
            return error_prefix(err, code, "namesrvAddr: %s", address);
        registrar->count++;
    }
    return TERN_OK;
}

enum tern_code registrar_create(struct broker *broker, struct registrar **out,
                                struct tern_error *err)
{
    struct registrar *registrar = calloc(1, sizeof *registrar);
    if (!registrar)
        return error_set(err, TERN_NO_MEMORY, "registrar");
    registrar->broker = broker;
    atomic_init(&registrar->round.over, true);
    registrar->coming_ns = SCHED_NEVER;
    lock_init(&registrar->lock, LOCK_BROKER_REGISTRAR);
    enum tern_code code = make_client(registrar, err);
    if (code == TERN_OK)
        code = find_nameservers(registrar, err);
    if (code != TERN_OK) {
        registrar_destroy(registrar);
        return code;
    }
    *out = registrar;
    return TERN_OK;
}

void registrar_destroy(struct registrar *registrar)
{
    if (!registrar)
        return;
    task_stop(registrar->task);
    for (size_t i = 0; i < registrar->count; i++)
        if (registrar->servers[i].peer)
            rpc_peer_unref(registrar->servers[i].peer);
    if (registrar->client)
        rpc_client_destroy(registrar->client); /* ends the calls of a round that was abandoned */
    lock_fini(&registrar->lock);
    free(registrar);
}

/* ---- what came of a round ---- */

static enum standing standing_of(enum tern_code result)
{
    return result == TERN_OK              ? STANDING_FINE
           : result == TERN_NAME_CONFLICT ? STANDING_REFUSED
                                          : STANDING_UNTOLD;
}

static void log_standing(const struct nameserver *server)
{
    const struct broker *broker = server->registrar->broker;
    const char *address = rpc_peer_address(server->peer);
    if (server->standing == STANDING_FINE)
        log_info(broker->env.log, "registered_again", "namesrv=%s failures=%" PRIu64, address,
                 server->failures);
    else if (server->standing == STANDING_REFUSED)
        log_error(broker->env.log, "name_conflict",
                  "broker=%s id=%" PRId64 " namesrv=%s failures=%" PRIu64
                  " code=NAME_CONFLICT cause=\"%s\"",
                  broker->config.broker_name, broker->config.broker_id, address, server->failures,
                  server->text);
    else
        log_warn(broker->env.log, "register_failed",
                 "namesrv=%s failures=%" PRIu64 " code=%s cause=\"%s\"", address, server->failures,
                 tern_code_name(server->result), server->text);
}

static void note_standing(struct nameserver *server, int64_t now_ns)
{
    enum standing standing = standing_of(server->result);
    bool news = standing != server->standing;
    server->failures += standing != STANDING_FINE;
    if (news || (standing && now_ns - server->logged_ns >= ms_to_ns(LOGGED_AGAIN_MS))) {
        server->standing = standing;
        server->logged_ns = now_ns;
        log_standing(server);
    }
    if (standing == STANDING_FINE)
        server->failures = 0;
}

static enum tern_code report(struct registrar *registrar, struct tern_error *err)
{
    enum tern_code worst = TERN_OK;
    int64_t now_ns = clock_mono_ns(registrar->broker->env.clock);
    for (size_t i = 0; i < registrar->count; i++) {
        struct nameserver *server = &registrar->servers[i];
        note_standing(server, now_ns);
        if (server->result == TERN_NAME_CONFLICT)
            worst = error_set(err, TERN_NAME_CONFLICT, "NAME_CONFLICT: nameserver %s",
                              server->text); /* with its address */
    }
    return worst;
}

/*
 * Everybody that any nameserver named, each (id, store) once. Where they name different addresses,
 * one that a member has left stands in some list for a while: each round another nameserver is
 * believed first, so that whoever looks for that member tries them all. @thread broker-register
 */
static void tell_replication(struct registrar *registrar)
{
    struct ha_seen_member all[NAMESERVERS_MAX * MEMBERS_SEEN_MAX];
    size_t count = 0;
    uint32_t answered = 0;
    size_t first = registrar->first++;
    for (size_t i = 0; i < registrar->count; i++) {
        const struct nameserver *server = &registrar->servers[(first + i) % registrar->count];
        answered += server->result == TERN_OK;
        for (size_t j = 0; j < server->member_count; j++) {
            size_t k = 0;
            while (k < count && (all[k].id != server->members[j].id ||
                                 memcmp(all[k].uuid, server->members[j].uuid, sizeof all[k].uuid)))
                k++;
            if (k == count)
                all[count++] = server->members[j];
        }
    }
    ha_on_members(registrar->broker->ha, all, count, answered);
}

/* One round. @thread broker-register */
static enum tern_code register_all(struct registrar *registrar, int64_t timeout_ms,
                                   struct tern_error *err)
{
    struct topic_table table;
    enum tern_code code = topic_table_fill(registrar->broker, &table);
    if (code == TERN_OK && registrar_tell(registrar, &table, timeout_ms, false) &&
        registrar_tell(registrar, &table, timeout_ms, true)) {
        tell_replication(registrar);
        code = report(registrar, err);
    }
    topic_table_free(&table);
    return code;
}

/* ---- rounds ---- */

static void end_round(struct registrar *registrar, uint64_t round, enum tern_code code,
                      const struct tern_error *err)
{
    lock_acquire(&registrar->lock);
    for (struct waiter **at = &registrar->waiters; *at;) {
        struct waiter *waiter = *at;
        if (waiter->round > round) {
            at = &waiter->next;
            continue;
        }
        *at = waiter->next;
        waiter->code = code;
        waiter->err = *err;
        latch_set(registrar->broker->env.sched, &waiter->ended); /* waiter may be gone after this */
    }
    lock_release(&registrar->lock);
}

/* Whether one is there that has not heard of us since it came. Only reads. @thread broker-register
 * @locks any */
static bool anybody_is_new(const struct registrar *registrar)
{
    for (size_t i = 0; i < registrar->count; i++) {
        const struct nameserver *server = &registrar->servers[i];
        if (rpc_peer_up(server->peer) && server->told_ns < rpc_peer_up_since_ns(server->peer))
            return true;
    }
    return false;
}

/* @locks holds:BROKER_REGISTRAR */
static int64_t next_round_ns(const struct registrar *registrar)
{
    return registrar->coming_ns < registrar->due_ns ? registrar->coming_ns : registrar->due_ns;
}

/* false: none is due, and *next_ns says when to look again. @thread broker-register */
static bool begin_round(struct registrar *registrar, int64_t now_ns, uint64_t *round,
                        int64_t *next_ns)
{
    lock_acquire(&registrar->lock);
    bool came = now_ns >= registrar->coming_ns;
    if (came)
        registrar->coming_ns = SCHED_NEVER;
    bool due = now_ns >= registrar->due_ns || (came && anybody_is_new(registrar));
    if (due) {
        *round = ++registrar->rounds_begun;
        registrar->begun_ns = now_ns;
        registrar->due_ns = SCHED_NEVER; /* what comes during this round is another's */
    }
    *next_ns = next_round_ns(registrar);
    lock_release(&registrar->lock);
    return due;
}

/* When the next round is due, unless somebody asked for one meanwhile. */
static int64_t plan_round(struct registrar *registrar)
{
    int64_t wait_ms = registrar->broker->config.register_period_ms;
    int state = ha_state(registrar->broker->ha);
    /* A nameserver that was away learns of us soon, and who looks for the others of its set finds
     * them soon, not a period later. */
    bool soon =
        state == TERN__WIRE__HA_STATE__HA_SEEKING || state == TERN__WIRE__HA_STATE__HA_RECOVERING;
    for (size_t i = 0; i < registrar->count; i++)
        soon |= registrar->servers[i].result != TERN_OK;
    if (soon && wait_ms > SOON_MS)
        wait_ms = SOON_MS;
    int64_t next_ns = clock_mono_ns(registrar->broker->env.clock) + ms_to_ns(wait_ms);
    lock_acquire(&registrar->lock);
    if (next_ns < registrar->due_ns)
        registrar->due_ns = next_ns;
    next_ns = next_round_ns(registrar);
    lock_release(&registrar->lock);
    return next_ns;
}

static int64_t register_step(void *arg, int64_t now_ns)
{
    struct registrar *registrar = arg;
    struct tern_error err = {.text = ""};
    enum tern_code code = TERN_OK;
    uint64_t round;
    int64_t next_ns;

    if (atomic_load(&registrar->stopping))
        return SCHED_NEVER;
    if (!begin_round(registrar, now_ns, &round, &next_ns))
        return next_ns;
    bool detached = ha_state(registrar->broker->ha) == TERN__WIRE__HA_STATE__HA_DETACHED;
    if (!detached)
        code = register_all(registrar, registrar->broker->config.register_timeout_ms, &err);
    else if (!registrar->away)
        registrar_say_goodbyes(registrar);
    registrar->away = detached;
    if (atomic_load(&registrar->stopping))
        return SCHED_NEVER; /* registrar_stop() tells the waiters */
    end_round(registrar, round, code, &err);
    return plan_round(registrar);
}

enum tern_code registrar_start(struct registrar *registrar)
{
    struct task *task;
    if (!registrar->count)
        return TERN_OK;
    enum tern_code code = task_start(registrar->broker->env.sched, "broker-register", register_step,
                                     registrar, &task);
    if (code != TERN_OK)
        return code;
    lock_acquire(&registrar->lock);
    registrar->task = task;
    lock_release(&registrar->lock);
    return TERN_OK;
}

/* false: the round had ended, and the waiter was told. */
static bool leave_waiters(struct registrar *registrar, struct waiter *waiter)
{
    bool found = false;
    lock_acquire(&registrar->lock);
    for (struct waiter **at = &registrar->waiters; *at && !found;) {
        found = *at == waiter;
        if (found)
            *at = waiter->next;
        else
            at = &(*at)->next;
    }
    lock_release(&registrar->lock);
    return found;
}

enum tern_code registrar_publish(struct registrar *registrar, int64_t deadline_ns,
                                 struct tern_error *err)
{
    struct sched *sched = registrar->broker->env.sched;
    struct waiter waiter = {.code = TERN_OK};
    latch_init(&waiter.ended);
    lock_acquire(&registrar->lock);
    bool runs = registrar->task != NULL;
    if (runs) {
        waiter.round = registrar->rounds_begun + 1;
        waiter.next = registrar->waiters;
        registrar->waiters = &waiter;
        make_due(registrar);
    }
    lock_release(&registrar->lock);
    if (!runs)
        return TERN_OK; /* nobody to tell, or not started, or stopping */
    if (!latch_wait(sched, &waiter.ended, deadline_ns) && leave_waiters(registrar, &waiter))
        return TERN_OK; /* the nameservers are slow or away: they will be told later */
    if (waiter.code != TERN_OK && err)
        *err = waiter.err;
    return waiter.code;
}

void registrar_poke(struct registrar *registrar)
{
    lock_acquire(&registrar->lock);
    make_due(registrar);
    lock_release(&registrar->lock);
}

/* ---- stopping ---- */

void registrar_stop(struct registrar *registrar)
{
    struct tern_error err = {.text = ""};

    if (atomic_exchange(&registrar->stopping, true))
        return;
    flight_end(registrar, &registrar->round);
    lock_acquire(&registrar->lock);
    struct task *task = registrar->task;
    registrar->task = NULL;
    lock_release(&registrar->lock);
    task_stop(task);
    end_round(registrar, UINT64_MAX, TERN_OK, &err);
    registrar_say_goodbyes(registrar);
    for (size_t i = 0; i < registrar->count; i++) {
        rpc_peer_unref(registrar->servers[i].peer);
        registrar->servers[i].peer = NULL;
    }
}
