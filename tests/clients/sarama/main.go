// What exporters of lag read, with the library that they use: kafka_exporter asks each broker for its groups, their
// members and offsets, and for the ends of partitions; Burrow reads __consumer_offsets by itself. Prints one JSON object.
//
//	go run . HOST:PORT
package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"

	"github.com/IBM/sarama"
)

const offsetsTopic = "__consumer_offsets"

type group struct {
	State    string           `json:"state"`
	Members  []string         `json:"members"`
	Assigned map[string]int   `json:"assigned"`
	Lag      map[string]int64 `json:"lag"`
}

type seen struct {
	Brokers int              `json:"brokers"`
	InSync  map[string]int   `json:"in_sync"`
	Groups  map[string]group `json:"groups"`
	Stored  map[string]int64 `json:"stored"`
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func main() {
	config := sarama.NewConfig()
	// As kafka_exporter has it where nothing else is said.
	config.Version = sarama.V2_0_0_0
	config.Metadata.AllowAutoTopicCreation = false
	client := must(sarama.NewClient(os.Args[1:2], config))
	defer client.Close()

	found := seen{Brokers: len(client.Brokers()), InSync: map[string]int{}, Groups: map[string]group{}}
	ends := map[string]map[int32]int64{}
	for _, topic := range must(client.Topics()) {
		ends[topic] = map[int32]int64{}
		for _, index := range must(client.Partitions(topic)) {
			must(client.Leader(topic, index))
			must(client.GetOffset(topic, index, sarama.OffsetOldest))
			ends[topic][index] = must(client.GetOffset(topic, index, sarama.OffsetNewest))
			found.InSync[topic] += len(must(client.InSyncReplicas(topic, index)))
		}
	}
	for _, broker := range client.Brokers() {
		if err := broker.Open(config); err != nil && err != sarama.ErrAlreadyConnected {
			must(0, err)
		}
		groupsOf(broker, ends, found.Groups)
	}
	found.Stored = stored(client, ends[offsetsTopic])
	fmt.Println(string(must(json.Marshal(found))))
}

func groupsOf(broker *sarama.Broker, ends map[string]map[int32]int64, found map[string]group) {
	ids := []string{}
	for id := range must(broker.ListGroups(&sarama.ListGroupsRequest{})).Groups {
		ids = append(ids, id)
	}
	for _, each := range must(broker.DescribeGroups(&sarama.DescribeGroupsRequest{Groups: ids})).Groups {
		described := group{each.State, []string{}, map[string]int{}, map[string]int64{}}
		for _, member := range each.Members {
			described.Members = append(described.Members, member.ClientId)
			for topic, indexes := range must(member.GetMemberAssignment()).Topics {
				described.Assigned[topic] += len(indexes)
			}
		}
		request := sarama.OffsetFetchRequest{ConsumerGroup: each.GroupId, Version: 4}
		for topic, indexes := range ends {
			for index := range indexes {
				request.AddPartition(topic, index)
			}
		}
		for topic, blocks := range must(broker.FetchOffset(&request)).Blocks {
			for index, block := range blocks {
				if block.Err != sarama.ErrNoError {
					must(0, block.Err)
				}
				if block.Offset >= 0 {
					described.Lag[fmt.Sprintf("%s:%d", topic, index)] = ends[topic][index] - block.Offset
				}
			}
		}
		found[each.GroupId] = described
	}
}

// The last offset of each group and partition that the topic has.
func stored(client sarama.Client, ends map[int32]int64) map[string]int64 {
	consumer := must(sarama.NewConsumerFromClient(client))
	offsets := map[string]int64{}
	for index, end := range ends {
		if end == 0 {
			continue
		}
		partition := must(consumer.ConsumePartition(offsetsTopic, index, sarama.OffsetOldest))
		for message := range partition.Messages() {
			// Version 1 of the key: group, topic, partition. The value begins with its version, then the offset.
			if binary.BigEndian.Uint16(message.Key) <= 1 && message.Value != nil {
				id, rest := text(message.Key[2:])
				topic, rest := text(rest)
				name := fmt.Sprintf("%s %s:%d", id, topic, binary.BigEndian.Uint32(rest))
				offsets[name] = int64(binary.BigEndian.Uint64(message.Value[2:]))
			}
			if message.Offset >= end-1 {
				break
			}
		}
		partition.AsyncClose()
	}
	return offsets
}

func text(bytes []byte) (string, []byte) {
	length := 2 + binary.BigEndian.Uint16(bytes)
	return string(bytes[2:length]), bytes[length:]
}
