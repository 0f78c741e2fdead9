package org.ternmq.oracle;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;

import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/**
 * Prints a store as JSON lines, all of it found by RocketMQ: one "store" line, per queue a "queue"
 * line and its "message" lines in order, then a "query" line for each key.
 */
final class StoreReader {
    private static final int QUERY_MAX = 64;
    private static final int BODY_CRC_AT = 8; // in a record

    private final DefaultMessageStore store;
    private final PrintStream out;
    private final TreeMap<String, TreeSet<Long>> keys = new TreeMap<>();

    StoreReader(DefaultMessageStore store, PrintStream out) {
        this.store = store;
        this.out = out;
    }

    void print() {
        printStore();
        Map<String, TreeMap<Integer, ConsumeQueue>> queues = new TreeMap<>();
        store.getConsumeQueueTable().forEach(
            (topic, byId) -> queues.put(topic, new TreeMap<>(byId)));
        queues.forEach((topic, byId) -> byId.forEach((id, queue) -> printQueue(topic, id, queue)));
        keys.forEach(this::printQuery);
    }

    private void line(Map<String, Object> fields) {
        out.println(JSON.toJSONString(fields, SerializerFeature.WriteMapNullValue));
    }

    private static Map<String, Object> fields(String kind) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("kind", kind);
        return fields;
    }

    /** Walks the log as RocketMQ's recovery does, CRC included. */
    private void printStore() {
        long at = store.getMinPhyOffset();
        long end = store.getMaxPhyOffset();
        long records = 0;
        long recordsEnd = at;
        while (at < end) {
            SelectMappedBufferResult bytes = store.getCommitLog().getData(at);
            DispatchRequest request =
                store.getCommitLog().checkMessageAndReturnSize(bytes.getByteBuffer(), true, true);
            bytes.release();
            if (!request.isSuccess()) {
                throw new IllegalStateException("RocketMQ finds no record at " + at);
            }
            if (request.getMsgSize() > 0) {
                records++;
                at += request.getMsgSize();
                recordsEnd = at;
            } else {
                at = store.getCommitLog().rollNextFile(at);
            }
        }
        Map<String, Object> fields = fields("store");
        fields.put("minPhysOffset", store.getMinPhyOffset());
        fields.put("maxPhysOffset", end);
        fields.put("recordsEnd", recordsEnd);
        fields.put("records", records);
        line(fields);
    }

    private void printQueue(String topic, int queueId, ConsumeQueue queue) {
        long min = queue.getMinOffsetInQueue();
        long max = queue.getMaxOffsetInQueue();
        if (max == 0) { // looking a queue up makes its object
            return;
        }
        Map<String, Object> fields = fields("queue");
        fields.put("topic", topic);
        fields.put("queueId", queueId);
        fields.put("minOffset", min);
        fields.put("maxOffset", max);
        line(fields);
        long next = min;
        while (next < max) {
            GetMessageResult result =
                store.getMessage("oracle", topic, queueId, next, 32, null);
            if (result.getStatus() != GetMessageStatus.FOUND) {
                throw new IllegalStateException(
                    topic + "/" + queueId + " at " + next + ": " + result.getStatus());
            }
            for (ByteBuffer bytes : result.getMessageBufferList()) {
                printMessage(queue, bytes, next++);
            }
            result.release();
        }
    }

    private void printMessage(ConsumeQueue queue, ByteBuffer bytes, long offset) {
        int storedCrc = bytes.getInt(bytes.position() + BODY_CRC_AT);
        MessageExt msg = MessageDecoder.decode(bytes, true, false);
        SelectMappedBufferResult unit = queue.getIndexBuffer(offset);
        long phys = unit.getByteBuffer().getLong();
        int size = unit.getByteBuffer().getInt();
        long tagsCode = unit.getByteBuffer().getLong();
        unit.release();
        int crc = UtilAll.crc32(msg.getBody());
        if (msg.getQueueOffset() != offset || msg.getCommitLogOffset() != phys
            || msg.getStoreSize() != size || crc != storedCrc) {
            throw new IllegalStateException("unit " + offset + " does not fit its record: " + msg);
        }
        Map<String, Object> fields = fields("message");
        fields.put("topic", msg.getTopic());
        fields.put("queueId", msg.getQueueId());
        fields.put("queueOffset", msg.getQueueOffset());
        fields.put("physOffset", msg.getCommitLogOffset());
        fields.put("size", msg.getStoreSize());
        fields.put("msgId", MessageDecoder.createMessageId(
            (InetSocketAddress) msg.getStoreHost(), msg.getCommitLogOffset()));
        fields.put("tags", msg.getTags());
        fields.put("tagsCode", tagsCode);
        fields.put("keys", msg.getKeys());
        fields.put("flag", msg.getFlag());
        fields.put("sysFlag", msg.getSysFlag());
        fields.put("bornTimestamp", msg.getBornTimestamp());
        fields.put("storeTimestamp", msg.getStoreTimestamp());
        fields.put("bornHost", hostText(msg.getBornHost()));
        fields.put("storeHost", hostText(msg.getStoreHost()));
        fields.put("reconsumeTimes", msg.getReconsumeTimes());
        fields.put("preparedTransactionOffset", msg.getPreparedTransactionOffset());
        fields.put("bodyLength", msg.getBody() == null ? 0 : msg.getBody().length);
        fields.put("bodyCRC", crc);
        fields.put("properties", new TreeMap<>(msg.getProperties()));
        line(fields);
        for (String key : keysOf(msg)) {
            keys.computeIfAbsent(msg.getTopic() + "#" + key, k -> new TreeSet<>()).add(phys);
        }
    }

    private static String hostText(Object host) {
        InetSocketAddress address = (InetSocketAddress) host;
        return address.getAddress().getHostAddress() + " " + address.getPort();
    }

    private static List<String> keysOf(MessageExt msg) {
        List<String> all = new ArrayList<>();
        String unique = msg.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
        if (unique != null) {
            all.add(unique);
        }
        if (msg.getKeys() != null) {
            Arrays.stream(msg.getKeys().split(MessageConst.KEY_SEPARATOR))
                .filter(key -> !key.isEmpty()).forEach(all::add);
        }
        return all;
    }

    /**
     * What the index gives for the key, less the messages that only share its hash, as a RocketMQ
     * client leaves them out.
     */
    private void printQuery(String topicAndKey, TreeSet<Long> expected) {
        int hash = topicAndKey.indexOf('#');
        String topic = topicAndKey.substring(0, hash);
        String key = topicAndKey.substring(hash + 1);
        QueryMessageResult result =
            store.queryMessage(topic, key, QUERY_MAX, 0, Long.MAX_VALUE);
        TreeSet<Long> found = new TreeSet<>();
        for (ByteBuffer bytes : result.getMessageBufferList()) {
            MessageExt msg = MessageDecoder.decode(bytes, true, false);
            if (msg.getTopic().equals(topic) && keysOf(msg).contains(key)) {
                found.add(msg.getCommitLogOffset());
            }
        }
        result.release();
        Map<String, Object> fields = fields("query");
        fields.put("topic", topic);
        fields.put("key", key);
        fields.put("physOffsets", found);
        fields.put("inQueues", expected.size());
        line(fields);
    }
}
