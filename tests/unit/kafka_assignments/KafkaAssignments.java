// Prints what Kafka's own assignors make of random groups, one JSON object a line: tests/unit/test_assignors.py compares.
//
//   javac -cp kafka-clients.jar:slf4j-api.jar -d out KafkaAssignments.java
//   java -cp out:kafka-clients.jar:slf4j-api.jar org.apache.kafka.clients.consumer.KafkaAssignments > kafka_assignments.jsonl
package org.apache.kafka.clients.consumer;

import java.nio.ByteBuffer;
import java.util.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractStickyAssignor.MemberData;
import org.apache.kafka.common.TopicPartition;

public class KafkaAssignments {
    static final int GROUPS = 60, ROUNDS = 3;

    record Member(String id, String instance, List<String> topics, List<TopicPartition> owned, int generation) {}

    public static void main(String[] args) {
        Random random = new Random(7);
        for (int group = 0; group < GROUPS; group++) {
            Map<String, Integer> counts = new TreeMap<>();
            for (int topic = random.nextInt(4); topic >= 0; topic--) counts.put("t" + topic, 1 + random.nextInt(6));
            boolean alike = random.nextBoolean();
            List<Member> members = new ArrayList<>();
            for (int number = random.nextInt(5); number >= 0; number--) members.add(newcomer(random, counts, alike));
            for (int round = 0; round < ROUNDS; round++) {
                Map<String, List<TopicPartition>> sticky = print(counts, members);
                int generation = round + 1;
                List<Member> next = new ArrayList<>();
                for (Member each : members) {
                    if (members.size() > 1 && random.nextInt(4) == 0) continue;
                    next.add(new Member(each.id, each.instance, each.topics, sticky.get(each.id), generation));
                }
                if (next.isEmpty() || random.nextInt(2) == 0) next.add(newcomer(random, counts, alike));
                members = next;
            }
        }
    }

    static Member newcomer(Random random, Map<String, Integer> counts, boolean alike) {
        List<String> topics = counts.keySet().stream().filter(t -> alike || random.nextBoolean()).collect(Collectors.toList());
        if (topics.isEmpty()) topics = List.of(counts.keySet().iterator().next());
        String instance = random.nextInt(4) == 0 ? "i" + random.nextInt(1_000) : null;
        return new Member("m" + random.nextInt(1_000_000), instance, topics, List.of(), -1);
    }

    static Map<String, List<TopicPartition>> print(Map<String, Integer> counts, List<Member> members) {
        Map<String, List<TopicPartition>> sticky = assign(new StickyAssignor(), counts, members);
        System.out.println("{\"counts\": {" + join(counts.entrySet(), e -> text(e.getKey()) + ": " + e.getValue()) + "}, \"members\": ["
            + join(members, m -> "{\"id\": " + text(m.id) + ", \"instance\": " + text(m.instance) + ", \"topics\": ["
                + join(m.topics, t -> text(t)) + "], \"owned\": " + places(m.owned) + ", \"generation\": " + m.generation + "}")
            + "], \"range\": " + map(assign(new RangeAssignor(), counts, members))
            + ", \"roundrobin\": " + map(assign(new RoundRobinAssignor(), counts, members))
            + ", \"sticky\": " + map(sticky)
            + ", \"cooperative-sticky\": " + map(assign(new CooperativeStickyAssignor(), counts, members)) + "}");
        return sticky;
    }

    static Map<String, List<TopicPartition>> assign(AbstractPartitionAssignor assignor, Map<String, Integer> counts, List<Member> members) {
        Map<String, Subscription> subscriptions = new TreeMap<>();
        for (Member each : members) {
            ByteBuffer memory = null;
            if (assignor instanceof StickyAssignor && each.generation >= 0)
                memory = StickyAssignor.serializeTopicPartitionAssignment(new MemberData(each.owned, Optional.of(each.generation)));
            Subscription subscription = new Subscription(each.topics, memory, each.owned, each.generation, Optional.empty());
            subscription.setGroupInstanceId(Optional.ofNullable(each.instance));
            subscriptions.put(each.id, subscription);
        }
        // As the client does it: the assignor hears of the topics that somebody subscribes to.
        Map<String, Integer> subscribed = new TreeMap<>(counts);
        subscribed.keySet().removeIf(topic -> members.stream().noneMatch(each -> each.topics.contains(topic)));
        return assignor.assign(subscribed, subscriptions);
    }

    static String map(Map<String, List<TopicPartition>> assignment) {
        return "{" + join(new TreeMap<>(assignment).entrySet(), e -> text(e.getKey()) + ": " + places(e.getValue())) + "}";
    }

    static String places(List<TopicPartition> partitions) {
        return "[" + join(partitions, p -> "[" + text(p.topic()) + ", " + p.partition() + "]") + "]";
    }

    static <T> String join(Collection<T> items, java.util.function.Function<T, String> form) {
        return items.stream().map(form).collect(Collectors.joining(", "));
    }

    static String text(String value) {
        return value == null ? "null" : "\"" + value + "\"";
    }
}
