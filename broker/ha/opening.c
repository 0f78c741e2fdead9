/*
 * The stages of a master's start.
 *
 *   SEARCHING ──a nameserver answered──► WAITING ──all answered──► TAKING, one member after the
 *   (empty store, no set on record)         ▲ │                    other, the highest first
 *                                           └─┼──── taken, failed ────┘
 *                                             └──► all taken ──► BEGINNING ──► OPEN
 *
 * Invariants:
 *   - Who has answered is taken before the opening: bytes when its log is beyond ours, progress and
 *     locks in any case. A take that fails makes its member one that has not answered, and gives it
 *     the whole time-out again; one that wants force waits for an operator, in every mode.
 *   - A member that has not answered is given up only by the time-out of an ASYNC_MASTER, by an
 *     operator, or with recoverFromSlave false; it is not in the set from the opening on, and
 *     versions of progress are raised.
 *   - An empty store does not open beside a slave that nameservers list and that has not answered:
 *     it may hold everything. It is given up by an operator, or when nobody lists it any more.
 *   - A store that was empty and took another's log, or was a slave's until now, raises versions of
 *     progress, too: consumers may have read what the master before had beyond.
 *   - The functions of the options are called by the ha task, without the lock.
 *
 * Threads: step and begin on the ha task; told from any. Failure modes: a set that cannot be read
 * stops the start; a later opening that cannot begin, or one that fails, is tried again each
 * second.
 */
#include "broker/ha/opening.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sched.h"
#include "broker/ha/opening_internal.h"

/* ---- life ---- */

enum tern_code opening_create(const struct opening_options *options, struct opening **out)
{
    struct opening *opening = calloc(1, sizeof *opening);
    *out = opening;
    if (!opening)
        return TERN_NO_MEMORY;
    opening->options = *options;
    opening->env = options->part.env;
    lock_init(&opening->lock, LOCK_HA_OPENING);
    return TERN_OK;
}

void opening_destroy(struct opening *opening)
{
    if (!opening)
        return;
    lock_fini(&opening->lock);
    free(opening);
}

/* ---- beginning ---- */

/* @locks holds */
static void give_up(struct opening *opening, struct opening_member *member)
{
    member->given_up = true;
    if (member->in_set)
        opening->lost = true;
}

/* @locks holds */
static void reset(struct opening *opening, const struct insync_set *set, int64_t now_ns)
{
    const struct ha_options *ha = opening->options.part.ha;
    opening->count = 0;
    opening->own_empty = opening_is_empty(&opening->self);
    opening->own = opening_place_of(&opening->self);
    opening->highest = opening->self.highest_epoch;
    opening->forced = opening->lost = opening->cut = opening->take_ended = false;
    opening->nameservers_answered = 0;
    opening->failure[0] = '\0';
    opening->deadline_ns = now_ns + ms_to_ns(ha->recover_timeout_ms);
    opening->complain_ns = opening->deadline_ns;
    opening->begin_ns = now_ns;
    for (size_t i = 0; i < set->count; i++) {
        struct opening_member *member = opening_add(opening, &set->members[i]);
        ENSURE(member);
        member->in_set = true;
        if (!ha->recover)
            give_up(opening, member);
    }
    opening->searches = ha->recover && ha->has_nameservers && opening->own_empty && set->count == 0;
    opening->stage = opening->searches ? OPENING_SEARCHING : OPENING_WAITING;
}

/* An opening after the first that could not begin: the step tries it again. */
static void come_again(struct opening *opening, int64_t now_ns, const struct tern_error *err,
                       enum tern_code code)
{
    lock_acquire(&opening->lock);
    opening->stage = OPENING_IDLE;
    opening->begin_ns = now_ns + ms_to_ns(OPENING_AGAIN_MS);
    snprintf(opening->failure, sizeof opening->failure, "%.180s", error_text(err, code));
    lock_release(&opening->lock);
}

enum tern_code opening_begin(struct opening *opening, int64_t now_ns, struct tern_error *err)
{
    const struct ha_options *ha = opening->options.part.ha;
    struct insync_set set = {.count = 0};
    bool known = false;
    enum tern_code code = insync_load(opening->env, ha->root_dir, &set, &known, err);
    if (code != TERN_OK) {
        come_again(opening, now_ns, err, code);
        return code;
    }
    if (!known)
        set.count = 0;
    opening->options.part.self(opening->options.part.arg, &opening->self);
    lock_acquire(&opening->lock);
    reset(opening, &set, now_ns);
    opening->was_copy = !known && opening->self.epoch_count > 0;
    lock_release(&opening->lock);
    if (!ha->recover && set.count > 0)
        log_warn(opening->env->log, "members_not_asked",
                 "members=%zu key=recoverFromSlave effect=\"what they hold beyond %" PRId64
                 " may be lost; they leave the set\"",
                 set.count, opening->self.log_end);
    return TERN_OK;
}

/* ---- what to do next ---- */

enum work {
    WORK_NONE,
    WORK_BEGIN,
    WORK_LOOK,
    WORK_TAKE,
    WORK_TAKEN,
    WORK_OPEN,
    WORK_COMPLAIN,
    WORK_GIVE_UP
};

/* What a piece of work is about. */
struct job {
    enum work work;
    size_t index; /* of the member */
    struct opening_member member;
};

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Somebody to ask who it is. @locks holds */
static bool choose_look(struct opening *opening, int64_t now_ns, struct job *job, int64_t *next_ns)
{
    for (size_t i = 0; i < opening->count; i++) {
        struct opening_member *member = &opening->members[i];
        if (member->answered || member->given_up || !member->member.ha_address[0])
            continue;
        if (member->look_ns <= now_ns) {
            member->look_ns = now_ns + ms_to_ns(OPENING_LOOK_MS);
            job->work = WORK_LOOK;
            job->member = *member;
            return true;
        }
        *next_ns = earlier(*next_ns, member->look_ns);
    }
    return false;
}

/* When the first that may not be taken yet may be. @locks holds */
static int64_t next_take(const struct opening *opening)
{
    int64_t next_ns = SCHED_NEVER;
    for (size_t i = 0; i < opening->count; i++) {
        const struct opening_member *member = &opening->members[i];
        if (member->answered && !member->taken && !member->given_up)
            next_ns = earlier(next_ns, member->take_ns);
    }
    return next_ns;
}

/* Says what is waited for, each OPENING_COMPLAIN_MS. @locks holds */
static void choose_complaint(struct opening *opening, int64_t now_ns, struct job *job,
                             int64_t *next_ns)
{
    if (opening->complain_ns <= now_ns) {
        opening->complain_ns = now_ns + ms_to_ns(OPENING_COMPLAIN_MS);
        job->work = WORK_COMPLAIN;
    } else {
        *next_ns = earlier(*next_ns, opening->complain_ns);
    }
}

/* WAITING: @locks holds */
static void choose_waiting(struct opening *opening, int64_t now_ns, struct job *job,
                           int64_t *next_ns)
{
    bool sync = opening->options.part.ha->mode == HA_MODE_SYNC_MASTER;
    bool late = now_ns >= opening->deadline_ns;
    size_t missing = opening_missing(opening);
    if (choose_look(opening, now_ns, job, next_ns))
        return;
    if (missing > 0 && !late) {
        *next_ns = earlier(*next_ns, opening->deadline_ns);
        return;
    }
    struct opening_member *best = opening_best(opening, now_ns);
    if (best) {
        job->work = WORK_TAKE;
        job->index = (size_t)(best - opening->members);
        job->member = *best;
    } else if (opening_untaken(opening)) {
        *next_ns = earlier(*next_ns, next_take(opening));
        choose_complaint(opening, now_ns, job, next_ns);
    } else if (missing == 0) {
        opening->stage = OPENING_BEGINNING;
        opening->begin_ns = now_ns;
        job->work = WORK_OPEN;
    } else if (sync || opening_listed_missing(opening)) {
        choose_complaint(opening, now_ns, job, next_ns);
    } else {
        job->work = WORK_GIVE_UP;
    }
}

static void choose(struct opening *opening, int64_t now_ns, struct job *job, int64_t *next_ns)
{
    *job = (struct job){.work = WORK_NONE};
    *next_ns = SCHED_NEVER;
    lock_acquire(&opening->lock);
    if (opening->stage == OPENING_SEARCHING) {
        if (opening->nameservers_answered > 0 || opening->forced || opening->count > 0 ||
            now_ns >= opening->deadline_ns)
            opening->stage = OPENING_WAITING;
        else
            *next_ns = opening->deadline_ns;
    }
    if (opening->stage == OPENING_WAITING) {
        choose_waiting(opening, now_ns, job, next_ns);
    } else if (opening->stage == OPENING_TAKING && opening->take_ended) {
        opening->take_ended = false;
        job->work = WORK_TAKEN;
        job->index = opening->taking;
        job->member = opening->members[opening->taking];
    } else if (opening->stage == OPENING_BEGINNING || opening->stage == OPENING_IDLE) {
        *next_ns = opening->begin_ns;
        if (opening->begin_ns <= now_ns)
            job->work = opening->stage == OPENING_IDLE ? WORK_BEGIN : WORK_OPEN;
    }
    lock_release(&opening->lock);
}

/* ---- taking ---- */

/*
 * By force only what is beyond ours: an operator who forces the opening does not mean our own log
 * to be cut for one that ends before it.
 */
static void take(struct opening *opening, const struct job *job)
{
    lock_acquire(&opening->lock);
    struct opening_member *member = &opening->members[job->index];
    bool higher = member->place.number != opening->own.number
                      ? member->place.number > opening->own.number
                      : member->place.end > opening->own.end;
    bool force = opening->forced && higher;
    bool skip = opening->forced && !higher && member->refused;
    bool go = opening->stage == OPENING_WAITING && !member->given_up;
    if (go && skip) {
        member->taken = true;
    } else if (go) {
        opening->stage = OPENING_TAKING;
        opening->taking = job->index;
        opening->take_ended = false;
    }
    struct insync_member whom = member->member;
    lock_release(&opening->lock);
    if (go && skip)
        log_warn(opening->env->log, "member_passed_over",
                 "id=%" PRId64 " address=%s cause=\"its log contradicts ours and is behind it, and "
                 "the opening was forced\"",
                 whom.id, whom.ha_address);
    else if (go)
        opening->options.take(opening->options.part.arg, whom.ha_address, force);
}

static void taken(struct opening *opening, const struct job *job, int64_t now_ns)
{
    const struct insync_member *whom = &job->member.member;
    opening->options.part.self(opening->options.part.arg, &opening->self);
    lock_acquire(&opening->lock);
    struct opening_member *member = &opening->members[job->index];
    enum tern_code code = opening->take_code;
    opening->cut |= opening_was_cut(&opening->own, &opening->self);
    opening->own = opening_place_of(&opening->self);
    opening->stage = OPENING_WAITING;
    if (code == TERN_OK) {
        member->taken = true;
        opening->failure[0] = '\0';
    } else if (code == TERN_STATE) {
        member->refused = true;
        member->take_ns =
            now_ns + ms_to_ns(opening->forced ? OPENING_AGAIN_MS : OPENING_REFUSED_MS);
    } else {
        member->answered = false;
        member->look_ns = now_ns + ms_to_ns(OPENING_AGAIN_MS);
        int64_t patience_ns = ms_to_ns(opening->options.part.ha->recover_timeout_ms);
        opening->deadline_ns = now_ns + patience_ns;
        opening->complain_ns = opening->deadline_ns;
    }
    if (code != TERN_OK)
        snprintf(opening->failure, sizeof opening->failure, "the copy from %" PRId64 " (%.100s) %s",
                 whom->id, whom->ha_address,
                 code == TERN_STATE ? "wants mqadmin forceOpen" : "broke off");
    lock_release(&opening->lock);
    if (code == TERN_OK)
        log_info(opening->env->log, "member_taken", "id=%" PRId64 " address=%s end=%" PRId64,
                 whom->id, whom->ha_address, opening->self.log_end);
    else
        log_warn(opening->env->log, "member_not_taken", "id=%" PRId64 " address=%s code=%s",
                 whom->id, whom->ha_address, tern_code_name(code));
}

/* ---- opening ---- */

/* The set from now on: who was on record and is not given up. @locks holds */
static void fill_set(const struct opening *opening, struct insync_set *set)
{
    set->count = 0;
    for (size_t i = 0; i < opening->count && set->count < INSYNC_MAX; i++)
        if (opening->members[i].in_set && !opening->members[i].given_up)
            set->members[set->count++] = opening->members[i].member;
}

static void open_now(struct opening *opening, int64_t now_ns)
{
    struct insync_set set;
    struct tern_error err = {.text = ""};
    lock_acquire(&opening->lock);
    fill_set(opening, &set);
    bool unclean = opening->options.part.ha->recovered_unclean && !opening->opened_once;
    bool refilled = opening->own_empty && opening->own.number != 0; /* what was here is not known */
    bool raise = unclean || opening->forced || opening->lost || opening->cut || refilled ||
                 opening->was_copy;
    uint64_t number = opening->highest;
    lock_release(&opening->lock);

    enum tern_code code =
        opening->options.open(opening->options.part.arg, &set, raise, number, &err);

    lock_acquire(&opening->lock);
    if (code == TERN_OK) {
        opening->stage = OPENING_OPEN;
        opening->opened_once = true;
    } else {
        opening->begin_ns = now_ns + ms_to_ns(OPENING_AGAIN_MS);
        snprintf(opening->failure, sizeof opening->failure, "%.180s", error_text(&err, code));
    }
    lock_release(&opening->lock);
    if (code != TERN_OK)
        log_error(opening->env->log, "opening_failed", "cause=\"%s\" again_in_ms=%d",
                  error_text(&err, code), OPENING_AGAIN_MS);
}

/* An ASYNC_MASTER's patience has ended. */
static void give_up_missing(struct opening *opening)
{
    char names[512] = "";
    lock_acquire(&opening->lock);
    opening_name_missing(opening, names, sizeof names);
    int64_t end = opening->own.end;
    for (size_t i = 0; i < opening->count; i++) {
        if (opening->members[i].answered || opening->members[i].given_up)
            continue;
        give_up(opening, &opening->members[i]);
        opening->lost = true;
    }
    lock_release(&opening->lock);
    log_warn(opening->env->log, "opens_without_members",
             "members=\"%s\" cause=\"no answer within recoverFromSlaveTimeout\" effect=\"what they "
             "hold beyond %" PRId64 " may be lost; they leave the set\"",
             names, end);
}

static void complain(struct opening *opening)
{
    char text[512];
    opening_text(opening, text, sizeof text);
    log_error(opening->env->log, "not_open",
              "state=\"%s\" next=\"bring them back, or mqadmin forceOpen gives up what they alone "
              "have\"",
              text);
}

static void begin_again(struct opening *opening, int64_t now_ns)
{
    struct tern_error err = {.text = ""};
    enum tern_code code = opening_begin(opening, now_ns, &err);
    if (code != TERN_OK)
        log_error(opening->env->log, "opening_not_begun", "cause=\"%s\" again_in_ms=%d",
                  error_text(&err, code), OPENING_AGAIN_MS);
}

static void do_job(struct opening *opening, const struct job *job, int64_t now_ns)
{
    switch (job->work) {
    case WORK_BEGIN:
        begin_again(opening, now_ns);
        break;
    case WORK_LOOK:
        opening->options.look(opening->options.part.arg, job->member.member.ha_address);
        break;
    case WORK_TAKE:
        take(opening, job);
        break;
    case WORK_TAKEN:
        taken(opening, job, now_ns);
        break;
    case WORK_OPEN:
        open_now(opening, now_ns);
        break;
    case WORK_COMPLAIN:
        complain(opening);
        break;
    case WORK_GIVE_UP:
        give_up_missing(opening);
        break;
    case WORK_NONE:
        break;
    }
}

int64_t opening_step(struct opening *opening, int64_t now_ns)
{
    for (;;) {
        struct job job;
        int64_t next_ns;
        choose(opening, now_ns, &job, &next_ns);
        if (job.work == WORK_NONE)
            return next_ns;
        do_job(opening, &job, now_ns);
    }
}

/* ---- told ---- */

void opening_taken(struct opening *opening, enum tern_code code)
{
    lock_acquire(&opening->lock);
    if (opening->stage == OPENING_TAKING) {
        opening->take_ended = true;
        opening->take_code = code;
    }
    lock_release(&opening->lock);
    opening->options.part.wake(opening->options.part.arg);
}

/* Somebody whose log an empty store must not be opened beside. @locks holds */
static const struct opening_member *non_empty_slave(const struct opening *opening)
{
    if (!opening->own_empty)
        return NULL;
    for (size_t i = 0; i < opening->count; i++)
        if (opening->members[i].has_log && !opening->members[i].taken &&
            !opening->members[i].given_up)
            return &opening->members[i];
    return NULL;
}

/* @locks holds */
static struct opening_member *find_uuid(struct opening *opening, const uint8_t uuid[HA_UUID_BYTES])
{
    for (size_t i = 0; i < opening->count; i++)
        if (memcmp(opening->members[i].member.uuid, uuid, HA_UUID_BYTES) == 0)
            return &opening->members[i];
    return NULL;
}

/* Whether the word may be followed. @locks holds */
static enum tern_code check_force(struct opening *opening, const uint8_t *discard,
                                  const struct opening_member *discarded, struct tern_error *err)
{
    if (opening->stage == OPENING_OPEN)
        return error_set(err, TERN_STATE, "the master is open: there is nothing to force");
    if (opening->stage == OPENING_IDLE)
        return error_set(err, TERN_STATE, "the master does not wait for anybody yet: try again");
    if (discard && !discarded)
        return error_set(err, TERN_STATE,
                         "no slave with the store UUID given is waited for: mqadmin brokerStatus "
                         "shows who is");
    if (discarded && opening->stage == OPENING_TAKING &&
        discarded == &opening->members[opening->taking])
        return error_set(err, TERN_STATE,
                         "the log of slave %" PRId64 " (%s) is being copied: wait for its end, or "
                         "stop that slave first",
                         discarded->member.id, discarded->member.ha_address);
    const struct opening_member *slave = discard ? NULL : non_empty_slave(opening);
    if (slave)
        return error_set(err, TERN_STATE,
                         "the store here is empty and slave %" PRId64
                         " (%s) holds a log up to %" PRId64
                         ": it is copied; to open without it give --discard-slave and its store's "
                         "UUID",
                         slave->member.id, slave->member.ha_address, slave->place.end);
    return TERN_OK;
}

enum tern_code opening_force(struct opening *opening, const uint8_t discard[HA_UUID_BYTES],
                             struct tern_error *err)
{
    char names[512] = "";
    lock_acquire(&opening->lock);
    struct opening_member *discarded = discard ? find_uuid(opening, discard) : NULL;
    enum tern_code code = check_force(opening, discard, discarded, err);
    if (code == TERN_OK) {
        opening->forced = true;
        opening_name_missing(opening, names, sizeof names);
        for (size_t i = 0; i < opening->count; i++) {
            struct opening_member *member = &opening->members[i];
            if (member == discarded || !member->answered)
                give_up(opening, member);
            member->take_ns = 0;
        }
    }
    lock_release(&opening->lock);
    if (code != TERN_OK)
        return code;
    log_warn(opening->env->log, "opening_forced", "given_up=\"%s\" discarded=%s", names,
             discarded ? "yes" : "no");
    opening->options.part.wake(opening->options.part.arg);
    return TERN_OK;
}
