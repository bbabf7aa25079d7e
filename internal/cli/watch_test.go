package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
)

// TestStatusGoesOn: a status that goes on shows what is declared meanwhile, as a line of its own, and ends well when it is interrupted.
func TestStatusGoesOn(t *testing.T) {
	c := newConsole(t)
	const object = "apiVersion: tako.dev/v1alpha1\nkind: Node\nmetadata: {name: goes-on}\nspec: {environment: nowhere}\n"
	t.Cleanup(func() { c.run(context.Background(), strings.NewReader(""), "delete", "node/goes-on") }) // the tests share the server
	out, in := io.Pipe()
	ctx, interrupt := context.WithTimeout(t.Context(), time.Minute)
	defer interrupt()
	ended := make(chan reason.Exit, 1)
	go func() {
		var errs bytes.Buffer
		streams := Streams{In: strings.NewReader(""), Out: in, Err: &errs, Getenv: func(name string) string { return c.env[name] }}
		root := New(streams)
		root.SetArgs([]string{"status", "-w", "-o", "ndjson"})
		exit := Run(ctx, root, streams)
		in.Close()
		ended <- exit
	}()
	type page struct {
		Nodes struct{ All int } `json:"nodes"`
	}
	var before, after page
	lines := json.NewDecoder(out)
	if err := lines.Decode(&before); err != nil {
		t.Fatal(err)
	}
	if _, errs, exit := c.run(ctx, strings.NewReader(object), "apply", "-f", "-"); exit != reason.ExitOK {
		t.Fatalf("exit %d: %s", exit, errs)
	}
	for after.Nodes.All <= before.Nodes.All {
		if err := lines.Decode(&after); err != nil {
			t.Fatalf("the new node is not shown: %v", err)
		}
	}
	interrupt()
	out.Close() // a page that is being written
	if exit := <-ended; exit != reason.ExitOK {
		t.Errorf("exit %d", exit)
	}
}
