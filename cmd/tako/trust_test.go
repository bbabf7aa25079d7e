package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// run runs `tako trust`.
func run(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	c := trustCommand()
	var b bytes.Buffer
	c.SetOut(&b)
	c.SetErr(&bytes.Buffer{})
	c.SetArgs(args)
	c.SilenceErrors, c.SilenceUsage = true, true
	err = c.ExecuteContext(t.Context())
	return b.String(), err
}

// TestKeysOfPeople: who is to hold a root key makes one, tells its public half, and signs with it what it may sign, without a server.
func TestKeysOfPeople(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "key")
	made, err := run(t, "new-root-key", file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, "new-root-key", file); !reason.Is(err, reason.StateUnwritable) {
		t.Errorf("over a key: %v", err)
	}
	if again, err := run(t, "public-key", file); err != nil || again != made {
		t.Errorf("%q, %v; made %q", again, err, made)
	}
	public, err := trust.ParsePublicKey(strings.TrimSpace(made))
	if err != nil {
		t.Fatal(err)
	}

	now := time.Now()
	keys, err := trust.NewKeys(trust.NewClusterID(), now)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := trust.NewChain(trust.Genesis{Cluster: keys.Cluster(), CA: keys.CA(), Root: trust.NewSigningKey(), Heads: keys.Heads().Public()}, now, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		edit trust.Edit
		want reason.Code // 0 when the key may sign
	}{
		"adds it":            {trust.AddRoot(public, 2), 0},
		"is about something": {trust.BumpEpoch(), reason.TrustRefused},
	} {
		proposal, err := chain.Next(now, c.edit)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "proposal")
		if err := writeProposal(path, proposal); err != nil {
			t.Fatal(err)
		}
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = run(t, "sign", path, "--key", file)
		after, readErr := os.ReadFile(path)
		if readErr != nil {
			t.Fatal(readErr)
		}
		if signed := !bytes.Equal(before, after); signed != (c.want == 0) || c.want != 0 && !reason.Is(err, c.want) {
			t.Errorf("a proposal that %s: signed %t, %v", name, signed, err)
		}
	}
}

// TestKeyID: a key is named by its id or by itself.
func TestKeyID(t *testing.T) {
	public := trust.NewSigningKey().Public()
	for _, s := range []string{public.String(), string(public.ID())} {
		if id, err := keyID(s); err != nil || id != public.ID() {
			t.Errorf("%s: %s, %v", s, id, err)
		}
	}
	for _, s := range []string{"", "root-key", string(public.ID())[1:]} {
		if id, err := keyID(s); !reason.Is(err, reason.InvalidValue) {
			t.Errorf("%q: %s, %v", s, id, err)
		}
	}
}
