/*
 * Configuration rows of the broker. Keys that RocketMQ has and this product does not offer are rows
 * too: they are refused with the word that explains it, never ignored.
 */
#include "broker/broker_config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/names.h"
#include "base/record.h"

#define FIELD(name) offsetof(struct broker_config, name)
#define MIB (INT64_C(1) << 20)
#define GIB (INT64_C(1) << 30)

/* clang-format off */
static const struct config_row rows[] = {
    {.key = "brokerClusterName", .type = CONFIG_STRING, .offset = FIELD(cluster_name), .fallback = "DefaultCluster", .min = 1, .max = BROKER_NAME_MAX,
     .help = "Cluster this broker belongs to."},
    {.key = "brokerName", .type = CONFIG_STRING, .offset = FIELD(broker_name), .fallback = "", .max = BROKER_NAME_MAX,
     .help = "Name of the broker set; a master and its slaves share it. Empty: the host's name."},
    {.key = "brokerId", .type = CONFIG_INT, .offset = FIELD(broker_id), .fallback = "0", .min = 0, .max = 255,
     .help = "0 is the master, others are slaves."},
    {.key = "brokerRole", .type = CONFIG_ENUM, .offset = FIELD(role), .fallback = "ASYNC_MASTER", .choices = "ASYNC_MASTER|SYNC_MASTER|SLAVE",
     .help = "Whether sends wait for a slave (SYNC_MASTER), or this is one."},
    {.key = "flushDiskType", .type = CONFIG_ENUM, .offset = FIELD(flush_type), .fallback = "SYNC_FLUSH", .choices = "SYNC_FLUSH|ASYNC_FLUSH",
     .help = "SYNC_FLUSH answers a send after its bytes are on disk."},
    {.key = "namesrvAddr", .type = CONFIG_STRING, .offset = FIELD(namesrv_addr), .fallback = "", .max = 255,
     .help = "Nameservers, host:port separated by ';'. Empty: NAMESRV_ADDR; neither: the broker registers nowhere."},
    {.key = "listenAddr", .type = CONFIG_STRING, .offset = FIELD(listen_addr), .fallback = "127.0.0.1", .min = 1, .max = 64,
     .help = "Address to listen on. Beyond loopback anybody who reaches it may send, read and administer."},
    {.key = "listenPort", .type = CONFIG_INT, .offset = FIELD(listen_port), .fallback = "10911", .min = 0, .max = 65535,
     .help = "Port to listen on; 0: any free one."},
    {.key = "advertiseAddr", .type = CONFIG_STRING, .offset = FIELD(advertise_addr), .fallback = "", .max = 120,
     .help = "host or host:port that clients are told. Empty: listenAddr and listenPort."},
    {.key = "haListenPort", .type = CONFIG_INT, .offset = FIELD(ha_listen_port), .fallback = "10912", .min = 0, .max = 65535,
     .help = "Port of replication, on listenAddr; 0: any free one. Whoever reaches it can copy the whole log."},
    {.key = "haMasterAddress", .type = CONFIG_STRING, .offset = FIELD(ha_master_address), .fallback = "", .max = 120,
     .help = "A slave's: host:port of its master's replication, until a nameserver names it."},
    {.key = "inSyncReplicas", .type = CONFIG_STRING, .offset = FIELD(in_sync_replicas_text), .fallback = "1", .min = 1, .max = 8,
     .help = "SYNC_MASTER: how many slaves of the in-sync set must have a message before it is answered, 1..15 or 'all'; never more than are in the set."},
    {.key = "minInSyncReplicas", .type = CONFIG_INT, .offset = FIELD(min_in_sync_replicas), .fallback = "0", .min = 0, .max = 15,
     .help = "With fewer slaves in sync sends are refused. 0: the master alone goes on, answering SLAVE_NOT_AVAILABLE."},
    {.key = "haMaxTimeSlaveNotCatchup", .type = CONFIG_DURATION, .offset = FIELD(ha_max_behind_ms), .fallback = "15s", .min = 100, .max = 600000,
     .help = "A slave that was not heard of, or has not caught up, for so long leaves the in-sync set."},
    {.key = "consumeVisibility", .type = CONFIG_ENUM, .offset = FIELD(consume_visibility), .fallback = "auto", .choices = "auto|written|confirmed",
     .help = "What consumers may see: everything written, or only what the in-sync replicas have. auto: confirmed for a SYNC_MASTER."},
    {.key = "recoverFromSlave", .type = CONFIG_BOOL, .offset = FIELD(recover_from_slave), .fallback = "true",
     .help = "A starting master takes from its slaves what it lacks before it opens for writes."},
    {.key = "recoverFromSlaveTimeout", .type = CONFIG_DURATION, .offset = FIELD(recover_timeout_ms), .fallback = "30s", .min = 100, .max = 3600000,
     .help = "How long it waits for them: then an ASYNC_MASTER opens, a SYNC_MASTER waits for mqadmin forceOpen."},
    {.key = "maxHaTransferByteInSecond", .type = CONFIG_SIZE, .offset = FIELD(ha_transfer_rate), .fallback = "320MiB", .min = 0, .max = 64 * GIB,
     .help = "Bytes a second that a slave more than 64 MiB behind gets while messages are being sent; 0: no limit."},
    {.key = "brokerPermission", .live = true, .type = CONFIG_INT, .offset = FIELD(broker_permission), .fallback = "6", .min = 0, .max = 7,
     .help = "4 read, 2 write: what this broker serves."},
    {.key = "logLevel", .live = true, .type = CONFIG_ENUM, .offset = FIELD(log_level), .fallback = "info", .choices = "debug|info|warn|error",
     .help = "Least level that is logged; the log goes to stderr."},

    {.key = "storePathRootDir", .type = CONFIG_STRING, .offset = FIELD(store_root), .fallback = "", .max = 200,
     .help = "Directory of the store. Empty: $HOME/store."},
    {.key = "mappedFileSizeCommitLog", .type = CONFIG_SIZE, .offset = FIELD(segment_bytes), .fallback = "1GiB", .min = 64 << 10, .max = 2 * GIB - 1,
     .help = "Size of a commit log segment. Fixed for the life of a store."},
    {.key = "mappedFileSizeConsumeQueue", .type = CONFIG_SIZE, .offset = FIELD(queue_file_bytes), .fallback = "6000000", .min = 20, .max = GIB,
     .help = "Size of a consume queue file, rounded up to a multiple of 20."},
    {.key = "messageIndexEnable", .type = CONFIG_BOOL, .offset = FIELD(index_enable), .fallback = "true",
     .help = "Index messages by key."},
    {.key = "maxHashSlotNum", .type = CONFIG_INT, .offset = FIELD(index_slots), .fallback = "5000000", .min = 16, .max = 100000000,
     .help = "Hash slots of an index file."},
    {.key = "maxIndexNum", .type = CONFIG_INT, .offset = FIELD(index_entries), .fallback = "20000000", .min = 16, .max = 90000000,
     .help = "Entries of an index file."},
    {.key = "flushIntervalCommitLog", .type = CONFIG_DURATION, .offset = FIELD(flush_interval_ms), .fallback = "500", .min = 1, .max = 600000,
     .help = "ASYNC_FLUSH: how often appended bytes are flushed; what a power loss may cost."},
    {.key = "flushIntervalConsumeQueue", .type = CONFIG_DURATION, .offset = FIELD(queue_flush_interval_ms), .fallback = "1000", .min = 10, .max = 600000,
     .help = "How often queue tails are written."},
    {.key = "syncFlushTimeout", .live = true, .type = CONFIG_DURATION, .offset = FIELD(sync_flush_timeout_ms), .fallback = "5000", .min = 10, .max = 600000,
     .help = "A send that is not on disk by then is answered FLUSH_DISK_TIMEOUT."},
    {.key = "fileReservedTime", .live = true, .type = CONFIG_DURATION, .offset = FIELD(retention_ms), .fallback = "72h", .min = 1, .max = INT64_C(10) * 365 * 86400000, .plain_unit_ms = 3600000,
     .help = "Messages older than this expire, whole segments at a time, at deleteWhen or above diskMaxUsedSpaceRatio. A bare number is hours."},
    {.key = "deleteWhen", .live = true, .type = CONFIG_STRING, .offset = FIELD(delete_when), .fallback = "04", .min = 1, .max = 80,
     .help = "Hours of the day (local time) when expired segments go, separated by ';'."},
    {.key = "diskMaxUsedSpaceRatio", .live = true, .type = CONFIG_INT, .offset = FIELD(disk_max_used_percent), .fallback = "75", .min = 10, .max = 95,
     .help = "Per cent of the disk in use above which expired segments go at once."},
    {.key = "diskSpaceCleanForciblyRatio", .live = true, .type = CONFIG_INT, .offset = FIELD(disk_clean_percent), .fallback = "85", .min = 10, .max = 100,
     .help = "Per cent above which the oldest segments go whatever their age."},
    {.key = "diskSpaceWarningLevelRatio", .live = true, .type = CONFIG_INT, .offset = FIELD(disk_warning_percent), .fallback = "90", .min = 10, .max = 100,
     .help = "Per cent above which sends are refused until there is room again."},
    {.key = "cleanResourceInterval", .type = CONFIG_DURATION, .offset = FIELD(clean_interval_ms), .fallback = "10000", .min = 100, .max = 3600000,
     .help = "How often expiry and disk fullness are looked at."},
    {.key = "maxMessageSize", .type = CONFIG_SIZE, .offset = FIELD(max_message_bytes), .fallback = "4MiB", .min = 1024, .max = 64 * MIB,
     .help = "Largest body of a message, and of a batch."},
    {.key = "accessMessageInMemoryMaxRatio", .live = true, .type = CONFIG_INT, .offset = FIELD(access_memory_percent), .fallback = "40", .min = 1, .max = 100,
     .help = "Per cent of physicalMemorySize behind the log's end that counts as being in memory."},
    {.key = "physicalMemorySize", .live = true, .type = CONFIG_SIZE, .offset = FIELD(physical_memory_bytes), .fallback = "0", .min = 0, .max = INT64_MAX,
     .help = "Memory to reckon with; 0: the cgroup's limit or the machine's."},
    {.key = "maxTransferBytesOnMessageInMemory", .live = true, .type = CONFIG_SIZE, .offset = FIELD(memory_bytes), .fallback = "262144", .min = 1024, .max = 64 * MIB,
     .help = "Bytes of one pull answer from memory."},
    {.key = "maxTransferCountOnMessageInMemory", .live = true, .type = CONFIG_INT, .offset = FIELD(memory_count), .fallback = "1024", .min = 1, .max = 1024,
     .help = "Messages of one pull answer from memory, when the consumer asks for as many."},
    {.key = "maxTransferBytesOnMessageInDisk", .live = true, .type = CONFIG_SIZE, .offset = FIELD(disk_bytes), .fallback = "65536", .min = 1024, .max = 64 * MIB,
     .help = "Bytes of one pull answer from disk."},
    {.key = "maxTransferCountOnMessageInDisk", .live = true, .type = CONFIG_INT, .offset = FIELD(disk_count), .fallback = "64", .min = 1, .max = 1024,
     .help = "Messages of one pull answer from disk."},
    {.key = "openFilesMax", .type = CONFIG_INT, .offset = FIELD(open_files), .fallback = "512", .min = 4, .max = 100000,
     .help = "Consume queue files kept open."},

    {.key = "slaveReadEnable", .type = CONFIG_BOOL, .offset = FIELD(slave_read_enable), .fallback = "true",
     .help = "Consumers may be sent to a slave."},
    {.key = "offsetCheckInSlave", .type = CONFIG_BOOL, .offset = FIELD(offset_check_in_slave), .fallback = "false",
     .help = "A slave corrects offsets that are outside its queues."},
    {.key = "enablePropertyFilter", .type = CONFIG_BOOL, .offset = FIELD(enable_property_filter), .fallback = "true",
     .help = "SQL92 expressions are allowed."},
    {.key = "autoCreateTopicEnable", .type = CONFIG_BOOL, .offset = FIELD(auto_create_topic), .fallback = "false",
     .help = "Sending to an unknown topic creates it."},
    {.key = "autoCreateSubscriptionGroup", .live = true, .type = CONFIG_BOOL, .offset = FIELD(auto_create_group), .fallback = "true",
     .help = "Consuming with an unknown group creates it."},
    {.key = "defaultTopicQueueNums", .type = CONFIG_INT, .offset = FIELD(default_topic_queues), .fallback = "8", .min = 1, .max = 1024,
     .help = "Queues of the template topic TBW102."},
    {.key = "traceTopicEnable", .type = CONFIG_BOOL, .offset = FIELD(trace_topic_enable), .fallback = "false",
     .help = "The broker has the topic that message traces go to, with one queue."},
    {.key = "msgTraceTopicName", .type = CONFIG_STRING, .offset = FIELD(trace_topic), .fallback = "RMQ_SYS_TRACE_TOPIC", .min = 1, .max = TOPIC_NAME_MAX,
     .help = "Name of that topic."},
    {.key = "longPollingEnable", .live = true, .type = CONFIG_BOOL, .offset = FIELD(long_polling_enable), .fallback = "true",
     .help = "Pulls at the end of a queue wait for a message; false: for shortPollingTimeMills only."},
    {.key = "shortPollingTimeMills", .live = true, .type = CONFIG_DURATION, .offset = FIELD(short_polling_ms), .fallback = "1000", .min = 10, .max = 60000,
     .help = "Wait of a pull when long polling is off."},
    {.key = "maxParkedPulls", .type = CONFIG_INT, .offset = FIELD(max_parked_pulls), .fallback = "50000", .min = 16, .max = 1000000,
     .help = "Parked pulls in all; beyond, the oldest are answered early."},
    {.key = "maxRequests", .type = CONFIG_INT, .offset = FIELD(max_requests), .fallback = "60000", .min = 64, .max = 1000000,
     .help = "Unanswered requests in all."},
    {.key = "maxRequestsPerClient", .type = CONFIG_INT, .offset = FIELD(max_requests_per_client), .fallback = "8192", .min = 16, .max = 1000000,
     .help = "Unanswered requests of one connection."},
    {.key = "maxConnections", .type = CONFIG_INT, .offset = FIELD(max_connections), .fallback = "10000", .min = 4, .max = 1000000,
     .help = "Client connections; further ones are closed. At most a half of the files that may be open."},
    {.key = "registerNameServerPeriod", .type = CONFIG_DURATION, .offset = FIELD(register_period_ms), .fallback = "30000", .min = 1000, .max = 60000,
     .help = "How often the broker registers with its nameservers."},
    {.key = "registerBrokerTimeoutMills", .type = CONFIG_DURATION, .offset = FIELD(register_timeout_ms), .fallback = "6000", .min = 100, .max = 60000,
     .help = "How long a registration may take."},
    {.key = "flushConsumerOffsetInterval", .live = true, .type = CONFIG_DURATION, .offset = FIELD(flush_offset_interval_ms), .fallback = "5000", .min = 100, .max = 600000,
     .help = "How often consumer progress is written to disk."},
    {.key = "messageDelayLevel", .type = CONFIG_STRING, .offset = FIELD(delay_level_text), .fallback = DELAY_LEVELS_DEFAULT, .min = 2, .max = 255,
     .help = "Delay levels, the first is 1: numbers with s, m, h or d. None may be longer than fileReservedTime; of the default ones those that are count as the last that is not."},
    {.key = "timerMaxDelay", .type = CONFIG_DURATION, .offset = FIELD(timer_max_delay_ms), .fallback = "40d", .min = 1000, .max = INT64_C(366) * 86400000,
     .help = "How far ahead a message's due time (TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC) may be; beyond, the send is refused."},

    {.key = "rejectTransactionMessage", .type = CONFIG_BOOL, .offset = FIELD(reject_transactions), .fallback = "false",
     .help = "Transactional messages are refused; outcomes of those that wait are still taken."},
    {.key = "transactionTimeOut", .type = CONFIG_DURATION, .offset = FIELD(transaction_timeout_ms), .fallback = "6000", .min = 10, .max = 86400000,
     .help = "A transaction that is undecided for so long is asked about at its producer group, unless its message names a longer time."},
    {.key = "transactionCheckInterval", .type = CONFIG_DURATION, .offset = FIELD(transaction_check_interval_ms), .fallback = "60000", .min = 10, .max = 86400000,
     .help = "How long after one check the next one follows."},
    {.key = "transactionCheckMax", .type = CONFIG_INT, .offset = FIELD(transaction_check_max), .fallback = "15", .min = 1, .max = 10000,
     .help = "Checks handed to a producer before a transaction goes to TRANS_CHECK_MAX_TIME_TOPIC."},
    {.key = "transactionPendingMax", .type = CONFIG_INT, .offset = FIELD(transaction_pending_max), .fallback = "100000", .min = 1, .max = 10000000,
     .help = "Undecided transactions in all, about 80 bytes of memory each; beyond, half messages are refused SYSTEM_BUSY."},

    {.key = "enableConsumeQueueExt", .type = CONFIG_BOOL, .refused = "ConsumeQueueExt is not offered; SQL92 filters work without it", .help = "Not offered."},
    {.key = "mappedFileSizeConsumeQueueExt", .type = CONFIG_SIZE, .refused = "ConsumeQueueExt is not offered", .help = "Not offered."},
    {.key = "bitMapLengthConsumeQueueExt", .type = CONFIG_INT, .refused = "ConsumeQueueExt is not offered", .help = "Not offered."},
    {.key = "transientStorePoolEnable", .type = CONFIG_BOOL, .refused = "the transient store pool is not offered; appending never writes through a mapping here", .help = "Not offered."},
    {.key = "transientStorePoolSize", .type = CONFIG_INT, .refused = "the transient store pool is not offered", .help = "Not offered."},
    {.key = "fastFailIfNoBufferInStorePool", .type = CONFIG_BOOL, .refused = "the transient store pool is not offered", .help = "Not offered."},
    {.key = "enableDLegerCommitLog", .type = CONFIG_BOOL, .refused = "a DLedger store is not supported: this is the classic master and slave", .help = "Not offered."},
    {.key = "brokerIP1", .type = CONFIG_STRING, .refused = "use listenAddr, and advertiseAddr when clients reach the broker by another address", .help = "Not offered."},
    {.key = "brokerIP2", .type = CONFIG_STRING, .refused = "replication listens at listenAddr, too, on haListenPort", .help = "Not offered."},
    {.key = "storePathCommitLog", .type = CONFIG_STRING, .refused = "the log is in commitlog/ of storePathRootDir; make that a link or a mount to have it elsewhere", .help = "Not offered."},
    {.key = "aclEnable", .type = CONFIG_BOOL, .refused = "there is no access control: listen on loopback or behind a firewall", .help = "Not offered."},
    {.key = "sendMessageThreadPoolNums", .type = CONFIG_INT, .refused = "there are no thread pools to size; maxRequests and maxRequestsPerClient are the bounds", .help = "Not offered."},
    {.key = "pullMessageThreadPoolNums", .type = CONFIG_INT, .refused = "there are no thread pools to size; maxParkedPulls bounds the pulls that wait", .help = "Not offered."},
    {.key = "sendThreadPoolQueueCapacity", .type = CONFIG_INT, .refused = "maxRequests and maxRequestsPerClient bound what waits", .help = "Not offered."},
    {.key = "waitTimeMillsInSendQueue", .type = CONFIG_DURATION, .refused = "sends do not queue for threads; beyond maxRequests they are refused at once", .help = "Not offered."},
    {.key = "brokerFastFailureEnable", .type = CONFIG_BOOL, .refused = "what is beyond a limit (maxRequests, maxParkedPulls) always fails at once", .help = "Not offered."},
    {.key = "osPageCacheBusyTimeOutMills", .type = CONFIG_DURATION, .refused = "appending does not wait for the page cache with a lock held; watch stageAppendWaitP99Us", .help = "Not offered."},
    {.key = "transferMsgByHeap", .type = CONFIG_BOOL, .refused = "there is no heap to choose", .help = "Not offered."},
    {.key = "useReentrantLockWhenPutMessage", .type = CONFIG_BOOL, .refused = "there is no lock to choose", .help = "Not offered."},
    {.key = "slaveTimeout", .type = CONFIG_DURATION, .refused = "syncFlushTimeout bounds the wait for the disk and for the slaves; haMaxTimeSlaveNotCatchup takes a silent slave out", .help = "Not offered."},
    {.key = "haSlaveFallbehindMax", .type = CONFIG_SIZE, .refused = "who is in sync is told by time: haMaxTimeSlaveNotCatchup", .help = "Not offered."},
    {.key = "haSendHeartbeatInterval", .type = CONFIG_DURATION, .refused = "haMaxTimeSlaveNotCatchup tells how long a slave may be silent", .help = "Not offered."},
    {.key = "haHousekeepingInterval", .type = CONFIG_DURATION, .refused = "haMaxTimeSlaveNotCatchup tells how long a slave may be silent", .help = "Not offered."},
    {.key = "cleanFileForciblyEnable", .type = CONFIG_BOOL, .refused = "the oldest segments go above diskSpaceCleanForciblyRatio: raise that", .help = "Not offered."},
    {.key = "warmMapedFileEnable", .type = CONFIG_BOOL, .refused = "segments are prepared ahead of need here, there is nothing to warm", .help = "Not offered."},
};
/* clang-format on */

/* logLevel's choices are in the order of enum log_level. */
_Static_assert(LOG_DEBUG == 0 && LOG_INFO == 1 && LOG_WARN == 2 && LOG_ERROR == 3,
               "logLevel: another order");

const struct config_table broker_config_table = {rows, sizeof rows / sizeof rows[0], "mqbroker"};

void broker_config_init(struct broker_config *config)
{
    memset(config, 0, sizeof *config);
    config_defaults(&broker_config_table, config);
    ENSURE(delay_levels_parse(config->delay_level_text, &config->delay_levels, NULL) == TERN_OK);
}

/* The memory that this process may use: the smallest cgroup v2 limit above it, else the machine's.
 */
static int64_t machine_memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page_bytes = sysconf(_SC_PAGESIZE);
    int64_t bytes = pages > 0 && page_bytes > 0 ? (int64_t)pages * page_bytes : GIB;
    FILE *limit = fopen("/sys/fs/cgroup/memory.max", "r");
    if (limit) {
        int64_t most;
        if (fscanf(limit, "%" SCNd64, &most) == 1 && most > 0 && most < bytes)
            bytes = most; /* "max" does not scan: no limit */
        fclose(limit);
    }
    return bytes;
}

uint32_t broker_config_hours(const char *text)
{
    uint32_t hours = 0;
    for (const char *at = text; *at;) {
        char *end;
        long hour = strtol(at, &end, 10);
        if (end == at || hour < 0 || hour > 23 || (*end && *end != ';'))
            return 0;
        hours |= UINT32_C(1) << hour;
        at = *end ? end + 1 : end;
    }
    return hours;
}

static enum tern_code fill_from_host(struct broker_config *config, struct tern_error *err)
{
    if (!config->broker_name[0] && gethostname(config->broker_name, BROKER_NAME_MAX) != 0)
        return error_set(err, TERN_CONFIG, "brokerName: empty, and the host has no name; set it");
    if (!config->store_root[0]) {
        const char *home = getenv("HOME");
        int len =
            snprintf(config->store_root, sizeof config->store_root, "%s/store", home ? home : "");
        if (!home || len >= 200)
            return error_set(err, TERN_CONFIG,
                             "storePathRootDir: empty, and HOME is not usable; set it");
    }
    if (!config->namesrv_addr[0]) {
        const char *addresses = getenv("NAMESRV_ADDR");
        if (addresses && strlen(addresses) < sizeof config->namesrv_addr)
            snprintf(config->namesrv_addr, sizeof config->namesrv_addr, "%s", addresses);
    }
    if (config->physical_memory_bytes == 0)
        config->physical_memory_bytes = machine_memory_bytes();
    return TERN_OK;
}

/* host:port, the host not empty, the port 1..65535 in plain digits; an IPv6 host in brackets. */
static bool names_host_and_port(const char *text, size_t len)
{
    const char *colon = memrchr(text, ':', len);
    size_t digits = colon ? (size_t)(text + len - colon) - 1 : 0;
    long port = 0;
    if (!colon || colon == text || digits < 1 || digits > 5)
        return false;
    for (size_t i = 1; i <= digits; i++) {
        if (colon[i] < '0' || colon[i] > '9')
            return false;
        port = 10 * port + (colon[i] - '0');
    }
    size_t host_len = (size_t)(colon - text);
    bool bracketed = text[0] == '[' && colon[-1] == ']' && host_len > 2;
    return port >= 1 && port <= 65535 && (bracketed || !memchr(text, ':', host_len)) &&
           !memchr(text, ' ', len);
}

static enum tern_code check_namesrvs(const struct broker_config *config, struct tern_error *err)
{
    const char *at = config->namesrv_addr;
    while (*at) {
        size_t len = strcspn(at, ";");
        if (len > 0 && !names_host_and_port(at, len))
            return error_set(err, TERN_CONFIG,
                             "namesrvAddr: '%.*s' is not host:port; several are separated by ';'",
                             (int)len, at);
        at += len + (at[len] == ';');
    }
    return TERN_OK;
}

/* Every address of this machine, with or without a port: to be listened on, not to be dialled. */
static bool means_any(const char *address)
{
    static const char *const forms[] = {"0.0.0.0", "[::]"};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        size_t len = strlen(forms[i]);
        if (!strncmp(address, forms[i], len) && (!address[len] || address[len] == ':'))
            return true;
    }
    return !strcmp(address, "::");
}

static enum tern_code check_addresses(const struct broker_config *config, struct tern_error *err)
{
    const char *listen = config->listen_addr, *told = config->advertise_addr;
    char text[CONFIG_STRING_BYTES + 8];
    struct host host;
    snprintf(text, sizeof text, strchr(listen, ':') ? "[%s]:1" : "%s:1", listen);
    if (host_parse(text, &host) != TERN_OK)
        return error_set(err, TERN_CONFIG, "listenAddr: '%s' is no IP address", listen);
    if (!told[0] && means_any(listen))
        return error_set(err, TERN_CONFIG,
                         "advertiseAddr: listenAddr is %s, which no client can dial; set "
                         "advertiseAddr to an address that they reach",
                         listen);
    if (means_any(told))
        return error_set(err, TERN_CONFIG,
                         "advertiseAddr: no client can dial '%s'; set it to an address that they "
                         "reach",
                         told);
    bool with_port =
        strchr(told, ':') && (told[0] == '[' || strchr(told, ':') == strrchr(told, ':'));
    if (with_port && !names_host_and_port(told, strlen(told)))
        return error_set(err, TERN_CONFIG, "advertiseAddr: '%s' is neither host nor host:port",
                         told);
    return check_namesrvs(config, err);
}

/* inSyncReplicas: a number or "all". */
static bool parse_replicas(const char *text, int64_t *out)
{
    char *end;
    if (!strcmp(text, "all")) {
        *out = INT64_MAX;
        return true;
    }
    long number = strtol(text, &end, 10);
    *out = number;
    return end != text && !*end && number >= 1 && number <= 15;
}

static enum tern_code check_replication(struct broker_config *config, struct tern_error *err)
{
    const char *master = config->ha_master_address;
    if (!parse_replicas(config->in_sync_replicas_text, &config->in_sync_replicas))
        return error_set(err, TERN_CONFIG, "inSyncReplicas: '%s' is neither 1..15 nor 'all'",
                         config->in_sync_replicas_text);
    if (master[0] && !names_host_and_port(master, strlen(master)))
        return error_set(err, TERN_CONFIG, "haMasterAddress: '%s' is not host:port", master);
    if (config->listen_port && config->listen_port == config->ha_listen_port)
        return error_set(err, TERN_CONFIG, "haListenPort: %" PRId64 " is listenPort, too",
                         config->ha_listen_port);
    if (config->consume_visibility == VISIBLE_AUTO)
        config->consume_visibility =
            config->role == ROLE_SYNC_MASTER ? VISIBLE_CONFIRMED : VISIBLE_WRITTEN;
    return TERN_OK;
}

/*
 * A message waits in the log as long as its level says, so it must not expire before (DL-04). A
 * short retention alone does not keep a broker from starting: RocketMQ's levels are then fewer.
 */
static enum tern_code check_delays(struct broker_config *config, struct tern_error *err)
{
    struct delay_levels *levels = &config->delay_levels;
    bool preset = !strcmp(config->delay_level_text, DELAY_LEVELS_DEFAULT);
    enum tern_code code = delay_levels_parse(config->delay_level_text, levels, err);
    for (uint32_t i = 0; code == TERN_OK && i < levels->count; i++) {
        if (levels->delay_ms[i] <= config->retention_ms)
            continue;
        if (!preset)
            return error_set(err, TERN_CONFIG,
                             "messageDelayLevel: level %" PRIu32 " of %" PRId64
                             " s is longer than fileReservedTime, %" PRId64
                             " s: messages would expire while they wait",
                             i + 1, levels->delay_ms[i] / 1000, config->retention_ms / 1000);
        levels->count = i > 0 ? i : 1;
    }
    return code;
}

/* Traces go to it like messages, so it must be a topic that clients may send to, and no group's. */
static enum tern_code check_trace_topic(const struct broker_config *config, struct tern_error *err)
{
    const char *name = config->trace_topic;
    enum tern_code code = topic_name_check(name, strlen(name), err);
    if (code != TERN_OK)
        return error_prefix(err, code, "msgTraceTopicName");
    if (topic_send_forbidden(name, strlen(name)) || !strcmp(name, DEFAULT_TOPIC) ||
        !strncmp(name, RETRY_TOPIC_PREFIX, strlen(RETRY_TOPIC_PREFIX)) ||
        !strncmp(name, DLQ_TOPIC_PREFIX, strlen(DLQ_TOPIC_PREFIX)))
        return error_set(err, TERN_CONFIG,
                         "msgTraceTopicName: '%s' serves something else already: choose another",
                         name);
    return TERN_OK;
}

enum tern_code broker_config_check(struct broker_config *config, struct tern_error *err)
{
    enum tern_code code = fill_from_host(config, err);
    if (code != TERN_OK)
        return code;
    if ((code = broker_name_check(config->cluster_name, strlen(config->cluster_name), err)))
        return error_prefix(err, code, "brokerClusterName");
    if ((code = broker_name_check(config->broker_name, strlen(config->broker_name), err)))
        return error_prefix(err, code, "brokerName");
    if ((config->broker_id == 0) != (config->role != ROLE_SLAVE))
        return error_set(err, TERN_CONFIG,
                         "brokerId: %" PRId64 " does not go with brokerRole: a master has id 0, a "
                         "slave another",
                         config->broker_id);
    if ((code = check_replication(config, err)) || (code = check_delays(config, err)) ||
        (code = check_trace_topic(config, err)))
        return code;
    if (!broker_config_hours(config->delete_when))
        return error_set(err, TERN_CONFIG,
                         "deleteWhen: '%s' is not a list of hours 0..23 separated by ';'",
                         config->delete_when);
    if (config->max_message_bytes + (128 << 10) > config->segment_bytes)
        return error_set(err, TERN_CONFIG,
                         "mappedFileSizeCommitLog: %" PRId64 " cannot hold a message of "
                         "maxMessageSize %" PRId64 " (it needs 128 KiB more than that)",
                         config->segment_bytes, config->max_message_bytes);
    if (config->disk_warning_percent < config->disk_clean_percent ||
        config->disk_clean_percent < config->disk_max_used_percent)
        return error_set(err, TERN_CONFIG,
                         "diskMaxUsedSpaceRatio %" PRId64 " <= diskSpaceCleanForciblyRatio %" PRId64
                         " <= diskSpaceWarningLevelRatio %" PRId64 " does not hold",
                         config->disk_max_used_percent, config->disk_clean_percent,
                         config->disk_warning_percent);
    return check_addresses(config, err);
}
