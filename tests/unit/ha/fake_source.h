/*
 * The other end of a replica: a server on the simulated network whose answers a test decides. It
 * holds a log made of epochs (fake_byte() of position and epoch id) from member.log_min to
 * member.log_end, parks fetches as a source does, and remembers what it was told.
 */
#ifndef TESTS_UNIT_HA_FAKE_SOURCE_H
#define TESTS_UNIT_HA_FAKE_SOURCE_H

#include "broker/ha/ha.h"
#include "broker/ha/ha_wire.h"
#include "rpc/server.h"
#include "tests/sim/link/sim_link.h"

enum fake_fault {
    FAKE_SOUND,
    FAKE_WRONG_FROM,
    FAKE_TOO_MUCH,
    FAKE_NO_EPOCH,
    FAKE_OLD_EPOCH,
    FAKE_OTHER_EPOCH, /* of the same number */
    FAKE_EPOCH_AHEAD, /* starts behind its bytes */
    FAKE_EPOCH_EARLY, /* a new one that began before bytes we have */
    FAKE_NEGATIVE,
    FAKE_OTHER_KIND,
    FAKE_FAULTS
};

struct fake_source {
    struct env *env;
    struct link *link;
    struct sim_sched *sched;
    struct rpc_server *server;
    struct ha_member member;
    /* what it answers */
    enum tern_code refuse; /* handshakes */
    uint32_t retry_ms;
    bool sync_flush;
    enum fake_fault fault;
    uint32_t chunk_max;
    int64_t confirmed;
    uint64_t progress; /* its own changes; sent when held is below */
    uint64_t topics_version;
    bool takes_no_progress;
    /* what it was told */
    unsigned handshakes, fetches, reports;
    bool refuses_cut, has_cut;
    int64_t cut_at;
    int purpose;
    struct ha_member heard;
    struct ha_held held;
    int64_t from, flushed, dispatched;
    uint64_t report_seen;   /* progress_seen of the last report */
    uint64_t reported;      /* progress_to of tables in reports */
    int64_t report_flushed; /* the last report's */
    uint64_t session;
    struct rpc_request *parked;
    uint64_t park_timer;
};

void fake_source_start(struct fake_source *source, struct env *env, struct sim_sched *sched,
                       struct link *link, const char *address);
void fake_source_stop(struct fake_source *source);
/* More bytes, or anything else that a parked fetch is answered for. */
void fake_source_push(struct fake_source *source);

#endif
