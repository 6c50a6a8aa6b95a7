// franz-go copies a topic in transactions of a group, with its offsets, and aborts every third. Prints one JSON object.
//
//	go run ./transact HOST:PORT
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	input, output = "in", "out"
	group         = "copiers"
	records       = 120
	perPoll       = 10
)

type seen struct {
	Copied      []int `json:"copied"`
	Aborted     int   `json:"aborted"`
	Uncommitted int   `json:"uncommitted"`
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	seed := kgo.SeedBrokers(os.Args[1])
	fill(ctx, seed)
	aborted, discarded := transact(ctx, seed)
	must(0, json.NewEncoder(os.Stdout).Encode(seen{
		Copied:      read(ctx, seed, kgo.ReadCommitted(), records),
		Aborted:     aborted,
		Uncommitted: len(read(ctx, seed, kgo.ReadUncommitted(), records+discarded)) - discarded,
	}))
}

func fill(ctx context.Context, seed kgo.Opt) {
	client := must(kgo.NewClient(seed, kgo.DefaultProduceTopic(input), kgo.AllowAutoTopicCreation()))
	defer client.Close()
	for i := range records {
		must(0, client.ProduceSync(ctx, &kgo.Record{Value: []byte(strconv.Itoa(i))}).FirstErr())
	}
}

// transact returns how many transactions it has aborted when all records are copied, and their records.
func transact(ctx context.Context, seed kgo.Opt) (aborted, discarded int) {
	session := must(kgo.NewGroupTransactSession(
		seed, kgo.TransactionalID("copier"), kgo.ConsumerGroup(group), kgo.ConsumeTopics(input),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DefaultProduceTopic(output),
		kgo.AllowAutoTopicCreation(),
	))
	defer session.Close()
	for copied, turn := 0, 1; copied < records; turn++ {
		batch := session.PollRecords(ctx, perPoll).Records()
		must(0, ctx.Err())
		must(0, session.Begin())
		for _, record := range batch {
			session.Produce(ctx, &kgo.Record{Value: record.Value}, func(_ *kgo.Record, err error) { must(0, err) })
		}
		// An abort would give up what is not sent yet.
		must(0, session.Client().Flush(ctx))
		committed := must(session.End(ctx, kgo.TransactionEndTry(turn%3 != 0)))
		if committed {
			copied += len(batch)
		} else {
			aborted++
			discarded += len(batch)
		}
	}
	return aborted, discarded
}

// read returns the values of at least `count` records, in order.
func read(ctx context.Context, seed kgo.Opt, isolation kgo.IsolationLevel, count int) []int {
	client := must(kgo.NewClient(
		seed, kgo.ConsumeTopics(output), kgo.FetchIsolationLevel(isolation),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	))
	defer client.Close()
	var found []int
	for len(found) < count {
		for _, record := range client.PollFetches(ctx).Records() {
			found = append(found, must(strconv.Atoi(string(record.Value))))
		}
		must(0, ctx.Err())
	}
	return found
}
