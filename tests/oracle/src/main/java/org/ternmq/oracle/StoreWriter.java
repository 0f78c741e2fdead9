package org.ternmq.oracle;

import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.protocol.body.ConsumerOffsetSerializeWrapper;
import org.apache.rocketmq.common.protocol.body.SubscriptionGroupWrapper;
import org.apache.rocketmq.common.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.config.BrokerRole;

/** Fills a store with one of everything, as a broker would hand it over. */
final class StoreWriter {
    private static final String[] TAGS = {"TagA", "TagB", "标签", "Aa", "BB", "été", "😀", null};
    private static final String[] WORDS = {
        "commit", "log", "queue", "offset", "broker", "Nachricht", "消息", "flush", "slave", "\n"};
    /** Two hours: not delivered while the store is written. */
    private static final int LEVEL_NEVER = 18;
    private static final int LEVEL_ONE_SECOND = 1;

    private final String dir;
    private final DefaultMessageStore store;
    private final Random random = new Random(4098);
    private int serial;

    StoreWriter(String dir, boolean fresh) throws Exception {
        this.dir = dir;
        new File(dir).mkdirs();
        if (fresh) {
            writeConfig();
        }
        store = StoreOracle.open(dir, StoreOracle.SEGMENT_BYTES, StoreOracle.QUEUE_FILE_BYTES,
            BrokerRole.ASYNC_MASTER);
    }

    void writeAndStop() throws Exception {
        writeAll();
        Thread.sleep(2500); // the message of one second's delay is delivered meanwhile
        stop();
    }

    /** Goes on in a store that has messages already, whoever wrote them. */
    void extendAndStop() throws Exception {
        serial = 1 << 20; // other unique ids than before
        for (int i = 0; i < 300; i++) {
            put(message("TopicTest", i % 4, TAGS[i % TAGS.length], "extended-" + i, text(i)));
        }
        stop();
    }

    private void stop() throws Exception {
        awaitDispatch();
        store.shutdown();
        if (new File(dir, "abort").exists()) {
            throw new IllegalStateException("RocketMQ did not stop cleanly");
        }
    }

    /**
     * The process dies while the last record is being written: its second half is still zeros. The
     * mapped files keep what was written before, as the page cache does.
     */
    void writeAndCrash() throws Exception {
        writeAll();
        awaitDispatch();
        AppendMessageResult last = put(message("TopicTest", 0, "TagA", "torn", text(900)));
        awaitDispatch();
        tear(last);
        Runtime.getRuntime().halt(0);
    }

    private void tear(AppendMessageResult last) throws IOException {
        long segment = last.getWroteOffset() / StoreOracle.SEGMENT_BYTES * StoreOracle.SEGMENT_BYTES;
        String path = String.format("%s/commitlog/%020d", dir, segment);
        int half = last.getWroteBytes() / 2;
        try (RandomAccessFile file = new RandomAccessFile(path, "rw")) {
            file.seek(last.getWroteOffset() - segment + half);
            file.write(new byte[last.getWroteBytes() - half]);
        }
    }

    private void awaitDispatch() throws InterruptedException {
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(10);
        }
    }

    private void writeAll() throws Exception {
        for (int i = 0; i < 240; i++) {
            String keys = i % 3 == 0 ? "order-" + i : i % 3 == 1 ? "Aa order-" + (i - 1) + "  BB" : null;
            put(message("TopicTest", i % 4, TAGS[i % TAGS.length], keys, text(random.nextInt(400))));
            if (i % 40 == 39) {
                putBatch("Orders", i / 40 % 2, 7);
            }
        }
        put(message("Orders", 0, "TagA", "empty", new byte[0]));
        put(message("Orders", 1, null, null, text(1)));
        for (int i = 0; i < 6; i++) {
            put(message("large_topic", 0, "TagB", "large-" + i, text(20000 + i * 4000)));
        }
        for (int i = 0; i < 450; i++) { // more than two files of a queue
            put(message("small-topic", 2, i % 2 == 0 ? "TagA" : "TagB", null, text(8)));
        }
        putOddOnes();
    }

    private void putOddOnes() throws Exception {
        MessageExtBrokerInner v6 = message("TopicTest", 1, "TagA", "v6", text(50));
        v6.setBornHost(new InetSocketAddress(InetAddress.getByName("2001:db8::1"), 40000));
        v6.setBornHostV6Flag();
        put(v6);
        MessageExtBrokerInner bothV6 = message("TopicTest", 2, "TagA", "v6", text(50));
        bothV6.setBornHost(new InetSocketAddress(InetAddress.getByName("2001:db8::1"), 40000));
        bothV6.setBornHostV6Flag();
        bothV6.setStoreHost(new InetSocketAddress(InetAddress.getByName("2001:db8::2"), 10911));
        bothV6.setStoreHostAddressV6Flag();
        put(bothV6);
        MessageExtBrokerInner flags = message("TopicTest", 3, "TagA||TagB", "flags", text(50));
        flags.setFlag(-7);
        flags.setReconsumeTimes(3);
        flags.setSysFlag(flags.getSysFlag() | MessageSysFlag.MULTI_TAGS_FLAG);
        put(flags);
        put(message("%RETRY%group_a", 0, "TagA", "retried", text(60)));
        put(delayed(LEVEL_NEVER));
        put(delayed(LEVEL_ONE_SECOND));
        putTransaction();
        MessageExtBrokerInner props = message("TopicTest", 0, "TagB", "props", text(20));
        MessageAccessor.putProperty(props, "schlüssel", "wert mit leerzeichen");
        MessageAccessor.putProperty(props, "long", new String(text(3000), StandardCharsets.UTF_8));
        finish(props);
        put(props);
    }

    private MessageExtBrokerInner delayed(int level) {
        MessageExtBrokerInner msg =
            message("TopicTest", 0, "TagA", "delayed-" + level, text(100));
        MessageAccessor.putProperty(msg, MessageConst.PROPERTY_DELAY_TIME_LEVEL, "" + level);
        return finish(msg);
    }

    /** Types as the log can hold them; a broker stores a half message as an ordinary one. */
    private void putTransaction() {
        put(message("RMQ_SYS_TRANS_HALF_TOPIC", 0, "TagA", "half", text(100)));
        AppendMessageResult prepared =
            put(typed(MessageSysFlag.TRANSACTION_PREPARED_TYPE, "prepared", 0));
        put(typed(MessageSysFlag.TRANSACTION_COMMIT_TYPE, "committed", prepared.getWroteOffset()));
        put(typed(MessageSysFlag.TRANSACTION_ROLLBACK_TYPE, "rolled-back",
            prepared.getWroteOffset()));
    }

    private MessageExtBrokerInner typed(int type, String key, long preparedOffset) {
        MessageExtBrokerInner msg = message("TopicTest", 1, "TagA", key, text(100));
        msg.setSysFlag(msg.getSysFlag() | type);
        msg.setPreparedTransactionOffset(preparedOffset);
        return msg;
    }

    private byte[] text(int bytes) {
        StringBuilder text = new StringBuilder();
        while (text.length() < bytes) {
            text.append(WORDS[random.nextInt(WORDS.length)]).append(' ');
        }
        byte[] all = text.toString().getBytes(StandardCharsets.UTF_8);
        byte[] some = new byte[bytes];
        System.arraycopy(all, 0, some, 0, bytes);
        for (int i = bytes - 1; i >= 0 && i > bytes - 4; i--) { // no character cut in two
            some[i] = (byte) ('a' + i % 26);
        }
        return some;
    }

    private String uniqueId() {
        return String.format("C0000201%024X", ++serial);
    }

    private MessageExtBrokerInner message(String topic, int queueId, String tags, String keys,
        byte[] body) {
        MessageExtBrokerInner msg = new MessageExtBrokerInner();
        msg.setTopic(topic);
        msg.setQueueId(queueId);
        msg.setBody(body);
        msg.setBornTimestamp(System.currentTimeMillis());
        msg.setBornHost(new InetSocketAddress("192.0.2.1", 54321));
        msg.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
        if (tags != null) {
            msg.setTags(tags);
        }
        if (keys != null) {
            msg.setKeys(keys);
        }
        MessageAccessor.putProperty(
            msg, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, uniqueId());
        MessageAccessor.putProperty(msg, MessageConst.PROPERTY_CLUSTER, "DefaultCluster");
        return finish(msg);
    }

    private static MessageExtBrokerInner finish(MessageExtBrokerInner msg) {
        msg.setPropertiesString(MessageDecoder.messageProperties2String(msg.getProperties()));
        msg.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(msg.getTags()));
        return msg;
    }

    private AppendMessageResult put(MessageExtBrokerInner msg) {
        return accepted(store.putMessage(msg));
    }

    private void putBatch(String topic, int queueId, int count) {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Message msg = new Message(topic, text(30 + i));
            msg.setTags(i % 2 == 0 ? "TagA" : "标签");
            msg.setKeys("batch-" + i);
            MessageAccessor.putProperty(
                msg, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, uniqueId());
            messages.add(msg);
        }
        MessageExtBatch batch = new MessageExtBatch();
        batch.setTopic(topic);
        batch.setQueueId(queueId);
        batch.setBornTimestamp(System.currentTimeMillis());
        batch.setBornHost(new InetSocketAddress("192.0.2.1", 54321));
        batch.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
        batch.setBody(MessageDecoder.encodeMessages(messages));
        MessageAccessor.putProperty(batch, MessageConst.PROPERTY_WAIT_STORE_MSG_OK, "true");
        MessageAccessor.putProperty(batch, MessageConst.PROPERTY_CLUSTER, "DefaultCluster");
        accepted(store.putMessages(batch));
    }

    private static AppendMessageResult accepted(PutMessageResult result) {
        if (result.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
            throw new IllegalStateException("RocketMQ refuses: " + result);
        }
        return result.getAppendMessageResult();
    }

    // ---- config/*.json: RocketMQ's serialized classes, saved by RocketMQ's own function ----

    /** Twice, so that the .bak files are there too. */
    private void writeConfig() throws IOException {
        new File(dir, "config").mkdirs();
        TopicConfigSerializeWrapper topics = topics();
        SubscriptionGroupWrapper groups = groups();
        for (int i = 0; i < 2; i++) {
            topics.getDataVersion().nextVersion();
            groups.getDataVersion().nextVersion();
            save("topics.json", topics.toJson(true));
            save("subscriptionGroup.json", groups.toJson(true));
            save("consumerOffset.json", offsets(i).toJson(true));
        }
    }

    private void save(String name, String text) throws IOException {
        MixAll.string2File(text, dir + File.separator + "config" + File.separator + name);
    }

    private static TopicConfigSerializeWrapper topics() {
        TopicConfigSerializeWrapper topics = new TopicConfigSerializeWrapper();
        topics.setTopicConfigTable(new ConcurrentHashMap<>());
        for (String name : new String[] {"TopicTest", "Orders", "large_topic", "small-topic",
            "%RETRY%group_a", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"}) {
            TopicConfig config = new TopicConfig(name, 4, 4, 6);
            config.setOrder(name.equals("Orders"));
            topics.getTopicConfigTable().put(name, config);
        }
        return topics;
    }

    private static SubscriptionGroupWrapper groups() {
        SubscriptionGroupWrapper groups = new SubscriptionGroupWrapper();
        groups.setSubscriptionGroupTable(new ConcurrentHashMap<>());
        for (String name : new String[] {"group_a", "group_b"}) {
            SubscriptionGroupConfig config = new SubscriptionGroupConfig();
            config.setGroupName(name);
            groups.getSubscriptionGroupTable().put(name, config);
        }
        return groups;
    }

    private static ConsumerOffsetSerializeWrapper offsets(int generation) {
        ConsumerOffsetSerializeWrapper offsets = new ConsumerOffsetSerializeWrapper();
        offsets.setOffsetTable(new ConcurrentHashMap<>());
        ConcurrentHashMap<Integer, Long> queues = new ConcurrentHashMap<>();
        for (int i = 0; i < 4; i++) {
            queues.put(i, 5L * i + generation);
        }
        offsets.getOffsetTable().put("TopicTest@group_a", queues);
        return offsets;
    }
}
