// Package bring is how an agent takes what somebody has brought to its host: an order, or a directory with heads, statements and what they
// name. It opens what is at a path, and hands it to what talks to the servers, which verifies it as what comes from there.
//
// The package owns no goroutine.
package bring

import (
	"context"
	"errors"
	"os"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/place"
)

// Brought is what an agent has made of what was brought to it.
type Brought struct {
	Epoch      uint64      `json:"epoch,omitempty"`   // of the head
	Version    uint64      `json:"version,omitempty"` // of the head; 0 where there was none
	News       bool        `json:"news,omitempty"`    // it is higher than what was accepted before
	Statements []Statement `json:"statements,omitempty"`
	Left       []Left      `json:"left,omitempty"` // why other statements do not count here
}

// Statement is a statement that counts on this host.
type Statement struct {
	Layer  string `json:"layer"`
	Number uint64 `json:"number"`
}

// Left is why something does not count on this host.
type Left struct {
	Code    reason.Code `json:"code"`
	Message string      `json:"message"`
	Hint    string      `json:"hint,omitempty"`
}

// Take takes what is at an absolute path. c is nil on a host that stands alone; an order is kept in the state directory while it is read.
func Take(ctx context.Context, c *client.Client, stateDir, path string) (*Brought, error) {
	doing := "accept " + path
	if c == nil {
		return nil, &reason.Error{Code: reason.HostNotJoined, Doing: doing, Cause: errors.New("this agent keeps its host as files declare"),
			Hint: "what is signed is for hosts of a cluster: tako-agent join, and tako-agent run"}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, unusable(doing, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, unusable(doing, err)
	}
	switch {
	case info.IsDir():
		b, err := c.TakePlace(ctx, place.Directory(path))
		if err != nil {
			return nil, late(ctx, doing, err)
		}
		return broughtOf(&b), nil
	case !info.Mode().IsRegular():
		return nil, unusable(doing, errors.New("it is neither a file nor a directory"))
	}
	o, err := place.NewOrder(stateDir, path, f)
	if err != nil {
		return nil, err
	}
	st := o.Statement
	if err := c.TakeOrder(ctx, o); err != nil {
		return nil, late(ctx, doing, err)
	}
	return &Brought{Statements: []Statement{{Layer: st.Layer, Number: st.Number}}}, nil
}

func unusable(doing string, err error) error {
	return &reason.Error{Code: reason.PlaceUnusable, Doing: doing, Cause: err}
}

// late is the error when the host was too busy to judge what came.
func late(ctx context.Context, doing string, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return &reason.Error{Code: reason.TransferBusy, Doing: doing, Cause: errors.New("the host is busy with another state"), Hint: "see `tako-agent status`, and do it again"}
}

func broughtOf(b *client.Brought) *Brought {
	out := &Brought{Epoch: b.Mark.Epoch, Version: b.Mark.Version, News: b.News}
	for i := range b.Statements {
		out.Statements = append(out.Statements, Statement{Layer: b.Statements[i].Layer, Number: b.Statements[i].Number})
	}
	for _, err := range b.Left {
		e := reason.Of(err)
		out.Left = append(out.Left, Left{Code: e.Code, Message: e.Error(), Hint: e.Hint})
	}
	return out
}
