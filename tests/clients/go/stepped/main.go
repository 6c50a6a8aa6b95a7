// franz-go, led from outside: a step for each line of the standard input, an answer for each. Steps: "write VALUE",
// which begins a transaction where none is open, "commit", "abort", and "read COUNT" committed values from the topic's
// beginning.
//
//	go run ./stepped HOST:PORT[,HOST:PORT...] TOPIC TRANSACTIONAL_ID TRANSACTION_TIMEOUT_MS
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const stepWithin = 20 * time.Second

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func main() {
	seed, topic := kgo.SeedBrokers(strings.Split(os.Args[1], ",")...), os.Args[2]
	timeout := time.Duration(must(strconv.Atoi(os.Args[4]))) * time.Millisecond
	client := must(kgo.NewClient(
		seed, kgo.DefaultProduceTopic(topic), kgo.TransactionalID(os.Args[3]), kgo.TransactionTimeout(timeout),
	))
	defer client.Close()
	isOpen := false
	steps := bufio.NewScanner(os.Stdin)
	for steps.Scan() {
		verb, argument, _ := strings.Cut(steps.Text(), " ")
		switch verb {
		case "write":
			if !isOpen {
				must(0, client.BeginTransaction())
			}
			isOpen = true
			fmt.Println(write(client, argument))
		case "read":
			fmt.Println(strings.Join(read(seed, topic, must(strconv.Atoi(argument))), " "))
		default:
			isOpen = false
			end(client, kgo.TransactionEndTry(verb == "commit"))
			fmt.Println("ended")
		}
	}
}

func write(client *kgo.Client, value string) string {
	ctx, cancel := context.WithTimeout(context.Background(), stepWithin)
	defer cancel()
	err := client.ProduceSync(ctx, &kgo.Record{Value: []byte(value)}).FirstErr()
	var refused *kerr.Error
	if errors.As(err, &refused) {
		return "refused " + refused.Message
	}
	must(0, err)
	return "written"
}

func end(client *kgo.Client, commit kgo.TransactionEndTry) {
	ctx, cancel := context.WithTimeout(context.Background(), stepWithin)
	defer cancel()
	must(0, client.EndTransaction(ctx, commit))
}

func read(seed kgo.Opt, topic string, count int) []string {
	ctx, cancel := context.WithTimeout(context.Background(), stepWithin)
	defer cancel()
	client := must(kgo.NewClient(
		seed, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	))
	defer client.Close()
	var found []string
	for len(found) < count {
		for _, record := range client.PollFetches(ctx).Records() {
			found = append(found, string(record.Value))
		}
		must(0, ctx.Err())
	}
	return found
}
