// Testcontainers' Kafka module for Go starts the image; a client outside of it produces and consumes.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/testcontainers/testcontainers-go/modules/kafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	container, err := kafka.Run(ctx, os.Args[1], kafka.WithClusterID("MkU3OEVBNTcwNTJENDM2Qk"))
	if err != nil {
		log.Fatal(err)
	}
	defer container.Terminate(context.Background())
	brokers, err := container.Brokers(ctx)
	if err != nil {
		log.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.AllowAutoTopicCreation(),
		kgo.ConsumeTopics("words"), kgo.ConsumerGroup("g"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	record := &kgo.Record{Topic: "words", Value: []byte("from outside")}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		log.Fatal(err)
	}
	fetched := client.PollFetches(ctx)
	if err := fetched.Err(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(fetched.Records()[0].Value))
}
