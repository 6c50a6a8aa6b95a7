// Run it by: ottla run -- go test .
//
// Control over HTTP needs the standard library alone; the client is franz-go.
package orders

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type object = map[string]any

// ask gives the status and the answer of the broker's control address.
func ask(t *testing.T, method, path string, body any) (int, object) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(method, os.Getenv("OTTLA_CONTROL_URL")+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("OTTLA_CONTROL_TOKEN"))
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var document object
	if err := json.NewDecoder(answer.Body).Decode(&document); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, document
}

func must(t *testing.T, method, path string, body any) object {
	t.Helper()
	status, document := ask(t, method, path, body)
	if status >= 400 {
		t.Fatalf("%s %s: %v", method, path, document["detail"])
	}
	return document
}

func send(t *testing.T, value string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(os.Getenv("KAFKA_BOOTSTRAP_SERVERS"), ",")...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	record := &kgo.Record{Topic: "orders", Value: []byte(value)}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func values(t *testing.T) string {
	t.Helper()
	found := []string{}
	for _, each := range must(t, "GET", "/v1/topics/orders/records", nil)["records"].([]any) {
		found = append(found, fmt.Sprint(each.(object)["value"].(object)["text"]))
	}
	return strings.Join(found, " ")
}

func TestAnOrderGetsThereThoughTheLeaderHasMoved(t *testing.T) {
	must(t, "POST", "/v1/reset", object{})
	must(t, "POST", "/v1/topics", object{"name": "orders", "partitions": 1})
	must(t, "POST", "/v1/faults", object{
		"id":    "moved",
		"match": object{"api": "Produce", "topic": "orders"},
		"do":    object{"error": "NOT_LEADER_OR_FOLLOWER"},
		"times": 2,
	})

	send(t, "book")

	must(t, "POST", "/v1/wait", object{"for": "fault-hits", "fault": "moved", "hits": 2})
	if values(t) != "book" {
		t.Fatalf("the log has %s", values(t))
	}
}

func TestAWaitThatIsOverSaysWhy(t *testing.T) {
	must(t, "POST", "/v1/reset", object{})
	must(t, "POST", "/v1/topics", object{"name": "orders", "partitions": 1})

	status, late := ask(t, "POST", "/v1/wait", object{
		"for": "group-stable", "group": "shop", "members": 1, "within_ms": 50,
	})

	if status != http.StatusRequestTimeout || !strings.Contains(fmt.Sprint(late["text"]), "there is no group 'shop'") {
		t.Fatalf("%d %v", status, late)
	}
}

func TestOrdersAreGoneAfterAWeek(t *testing.T) {
	must(t, "POST", "/v1/reset", object{})
	must(t, "POST", "/v1/topics", object{"name": "orders", "partitions": 1})
	send(t, "book")

	must(t, "POST", "/v1/clock/advance", object{"by": "8d"})

	if values(t) != "" {
		t.Fatalf("the log still has %s", values(t))
	}
}
