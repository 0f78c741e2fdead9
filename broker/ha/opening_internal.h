/* How a master starts: opening.c has the stages, opening_members.c who is waited for. */
#ifndef HA_OPENING_INTERNAL_H
#define HA_OPENING_INTERNAL_H

#include "base/lock.h"
#include "broker/ha/opening.h"

enum {
    OPENING_MEMBERS_MAX = 2 * INSYNC_MAX,
    OPENING_LOOK_MS = 1000,     /* between two looks at one member */
    OPENING_AGAIN_MS = 1000,    /* before what failed is tried again */
    OPENING_REFUSED_MS = 5000,  /* before a take is tried again that wanted force */
    OPENING_COMPLAIN_MS = 30000 /* between two lines of log about what is waited for */
};

/* The last epoch of a log and its end: what two logs are compared by. */
struct opening_place {
    uint64_t number, id;
    int64_t end;
};

struct opening_member {
    struct insync_member member;
    bool in_set;   /* on record */
    bool given_up; /* not waited for, and not in the set from the opening on */
    bool unlisted; /* known from a nameserver's list only, and on none any more: not waited for */
    bool answered;
    bool has_log; /* as it showed once */
    bool taken;   /* what it has is here, or it has nothing */
    bool refused; /* its log contradicts ours: the take wants force */
    struct opening_place place;
    int64_t look_ns; /* when to ask it again who it is */
    int64_t take_ns; /* not to be taken before */
};

enum opening_stage {
    OPENING_IDLE,
    OPENING_SEARCHING, /* empty, no set: for a nameserver that lists our slaves */
    OPENING_WAITING,
    OPENING_TAKING, /* the tail, or tables alone */
    OPENING_BEGINNING,
    OPENING_OPEN
};

struct opening {
    struct opening_options options;
    const struct env *env;

    struct lock lock; /* HA_OPENING, down to the next comment */
    enum opening_stage stage;
    int64_t deadline_ns;           /* of waiting */
    bool searches;                 /* slaves that nameservers list are waited for */
    uint32_t nameservers_answered; /* the most of one round */
    size_t count;
    struct opening_member members[OPENING_MEMBERS_MAX];
    size_t taking;            /* OPENING_TAKING: index of the member */
    bool take_ended;          /* its code: */
    enum tern_code take_code; /* as opening_taken() said */
    bool own_empty;
    struct opening_place own; /* as of the beginning or the last take */
    bool forced, lost;        /* lost: members of the set were given up */
    bool cut;                 /* our own log was, on the way */
    bool was_copy;            /* others' epochs and no set on record: no master was ever here */
    bool opened_once;
    uint64_t highest; /* epoch number seen anywhere */
    int64_t begin_ns; /* IDLE, BEGINNING: when to try */
    int64_t complain_ns;
    char failure[192]; /* why the last attempt to open or take failed; may be empty */

    /* the ha task's */
    struct ha_member self;
};

/* ---- opening_members.c; @locks holds:HA_OPENING ---- */

/* The last epoch and the end of a member's log. */
struct opening_place opening_place_of(const struct ha_member *member);
bool opening_is_empty(const struct ha_member *member);
/* A log that has something ours has not, or contradicts it. */
bool opening_is_beyond(const struct opening_place *own, const struct opening_place *other);
/* Whether our log, which held all up to `before`, does not any more: its last epoch, as far. */
bool opening_was_cut(const struct opening_place *before, const struct ha_member *now);
/* Adds one that is to be waited for; NULL: the list is full. */
struct opening_member *opening_add(struct opening *opening, const struct insync_member *member);
struct opening_member *opening_find(struct opening *opening, int64_t id,
                                    const uint8_t uuid[HA_UUID_BYTES]);
/* Waited for, and has not answered. */
size_t opening_missing(const struct opening *opening);
/* Somebody of them is not on record: a slave that nameservers list, and we are empty. */
bool opening_listed_missing(const struct opening *opening);
/* Answered, and something of it is still to be taken. */
bool opening_untaken(const struct opening *opening);
/* The one to take next, with the most beyond ours first; NULL: none at this time. */
struct opening_member *opening_best(struct opening *opening, int64_t now_ns);
/* Appends "2 (10.0.0.3:10912)" for each that has not answered. */
void opening_name_missing(const struct opening *opening, char *out, size_t size);

#endif
