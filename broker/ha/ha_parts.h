/* Replication's whole, for ha.c (assembly, events), ha_open.c and ha_stall.c (how a master opens,
 * and stands still), ha_asked.c (what the broker asks) and ha_admin.c (what operators ask). */
#ifndef HA_PARTS_H
#define HA_PARTS_H

#include <stdatomic.h>

#include "base/fs.h"
#include "base/lock.h"
#include "base/sched.h"
#include "broker/ha/opening.h"
#include "broker/ha/replica.h"
#include "broker/ha/source.h"

enum { HA_LEASE_MS = 60000 /* of a queue lock */ };

/* An event that the ha task takes further. */
struct todo {
    bool refused, taken, slave_cut;
    enum tern_code taken_code;
};

struct ha {
    struct env env;
    struct link *link;
    struct ha_options options; /* its texts point to the copies below */
    char cluster[BROKER_NAME_MAX + 1], name[BROKER_NAME_MAX + 1];
    char root[FS_PATH_BYTES];
    char listen_addr[HA_ADDRESS_BYTES], advertise_host[HA_ADDRESS_BYTES];
    char master_address[HA_ADDRESS_BYTES];
    char ha_address[HA_ADDRESS_BYTES]; /* set before the task starts */
    uint64_t life;

    struct epochs *epochs;
    struct source *source;
    struct replica *replica;
    struct opening *opening; /* a master's */
    struct rpc_server *server;
    struct rpc_client *client;
    struct lock
        task_lock;     /* HA_TASK: innermost, so that parts may wake the task under their locks */
    struct task *task; /* task_lock; NULL: does not run */

    _Atomic int state;          /* Tern__Wire__HaState */
    bool raised;                /* the ha task's: versions rose in an opening that failed later */
    _Atomic int64_t opened_end; /* a master's whole end at its opening: all before may be seen */
    _Atomic bool stopping;
    _Atomic uint32_t looks;     /* under way */
    _Atomic int64_t ticked_ns;  /* a master's task ran; 0: not yet */
    _Atomic int64_t stalled_ns; /* it had stood still, and is unsure since; 0: no */
    _Atomic uint32_t members;   /* in sync when it ticked last and was sure */

    struct lock lock; /* HA: the rest */
    char address[HA_ADDRESS_BYTES];
    struct todo todo;
    struct ha_member *refuser; /* the slave that made us stop; malloc'ed */
    int64_t alone_since_ns;    /* a slave's: without its master, or a word of it, since */
    int64_t locks_from_ns;     /* a master decides about locks from then on */
    bool master_spoke;         /* … but for a word of it */
    bool master_listed;        /* by the nameservers' last round */
    uint32_t nameservers_answered;
};

static inline bool ha_is_master(const struct ha *ha)
{
    return ha->options.mode != HA_MODE_SLAVE;
}

/* arg: the struct ha. @thread any @locks none */
void ha_fill_self(void *arg, struct ha_member *out);
/* arg: the struct ha; also under a part's lock. @thread any */
void ha_wake(void *arg);
/* @locks none */
void ha_set_state(struct ha *ha, int state);

/* ha_open.c, arg: the struct ha. @thread ha task */
void ha_look_at(void *arg, const char *ha_address);
void ha_take_from(void *arg, const char *ha_address, bool force);
/* What a master does before its first write. */
enum tern_code ha_open_writes(void *arg, const struct insync_set *set, bool raise, uint64_t number,
                              struct tern_error *err);
/* ha_stall.c: an open master stood still and does not know yet what its slaves did. @thread any
 * @locks none */
bool ha_unsure(struct ha *ha, int64_t now_ns);
/* Notes that the task runs; returns when to come again. @thread ha task */
int64_t ha_tick(struct ha *ha, int64_t now_ns);
/* A slave has a newer epoch: somebody else was master, or we lost ours. */
void ha_stop_writing(struct ha *ha, int64_t now_ns);
/* What came from a slave before it cut its log may lie beyond our queues. */
void ha_forget_cut_progress(struct ha *ha);

#endif
