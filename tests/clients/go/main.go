// franz-go as a group of three that rebalances cooperatively while records are being produced.
// Prints one JSON object of what it saw.
//
//	go run . HOST:PORT
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	topic      = "events"
	group      = "readers"
	partitions = 6
	records    = 6000
)

type seen struct {
	Distinct      int   `json:"distinct"`
	Repeated      int   `json:"repeated"`
	OutOfOrder    int   `json:"out_of_order"`
	Committed     int64 `json:"committed"`
	MembersAtWork int   `json:"members_at_work"`
}

// tally counts each record by its place, and checks that a partition is read in order.
type tally struct {
	mu         sync.Mutex
	places     map[string]int
	next       map[int32]int64
	outOfOrder int
	members    map[int]bool
	enough     chan struct{}
	all        chan struct{}
}

func (t *tally) add(member int, batch []*kgo.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range batch {
		t.members[member] = true
		if r.Offset != t.next[r.Partition] {
			t.outOfOrder++
		}
		t.next[r.Partition] = r.Offset + 1
		t.places[fmt.Sprintf("%d:%d", r.Partition, r.Offset)]++
		switch len(t.places) {
		case records / 3:
			closeOnce(t.enough)
		case records:
			closeOnce(t.all)
		}
	}
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	seed := kgo.SeedBrokers(os.Args[1])
	producer := must(kgo.NewClient(seed, kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(time.Millisecond)))
	defer producer.Close()
	createTopic(ctx, producer)

	t := &tally{
		places: map[string]int{}, next: map[int32]int64{}, members: map[int]bool{},
		enough: make(chan struct{}), all: make(chan struct{}),
	}
	var stops []func()
	for i := range 3 {
		stops = append(stops, startMember(ctx, i, seed, t))
	}
	awaitEvenShares(ctx, producer, 3)
	go produce(ctx, producer)
	wait(ctx, t.enough)
	stops[0]()
	wait(ctx, t.all)
	awaitEvenShares(ctx, producer, 2)
	stops[1]()
	stops[2]()
	report(t, committed(ctx, producer))
}

func createTopic(ctx context.Context, client *kgo.Client) {
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = topic, partitions, 1
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics = append(request.Topics, wanted)
	response := must(request.RequestWith(ctx, client))
	must(0, kerr.ErrorForCode(response.Topics[0].ErrorCode))
}

func produce(ctx context.Context, client *kgo.Client) {
	for i := range records {
		record := &kgo.Record{Key: []byte(strconv.Itoa(i)), Value: []byte("value")}
		client.Produce(ctx, record, func(_ *kgo.Record, err error) { must(0, err) })
		if i%100 == 0 {
			must(0, client.Flush(ctx))
		}
	}
	must(0, client.Flush(ctx))
}

// startMember consumes until stop is called, which leaves the group after the last commit.
func startMember(ctx context.Context, number int, seed kgo.Opt, t *tally) (stop func()) {
	client := must(kgo.NewClient(
		seed, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.HeartbeatInterval(200*time.Millisecond),
	))
	polling, stopPolling := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for polling.Err() == nil {
			fetches := client.PollRecords(polling, 100)
			t.add(number, fetches.Records())
			if len(fetches.Records()) > 0 {
				must(0, client.CommitRecords(ctx, fetches.Records()...))
			}
			client.AllowRebalance()
		}
	}()
	return func() {
		stopPolling()
		<-done
		client.CloseAllowingRebalance()
	}
}

func wait(ctx context.Context, event chan struct{}) {
	select {
	case <-event:
	case <-ctx.Done():
		must(0, ctx.Err())
	}
}

// awaitEvenShares returns when the group is stable and each of its members has as many partitions as the others.
func awaitEvenShares(ctx context.Context, client *kgo.Client, members int) {
	for !evenShares(ctx, client, members) {
		time.Sleep(20 * time.Millisecond)
	}
}

func evenShares(ctx context.Context, client *kgo.Client, members int) bool {
	request := kmsg.NewPtrDescribeGroupsRequest()
	request.Groups = []string{group}
	response, err := request.RequestWith(ctx, client)
	if errors.Is(err, kerr.CoordinatorNotAvailable) {
		return false // The first group of a broker makes it create the topic of the groups.
	}
	described := must(response, err).Groups[0]
	if described.State != "Stable" || len(described.Members) != members {
		return false
	}
	for _, member := range described.Members {
		var assignment kmsg.ConsumerMemberAssignment
		must(0, assignment.ReadFrom(member.MemberAssignment))
		if len(assignment.Topics) != 1 || len(assignment.Topics[0].Partitions) != partitions/members {
			return false
		}
	}
	return true
}

func committed(ctx context.Context, client *kgo.Client) (total int64) {
	asked := kmsg.NewOffsetFetchRequestGroup()
	asked.Group = group
	request := kmsg.NewPtrOffsetFetchRequest()
	request.Group = group
	request.Groups = append(request.Groups, asked)
	for _, each := range must(request.RequestWith(ctx, client)).Groups[0].Topics {
		for _, partition := range each.Partitions {
			total += partition.Offset
		}
	}
	return total
}

func report(t *tally, committed int64) {
	result := seen{
		Distinct: len(t.places), OutOfOrder: t.outOfOrder, Committed: committed,
		MembersAtWork: len(t.members),
	}
	for _, times := range t.places {
		if times > 1 {
			result.Repeated++
		}
	}
	must(0, json.NewEncoder(os.Stdout).Encode(result))
}
