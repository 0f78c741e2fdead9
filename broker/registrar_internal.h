/*
 * What the registrar's two files share: registrar.c has its life and its rounds, registrar_calls.c
 * the calls to the nameservers.
 */
#ifndef BROKER_REGISTRAR_INTERNAL_H
#define BROKER_REGISTRAR_INTERNAL_H

#include <stdatomic.h>

#include "base/lock.h"
#include "base/sched.h"
#include "broker/broker_internal.h"
#include "broker/ha/ha.h"
#include "broker/registrar.h"

enum { MEMBERS_SEEN_MAX = 16 };

/* Calls to several nameservers, and one who waits until the last is answered or it is abandoned. */
struct flight {
    _Atomic size_t pending;
    _Atomic bool over; /* the latch was or is being set; true while nobody waits */
    struct latch done;
};

/* What a nameserver thinks of us. */
enum standing { STANDING_FINE, STANDING_UNTOLD, STANDING_REFUSED };

struct nameserver {
    struct registrar *registrar;
    struct rpc_peer *peer; /* NULL once stopped */
    bool known; /* it has topics of known_version; touched by a round or its callbacks only */
    uint64_t known_version;
    uint64_t sent_version;
    bool again;            /* it asked for the topics */
    enum tern_code result; /* of the last registration */
    int64_t told_ns;       /* when it took one last */
    char text[256];
    struct ha_seen_member members[MEMBERS_SEEN_MAX]; /* of our name, as it said last */
    size_t member_count;
    enum standing standing; /* as it was logged last; the task's, as the next two */
    int64_t logged_ns;
    uint64_t failures; /* since it was fine */
};

/* Somebody in registrar_publish(); lives on its stack while it is in the list. */
struct waiter {
    uint64_t round; /* the first that counts for it */
    enum tern_code code;
    struct tern_error err;
    struct latch ended;
    struct waiter *next;
};

struct registrar {
    struct broker *broker;
    struct rpc_client *client;
    struct task *task; /* under lock; NULL: does not run */
    _Atomic bool stopping;
    struct lock lock;       /* BROKER_REGISTRAR */
    uint64_t rounds_begun;  /* under lock */
    int64_t begun_ns;       /* under lock: the last round */
    int64_t due_ns;         /* under lock: the next; a wake-up before it means nothing, */
    int64_t coming_ns;      /* under lock: nor one before this, because a nameserver came */
    struct waiter *waiters; /* under lock */
    bool away;              /* a detached slave that has said goodbye; the task's */
    size_t first;           /* whose word counts first in this round; the task's */
    size_t count;
    struct nameserver servers[NAMESERVERS_MAX];
    struct flight round, goodbye;
};

struct topic_table {
    Tern__Wire__TopicConfig *topics;
    Tern__Wire__TopicConfig **pointers;
    struct topic_config *configs;
    size_t count;
    uint64_t version;
};

/*
 * Tells all nameservers (or only those that asked again) and waits. false: abandoned, results are
 * not to be touched.
 * @thread broker-register
 */
bool registrar_tell(struct registrar *registrar, const struct topic_table *table,
                    int64_t timeout_ms, bool only_again);

/* Tells every nameserver that is up that we are gone, and waits a little. @thread the task, or when
 * it is stopped */
void registrar_say_goodbyes(struct registrar *registrar);

/* Lets whoever waits for the flight go, whatever is still out. @thread any */
void flight_end(struct registrar *registrar, struct flight *flight);

/* The topic table as a registration carries it. Freed also after a failure. */
MUST_CHECK enum tern_code topic_table_fill(struct broker *broker, struct topic_table *table);
void topic_table_free(struct topic_table *table);

#endif
