package org.ternmq.oracle;

import java.io.File;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * RocketMQ's DefaultMessageStore as an oracle for ours.
 *
 * <pre>
 *   write DIR    a new store with one of everything, stopped cleanly
 *   crash DIR    the same, but the process dies and the last record is torn
 *   read DIR     opens (and recovers, so give it a copy) any store, prints it as JSON lines
 *   extend DIR   opens any store (likewise), appends some messages, stops cleanly
 * </pre>
 *
 * File sizes are small and fixed; `read` takes those of the log and the queues from the files'
 * lengths and those of the index from the constants here.
 */
public final class StoreOracle {
    static final int SEGMENT_BYTES = 64 * 1024;
    static final int QUEUE_FILE_BYTES = 200 * 20;
    static final int INDEX_SLOTS = 100;
    static final int INDEX_ENTRIES = 400;

    private StoreOracle() {
    }

    /** As a slave it delivers no delayed messages, so a store that is only read stays as it is. */
    static DefaultMessageStore open(String dir, int segmentBytes, int queueFileBytes,
        BrokerRole role) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(dir);
        config.setBrokerRole(role);
        config.setStorePathCommitLog(dir + File.separator + "commitlog");
        config.setMappedFileSizeCommitLog(segmentBytes);
        config.setMappedFileSizeConsumeQueue(queueFileBytes);
        config.setMaxHashSlotNum(INDEX_SLOTS);
        config.setMaxIndexNum(INDEX_ENTRIES);
        config.setFlushDiskType(FlushDiskType.ASYNC_FLUSH);
        config.setHaListenPort(0); // any free one: nobody replicates from here
        // A test machine's disk may be fuller than a broker's should be.
        config.setDiskMaxUsedSpaceRatio(95);
        BrokerConfig broker = new BrokerConfig();
        broker.setLongPollingEnable(false);
        DefaultMessageStore store = new DefaultMessageStore(config,
            new BrokerStatsManager("DefaultCluster", false), (topic, queueId, offset, code, time,
                bits, properties) -> { }, broker);
        if (!store.load()) {
            throw new IllegalStateException(dir + ": RocketMQ does not load this store");
        }
        store.start();
        return store;
    }

    /** Length of any file below dir/name, or the default when there is none. */
    private static int fileLength(File dir, int otherwise) {
        File[] entries = dir.listFiles();
        if (entries == null) {
            return otherwise;
        }
        for (File entry : entries) {
            int found = entry.isDirectory() ? fileLength(entry, 0) : (int) entry.length();
            if (found > 0) {
                return found;
            }
        }
        return otherwise;
    }

    private static void read(String dir) throws Exception {
        int segment = fileLength(new File(dir, "commitlog"), SEGMENT_BYTES);
        int queueFile = fileLength(new File(dir, "consumequeue"), QUEUE_FILE_BYTES);
        DefaultMessageStore store = open(dir, segment, queueFile, BrokerRole.SLAVE);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8.name());
        new StoreReader(store, out).print();
        out.flush();
        store.shutdown();
    }

    private static int run(String command, String dir) throws Exception {
        switch (command) {
            case "write":
                new StoreWriter(dir, true).writeAndStop();
                return 0;
            case "crash":
                new StoreWriter(dir, true).writeAndCrash();
                return 0;
            case "extend":
                new StoreWriter(dir, false).extendAndStop();
                return 0;
            case "read":
                read(dir);
                return 0;
            default:
                System.err.println("StoreOracle: no command " + command);
                return 2;
        }
    }

    /** RocketMQ leaves threads behind, so every way out of here is an exit(). */
    public static void main(String[] args) {
        if (args.length != 2) {
            System.err.println("usage: StoreOracle write|crash|read|extend DIR");
            System.exit(2);
        }
        try {
            System.exit(run(args[0], args[1]));
        } catch (Exception e) {
            e.printStackTrace();
            System.exit(1);
        }
    }
}
